"""This module knows how a question is put to a buffer block by block, and what a block shows.

It does not know the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tdview.analysis.columns import Key, flat_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer

__all__ = ["Chunk", "Engine", "SerialEngine", "run_chunk"]

T = TypeVar("T")
_RELEASE_EVERY = 16  # blocks


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions ``start .. stop - 1`` of a buffer, with the step that follows each of them."""

    buffer: Buffer
    start: int
    stop: int

    def get(self, key: Key) -> NDArray[Any]:
        """Values ``[n, *feature]`` of the positions."""
        return self.buffer.read(key, self.start, self.stop)

    def flat(self, key: Key) -> NDArray[Any]:
        """Values as ``[n, width]``."""
        values = self.get(key)
        return flat_rows(values)

    @property
    def followed(self) -> int:
        """How many of the positions have a position `stride` behind them."""
        return max(0, min(self.stop, self.buffer.n - self.buffer.stride) - self.start)

    def after(self, key: Key) -> NDArray[Any]:
        """Values of what follows the first `followed` positions."""
        first = self.start + self.buffer.stride
        return self.buffer.read(key, first, first + self.followed)

    @property
    def inner(self) -> NDArray[Any]:
        """Which of the first `followed` positions are followed by a step of the same episode."""
        return ~self.buffer.breaks[self.start : self.start + self.followed]

    @property
    def valid(self) -> NDArray[Any] | None:
        """Which positions are steps and no padding; None for all."""
        valid = self.buffer.valid
        return None if valid is None else valid[self.start : self.stop]

    def positions(self, mask: NDArray[Any]) -> NDArray[Any]:
        """Positions where a mask over the first elements of the chunk is set, padding left out."""
        import numpy as np

        valid = self.valid
        if valid is not None:
            mask = mask & valid[: len(mask)]
        return np.flatnonzero(mask) + self.start


class Engine:
    """Runs a chunk function over spans of a buffer."""

    def run(
        self, buffer: Buffer, function: Callable[..., T], spans: Sequence[tuple[int, int]], arguments: tuple[Any, ...]
    ) -> list[T]:
        """Results in the order of the spans."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases what other processes hold for this engine."""


def run_chunk(function: Callable[..., T], buffer: Buffer, start: int, stop: int, arguments: tuple[Any, ...]) -> T:
    """One call of a chunk function. Overflows and NaN are data here: numpy is told not to warn of them."""
    import numpy as np

    with np.errstate(all="ignore"):
        return function(Chunk(buffer, start, stop), *arguments)


class SerialEngine(Engine):
    """One block after the other in the calling thread."""

    def run(
        self, buffer: Buffer, function: Callable[..., T], spans: Sequence[tuple[int, int]], arguments: tuple[Any, ...]
    ) -> list[T]:
        results = []
        for number, (start, stop) in enumerate(spans):
            buffer.tick()
            results.append(run_chunk(function, buffer, start, stop, arguments))
            if number % _RELEASE_EVERY == _RELEASE_EVERY - 1:
                buffer.release()
        return results

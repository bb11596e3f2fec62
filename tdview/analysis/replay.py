"""This module knows how the rows of a saved buffer follow each other: valid rows, time order, lanes, episode breaks.

It does not know what is right or wrong about their values.

Positions count the valid elements in reading order, ``0 .. n - 1``. Position `p` is followed in time by position
``p + stride`` unless `breaks[p]` says that nothing follows. For a ring of one environment the stride is 1 and the
positions start at the oldest row; for ``[time, env]`` storages it is the number of environments; for padded or
``[chunk, time]`` storages each row is a lane of its own; rows of several environments that were written one after
the other are first sorted by trajectory and step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tdview.analysis import columns as col
from tdview.analysis.blocks import Engine, SerialEngine
from tdview.analysis.columns import Column, Key, flat_rows
from tdview.analysis.order import breaks_of, row_ranges, stretch_of, time_runs_last, untangled
from tdview.analysis.parts import Options, Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.fill import Fill, SideFiles

__all__ = ["Buffer", "Progress"]

Progress = Callable[[int, int], None]
T = TypeVar("T")

_CHUNK_BYTES = 4 << 20
_HEAVY_ROW = 1024
_HEAVY_LEAF = 256 << 20
_SAMPLE_RUN = 16  # consecutive rows in one piece of a sample, so that pairs of neighbours are seen


class Buffer(Parts):
    """The valid rows of a buffer as columns by nested key, in time order.

    ``buffer["next", "reward"]`` gives all valid values in reading order (a private copy where they are not
    contiguous); rules read blocks instead: see `map`.
    """

    def __init__(
        self,
        columns: Mapping[Key, Column],
        shape: Sequence[int],
        *,
        fill: Fill | None = None,
        side: SideFiles | None = None,
        options: Options | None = None,
        where: str = "",
        profile: str = "",
        horizon: int | None = None,
    ) -> None:
        super().__init__(columns, shape, options)
        self.fill = fill
        self.side = side
        self.where = where
        self.profile = profile
        """``"flat"``, ``"nested"``, ``"atari"``, ``"pytree"`` where the file needed an adapter, else empty."""
        self.known_horizon = self.options.horizon or horizon
        self.unread: tuple[Key, ...] = ()
        """Leaves that are no columns because they cannot be read in bounded memory: they are to be unpacked first."""
        self.engine: Engine = SerialEngine()
        self.tick: Callable[[], None] = lambda: None

    @property
    def ordered(self) -> bool:
        """Neighbouring positions are neighbours in time."""
        return self.fill is None or self.fill.ordered

    # -- order --------------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Rows of dim 0 of the storage."""
        return self.shape[0] if self.shape else 0

    @cached_property
    def inner(self) -> int:
        """Elements of one row."""
        return int(col._size(self.shape[1:]))

    @cached_property
    def rows(self) -> int:
        """Valid rows of dim 0."""
        return self.capacity if self.fill is None else min(self.fill.rows, self.capacity)

    @cached_property
    def head(self) -> int:
        """The oldest row where the ring wraps, else 0."""
        if self.fill is None or self.fill.rotated or not self.fill.full:
            return 0
        return self.fill.seam or 0

    @cached_property
    def n(self) -> int:
        """Number of positions."""
        return self.rows * self.inner

    @cached_property
    def time_last(self) -> bool:
        """Each row of dim 0 is a stretch of time; False: time runs along dim 0."""
        if self.inner <= 1 or len(self.shape) < 2:
            return False
        if self.options.time_dim is not None:
            return self.options.time_dim % len(self.shape) != 0
        if self.mask_key is not None:
            return True
        return time_runs_last(self)

    @cached_property
    def stride(self) -> int:
        """Distance in positions from a step to the next one."""
        return 1 if self.time_last else max(1, self.inner)

    @cached_property
    def permutation(self) -> NDArray[Any] | None:
        """Positions in time order where rows of several environments alternate; None where they do not."""
        return untangled(self) if self.inner == 1 and self.ordered and self.id_key is not None else None

    @cached_property
    def first_write(self) -> int:
        """How many rows were written before position 0, as far as it is known."""
        if self.fill is None:
            return 0
        count = self.fill.write_count
        return count - self.rows if count is not None and count >= self.rows else self.head

    @cached_property
    def stretch(self) -> int:
        """Rows after which another environment's rows follow, where no ids tell them apart; 0 where there is none.

        Batches of several environments that were flattened break off every so many rows, always the same number.
        """
        if self.inner != 1 or not self.ordered or self.id_key is not None or self.n_step or self.n < 12:
            return 0
        return stretch_of(self)

    def elements(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Flat storage elements of positions."""
        if self.permutation is not None:
            positions = self.permutation[positions]
        return self._ring(positions)

    def _ring(self, positions: NDArray[Any]) -> NDArray[Any]:
        if not self.head:
            return positions
        total = self.capacity * self.inner
        moved: NDArray[Any] = (positions + self.head * self.inner) % total
        return moved

    def storage_rows(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Storage rows (dim 0) of positions."""
        found = self.elements(positions)
        return found // self.inner if self.inner > 1 else found

    def ranges(self, positions: Any, width: int = 1) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of storage rows of positions, merged and ascending, at most a thousand.

        Args:
            positions: int array of positions.
            width: how many steps in time each position stands for.
        """
        import numpy as np

        found = np.asarray(positions, np.int64).ravel()
        parts = [found + k * self.stride for k in range(width)]
        whole = np.concatenate(parts)
        return row_ranges(self.storage_rows(whole[whole < self.n]))

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, key: Key, start: int, stop: int) -> NDArray[Any]:
        """Values of positions `start` to `stop`: ``[stop - start, *feature]``."""
        import numpy as np

        column = self.columns[key]
        if self.permutation is not None:
            return column.take(self._ring(self.permutation[start:stop]))
        return self._read_in_ring(column, start, stop, np)

    def _read_in_ring(self, column: Column, start: int, stop: int, np: Any) -> NDArray[Any]:
        first = self.head * self.inner
        total = self.capacity * self.inner
        a, b = start + first, stop + first
        if not first or b <= total:
            return column.read(a, b)
        if a >= total:
            return column.read(a - total, b - total)
        joined: NDArray[Any] = np.concatenate([column.read(a, total), column.read(0, b - total)])
        return joined

    def take(self, key: Key, positions: NDArray[Any]) -> NDArray[Any]:
        """Values of an array of positions."""
        return self.columns[key].take(self.elements(positions))

    def __getitem__(self, key: str | Key) -> NDArray[Any]:
        return self.read((key,) if isinstance(key, str) else tuple(key), 0, self.n)

    def __contains__(self, key: object) -> bool:
        return ((key,) if isinstance(key, str) else key) in self.columns

    def scalar(self, key: Key, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The first value of each position: ``[n]``."""
        values = self.read(key, start, self.n if stop is None else stop)
        return flat_rows(values)[:, 0] if values.ndim > 1 else values

    def flag(self, key: Key, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """A flag as bool ``[n]``; of a group of agents it is set when it is set for all of them."""
        values = self.read(key, start, self.n if stop is None else stop)
        flat = flat_rows(values)
        found: NDArray[Any] = (flat[:, 0] != 0) if flat.shape[1] == 1 else (flat != 0).all(axis=1)
        return found

    def end(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Whether an episode ends with the step: ``[n]`` bool."""
        import numpy as np

        stop = self.n if stop is None else stop
        found = np.zeros(stop - start, bool)
        for key in self.end_keys:
            found |= self.flag(key, start, stop)
        return found

    @cached_property
    def valid(self) -> NDArray[Any] | None:
        """Which positions are steps; None where all are (there is no padding)."""
        return None if self.mask_key is None else self.flag(self.mask_key)

    @cached_property
    def n_valid(self) -> int:
        """Number of steps."""
        return self.n if self.valid is None else int(self.valid.sum())

    @cached_property
    def breaks(self) -> NDArray[Any]:
        """After which positions nothing follows in the same episode: bool ``[n]``, one byte a position."""
        import numpy as np

        found = np.ones(self.n, bool)
        for start, stop in self.spans((), extra=18):
            found[start:stop] = breaks_of(self, start, stop)
            self.release()
        return found

    def spans(self, keys: Iterable[Key], extra: int = 0) -> list[tuple[int, int]]:
        """Stretches of positions that fit into one block of bounded memory for these keys."""
        size = extra + sum(max(1, col.nbytes(self.columns[key])) for key in keys)
        step = max(1, _CHUNK_BYTES // max(1, size))
        return [(a, min(a + step, self.n)) for a in range(0, self.n, step)]

    def is_heavy(self, key: Key) -> bool:
        """Whether only a sample of this leaf is read."""
        row = col.nbytes(self.columns[key])
        return (
            self.options.sample is not None
            and row >= _HEAVY_ROW
            and row * self.n > _HEAVY_LEAF
            and self.n > self.options.sample
        )

    def sampled(self, keys: Iterable[Key]) -> list[tuple[int, int]]:
        """`spans` of evenly spread pieces that make up the sample of a heavy leaf; the same for every run."""
        import numpy as np

        step = self.stride
        pieces = max(1, (self.options.sample or 1) // _SAMPLE_RUN)
        run = min(self.n, _SAMPLE_RUN + step)
        starts = np.unique(np.linspace(0, self.n - run, pieces).astype(np.int64))
        size = sum(col.nbytes(self.columns[key]) for key in keys)
        length = max(1, min(run, (64 << 20) // max(1, size)))
        return [(int(a), int(a) + length) for a in starts]

    def release(self) -> None:
        """Lets the system take back the pages of large leaves."""
        for column in self.columns.values():
            if isinstance(column, col.LeafColumn):
                column.release()

    def map(self, function: Callable[..., T], *keys: Key, arguments: tuple[Any, ...] = ()) -> list[T]:
        """``function(chunk, *arguments)`` over blocks that cover all valid positions, results in order.

        Args:
            function: a function of a module, so that it can be sent to another process.
            keys: what the function reads; they decide the size of the blocks. If one of them is heavy, the
                blocks are a sample: see `is_heavy`.
            arguments: further arguments, the same for all blocks.
        """
        heavy = [key for key in keys if self.is_heavy(key)]
        spans = self.sampled(keys) if heavy else self.spans(keys)
        return self.engine.run(self, function, spans, arguments)

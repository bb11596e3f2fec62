"""This module knows how long work tells what it has done, and is stopped.

It does not know what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

__all__ = ["Progress", "Tally"]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all, between two blocks; what it raises stops the work."""


class Tally:
    """Adds up the bytes that are done, from any thread, and reports them.

    Args:
        progress: who is told; None for nobody.
        total: bytes in all.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._done += nbytes
                self._progress(self._done, self._total)

    def count(self, blocks: Iterable[bytes | memoryview]) -> Iterable[bytes | memoryview]:
        """The blocks, each counted when the next one is asked for, which is when it has been used."""
        return blocks if self._progress is None else self._counted(blocks)

    def _counted(self, blocks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        for block in blocks:
            yield block
            self(memoryview(block).nbytes)

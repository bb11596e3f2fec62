"""This module knows how ranges of compressed entries are read in bounded memory: forwards, from where a reader stands.

It does not know how an entry is inflated, nor the archive around it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

__all__ = ["ForwardReaders"]

_OF_ONE = 4
"""Readers of one entry: two ends of a ring, and rows that are compared with rows further on."""
_OF_ALL = 64
_KEPT_BYTES = 16 << 20


class _Reader:
    """Inflates one entry from its start. Of what it inflated it keeps what the last range asked for and beyond."""

    __slots__ = ("_pieces", "_source", "end", "first", "kept", "name")

    def __init__(self, name: str, source: Iterator[bytes]) -> None:
        self.name = name
        self.first = self.end = self.kept = 0
        self._source = source
        self._pieces: deque[bytes] = deque()

    def read(self, start: int, stop: int) -> bytearray:
        """Bytes `start` to `stop`; `start` must not lie before `first`."""
        self._drop(start)
        while self.end < stop:
            piece = next(self._source)
            self._pieces.append(piece)
            self.end += len(piece)
            self.kept += len(piece)
            self._drop(start)
        result = bytearray(stop - start)
        at = self.first
        for piece in self._pieces:
            low, high = max(at, start), min(at + len(piece), stop)
            if low < high:
                result[low - start : high - start] = memoryview(piece)[low - at : high - at]
            at += len(piece)
        return result

    def _drop(self, before: int) -> None:
        while self._pieces and self.first + len(self._pieces[0]) <= before:
            gone = len(self._pieces.popleft())
            self.first += gone
            self.kept -= gone

    def forget(self) -> None:
        """Drops what it keeps; it can still be read on from `end`."""
        self._drop(self.end)


class ForwardReaders:
    """The readers of the entries of one archive.

    A range behind a reader is read on from there, another one from the start of the entry. Together they keep at
    most 16 MB, and the last range of one entry is twice in memory while it is read.
    """

    def __init__(self) -> None:
        self._readers: list[_Reader] = []  # the one used last stands last
        self._lock = threading.Lock()

    @property
    def kept(self) -> int:
        """Inflated bytes that are kept."""
        return sum(reader.kept for reader in self._readers)

    def read(self, name: str, start: int, stop: int, source: Callable[[], Iterator[bytes]]) -> bytearray:
        """Bytes `start` to `stop` of an entry.

        Args:
            name: of the entry.
            source: called where the entry is inflated from its start: its bytes in pieces, at least `stop` of them.
        """
        with self._lock:
            reader = self._take(name, start) or _Reader(name, source())
            data = reader.read(start, stop)  # one that fails is not put back
            self._readers.append(reader)
            self._trim(name)
            return data

    def _take(self, name: str, start: int) -> _Reader | None:
        """The reader that has least to inflate, taken out of the list."""
        fit = [reader for reader in self._readers if reader.name == name and reader.first <= start]
        best = max(fit, key=lambda reader: reader.end, default=None)
        if best is not None:
            self._readers.remove(best)
        return best

    def _trim(self, name: str) -> None:
        same = [reader for reader in self._readers if reader.name == name]
        for reader in (*same[:-_OF_ONE], *self._readers[:-_OF_ALL]):
            if reader in self._readers:
                self._readers.remove(reader)
        over = self.kept - _KEPT_BYTES
        for reader in self._readers:
            if over <= 0:
                return
            over -= reader.kept
            reader.forget()

    def clear(self) -> None:
        """Forgets every reader."""
        with self._lock:
            self._readers.clear()

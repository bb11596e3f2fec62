"""This module knows how to write a ``.tdz`` archive in one pass: each byte is read, checked and written once.

It does not know where the content comes from, nor how the finished file takes its place.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType

from tdview.errors import EncodeError
from tdview.format.archive_layout import (
    CRC_OFFSET,
    METHODS,
    PAYLOAD_SUFFIX,
    EntryHeader,
    Stamp,
    central_record,
    end_records,
    local_header,
)
from tdview.storage.compress import Encoder, Method, deflate_piece, encoder
from tdview.storage.crc import combine, crc32
from tdview.storage.fileio import CALL, RESERVED, octets, reserve, write_at, write_parts

__all__ = ["STEP", "ArchiveWriter", "Block"]

Block = bytes | memoryview

_PIECE = 1 << 20
"""Bytes that are compressed at a time; the pieces of one payload are spread over the threads."""
_WHOLE = 16 << 20
"""A bzip2 or lzma payload of so many bytes is compressed in a thread; a larger one as it comes."""
_QUEUED = 32 << 20
"""Bytes of content that wait for their turn to be written, at most, plus one block."""
_INLINE = 32 << 10
"""A payload of so many bytes is compressed sooner than handed to a thread."""
_COPIED = 128 << 10
"""A block of so many bytes is copied and written together with its neighbours."""
STEP = 1 << 20
"""Large payloads are checked and written up to multiples of it: such a piece stays in the cache of the core."""
_AHEAD = 64 << 20
"""Disk space that is asked for ahead of what is written, at most."""
_BATCH_PARTS = 1000  # IOV_MAX is 1024

_Part = tuple[bytes, int, int]
"""Compressed bytes, CRC-32 and number of the bytes that were compressed."""


@dataclass(slots=True)
class _Job:
    """A zip entry that is being compressed; its parts are written in order."""

    entry: EntryHeader
    parts: deque[Future[_Part] | _Part] = field(default_factory=deque)
    complete: bool = False
    header: bytearray | None = None
    encoder: Encoder | None = None


class ArchiveWriter:
    """Writes zip entries one after the other into an empty file that is open for writing.

    Invariant: what lies before `nbytes` is final, but for the checksums and sizes in headers of entries that are
    still open. A file that is left before `finish` is no archive: it has no central directory.

    Args:
        fd: file descriptor at offset 0. It stays open.
        method: of the payloads; everything else is stored.
        level: of the compression, None for the default.
        stamp: time of every zip entry.
        workers: threads that compress; below 2 the calling thread does. Storing is the work of one.
        expected_nbytes: about how large the archive will be, if that is known; so much disk space is asked for first.
    """

    def __init__(
        self,
        fd: int,
        *,
        method: Method,
        level: int | None,
        stamp: Stamp,
        workers: int = 0,
        expected_nbytes: int = 0,
    ) -> None:
        self.nbytes = 0
        """Size of what was written so far, in bytes."""
        self._fd = fd
        self._method: Method = method
        self._level = level
        self._stamp = stamp
        self._pool = ThreadPoolExecutor(workers, "tdview-archive") if workers > 1 and method != "stored" else None
        self._batch: list[Block | bytearray] = []
        self._batch_nbytes = 0
        self._jobs: deque[_Job] = deque()
        self._queued = 0
        self._central: list[bytes] = []
        self._reserved = 0
        if expected_nbytes >= RESERVED:
            reserve(fd, 0, expected_nbytes)
            self._reserved = expected_nbytes

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def add(self, name: str, nbytes: int, blocks: Iterable[Block]) -> None:
        """Writes one zip entry. A block is not kept: it may be overwritten as soon as the next one is asked for.

        Raises:
            EncodeError: the blocks do not add up to `nbytes`.
        """
        payload = name.endswith(PAYLOAD_SUFFIX)
        method = METHODS[self._method] if payload else 0
        entry = EntryHeader(name=name, nbytes=nbytes, stored_nbytes=nbytes, crc=0, method=method, header_offset=0)
        if self._method == "stored":
            self._store(entry, blocks)
            return
        job = _Job(entry)
        self._jobs.append(job)
        total = 0
        for data, last in _pieces(blocks, nbytes, _PIECE if self._method == "deflate" else _WHOLE):
            total += len(data)
            self._compress(job, data, last=last)
        self._check_size(entry, total)
        job.complete = True
        self._write_queued(_QUEUED)

    def finish(self) -> int:
        """Writes the central directory and gives the size of the archive in bytes."""
        self._write_queued(0)
        offset = self.nbytes
        for record in self._central:
            self._emit(record)
        self._emit(end_records(len(self._central), offset, self.nbytes - offset))
        self._flush()
        if self._reserved:
            os.ftruncate(self._fd, self.nbytes)
        return self.nbytes

    # stored ---------------------------------------------------------------------------------------------------------

    def _store(self, entry: EntryHeader, blocks: Iterable[Block]) -> None:
        entry.header_offset = self.nbytes
        header = bytearray(local_header(entry, self._stamp))
        self._emit(header)
        start, crc = self.nbytes, 0
        for block in blocks:
            for piece in self._aligned(block):
                crc = crc32(piece, crc)
                self._emit(piece)
        self._check_size(entry, self.nbytes - start)
        entry.crc = crc
        self._close_entry(entry, header)

    def _aligned(self, block: Block) -> Iterator[Block]:
        """A large block in pieces that end where the file's steps do.

        The system caches a write that begins at a round offset in large folios, and a third faster than one that
        does not.
        """
        if memoryview(block).nbytes <= _COPIED:
            yield block
            return
        view = octets(block)
        while view:
            size = self.step
            yield view[:size]
            view = view[size:]

    @property
    def step(self) -> int:
        """Bytes up to the next round offset; a source that can choose should give blocks of this size."""
        return STEP - self.nbytes % STEP

    # compressed -----------------------------------------------------------------------------------------------------

    def _compress(self, job: _Job, data: bytes, *, last: bool) -> None:
        method, level = job.entry.method, self._level
        threaded = self._pool is not None and job.entry.nbytes > _INLINE
        if method == METHODS["stored"]:
            job.parts.append((data, crc32(data), len(data)))
        elif method == METHODS["deflate"]:
            job.parts.append(self._run(threaded, _deflated, data, level, last))
        else:
            whole = last and job.encoder is None
            job.encoder = job.encoder or encoder(self._method, level)
            job.parts.append(self._run(threaded and whole, _encoded, data, job.encoder, last))
        self._queued += len(data)
        self._write_queued(_QUEUED)

    def _run(self, threaded: bool, work: Callable[..., _Part], *args: object) -> Future[_Part] | _Part:
        return self._pool.submit(work, *args) if threaded and self._pool is not None else work(*args)

    def _write_queued(self, limit: int) -> None:
        """Writes finished parts in order until at most `limit` bytes of content wait."""
        while self._jobs and (self._queued > limit or limit == 0):
            job = self._jobs[0]
            if job.header is None:
                job.entry.header_offset, job.entry.stored_nbytes = self.nbytes, 0
                job.header = bytearray(local_header(job.entry, self._stamp))
                self._emit(job.header)
            if job.parts:
                self._write_part(job)
            elif job.complete:
                self._jobs.popleft()
                self._close_entry(job.entry, job.header)
            else:
                return

    def _write_part(self, job: _Job) -> None:
        part = job.parts.popleft()
        data, crc, nbytes = part.result() if isinstance(part, Future) else part
        self._emit(data)
        self._queued -= nbytes
        job.entry.crc = combine(job.entry.crc, crc, nbytes)
        job.entry.stored_nbytes += len(data)

    # file -----------------------------------------------------------------------------------------------------------

    def _close_entry(self, entry: EntryHeader, header: bytearray) -> None:
        """Puts checksum and sizes into the header, in memory if it is still there, and notes the central record."""
        self._central.append(central_record(entry, self._stamp))
        if self._batch_start <= entry.header_offset:
            struct.pack_into("<I", header, CRC_OFFSET, entry.crc)
            struct.pack_into("<Q", header, len(header) - 8, entry.stored_nbytes)
        elif entry.method == 0:
            write_at(self._fd, struct.pack("<I", entry.crc), entry.header_offset + CRC_OFFSET)
        else:
            write_at(self._fd, local_header(entry, self._stamp), entry.header_offset)

    @property
    def _batch_start(self) -> int:
        return self.nbytes - self._batch_nbytes

    def _emit(self, data: Block | bytearray) -> None:
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        if not size:
            return
        kept = size > _COPIED or not isinstance(data, memoryview)
        self._batch.append(data if kept else bytes(data))
        self._batch_nbytes += size
        self.nbytes += size
        if size > _COPIED or self._batch_nbytes >= CALL or len(self._batch) >= _BATCH_PARTS:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch, self._batch_nbytes = self._batch, [], 0
        if self.nbytes > max(self._reserved, RESERVED):
            ahead = self.nbytes + min(max(self.nbytes // 4, RESERVED), _AHEAD)
            reserve(self._fd, self._reserved, ahead)
            self._reserved = ahead
        write_parts(self._fd, batch)

    def _check_size(self, entry: EntryHeader, nbytes: int) -> None:
        if nbytes != entry.nbytes:
            raise EncodeError(f"zip entry {entry.name}: expected {entry.nbytes} bytes of content, got {nbytes}")


def _deflated(data: bytes, level: int | None, last: bool) -> _Part:
    return deflate_piece(data, level, last=last), crc32(data), len(data)


def _encoded(data: bytes, encoder: Encoder, last: bool) -> _Part:
    return encoder.compress(data) + (encoder.flush() if last else b""), crc32(data), len(data)


def _pieces(blocks: Iterable[Block], nbytes: int, size: int) -> Iterator[tuple[bytes, bool]]:
    """Copies of the content in pieces of `size` bytes, and whether a piece is the last one; at least one piece."""
    rest, done = bytearray(), 0
    for block in blocks:
        view = memoryview(block).cast("B")
        while len(rest) + len(view) >= size:
            head = size - len(rest)
            data = bytes(rest) + bytes(view[:head])
            rest, view, done = bytearray(), view[head:], done + size
            yield data, done == nbytes
        rest += view
    if rest or not nbytes:
        yield bytes(rest), True

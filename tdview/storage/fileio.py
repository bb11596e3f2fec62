"""This module knows how to read and write a whole buffer at a file descriptor, where the system may do only a part.

It does not know paths, nor what the bytes mean.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, wait

__all__ = ["read_ahead", "read_blocks", "reserve", "write_all", "write_at", "write_parts"]

Buffer = bytes | bytearray | memoryview

BLOCK = 1 << 20
"""Bytes that are read and checked at a time: they stay in the cache of the core from one step to the next."""
CALL = 256 << 10
"""Most bytes that one call writes.

Linux takes a free block of memory as large as the call for the cache of the file, and a virtual machine may have given
its large ones back to its host: to get them again takes five times as long as the write itself. Small calls fit what
is left; below this size the calls themselves cost.
"""
RESERVED = 1 << 20
"""Smallest range that is worth a reservation."""


def octets(data: Buffer) -> memoryview:
    """The bytes of a buffer of whatever item type; a view, unless Python cannot view items of that type."""
    view = memoryview(data)
    try:
        return view.cast("B")
    except TypeError:  # complex numbers
        return memoryview(view.tobytes())


def write_all(fd: int, data: Buffer) -> None:
    """Writes all of `data` at the file position, at most `CALL` bytes at a time."""
    nbytes = memoryview(data).nbytes
    written = os.write(fd, data if nbytes <= CALL else octets(data)[:CALL])
    if written != nbytes:
        rest = octets(data)[written:]
        while rest:
            rest = rest[os.write(fd, rest[:CALL]) :]


def write_at(fd: int, data: Buffer, offset: int) -> None:
    """Writes all of `data` at byte `offset`, at most `CALL` bytes at a time; the file position stays."""
    nbytes = memoryview(data).nbytes
    written = os.pwrite(fd, data if nbytes <= CALL else octets(data)[:CALL], offset)
    if written != nbytes:
        rest = octets(data)[written:]
        while rest:
            offset += written
            written = os.pwrite(fd, rest[:CALL], offset)
            rest = rest[written:]


def write_parts(fd: int, parts: Sequence[Buffer]) -> None:
    """Writes up to 1024 buffers one behind the other; in one call, but for what the last has above `CALL` bytes."""
    if not parts:
        return
    written = os.writev(fd, [*parts[:-1], octets(parts[-1])[:CALL]])
    for part in parts:
        size = part.nbytes if isinstance(part, memoryview) else len(part)
        if written < size:
            write_all(fd, octets(part)[written:])
        written = max(0, written - size)


def read_blocks(fd: int, offset: int, nbytes: int) -> Iterator[memoryview]:
    """The bytes from `offset` on, block by block. All blocks share one buffer: use one before you ask for the next.

    Ends early where the file does.
    """
    buffer = memoryview(bytearray(min(BLOCK, nbytes)))
    end = offset + nbytes
    while offset < end:
        read = os.preadv(fd, [buffer[: end - offset]], offset)
        if not read:
            return
        yield buffer[:read]
        offset += read


def read_ahead(
    fd: int, offset: int, nbytes: int, reader: Executor, buffers: Sequence[memoryview], *, first: int
) -> Iterator[memoryview]:
    """As `read_blocks`, but the next block is read by a thread of `reader` while one is used.

    Args:
        fd: the file.
        offset: of the first byte.
        nbytes: how many.
        reader: who reads.
        buffers: two of the same size, for the blocks in turn.
        first: size of the first block, if it is to be smaller than the buffers.
    """
    end, size, turn = offset + nbytes, min(first, len(buffers[0])), 0

    def read_next() -> Future[int]:
        return reader.submit(os.preadv, fd, [buffers[turn][: min(size, end - offset)]], offset)

    pending = read_next()
    try:
        while read := pending.result():
            block, turn = buffers[turn][:read], 1 - turn
            offset += read
            size = size - read if read < size else len(buffers[turn])
            if offset < end:
                pending = read_next()
            yield block
            if offset >= end:
                return
    finally:
        wait([pending])  # before the file is closed


def reserve(fd: int, start: int, end: int) -> None:
    """Asks for the disk space of the bytes `start` to `end` of a file before they are written; the file grows to it.

    A full disk is noticed before the first byte. On ext4, writing into blocks that are there is half as fast again,
    and renaming the file over another does not wait for its data to be sent to the disk. Does nothing for a small
    range, or where the file system cannot reserve.

    Raises:
        OSError: the disk is full.
    """
    if end - start < RESERVED or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV, errno.EPERM):
            raise

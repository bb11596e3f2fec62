"""This module knows how to checksum many ranges of one file with several threads.

It does not know what the ranges are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tdview.storage.crc import combine, crc32
from tdview.storage.fileio import BLOCK, read_blocks

__all__ = ["Range", "crc_ranges"]

Range = tuple[int, int]
"""Offset and size in bytes."""

_CHUNK = 32 << 20
"""Bytes of a large range that one thread takes at a time."""
_BATCH = 1 << 20
"""Small ranges that lie so close together are read in one call."""

_Part = tuple[int, int, int]
"""Index of a range, CRC-32 of a part of it, size of the part."""


def crc_ranges(
    fd: int, ranges: Sequence[Range], *, workers: int = 1, done: Callable[[int], None] | None = None
) -> list[int]:
    """CRC-32 of each range of a file.

    Reads into small buffers (1 MB a thread) and never maps the file, so that a file that shrinks meanwhile gives a
    wrong checksum and not the end of the process. Memory does not depend on the sizes.

    Args:
        fd: the file, open for reading.
        ranges: in the order of their offsets for the best speed; of any size.
        workers: threads; below 2 the calling thread does all.
        done: called with the bytes that were read since the last call; what it raises stops the work.

    Returns:
        The checksums in the order of `ranges`. A range that the file is too short for has that of what is there.
    """
    crcs = [0] * len(ranges)
    tasks = _tasks(ranges)
    if workers < 2:
        for task in tasks:
            _gather(crcs, _crc_task(fd, task), done)
        return crcs
    pool = ThreadPoolExecutor(workers, "tdview-crc")
    try:
        for parts in pool.map(lambda task: _crc_task(fd, task), list(tasks)):
            _gather(crcs, parts, done)
    finally:
        pool.shutdown(cancel_futures=True)
    return crcs


def _tasks(ranges: Sequence[Range]) -> Iterator[list[tuple[int, int, int]]]:
    """Index, offset and size of what one thread takes at a time."""
    batch: list[tuple[int, int, int]] = []
    for index, (offset, nbytes) in enumerate(ranges):
        end = offset + nbytes
        if batch and (nbytes > _BATCH or not batch[0][1] <= offset or end - batch[0][1] > _BATCH):
            yield batch
            batch = []
        if nbytes > _BATCH:
            for start in range(offset, end, _CHUNK):
                yield [(index, start, min(_CHUNK, end - start))]
        else:
            batch.append((index, offset, nbytes))
    if batch:
        yield batch


def _crc_task(fd: int, task: list[tuple[int, int, int]]) -> list[_Part]:
    first, size = task[0][1], max(offset + nbytes for _, offset, nbytes in task) - task[0][1]
    if len(task) > 1 or size <= BLOCK:
        data = memoryview(os.pread(fd, size, first))
        return [(i, crc32(data[offset - first : offset - first + n]), n) for i, offset, n in task]
    index, crc = task[0][0], 0
    for block in read_blocks(fd, first, size):
        crc = crc32(block, crc)
    return [(index, crc, size)]


def _gather(crcs: list[int], parts: list[_Part], done: Callable[[int], None] | None) -> None:
    for index, crc, nbytes in parts:
        crcs[index] = combine(crcs[index], crc, nbytes) if crcs[index] else crc
    if done is not None:
        done(sum(nbytes for _, _, nbytes in parts))

"""This module knows how rows are added to a save so that a reader sees all of them or none, also after a kill.

It does not know whether rows fit, nor what they are: it is given the bytes for each leaf.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tdview.format.payload import META
from tdview.operations.growth import GrowingLeaf, GrowingLevel, GrowingSave, MetaTemplate
from tdview.storage.fileio import write_all, write_at
from tdview.storage.leftovers import APPEND_TMP

__all__ = ["Buffer", "RowWriter"]

Buffer = Any
"""Bytes, a memoryview or an array: anything C-contiguous that the system can write. Arrays are preferred, because
Python's garbage collector does not track them: a thousand tracked objects an append make it run for 100 ms in turn."""

_MANY = 8
"""From so many levels on, another thread is worth its while for a single append."""
_RESTORED = ".tdtmp-restored"


class RowWriter:
    """Adds rows to one save, as often as it is asked to.

    Every append goes through the same steps, so that a kill at any point leaves the old rows, the new rows, or a
    state that `recover_append` ends:

    1. the payloads grow: rows are written where the old ones end, which no ``meta.json`` tells of yet;
    2. the new ``meta.json`` of every level is written as ``.meta.json.append.tmp``, the top one first;
    3. each is renamed over its ``meta.json``, the top one first.

    An append that fails is taken back: payloads get their old size, every ``meta.json`` its old content.

    Args:
        save: the save; the caller holds its lock.
        fsync: whether payloads and ``meta.json`` files are synced to the disk in the order of the steps, so that the
            same holds for a power failure.
        keep_open: how many payloads are kept open, from now on until `close`.
        once: whether there will be one append only.

    Raises:
        DecodeError: ``file_size``: a payload is too short for the rows of the save.

    Spec: `append_memmap`.
    """

    def __init__(self, save: GrowingSave, *, fsync: bool = False, keep_open: int = 0, once: bool = False) -> None:
        self.save = save
        self._fsync = fsync
        self._keep_open = keep_open
        self._opened = 0
        self._current = [_original(level) for level in save.levels]
        self._freeing = None if once and len(save.levels) < _MANY else _Freeing(wait=not once)
        try:
            for leaf in save.leaves:
                self._measure(leaf)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the payloads that were kept open."""
        if self._freeing is not None:
            self._freeing.close()
        for leaf in self.save.leaves:
            if leaf.fd is not None:
                fd, leaf.fd = leaf.fd, None
                os.close(fd)
        self._opened = 0

    def append(self, payloads: Sequence[Buffer], rows: int) -> None:
        """Adds `rows` rows.

        Args:
            payloads: for each leaf of the save, in order, its rows in C order.
            rows: how many; 0 changes nothing.
        """
        if rows == 0:
            return
        save = self.save
        grown = _Grown()
        try:
            for leaf, payload in zip(save.leaves, payloads, strict=True):
                self._grow(leaf, payload, rows * leaf.row_nbytes, grown)
        except BaseException:
            self._shrink(grown)
            raise
        contents = [_template(level).render(save.rows + rows) for level in save.levels]
        try:
            for level, content in zip(save.levels, contents, strict=True):
                self._write_meta(f"{level.directory}/{APPEND_TMP}", content)
        except BaseException:
            self._drop_temporaries()
            self._shrink(grown)
            raise
        self._replace_metas(contents, grown)
        save.rows += rows
        self._current = contents

    # payloads -------------------------------------------------------------------------------------------------------

    def _grow(self, leaf: GrowingLeaf, payload: Buffer, nbytes: int, grown: _Grown) -> None:
        if not nbytes:
            return
        end = self.save.rows * leaf.row_nbytes
        fd = self._open(leaf) if leaf.fd is None else leaf.fd
        try:
            size = leaf.size
            if size > end:  # bytes behind the declared end are no data, but a failed append gives them back as well
                grown.tails[len(grown.leaves)] = os.pread(fd, size - end, end)
            grown.leaves.append(leaf)
            write_at(fd, payload, end)
            if self._fsync:
                os.fsync(fd)
        finally:
            if leaf.fd is None:
                os.close(fd)
        leaf.size = max(size, end + nbytes)

    def _measure(self, leaf: GrowingLeaf) -> None:
        """Notes the size of a payload; of one that stays open, that takes less time than to look for it by name."""
        if not leaf.exists:
            return
        if self._opened < self._keep_open:
            leaf.size = os.lseek(self._open(leaf), 0, os.SEEK_END)
        else:
            leaf.size = os.stat(leaf.path, follow_symlinks=False).st_size
        leaf.check_size(self.save.rows)

    def _open(self, leaf: GrowingLeaf) -> int:
        """A descriptor of a payload that is not open; it is to be closed unless the leaf keeps it."""
        create = 0 if leaf.exists else os.O_CREAT | os.O_EXCL
        fd = os.open(leaf.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o666)
        leaf.exists = True
        if self._opened < self._keep_open:
            leaf.fd = fd
            self._opened += 1
        return fd

    def _shrink(self, grown: _Grown) -> None:
        """Gives the payloads the sizes and the tails that they had."""
        for index, leaf in enumerate(grown.leaves):
            end, tail = self.save.rows * leaf.row_nbytes, grown.tails.get(index, b"")
            with suppress(OSError):
                if end == 0 and not tail:
                    os.unlink(leaf.path)
                    self._forget(leaf)
                    leaf.exists, leaf.size = False, 0
                    continue
                fd = self._open(leaf) if leaf.fd is None else leaf.fd
                try:
                    os.ftruncate(fd, end + len(tail))
                    if tail:
                        write_at(fd, tail, end)
                    leaf.size = end + len(tail)
                finally:
                    if leaf.fd is None:
                        os.close(fd)

    def _forget(self, leaf: GrowingLeaf) -> None:
        if leaf.fd is not None:
            fd, leaf.fd = leaf.fd, None
            self._opened -= 1
            os.close(fd)

    # meta.json ------------------------------------------------------------------------------------------------------

    def _write_meta(self, path: str, content: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            # With its blocks reserved, ext4 renames the file without sending its content to the disk first: half the
            # time of an append of one row.
            if hasattr(os, "posix_fallocate"):
                with suppress(OSError):
                    os.posix_fallocate(fd, 0, len(content))
            write_all(fd, content)
            if self._fsync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _replace_metas(self, contents: list[bytes], grown: _Grown) -> None:
        levels = self.save.levels
        replaced = 0
        old = self._freeing.hold(levels) if self._freeing is not None else []
        try:
            for level in levels:
                os.replace(f"{level.directory}/{APPEND_TMP}", f"{level.directory}/{META}")
                replaced += 1
            if self._fsync:
                for level in levels:
                    _sync_directory(level.directory)
        except BaseException:
            self._put_back(contents, replaced)
            self._shrink(grown)
            raise
        finally:
            if self._freeing is not None:
                self._freeing.release(old)

    def _put_back(self, contents: list[bytes], replaced: int) -> None:
        """Restores the replaced ``meta.json`` files, so that a kill meanwhile is still one that recovery ends.

        First every nested level gets its temporary file again, which makes the append one that can be completed;
        then the nested levels become old, and the top one last: until it is, the append would be completed, from
        then on the temporaries do not fit it and are discarded.
        """
        levels = self.save.levels
        for level, content in zip(levels[1:replaced], contents[1:replaced], strict=True):
            self._put(level, APPEND_TMP, content)
        for level, content in reversed(list(zip(levels[:replaced], self._current[:replaced], strict=True))):
            self._put(level, META, content)
        self._drop_temporaries()

    def _put(self, level: GrowingLevel, name: str, content: bytes) -> None:
        """Writes a file of a level as a whole, or not at all."""
        temporary = f"{level.directory}/{_RESTORED}"
        self._write_meta(temporary, content)
        os.replace(temporary, f"{level.directory}/{name}")

    def _drop_temporaries(self) -> None:
        """Removes the temporary files, the top one last."""
        for level in reversed(self.save.levels):
            with suppress(FileNotFoundError):
                os.unlink(f"{level.directory}/{APPEND_TMP}")


class _Grown:
    """The payloads that an append has begun to write, so that they can be given back their old end."""

    __slots__ = ("leaves", "tails")

    def __init__(self) -> None:
        self.leaves: list[GrowingLeaf] = []
        self.tails: dict[int, bytes] = {}
        """What lay behind the declared end of a payload, by its place in `leaves`."""


class _Freeing:
    """Lets another thread wait while the system frees the replaced ``meta.json`` files.

    A file that is replaced is freed by whoever closes it last. On a file system that is mounted with ``discard`` this
    takes half a millisecond a file, which would be most of the time of an append of one row.

    Args:
        wait: whether `close` waits until all files are closed.
    """

    _HELD = 1024

    def __init__(self, *, wait: bool) -> None:
        self._wait = wait
        self._pool = ThreadPoolExecutor(1, "tdview-append")
        self._held = 0
        self._last: Future[None] | None = None

    def hold(self, levels: Sequence[GrowingLevel]) -> list[int]:
        """Opens the files that are about to be replaced."""
        if len(levels) > self._HELD:
            return []
        if self._held + len(levels) > self._HELD and self._last is not None:
            self._last.result()
            self._held = 0
        held: list[int] = []
        with suppress(OSError):
            held.extend(os.open(f"{level.directory}/{META}", os.O_RDONLY | os.O_CLOEXEC) for level in levels)
        self._held += len(held)
        return held

    def release(self, held: list[int]) -> None:
        """Closes them, in the other thread."""
        if held:
            self._last = self._pool.submit(_close_all, held)

    def close(self) -> None:
        """Ends the other thread when it has closed them all."""
        self._pool.shutdown(self._wait)


def _close_all(held: list[int]) -> None:
    for fd in held:
        os.close(fd)


def _template(level: GrowingLevel) -> MetaTemplate:
    assert level.template is not None  # sound: the levels of a GrowingSave have one
    return level.template


def _original(level: GrowingLevel) -> bytes:
    return _template(level).original


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""This module knows the journal of edits that lies beside a save: an append-only file of checksummed records.

It does not know what an edit means, nor which bytes of the save it touches.

A journal is the line ``tdview-journal 1`` and then records. Each record is a fixed header (mark, three sizes, two
CRC-32), a JSON object, the old bytes and the new bytes. A record is written before the bytes of the save and a
``done`` record behind them, so that whoever finds the last action without its ``done`` knows that the process was
killed in between, and has both contents at hand. Files are not synced to the disk: the order protects from a killed
process, not from a power failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tdview.errors import ConcurrentWriteError, DecodeError, EditRefusedError, ReadOnlyError, shown
from tdview.format.keys import file_names
from tdview.format.meta import META_LIMIT, parse_json
from tdview.format.payload import META
from tdview.format.torchrl import STORAGE_META
from tdview.storage.crc import crc32
from tdview.storage.fileio import write_at
from tdview.storage.lock import lock_writer

__all__ = ["SUFFIX", "Action", "FileJournal", "Journal", "MemoryJournal", "Record", "journal_path"]

SUFFIX = ".tdview-journal"
"""What the file name of a journal ends with."""

Action = Literal["edit", "undo", "redo", "done", "void"]
"""``edit``, ``undo`` and ``redo`` announce a write of the edit `id`; ``done`` ends it, ``void`` says that it was taken
back because it had not been ended."""

_ACTIONS = frozenset(("edit", "undo", "redo", "done", "void"))
_MAGIC = b"tdview-journal 1\n"
_MARK = b"\xabTDJ"
_HEADER = struct.Struct("<4sIQQII")  # mark, JSON size, old size, new size, CRC of header and JSON, CRC of the bytes
_HEAD_LIMIT = 1 << 24
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """One record, without its bytes."""

    action: Action
    id: int
    """Number of the edit that the action is about, from 1."""
    head: dict[str, Any]
    """The JSON object."""
    place: int = 0
    """Where the journal holds the bytes."""
    old_nbytes: int = 0
    new_nbytes: int = 0
    crc: int = 0


class Journal(Protocol):
    """Where records are kept."""

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other writers of the same journal out; creates the file."""
        ...

    def sync(self) -> tuple[bool, list[Record]]:
        """Records that were added since the last call; first whether the journal was replaced, so that they are all."""
        ...

    def append(self, action: Action, ident: int, head: dict[str, Any], old: bytes = b"", new: bytes = b"") -> Record:
        """Adds one record, under the lock and after a `sync`; `sync` does not give it again."""
        ...

    def contents(self, record: Record) -> tuple[bytes, bytes]:
        """The old and the new bytes of a record."""
        ...

    def remove(self) -> None:
        """Forgets everything."""
        ...


def journal_path(location: Path) -> Path:
    """Where the journal of a save lies: beside it, outside of every save around it.

    A nested level that is opened on its own has its journal beside the outermost save, not among its files.

    Examples:
        >>> journal_path(Path("/data/run.tdz")).as_posix()
        '/data/run.tdz.tdview-journal'
    """
    outer = Path(os.path.realpath(location))
    name = outer.name
    while outer.parent != outer and _has_above(outer):
        outer = outer.parent
        name = f"{outer.name}.{name}"
    return outer.parent / f"{name}{SUFFIX}"


def _has_above(folder: Path) -> bool:
    """Whether the folder around it belongs to the same save: a level that names it, or a replay buffer's dump."""
    if (folder / STORAGE_META).exists():
        return True
    try:
        if os.path.getsize(folder.parent / META) > META_LIMIT:
            return False
        fields = parse_json((folder.parent / META).read_bytes(), folder.parent / META)
    except (OSError, DecodeError):
        return False
    inner = folder.name in ("_tensordict", "_source") or folder.name.isdigit()
    return inner or any(folder.name in file_names(key) for key, value in fields.items() if isinstance(value, dict))


class MemoryJournal:
    """Records that live as long as the editor: for a save whose folder takes no file, or on request."""

    path = None

    def __init__(self) -> None:
        self._contents: list[tuple[bytes, bytes]] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def sync(self) -> tuple[bool, list[Record]]:
        return False, []

    def append(self, action: Action, ident: int, head: dict[str, Any], old: bytes = b"", new: bytes = b"") -> Record:
        self._contents.append((old, new))
        return Record(action, ident, head, len(self._contents) - 1, len(old), len(new))

    def contents(self, record: Record) -> tuple[bytes, bytes]:
        return self._contents[record.place]

    def remove(self) -> None:
        self._contents.clear()


class FileJournal:
    """Records in a file beside the save. Descriptors are open only during a call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0
        self._identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        fd = self._open_locked()
        try:
            if os.fstat(fd).st_size < len(_MAGIC) and _MAGIC.startswith(os.pread(fd, len(_MAGIC), 0)):
                os.pwrite(fd, _MAGIC, 0)
            yield
        finally:
            if os.pread(fd, len(_MAGIC) + 1, 0) == _MAGIC:
                self.remove()  # nothing was done: no file before the first edit
            os.close(fd)

    def _open_locked(self) -> int:
        while True:
            fd = self._open(os.O_RDWR | os.O_CREAT)
            try:
                _lock(fd, self.path)
                if os.path.exists(self.path) and os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # whoever had the lock removed the journal meanwhile

    def sync(self) -> tuple[bool, list[Record]]:
        try:
            fd = self._open(os.O_RDONLY)
        except FileNotFoundError:
            replaced, self._seen, self._identity = self._seen > 0, 0, None
            return replaced, []
        try:
            status = os.fstat(fd)
            identity = (status.st_dev, status.st_ino)
            replaced = self._seen > 0 and (identity != self._identity or status.st_size < self._seen)
            if replaced:
                self._seen = 0
            self._identity = identity
            return replaced, list(self._read(fd, status.st_size))
        finally:
            os.close(fd)

    def append(self, action: Action, ident: int, head: dict[str, Any], old: bytes = b"", new: bytes = b"") -> Record:
        data = json.dumps({"action": action, "id": ident, **head}).encode()
        if len(data) > _HEAD_LIMIT:
            raise EditRefusedError(
                f"{self.path}: the index takes {len(data)} bytes to write down, at most {_HEAD_LIMIT}; use slices"
            )
        sizes = _HEADER.pack(_MARK, len(data), len(old), len(new), 0, 0)
        crc = crc32(new, crc32(old))
        header = _HEADER.pack(_MARK, len(data), len(old), len(new), crc32(data, crc32(sizes)), crc)
        fd = self._open(os.O_RDWR)
        try:
            # What a killed process left behind the last whole record is overwritten, and cut off.
            os.ftruncate(fd, self._seen)
            place = self._seen
            for part in (header + data, old, new):
                write_at(fd, part, place)
                place += len(part)
        finally:
            os.close(fd)
        self._seen = place
        return Record(action, ident, head, place - len(old) - len(new), len(old), len(new), crc)

    def contents(self, record: Record) -> tuple[bytes, bytes]:
        try:
            fd = self._open(os.O_RDONLY)
        except FileNotFoundError:
            raise DecodeError(f"{self.path}: the journal is gone, and the bytes of edit {record.id} with it") from None
        try:
            data = os.pread(fd, record.old_nbytes + record.new_nbytes, record.place)
        finally:
            os.close(fd)
        if len(data) != record.old_nbytes + record.new_nbytes or crc32(data) != record.crc:
            raise DecodeError(f"{self.path}: the bytes of edit {record.id} are damaged, so it cannot be used")
        return data[: record.old_nbytes], data[record.old_nbytes :]

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._seen, self._identity = 0, None

    def _open(self, flags: int) -> int:
        try:
            return os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
                raise
            raise ReadOnlyError(
                f"{self.path}: the journal cannot be opened: {error.strerror}; edit with journal=False to do without"
            ) from None

    def _read(self, fd: int, size: int) -> Iterator[Record]:
        """The records from where the last call ended; `_seen` follows. An unfinished one at the end is left out."""
        if self._seen == 0 and size:
            magic = os.pread(fd, len(_MAGIC), 0)
            if magic != _MAGIC:
                if _MAGIC.startswith(magic):
                    return
                raise DecodeError(f"{self.path}: this is no journal of tdview: it begins with {shown(magic)}")
            self._seen = len(_MAGIC)
        while self._seen + _HEADER.size <= size:
            record = self._read_one(fd, size)
            if record is None:
                return
            self._seen = record.place + record.old_nbytes + record.new_nbytes
            yield record

    def _read_one(self, fd: int, size: int) -> Record | None:
        at = self._seen
        header = os.pread(fd, _HEADER.size, at)
        mark, head_nbytes, old_nbytes, new_nbytes, head_crc, crc = _HEADER.unpack(header)
        place = at + _HEADER.size + head_nbytes
        if mark != _MARK or head_nbytes > _HEAD_LIMIT:
            raise self._damaged(at)
        if place + old_nbytes + new_nbytes > size:
            return None
        data = os.pread(fd, head_nbytes, at + _HEADER.size)
        sizes = _HEADER.pack(_MARK, head_nbytes, old_nbytes, new_nbytes, 0, 0)
        if crc32(data, crc32(sizes)) != head_crc:
            raise self._damaged(at)
        try:
            head = json.loads(data)
            action, ident = head.pop("action"), head.pop("id")
        except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
            raise self._damaged(at) from None
        if action not in _ACTIONS or type(ident) is not int or ident < 1:
            raise self._damaged(at)
        return Record(action, ident, head, place, old_nbytes, new_nbytes, crc)

    def _damaged(self, at: int) -> DecodeError:
        return DecodeError(
            f"{self.path}: the journal is damaged at byte {at}; move it away to edit without the earlier edits"
        )


def _lock(fd: int, path: Path) -> None:
    """Takes the lock of an open journal, which the kernel releases with the process.

    Raises:
        ConcurrentWriteError: another process keeps it for longer than one edit takes.
    """
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return lock_writer(fd, path)
        except ConcurrentWriteError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)

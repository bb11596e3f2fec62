"""This module knows a save that lies in a directory.

It does not know what its files mean.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from tdview.errors import DecodeError, MissingFileError, Problem, ReadOnlyError, shown
from tdview.storage.fileio import write_at
from tdview.storage.mapping import Access, map_file, open_regular, read_exact
from tdview.storage.store import FileInfo, Form, Listing, absolute

__all__ = ["DirectoryStore"]

_MAX_DEPTH = 200
_KEPT_MAPPINGS = 64


class DirectoryStore:
    """The files of a directory. Links are followed for reading and refused for writing."""

    form: Form = "directory"

    def __init__(self, location: Path, *, writable: bool = False, label: str | None = None) -> None:
        self.location = absolute(location)
        self.label = label or str(location)
        self.writable = writable
        self.lock = threading.RLock()
        self._root = os.fspath(self.location)
        self._mapped: OrderedDict[tuple[str, int, Access], tuple[tuple[int, int, int], memoryview]] = OrderedDict()

    def path(self, name: str) -> str:
        """Where a file lies."""
        return f"{self._root}/{name}" if name else self._root

    def _named(self, name: str) -> str:
        """A file for messages."""
        return f"{self.label}/{name}" if name else self.label

    def info(self, name: str) -> FileInfo | None:
        try:
            status = os.stat(self.path(name))
        except (OSError, ValueError):
            return None
        return FileInfo(name, status.st_size, status.st_size) if stat.S_ISREG(status.st_mode) else None

    def is_level(self, name: str) -> bool:
        return "\0" not in name and os.path.isdir(self.path(name))

    def listing(self, prefix: str = "") -> Listing:
        files: list[str] = []
        levels: list[str] = []
        try:
            with os.scandir(self.path(prefix)) as entries:
                for entry in entries:
                    (levels if entry.is_dir() else files).append(entry.name)
        except (OSError, ValueError):
            return Listing((), ())
        return Listing(tuple(sorted(files)), tuple(sorted(levels)))

    def read(self, name: str, limit: int) -> bytes:
        path = self.path(name)
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            if size > limit:
                message = f"{self._named(name)}: the file has {size} bytes, at most {limit} are read"
                raise DecodeError(message, [Problem("file_size", message)])
            return read_exact(fd, size, 0)
        finally:
            os.close(fd)

    def view(self, name: str, nbytes: int, access: Access = "read") -> memoryview:
        path = self.path(name)
        if access == "write":
            self._check_writable(name)
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            raise MissingFileError(f"{self._named(name)}: there is no such file") from None
        if access == "copy":
            return map_file(path, nbytes, access)  # private to each caller
        # The size is looked at again at each call: touching a page behind the end would end the process.
        identity = (status.st_dev, status.st_ino, status.st_size)
        key = (name, nbytes, access)
        with self.lock:
            kept = self._mapped.get(key)
            if kept is None or kept[0] != identity:
                kept = self._mapped[key] = (identity, map_file(path, nbytes, access))
                while len(self._mapped) > _KEPT_MAPPINGS:
                    self._mapped.popitem(last=False)
            self._mapped.move_to_end(key)
        return kept[1].toreadonly() if access == "read" else kept[1]

    def streams(self, name: str, nbytes: int) -> bool:
        return False

    def part(self, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        return self.view(name, nbytes)[start:stop]

    def write_at(self, name: str, offset: int, data: bytes | memoryview) -> None:
        path = self.path(name)
        self._check_writable(name)
        nbytes = memoryview(data).nbytes
        fd = open_regular(path, os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            if offset < 0 or offset + nbytes > size:
                raise DecodeError(f"{self._named(name)}: bytes {offset}:{offset + nbytes} lie outside the {size} bytes")
            write_at(fd, data, offset)
        finally:
            os.close(fd)

    def _check_writable(self, name: str) -> None:
        if not self.writable:
            raise ReadOnlyError(f"{self._named(name)}: the save is open read-only; open it with mode='r+'")
        if ".." in name.split("/") or self.link_in(name):
            raise ReadOnlyError(f"{self._named(name)}: refusing to write outside the save or through a symbolic link")

    def link_in(self, name: str) -> str | None:
        """The part of `name` that is a symbolic link, None if there is none."""
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            part = "/".join(parts[:end])
            if os.path.islink(self.path(part)):
                return part
        return None

    def link_problem(self, name: str) -> tuple[str, str] | None:
        """Code and message if the last part of `name` is a link that loops or leaves the save, else None."""
        path = self.path(name)
        if ".." in name.split("/"):
            return "escape", f"{self._named(name)}: an unencoded key of an old version leads out of the save"
        if not name or not os.path.islink(path):
            return None
        target = os.path.realpath(path)
        root = os.path.realpath(self._root)
        above = os.path.realpath(os.path.dirname(path))
        if above == target or above.startswith(target.rstrip("/") + "/"):
            return "link", f"{self._named(name)}: the link leads back to a level above it, so it is not followed"
        if not target.startswith(root + "/"):
            return "escape", f"{self._named(name)}: the link leaves the save, to {shown(target)}"
        return None

    def walk(self) -> Iterator[FileInfo]:
        stack = [("", 0)]
        while stack:
            prefix, depth = stack.pop()
            files, levels = self.listing(prefix)
            head = f"{prefix}/" if prefix else ""
            for name in files:
                info = self.info(head + name)
                yield info if info is not None else FileInfo(head + name, 0, 0, "unknown", None)
            if depth < _MAX_DEPTH:
                below = [head + level for level in reversed(levels)]
                stack += [(name, depth + 1) for name in below if self.link_problem(name) is None]

    def refresh(self) -> None:
        with self.lock:
            self._mapped.clear()

    def close(self) -> None:
        self.refresh()

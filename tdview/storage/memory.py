"""This module knows a save that lies in memory: a dict of file names and bytes.

It does not know what the bytes mean. It serves as the model of the other stores in tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from tdview.errors import DecodeError, MissingFileError, Problem, ReadOnlyError
from tdview.storage.mapping import Access
from tdview.storage.store import FileInfo, Form, Listing

__all__ = ["MemoryStore"]


class MemoryStore:
    """The files of a dict.

    Examples:
        >>> MemoryStore({"n/a.memmap": b"abcd"}).listing("n")
        Listing(files=('a.memmap',), levels=())
    """

    form: Form = "memory"

    def __init__(self, files: Mapping[str, bytes], *, writable: bool = False, label: str = "memory") -> None:
        self.files = {name: bytearray(content) for name, content in files.items()}
        """Content by name; what is changed here is seen at once."""
        self.label = label
        self.location = Path(label)
        self.writable = writable
        self.lock = threading.RLock()

    def info(self, name: str) -> FileInfo | None:
        content = self.files.get(name)
        return None if content is None else FileInfo(name, len(content), len(content))

    def is_level(self, name: str) -> bool:
        return name == "" or any(file.startswith(f"{name}/") for file in self.files)

    def listing(self, prefix: str = "") -> Listing:
        head = f"{prefix}/" if prefix else ""
        rest = [name[len(head) :] for name in self.files if name.startswith(head)]
        files = {name for name in rest if "/" not in name}
        return Listing(tuple(sorted(files)), tuple(sorted({name.split("/")[0] for name in rest} - files)))

    def read(self, name: str, limit: int) -> bytes:
        content = self._content(name)
        if len(content) > limit:
            message = f"{self.label}: {name} has {len(content)} bytes, at most {limit} are read"
            raise DecodeError(message, [Problem("file_size", message)])
        return bytes(content)

    def view(self, name: str, nbytes: int, access: Access = "read") -> memoryview:
        content = self._content(name)
        if access == "write" and not self.writable:
            raise ReadOnlyError(f"{self.label}: {name}: the save is open read-only")
        if len(content) < nbytes:
            message = f"{self.label}: {name}: the payload is {len(content)} bytes, expected {nbytes}"
            raise DecodeError(message, [Problem("file_size", message)])
        if access == "copy":
            return memoryview(bytearray(content[:nbytes]))
        view = memoryview(content)[:nbytes]
        return view.toreadonly() if access == "read" else view

    def _content(self, name: str) -> bytearray:
        if name not in self.files:
            raise MissingFileError(f"{self.label}: there is no file {name}")
        return self.files[name]

    def streams(self, name: str, nbytes: int) -> bool:
        return False

    def part(self, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        return self.view(name, nbytes)[start:stop]

    def write_at(self, name: str, offset: int, data: bytes | memoryview) -> None:
        content = self._content(name)
        data = memoryview(data).cast("B")
        if not self.writable:
            raise ReadOnlyError(f"{self.label}: {name}: the save is open read-only")
        if offset < 0 or offset + len(data) > len(content):
            raise DecodeError(f"{self.label}: {name}: the bytes lie outside the payload")
        memoryview(content)[offset : offset + len(data)] = data

    def walk(self) -> Iterator[FileInfo]:
        for name, content in list(self.files.items()):
            yield FileInfo(name, len(content), len(content))

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass

"""This module knows a save that lies in a zip archive, mapped once and viewed in place.

It does not know what its entries mean, and writes none.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from tdview.errors import DecodeError, MissingFileError, NotSupportedError, Problem, ReadOnlyError
from tdview.storage.fileio import write_at
from tdview.storage.forward import ForwardReaders
from tdview.storage.inflate import inflate, inflate_pieces
from tdview.storage.mapping import Access, map_file, open_regular
from tdview.storage.store import Compression, FileInfo, Form, Listing, absolute
from tdview.storage.zip_directory import METHODS, ZipDirectory, ZipEntry, local_payload_offset, read_zip_directory

__all__ = ["ArchiveStore"]

_KEPT_BYTES = 1 << 24
_WHOLE_BYTES = 1 << 23  # compressed payloads of more bytes are read forwards rather than inflated whole
_PIECE_BYTES = 1 << 16
_MAX_DEPTH = 200


class ArchiveStore:
    """The entries of a zip archive. Stored entries are viewed in place; others are inflated, within a bound."""

    form: Form = "archive"

    def __init__(self, location: Path, *, writable: bool = False, label: str | None = None) -> None:
        self.location = absolute(location)
        self.label = label or str(location)
        self.writable = writable
        self.lock = threading.RLock()
        self._open()

    def _open(self) -> None:
        status = os.stat(self.location)
        self._size = status.st_size
        self._identity = (status.st_dev, status.st_ino)
        self._maps: dict[Access, memoryview] = {}
        self._levels: dict[str, Listing] | None = None
        self._inflated: OrderedDict[tuple[str, int], bytearray] = OrderedDict()
        self._forward = ForwardReaders()
        self.directory: ZipDirectory = read_zip_directory(self._mapped("read"), self.label)
        """The central directory."""

    def _mapped(self, access: Access) -> memoryview:
        with self.lock:
            if access not in self._maps:
                self._maps[access] = map_file(self.location, self._size, access)
            return self._maps[access]

    def _checked(self, access: Access = "read") -> memoryview:
        """The mapping, if the file still has its size: touching a page behind the end would end the process."""
        try:
            size = os.stat(self.location).st_size
        except OSError:
            size = self._size  # removed or replaced: the mapping keeps the old file alive
        if size < self._size and self._is_same_file():
            message = f"{self.label}: the archive was {self._size} bytes and is now {size}; reload it"
            raise DecodeError(message, [Problem("archive", message)])
        return self._mapped(access)

    @property
    def buffer(self) -> memoryview:
        """The whole archive, mapped for reading."""
        return self._checked()

    def is_current(self) -> bool:
        """Whether the archive is still the file that was opened, with the size it had."""
        try:
            return os.stat(self.location).st_size == self._size and self._is_same_file()
        except OSError:
            return False

    def _is_same_file(self) -> bool:
        status = os.stat(self.location)
        return (status.st_dev, status.st_ino) == self._identity

    def entry(self, name: str) -> ZipEntry | None:
        """The zip entry of a file, None if there is none."""
        return None if name.endswith("/") else self.directory.entry(name)

    def info(self, name: str) -> FileInfo | None:
        entry = self.entry(name)
        if entry is None:
            return None
        method: Compression = METHODS.get(entry.method, "unknown")  # type: ignore[assignment]  # sound: its values
        offset = None
        if method == "stored":
            try:
                offset = local_payload_offset(self._checked(), entry, self.label)
            except DecodeError:
                offset = None
        return FileInfo(name, entry.nbytes, entry.compressed, method, offset, entry.crc, entry.encrypted)

    def is_level(self, name: str) -> bool:
        return name == "" or name in self._index()

    def listing(self, prefix: str = "") -> Listing:
        return self._index().get(prefix, Listing((), ()))

    def _index(self) -> dict[str, Listing]:
        with self.lock:
            if self._levels is None:
                files: dict[str, list[str]] = {"": []}
                levels: dict[str, set[str]] = {"": set()}
                for name in self.directory.names():
                    prefix, _, last = name.rpartition("/")
                    if prefix not in files:
                        if prefix.count("/") >= _MAX_DEPTH:
                            continue  # each prefix of a name is a level of its own
                        self._add_level(prefix, files, levels)
                    if last:
                        files[prefix].append(last)
                self._levels = {p: Listing(tuple(sorted(files[p])), tuple(sorted(levels[p]))) for p in files}
            return self._levels

    @staticmethod
    def _add_level(prefix: str, files: dict[str, list[str]], levels: dict[str, set[str]]) -> None:
        while prefix not in files:
            files[prefix] = []
            levels.setdefault(prefix, set())
            prefix, _, last = prefix.rpartition("/")
            levels.setdefault(prefix, set()).add(last)

    def read(self, name: str, limit: int) -> bytes:
        entry = self._readable(name)
        if entry.nbytes > limit:
            message = f"{self.label}: zip entry {name} has {entry.nbytes} bytes, at most {limit} are read"
            raise DecodeError(message, [Problem("file_size", message)])
        data = bytes(self._content(entry, entry.nbytes))
        if zlib.crc32(data) != entry.crc:
            message = f"{self.label}: zip entry {name} does not match its checksum; the archive is damaged"
            raise DecodeError(message, [Problem("crc", message)])
        return data

    def view(self, name: str, nbytes: int, access: Access = "read") -> memoryview:
        entry = self._readable(name)
        if access == "write":
            self._check_writable(entry)
        if entry.nbytes < nbytes:
            message = f"{self.label}: zip entry {name}: the payload is {entry.nbytes} bytes, expected {nbytes}"
            raise DecodeError(message, [Problem("file_size", message)])
        content = self._content(entry, nbytes, access)
        return content.toreadonly() if access == "read" else content

    def streams(self, name: str, nbytes: int) -> bool:
        entry = self.entry(name)
        return entry is not None and entry.method != 0 and nbytes > _WHOLE_BYTES

    def part(self, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        entry = self._readable(name)
        if entry.method == 0 or entry.nbytes < nbytes:
            return self.view(name, nbytes)[start:stop]

        def source() -> Iterator[bytes]:
            mapped = self._checked()
            place = local_payload_offset(mapped, entry, self.location)
            data = mapped[place : place + entry.compressed]
            where = f"{self.location}: zip entry {entry.name}"
            return inflate_pieces(data, entry.method, nbytes, where, _PIECE_BYTES)

        if not 0 <= start <= stop <= nbytes:
            raise IndexError(f"{self.location}: zip entry {name}: bytes {start}:{stop} lie outside its {nbytes}")
        return memoryview(self._forward.read(f"{nbytes} {name}", start, stop, source)).toreadonly()

    def _readable(self, name: str) -> ZipEntry:
        entry = self.entry(name)
        if entry is None:
            raise MissingFileError(f"{self.label}: there is no zip entry {name}")
        if entry.encrypted:
            message = f"{self.label}: zip entry {name} is encrypted, so it cannot be read"
            raise DecodeError(message, [Problem("encrypted", message)])
        return entry

    def _content(self, entry: ZipEntry, nbytes: int, access: Access = "read") -> memoryview:
        mapped = self._checked(access if entry.method == 0 else "read")
        start = local_payload_offset(mapped, entry, self.label)
        if entry.method == 0:
            if nbytes > entry.compressed:
                message = f"{self.label}: zip entry {entry.name} stores {entry.compressed} of {nbytes} bytes"
                raise DecodeError(message, [Problem("archive", message)])
            return mapped[start : start + nbytes]
        where = f"{self.label}: zip entry {entry.name}"
        if access == "copy":
            return memoryview(inflate(mapped[start : start + entry.compressed], entry.method, nbytes, where))
        return memoryview(self._inflate(entry, mapped[start : start + entry.compressed], nbytes, where))

    def _inflate(self, entry: ZipEntry, data: memoryview, nbytes: int, where: str) -> bytearray:
        """The inflated entry; small ones, up to 16 MB in all, are kept for the next page of the same leaf."""
        key = (entry.name, nbytes)
        with self.lock:
            if key in self._inflated:
                self._inflated.move_to_end(key)
                return self._inflated[key]
            while self._inflated and sum(map(len, self._inflated.values())) + nbytes > _KEPT_BYTES:
                self._inflated.popitem(last=False)
        content = inflate(data, entry.method, nbytes, where)
        if nbytes <= _KEPT_BYTES:
            with self.lock:
                self._inflated[key] = content
        return content

    def _check_writable(self, entry: ZipEntry) -> None:
        where = f"{self.label}: zip entry {entry.name}"
        if not self.writable:
            raise ReadOnlyError(f"{where}: the save is open read-only; open it with mode='r+'")
        if entry.method != 0:
            raise NotSupportedError(f"{where} is compressed, so it cannot be written in place; pack it uncompressed")

    def write_at(self, name: str, offset: int, data: bytes | memoryview) -> None:
        entry = self._readable(name)
        self._check_writable(entry)
        nbytes = memoryview(data).nbytes
        if offset < 0 or offset + nbytes > min(entry.nbytes, entry.compressed):
            raise DecodeError(
                f"{self.label}: zip entry {name}: bytes {offset}:{offset + nbytes} lie outside its {entry.nbytes}"
            )
        start = local_payload_offset(self._checked(), entry, self.label)
        fd = open_regular(self.location, os.O_RDWR)
        try:
            write_at(fd, data, start + offset)
        finally:
            os.close(fd)

    def walk(self) -> Iterator[FileInfo]:
        for name in self.directory.names():
            info = self.info(name)
            if info is not None:
                yield info

    def refresh(self) -> None:
        with self.lock:
            self._open()

    def close(self) -> None:
        with self.lock:
            self._maps.clear()
            self._inflated.clear()
            self._forward.clear()

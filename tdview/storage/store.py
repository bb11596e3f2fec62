"""This module knows what the tree and the operations ask of the place where the bytes lie.

It does not know what the bytes mean.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from tdview.storage.mapping import Access

__all__ = ["Access", "Compression", "FileInfo", "Form", "Listing", "Mode", "Store", "absolute"]

Compression = Literal["stored", "deflate", "bzip2", "lzma", "unknown"]
Form = Literal["directory", "archive", "memory"]
Mode = Literal["r", "r+"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a store knows of one file without reading it."""

    name: str
    """Path inside the save, ``/``-separated, made of encoded file names."""
    nbytes: int
    """Size of the content in bytes, uncompressed."""
    stored_nbytes: int
    """Size in bytes as it lies on disk, compressed where it is."""
    compression: Compression = "stored"
    offset: int | None = 0
    """Offset in bytes of the content in the file that holds it; None where it is compressed or unknown."""
    crc: int | None = None
    """CRC-32 that the archive records; None in a directory."""
    encrypted: bool = False


class Listing(NamedTuple):
    """Bare names of one level, each sorted by code point."""

    files: tuple[str, ...]
    levels: tuple[str, ...]


class Store(Protocol):
    """A place that holds the files of one save.

    Names are ``/``-joined encoded file names relative to the save; ``""`` is the save itself. Reading methods
    never change a byte. Every method may be called from several threads.
    """

    location: Path
    """The directory or archive, absolute: it stays the same one when the process changes its directory."""
    label: str
    """What the caller named it: for messages."""
    form: Form
    writable: bool
    lock: threading.RLock

    def info(self, name: str) -> FileInfo | None:
        """What is known of a file, None if there is no such file. Costs at most one system call."""
        ...

    def is_level(self, name: str) -> bool:
        """Whether `name` is a directory of the save."""
        ...

    def listing(self, prefix: str = "") -> Listing:
        """Names of the files and levels directly in `prefix`; empty if there is none."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """The whole content of a small file.

        Raises:
            MissingFileError: there is no such file.
            DecodeError: it is larger than `limit` bytes, or does not match its checksum.
        """
        ...

    def view(self, name: str, nbytes: int, access: Access = "read") -> memoryview:
        """The first `nbytes` bytes of a payload.

        A view of the mapped file where it can be mapped in place, else a private copy that is never larger
        than `nbytes`. Does not check CRC-32.

        Args:
            access: ``"read"``: a read-only view that sees later writes to the file. ``"copy"``: writable, and
                what is written stays in this process. ``"write"``: writes reach the file at once.

        Raises:
            MissingFileError: there is no such file.
            DecodeError: it holds fewer bytes, or its compressed form is damaged.
            ReadOnlyError, NotSupportedError: `access` is ``"write"``, and the store is open read-only or the
                payload is compressed.
        """
        ...

    def streams(self, name: str, nbytes: int) -> bool:
        """Whether a payload of `nbytes` bytes is compressed and too large to be inflated whole: see `part`."""
        ...

    def part(self, name: str, nbytes: int, start: int, stop: int) -> memoryview:
        """Bytes `start` to `stop` of the first `nbytes` of a payload, read-only. Does not check CRC-32.

        A view of the mapped file where it can be mapped in place. A compressed payload is inflated forwards from
        the last part, or from its start for a part further ahead, and only what the parts need is kept.

        Raises:
            MissingFileError: there is no such file.
            DecodeError: it holds fewer bytes, or its compressed form is damaged before `stop`.
        """
        ...

    def write_at(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Writes `data` in place at byte `offset` of a payload; other processes see it at once.

        Raises:
            ReadOnlyError: the store is open read-only.
            NotSupportedError: the payload is compressed, so it has no place to write to.
            DecodeError: the bytes would lie outside the payload.
        """
        ...

    def walk(self) -> Iterator[FileInfo]:
        """Every file of the save."""
        ...

    def refresh(self) -> None:
        """Forgets what was read, so that the next call sees what another process wrote."""
        ...

    def close(self) -> None:
        """Releases mappings that no view uses any more."""
        ...


def absolute(path: Path) -> Path:
    """The same place, whatever directory the process is in later; links are followed only where ``..`` needs it."""
    return path.resolve() if ".." in path.parts else path.absolute()

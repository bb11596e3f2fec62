"""This module knows how to map a regular file into memory safely.

It does not know what the file holds.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import Literal

from tdview.errors import DecodeError, MissingFileError, Problem, ReadOnlyError

__all__ = ["Access", "give_back", "map_file", "open_regular", "read_exact"]

Access = Literal["read", "copy", "write"]
"""How a payload is mapped: for reading; copy-on-write, so that writes stay in this process; or shared, so that
writes reach the file."""

_ACCESS = {"read": mmap.ACCESS_READ, "copy": mmap.ACCESS_COPY, "write": mmap.ACCESS_WRITE}


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file. Never blocks on a pipe and never opens a device.

    Raises:
        MissingFileError: there is no file, or something else than a regular file.
        ReadOnlyError: it may not be opened for this.
    """
    try:
        fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise MissingFileError(f"{path}: expected a file, got a directory") from None
    except PermissionError:
        raise ReadOnlyError(f"{path}: the file may not be opened; check its permissions") from None
    except OSError as error:
        raise MissingFileError(f"{path}: the file cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise MissingFileError(f"{path}: expected a regular file, got something else")
    return fd


def read_exact(fd: int, nbytes: int, offset: int) -> bytes:
    """`nbytes` bytes at `offset`, fewer only at the end of the file."""
    parts: list[bytes] = []
    while nbytes > 0:
        part = os.pread(fd, min(nbytes, 1 << 30), offset)
        if not part:
            break
        parts.append(part)
        nbytes -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def map_file(path: Path | str, nbytes: int, access: Access) -> memoryview:
    """The first `nbytes` bytes of a file, mapped; its size is checked first, so nothing faults later.

    Returns:
        A memoryview of the mapping, which it keeps alive. Where the process has no descriptor left for one more
        mapping and `access` is not ``"write"``, a private copy.

    Raises:
        MissingFileError: there is no such regular file.
        DecodeError: ``file_size``: it is shorter.
    """
    if nbytes == 0:
        return memoryview(b"" if access == "read" else bytearray())
    fd = open_regular(path, os.O_RDWR if access == "write" else os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size < nbytes:
            message = f"{path}: the payload is {size} bytes, expected {nbytes}"
            raise DecodeError(message, [Problem("file_size", message)])
        try:
            return memoryview(mmap.mmap(fd, nbytes, access=_ACCESS[access]))
        except OSError as error:
            # mmap duplicates the descriptor: ten thousand open leaves can use up the limit of a process
            if error.errno != errno.EMFILE or access == "write":
                raise DecodeError(f"{path}: {nbytes} bytes cannot be mapped: {error.strerror}") from None
            data = read_exact(fd, nbytes, 0)
            return memoryview(data if access == "read" else bytearray(data))
    finally:
        os.close(fd)


def give_back(view: memoryview) -> None:
    """Lets the system take back the pages of the mapping behind a view, so that resident memory stays bounded.

    Nothing is lost: a page that is touched again comes from the file. Does nothing for what is no read-only
    mapping; of a copy-on-write one, changed pages would be lost.
    """
    mapping = view.obj
    if isinstance(mapping, mmap.mmap) and memoryview(mapping).readonly and hasattr(mapping, "madvise"):
        mapping.madvise(mmap.MADV_DONTNEED)

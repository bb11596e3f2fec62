"""This module knows which store a path needs, and that two openers of one save share it.

It does not know whether there is a tensordict in it.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path

from tdview.errors import ArgumentError, DecodeError, MissingFileError, Problem, ReadOnlyError
from tdview.storage.archive import ArchiveStore
from tdview.storage.directory import DirectoryStore
from tdview.storage.store import Mode, Store, absolute

__all__ = ["open_store"]

_OPEN: weakref.WeakValueDictionary[tuple[object, ...], DirectoryStore | ArchiveStore] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def open_store(path: str | os.PathLike[str], mode: Mode = "r", *, label: str | None = None) -> Store:
    """The store of a directory or archive. Opening the same unchanged file twice gives the same store.

    Args:
        path: a directory, or a zip archive of whatever name.
        mode: ``"r"`` never writes; ``"r+"`` allows `Store.write_at`.
        label: what messages call it; None is `path`.

    Raises:
        ArgumentError: `mode` is neither.
        MissingFileError: there is nothing at `path`.
        DecodeError: ``archive``: it is a file, and no zip archive.
        ReadOnlyError: `mode` is ``"r+"`` and the archive may not be written.
    """
    if mode not in ("r", "r+"):
        raise ArgumentError(f"mode must be 'r' or 'r+', got {mode!r}")
    named = Path(path)
    label = label or str(named)
    try:
        status = os.stat(named)
        location = absolute(named)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"{named}: there is no such file or directory") from None
    except OSError as error:
        raise DecodeError(f"{named}: cannot be opened: {error.strerror}") from None
    except ValueError as error:
        raise DecodeError(f"{named}: cannot be opened: {error}") from None
    is_directory = os.path.isdir(location)
    if not is_directory and mode == "r+" and not os.access(location, os.W_OK):
        raise ReadOnlyError(f"{label}: the archive may not be written, so it cannot be opened with mode='r+'")
    version = () if is_directory else (status.st_size, status.st_mtime_ns)
    key = (
        os.path.realpath(location),
        label,
        mode,
        status.st_dev,
        status.st_ino,
        version if mode == "r" else (),
    )
    with _LOCK:
        store = _OPEN.get(key)
        if isinstance(store, ArchiveStore) and not store.is_current():
            store = None
        if store is None:
            kind = DirectoryStore if is_directory else _archive
            store = _OPEN[key] = kind(location, writable=mode == "r+", label=label)
        return store


def _archive(location: Path, *, writable: bool, label: str) -> ArchiveStore:
    if not location.is_file():
        raise DecodeError(f"{label}: expected a directory or an archive, got something else")
    if os.path.getsize(location) == 0:
        message = f"{label}: the file is empty, so it is no archive"
        raise DecodeError(message, [Problem("archive", message)])
    return ArchiveStore(location, writable=writable, label=label)

"""This module knows whether a file is an archive of a save.

It does not know whether the archive is sound.
"""

from __future__ import annotations

import os
from pathlib import Path

from tdview.errors import ArgumentError, TdviewError
from tdview.format.payload import META
from tdview.storage.mapping import map_file
from tdview.storage.zip_directory import ZipDirectory, read_zip_directory

__all__ = ["is_memmap_archive", "open_archive"]


def is_memmap_archive(path: Path | str) -> bool:
    """Whether `path` is a zip file with a ``meta.json`` at its top level.

    Reads the central directory only. A directory, a missing path and any other file give False.

    Spec: `is_memmap_archive`.
    """
    try:
        return META in open_archive(path)[1]
    except (TdviewError, OSError):
        return False


def open_archive(path: Path | str) -> tuple[memoryview, ZipDirectory]:
    """The mapped file and its central directory.

    Raises:
        ArgumentError: there is no archive of a save.
    """
    try:
        mapped = map_file(path, os.stat(path).st_size, "read")
        directory = read_zip_directory(mapped, path)
    except (TdviewError, OSError) as error:
        if not os.path.exists(path):
            raise ArgumentError(f"{path}: expected an archive; there is no such file") from error
        reason = f" ({error})" if isinstance(error, TdviewError) and not os.path.isdir(path) else ""
        raise ArgumentError(f"{path}: expected an archive{reason}") from error
    if META not in directory:
        raise ArgumentError(f"{path}: expected an archive, got a zip file without a {META} at its top level")
    return mapped, directory

"""This module knows how a saved directory becomes an archive.

It does not know what a payload means, beyond the size that its entry states.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdview.errors import ArgumentError, DecodeError, InterruptedAppendError, Problem
from tdview.format.archive_layout import entry_order, stamp
from tdview.format.dtypes import dtype_of
from tdview.format.keys import file_names
from tdview.format.meta import META_LIMIT, parse_json
from tdview.format.payload import META, check_shape, payload_file, payload_nbytes
from tdview.operations.progress import Progress, Tally
from tdview.operations.write import HEADERS_NBYTES, worker_count
from tdview.storage.archive_write import STEP, ArchiveWriter, Block
from tdview.storage.compress import check_level, method_of
from tdview.storage.fileio import BLOCK, read_ahead
from tdview.storage.leftovers import APPEND_TMP
from tdview.storage.lock import writer_lock
from tdview.storage.staging import STAGE_PREFIX, new_file

__all__ = ["pack_memmap"]

_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    """Name of the zip entry."""
    path: str
    nbytes: int
    """How much of it is packed, from its start."""


def pack_memmap(
    prefix: Path | str,
    archive_path: Path | str,
    *,
    compression: str | int | None = None,
    compresslevel: int | None = None,
    existsok: bool = True,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Packs a saved directory into an archive; `unpack_memmap` gives the directory back.

    Every file below `prefix` becomes a zip entry, also one that no ``meta.json`` names; links are followed. Payloads
    are stored and aligned, so that a reader maps the archive and views each leaf in place. Of a payload that is
    longer than its entry says, only what the entry says is packed: an archive with more could not be read. Each
    file is read once, in bounded memory. The old archive is replaced once the new one is complete; a failure or a
    kill leaves it as it was, and nothing else.

    Args:
        prefix: a directory with a ``meta.json``. It is not changed.
        archive_path: the archive, outside `prefix`. A symlink is followed, an old file's permissions are kept.
        compression: of the payloads: ``"stored"``, ``"deflate"``, ``"bzip2"``, ``"lzma"`` or a number of `zipfile`.
        compresslevel: deflate 0 to 9, bzip2 1 to 9. None is a fast level, see `storage.compress`.
        existsok: if False, an existing archive is an error.
        num_threads: threads that compress, beside one that reads; None takes as many as the process may use.
        progress: called with bytes.

    Returns:
        The path of the archive.

    Raises:
        ArgumentError: `prefix` holds no save, or `archive_path` lies inside it or is a directory.
        InterruptedAppendError: an append to the save was interrupted; `recover_append` ends it.
        AlreadyExistsError: `existsok` is False and the archive exists.
        ConcurrentWriteError: a writer is at work on the save.
        DecodeError: ``link``: a link leads back to a directory above it. ``archive``: there is a pipe or a device.

    Spec: "Archives", `pack_memmap`.
    """
    source, path = Path(prefix), Path(archive_path)
    method = method_of(compression)
    check_level(method, compresslevel)
    workers = worker_count(num_threads)
    if not (source / META).is_file():
        missing = "" if source.exists() else "; there is no such directory"
        raise ArgumentError(f"{source}: expected a directory with a {META}, as a save has{missing}")
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(source)):
        raise ArgumentError(f"{path}: the archive lies inside the directory that is packed; put it elsewhere")
    now = stamp(source_date_epoch=os.environ.get("SOURCE_DATE_EPOCH"))
    with writer_lock(source, shared=True):
        files = list(_files(str(source), "", ()))
        total, largest = sum(file.nbytes for file in files), max(file.nbytes for file in files)
        expected = total + HEADERS_NBYTES * len(files) if method == "stored" else 0
        tally = Tally(progress, total)
        with (
            new_file(path, existsok=existsok) as fd,
            ArchiveWriter(
                fd, method=method, level=compresslevel, stamp=now, workers=workers, expected_nbytes=expected
            ) as archive,
            ThreadPoolExecutor(1, "tdview-read") as reader,
        ):
            buffers = [memoryview(bytearray(min(STEP, largest))) for _ in range(2)]
            for file in files:
                archive.add(file.name, file.nbytes, tally.count(_content(file, archive, reader, buffers)))
            archive.finish()
    return path


def _content(
    file: _File, archive: ArchiveWriter, reader: ThreadPoolExecutor, buffers: Sequence[memoryview]
) -> Iterator[Block]:
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if file.nbytes <= BLOCK:
            yield os.pread(fd, file.nbytes, 0)
        else:
            yield from read_ahead(fd, 0, file.nbytes, reader, buffers, first=archive.step)
    finally:
        os.close(fd)


def _files(directory: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[_File]:
    """The files below a directory in the order of their zip entries."""
    status = os.stat(directory)
    here = status.st_dev, status.st_ino
    if here in above or len(above) > _MAX_DEPTH:
        message = f"{directory}: this link leads back to a directory above it"
        raise DecodeError(message, [Problem("link", message)])
    sizes: dict[str, int] = {}
    levels: list[str] = []
    with os.scandir(directory) as found:
        for entry in found:
            if entry.is_dir():
                if not entry.name.startswith(STAGE_PREFIX):
                    levels.append(entry.name)
            elif entry.name == APPEND_TMP:
                message = f"{directory}: an append was interrupted here; run recover_append first"
                raise InterruptedAppendError(message, [Problem("interrupted_append", message)])
            else:
                sizes[entry.name] = _size(entry)
    if META in sizes:
        _cut_overlong(f"{directory}/{META}", sizes)
    file_order, level_order = entry_order(sizes, levels)
    for name in file_order:
        yield _File(prefix + name, f"{directory}/{name}", sizes[name])
    for name in level_order:
        yield from _files(f"{directory}/{name}", f"{prefix}{name}/", (*above, here))


def _size(entry: os.DirEntry[str]) -> int:
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode):
        message = f"{entry.path}: expected a file or a directory, got something else"
        raise DecodeError(message, [Problem("archive", message)])
    return status.st_size


def _cut_overlong(meta: str, sizes: dict[str, int]) -> None:
    """Reduces the sizes of payloads to what their entries state, where they are longer."""
    if sizes[META] > META_LIMIT:
        return
    try:
        with open(meta, "rb") as file:
            fields = parse_json(file.read(), meta)
    except DecodeError:
        return  # packed as it is: what is damaged can still be looked at in the archive
    for key, entry in fields.items():
        if isinstance(entry, dict) and "dtype" in entry and "shape" in entry and entry.get("is_nested") is not True:
            name = next((name for name in map(payload_file, file_names(key)) if name in sizes), None)
            needed = _stated_nbytes(entry)
            if name is not None and needed is not None:
                sizes[name] = min(sizes[name], needed)


def _stated_nbytes(entry: dict[str, Any]) -> int | None:
    dtype = dtype_of(entry["dtype"])
    shape = None if dtype is None else check_shape(entry["shape"], dtype.itemsize)
    return None if dtype is None or shape is None else payload_nbytes(dtype.itemsize, shape)

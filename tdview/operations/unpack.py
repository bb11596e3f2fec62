"""This module knows how an archive becomes a saved directory, whole or not at all.

It does not know what a payload means, and it trusts no name and no size that the archive states.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tdview.errors import AlreadyExistsError, DecodeError, NotDirectoryError, Problem, shown
from tdview.operations.progress import Progress, Tally
from tdview.operations.recognise import open_archive
from tdview.operations.write import worker_count
from tdview.storage.crc import crc32
from tdview.storage.fileio import BLOCK, reserve, write_all
from tdview.storage.inflate import inflate_blocks
from tdview.storage.leftovers import owned_files
from tdview.storage.lock import writer_lock
from tdview.storage.placing import check_places
from tdview.storage.staging import Stage
from tdview.storage.zip_directory import ZipDirectory, ZipEntry, local_payload_offset

__all__ = ["unpack_memmap"]

_THREADED = 1 << 18
"""An entry of so many bytes is worth a thread. Making small files is the work of the file system, which two threads
only hinder."""


def unpack_memmap(
    archive_path: Path | str,
    prefix: Path | str,
    *,
    existsok: bool = True,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Unpacks an archive into a directory: the inverse of `pack_memmap`.

    Every entry is checked against its CRC-32. The directory appears as a whole: everything is written beside it and
    then renamed. Where it exists and is not empty, the new files are moved into it, the files of the save that was
    there are removed and other files stay. A failure leaves it as it was; a kill can leave a directory ``.tdtmp-…``
    that `recover_save` clears away.

    Args:
        archive_path: the archive. It is not changed.
        prefix: the directory, made if it does not exist.
        existsok: if False, a directory that is not empty is an error.
        num_threads: threads that check, inflate and write; None takes as many as the process may use.
        progress: called with bytes.

    Returns:
        The path of the directory.

    Raises:
        ArgumentError: there is no archive.
        AlreadyExistsError: `existsok` is False and the directory is not empty.
        DecodeError: ``escape``: a name leaves the directory. ``link``, ``encrypted``, ``duplicate_entry``,
            ``name_collision``: entries that a save cannot have. ``crc``, ``archive``, ``bomb``: the content is
            damaged, or is not as large as the archive states.
        EncodeError: a symlink lies in the way, or a file where a directory is needed.
        NotDirectoryError: `prefix` is a file.

    Spec: `unpack_memmap`.
    """
    archive, goal = Path(archive_path), Path(prefix)
    workers = worker_count(num_threads)
    mapped, directory = open_archive(archive)
    entries = _checked_entries(archive, directory)
    if os.path.lexists(goal) and not goal.is_dir():
        raise NotDirectoryError(f"{goal}: expected a directory, got a file")
    target = Path(os.path.realpath(goal))
    tally = Tally(progress, sum(entry.nbytes for entry in entries))
    if not goal.is_dir() or not os.listdir(goal):
        target.parent.mkdir(parents=True, exist_ok=True)
        with Stage(target.parent, target) as stage:
            _write_entries(archive, mapped, entries, stage, workers, tally)
            stage.swap()
        return goal
    if not existsok:
        raise AlreadyExistsError(f"{goal}: the directory is not empty; pass existsok=True to unpack into it")
    with writer_lock(target):
        stale = set(owned_files(target))
        names = {entry.name for entry in entries}
        check_places(target, names, stale, existsok=True)
        with Stage(target, target) as stage:
            _write_entries(archive, mapped, entries, stage, workers, tally)
            stage.merge(sorted(stale - names))
    return goal


# names and places -------------------------------------------------------------------------------------------------


def _checked_entries(archive: Path, directory: ZipDirectory) -> list[ZipEntry]:
    """The entries in the order of their bytes, if each of them is a plain file with a place of its own."""
    if directory.duplicates:
        _refuse(archive, "duplicate_entry", f"two zip entries are called {shown(directory.duplicates[0])}")
    if directory.truncated:
        _refuse(archive, "archive", "the central directory is damaged")
    entries, parents = [], set()
    for name in directory.names():
        entry = directory.entry(name)
        assert entry is not None
        fault = _name_fault(name)
        if fault is not None:
            _refuse(archive, "escape", f"zip entry {shown(name)}: {fault}")
        if entry.is_symlink:
            _refuse(archive, "link", f"zip entry {shown(name)}: this is a symlink")
        if entry.encrypted:
            _refuse(archive, "encrypted", f"zip entry {shown(name)}: it is encrypted")
        parent = name.rpartition("/")[0]
        while parent and parent not in parents:
            parents.add(parent)
            parent = parent.rpartition("/")[0]
        if not name.endswith("/"):
            entries.append(entry)
    for entry in entries:
        if entry.name in parents:
            _refuse(archive, "name_collision", f"zip entry {shown(entry.name)} is a file and a directory")
    entries.sort(key=lambda entry: entry.header_offset)
    for entry, following in pairwise(entries):
        if entry.header_offset + 30 + entry.compressed > following.header_offset:
            _refuse(archive, "archive", f"zip entries {shown(entry.name)} and {shown(following.name)} overlap")
    return entries


def _name_fault(name: str) -> str | None:
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or (len(parts[0]) > 1 and parts[0][1] == ":"):
        return "this name leaves the directory"
    if "\0" in name or "." in parts or "" in parts:
        return "this is no name of a file"
    return None


def _refuse(archive: Path, code: str, what: str) -> None:
    message = f"{archive}: {what}, so nothing is unpacked"
    raise DecodeError(message, [Problem(code, message)])


# content ----------------------------------------------------------------------------------------------------------


def _write_entries(
    archive: Path,
    mapped: memoryview,
    entries: list[ZipEntry],
    stage: Stage,
    workers: int,
    tally: Tally,
) -> None:
    """Writes all entries into the stage, or removes it."""
    root = str(stage.new)
    pool = ThreadPoolExecutor(workers, "tdview-unpack") if workers > 1 else None
    try:
        made = {""}
        jobs = []
        for entry in entries:
            _make_parents(root, entry.name, made)
            if pool is not None and entry.nbytes >= _THREADED:
                jobs.append(pool.submit(_write_entry, archive, mapped, entry, root, tally))
            else:
                _write_entry(archive, mapped, entry, root, tally)
        for job in jobs:
            job.result()
    except BaseException:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        stage.discard()
        raise
    finally:
        if pool is not None:
            pool.shutdown()


def _make_parents(root: str, name: str, made: set[str]) -> None:
    parent = name.rpartition("/")[0]
    if parent not in made:
        _make_parents(root, parent, made)
        os.mkdir(f"{root}/{parent}")
        made.add(parent)


def _write_entry(archive: Path, mapped: memoryview, entry: ZipEntry, root: str, tally: Tally) -> None:
    start = local_payload_offset(mapped, entry, archive)
    content = mapped[start : start + entry.compressed]
    fd = os.open(f"{root}/{entry.name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        crc, nbytes = 0, 0
        reserve(fd, 0, entry.nbytes if entry.method == 0 else 0)
        for block in tally.count(_blocks(archive, content, entry)):
            crc = crc32(block, crc)
            nbytes += len(block)
            write_all(fd, block)
    finally:
        os.close(fd)
    where = f"zip entry {shown(entry.name)}"
    if nbytes != entry.nbytes:
        _refuse(archive, "archive", f"{where}: the content has {nbytes} bytes, the archive states {entry.nbytes}")
    if crc != entry.crc:
        _refuse(archive, "crc", f"{where}: the content does not match its checksum")


def _blocks(archive: Path, content: memoryview, entry: ZipEntry) -> Iterator[bytes | memoryview]:
    if entry.method != 0:
        return inflate_blocks(content, entry.method, entry.nbytes, f"{archive}: zip entry {shown(entry.name)}")
    if len(content) <= BLOCK:
        return iter((content,))
    return (content[start : start + BLOCK] for start in range(0, len(content), BLOCK))

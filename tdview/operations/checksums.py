"""This module knows how the checksums of an archive are made to fit its payloads again, all of them or some.

It does not know which edits were made; those of tdview's own editor are followed without reading, in `edit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tdview.errors import ArgumentError, KeyMissingError, ReadOnlyError, shown
from tdview.format.archive_layout import CRC_OFFSET
from tdview.operations.progress import Progress, Tally
from tdview.operations.recognise import open_archive
from tdview.operations.write import worker_count
from tdview.storage.archive import ArchiveStore
from tdview.storage.entry_crc import replace_crcs
from tdview.storage.lock import writer_lock
from tdview.storage.ranges import crc_ranges
from tdview.storage.zip_directory import ZipDirectory, ZipEntry, local_payload_offset

__all__ = ["refresh_archive_checksums"]

_HAS_DESCRIPTOR = 1 << 3


def refresh_archive_checksums(
    archive_path: Path | str,
    entries: Iterable[str] | None = None,
    *,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Recomputes the CRC-32 checksums of an archive after its payloads were written in place.

    Reads every stored payload once, with all cores, in bounded memory. Only checksums that differ are written: all
    payloads are read before the first one, and a kill between two leaves an archive that is read as before and can
    be refreshed again. Compressed entries cannot be written in place, so they are not looked at.

    Args:
        archive_path: the archive, changed in place.
        entries: names of zip entries, such as ``"next/obs.memmap"``; None for all.
        num_threads: threads that read; None takes as many as the process may use.
        progress: called with bytes.

    Returns:
        The path of the archive.

    Raises:
        ArgumentError: there is no archive.
        KeyMissingError: a name in `entries` is no zip entry of it.
        DecodeError: ``archive``: its structure is damaged; nothing was changed then.
        ReadOnlyError: it may not be written.
        ConcurrentWriteError: another writer is at work on it.

    Spec: "Archives", last paragraph.
    """
    path = Path(archive_path)
    workers = worker_count(num_threads)
    open_archive(path)
    if not os.access(path, os.W_OK):
        raise ReadOnlyError(f"{path}: the archive may not be written")
    with writer_lock(path) as fd:
        mapped, directory = open_archive(path)
        chosen = [entry for entry in _chosen(path, directory, entries) if entry.method == 0]
        ranges = [(local_payload_offset(mapped, entry, path), entry.compressed) for entry in chosen]
        tally = Tally(progress, sum(nbytes for _, nbytes in ranges))
        crcs = crc_ranges(fd, ranges, workers=workers, done=tally)
        stale = {e.name: crc for e, crc in zip(chosen, crcs, strict=True) if {crc} != _recorded(mapped, e)}
        if stale:
            replace_crcs(ArchiveStore(path, writable=True), stale)
    return path


def _chosen(path: Path, directory: ZipDirectory, names: Iterable[str] | None) -> list[ZipEntry]:
    if isinstance(names, str):
        raise ArgumentError(f"entries: expected the names of zip entries, got the single str {shown(names)}")
    chosen = []
    for name in directory.names() if names is None else dict.fromkeys(names):
        entry = directory.entry(name)
        if entry is None:
            raise KeyMissingError(f"{path}: there is no zip entry {shown(name)}")
        if not name.endswith("/"):
            chosen.append(entry)
    return sorted(chosen, key=lambda entry: entry.header_offset)


def _recorded(mapped: memoryview, entry: ZipEntry) -> set[int]:
    """The checksums that the archive has for an entry: in the central directory, and in its local header."""
    if entry.flags & _HAS_DESCRIPTOR:
        return {entry.crc}
    local = int.from_bytes(mapped[entry.header_offset + CRC_OFFSET :][:4], "little")
    return {entry.crc, local}

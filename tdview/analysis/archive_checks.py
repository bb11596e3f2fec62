"""This module knows what can be wrong with a zip archive as such: names, headers, overlaps, checksums.

It does not know tensordicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tdview.errors import DecodeError, Problem, shown
from tdview.storage.archive import ArchiveStore
from tdview.storage.crc import crc32
from tdview.storage.inflate import inflate_blocks
from tdview.storage.mapping import give_back
from tdview.storage.zip_directory import METHODS, ZipEntry, local_payload_offset

__all__ = ["archive_problems", "checksum_problems"]

_BLOCK = 1 << 22
_GIVEN_BACK = 1 << 25  # bytes after which the pages that were read are given back
_DRIVE = re.compile(r"^[A-Za-z]:")
_ALIGNMENT = 64


def archive_problems(store: ArchiveStore) -> Iterator[Problem]:
    """What is wrong with the structure of an archive. Reads headers only, no payload."""
    where = store.label
    directory = store.directory
    if directory.truncated:
        yield _problem("archive", f"{where}: the central directory holds other entries than its end record counts")
    for name in sorted(set(directory.duplicates)):
        yield _problem("duplicate_entry", f"{where}: several zip entries are named {shown(name)}; the last one counts")
    spans: list[tuple[int, int, str]] = []
    unaligned = compressed = 0
    for entry in _entries(store):
        yield from _name_problems(entry, where)
        try:
            start = local_payload_offset(store.buffer, entry, where)
        except DecodeError as error:
            yield from error.problems
            continue
        spans.append((entry.header_offset, start + entry.compressed, entry.name))
        if entry.name.endswith(".memmap"):
            unaligned += entry.method == 0 and start % _ALIGNMENT != 0
            compressed += entry.method != 0
    yield from _overlaps(spans, where)
    if unaligned:
        what = f"{unaligned} payloads are not aligned to {_ALIGNMENT} bytes, as foreign zip tools write them"
        yield _problem("alignment", f"{where}: {what}; pack the save again to view them in place", "note")
    if compressed:
        what = f"{compressed} payloads are compressed, so they are read into memory and cannot be edited in place"
        yield _problem("compressed", f"{where}: {what}", "note")


def _entries(store: ArchiveStore) -> Iterator[ZipEntry]:
    for name in store.directory.names():
        entry = store.directory.entry(name)
        if entry is not None:
            yield entry


def _name_problems(entry: ZipEntry, where: object) -> Iterator[Problem]:
    name = entry.name
    if ".." in name.replace("\\", "/").split("/") or name.startswith(("/", "\\")) or _DRIVE.match(name):
        yield _problem(
            "escape", f"{where}: the zip entry {shown(name)} names a place outside the save; nothing reads it"
        )
    elif "\\" in name or "\0" in name:
        yield _problem(
            "orphan", f"{where}: the zip entry {shown(name)} is no path of a save; nothing reads it", "warning"
        )
    if entry.is_symlink:
        yield _problem("link", f"{where}: the zip entry {shown(name)} is a symbolic link, which a save never holds")
    if entry.encrypted:
        yield _problem("encrypted", f"{where}: the zip entry {shown(name)} is encrypted, so it cannot be read")
    if entry.method not in METHODS:
        yield _problem(
            "archive", f"{where}: the zip entry {shown(name)} is compressed by the unknown method {entry.method}"
        )


def _overlaps(spans: list[tuple[int, int, str]], where: object) -> Iterator[Problem]:
    spans.sort()
    for (_, end, first), (start, _, second) in pairwise(spans):
        if start < end:
            what = f"the zip entries {shown(first)} and {shown(second)} share bytes"
            yield _problem("archive", f"{where}: {what}; the archive is damaged or made to deceive")
            return


def checksum_problems(
    store: ArchiveStore, skip: frozenset[str], progress: Callable[[int, int], None] | None
) -> Iterator[Problem]:
    """The entries whose bytes do not match their CRC-32. Reads the whole archive in blocks of 4 MB.

    Args:
        skip: entries that are not worth inflating because they are known to be damaged.
        progress: called with the stored bytes done and in all.
    """
    entries = [entry for entry in _entries(store) if entry.name not in skip and not entry.name.endswith("/")]
    entries = [entry for entry in entries if entry.method in METHODS and not entry.encrypted]
    total, done = sum(entry.compressed for entry in entries), 0

    def tell(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    for entry in entries:
        where = f"{store.label}: zip entry {shown(entry.name)}"
        try:
            crc, nbytes = _crc(store, entry, where, tell)
        except DecodeError as error:
            yield from error.problems
            continue
        if nbytes != entry.nbytes or crc != entry.crc:
            what = f"the bytes do not match the checksum: recorded {entry.crc:08x}, got {crc:08x}"
            yield _problem("crc", f"{where}: {what}; they were edited in place without a refresh, or are damaged")


def _crc(store: ArchiveStore, entry: ZipEntry, where: str, tell: Callable[[int], None]) -> tuple[int, int]:
    start = local_payload_offset(store.buffer, entry, where)
    data = store.buffer[start : start + entry.compressed]
    crc = nbytes = 0
    if entry.method == 0:
        for at in range(0, len(data), _BLOCK):
            block = data[at : at + _BLOCK]
            crc = crc32(block, crc)
            if at % _GIVEN_BACK == 0:
                give_back(data)
            tell(len(block))
        return crc, len(data)
    for part in inflate_blocks(data, entry.method, entry.nbytes, where):
        crc = crc32(part, crc)
        nbytes += len(part)
        tell(0)
    tell(len(data))
    return crc, nbytes


def _problem(code: str, message: str, severity: Any = "error") -> Problem:
    return Problem(code, message, severity)

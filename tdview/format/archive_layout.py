"""This module knows where each byte of a ``.tdz`` archive lies: headers, alignment, order of the zip entries.

It does not know how an archive is read or written; it is arithmetic only.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = [
    "ALIGNMENT",
    "CRC_OFFSET",
    "METHODS",
    "PADDING_ID",
    "PAYLOAD_SUFFIX",
    "EntryHeader",
    "Stamp",
    "central_record",
    "end_records",
    "entry_order",
    "local_header",
    "local_nbytes",
    "stamp",
]

ALIGNMENT = 64
"""A stored payload starts at a multiple of so many bytes, so that a mapped archive holds it ready for use."""
PADDING_ID = 0x6474
"""Id of the extra block that pads up to the alignment: ``b"td"`` in little-endian."""
PAYLOAD_SUFFIX = ".memmap"
"""Only zip entries with such a name are aligned, and only they are compressed."""
CRC_OFFSET = 14
"""Where the checksum stands in a local header."""
METHODS: Mapping[str, int] = {"stored": 0, "deflate": 8, "bzip2": 12, "lzma": 14}
"""Compression methods by name."""

_VERSIONS = {0: 45, 8: 45, 12: 46, 14: 63}  # PKWARE APPNOTE 4.4.3.2; 45 because every entry has a zip64 block
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sBBHHHHHIIIHHHHHII")
_ZIP64_SIZES = struct.Struct("<HHQQ")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")
_UNIX = 3
_MODE = 0o644 << 16
_UTF8_NAME = 0x800
_LZMA_END_MARK = 0x2
_IN_ZIP64 = 0xFFFFFFFF
# zipfile turns to zip64 at 2 GiB, not 4; the same limits keep large archives byte-equal to those it writes.
_ZIP64_LIMIT = (1 << 31) - 1
_COUNT_LIMIT = (1 << 16) - 1

Stamp = tuple[int, int]
"""Time of a zip entry: DOS time and DOS date."""


@dataclass(slots=True, kw_only=True)
class EntryHeader:
    """What the headers of one zip entry say; a writer fills in what it learns while the content passes."""

    name: str
    """Path inside the archive, ``/``-separated."""
    nbytes: int
    """Size of the content in bytes."""
    stored_nbytes: int
    """Size in bytes as it lies in the archive."""
    crc: int
    method: int
    """A value of `METHODS`."""
    header_offset: int
    """Where its local header starts."""

    @property
    def aligned(self) -> bool:
        """Whether the payload is padded to the alignment."""
        return self.method == 0 and self.name.endswith(PAYLOAD_SUFFIX)


def stamp(seconds: float | None = None, source_date_epoch: str | None = None) -> Stamp:
    """DOS time and date of an entry written at `seconds` (the clock's), or at ``SOURCE_DATE_EPOCH`` if it is set.

    The clock's time is local, as zip tools write it; the epoch's is UTC, so that a build is reproducible anywhere.
    """
    if source_date_epoch is not None and source_date_epoch.strip().isdigit():
        t = time.gmtime(min(int(source_date_epoch), 1 << 33))
    else:
        t = time.localtime(seconds)
    if t.tm_year < 1980:
        return 0, 1 << 5 | 1
    if t.tm_year > 2107:
        return 23 << 11 | 59 << 5 | 29, 127 << 9 | 12 << 5 | 31
    return (
        t.tm_hour << 11 | t.tm_min << 5 | t.tm_sec // 2,
        (t.tm_year - 1980) << 9 | t.tm_mon << 5 | t.tm_mday,
    )


def entry_order(files: Iterable[str], levels: Iterable[str]) -> tuple[list[str], list[str]]:
    """Bare names of one level in the order of their zip entries.

    Spec: "Archives": files in name order with ``meta.json`` first, then the subdirectories in name order.

    Examples:
        >>> entry_order(["obs.memmap", "meta.json", "a.memmap"], ["10", "2"])
        (['meta.json', 'a.memmap', 'obs.memmap'], ['10', '2'])
    """
    return sorted(files, key=lambda name: (name != "meta.json", name)), sorted(levels)


def _padding(header_offset: int, name_nbytes: int) -> bytes:
    start = header_offset + _LOCAL.size + name_nbytes + 4 + _ZIP64_SIZES.size
    n = -start % ALIGNMENT
    return struct.pack("<HH", PADDING_ID, n) + bytes(n)


def local_nbytes(entry: EntryHeader) -> int:
    """Size in bytes of the local header; the content follows it."""
    name = len(entry.name.encode())
    padding = len(_padding(entry.header_offset, name)) if entry.aligned else 0
    return _LOCAL.size + name + padding + _ZIP64_SIZES.size


def local_header(entry: EntryHeader, stamp: Stamp) -> bytes:
    """The local header of a zip entry: the padding block, if it has one, comes before the zip64 block.

    Its size depends on the name and the offset alone, so it can be written before the sizes and the checksum are
    known, and again after.
    """
    name, flags = _name_flags(entry)
    padding = _padding(entry.header_offset, len(name)) if entry.aligned else b""
    sizes = _ZIP64_SIZES.pack(1, 16, entry.nbytes, entry.stored_nbytes)
    fixed = _LOCAL.pack(
        b"PK\x03\x04",
        _VERSIONS[entry.method],
        flags,
        entry.method,
        *stamp,
        entry.crc,
        _IN_ZIP64,
        _IN_ZIP64,
        len(name),
        len(padding) + len(sizes),
    )
    return fixed + name + padding + sizes


def central_record(entry: EntryHeader, stamp: Stamp) -> bytes:
    """The record of a zip entry in the central directory; sizes stand in a zip64 block only where they must."""
    name, flags = _name_flags(entry)
    wide: list[int] = []
    nbytes, stored, offset = entry.nbytes, entry.stored_nbytes, entry.header_offset
    if max(nbytes, stored) > _ZIP64_LIMIT:
        wide += [nbytes, stored]
        nbytes = stored = _IN_ZIP64
    if offset > _ZIP64_LIMIT:
        wide.append(offset)
        offset = _IN_ZIP64
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    if entry.aligned:
        extra += _padding(entry.header_offset, len(name))
    version = _VERSIONS[entry.method]
    fixed = _CENTRAL.pack(
        b"PK\x01\x02",
        version,
        _UNIX,
        version,
        flags,
        entry.method,
        *stamp,
        entry.crc,
        stored,
        nbytes,
        len(name),
        len(extra),
        0,  # comment
        0,  # disk
        0,  # internal attributes
        _MODE,
        offset,
    )
    return fixed + name + extra


def end_records(count: int, offset: int, nbytes: int) -> bytes:
    """What ends an archive whose central directory of `count` records lies at `offset` and is `nbytes` long."""
    wide = b""
    if count > _COUNT_LIMIT or max(offset, nbytes) > _ZIP64_LIMIT:
        wide = _END64.pack(b"PK\x06\x06", _END64.size - 12, 45, 45, 0, 0, count, count, nbytes, offset)
        wide += _END64_LOCATOR.pack(b"PK\x06\x07", 0, offset + nbytes, 1)
    count, nbytes, offset = min(count, 0xFFFF), min(nbytes, _IN_ZIP64), min(offset, _IN_ZIP64)
    return wide + _END.pack(b"PK\x05\x06", 0, 0, count, count, nbytes, offset, 0)


def _name_flags(entry: EntryHeader) -> tuple[bytes, int]:
    flags = 0 if entry.name.isascii() else _UTF8_NAME
    return entry.name.encode(), flags | (_LZMA_END_MARK if entry.method == METHODS["lzma"] else 0)

"""This module knows the places of a zip archive where the CRC-32 of an entry stands, and how to read and replace it.

It does not know how a checksum is computed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

from tdview.errors import DecodeError
from tdview.storage.archive import ArchiveStore
from tdview.storage.fileio import write_at
from tdview.storage.mapping import open_regular
from tdview.storage.zip_directory import ZipEntry

__all__ = ["recorded_crc", "replace_crcs"]

_CRC = struct.Struct("<I")
_CENTRAL_MARK, _CENTRAL_CRC = b"PK\x01\x02", 16
_LOCAL_CRC = 14
_DESCRIPTOR_MARK = b"PK\x07\x08"
_HAS_DESCRIPTOR = 1 << 3


def recorded_crc(store: ArchiveStore, name: str) -> int | None:
    """The CRC-32 that the archive records for an entry at this moment; None if there is no such entry.

    Unlike `Store.info` it looks into the file, so it sees what another process has refreshed.
    """
    entry = store.entry(name)
    if entry is None:
        return None
    fd = open_regular(store.location)
    try:
        header = os.pread(fd, _CENTRAL_CRC + 4, entry.central_offset)
    finally:
        os.close(fd)
    if len(header) != _CENTRAL_CRC + 4 or not header.startswith(_CENTRAL_MARK):
        raise DecodeError(f"{store.label}: zip entry {name}: its central header is gone; reload the archive")
    crc: int = _CRC.unpack_from(header, _CENTRAL_CRC)[0]
    return crc


def replace_crcs(store: ArchiveStore, crcs: Mapping[str, int]) -> None:
    """Replaces the recorded CRC-32 of some entries in place.

    The local header (or the data descriptor behind the content) is written first and the central directory, which
    readers believe, last: after a kill in between the entry is as stale as before, and refreshing it again ends it.

    Raises:
        DecodeError: an entry is gone or its headers are damaged; nothing of that entry is written.
        ReadOnlyError: the archive may not be written.
    """
    fd = open_regular(store.location, os.O_RDWR)
    try:
        for name, crc in crcs.items():
            entry = store.entry(name)
            if entry is None or recorded_crc(store, name) is None:
                raise DecodeError(f"{store.label}: there is no zip entry {name}; reload the archive")
            place = _local_place(fd, store, entry)
            if place is not None:
                write_at(fd, _CRC.pack(crc), place)
            write_at(fd, _CRC.pack(crc), entry.central_offset + _CENTRAL_CRC)
    finally:
        os.close(fd)


def _local_place(fd: int, store: ArchiveStore, entry: ZipEntry) -> int | None:
    """Where the content's own copy of the checksum stands; None if a data descriptor is not where it should be."""
    info = store.info(entry.name)
    if info is None or info.offset is None:
        raise DecodeError(f"{store.label}: zip entry {entry.name}: its local header is damaged")
    if not entry.flags & _HAS_DESCRIPTOR:
        return entry.header_offset + _LOCAL_CRC
    end = info.offset + entry.compressed
    descriptor = os.pread(fd, 8, end)
    if descriptor.startswith(_DESCRIPTOR_MARK):
        return end + 4
    return end if descriptor[:4] == _CRC.pack(entry.crc) else None

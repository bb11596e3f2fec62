"""This module knows the central directory of a zip file: names, sizes and places of the entries.

It does not know how an entry is inflated, or what it means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tdview.errors import DecodeError, Problem

__all__ = ["METHODS", "ZipDirectory", "ZipEntry", "local_payload_offset", "read_zip_directory"]

METHODS = {0: "stored", 8: "deflate", 12: "bzip2", 14: "lzma"}

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_LENGTHS = struct.Struct("<4s24x3H")
_SIZES = struct.Struct("<2H12xL")
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_NEED64 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """One entry as the central directory describes it."""

    name: str
    method: int
    flags: int
    crc: int
    compressed: int
    """Bytes as stored."""
    nbytes: int
    """Bytes after inflating, as claimed."""
    header_offset: int
    """Place of the local header in the file."""
    external_attr: int
    central_offset: int
    """Place of the central header in the file."""
    raw_name: bytes

    @property
    def encrypted(self) -> bool:
        return bool(self.flags & 0x1)

    @property
    def is_symlink(self) -> bool:
        return (self.external_attr >> 16) & 0o170000 == 0o120000


class ZipDirectory:
    """The entries of an archive by name; an entry is decoded when it is asked for.

    Opening ten thousand entries costs one pass that reads only lengths and names.
    """

    def __init__(self, buffer: memoryview, start: int, end: int, shift: int, count: int) -> None:
        self.start, self.end = start, end
        """Where the central directory lies in the file."""
        self.shift = shift
        """Bytes before the archive, if something was put in front of it."""
        self.count = count
        """Number of entries as the end record claims."""
        self.duplicates: list[str] = []
        self._central = bytes(buffer[start:end])
        self._places: dict[str, int] = {}
        self._index()

    def _index(self) -> None:
        central, places, unpack, at = self._central, self._places, _LENGTHS.unpack_from, 0
        end, names = len(central), []
        while at + 46 <= end:
            signature, name_length, extra_length, comment_length = unpack(central, at)
            if signature != b"PK\x01\x02":
                break
            start = at + 46
            raw = central[start : start + name_length]
            name = raw.decode("ascii") if raw.isascii() else _decode_name(raw, central[at + 9])
            names.append(name)
            places[name] = at
            at = start + name_length + extra_length + comment_length
        found = len(names)
        if len(places) < found:
            seen: set[str] = set()
            for name in names:
                if name in seen:
                    self.duplicates.append(name)
                seen.add(name)
        self.truncated = at != end or found != self.count & 0xFFFF if self.count < 0xFFFF else at != end
        """Whether the directory holds other entries than its end record counts."""

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def names(self) -> Iterator[str]:
        """Names in the order of the directory."""
        return iter(self._places)

    def sizes(self, name: str) -> tuple[int, int, int] | None:
        """Flags, method and size after inflating of one entry, None if there is none; `entry` without the rest."""
        at = self._places.get(name)
        if at is None:
            return None
        flags, method, nbytes = _SIZES.unpack_from(self._central, at + 8)
        if nbytes == _NEED64 and (whole := self.entry(name)) is not None:
            nbytes = whole.nbytes
        return flags, method, nbytes

    def entry(self, name: str) -> ZipEntry | None:
        """One entry, None if there is none."""
        at = self._places.get(name)
        if at is None:
            return None
        row = _CENTRAL.unpack_from(self._central, at)
        flags, method, crc, compressed, nbytes = row[5], row[6], row[9], row[10], row[11]
        name_length, extra_length = row[12], row[13]
        offset = row[18]
        raw = self._central[at + 46 : at + 46 + name_length]
        if _NEED64 in (nbytes, compressed, offset):
            extra = self._central[at + 46 + name_length : at + 46 + name_length + extra_length]
            nbytes, compressed, offset = _zip64(extra, nbytes, compressed, offset)
        return ZipEntry(
            name, method, flags, crc, compressed, nbytes, offset + self.shift, row[17], self.start + at, raw
        )


def _decode_name(raw: bytes, flags_high: int) -> str:
    if flags_high & 0x08:  # bit 11: UTF-8
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return raw.decode("cp437")


def _zip64(extra: bytes, nbytes: int, compressed: int, offset: int) -> tuple[int, int, int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            block, used = extra[at + 4 : at + 4 + length], 0
            values = []
            for value in (nbytes, compressed, offset):
                if value == _NEED64 and used + 8 <= len(block):
                    value = struct.unpack_from("<Q", block, used)[0]
                    used += 8
                values.append(value)
            return values[0], values[1], values[2]
        at += 4 + length
    return nbytes, compressed, offset


def local_payload_offset(buffer: memoryview, entry: ZipEntry, where: object) -> int:
    """Where the content of an entry begins, by its local header.

    Raises:
        DecodeError: ``archive``: there is no local header of this entry at its place, or the content does not
            lie inside the file.
    """
    at = entry.header_offset
    if 0 <= at <= len(buffer) - 30:
        row = _LOCAL.unpack_from(buffer, at)
        start: int = at + 30 + row[10] + row[11]
        if row[0] == b"PK\x03\x04" and start + entry.compressed <= len(buffer):
            if bytes(buffer[at + 30 : at + 30 + row[10]]) == entry.raw_name:
                return start
            raise _damaged(where, f"entry {entry.name!r}: the local header names another entry")
    raise _damaged(where, f"entry {entry.name!r}: its local header or content lies outside the archive")


def read_zip_directory(buffer: memoryview, where: object) -> ZipDirectory:
    """The central directory of an archive.

    Args:
        buffer: the whole file.
        where: the file, for messages.

    Raises:
        DecodeError: ``archive``: this is no zip file, or its end is missing.
    """
    size = len(buffer)
    tail_start = max(0, size - 22 - 65535)
    tail = bytes(buffer[tail_start:])
    found = tail.rfind(b"PK\x05\x06")
    while found >= 0 and found + 22 > len(tail):
        found = tail.rfind(b"PK\x05\x06", 0, found)
    if found < 0:
        raise _damaged(where, "this is no complete zip archive: its end record is missing")
    at = tail_start + found
    _, disk, _, _, count, length, offset, _ = _END.unpack_from(buffer, at)
    end = at
    if at >= 20 and bytes(buffer[at - 20 : at - 16]) == b"PK\x06\x07":
        _, _, place, _ = _LOCATOR.unpack_from(buffer, at - 20)
        for end64 in (place, at - 20 - _END64.size):  # the second where something stands before the archive
            if 0 <= end64 <= at - 20 - _END64.size and bytes(buffer[end64 : end64 + 4]) == b"PK\x06\x06":
                count, length, offset = _END64.unpack_from(buffer, end64)[7:10]
                end = end64
                break
    start = end - length
    if disk not in (0, 0xFFFF) or start < 0 or start < offset:
        raise _damaged(where, "the end record describes a directory that lies outside the archive")
    return ZipDirectory(buffer, start, end, start - offset, count)


def _damaged(where: object, what: str) -> DecodeError:
    message = f"{where}: {what[:200]}"
    return DecodeError(message, [Problem("archive", message)])

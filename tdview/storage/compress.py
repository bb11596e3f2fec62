"""This module knows how the payload of a zip entry is compressed, whole or in pieces that are compressed apart.

It does not know zip headers, nor who compresses how much at a time.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from typing import Literal, Protocol, cast

from tdview.errors import ArgumentError, NotSupportedError, shown
from tdview.format.archive_layout import METHODS

__all__ = ["Method", "check_level", "deflate_piece", "encoder", "method_of"]

Method = Literal["stored", "deflate", "bzip2", "lzma"]

# Level 1 of isal is 15 to 30 times as fast as zlib's default and gives archives of the same size for float payloads
# (up to a quarter larger for small integers), so it is the default; a level that is asked for is zlib's own.
try:
    from isal import isal_zlib
except ImportError:  # a platform without wheels
    _HAS_ISAL = False
else:
    _HAS_ISAL = True

_LZMA_PROPERTIES = b"\x5d\x00\x00\x80\x00"  # lc=3 lp=0 pb=2, a dictionary of 8 MiB: those of preset 6


class Encoder(Protocol):
    """What compresses one payload from front to end."""

    def compress(self, data: bytes | memoryview, /) -> bytes: ...
    def flush(self) -> bytes: ...


def method_of(compression: str | int | None) -> Method:
    """The compression method that an argument names: a name, a number of `zipfile`, or None for stored.

    Raises:
        ArgumentError: the name is none of ``"stored"``, ``"deflate"``, ``"bzip2"``, ``"lzma"``.
        NotSupportedError: the number is not one of a method that archives may use.
        TypeError: it is neither.
    """
    if compression is None:
        return "stored"
    if isinstance(compression, str):
        if compression not in METHODS:
            raise ArgumentError(f"compression: expected one of {', '.join(METHODS)}, got {shown(compression)}")
        return cast("Method", compression)
    if type(compression) is not int:
        raise TypeError(f"compression: expected a str, an int or None, got {type(compression).__name__}")
    for name, number in METHODS.items():
        if number == compression:
            return cast("Method", name)
    numbers = ", ".join(map(str, METHODS.values()))
    raise NotSupportedError(f"compression: this method is not supported: expected {numbers}, got {compression}")


def check_level(method: Method, level: int | None) -> None:
    """Raises `ArgumentError` unless `level` is one that the method has: deflate 0 to 9, bzip2 1 to 9."""
    lowest = {"deflate": 0, "bzip2": 1}.get(method)
    if level is None or level == -1 or lowest is None:
        return
    if type(level) is not int or not lowest <= level <= 9:
        raise ArgumentError(f"compresslevel: {method} has the levels {lowest} to 9, got {shown(level)}")


def deflate_piece(data: bytes | memoryview, level: int | None, *, last: bool) -> bytes:
    """One piece of a deflate stream. Pieces that are compressed apart and put together are one valid stream.

    Each piece but the last ends at a byte boundary without an end mark (a sync flush, 5 bytes). Releases the GIL.
    """
    if _HAS_ISAL and level in (None, -1):
        fast = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
        return fast.compress(data) + fast.flush(isal_zlib.Z_FINISH if last else isal_zlib.Z_SYNC_FLUSH)
    plain = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return plain.compress(data) + plain.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def encoder(method: Method, level: int | None) -> Encoder:
    """What compresses a bzip2 or lzma payload, which cannot be put together from pieces."""
    if method == "bzip2":
        return bz2.BZ2Compressor(9 if level is None or level == -1 else level)
    if method == "lzma":
        return _ZipLzma()
    raise ValueError(method)


class _ZipLzma:
    """LZMA as zip entries hold it: version, size of the properties, properties, then a raw stream with an end mark.

    Spec: PKWARE APPNOTE 5.8.
    """

    def __init__(self) -> None:
        self._head = struct.pack("<BBH", 9, 4, len(_LZMA_PROPERTIES)) + _LZMA_PROPERTIES
        self._raw = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "preset": 6}])

    def compress(self, data: bytes | memoryview, /) -> bytes:
        head, self._head = self._head, b""
        return head + self._raw.compress(data)

    def flush(self) -> bytes:
        head, self._head = self._head, b""
        return head + self._raw.flush()

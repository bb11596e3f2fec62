"""This module knows how to inflate a compressed zip entry within a bound.

It does not know the archive around it.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from tdview.errors import DecodeError, NotSupportedError, Problem
from tdview.storage.mapping import give_back

__all__ = ["inflate", "inflate_blocks", "inflate_pieces"]

_BLOCK = 1 << 20
_GIVEN_BACK = 32 << 20  # compressed bytes after which the pages that were read are given back
_damage: tuple[Any, ...] = (zlib.error,)
_inflater: Callable[..., Any] = zlib.decompressobj
try:  # inflates half as fast again as zlib
    from isal import igzip_lib, isal_zlib
except ImportError:
    pass
else:
    _damage = (zlib.error, igzip_lib.IsalError)
    _inflater = isal_zlib.decompressobj


def inflate(data: memoryview, method: int, nbytes: int, where: object) -> bytearray:
    """The first `nbytes` bytes of a compressed entry; never allocates more, whatever the entry claims.

    Args:
        data: the compressed bytes.
        method: the zip compression method.
        nbytes: how many bytes are needed.
        where: the entry, for messages.

    Raises:
        DecodeError: ``archive``: the bytes are damaged or end too early.
        NotSupportedError: the method is none of deflate, bzip2 and lzma.
    """
    result = bytearray()
    for part in inflate_pieces(data, method, nbytes, where):
        result += part
    return result


def inflate_pieces(data: memoryview, method: int, nbytes: int, where: object, piece: int = _BLOCK) -> Iterator[bytes]:
    """The first `nbytes` bytes of a compressed entry in pieces of at most `piece` bytes, as far as they are asked for.

    Raises:
        DecodeError, NotSupportedError: as `inflate`, once the damaged place is reached.
    """
    done = 0
    for part in _parts(data, method, nbytes, where, piece):
        done += len(part)
        yield part
    if done < nbytes:
        raise _damaged(where, f"the entry inflates to {done} bytes, expected {nbytes}")


def inflate_blocks(data: memoryview, method: int, nbytes: int, where: object) -> Iterator[bytes]:
    """All of a compressed entry, block by block, if it is exactly `nbytes` bytes.

    Raises:
        DecodeError: ``archive``: the bytes are damaged or end too early. ``bomb``: there are more.
        NotSupportedError: the method is none of deflate, bzip2 and lzma.
    """
    done = 0
    for part in _parts(data, method, nbytes + 1, where):
        done += len(part)
        if done > nbytes:
            message = f"{where}: the entry inflates to more than the {nbytes} bytes that the archive states"
            raise DecodeError(message, [Problem("bomb", message)])
        yield part
    if done < nbytes:
        raise _damaged(where, f"the entry inflates to {done} bytes, expected {nbytes}")


def _parts(data: memoryview, method: int, nbytes: int, where: object, piece: int = _BLOCK) -> Iterator[bytes]:
    """At most `nbytes` inflated bytes, in pieces; the pages of the compressed ones are given back on the way."""
    try:
        decoder, data = _decoder(data, method, where)
        pending: bytes | memoryview = b""
        at = done = 0
        while done < nbytes:
            if not pending and at < len(data):
                pending = data[at : at + piece]
                at += len(pending)
                if at % _GIVEN_BACK < piece:
                    give_back(data)
            part = decoder.decompress(pending, min(piece, nbytes - done))
            pending = getattr(decoder, "unconsumed_tail", b"")
            done += len(part)
            if part:
                yield part
            if decoder.eof or (not part and not pending and at >= len(data)):
                break
    except (*_damage, lzma.LZMAError, OSError, ValueError, EOFError, struct.error) as error:
        if isinstance(error, DecodeError):
            raise
        raise _damaged(where, f"the compressed bytes are damaged: {str(error)[:80]}") from None


def _decoder(data: memoryview, method: int, where: object) -> tuple[Any, memoryview]:
    if method == 8:
        return _inflater(-15), data
    if method == 12:
        return bz2.BZ2Decompressor(), data
    if method == 14:  # 4 bytes of version and length, then the properties of the raw stream
        length = struct.unpack_from("<H", data, 2)[0]
        properties = bytes(data[4 : 4 + length])
        if len(properties) < 5:
            raise ValueError("the lzma properties are missing")
        packed, dictionary = struct.unpack("<BL", properties[:5])
        lc, rest = packed % 9, packed // 9
        options = {
            "id": lzma.FILTER_LZMA1,
            "dict_size": min(dictionary, 1 << 28),
            "lc": lc,
            "lp": rest % 5,
            "pb": rest // 5,
        }
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[options]), data[4 + length :]
    raise NotSupportedError(f"{where}: compression method {method} is not supported; use deflate, bzip2 or lzma")


def _damaged(where: object, what: str) -> DecodeError:
    message = f"{where}: {what}"
    return DecodeError(message, [Problem("archive", message)])

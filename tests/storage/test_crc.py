"""Checksums of parts and of changes, against zlib over the whole message."""

from __future__ import annotations

import random
import zlib

import pytest

from tdview.storage import crc


def test_crc32_is_that_of_zlib() -> None:
    data = random.Random(1).randbytes(100_000)
    for size in (0, 1, 7, 255, 256, 100_000):
        assert crc.crc32(data[:size]) == zlib.crc32(data[:size])
        assert crc.crc32(memoryview(data)[:size], 123) == zlib.crc32(data[:size], 123)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0), (1, 1), (100, 3), (3, 100_000)])
def test_combine_gives_the_checksum_of_both_parts_together(sizes: tuple[int, int]) -> None:
    rng = random.Random(sizes[1])
    a, b = rng.randbytes(sizes[0]), rng.randbytes(sizes[1])
    assert crc.combine(zlib.crc32(a), zlib.crc32(b), len(b)) == zlib.crc32(a + b)


def test_deltas_of_many_edits_give_the_checksum_of_the_edited_message() -> None:
    rng = random.Random(2)
    message = bytearray(rng.randbytes(10_000))
    checksum = zlib.crc32(message)
    for _ in range(200):
        start = rng.randrange(len(message))
        size = rng.randrange(min(20, len(message) - start) + 1)
        old, new = bytes(message[start : start + size]), rng.randbytes(size)
        checksum ^= crc.delta(old, new, len(message) - start - size)
        message[start : start + size] = new
    assert checksum == zlib.crc32(message)


def test_delta_needs_no_bytes_behind_the_edit_however_many_they_are() -> None:
    tail = 1 << 20
    expected = zlib.crc32(b"\x02" + bytes(tail)) ^ zlib.crc32(b"\x01" + bytes(tail))
    assert crc.delta(b"\x01", b"\x02", tail) == expected
    assert crc.delta(b"\x01", b"\x02", 1 << 50) < 1 << 32
    assert crc.delta(b"\x01", b"\x01", tail) == 0


def test_delta_refuses_strings_of_different_size() -> None:
    with pytest.raises(ValueError):
        crc.delta(b"a", b"ab", 0)

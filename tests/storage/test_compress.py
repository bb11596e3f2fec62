"""Payloads that are compressed in pieces, with the fast library and without it, and what reads them."""

from __future__ import annotations

import bz2
import random
import zlib

import pytest

from tdview.errors import ArgumentError, DecodeError, NotSupportedError
from tdview.storage import compress
from tdview.storage.compress import check_level, deflate_piece, encoder, method_of
from tdview.storage.inflate import inflate, inflate_blocks

DATA = random.Random(0).randbytes(3000) * 1000 + bytes(500_000)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("level", [None, -1, 0, 1, 9])
def test_pieces_that_are_compressed_apart_are_one_stream(
    fast: bool, level: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compress, "_HAS_ISAL", fast and compress._HAS_ISAL)
    starts = range(0, len(DATA), 700_001)
    stream = b"".join(deflate_piece(DATA[start : start + 700_001], level, last=start == starts[-1]) for start in starts)
    reader = zlib.decompressobj(-15)
    assert reader.decompress(stream) == DATA
    assert reader.eof
    assert bytes(inflate(memoryview(stream), 8, len(DATA), "x")) == DATA
    assert b"".join(inflate_blocks(memoryview(stream), 8, len(DATA), "x")) == DATA
    assert deflate_piece(b"", level, last=True)


@pytest.mark.parametrize(("method", "number"), [("bzip2", 12), ("lzma", 14)])
def test_streams_of_the_other_methods_are_read_back(method: compress.Method, number: int) -> None:
    made = encoder(method, None)
    stream = made.compress(DATA[:1000]) + made.compress(DATA[1000:]) + made.flush()
    assert bytes(inflate(memoryview(stream), number, len(DATA), "x")) == DATA
    empty = encoder(method, None).flush()
    assert bytes(inflate(memoryview(empty), number, 0, "x")) == b""
    if method == "bzip2":
        assert bz2.decompress(stream) == DATA


def test_content_of_another_size_than_stated_is_refused() -> None:
    stream = memoryview(deflate_piece(DATA, None, last=True))
    with pytest.raises(DecodeError) as raised:
        list(inflate_blocks(stream, 8, len(DATA) - 1, "x"))
    assert raised.value.problems[0].code == "bomb"
    for data, size in ((stream, len(DATA) + 1), (stream[:-20], len(DATA)), (memoryview(b"\xff" * 30), 100)):
        with pytest.raises(DecodeError) as raised:
            list(inflate_blocks(data, 8, size, "x"))
        assert raised.value.problems[0].code == "archive"


def test_methods_by_name_number_or_none() -> None:
    assert [method_of(m) for m in (None, "stored", "deflate", 12, 14, 0)] == [
        "stored", "stored", "deflate", "bzip2", "lzma", "stored",
    ]  # fmt: skip
    with pytest.raises(ArgumentError):
        method_of("gzip")
    with pytest.raises(NotSupportedError):
        method_of(99)
    for wrong in (1.5, True, b"deflate"):
        with pytest.raises(TypeError):
            method_of(wrong)  # type: ignore[arg-type]
    for method, level in (("deflate", 10), ("deflate", -2), ("bzip2", 0), ("deflate", "9")):
        with pytest.raises(ArgumentError):
            check_level(method, level)  # type: ignore[arg-type]
    check_level("stored", 99)
    check_level("lzma", None)

"""Parts of a compressed payload: the same bytes as the whole, inflated once on the way forward, in bounded memory."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdview.errors import DecodeError, MissingFileError
from tdview.storage import archive, forward
from tdview.storage.archive import ArchiveStore
from tdview.storage.directory import DirectoryStore
from tdview.storage.forward import ForwardReaders
from tdview.storage.memory import MemoryStore

PAYLOAD = bytes(random.Random(0).choices(range(8), k=40_000))
PIECE = 1000


class Counted:
    """Sources that count what is inflated."""

    def __init__(self) -> None:
        self.opened = self.nbytes = 0

    def __call__(self) -> Iterator[bytes]:
        self.opened += 1
        for start in range(0, len(PAYLOAD), PIECE):
            self.nbytes += PIECE
            yield PAYLOAD[start : start + PIECE]


@given(st.lists(st.tuples(st.integers(0, len(PAYLOAD)), st.integers(0, 6000)), max_size=30))
def test_every_part_is_that_of_the_whole(parts: list[tuple[int, int]]) -> None:
    readers, source = ForwardReaders(), Counted()
    for start, size in parts:
        stop = min(start + size, len(PAYLOAD))
        assert readers.read("a", start, stop, source) == PAYLOAD[start:stop]


@settings(max_examples=20)
@given(st.integers(1, 5000), st.integers(0, 3000))
def test_blocks_that_overlap_inflate_once(step: int, back: int) -> None:
    readers, source = ForwardReaders(), Counted()
    for start in range(0, len(PAYLOAD), step):
        for first in (start, min(start + min(back, step), len(PAYLOAD))):
            stop = min(first + step, len(PAYLOAD))
            assert readers.read("a", first, stop, source) == PAYLOAD[first:stop]
    assert source.opened == 1


def test_rows_far_apart_have_a_reader_each() -> None:
    readers, source = ForwardReaders(), Counted()
    for start in range(0, 10_000, 500):
        for first in (start, start + 15_000, start + 30_000):
            assert readers.read("a", first, first + 500, source) == PAYLOAD[first : first + 500]
    assert source.opened == 3


def test_each_round_through_a_ring_inflates_once_more() -> None:
    readers, source = ForwardReaders(), Counted()
    for _ in range(5):
        for start in (*range(24_000, 40_000, 2000), *range(0, 24_000, 2000)):
            readers.read("a", start, start + 2000, source)
    assert source.nbytes <= 5 * len(PAYLOAD) + 24_000


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_KEPT_BYTES", 10_000)
    readers, source = ForwardReaders(), Counted()
    rng = random.Random(1)
    for _ in range(300):
        start = rng.randrange(len(PAYLOAD))
        stop = min(start + rng.randrange(4000), len(PAYLOAD))
        assert readers.read(rng.choice("abcdefgh"), start, stop, source) == PAYLOAD[start:stop]
        assert readers.kept <= 10_000
    readers.read("a", 0, 40_000, source)
    assert readers.kept == 0


def test_a_source_that_fails_is_asked_anew() -> None:
    def broken() -> Iterator[bytes]:
        yield PAYLOAD[:PIECE]
        raise DecodeError("damaged")

    readers = ForwardReaders()
    assert readers.read("a", 0, 500, broken) == PAYLOAD[:500]
    for _ in range(2):
        with pytest.raises(DecodeError):
            readers.read("a", 500, 2000, broken)
    assert readers.read("a", 0, 500, broken) == PAYLOAD[:500]


# -- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(
    params=["memory", "directory", zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def make(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[bytes], MemoryStore | DirectoryStore | ArchiveStore]:
    def store(content: bytes) -> MemoryStore | DirectoryStore | ArchiveStore:
        if request.param == "memory":
            return MemoryStore({"a.memmap": content})
        if request.param == "directory":
            (tmp_path / "a.memmap").write_bytes(content)
            return DirectoryStore(tmp_path)
        with zipfile.ZipFile(tmp_path / "a.zip", "w", request.param) as packed:
            packed.writestr("a.memmap", content)
        return ArchiveStore(tmp_path / "a.zip")

    return store


def test_every_store_gives_the_same_parts(
    make: Callable[[bytes], MemoryStore | DirectoryStore | ArchiveStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_PIECE_BYTES", PIECE)
    store, rng = make(PAYLOAD), random.Random(2)
    for nbytes in (len(PAYLOAD), 30_000):
        for _ in range(50):
            start, stop = sorted((rng.randrange(nbytes + 1), rng.randrange(nbytes + 1)))
            part = store.part("a.memmap", nbytes, start, stop)
            assert part == PAYLOAD[start:stop]
            assert part.readonly or store.form == "memory"
    with pytest.raises(MissingFileError):
        store.part("b.memmap", 10, 0, 10)
    with pytest.raises(DecodeError):
        store.part("a.memmap", len(PAYLOAD) + 1, 0, 10)


def test_damage_is_seen_where_it_is_reached(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(2_000_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.memmap", content)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100_000] = bytes(100_000)
    (tmp_path / "a.zip").write_bytes(data)
    store = ArchiveStore(tmp_path / "a.zip")
    assert store.part("a.memmap", len(content), 1000, 2000) == content[1000:2000]
    whole: list[bytes] = []
    with pytest.raises(DecodeError):
        whole += [bytes(store.part("a.memmap", len(content), at, at + 1000)) for at in range(0, len(content), 1000)]


def test_only_large_compressed_payloads_are_streamed(
    make: Callable[[bytes], MemoryStore | DirectoryStore | ArchiveStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(PAYLOAD)
    assert not store.streams("a.memmap", len(PAYLOAD))
    monkeypatch.setattr(archive, "_WHOLE_BYTES", 1000)
    info = store.info("a.memmap")
    assert info is not None
    assert store.streams("a.memmap", len(PAYLOAD)) == (info.compression != "stored")

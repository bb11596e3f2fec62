"""An index selects the bytes that numpy selects, and checksums follow a change to them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdview.errors import EditRefusedError
from tdview.operations.region import Layout, Region, index_text

shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[object, ...]]:
    shape = draw(shapes)
    items: list[object] = []
    listed = False
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kinds = [st.integers(-size, size - 1), st.slices(size)]
        if not listed:
            kinds.append(st.lists(st.integers(0, size - 1), unique=True, min_size=1))
        item = draw(st.one_of(kinds))
        listed = listed or isinstance(item, list)
        items.append(item)
    if draw(st.booleans()):
        items.append(Ellipsis)
    return shape, tuple(items)


def selected(array: np.ndarray, index: tuple[object, ...]) -> np.ndarray:
    """As numpy, but a list of positions stays where it stands beside integers."""
    ints = tuple(item if isinstance(item, int) else slice(None) for item in index if item is not Ellipsis)
    rest = tuple(item for item in index if not isinstance(item, int))
    return array[ints][rest]


@given(indexed())
def test_a_region_is_what_numpy_selects(case: tuple[tuple[int, ...], tuple[object, ...]]) -> None:
    shape, index = case
    array = np.arange(int(np.prod(shape)), dtype="<u2").reshape(shape)
    region = Layout.contiguous(shape, 2).select(index)
    expected = selected(array, index)
    assert region.shape == expected.shape
    assert region.gather(memoryview(array.tobytes())) == expected.tobytes()
    assert region.nbytes == expected.nbytes
    assert Region.from_json(region.to_json()) == region
    changed = bytearray(array.tobytes())
    region.scatter(memoryview(changed), bytes(expected.nbytes))
    selected_places = np.zeros(shape, bool)
    flat = np.arange(array.size).reshape(shape)
    selected_places.reshape(-1)[selected(flat, index).reshape(-1)] = True
    assert np.frombuffer(changed, "<u2").reshape(shape).tolist() == np.where(selected_places, 0, array).tolist()
    if region.nbytes:
        assert (region.start, region.end) == (int(expected.min()) * 2, int(expected.max()) * 2 + 2)


@pytest.mark.parametrize("index", [(..., 1), (slice(None, None, -1), slice(0, 2)), (slice(9, None, 3), 2)], ids=repr)
def test_many_runs_are_moved_as_few_are(index: object, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).integers(0, 256, (20_000, 3, 4), np.uint8)
    region = Layout.contiguous(data.shape[:2], 4).select(index)
    assert region.n_runs >= 4096
    payload = memoryview(data.tobytes())
    new = bytes(255 - byte for byte in region.gather(payload))
    changed = bytearray(data.tobytes())
    region.scatter(memoryview(changed), new)
    change = region.crc_delta(region.gather(payload), new, len(payload))
    assert zlib.crc32(payload) ^ change == zlib.crc32(changed)
    monkeypatch.setattr("tdview.operations.region._MANY_RUNS", 1 << 60)
    few = bytearray(data.tobytes())
    region.scatter(memoryview(few), new)
    assert few == changed
    assert region.gather(memoryview(few)) == new
    assert region.crc_delta(region.gather(payload), new, len(payload)) == change


@given(indexed(), st.binary(min_size=8, max_size=8))
def test_the_checksum_follows_a_change(case: tuple[tuple[int, ...], tuple[object, ...]], seed: bytes) -> None:
    shape, index = case
    data = np.random.default_rng(list(seed)).integers(0, 256, int(np.prod(shape)) * 4, np.uint8).tobytes()
    region = Layout.contiguous(shape, 4).select(index)
    old = region.gather(memoryview(data))
    new = bytes(byte ^ 0x5A for byte in old)
    changed = bytearray(data)
    region.scatter(memoryview(changed), new)
    assert zlib.crc32(data) ^ region.crc_delta(old, new, len(data)) == zlib.crc32(changed)


def test_the_checksum_follows_runs_far_apart() -> None:
    data = bytes(5 << 20)
    region = Layout.contiguous((5, 1 << 20), 1).select((slice(None), slice(7, 9)))
    new = bytes(range(1, 11))
    changed = bytearray(data)
    region.scatter(memoryview(changed), new)
    assert zlib.crc32(data) ^ region.crc_delta(bytes(10), new, len(data)) == zlib.crc32(changed)


def test_neighbouring_elements_are_one_run() -> None:
    layout = Layout.contiguous((6, 4, 2), 4)
    assert layout.select(()).n_runs == 1
    assert layout.select((slice(1, 3),)).n_runs == 1
    assert layout.select((2, slice(1, 4))).n_runs == 1
    assert layout.select((slice(None), 1)).n_runs == 6
    assert layout.select((slice(None), slice(None), 0)).n_runs == 24


@pytest.mark.parametrize(
    "index",
    [3, (0, 4), (0, 0, 0), (..., ...), None, True, "a", 1.5, (slice("a"),), [[0]], [0, 0], [True], ([0], [0]), [5]],
)
def test_an_index_outside_the_shape_is_refused(index: object) -> None:
    with pytest.raises(EditRefusedError):
        Layout.contiguous((3, 4), 4).select(index)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"shape": [1], "base": -1, "axes": [], "run": 4},
        {"shape": [1], "base": 1 << 64, "axes": [], "run": 4},
        {"shape": [1], "base": 0, "axes": [[0, 0, 2]], "run": 4},
        {"shape": [1], "base": 0, "axes": [[0, -4, 3]], "run": 4},
        {"shape": [1], "base": 0, "axes": [[0, 1, 1 << 80]], "run": 4},
        {"shape": [1], "base": 0, "axes": [{"at": [-4]}], "run": 4},
        {"shape": [1], "base": 0, "axes": ["x"], "run": 4},
        {"shape": "x", "base": 0, "axes": [], "run": True},
    ],
)
def test_a_hostile_region_is_no_region(value: object) -> None:
    with pytest.raises(ValueError, match="no "):
        Region.from_json(value)


def test_numpy_and_torch_indices_are_taken() -> None:
    import torch

    layout = Layout.contiguous((3, 4), 1)
    expected = layout.select([0, 2])
    for index in (np.array([0, 2]), torch.tensor([0, 2]), np.array([True, False, True]), range(0, 3, 2)):
        assert layout.select(index).gather(memoryview(bytes(range(12)))) == expected.gather(
            memoryview(bytes(range(12)))
        )
    assert layout.select(np.int64(-1)) == layout.select(2)


def test_an_index_is_written_as_in_python() -> None:
    assert index_text((0, slice(1, None), slice(None, None, 2), ..., [1, 2])) == "0, 1:, ::2, ..., [1, 2]"

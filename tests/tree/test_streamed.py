"""A leaf of a large compressed payload: every index gives what the directory gives, and only that part is asked for."""

from __future__ import annotations

import json
import math
import random
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tdview.errors import TdviewError
from tdview.storage import archive
from tdview.storage.forward import ForwardReaders
from tdview.testing.corpus import Case, foreign_zip
from tdview.tree.arrays import region_of
from tdview.tree.leaf import Leaf
from tdview.tree.scan import scan


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every compressed payload counts as large; the sizes of the parts that are asked for."""
    monkeypatch.setattr(archive, "_WHOLE_BYTES", -1)
    monkeypatch.setattr(archive, "_PIECE_BYTES", 16)
    asked: list[int] = []
    read = ForwardReaders.read

    def recorded(self: ForwardReaders, name: str, start: int, stop: int, source: Any) -> bytearray:
        asked.append(stop - start)
        return read(self, name, start, stop, source)

    monkeypatch.setattr(ForwardReaders, "read", recorded)
    return asked


ITEMS = st.one_of(
    st.integers(-5, 5), st.slices(5), st.just(Ellipsis), st.none(), st.lists(st.integers(-2, 2), max_size=3)
)


def by_region(array: np.ndarray[Any, Any], index: Any) -> np.ndarray[Any, Any]:
    offset, shape, inside = region_of(array.shape, index)
    found: np.ndarray[Any, Any] = array.reshape(-1)[offset:][: math.prod(shape)].reshape(shape)[inside]
    return found


@given(npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4), st.lists(ITEMS, max_size=4), st.booleans())
def test_a_region_holds_what_the_index_picks(shape: tuple[int, ...], items: list[Any], alone: bool) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    index: Any = items[0] if alone and items else tuple(items)
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            by_region(array, index)
    else:
        np.testing.assert_array_equal(by_region(array, index), expected, strict=True)


@pytest.mark.parametrize(
    ("index", "shape"),
    [(3, (1, 4, 5)), (slice(2, 5), (3, 4, 5)), ((2, slice(1, 3)), (1, 2, 5)), ((slice(2, 3), 1, -1), (1, 1, 1))],
)
def test_a_region_is_as_small_as_it_can_be(index: Any, shape: tuple[int, ...]) -> None:
    assert region_of((10, 4, 5), index)[1] == shape


def leaf_pairs(case: Case, folder: Path) -> Iterator[tuple[Leaf, Leaf]]:
    """Leaves that read without error, and the same ones of a compressed archive."""
    packed = foreign_zip(case.saved, folder / f"{case.name.replace('/', '-')}.tdz", compression=zipfile.ZIP_DEFLATED)
    streamed = {leaf.path: leaf for leaf in scan(packed).leaves()}
    for leaf in scan(case.saved).leaves():
        with suppress(TdviewError):
            leaf.numpy()
            if leaf.path in streamed:  # keys as paths are only known of directories
                yield leaf, streamed[leaf.path]


def indices(shape: tuple[int, ...], rng: random.Random) -> list[Any]:
    if not shape or not shape[0]:
        return [()]
    row = rng.randrange(shape[0])
    start, stop = sorted((rng.randrange(shape[0]), rng.randrange(shape[0] + 1)))
    box = (row, *(slice(0, 1) for _ in shape[1:]))
    return [row, slice(start, stop), slice(None, None, 2), slice(None, None, -1), box, [row, 0]]


def test_the_corpus_reads_the_same_as_from_directories(tiny: list[int], corpus: list[Case], tmp_path: Path) -> None:
    rng, seen = random.Random(0), 0
    for case in corpus:
        for plain, streamed in leaf_pairs(case, tmp_path):
            for index in [] if plain.is_nested else indices(plain.shape, rng):
                np.testing.assert_array_equal(streamed.numpy(index), plain.numpy(index), strict=True)
            blocks, whole = list(streamed.flat_blocks(24)), list(plain.flat_blocks(1 << 20))
            np.testing.assert_array_equal(np.concatenate([[], *blocks]), np.concatenate([[], *whole]))
            seen += 1
    assert seen > 100
    assert tiny


def test_only_what_the_index_touches_is_asked_for(tiny: list[int], tmp_path: Path) -> None:
    values = np.arange(4000, dtype=np.float32).reshape(100, 40)
    entry = {"shape": [100, 40], "dtype": "torch.float32", "is_nested": False, "device": "cpu"}
    meta = {"x": entry, "shape": [100], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    with zipfile.ZipFile(tmp_path / "a.tdz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("meta.json", json.dumps(meta))
        packed.writestr("x.memmap", values.tobytes())
    leaf = scan(tmp_path / "a.tdz")["x"]
    assert isinstance(leaf, Leaf)
    assert (leaf.streamed, leaf.compressed, leaf.bounded) == (True, True, True)
    for row in range(0, 100, 10):
        np.testing.assert_array_equal(leaf.numpy(slice(row, row + 10)), values[row : row + 10])
    assert set(tiny) == {1600}
    np.testing.assert_array_equal(leaf.numpy((7, slice(3, 5))), values[7, 3:5])
    np.testing.assert_array_equal(leaf.rows(98, 100), values[98:])
    assert tiny[-2:] == [8, 320]
    np.testing.assert_array_equal(leaf.numpy(), values)

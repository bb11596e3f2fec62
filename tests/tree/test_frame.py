"""Frames hold the rows that were asked for, under an index and columns that say where they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdview
from tdview.errors import ArgumentError, KeyMissingError
from tests.widgets.saves import write_save


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Any]:
    data = np.arange(24, dtype="<f4").reshape(6, 2, 2)
    entries = {
        "obs": ("float32", [6, 2, 2], data.tobytes()),
        "next": {"reward": ("float32", [6, 1], np.arange(6, dtype="<f4").tobytes())},
        "image": ("uint8", [6, 64, 65]),
        "half": ("bfloat16", [6], np.array([0x3F80] * 6, "<u2").tobytes()),
    }
    root = tdview.scan(write_save(tmp_path / "run", entries, batch_size=[6]))
    yield root
    root.store.close()


def test_a_leaf_has_its_batch_as_index_and_the_rest_as_columns(root: Any) -> None:
    frame = root["obs"].frame()
    assert frame.shape == (6, 4)
    assert frame.index.name == "dim 0"
    assert list(frame.columns) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert frame.loc[2, (1, 0)] == 10
    assert root["next", "reward"].frame().columns.tolist() == [0]


@pytest.mark.parametrize(("rows", "expected"), [
    (2, [2]), (-1, [5]), (slice(1, 3), [1, 2]), (slice(None, None, -2), [5, 3, 1]), (range(0, 6, 2), [0, 2, 4]),
    ([4, 0, 4], [4, 0, 4]), ([], []), (np.array([1, 2]), [1, 2]), (range(-2, 1), [4, 5, 0]), (range(3, 0, -2), [3, 1]),
    (np.array([5, 0], "u1"), [5, 0]),
])  # fmt: skip
def test_rows_choose_from_axis_0(root: Any, rows: Any, expected: list[int]) -> None:
    frame = root["next", "reward"].frame(rows=rows)
    assert frame.index.tolist() == expected
    assert frame[0].tolist() == expected
    assert root.frame(rows=rows)["next.reward"].tolist() == expected


def test_rows_are_chosen_from_a_compressed_payload(root: Any, tmp_path: Path) -> None:
    packed = tdview.pack_memmap(root.store.location, tmp_path / "packed.tdz", compression="deflate")
    frame = tdview.scan(packed)["next", "reward"].frame(rows=[4, 0, 4])  # type: ignore[attr-defined]
    assert frame[0].tolist() == [4, 0, 4]


@pytest.mark.parametrize("rows", [6, -7, [0, 9], "ab", [None], [[0]], np.array([2**63], "u8"), range(7)])
def test_rows_that_are_not_there_are_refused(root: Any, rows: Any) -> None:
    with pytest.raises(ArgumentError):
        root["obs"].frame(rows=rows)


def test_a_level_has_a_column_per_key_and_element(root: Any) -> None:
    frame = root.frame()
    assert list(frame.columns) == ["obs[0, 0]", "obs[0, 1]", "obs[1, 0]", "obs[1, 1]", "next.reward", "half"]
    assert frame.attrs["left_out"] == ["image"]
    assert frame["half"].tolist() == [1.0] * 6
    assert root.frame(keys=[("next", "reward"), "half"]).columns.tolist() == ["next.reward", "half"]
    assert root.frame(keys=["next"]).columns.tolist() == ["next.reward"]
    assert root.frame(rows=0, keys=["image"]).shape == (1, 64 * 65)
    with pytest.raises(KeyMissingError):
        root.frame(keys=["absent"])


def test_several_batch_dims_are_a_named_multiindex(tmp_path: Path) -> None:
    data = np.arange(6, dtype="<i8")
    root: Any = tdview.scan(write_save(tmp_path / "run", {"x": ("int64", [2, 3], data.tobytes())}, batch_size=[2, 3]))
    frame = root.frame(rows=slice(1, 2))
    assert frame.index.names == ["dim 0", "dim 1"]
    assert frame.index.tolist() == [(1, 0), (1, 1), (1, 2)]
    assert frame["x"].tolist() == [3, 4, 5]
    assert root["x"].frame().shape == (6, 1)


def test_a_level_without_batch_is_one_row(tmp_path: Path) -> None:
    root: Any = tdview.scan(write_save(tmp_path / "run", {"x": ("int64", []), "y": ("int64", [2])}, batch_size=[]))
    assert root.frame().shape == (1, 3)
    assert root["x"].frame().shape == (1, 1)
    assert root["y"].frame().shape == (2, 1)
    with pytest.raises(ArgumentError):
        root.frame(rows=0)


def test_a_frame_is_a_private_copy(root: Any) -> None:
    frame = root["obs"].frame()
    frame.iloc[0, 0] = 99
    assert root["obs"].numpy()[0, 0, 0] == 0


def test_a_lazy_stack_is_shown_as_its_stack_and_what_does_not_fit_is_left_out(tmp_path: Path) -> None:
    leaf = {"device": "cpu", "shape": [2], "dtype": "torch.uint8", "is_nested": False}
    member = {"a": leaf, "b": leaf, "shape": [2], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    for number in range(3):
        level = tmp_path / str(number)
        level.mkdir()
        (level / "meta.json").write_text(json.dumps(member))
        (level / "a.memmap").write_bytes(bytes([number, number + 10]))
        (level / "b.memmap").write_bytes(bytes(2 if number else 1))  # cut short in the first member
    stack = {"_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "stack_dim": 0}
    (tmp_path / "meta.json").write_text(json.dumps(stack))
    root = tdview.scan(tmp_path)
    frame = root.frame()
    assert root.batch_size == (3, 2)
    assert frame["a"].tolist() == [0, 10, 1, 11, 2, 12]
    assert list(frame.columns) == ["a"]
    assert frame.attrs["left_out"] == ["b"]

"""The table's pages hold the exact values, in any arrangement, and refuse what cannot be."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

import tdview
from tdview.testing.sample import write_replay_buffer
from tests.widgets.conftest import View
from tests.widgets.saves import write_save

WIRE = {
    "b1": "?", "i1": "i1", "u1": "u1", "i2": "<i2", "u2": "<u2", "i4": "<i4", "u4": "<u4", "i8": "<i8", "u8": "<u8",
    "f4": "<f4", "f8": "<f8", "c8": "<c8", "c16": "<c16",
}  # fmt: skip

INT64 = np.array([2**63 - 1, -(2**63), 2**53 + 1, 0], "<i8")
BFLOAT16 = np.array([0x3F80, 0x7F80, 0xFFC0, 0x0001], "<u2")
ARRAYS: dict[str, Any] = {
    "bool": np.array([True, False, True, True]),
    "uint8": np.array([0, 1, 254, 255], "u1"),
    "int8": np.array([-128, 127, 0, -1], "i1"),
    "int16": np.array([-(2**15), 2**15 - 1, 0, -1], "<i2"),
    "int32": np.array([-(2**31), 2**31 - 1, 0, -1], "<i4"),
    "int64": INT64,
    "uint16": np.array([2**16 - 1, 0, 1, 2], "<u2"),
    "uint32": np.array([2**32 - 1, 0, 1, 2], "<u4"),
    "uint64": np.array([2**64 - 1, 0, 1, 2], "<u8"),
    "float16": np.array([0.1, np.inf, np.nan, -0.0], "<f2"),
    "float32": np.array([0.1, np.inf, np.nan, -0.0], "<f4"),
    "float64": np.array([0.1, np.inf, np.nan, 1e300], "<f8"),
    "complex64": np.array([1 + 2j, np.nan, 1e30j, -0.0], "<c8"),
    "complex128": np.array([1 + 2j, np.inf, 0, 1e300], "<c16"),
}


def page(shown: View, path: list[str], *blocks: list[int], **args: Any) -> tuple[dict[str, Any], list[Any]]:
    answer, buffers = shown.exchange("table.page", {"path": path, "blocks": list(blocks), **args})
    assert answer["kind"] == "reply", answer
    return answer["value"], buffers


def arrays(value: dict[str, Any], buffers: list[Any]) -> list[Any]:
    """The segments of all pages as arrays."""
    found = []
    left = list(buffers)
    for part in value["pages"]:
        rows = part["rows"][1] - part["rows"][0]
        for segment in part["segments"]:
            data = np.frombuffer(left.pop(0), WIRE[segment["wire"]])
            found.append(data.reshape(rows, segment["cols"]))
    assert not left
    return found


@pytest.fixture
def open_view(tmp_path: Path) -> Callable[..., View]:
    def make(entries: dict[str, Any], batch_size: list[int], mode: Any = "r") -> View:
        return View(tdview.open(write_save(tmp_path / "run", entries, batch_size=batch_size), mode))

    return make


@pytest.mark.parametrize("dtype", ARRAYS)
def test_every_dtype_arrives_bit_for_bit(dtype: str, open_view: Callable[..., View]) -> None:
    array = ARRAYS[dtype]
    view = open_view({"x": (dtype, [4], array.tobytes())}, [4])
    value, buffers = page(view, ["x"], [0, 128, 0, 16])
    (found,) = arrays(value, buffers)
    expected = array.astype("<f4") if dtype == "float16" else array
    assert found.shape == (4, 1)
    assert found[:, 0].tobytes() == expected.tobytes()


def test_bfloat16_is_widened_exactly(open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("bfloat16", [4], BFLOAT16.tobytes())}, [4])
    value, buffers = page(view, ["x"], [0, 4, 0, 1])
    (found,) = arrays(value, buffers)
    assert value["pages"][0]["segments"][0]["wire"] == "f4"
    assert (found[:, 0].view("<u4") >> 16).tolist() == BFLOAT16.tolist()


@pytest.mark.parametrize(("dtype", "data", "bits"), [
    ("float32", np.array([1.0, -0.0], "<f4"), [0x3F800000, 0x80000000]),
    ("bfloat16", BFLOAT16[:2], [0x3F80, 0x7F80]),
    ("float16", np.array([1.0, -2.0], "<f2"), [0x3C00, 0xC000]),
    ("int8", np.array([-1, 1], "i1"), [255, 1]),
    ("bool", np.array([True, False]), [1, 0]),
])  # fmt: skip
def test_raw_pages_hold_the_bits(dtype: str, data: Any, bits: list[int], open_view: Callable[..., View]) -> None:
    view = open_view({"x": (dtype, [2], data.tobytes())}, [2])
    (found,) = arrays(*page(view, ["x"], [0, 2, 0, 1], raw=True))
    assert found[:, 0].tolist() == bits


def test_blocks_are_clamped_to_the_table(open_view: Callable[..., View]) -> None:
    data = np.arange(30, dtype="<i4").reshape(10, 3)
    view = open_view({"x": ("int32", [10, 3], data.tobytes())}, [10])
    value, buffers = page(view, ["x"], [8, 99, 1, 99], [50, 60, 0, 3], [-5, 2, -1, 1])
    assert [(part["rows"], part["cols"]) for part in value["pages"]] == [
        ([8, 10], [1, 3]), ([10, 10], [0, 3]), ([0, 2], [0, 1]),
    ]  # fmt: skip
    found = arrays(value, buffers)
    assert found[0].tolist() == data[8:, 1:].tolist()
    assert found[2].tolist() == [[0], [3]]


def test_a_block_outside_the_table_is_empty(open_view: Callable[..., View]) -> None:
    shown = open_view({"x": ("float32", [1], np.array([7], "<f4").tobytes())}, batch_size=[1])
    value, buffers = page(shown, ["x"], [0, 1, 0, 16], [0, 1, 16, 32], [5, 9, 0, 1])
    assert [array.tolist() for array in arrays(value, buffers)] == [[[7.0]], [[]], []]


@pytest.mark.parametrize("shape", [[], [1], [0], [0, 3], [4, 0]])
def test_scalars_and_empty_leaves_have_a_table(shape: list[int], open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("float32", shape)}, [])
    value, buffers = page(view, ["x"], [0, 128, 0, 16], describe=True)
    rows, cols = ([*shape, 1, 1])[0] if shape else 1, shape[1] if len(shape) > 1 else 1
    assert (value["table"]["rows"], value["table"]["cols"]) == (rows, cols)
    for found in arrays(value, buffers):
        assert found.size == rows * cols


def test_an_image_leaf_without_rows_has_an_empty_table(open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("uint8", [0, 3, 8, 8])}, [0])
    value, buffers = page(view, ["x"], [0, 128, 0, 16], describe=True)
    assert (value["table"]["rows"], value["table"]["cols"]) == (0, 8)
    assert all(found.size == 0 for found in arrays(value, buffers))
    mapping = {"rowAxis": 0, "colAxis": 3, "index": [0, 0, 0, 0]}
    assert page(view, ["x"], [0, 9, 0, 9], describe=True, view=mapping)[0]["table"]["rows"] == 0
    answer, _ = view.exchange("plot.heat", {"path": ["x"], "height": 9, "width": 9})
    assert answer["kind"] == "reply", answer


@pytest.mark.parametrize("shape", [[], [4], [4, 3]])
@pytest.mark.parametrize("block", [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1]])
def test_a_block_may_be_empty_in_either_direction(
    shape: list[int], block: list[int], open_view: Callable[..., View]
) -> None:
    value, _ = page(open_view({"a": ("float32", shape)}, []), ["a"], block)
    assert value["pages"][0]["rows"] == [0, block[1]]


def test_any_two_axes_make_the_table(open_view: Callable[..., View]) -> None:
    data = np.arange(2 * 3 * 4 * 5, dtype="<i8").reshape(2, 3, 4, 5)
    view = open_view({"x": ("int64", [2, 3, 4, 5], data.tobytes())}, [2])
    mapping = {"rowAxis": 3, "colAxis": 1, "index": [1, 9, 2, 0]}
    value, buffers = page(view, ["x"], [0, 9, 0, 9], describe=True, view=mapping)
    assert value["table"]["index"] == [1, 2, 2, 0]
    (found,) = arrays(value, buffers)
    assert found.tolist() == data[1, :, 2, :].T.tolist()
    (found,) = arrays(*page(view, ["x"], [0, 9, 0, 9], view={"rowAxis": None, "colAxis": 2, "index": [1, 1, 0, 4]}))
    assert found.tolist() == [data[1, 1, :, 4].tolist()]


def test_a_level_is_one_row_per_transition_and_one_column_per_element(open_view: Callable[..., View]) -> None:
    obs = np.arange(12, dtype="<f4").reshape(6, 2)
    done = np.arange(6) == 5
    entries = {
        "obs": ("float32", [6, 2], obs.tobytes()),
        "pixels": ("uint8", [6, 3, 8, 8]),
        "next": {"done": ("bool", [6, 1], done.tobytes())},
    }
    view = open_view(entries, [6])
    value, buffers = page(view, [], [0, 6, 0, 16], describe=True)
    assert (value["table"]["rows"], value["table"]["cols"]) == (6, 4)
    assert [(column["key"], column["count"], column["folded"]) for column in value["table"]["columns"]] == [
        (["obs"], 2, False), (["pixels"], 1, True), (["next", "done"], 1, False),
    ]  # fmt: skip
    first, second = arrays(value, buffers)
    assert [segment["start"] for segment in value["pages"][0]["segments"]] == [0, 3]
    assert first.tolist() == obs.tolist()
    assert second[:, 0].tolist() == done.tolist()


def test_other_leaves_stand_beside_a_leaf(open_view: Callable[..., View]) -> None:
    reward = np.arange(6, dtype="<f4")
    done = np.arange(6) == 5
    entries = {
        "pixels": ("uint8", [6, 3, 8, 8]),
        "done": ("bool", [6, 1], done.tobytes()),
        "next": {"reward": ("float32", [6, 1], reward.tobytes())},
    }
    view = open_view(entries, [6], "r+")
    path = ["next", "reward"]
    value, _ = page(view, path, describe=True)
    assert value["table"]["companions"] == [["done"]]
    beside = {"with": [["done"], ["pixels"], ["absent"]]}
    value, buffers = page(view, path, [0, 6, 0, 9], describe=True, view=beside)
    table = value["table"]
    assert [column["key"] for column in table["columns"]] == [["next", "reward"], ["done"]]
    assert (table["base"], table["companions"]) == ([], [["done"]])
    first, second = arrays(value, buffers)
    assert (first[:, 0].tolist(), second[:, 0].tolist()) == (reward.tolist(), done.tolist())
    view.ask("edit", {"path": ["done"], "index": [[2, 3], [0, 1]], "values": "True"})
    value, _ = page(view, path, [0, 6, 0, 9], view=beside)
    assert value["pages"][0]["edited"] == [[2, 3, 1, 2]]
    assert view.refused("table.page", {"path": path, "view": {"with": ["done"]}}) == "ArgumentError"


def test_the_leaves_of_a_ragged_stack_are_sound_and_not_its_rows(
    tmp_path: Path, view_of: Callable[[Any], View]
) -> None:
    members = [TensorDict({"a": torch.ones(2), "b": torch.ones(n), "s": torch.ones(())}, []) for n in (3, 5)]
    stack = LazyStackedTensorDict(*members)
    TensorDict({"x": torch.ones(2), "stack": stack}, [2]).save(tmp_path / "run")
    view = view_of(tdview.open(tmp_path / "run"))
    for path, above in ((["stack"], []), ([], ["stack"])):
        value, _ = page(view, path, [0, 2, 0, 16], describe=True)
        columns = {".".join(column["key"]): column for column in value["table"]["columns"]}
        assert {column["problem"] for column in columns.values()} == {""}
        inner = {name: columns[".".join([*above, name])] for name in ("0.a", "0.b", "1.a", "1.b")}
        assert all(column["folded"] for column in inner.values())
        assert [column["shape"] for column in inner.values()] == [[2], [3], [2], [5]]
    value, _ = page(view, ["stack", "0", "a"], describe=True)
    assert value["table"]["companions"] == []
    value, _ = page(view, ["x"], describe=True)
    assert value["table"]["companions"] == []


def test_several_batch_dims_are_flattened(open_view: Callable[..., View]) -> None:
    data = np.arange(4 * 3 * 2, dtype="<i4").reshape(4, 3, 2)
    view = open_view({"x": ("int32", [4, 3, 2], data.tobytes()), "s": ("int64", [4, 3])}, [4, 3])
    value, buffers = page(view, [], [4, 8, 1, 3], describe=True)
    assert (value["table"]["rows"], value["table"]["batch"]) == (12, [4, 3])
    found = arrays(value, buffers)
    assert found[0].tolist() == data.reshape(12, 2)[4:8, 1:].tolist()


def test_a_damaged_leaf_leaves_the_rest_of_the_level(open_view: Callable[..., View]) -> None:
    view = open_view({"good": ("int64", [2]), "bad": ("int64", [2], b"short")}, [2])
    value, buffers = page(view, [], [0, 2, 0, 2], describe=True)
    assert [bool(column["problem"]) for column in value["table"]["columns"]] == [False, True]
    assert len(arrays(value, buffers)) == 1
    assert view.refused("table.page", {"path": ["bad"], "blocks": [[0, 1, 0, 1]]}) == "DecodeError"


def test_a_ring_is_read_in_time_order(tmp_path: Path) -> None:
    path = write_replay_buffer(tmp_path / "buffer", capacity=64, steps=100)
    view = View(tdview.open(path))
    root = tdview.scan(path)
    whole = root["next", "observation"].numpy()
    value, buffers = page(view, ["next", "observation"], [0, 64, 0, 16], describe=True, at=3)
    assert value["table"]["order"] == "time"
    assert value["table"]["ring"]["spans"] == [[36, 64], [0, 36]]
    assert value["at"] == 64 - 36 + 3
    np.testing.assert_array_equal(arrays(value, buffers)[0], np.concatenate([whole[36:], whole[:36]]))
    view_args = {"order": "storage"}
    value, buffers = page(view, ["next", "observation"], [0, 64, 0, 16], view=view_args)
    np.testing.assert_array_equal(arrays(value, buffers)[0], whole)


def test_unwritten_rows_are_left_out_of_time(tmp_path: Path) -> None:
    view = View(tdview.open(write_replay_buffer(tmp_path / "buffer", capacity=64, steps=20)))
    value, _ = page(view, ["action"], describe=True, at=30)
    assert (value["table"]["rows"], value["at"]) == (20, None)
    value, _ = page(view, ["action"], describe=True, at=30, view={"order": "storage"})
    assert (value["table"]["rows"], value["at"]) == (64, 30)


def test_edited_cells_are_marked_where_the_block_shows_them(open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("float32", [6, 3]), "n": {"y": ("int64", [6])}}, [6], "r+")
    view.ask("edit", {"path": ["x"], "index": [[2, 4], [1, 2]], "values": "7"})
    view.ask("edit", {"path": ["n", "y"], "index": [[5, 6]], "values": ["9"]})
    value, buffers = page(view, ["x"], [0, 6, 0, 3])
    assert value["pages"][0]["edited"] == [[2, 4, 1, 2]]
    assert arrays(value, buffers)[0][2:4, 1].tolist() == [7, 7]
    value, _ = page(view, [], [0, 6, 0, 4])
    assert sorted(value["pages"][0]["edited"]) == [[2, 4, 1, 2], [5, 6, 3, 4]]
    view.ask("undo")
    value, _ = page(view, ["n"], [0, 6, 0, 1])
    assert value["pages"][0]["edited"] == []


@pytest.mark.parametrize("args", [
    {}, {"path": "x"}, {"path": ["x"], "blocks": 3}, {"path": ["x"], "blocks": [[0, 1]]},
    {"path": ["x"], "blocks": [[0, 1, 0, "1"]]}, {"path": ["x"], "blocks": [[0, 1, 0, True]]},
    {"path": ["x"], "blocks": [[0, 1, 0, 1]] * 65}, {"path": ["x"], "view": []}, {"path": ["x"], "view": {"order": 1}},
    {"path": ["x"], "view": {"rowAxis": 0, "colAxis": 0}}, {"path": ["x"], "view": {"rowAxis": 5}},
    {"path": ["x"], "view": {"index": ["a"]}}, {"path": ["x"], "raw": 1}, {"path": ["x"], "at": "1"},
    {"path": ["x"], "blocks": [[0, 10**9, 0, 10**9]]},
])  # fmt: skip
def test_malformed_arguments_are_refused(args: dict[str, Any], open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("float32", [100_000, 2])}, [100_000])
    assert view.refused("table.page", args) == "ArgumentError"


def test_what_is_not_there_is_refused(open_view: Callable[..., View]) -> None:
    view = open_view({"x": ("float32", [2])}, [2])
    assert view.refused("table.page", {"path": ["y"]}) == "KeyMissingError"


def test_csv_reads_back_exactly(open_view: Callable[..., View]) -> None:
    values = np.array([[0.1, np.nan], [1e-30, np.inf], [1 / 3, -0.0]], "<f4")
    view = open_view({"x": ("float32", [3, 2], values.tobytes()), "n": ("int64", [3], INT64[:3].tobytes())}, [3])
    answer, parts = view.exchange("table.export", {"path": [], "format": "csv"})
    assert answer["value"] == {"name": "root.csv", "mime": "text/csv"}
    rows = list(csv.reader(io.StringIO(b"".join(parts).decode())))
    assert rows[0] == ["row", "x[0]", "x[1]", "n"]
    assert np.array([row[1:3] for row in rows[1:]], np.float32).tobytes() == values.tobytes()
    assert [int(row[3]) for row in rows[1:]] == INT64[:3].tolist()


def test_npy_holds_the_selected_rectangle(open_view: Callable[..., View]) -> None:
    data = np.arange(12, dtype="<i4").reshape(4, 3)
    view = open_view({"x": ("int32", [4, 3], data.tobytes())}, [4])
    args = {"path": ["x"], "format": "npy", "rows": [1, 3], "cols": [1, 3]}
    answer, parts = view.exchange("table.export", args)
    assert answer["value"]["name"] == "x.npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(b"".join(parts))), data[1:3, 1:3])
    assert view.refused("table.export", {**args, "path": []}) == "NotSupportedError"
    assert view.refused("table.export", {**args, "format": "xls"}) == "ArgumentError"


def test_parquet_says_what_is_missing(open_view: Callable[..., View], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    view = open_view({"x": ("int64", [4])}, [4])
    assert view.refused("table.export", {"path": ["x"], "format": "parquet"}) == "NotSupportedError"

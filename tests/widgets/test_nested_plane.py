"""A nested tensor is a table of its tensors, one below the other."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdview
from tests.widgets.conftest import View
from tests.widgets.saves import write_save


@pytest.fixture
def open_nested(tmp_path: Path, view_of: Callable[[Any], View]) -> Callable[..., View]:
    def make(shapes: Sequence[tuple[int, ...]], dtype: str, payload: bytes) -> View:
        dims = len(shapes[0])
        path = write_save(tmp_path / "run", {"tok": (dtype, [len(shapes), dims], payload)}, batch_size=[len(shapes)])
        meta = json.loads((path / "meta.json").read_text())
        meta["tok"]["is_nested"] = True
        (path / "meta.json").write_text(json.dumps(meta))
        sizes = [size for shape in shapes for size in shape]
        (path / "tok.shape.memmap").write_bytes(struct.pack(f"<{len(sizes)}q", *sizes))
        return view_of(tdview.open(path))

    return make


def table(view: View, rows: int, cols: int, **more: Any) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    args = {"path": ["tok"], "describe": True, "blocks": [[0, rows, 0, cols]], **more}
    answer, buffers = view.exchange("table.page", args)
    segments = answer["value"]["pages"][0]["segments"]
    wires = {"i8": "<i8", "f4": "<f4", "u4": "<u4", "u2": "<u2"}
    values = [
        np.frombuffer(buffer, wires[part["wire"]]).reshape(-1, part["cols"])
        for part, buffer in zip(segments, buffers, strict=True)
    ]
    return answer["value"]["table"], values


def test_tensors_of_other_lengths_stand_one_below_the_other(open_nested: Callable[..., View]) -> None:
    data = np.arange(12, dtype="<f4").reshape(6, 2)
    view = open_nested([(3, 2), (0, 5), (1, 2), (2, 2)], "float32", data.tobytes())
    described, (tensor, row, values) = table(view, 10, 10)
    assert (described["rows"], described["cols"]) == (6, 4)
    assert [(column["key"], column["count"]) for column in described["columns"]] == [
        (["tensor"], 1),
        (["position"], 1),
        (["tok"], 2),
    ]
    assert tensor.ravel().tolist() == [0, 0, 0, 2, 3, 3]
    assert row.ravel().tolist() == [0, 1, 2, 0, 0, 1]
    np.testing.assert_array_equal(values, data)
    _, (part,) = table(view, 0, 0, blocks=[[2, 4, 3, 4]])
    assert part.tolist() == [[5], [7]]
    _, (bits,) = table(view, 0, 0, blocks=[[0, 6, 2, 4]], raw=True)
    assert bits.tolist() == data.view("<u4").tolist()


def test_tensors_of_other_shapes_are_a_row_an_element(open_nested: Callable[..., View]) -> None:
    bits = np.array([0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0], "<u2")  # 1 to 5 in bfloat16
    view = open_nested([(1, 2), (3, 1)], "bfloat16", bits.tobytes())
    described, (tensor, element, values) = table(view, 10, 10)
    assert described["columns"][1]["key"] == ["element"]
    assert tensor.ravel().tolist() == [0, 0, 1, 1, 1]
    assert element.ravel().tolist() == [0, 1, 0, 1, 2]
    assert values.ravel().tolist() == [1, 2, 3, 4, 5]


def test_it_is_exported_and_selected_as_a_whole(open_nested: Callable[..., View]) -> None:
    view = open_nested([(1, 2), (2, 2)], "float32", np.arange(6, dtype="<f4").tobytes())
    _, parts = view.exchange("table.export", {"path": ["tok"], "format": "csv"})
    rows = list(csv.reader(io.StringIO(b"".join(parts).decode())))
    assert rows == [
        ["row", "tensor", "position", "tok[0]", "tok[1]"],
        ["0", "0", "0", "0.0", "1.0"],
        ["1", "1", "0", "2.0", "3.0"],
        ["2", "1", "1", "4.0", "5.0"],
    ]
    _, parts = view.exchange("table.export", {"path": ["tok"], "format": "npy"})
    assert np.load(io.BytesIO(b"".join(parts))).tolist() == [[0, 1], [2, 3], [4, 5]]
    view.ask("selection", {"path": ["tok"], "rows": [1, 2], "cols": [0, 4]})
    assert view.browser.selection.boxes == ()


def test_damage_is_an_error_of_the_table(open_nested: Callable[..., View]) -> None:
    view = open_nested([(1, 2), (-2, 2)], "float32", bytes(24))
    assert view.refused("table.page", {"path": ["tok"], "describe": True, "blocks": []}) == "DecodeError"

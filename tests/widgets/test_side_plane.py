"""Ages and priorities stand in front of the rows where they are asked for and there are any, and nowhere else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdview
from tdview.testing.sample import write_replay_buffer
from tdview.tree.fill import SideFiles
from tests.widgets.conftest import View
from tests.widgets.saves import write_save
from tests.widgets.test_pages import arrays, page

SIDE = {"side": True}
NAMES = ["age", "priority", "probability"]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A wrapped ring of 64 rows, the oldest is row 36."""
    return write_replay_buffer(tmp_path / "ring", capacity=64, steps=100)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A ring of 64 rows of which 20 were written."""
    return write_replay_buffer(tmp_path / "half", capacity=64, steps=20)


def named(table: dict[str, Any]) -> list[str]:
    return [column["name"] for column in table["side"]]


@pytest.mark.parametrize("order", ["storage", "time"])
@pytest.mark.parametrize("path", [["next", "reward"], ["next", "observation"], ["next"], []])
def test_side_columns_stand_before_the_values_of_their_rows(order: str, path: list[str], ring: Path) -> None:
    view = View(tdview.open(ring))
    value, plain = page(view, path, [0, 64, 0, 16], view={"order": order}, describe=True)
    assert (named(value["table"]), value["table"]["lead"]) == (NAMES, 0)
    cols, before = value["table"]["cols"], arrays(value, plain)
    value, buffers = page(view, path, [0, 64, 0, 19], view={"order": order, **SIDE}, describe=True)
    assert (value["table"]["lead"], value["table"]["cols"]) == (3, cols + 3)
    assert [segment["start"] for segment in value["pages"][0]["segments"]][:4] == [0, 1, 2, 3]
    found = arrays(value, buffers)
    frame = tdview.side_columns(ring)
    rows = [*range(36, 64), *range(36)] if order == "time" else range(64)
    for column, name in zip(found, NAMES, strict=False):
        assert column[:, 0].tolist() == frame[name].iloc[rows].tolist()
    for column, same in zip(found[3:], before, strict=True):
        assert column.tobytes() == same.tobytes()


def test_columns_say_what_they_are(ring: Path) -> None:
    value, _ = page(View(tdview.open(ring)), [], describe=True)
    assert "Steps behind the newest row" in value["table"]["side"][0]["title"]


def test_an_age_that_is_a_guess_says_so(ring: Path) -> None:
    (ring / "writer" / "metadata.json").unlink()
    value, _ = page(View(tdview.open(ring)), ["action"], describe=True)
    assert "guessed from" in value["table"]["side"][0]["title"]
    assert "guessed from" not in value["table"]["side"][1]["title"]


def test_rows_that_were_never_written_have_no_age_and_no_priority(half: Path) -> None:
    view = View(tdview.open(half))
    value, buffers = page(view, ["action"], [0, 64, 0, 16], view={"order": "storage", **SIDE}, describe=True)
    age, priority, probability, _ = arrays(value, buffers)
    assert age[:, 0].tolist() == [*range(19, -1, -1), *[-1] * 44]
    assert np.isnan(priority[:, 0]).tolist() == [False] * 20 + [True] * 44
    assert probability[20:].sum() == 0
    value, _ = page(view, ["action"], view=SIDE, describe=True)
    assert value["table"]["rows"] == 20


def test_a_part_of_the_columns_can_be_asked_for(ring: Path) -> None:
    view = View(tdview.open(ring))
    value, buffers = page(view, ["next", "observation"], [5, 9, 1, 4], [5, 9, 3, 5], [5, 9, 0, 1], view=SIDE)
    first, second, third, fourth, fifth = arrays(value, buffers)
    assert [part.shape for part in (first, second, third, fourth, fifth)] == [(4, 1), (4, 1), (4, 1), (4, 2), (4, 1)]
    assert fourth[:, 0].tolist() == third[:, 0].tolist()


def test_bits_are_those_of_the_leaf_alone(ring: Path) -> None:
    view = View(tdview.open(ring))
    value, buffers = page(view, ["index"], [0, 64, 0, 4], view={"order": "storage", **SIDE}, raw=True)
    assert [segment["wire"] for segment in value["pages"][0]["segments"]] == ["i8", "f8", "f8", "u8"]
    assert arrays(value, buffers)[3][:, 0].tolist() == list(range(64))


def test_pictures_and_other_leaves_have_them_too(ring: Path) -> None:
    view = View(tdview.open(ring))
    value, _ = page(view, ["pixels"], view={"rowAxis": 0, "colAxis": 1, "index": [0, 0, 0, 0], **SIDE}, describe=True)
    assert value["table"]["lead"] == 3
    value, _ = page(view, ["pixels"], view={"rowAxis": 1, "colAxis": 2, **SIDE}, describe=True)
    assert (value["table"]["side"], value["table"]["lead"]) == ([], 0)
    value, buffers = page(view, ["index"], [0, 4, 0, 5], view={"with": [["done"]], **SIDE}, describe=True)
    assert value["table"]["lead"] == 3
    assert len(arrays(value, buffers)) == 5


@pytest.mark.parametrize("path", [["x"], []])
def test_a_save_that_is_no_buffer_has_none(path: list[str], tmp_path: Path) -> None:
    view = View(tdview.open(write_save(tmp_path / "run", {"x": ("float32", [6, 2])}, batch_size=[6])))
    value, buffers = page(view, path, [0, 6, 0, 2], view=SIDE, describe=True)
    assert (value["table"]["side"], value["table"]["lead"], value["table"]["cols"]) == ([], 0, 2)
    assert len(arrays(value, buffers)) == 1


def test_a_storage_of_several_elements_repeats_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_save(folder / "storage", {"x": ("int64", [4, 3])}, batch_size=[4, 3])
    (folder / "storage" / "storage_metadata.json").write_text('{"metadata": {}, "is_pytree": false, "len": 12}')
    (folder / "writer").mkdir()
    (folder / "writer" / "metadata.json").write_text('{"cursor": 1}')
    view = View(tdview.open(folder))
    value, buffers = page(view, [], [2, 8, 0, 2], view={"order": "storage", **SIDE}, describe=True)
    assert named(value["table"]) == ["age"]
    assert arrays(value, buffers)[0][:, 0].tolist() == [0, 3, 3, 3, 2, 2]


def test_arrays_are_read_once_for_all_pages_and_leaves(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    keep = SideFiles.read
    monkeypatch.setattr(SideFiles, "read", lambda self, part, name: read.append(name) or keep(self, part, name))
    view = View(tdview.open(ring))
    page(view, ["action"], [0, 64, 0, 4], describe=True)
    assert "sumtree.memmap" not in read
    for path in (["action"], ["next", "reward"], []):
        for start in (0, 32):
            page(view, path, [start, start + 32, 0, 4], view=SIDE, describe=not start)
    assert read.count("sumtree.memmap") == 1


def test_a_reloaded_save_is_read_again(ring: Path) -> None:
    view = View(tdview.open(ring))
    page(view, ["action"], [0, 64, 0, 4], view=SIDE)
    (ring / "sampler" / "sumtree.memmap").write_bytes(np.ones(64).tobytes())
    view.ask("reload")
    value, buffers = page(view, ["action"], [0, 64, 0, 4], view=SIDE)
    assert set(arrays(value, buffers)[2][:, 0].tolist()) == {1 / 64}


def test_a_tree_that_vanished_leaves_empty_cells(ring: Path) -> None:
    view = View(tdview.open(ring))
    page(view, ["action"], describe=True)
    (ring / "sampler" / "sumtree.memmap").unlink()
    value, buffers = page(view, ["action"], [0, 64, 0, 4], view=SIDE)
    assert np.isnan(arrays(value, buffers)[1]).all()


@pytest.mark.parametrize("side", ["yes", 1, [], None])
def test_a_malformed_switch_is_refused(side: object, ring: Path) -> None:
    view = View(tdview.open(ring))
    assert view.refused("table.page", {"path": ["action"], "view": {"side": side}}) == "ArgumentError"
    assert view.refused("selection", {"path": ["action"], "view": {"side": side}, "rows": [0, 1]}) == "ArgumentError"


def test_edited_cells_are_marked_behind_them(tmp_path: Path) -> None:
    view = View(tdview.open(write_replay_buffer(tmp_path / "run", capacity=64, steps=20), mode="r+"))
    view.ask("edit", {"path": ["next", "observation"], "index": [[2, 4], [1, 2]], "values": "7"})
    value, _ = page(view, ["next", "observation"], [0, 20, 0, 16], view=SIDE)
    assert value["pages"][0]["edited"] == [[2, 4, 4, 5]]


def test_they_are_exported_with_the_values(half: Path) -> None:
    view = View(tdview.open(half))
    args = {"path": ["index"], "format": "csv", "view": {"order": "storage", **SIDE}}
    answer, parts = view.exchange("table.export", args)
    assert answer["kind"] == "reply", answer
    rows = list(csv.reader(io.StringIO(b"".join(parts).decode())))
    assert rows[0] == ["row", *NAMES, "index"]
    frame = tdview.side_columns(half)
    assert [(int(row[1]), float(row[2])) for row in rows[1:21]] == list(
        zip(frame["age"][:20], frame["priority"][:20], strict=True)
    )
    assert rows[-1] == ["63", "", "", "0.0", "0"]


def test_an_npy_file_holds_the_leaf_alone(ring: Path) -> None:
    view = View(tdview.open(ring))
    args = {"path": ["next", "observation"], "format": "npy", "view": {"order": "storage", **SIDE}, "rows": [3, 5]}
    _, parts = view.exchange("table.export", {**args, "cols": [1, 5]})
    expected = tdview.scan(ring)["next", "observation"].numpy()[3:5, :2]
    np.testing.assert_array_equal(np.load(io.BytesIO(b"".join(parts))), expected)
    assert view.refused("table.export", {**args, "cols": [0, 2]}) == "NotSupportedError"


def test_a_selection_is_of_the_leaves_behind_them(ring: Path) -> None:
    browser = tdview.open(ring)
    browser.select(("next", "observation"))
    view = View(browser)
    args = {"path": ["next", "observation"], "view": {"order": "storage", **SIDE}, "rows": [3, 5]}
    whole = tdview.scan(ring)["next", "observation"].numpy()
    view.ask("selection", {**args, "cols": [1, 5]})
    assert browser.selection.tensors["next", "observation"].tolist() == whole[3:5, :2].tolist()
    view.ask("selection", {**args, "cols": [0, 2]})
    assert browser.selection.tensors["next", "observation"].tolist() == whole[3:5].tolist()


def test_generations_are_shown_where_they_are_counted(ring: Path) -> None:
    text = {"cursor": 36, "write_count": 100, "generation_shape": [64], "generation_dtype": "torch.int32"}
    (ring / "writer" / "metadata.json").write_text(json.dumps(text))
    np.arange(64, dtype="<i4").tofile(ring / "writer" / "generation.memmap")
    value, buffers = page(View(tdview.open(ring)), ["index"], [0, 64, 0, 8], view=SIDE, describe=True)
    assert named(value["table"]) == [*NAMES, "generation"]
    found = arrays(value, buffers)
    assert found[3].tolist() == found[4].tolist()

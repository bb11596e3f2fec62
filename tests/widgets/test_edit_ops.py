"""The browser edits, answers every request of it, and tells all views what changed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

import tdview
from tdview.errors import EditRefusedError, ReadOnlyError


@pytest.fixture(params=["run", "run.tdz"])
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    source = {
        "i": torch.arange(4),
        "f": torch.zeros(4, 3),
        "next": TensorDict({"r": torch.zeros(4, 1)}, batch_size=[4]),
    }
    source |= {"note": NonTensorData("hi", batch_size=[4]), "names": NonTensorStack("a", "b", "c", "d")}
    TensorDict(source, batch_size=[4]).save(path)
    return path


def files(path: Path) -> dict[str, bytes]:
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(file): file.read_bytes() for file in found if file.is_file()}


def test_a_read_only_browser_edits_nothing(save: Path, view_of: Callable[[Any], Any]) -> None:
    before = files(save.parent)
    browser = tdview.open(save)
    for act in (lambda: browser.edit("i", 0, 1), browser.undo, browser.redo, browser.refresh_checksums):
        with pytest.raises(ReadOnlyError):
            act()
    view = view_of(browser)
    assert view.refused("edit", {"path": ["i"], "index": [[0, 1]], "values": "1"}) == "ReadOnlyError"
    for op in ("undo", "redo", "refresh_checksums"):
        assert view.refused(op) == "ReadOnlyError"
    assert (browser.edits, browser.stale_checksums, browser._edits["count"]) == ((), (), 0)
    assert files(save.parent) == before


def test_a_cell_is_edited_and_undone(save: Path, view_of: Callable[[Any], Any]) -> None:
    browser = tdview.open(save, mode="r+")
    view = view_of(browser)
    view.ask("edit", {"path": ["next", "r"], "index": [[2, 3], [0, 1]], "values": "7.5"})
    assert TensorDict.load_memmap(save)["next", "r"].flatten().tolist() == [0, 0, 7.5, 0]
    assert view.events("changed") == [{"kind": "event", "event": "changed", "path": ["next", "r"], "rows": [2, 3]}]
    journal = f"{save.name}.tdview-journal"
    stale = int(save.is_file())
    assert browser._edits == {"count": 1, "undo": True, "redo": False, "stale": stale, "journal": journal}
    assert len(browser.stale_checksums) == stale
    assert list(browser.edited_boxes(())) == [(("next", "r"), ((2, 3), (0, 1)))]
    assert list(browser.edited_boxes(("i",))) == []
    assert view.ask("refresh_checksums")["message"]
    assert browser._edits["stale"] == 0
    view.ask("undo")
    assert TensorDict.load_memmap(save)["next", "r"].flatten().tolist() == [0, 0, 0, 0]
    assert (browser._edits["count"], browser._edits["redo"]) == (0, True)
    view.ask("redo")
    assert [(edit.index, edit.new) for edit in browser.edits] == [((2, 0), 7.5)]
    assert len(view.events("changed")) == 3


def test_a_range_is_filled_or_pasted(save: Path, view_of: Callable[[Any], Any]) -> None:
    view = view_of(tdview.open(save, mode="r+"))
    view.ask("edit", {"path": ["f"], "index": [[0, 4], [1, 2]], "values": "nan"})
    view.ask("edit", {"path": ["f"], "index": [[1, 3], [0, 2]], "values": ["1", "2", "3", "4e0"]})
    loaded = TensorDict.load_memmap(save)["f"]
    assert loaded[1:3, :2].tolist() == [[1, 2], [3, 4]]
    assert loaded[[0, 3], 1].isnan().all()


def test_several_boxes_are_checked_before_one_is_written(save: Path, view_of: Callable[[Any], Any]) -> None:
    before = files(save.parent)
    good = [
        {"path": ["f"], "index": [[0, 4], [0, 3]], "values": "2"},
        {"path": ["i"], "index": [[0, 2]], "values": ["1", "2"]},
    ]
    view = view_of(tdview.open(save, mode="r+"))
    assert view.ask("edit.check", {"boxes": good}) == {}
    for bad, code in (
        ({"path": ["i"], "index": [[0, 4]], "values": "1.5"}, "EditRefusedError"),
        ({"path": ["i"], "index": [[0, 2]], "values": ["1", "x"]}, "EditRefusedError"),
        ({"path": ["next"], "index": [[0, 4]], "values": "1"}, "EditRefusedError"),
        ({"path": ["no"], "index": [[0, 4]], "values": "1"}, "KeyMissingError"),
        ({"path": ["i"]}, "ArgumentError"),
        ("box", "ArgumentError"),
    ):
        assert view.refused("edit.check", {"boxes": [*good, bad]}) == code
    assert view_of(tdview.open(save)).refused("edit.check", {"boxes": good}) == "ReadOnlyError"
    assert files(save.parent) == before


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"path": ["i"], "index": [[0, 1]], "values": "x"}, "EditRefusedError"),
        ({"path": ["i"], "index": [[0, 9]], "values": ["1"] * 9}, "EditRefusedError"),
        ({"path": ["i"], "index": [[9, 10]], "values": "1"}, "EditRefusedError"),
        ({"path": ["i"], "index": [[0, 2]], "values": ["1"]}, "ArgumentError"),
        ({"path": ["i"], "index": [[0]], "values": "1"}, "ArgumentError"),
        ({"path": ["i"], "index": 0, "values": "1"}, "ArgumentError"),
        ({"path": ["i"], "index": [[-1, 0]], "values": "1"}, "ArgumentError"),
        ({"path": ["i"], "index": [[0, 1]]}, "EditRefusedError"),
        ({"path": ["no"], "index": [[0, 1]], "values": "1"}, "KeyMissingError"),
        ({"path": "i", "index": [[0, 1]], "values": "1"}, "ArgumentError"),
        ({}, "ArgumentError"),
    ],
)
def test_a_refusal_is_an_answer(save: Path, view_of: Callable[[Any], Any], args: dict[str, Any], code: str) -> None:
    before = files(save.parent)
    view = view_of(tdview.open(save, mode="r+"))
    assert view.refused("edit", args) == code
    assert view.refused("undo") == "EditRefusedError"
    assert files(save.parent) == before


def test_two_browsers_of_one_save_see_each_others_edits(save: Path, view_of: Callable[[Any], Any]) -> None:
    one, two = tdview.open(save, mode="r+"), tdview.open(save, mode="r+")
    view = view_of(two)
    one.edit("i", 1, 5)
    assert two._edits == one._edits
    assert view.events("changed")
    assert two.undo().path == ("i",)
    assert one._edits["count"] == 0


def test_a_closed_browser_is_not_told(save: Path) -> None:
    one, two = tdview.open(save, mode="r+"), tdview.open(save, mode="r+")
    two.close()
    one.edit("i", 0, 1)


def test_reload_shows_what_another_editor_wrote(save: Path, view_of: Callable[[Any], Any]) -> None:
    browser = tdview.open(save, mode="r+")
    view = view_of(browser)
    other = tdview.Editor(save)
    other.edit("i", 0, 5)
    view.ask("reload")
    assert [edit.new for edit in browser.edits] == [5]
    assert browser.root["i"].numpy()[0] == 5
    assert browser._edits["count"] == 1
    browser.undo()
    assert browser.root["i"].numpy()[0] == 0


def test_values_are_edited_in_a_directory(tmp_path: Path, view_of: Callable[[Any], Any]) -> None:
    path = tmp_path / "run"
    TensorDict({"note": NonTensorData("hi"), "s": NonTensorStack("a", "b")}, batch_size=[2]).save(path)
    browser = tdview.open(path, mode="r+")
    view = view_of(browser)
    view.ask("edit.value", {"path": ["note"], "text": "[1, 2]", "json": True})
    assert browser.root["note"].value == [1, 2]
    view.ask("edit.value", {"path": ["note"], "text": "[1, 2]"})
    assert browser.root["note"].value == "[1, 2]"
    view.ask("edit.value", {"path": ["s"], "text": '["a", "c"]', "json": True})
    assert browser.root["s"].value == ["a", "c"]
    view.ask("edit.value", {"path": ["s"], "text": '["a", "c"]', "json": True})
    assert len(browser.edits) == 3
    for text in ("{", "[1]", "5"):
        assert view.refused("edit.value", {"path": ["s"], "text": text, "json": True}) == "EditRefusedError"
    assert TensorDict.load_memmap(path)["s"].tolist() == ["a", "c"]


def test_values_of_an_archive_say_what_to_do(tmp_path: Path, view_of: Callable[[Any], Any]) -> None:
    path = tmp_path / "run.tdz"
    TensorDict({"note": NonTensorData("hi")}, batch_size=[]).save(path)
    view = view_of(tdview.open(path, mode="r+"))
    assert view.refused("edit.value", {"path": ["note"], "text": "x"}) == "NotSupportedError"


def test_edits_are_handed_on(save: Path, tmp_path: Path, view_of: Callable[[Any], Any]) -> None:
    import shutil

    copy = tmp_path / "copy" / save.name
    copy.parent.mkdir()
    shutil.copytree(save, copy) if save.is_dir() else shutil.copyfile(save, copy)
    browser = tdview.open(save, mode="r+")
    browser.edit("i", 0, 2**60 + 1)
    browser.edit("f", (slice(0, 2), 1), [0.1, float("nan")])
    view = view_of(browser)
    answer, buffers = view.exchange("edits.export", {"format": "patch"})
    assert answer["value"]["mime"] == "application/json"
    assert tdview.Editor(copy, journal=False).apply_patch(json.loads(bytes(buffers[0]))) == 2
    loaded, expected = TensorDict.load_memmap(copy), TensorDict.load_memmap(save)
    assert torch.equal(loaded["i"], expected["i"])
    assert torch.equal(loaded["f"].nan_to_num(9), expected["f"].nan_to_num(9))
    answer, buffers = view.exchange("edits.export", {"format": "script"})
    compile(bytes(buffers[0]), "edits.py", "exec")
    assert view.refused("edits.export", {"format": "x"}) == "ArgumentError"


def test_without_a_journal_nothing_lies_beside(save: Path) -> None:
    browser = tdview.open(save, mode="r+", journal=False)
    browser.edit("i", 0, 1)
    assert browser._edits["journal"] == ""
    assert [path.name for path in save.parent.iterdir()] == [save.name]


def test_an_archive_stays_sound(tmp_path: Path) -> None:
    path = tmp_path / "run.tdz"
    TensorDict({"a": torch.zeros(5)}, batch_size=[5]).save(path)
    browser = tdview.open(path, mode="r+")
    browser.edit("a", 2, 1)
    assert browser.stale_checksums == ("a.memmap",)
    browser.refresh_checksums()
    assert zipfile.ZipFile(path).testzip() is None
    with pytest.raises(EditRefusedError):
        browser.redo()

"""What is selected comes as tensors, frame, rows and code that give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import tdview
from tdview.errors import NotSupportedError
from tdview.widgets.selection import Selection


@pytest.fixture
def save(tmp_path: Path) -> Path:
    path = tmp_path / "run.tdz"
    source = {"obs": torch.arange(18.0).view(6, 3), "next": TensorDict({"r": torch.arange(6)}, batch_size=[6])}
    TensorDict(source, batch_size=[6], names=["time"]).save(path)
    return path


def run(code: str) -> Any:
    """The value of the last expression of some code."""
    *body, last = code.strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(body), names)  # the code is ours
    return eval(last, names)


def test_nothing_selected_is_the_whole_save(save: Path) -> None:
    selection = tdview.open(save).selection
    assert selection.path == ()
    assert sorted(selection.tensors) == [("next", "r"), ("obs",)]
    assert selection.rows == ((0, 6),)
    assert selection.frame().shape == (6, 4)
    assert run(selection.code).equals(selection.frame())
    assert torch.equal(selection.tensordict()["obs"], torch.arange(18.0).view(6, 3))


def test_a_selected_leaf_is_its_whole_tensor(save: Path) -> None:
    browser = tdview.open(save)
    browser.select(("next", "r"))
    assert browser.selection.tensors[("next", "r")].tolist() == list(range(6))
    assert browser.selection.frame().shape == (6, 1)
    assert run(browser.selection.code).tolist() == list(range(6))


def test_a_range_of_a_table_is_selected(save: Path, view_of: Callable[[Any], Any]) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    browser.select("obs")
    view.ask("selection", {"path": ["obs"], "view": {}, "rows": [2, 4], "cols": [1, 3]})
    selection = browser.selection
    assert selection.tensors[("obs",)].tolist() == [[7, 8], [10, 11]]
    frame = selection.frame()
    assert list(frame.columns) == ["obs[1]", "obs[2]"]
    assert (list(frame.index), frame.index.name) == ([2, 3], "time")
    assert selection.rows == ((2, 4),)
    assert run(selection.code).tolist() == [[7, 8], [10, 11]]
    assert selection.tensordict()["next", "r"].tolist() == [2, 3]
    assert "4 elements in rows 2:4" in repr(selection)
    browser.select("next")
    assert browser.selection.boxes == ()
    browser.select("obs")
    assert browser.selection.boxes
    browser.reload()
    assert browser.selection.boxes == ()


def test_a_range_over_several_leaves_and_the_seam_of_a_ring(save: Path) -> None:
    root = tdview.scan(save)
    boxes = [
        (("obs",), ((4, 6), (0, 1))),
        (("next", "r"), ((4, 6),)),
        (("obs",), ((0, 1), (0, 1))),
        (("next", "r"), ((0, 1),)),
    ]
    selection = Selection(root, (), boxes)
    assert selection.rows == ((4, 6), (0, 1))
    assert selection.tensors[("obs",)].tolist() == [[12], [15], [0]]
    assert selection.frame().to_dict("list") == {"obs[0]": [12, 15, 0], "next.r": [4, 5, 0]}
    assert list(selection.frame().index) == [4, 5, 0]
    assert selection.tensordict()["next", "r"].tolist() == [4, 5, 0]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({}, "ArgumentError"),
        ({"path": ["no"]}, "KeyMissingError"),
        ({"path": [], "rows": 3}, "ArgumentError"),
        ({"path": [], "rows": [0, "x"]}, "ArgumentError"),
        ({"path": [], "rows": [0, 1], "view": 3}, "ArgumentError"),
        ({"path": ["obs"], "rows": [0, 1], "view": {"rowAxis": 9}}, "ArgumentError"),
    ],
)
def test_a_malformed_selection_is_refused(
    save: Path, view_of: Callable[[Any], Any], args: dict[str, Any], code: str
) -> None:
    assert view_of(tdview.open(save)).refused("selection", args) == code


def test_a_range_of_the_whole_table_spans_leaves(save: Path, view_of: Callable[[Any], Any]) -> None:
    browser = tdview.open(save)
    view_of(browser).ask("selection", {"path": [], "view": {}, "rows": [1, 3], "cols": [2, 4]})
    assert browser.selection.boxes == ((("obs",), ((1, 3), (2, 3))), (("next", "r"), ((1, 3),)))


def test_a_table_of_two_batch_dims_is_cut_into_boxes(tmp_path: Path, view_of: Callable[[Any], Any]) -> None:
    source = TensorDict({"a": torch.arange(24).view(3, 2, 2, 2)}, batch_size=[3, 2])
    source.save(tmp_path / "run")
    browser = tdview.open(tmp_path / "run")
    view_of(browser).ask("selection", {"path": [], "view": {}, "rows": [1, 6], "cols": [1, 4]})
    boxes = browser.selection.boxes
    numbers = sorted(n for _, box in boxes for n in source["a"][tuple(slice(*span) for span in box)].flatten().tolist())
    assert numbers == sorted(source["a"].view(6, 4)[1:6, 1:4].flatten().tolist())
    assert len(boxes) == 4


def test_rows_need_a_batch(tmp_path: Path) -> None:
    TensorDict({"a": torch.zeros(3)}, batch_size=[]).save(tmp_path / "run")
    with pytest.raises(NotSupportedError):
        tdview.open(tmp_path / "run").selection.tensordict()

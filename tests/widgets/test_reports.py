from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdview
from tests.widgets.conftest import View
from tests.widgets.saves import write_save


def flags(rows: int, ends: set[int]) -> bytes:
    return bytes(int(row in ends) for row in range(rows))


@pytest.fixture
def save(tmp_path: Path) -> Path:
    """Twelve rows of two whole episodes and an open one, with a NaN reward in row 5."""
    rewards = [1.0] * 12
    rewards[5] = float("nan")
    following = {
        "reward": ("float32", [12, 1], struct.pack("<12f", *rewards)),
        "done": ("bool", [12, 1], flags(12, {3, 8})),
        "terminated": ("bool", [12, 1], flags(12, {3, 8})),
    }
    return write_save(tmp_path / "run", {"obs": ("float32", [12, 2]), "next": following}, batch_size=[12])


def test_audit_names_code_key_and_rows(save: Path, view_of: Callable[[Any], View]) -> None:
    reply = view_of(tdview.open(save)).ask("audit")
    found = {problem["code"]: problem for problem in reply["problems"]}
    assert found["non_finite"]["key"] == ["next", "reward"]
    assert found["non_finite"]["rows"] == [[5, 6]]
    assert reply["total"] == len(reply["problems"])
    assert reply["summary"].startswith("3 episodes")
    assert len(reply["episodes"]) == 3


def test_verify_of_a_sound_save_finds_nothing(save: Path, view_of: Callable[[Any], View]) -> None:
    reply = view_of(tdview.open(save)).ask("verify")
    assert (reply["ok"], reply["problems"]) == (True, [])


def test_verify_names_what_is_damaged(save: Path, view_of: Callable[[Any], View]) -> None:
    (save / "obs.memmap").write_bytes(b"short")
    reply = view_of(tdview.open(save)).ask("verify")
    assert not reply["ok"]
    assert [(p["code"], p["key"]) for p in reply["problems"] if p["severity"] == "error"] == [("file_size", ["obs"])]


def test_episodes_have_rows_length_return_and_end(save: Path, view_of: Callable[[Any], View]) -> None:
    reply = view_of(tdview.open(save)).ask("episodes")
    assert [(e["rows"], e["length"], e["end"]) for e in reply["episodes"]] == [
        ([[0, 4]], 4, "terminated"),
        ([[4, 9]], 5, "terminated"),
        ([[9, 12]], 3, "open"),
    ]
    assert [e["return"] for e in reply["episodes"]] == [4.0, "NaN", 3.0]
    assert (reply["total"], reply["summary"]) == (3, "3 episodes, return 3.5 ± 0.5, 2 terminated, 1 open")


def test_a_save_without_end_flags_has_no_summary(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    view = view_of(tdview.open(write_save(tmp_path / "run", {"x": {"y": ("float32", [0, 2])}}, batch_size=[0])))
    assert view.ask("episodes") == {"path": [], "summary": "", "episodes": [], "total": 0}


def test_episodes_of_a_collection_are_those_of_the_save_that_holds_the_path(
    save: Path, view_of: Callable[[Any], View]
) -> None:
    both = save.parent / "both"
    both.mkdir()
    save.rename(both / "first")
    only = view_of(tdview.open(both))
    assert only.ask("episodes", {"path": []})["path"] == ["first"]

    write_save(both / "second", {"x": {"y": ("float32", [0, 2])}}, batch_size=[0])
    view = view_of(tdview.open(both))
    for path in (["first"], ["first", "next", "reward"]):
        reply = view.ask("episodes", {"path": path})
        assert (reply["path"], reply["total"]) == (["first"], 3)
    assert view.ask("episodes", {"path": ["second"]})["total"] == 0
    assert view.refused("episodes", {"path": []}) == "NotSupportedError"
    assert view.refused("episodes", {"path": ["third"]}) == "KeyMissingError"

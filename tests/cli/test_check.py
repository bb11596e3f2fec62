"""verify and audit: exit codes are the findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def truncated(buffer: Path, tmp_path: Path) -> Path:
    broken = tmp_path / "broken"
    shutil.copytree(buffer, broken)
    with (broken / "storage" / "next" / "reward.memmap").open("r+b") as file:
        file.truncate(10)
    return broken


def test_a_sound_save_ends_with_0(tdview, buffer: Path) -> None:
    ran = tdview("verify", buffer)
    assert ran.code == 0
    assert "sound" in ran.out


def test_a_truncated_leaf_is_found_and_ends_with_1(tdview, truncated: Path) -> None:
    assert tdview("verify", truncated).code == 1
    report = tdview("verify", truncated, "--json").json
    assert [problem["code"] for problem in report["problems"] if problem["severity"] == "error"] == ["file_size"]
    assert (truncated / "storage" / "next" / "reward.memmap").stat().st_size == 10


def test_fail_on_moves_the_line(tdview, buffer: Path) -> None:
    assert tdview("audit", buffer, "--fail-on", "note").code == 1  # the seam of a wrapped ring is a note
    assert tdview("audit", buffer, "--fail-on", "warning").code == 0


def test_audit_of_a_sound_buffer_ends_with_0(tdview, buffer: Path) -> None:
    assert tdview("audit", buffer).code == 0


def test_audit_finds_every_planted_fault(tdview, faulty: Path) -> None:
    ran = tdview("audit", faulty, "--json", "--fail-on", "error")
    assert ran.code == 1
    codes = {problem["code"] for problem in ran.json["problems"]}
    assert {"non_finite", "done_consistency", "boundary_leak", "duplicate_rows"} <= codes


def test_audit_rules_can_be_chosen(tdview, faulty: Path) -> None:
    only = tdview("audit", faulty, "--only", "finite", "--json")
    assert {problem["code"] for problem in only.json["problems"]} == {"non_finite"}
    skipped = tdview("audit", faulty, "--skip", "finite", "--json")
    assert "non_finite" not in {problem["code"] for problem in skipped.json["problems"]}
    assert tdview("audit", faulty, "--only", "no_such_rule").code == 2


def test_audit_against_itself_finds_the_leak(tdview, buffer: Path) -> None:
    report = tdview("audit", buffer, "--against", buffer, "--json").json
    assert "train_test_leak" in {problem["code"] for problem in report["problems"]}


def test_bounds_of_an_entry_are_checked(tdview, buffer: Path) -> None:
    report = tdview("audit", buffer, "--bounds", "action=2:3", "--json").json
    assert "action_range" in {problem["code"] for problem in report["problems"]}


@pytest.mark.parametrize(
    "args",
    [
        ["--bounds", "action"],
        ["--key", "reward"],
        ["--horizon", "x"],
        ["--horizon", "0"],
        ["--fps", "nan"],
        ["--fps", "-1"],
        ["--bounds", "action=1:0"],
        ["--bounds", "action=0:nan"],
        ["--bounds", "=0:1"],
        ["--fail-on", "x"],
    ],
)
def test_malformed_options_end_with_2(tdview, buffer: Path, args: list[str]) -> None:
    assert tdview("audit", buffer, *args).code == 2

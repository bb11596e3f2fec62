"""diff, episodes, drop."""

from __future__ import annotations

import shutil
from pathlib import Path


def test_diff_of_equal_saves_ends_with_0_and_of_different_ones_with_1(tdview, buffer: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(buffer, other)
    assert tdview("diff", buffer, other).code == 0
    with (other / "storage" / "next" / "reward.memmap").open("r+b") as file:
        file.write(b"\x00\x00\x80\xbf")
    ran = tdview("diff", buffer, other)
    assert ran.code == 1
    assert "reward" in ran.out
    assert tdview("diff", buffer, other, "--json").code == 1


def test_episodes_are_listed_oldest_first(tdview, buffer: Path) -> None:
    episodes = tdview("episodes", buffer, "--json").json
    assert sum(episode["length"] for episode in episodes) == 64
    assert len(tdview("episodes", buffer).out.splitlines()) == len(episodes) + 1


def test_drop_writes_a_new_save_and_leaves_the_old_one(tdview, buffer: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert tdview("drop", buffer, "--rows", "0:4", "--out", out, "--dry-run").code == 0
    assert not out.exists()
    assert tdview("drop", buffer, "--rows", "0:4", "--out", out).code == 0
    assert tdview("info", out, "--json").json["rows"] == 60
    assert tdview("info", buffer, "--json").json["rows"] == 64


def test_drop_of_an_episode_leaves_the_others(tdview, buffer: Path, tmp_path: Path) -> None:
    before = tdview("episodes", buffer, "--json").json
    assert tdview("drop", buffer, "--episodes", "1", "--out", tmp_path / "out", "--json").code == 0
    after = tdview("episodes", tmp_path / "out", "--json").json
    assert [episode["length"] for episode in after] == [e["length"] for e in before[:1] + before[2:]]


def test_drop_needs_rows_or_episodes_and_a_place(tdview, buffer: Path, tmp_path: Path) -> None:
    assert tdview("drop", buffer, "--out", tmp_path / "out").code == 2
    assert tdview("drop", buffer, "--rows", "0:4").code == 2
    assert tdview("drop", buffer, "--rows", "9999", "--out", tmp_path / "out").code == 2
    assert not (tmp_path / "out").exists()

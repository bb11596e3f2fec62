"""Differences between two saves."""

from __future__ import annotations

import shutil
from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.errors import ArgumentError


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    first = made.ring_dump(tmp_path / "a", made.stream(90), 100)
    shutil.copytree(first, tmp_path / "b")
    return first, tmp_path / "b"


def change(folder: Path, key: str, row: int, column: int, value: float) -> None:
    file = np.memmap(folder / "storage" / f"{key}.memmap", np.float32, "r+", shape=(100, 4))
    file[row, column] = value
    file.flush()


def test_a_copy_differs_in_nothing(pair: tuple[Path, Path]) -> None:
    report = tdview.diff(*pair)
    assert report.ok
    assert len(report) == 0
    assert str(report).splitlines()[0].endswith("equal")


def test_a_changed_value_is_found_with_its_index(pair: tuple[Path, Path]) -> None:
    change(pair[1], "observation", 17, 2, 5.0)
    found = tdview.diff(*pair).problems
    assert [(p.code, p.key, p.rows) for p in found] == [("differs", ("observation",), ((17, 18),))]
    assert "[17, 2]" in found[0].message


def test_nan_equals_the_same_nan_and_zero_is_not_minus_zero(pair: tuple[Path, Path]) -> None:
    for folder in pair:
        change(folder, "observation", 3, 0, float("nan"))
    assert tdview.diff(*pair).ok
    change(pair[0], "observation", 4, 0, 0.0)
    change(pair[1], "observation", 4, 0, -0.0)
    assert [p.rows for p in tdview.diff(*pair).problems] == [((4, 5),)]


def test_entries_of_one_side_and_other_dtypes_are_found(tmp_path: Path) -> None:
    arrays = made.stream(40)
    first = made.save(tmp_path / "a", arrays, (40,))
    other = made.without(arrays, "episode_reward")
    other[("action",)] = other[("action",)].astype(np.int32)
    second = made.save(tmp_path / "b", other, (40,))
    found = {p.key for p in tdview.diff(first, second).problems if p.code == "schema"}
    assert found == {("action",), ("episode_reward",), ("next", "episode_reward")}


def test_saves_of_different_length_are_compared_as_far_as_both_go(tmp_path: Path) -> None:
    arrays = made.stream(40)
    first = made.save(tmp_path / "a", arrays, (40,))
    second = made.save(tmp_path / "b", {k: v[:30] for k, v in arrays.items()}, (30,))
    report = tdview.diff(first, second)
    assert not report.ok
    assert {p.code for p in report.problems} == {"schema"}


def test_a_directory_equals_its_archive(pair: tuple[Path, Path], tmp_path: Path) -> None:
    tdview.pack_memmap(pair[0] / "storage", tmp_path / "run.tdz")
    assert tdview.diff(pair[0] / "storage", tmp_path / "run.tdz").ok


def test_episodes_are_matched_wherever_they_stand(tmp_path: Path) -> None:
    arrays = made.stream(120, seed=1)
    first = made.ring_dump(tmp_path / "a", {k: v[20:] for k, v in arrays.items()}, 100)
    second = made.ring_dump(tmp_path / "b", arrays, 100)
    assert not tdview.diff(first, second).ok
    assert tdview.diff(first, second, align="episode").ok


def test_a_changed_episode_is_reported_with_its_rows(pair: tuple[Path, Path]) -> None:
    change(pair[1], "observation", 17, 2, 5.0)
    frame = tdview.episodes(pair[0])
    mine = frame[(frame["start"] <= 17) & (frame["stop"] > 17)].iloc[0]
    rows = {p.rows for p in tdview.diff(*pair, align="episode").problems}
    assert rows == {((int(mine["start"]), int(mine["stop"])),)}


def test_what_has_no_episodes_cannot_be_aligned_by_them(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "w", {("weight",): np.ones((4, 3), np.float32)}, (4,))
    with pytest.raises(ArgumentError):
        tdview.diff(folder, folder, align="episode")


def test_a_damaged_leaf_is_told_and_the_rest_compared(pair: tuple[Path, Path]) -> None:
    (pair[1] / "storage" / "action.memmap").write_bytes(b"short")
    change(pair[1], "observation", 17, 2, 5.0)
    assert {p.code for p in tdview.diff(*pair).problems} == {"not_checked", "differs"}


def test_progress_counts_bytes_and_can_stop_the_work(pair: tuple[Path, Path]) -> None:
    told: list[tuple[int, int]] = []
    tdview.diff(*pair, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]

    def stop(done: int, total: int) -> None:
        raise tdview.Cancelled("stopped")

    with pytest.raises(tdview.Cancelled):
        tdview.diff(*pair, progress=stop)

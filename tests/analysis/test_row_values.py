"""Rules on values that are no tensors: the text of the next step is the text of the next row."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import pytest

from tdview.analysis.audit import audit

CAPACITIES = [(100, 60), (100, 100), (97, 163)]


def with_missions(folder: Path, capacity: int, steps: int, now: list[str], then: list[str]) -> Path:
    """A ring dump with a mission for each step of the stream, at the root and below `next`."""
    run = made.ring_dump(folder, made.stream(steps), capacity)
    for key, texts in ((("mission",), now), (("next", "mission"), then)):
        rows = [texts[0]] * capacity  # as torchrl leaves rows that were never written
        for step in range(max(0, steps - capacity), steps):
            rows[step % capacity] = texts[step]
        made.add_values(run / "storage", key, rows)
    return run


def mismatches(path: Path) -> list[tuple[tuple[str, ...], tuple[tuple[int, int], ...]]]:
    return [(p.key, p.rows) for p in audit(path).problems if p.code == "next_obs_consistency"]


@pytest.mark.parametrize(("capacity", "steps"), CAPACITIES)
def test_missions_that_move_on_with_the_rows_are_sound(tmp_path: Path, capacity: int, steps: int) -> None:
    texts = [f"go to {step // 2}" for step in range(steps + 1)]
    assert mismatches(with_missions(tmp_path / "run", capacity, steps, texts[:-1], texts[1:])) == []


@pytest.mark.parametrize(("capacity", "steps"), CAPACITIES)
def test_a_mission_that_never_changes_is_sound(tmp_path: Path, capacity: int, steps: int) -> None:
    texts = ["open the door"] * steps
    assert mismatches(with_missions(tmp_path / "run", capacity, steps, texts, texts)) == []


@pytest.mark.parametrize(("capacity", "steps"), CAPACITIES)
def test_a_mission_of_each_episode_is_sound_though_next_shares_it(tmp_path: Path, capacity: int, steps: int) -> None:
    ids = made.stream(steps)["collector", "traj_ids"]
    texts = [f"go to {number}" for number in ids.ravel().tolist()]
    assert mismatches(with_missions(tmp_path / "run", capacity, steps, texts, texts)) == []


def test_a_mission_that_next_shares_with_its_own_row_is_found_where_it_changes(tmp_path: Path) -> None:
    arrays = made.stream(60)
    inner = np.flatnonzero(~arrays["next", "done"].ravel())
    at = int(inner[inner > 5][0])  # the mission changes behind this step, inside an episode
    texts = ["first"] * (at + 1) + ["second"] * (59 - at)
    run = with_missions(tmp_path / "run", 100, 60, texts, texts)
    assert mismatches(run) == [(("next", "mission"), ((at, at + 1),))]

"""Episodes: where they start and stop, in storage and in time, and how they end."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import pytest

import tdview


def true_episodes(arrays: made.Arrays) -> list[tuple[int, int]]:
    ids = arrays[("collector", "traj_ids")]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(ids)], strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_episodes_of_a_partial_buffer_are_those_that_were_written(tmp_path: Path, seed: int) -> None:
    arrays = made.stream(90, seed=seed)
    frame = tdview.episodes(made.ring_dump(tmp_path / "run", arrays, 100))
    assert list(zip(frame["start"], frame["stop"], strict=True)) == true_episodes(arrays)
    sums = [float(arrays["next", "reward"][a:b].sum()) for a, b in true_episodes(arrays)]
    assert np.allclose(frame["return"], sums, atol=1e-5)
    assert list(frame["disagreement"].unique()) == [""]


@pytest.mark.parametrize("steps", [120, 163, 300])
def test_time_order_starts_at_the_seam_and_runs_over_the_end_of_the_ring(tmp_path: Path, steps: int) -> None:
    arrays = made.stream(steps, seed=1)
    frame = tdview.episodes(made.ring_dump(tmp_path / "run", arrays, 100))
    first = steps - 100
    wanted = [(max(a, first) - first, b - first) for a, b in true_episodes(arrays) if b > first]
    assert list(zip(frame["time_start"], frame["time_stop"], strict=True)) == wanted
    assert frame["start"].iloc[0] == steps % 100
    for rows, (a, b) in zip(frame["rows"], wanted, strict=True):
        assert [r for x, y in rows for r in range(x, y)] == [(first + t) % 100 for t in range(a, b)]
    assert frame["ending"].iloc[-1] in ("seam", "terminated", "truncated")
    cut = [a for a, b in true_episodes(arrays) if a < first < b]
    assert frame["cut"].tolist() == [bool(cut)] + [False] * (len(frame) - 1)


def test_the_ending_says_which_flag_was_set(tmp_path: Path) -> None:
    arrays = made.stream(120, seed=2)
    frame = tdview.episodes(made.ring_dump(tmp_path / "run", arrays, 130))
    for ending, stop in zip(frame["ending"], frame["stop"], strict=True):
        set_there = [n for n in ("terminated", "truncated") if arrays["next", n][stop - 1, 0]]
        assert ending == (set_there[0] if set_there else "open")


def test_each_environment_is_a_lane(tmp_path: Path) -> None:
    frame = tdview.episodes(made.time_env_dump(tmp_path / "run", 3, 40, 60))
    for lane, arrays in enumerate(made.env_arrays(3, 40)):
        mine = frame[frame["lane"] == lane]
        assert list(zip(mine["start"], mine["stop"], strict=True)) == true_episodes(arrays)


def test_trajectories_that_lie_apart_are_one_episode(tmp_path: Path) -> None:
    frame = tdview.episodes(made.turns_dump(tmp_path / "run", 3, 4, 20, 300))
    wanted = sorted(b - a for one in made.env_arrays(3, 80) for a, b in true_episodes(one))
    assert sorted(frame["length"]) == wanted


def test_padded_trajectories_end_where_the_mask_ends(tmp_path: Path) -> None:
    frame = tdview.episodes(made.padded_save(tmp_path / "run", 150))
    assert frame["length"].tolist() == [b - a for a, b in true_episodes(made.stream(150))]


def test_nan_is_counted_per_episode(tmp_path: Path) -> None:
    arrays = made.stream(90)
    arrays[("observation",)][40, :2] = np.nan
    arrays["next", "observation"][41, 0] = np.inf
    frame = tdview.episodes(made.ring_dump(tmp_path / "run", arrays, 100))
    holder = frame[(frame["start"] <= 40) & (frame["stop"] > 40)]
    assert int(frame["nan"].sum()) == 3
    assert int(holder["nan"].iloc[0]) >= 2


def test_contradictions_are_named(tmp_path: Path) -> None:
    arrays = made.stream(90, seed=4)
    done = np.flatnonzero(arrays["next", "done"])
    arrays["next", "done"][done[1]] = arrays["next", "terminated"][done[1]] = arrays["next", "truncated"][done[1]] = (
        False
    )
    frame = tdview.episodes(made.ring_dump(tmp_path / "run", arrays, 100))
    assert frame["disagreement"].tolist()[1] == "no end flag"


def test_a_save_without_transitions_has_no_episodes(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "weights", {("weight",): np.ones((4, 3), np.float32)}, ())
    assert len(tdview.episodes(folder)) == 0


def test_progress_is_told_and_can_stop_the_work(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(90), 100)
    told: list[tuple[int, int]] = []
    tdview.episodes(folder, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]

    def stop(done: int, total: int) -> None:
        raise tdview.Cancelled("stopped")

    with pytest.raises(tdview.Cancelled):
        tdview.episodes(folder, progress=stop)

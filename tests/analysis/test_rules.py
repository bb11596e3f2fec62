"""Rules: each fault is found at its rows, whatever the seed and the cursor, and sound buffers give no error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import made
import numpy as np
import pytest

from tdview.analysis.audit import audit
from tdview.analysis.report import Report
from tdview.errors import CODES

CAPACITIES = [(100, 60), (100, 100), (97, 163)]
SEEDS = [0, 1]


def rows_of(report: Report, code: str) -> set[int]:
    return {row for p in report.problems if p.code == code for a, b in p.rows for row in range(a, b)}


def serious(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    return [(p.code, p.key) for p in report.problems if p.severity != "note"]


def storage_row(position: int, steps: int, capacity: int) -> int:
    """Row of the position-th oldest of the last `capacity` steps."""
    return (max(0, steps - capacity) + position) % capacity


# -- sound buffers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "steps"), CAPACITIES)
def test_a_sound_ring_has_no_finding_above_a_note(tmp_path: Path, seed: int, capacity: int, steps: int) -> None:
    assert serious(audit(made.ring_dump(tmp_path / "run", made.stream(steps, seed=seed), capacity))) == []


@pytest.mark.parametrize(
    "missing", [("step_count", "episode_reward"), ("traj_ids",), ("traj_ids", "step_count", "truncated")]
)
def test_a_sound_ring_without_counters_has_no_finding_above_a_note(tmp_path: Path, missing: tuple[str, ...]) -> None:
    arrays = made.without(made.stream(163, seed=3), "episode_reward", *missing)
    assert serious(audit(made.ring_dump(tmp_path / "run", arrays, 97, index=False))) == []


@pytest.mark.parametrize("steps", [40, 80])
def test_time_by_environment_storages_are_read_lane_by_lane(tmp_path: Path, steps: int) -> None:
    assert serious(audit(made.time_env_dump(tmp_path / "run", 3, steps, 60))) == []


@pytest.mark.parametrize("capacity", [9, 12, 40])
def test_chunk_by_time_storages_are_read_chunk_by_chunk(tmp_path: Path, capacity: int) -> None:
    assert serious(audit(made.chunk_time_dump(tmp_path / "run", 3, 4, 20, capacity))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_environments_that_take_turns_are_sorted_by_their_ids(tmp_path: Path, seed: int) -> None:
    report = audit(made.turns_dump(tmp_path / "run", 3, 6, 20, 240, seed=seed))
    assert serious(report) == []
    assert ("layout", "several environments in turn, sorted by trajectory") in report.facts


@pytest.mark.parametrize("drop", [("traj_ids",), ("traj_ids", "step_count", "episode_reward")])
@pytest.mark.parametrize("seed", SEEDS)
def test_environments_that_take_turns_without_ids_are_no_error(
    tmp_path: Path, seed: int, drop: tuple[str, ...]
) -> None:
    report = audit(made.turns_dump(tmp_path / "run", 3, 6, 20, 240, seed=seed, drop=drop))
    assert report.ok
    assert "episode_segmentation" in report.codes


def test_padding_is_not_looked_at(tmp_path: Path) -> None:
    assert serious(audit(made.padded_save(tmp_path / "run", 150))) == []


def test_n_step_rewards_and_observations_are_no_fault(tmp_path: Path) -> None:
    assert serious(audit(made.ring_dump(tmp_path / "run", made.n_step(made.stream(163)), 97))) == []


# -- planted faults -------------------------------------------------------------------------------------------------


def nan_reward(arrays: made.Arrays, at: int) -> set[int]:
    arrays["next", "reward"][at] = np.nan
    return {at}


def infinite_observation(arrays: made.Arrays, at: int) -> set[int]:
    arrays[("observation",)][at, 1] = np.inf
    return {at}


def inner_step(arrays: made.Arrays, at: int) -> int:
    """The first step from `at` on that is followed by one of the same episode and preceded by one too."""
    count, done = arrays[("step_count",)][:, 0], arrays["next", "done"][:, 0]
    return next(i for i in range(at, len(count)) if count[i] > 0 and not done[i])


def end_step(arrays: made.Arrays, at: int) -> int:
    return next(i for i in range(at, len(arrays["next", "done"])) if arrays["next", "done"][i, 0])


def flag_without_reason(arrays: made.Arrays, at: int) -> set[int]:
    i = inner_step(arrays, at)
    arrays["next", "done"][i] = True
    return {i}


def flag_at_root(arrays: made.Arrays, at: int) -> set[int]:
    arrays[("done",)] = arrays[("done",)].copy()
    arrays[("done",)][inner_step(arrays, at)] = True
    return {inner_step(arrays, at)}


def reset_observation_at_the_end(arrays: made.Arrays, at: int) -> set[int]:
    i = end_step(arrays, at)
    arrays["next", "observation"][i] = arrays[("observation",)][i + 1]
    return {i}


def next_is_a_copy(arrays: made.Arrays, at: int) -> set[int]:
    i = inner_step(arrays, at)
    arrays["next", "observation"][i] = arrays[("observation",)][i]
    return {i}


def other_next(arrays: made.Arrays, at: int) -> set[int]:
    i = inner_step(arrays, at)
    arrays["next", "observation"][i] += 1
    return {i}


def jump_of_the_count(arrays: made.Arrays, at: int) -> set[int]:
    i = inner_step(arrays, at)
    same = arrays[("collector", "traj_ids")] == arrays[("collector", "traj_ids")][i]
    later = same & (np.arange(len(same)) >= i)
    arrays[("step_count",)][later] += 4
    arrays["next", "step_count"][later] += 4
    return {i}


def copied_rows(arrays: made.Arrays, at: int) -> set[int]:
    for key in ((("observation",)), ("action",), ("next", "reward"), ("next", "observation")):
        arrays[key][at : at + 8] = arrays[key][at - 20 : at - 12]
    return set(range(at, at + 8))


def wrong_running_return(arrays: made.Arrays, at: int) -> set[int]:
    arrays["next", "episode_reward"][at] += 1
    return {at}


def empty_rows(arrays: made.Arrays, at: int) -> set[int]:
    for value in arrays.values():
        value[at : at + 3] = 0
    return {at, at + 1, at + 2}


def two_ones(arrays: made.Arrays, at: int) -> set[int]:
    arrays[("action",)][at] = 1
    return {at}


FAULTS: list[tuple[Callable[[made.Arrays, int], set[int]], str, str]] = [
    (nan_reward, "non_finite", "error"),
    (infinite_observation, "non_finite", "error"),
    (flag_without_reason, "done_consistency", "error"),
    (flag_at_root, "root_done", "warning"),
    (reset_observation_at_the_end, "boundary_leak", "error"),
    (next_is_a_copy, "next_equals_obs", "error"),
    (other_next, "next_obs_consistency", "error"),
    (jump_of_the_count, "step_count_jump", "error"),
    (copied_rows, "duplicate_rows", "warning"),
    (wrong_running_return, "episode_reward", "warning"),
    (empty_rows, "unwritten_rows", "error"),
]


@pytest.mark.parametrize(("plant", "code", "severity"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
@pytest.mark.parametrize(("capacity", "steps"), CAPACITIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_fault_is_found_at_its_rows(
    tmp_path: Path, plant: Callable[[made.Arrays, int], set[int]], code: str, severity: str,
    capacity: int, steps: int, seed: int,
) -> None:  # fmt: skip
    arrays = made.stream(steps, seed=seed)
    first = max(0, steps - capacity)
    planted = plant(arrays, first + 25 + seed)
    report = audit(made.ring_dump(tmp_path / "run", arrays, capacity))
    expected = {position % capacity for position in planted}
    assert expected <= rows_of(report, code)
    assert severity in {p.severity for p in report.problems if p.code == code}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_that_is_not_one_hot_is_found(tmp_path: Path, seed: int) -> None:
    arrays = made.stream(400, seed=seed)
    planted = two_ones(arrays, 333)
    assert rows_of(audit(made.ring_dump(tmp_path / "run", arrays, 500)), "action_range") == planted


@pytest.mark.parametrize("seed", SEEDS)
def test_dropped_rows_are_found_on_both_sides_of_the_gap(tmp_path: Path, seed: int) -> None:
    arrays = made.stream(120, seed=seed)
    count = arrays[("step_count",)][:, 0]
    gap = next(i for i in range(40, 110) if count[i] > 0 and count[i + 3] == count[i] + 3)
    kept = np.delete(np.arange(120), [gap, gap + 1])
    report = audit(made.ring_dump(tmp_path / "run", {k: v[kept] for k, v in arrays.items()}, 130))
    assert gap in rows_of(report, "step_count_jump")
    assert gap - 1 in rows_of(report, "next_obs_consistency")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("names", [(), ("traj_ids",), ("step_count", "episode_reward")])
def test_flags_one_row_off_are_told_from_lost_flags(
    tmp_path: Path, seed: int, shift: int, names: tuple[str, ...]
) -> None:
    arrays = made.stream(150, seed=seed)
    ends = set(np.flatnonzero(arrays["next", "done"]).tolist())
    for name in ("done", "terminated", "truncated", "reward"):
        arrays["next", name] = np.roll(arrays["next", name], shift, axis=0)
    report = audit(made.ring_dump(tmp_path / "run", made.without(arrays, *names), 160))
    assert len(ends & rows_of(report, "done_off_by_one")) >= len(ends) - 2


@pytest.mark.parametrize("steps", [80, 160])
def test_ids_that_two_collectors_share_are_found(tmp_path: Path, steps: int) -> None:
    first, second = made.stream(steps // 2, seed=1), made.stream(steps // 2, seed=2)
    arrays = {key: np.concatenate([first[key], second[key]]) for key in first}
    report = audit(made.ring_dump(tmp_path / "run", arrays, 200))
    assert steps // 2 in rows_of(report, "traj_id_collision")
    assert report.ok


def test_saturated_actions_are_found(tmp_path: Path) -> None:
    arrays = made.stream(200)
    rng = np.random.default_rng(0)
    action = rng.uniform(-2, 2, (200, 2)).astype(np.float32)
    action[rng.random(200) < 0.6, 1] = 2.0
    arrays[("action",)] = action
    found = [p for p in audit(made.ring_dump(tmp_path / "run", arrays, 220)).problems if p.code == "action_saturation"]
    assert [(p.severity, p.key) for p in found] == [("warning", ("action",))]


def test_a_gripper_that_only_opens_and_closes_is_not_saturated(tmp_path: Path) -> None:
    arrays = made.stream(200)
    arrays[("action",)] = np.random.default_rng(0).choice([-1.0, 1.0], (200, 1)).astype(np.float32)
    assert "action_saturation" not in audit(made.ring_dump(tmp_path / "run", arrays, 220)).codes


def test_dead_sensors_are_found(tmp_path: Path) -> None:
    arrays = made.stream(120)
    arrays[("observation",)][:, 2] = 0.25
    arrays["next", "observation"][:, 2] = 0.25
    report = audit(made.ring_dump(tmp_path / "run", arrays, 130))
    assert [p.key for p in report.problems if p.code == "constant_feature"] == [("observation",)]


def frames(steps: int, *, scale: float = 255.0) -> made.Arrays:
    arrays = made.without(made.stream(steps), "observation")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (steps + 1, 3, 9, 9)).astype(np.float32) * np.float32(scale / 255)
    arrays[("pixels",)] = images[:-1]
    after = images[1:].copy()
    end = arrays["next", "done"][:, 0]
    after[end] = rng.integers(0, 255, (int(end.sum()), 3, 9, 9)).astype(np.float32) * np.float32(scale / 255)
    arrays["next", "pixels"] = after
    return arrays


def test_two_scales_in_one_leaf_are_found_at_their_rows(tmp_path: Path) -> None:
    arrays = frames(60)
    for key in (("pixels",), ("next", "pixels")):
        arrays[key][:20] /= 255
    report = audit(made.ring_dump(tmp_path / "run", arrays, 70))
    assert set(range(20)) <= rows_of(report, "pixel_range")
    assert not report.ok
    assert "pixel_dtype" in report.codes


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_float_frames_of_one_scale_are_only_a_waste(tmp_path: Path, scale: float) -> None:
    report = audit(made.ring_dump(tmp_path / "run", frames(60, scale=scale), 70))
    assert report.ok
    assert "pixel_range" not in report.codes
    assert "pixel_dtype" in report.codes


def test_feature_maps_of_ordinary_numbers_are_no_frames_of_two_scales(tmp_path: Path) -> None:
    arrays = made.stream(60)
    maps = np.random.default_rng(0).standard_normal((61, 9, 9)).astype(np.float32)
    arrays[("observation",)], arrays["next", "observation"] = maps[:-1], maps[1:].copy()
    assert "pixel_range" not in audit(made.ring_dump(tmp_path / "run", arrays, 70)).codes


def timed(steps: int) -> made.Arrays:
    arrays = made.stream(steps)
    arrays[("timestamp",)] = (arrays[("step_count",)][:, 0] * 0.1).astype(np.float32)
    return arrays


def test_time_that_stands_still_or_jumps_is_found(tmp_path: Path) -> None:
    arrays = timed(100)
    still = inner_step(arrays, 30)
    arrays[("timestamp",)][still + 1] = arrays[("timestamp",)][still]
    gap = inner_step(arrays, 60)
    arrays[("timestamp",)][gap + 1 :][
        arrays[("collector", "traj_ids")][gap + 1 :] == arrays[("collector", "traj_ids")][gap]
    ] += 0.3
    report = audit(made.ring_dump(tmp_path / "run", arrays, 110))
    assert {still + 1, gap + 1} <= rows_of(report, "timestamps")


def test_even_time_has_no_finding_and_a_given_rate_is_held_against_it(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", timed(100), 110)
    assert "timestamps" not in audit(folder, fps=10).codes
    assert "timestamps" in audit(folder, fps=20).codes


def test_steps_beyond_the_horizon_are_found(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(150), 160)
    assert "horizon" not in audit(folder, horizon=18).codes
    assert not audit(folder, horizon=10).ok


def test_bounds_are_held_against_any_key(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(150), 160)
    assert "out_of_bounds" in audit(folder, bounds={"observation": (-0.5, 0.5)}).codes
    assert audit(folder, bounds={("next", "reward"): (-50, 50)}).ok


# -- what was written -----------------------------------------------------------------------------------------------


def test_a_length_behind_the_cursor_is_found_with_the_rows_between(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(70), 100)
    (folder / "storage" / "storage_metadata.json").write_text('{"metadata": {}, "is_pytree": false, "len": 90}')
    report = audit(folder)
    assert rows_of(report, "len_vs_cursor") == set(range(70, 90))
    assert rows_of(report, "unwritten_rows") == set(range(70, 90))


@pytest.mark.parametrize("cursor", [-1, 100, 450])
def test_a_cursor_outside_the_capacity_is_found(tmp_path: Path, cursor: int) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(70), 100)
    (folder / "writer" / "metadata.json").write_text(f'{{"cursor": {cursor}}}')
    assert "cursor_range" in audit(folder).codes


def test_a_count_that_contradicts_the_cursor_is_found(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(163), 97)
    (folder / "writer" / "metadata.json").write_text('{"cursor": 66, "write_count": 164}')
    assert "write_count" in audit(folder).codes


def test_data_behind_the_valid_rows_is_found(tmp_path: Path) -> None:
    arrays = made.in_ring(made.stream(90), 100)
    folder = made.dump(tmp_path / "run", arrays, (100,), length=60, cursor=60, count=60)
    report = audit(folder)
    assert rows_of(report, "stale_rows") == set(range(60, 90))
    assert report.ok


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_an_earlier_run_in_a_scratch_directory_are_found(tmp_path: Path, seed: int) -> None:
    arrays = made.in_ring(made.stream(80, seed=seed), 100)
    for key, value in made.stream(20, seed=seed + 50).items():
        arrays[key][:20] = value
    report = audit(made.save(tmp_path / "scratch", arrays, (100,)))
    assert rows_of(report, "stale_rows") == set(range(20, 80))


def test_a_save_of_zeros_says_only_that(tmp_path: Path) -> None:
    arrays = {key: np.zeros_like(value) for key, value in made.stream(50).items()}
    report = audit(made.save(tmp_path / "run", arrays, (50,)))
    assert [p.code for p in report.problems if p.severity == "error"] == ["all_zero"]


def test_row_numbers_that_were_moved_are_found(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(70), 100)
    index = np.arange(100, dtype=np.int64)
    index[10:13] = [12, 11, 10]
    index[70:] = 0
    index.tofile(folder / "storage" / "index.memmap")
    assert rows_of(audit(folder), "index_leaf") == {10, 12}


def test_priorities_that_cannot_be_drawn_are_found(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(50), 80)
    (folder / "sampler").mkdir()
    (folder / "sampler" / "sampler_metadata.json").write_text('{"_alpha": 0.7, "_eps": 1e-8, "_max_capacity": 80.0}')
    tree = np.zeros(80)
    tree[:50] = np.random.default_rng(0).uniform(0.5, 1, 50)
    least = np.where(np.arange(80) < 50, tree, 3.4028234663852886e38)
    tree.tofile(folder / "sampler" / "sumtree.memmap")
    least.tofile(folder / "sampler" / "mintree.memmap")
    assert "priority" not in audit(folder).codes
    tree[[3, 7, 9, 60]] = [0, np.nan, 1e6, 1]
    tree.tofile(folder / "sampler" / "sumtree.memmap")
    report = audit(folder)
    assert {3, 7, 9, 60} <= rows_of(report, "priority")
    assert not report.ok


def test_every_code_that_rules_use_is_in_the_closed_list(tmp_path: Path) -> None:
    arrays = made.stream(163)
    for plant, _, _ in FAULTS:
        plant(arrays, 90)
    assert set(audit(made.ring_dump(tmp_path / "run", arrays, 97)).codes) <= set(CODES)

"""Odd but sound buffers: small worlds, goals, bandits, other dtypes, flags of batches. Nothing of them is an error."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.analysis.report import Report


def errors(report: Report) -> list[tuple[str, str]]:
    return [(p.code, p.message) for p in report.problems if p.severity == "error"]


def small_world(steps: int, seed: int, *, one_hot: bool = False, limit: int = 12) -> made.Arrays:
    """A walk on a 4 x 4 grid that starts at the origin and is cut after some steps."""
    rng = np.random.default_rng(seed)
    place, count = np.zeros(2), 0
    rows: dict[str, list[object]] = {name: [] for name in ("obs", "after", "action", "end", "cut", "count")}
    for _ in range(steps):
        action = int(rng.integers(0, 4))
        move = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)][action])
        after = np.clip(place + move, 0, 3)
        goal, cut = bool((after == 3).all()), count == limit - 1
        for name, value in zip(rows, (place, after, action, goal, cut and not goal, count), strict=True):
            rows[name].append(value)
        place, count = (np.zeros(2), 0) if goal or cut else (after, count + 1)

    def shown(places: list[object]) -> np.ndarray:
        xy = np.array(places, np.float32)
        return np.eye(16, dtype=np.float32)[(xy[:, 0] * 4 + xy[:, 1]).astype(int)] if one_hot else xy

    end, cut = np.array(rows["end"])[:, None], np.array(rows["cut"])[:, None]
    return {
        ("observation",): shown(rows["obs"]),
        ("action",): np.array(rows["action"], np.int64),
        ("next", "observation"): shown(rows["after"]),
        ("next", "reward"): end.astype(np.float32),
        ("next", "done"): end | cut,
        ("next", "terminated"): end,
        ("next", "truncated"): cut,
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("one_hot", [False, True])
def test_small_worlds_repeat_themselves(tmp_path: Path, seed: int, one_hot: bool) -> None:
    arrays = small_world(300, seed, one_hot=one_hot)
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 200, index=False))) == []


def test_goals_that_change_with_the_episode(tmp_path: Path) -> None:
    arrays = made.stream(163)
    ids = arrays[("collector", "traj_ids")]
    goal = np.random.default_rng(0).standard_normal((int(ids.max()) + 1, 3)).astype(np.float32)[ids]
    arrays[("goal",)], arrays["next", "goal"] = goal, goal.copy()
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 97))) == []


def test_one_step_episodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    yes = np.ones((80, 1), bool)
    arrays = {
        ("observation",): rng.standard_normal((80, 3)).astype(np.float32),
        ("action",): rng.standard_normal((80, 2)).astype(np.float32),
        ("next", "observation"): np.zeros((80, 3), np.float32),
        ("next", "reward"): rng.standard_normal((80, 1)).astype(np.float32),
        ("next", "done"): yes,
        ("next", "terminated"): yes,
    }
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 100))) == []


def test_an_episode_without_end(tmp_path: Path) -> None:
    arrays = made.stream(500, length=10_000, limit=10_000)
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 200))) == []


@pytest.mark.parametrize("seed", range(3))
def test_truncation_flags_at_the_end_of_batches_that_reset_nothing(tmp_path: Path, seed: int) -> None:
    arrays = made.stream(160, seed=seed)
    for name in ("done", "truncated"):
        arrays["next", name][19::20] = True
    arrays["next", "truncated"] &= ~arrays["next", "terminated"]
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 200))) == []


def test_a_collector_that_was_reset(tmp_path: Path) -> None:
    first, second = made.stream(50, seed=1), made.stream(50, seed=2, first_id=100)
    arrays = {key: np.concatenate([first[key], second[key]]) for key in first}
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 120))) == []


def test_flags_and_rewards_without_a_trailing_dim(tmp_path: Path) -> None:
    arrays = {
        key: value[:, 0] if value.ndim == 2 and value.shape[1] == 1 else value
        for key, value in made.stream(163).items()
    }
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 97))) == []


def test_a_body_at_rest_at_the_origin(tmp_path: Path) -> None:
    arrays = made.without(made.stream(90), "step_count", "episode_reward", "traj_ids")
    arrays[("action",)] = np.random.default_rng(0).standard_normal((90, 1)).astype(np.float32)
    for key in (("observation",), ("next", "observation"), ("action",), ("next", "reward")):
        arrays[key][:4] = 0
    arrays[("observation",)][4] = 0
    arrays["next", "done"][:4] = arrays["next", "terminated"][:4] = arrays["next", "truncated"][:4] = False
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 100, index=False))) == []


def test_agents_that_finish_one_by_one(tmp_path: Path) -> None:
    arrays = made.stream(120)
    done = np.repeat(arrays["next", "done"][:, None], 3, axis=1)
    early = done.copy()
    early[:-1, 0] |= done[1:, 0]
    arrays["next", "agents", "done"] = early
    arrays["next", "agents", "terminated"] = early
    arrays["next", "agents", "reward"] = np.repeat(arrays.pop(("next", "reward"))[:, None], 3, axis=1)
    arrays = made.without(arrays, "episode_reward")
    assert errors(tdview.audit(made.ring_dump(tmp_path / "run", arrays, 130))) == []


def test_brain_floats(tmp_path: Path) -> None:
    arrays = made.stream(163)
    folder = made.ring_dump(tmp_path / "run", arrays, 97)
    for level in ("", "next/"):
        file = folder / "storage" / f"{level}observation.memmap"
        bits = np.fromfile(file, np.uint32) >> 16
        bits.astype(np.uint16).tofile(file)
        meta = file.parent / "meta.json"
        head, tail = meta.read_text().split('"observation": ')
        meta.write_text(head + '"observation": ' + tail.replace("torch.float32", "torch.bfloat16", 1))
    report = tdview.audit(folder)
    assert errors(report) == []
    assert "next_observation" in report.checks


def test_priorities_of_stored_slices(tmp_path: Path) -> None:
    arrays = made.chunk_time_dump(tmp_path / "made", 1, 8, 20, 10)
    assert arrays.exists()
    (arrays / "storage" / "storage_metadata.json").write_text('{"metadata": {}, "is_pytree": false, "len": 8}')
    (arrays / "sampler").mkdir()
    (arrays / "sampler" / "sampler_metadata.json").write_text('{"_alpha": 0.7, "_eps": 1e-8}')
    tree = np.where(np.arange(10) < 8, 1.0, 0.0)
    tree.tofile(arrays / "sampler" / "sumtree.memmap")
    np.where(np.arange(10) < 8, 1.0, 3.4e38).tofile(arrays / "sampler" / "mintree.memmap")
    assert errors(tdview.audit(arrays)) == []


# -- data sets as torchrl stores them ---------------------------------------------------------------------------------


def renamed(arrays: made.Arrays, *names: str) -> made.Arrays:
    """Arrays of a stream without counters and ids, the ids under the key ``episode``."""
    found = made.without(arrays, "step_count", "episode_reward", "traj_ids", *names)
    found[("episode",)] = arrays[("collector", "traj_ids")].astype(np.int32)
    return found


def robo_set(arrays: made.Arrays) -> made.Arrays:
    found = renamed(arrays)
    done = arrays["next", "done"]
    for level in ((), ("next",)):
        for name in ("done", "terminated", "truncated"):
            found[(*level, name)] = done.copy()
    found[("seed",)] = np.full(len(done), 7, np.int64)
    return found


def gen_dgrl(arrays: made.Arrays) -> made.Arrays:
    found = made.without(renamed(arrays), "episode")
    found["next", "terminated"] = arrays["next", "done"].copy()
    found["next", "truncated"] = np.zeros_like(arrays["next", "done"])
    return found


def open_x(arrays: made.Arrays) -> made.Arrays:
    found = renamed(arrays)
    end = arrays["next", "done"][:, 0]
    found["next", "observation"][end] = 0
    found[("is_init",)] = np.concatenate([[True], end[:-1]])
    found[("discount",)] = np.ones(len(end), np.float32)
    return found


def lerobot(arrays: made.Arrays) -> made.Arrays:
    count = arrays[("step_count",)][:, 0]
    return {
        ("observation", "state"): arrays[("observation",)],
        ("action",): np.random.default_rng(0).standard_normal((len(count), 2)).astype(np.float32),
        ("episode",): arrays[("collector", "traj_ids")],
        ("frame",): count,
        ("timestamp",): (count / 30).astype(np.float32),
        ("index",): np.arange(len(count), dtype=np.int64) + 1000,
        ("task_index",): np.zeros(len(count), np.int64),
        ("next", "done"): arrays["next", "done"],
    }


def minari(arrays: made.Arrays) -> made.Arrays:
    found = made.without(renamed(arrays), "action")
    found = {key: value for key, value in found.items() if key not in (("done",), ("terminated",), ("truncated",))}
    found[("action",)] = arrays[("action",)].argmax(axis=1)
    found["next", "reward"] = arrays["next", "reward"].astype(np.float64)
    return found


def d4rl(arrays: made.Arrays) -> made.Arrays:
    found = made.without(renamed(arrays), "episode")
    for name in ("done", "terminated", "truncated", "reward"):
        value = arrays["next", name]
        found[(name,)] = np.concatenate([np.zeros_like(value[:1]), value[:-1]])
    found["next", "observation"][arrays["next", "done"][:, 0]] = 0
    position = np.random.default_rng(1).standard_normal((len(value) + 1, 2))
    found["info", "qpos"], found["next", "info", "qpos"] = position[:-1], position[1:].copy()
    return found


@pytest.mark.parametrize("layout", [robo_set, gen_dgrl, open_x, lerobot, minari, d4rl])
@pytest.mark.parametrize("seed", range(2))
def test_data_sets_of_other_layouts(tmp_path: Path, layout: object, seed: int) -> None:
    assert callable(layout)
    folder = made.save(tmp_path / "set", layout(made.stream(200, seed=seed)), (200,))
    assert errors(tdview.audit(folder)) == []
    assert len(tdview.episodes(folder)) == len(
        tdview.episodes(made.save(tmp_path / "x", made.stream(200, seed=seed), (200,)))
    )


def test_an_atari_run_has_one_filler_observation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        ("data", "observation"): rng.integers(0, 255, (61, 10, 10), dtype=np.uint8),
        ("data", "action"): rng.integers(0, 4, 60).astype(np.int32),
        ("data", "next", "reward"): rng.standard_normal(60).astype(np.float32),
        ("data", "next", "terminated"): (np.arange(60) % 20 == 19).astype(np.uint8),
        ("add_count",): np.array(60, np.int64),
        ("invalid_range",): np.arange(5),
    }
    arrays[("data", "next", "reward")][7] = np.nan
    report = tdview.audit(made.save(tmp_path / "0", arrays, ()))
    assert [(p.code, p.key, p.rows) for p in report.problems if p.severity == "error"] == [
        ("non_finite", ("data", "next", "reward"), ((7, 8),))
    ]
    assert tdview.episodes(tmp_path / "0")["length"].tolist() == [20, 20, 20]

"""The oldest against the newest tenth of one buffer: a note where they differ, nothing where chance explains it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import tdview
from tdview.analysis import rules
from tdview.analysis.columns import ArrayColumn
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.drift import drift
from tdview.errors import Problem
from tdview.tree.fill import Fill

SEEDS = 60


def steady(
    steps: int, seed: int, *, length: int = 20, apart: float = 1.0, memory: float = 0.0, huge: int = 0, dims: int = 4
) -> made.Arrays:
    """Episodes that are all drawn alike: each has an offset of its own, and steps that resemble the one before."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(1, length // 2), length * 3 // 2, 2 + 2 * steps // length).tolist()
    if huge:
        lengths.insert(int(rng.integers(0, steps // length)), huge)
    ends = np.cumsum(lengths)
    ids = np.searchsorted(ends, np.arange(steps), side="right")
    noise = rng.standard_normal((steps, dims))
    for step in range(1, steps if memory else 0):
        noise[step] = memory * noise[step - 1] + np.sqrt(1 - memory**2) * noise[step]
    offset = rng.standard_normal((len(lengths), dims)) * apart
    obs = (offset[ids] + noise).astype(np.float32)
    end = np.isin(np.arange(steps) + 1, ends)[:, None]
    return {
        ("observation",): obs,
        ("action",): np.eye(3, dtype=np.int64)[rng.integers(0, 3, steps)],
        ("collector", "traj_ids"): ids,
        ("next", "observation"): np.roll(obs, -1, axis=0),
        ("next", "reward"): (obs[:, :1] + rng.standard_normal((steps, 1))).astype(np.float32),
        ("next", "done"): end,
        ("next", "terminated"): end.copy(),
    }


def found(arrays: made.Arrays, **fill: Any) -> list[Problem]:
    steps = len(arrays["next", "done"])
    columns = {key: ArrayColumn(key, made.NAMES[str(value.dtype)], value) for key, value in arrays.items()}
    whole = Fill(capacity=steps, rows=steps, chronological=((0, steps),), **fill)
    return list(drift(Buffer(columns, (steps,), fill=whole)))


@pytest.mark.parametrize(
    "kind",
    [
        {"steps": 1000},
        {"steps": 4000, "apart": 3.0},
        {"steps": 8000, "length": 60, "dims": 24},
        {"steps": 2400, "length": 30, "memory": 0.98},
        {"steps": 5000, "huge": 1500},
        {"steps": 9000, "huge": 800, "apart": 3.0},
    ],
    ids=str,
)
def test_a_buffer_that_does_not_change_has_no_finding(kind: dict[str, Any]) -> None:
    false = [seed for seed in range(SEEDS) if found(steady(seed=seed, **kind))]
    assert len(false) <= 0.04 * SEEDS


@pytest.mark.parametrize("seed", range(5))
def test_an_observation_that_drifts_is_found(seed: int) -> None:
    arrays = steady(4000, seed, apart=0.5)
    arrays[("observation",)][:, 2] += np.linspace(0, 3, 4000, dtype=np.float32)
    (note,) = [p for p in found(arrays) if p.key == ("observation",)]
    assert (note.code, note.severity, note.rows) == ("shift", "note", ((3600, 4000),))
    assert "dim 2 " in note.message


def test_episodes_that_become_longer_are_found() -> None:
    first, second = steady(1000, 0, length=10), steady(3000, 1, length=40)
    second[("collector", "traj_ids")] += 1000
    arrays = {key: np.concatenate([first[key], second[key]]) for key in first}
    assert [p.key for p in found(arrays) if "length of the episodes" in p.message] == [("next", "done")]


def test_a_guessed_order_and_too_few_episodes_say_nothing() -> None:
    arrays = steady(4000, 0)
    arrays[("observation",)] += np.linspace(0, 9, 4000, dtype=np.float32)[:, None]
    assert found(arrays)
    assert not found(arrays, certain=False)
    assert not found({key: value[:300] for key, value in arrays.items()})


def drifting(steps: int) -> made.Arrays:
    arrays = steady(steps, 3)
    arrays[("observation",)][:, 0] += np.linspace(0, 4, steps, dtype=np.float32)
    arrays["next", "observation"] = np.roll(arrays[("observation",)], -1, axis=0)
    return arrays


def test_a_ring_is_looked_at_in_the_order_of_time(tmp_path: Path) -> None:
    report = tdview.audit(made.ring_dump(tmp_path / "run", drifting(4500), 3000))
    assert [p.rows for p in report.problems if p.code == "shift" and p.key == ("observation",)] == [((1200, 1500),)]


@pytest.mark.parametrize("key", ["next.done", "next.terminated"])
def test_it_is_switched_off_and_replaced_as_other_rules_are(tmp_path: Path, key: str) -> None:
    run = made.ring_dump(tmp_path / "run", drifting(3000), 3000)
    only = tdview.audit(run, only=["drift"], keys={"done": tuple(key.split("."))})
    assert set(only.codes) == {"shift"}
    assert {p.severity for p in only.problems} == {"note"}
    assert only.ok
    assert "shift" not in tdview.audit(run, skip=["drift"]).codes
    stricter = rules.builtin()
    stricter.rule("drift", needs=("ordered",))(lambda _buffer: [])
    assert "shift" not in tdview.audit(run, rules=stricter).codes


def test_dask_finds_the_same(tmp_path: Path) -> None:
    run = made.ring_dump(tmp_path / "run", drifting(4500), 4000)
    serial, threads = tdview.audit(run), tdview.audit(run, engine="dask")
    assert "shift" in serial.codes
    assert json.loads(serial.to_json()) == json.loads(threads.to_json())


def test_environments_in_turn_are_compared_in_the_order_of_writing(tmp_path: Path) -> None:
    streams = [steady(1500, seed) for seed in range(4)]
    for number, one in enumerate(streams):
        one[("collector", "traj_ids")] = one[("collector", "traj_ids")] * 4 + number
    rows = {
        key: np.concatenate([one[key][c : c + 25] for c in range(0, 1500, 25) for one in streams]) for key in streams[0]
    }
    assert "shift" not in tdview.audit(made.ring_dump(tmp_path / "steady", rows, 6000)).codes
    rows[("observation",)][:, 1] += np.linspace(0, 4, 6000, dtype=np.float32)
    report = tdview.audit(made.ring_dump(tmp_path / "drifting", rows, 6000))
    assert [p.rows for p in report.problems if p.code == "shift" and p.key == ("observation",)] == [((5400, 6000),)]

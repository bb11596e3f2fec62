"""Copies of saves without some rows: what is left, and what torchrl's side files say then."""

from __future__ import annotations

import json
from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.errors import AlreadyExistsError, ArgumentError, DecodeError, NotSupportedError


def values(folder: Path, key: str, dtype: type = np.float32) -> np.ndarray:
    return np.fromfile(folder / f"{key}.memmap", dtype)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("steps", "capacity"), [(60, 100), (163, 100)])
def test_the_rows_of_a_dump_move_to_the_front_oldest_first(tmp_path: Path, steps: int, capacity: int) -> None:
    arrays = made.stream(steps, seed=1)
    folder = made.ring_dump(tmp_path / "run", arrays, capacity)
    before = snapshot(folder)
    tdview.drop(folder, rows=[(3, 9), 20], out=tmp_path / "clean")
    gone = {*range(3, 9), 20}
    first = max(0, steps - capacity)
    kept = [t for t in range(first, steps) if t % capacity not in gone]
    wanted = np.zeros((capacity, 4), np.float32)
    wanted[: len(kept)] = arrays[("observation",)][kept]
    assert np.array_equal(values(tmp_path / "clean" / "storage", "observation").reshape(capacity, 4), wanted)
    index = values(tmp_path / "clean" / "storage", "index", np.int64)
    assert index.tolist() == [*range(len(kept)), *[0] * (capacity - len(kept))]
    assert json.loads((tmp_path / "clean/storage/storage_metadata.json").read_text())["len"] == len(kept)
    writer = json.loads((tmp_path / "clean/writer/metadata.json").read_text())
    assert writer == {"cursor": len(kept) % capacity, "write_count": len(kept)}
    assert snapshot(folder) == before


def test_dropped_episodes_leave_a_sound_buffer(tmp_path: Path) -> None:
    arrays = made.stream(163, seed=2)
    arrays["next", "reward"][120] = np.nan
    folder = made.ring_dump(tmp_path / "run", arrays, 100)
    frame = tdview.episodes(folder)
    bad = frame.index[frame["nan"] > 0].tolist()
    tdview.drop(folder, episodes=bad, out=tmp_path / "clean")
    report = tdview.audit(tmp_path / "clean")
    assert [p.code for p in report.problems if p.severity == "error"] == []
    left = tdview.episodes(tmp_path / "clean")
    assert left["length"].tolist() == frame.drop(bad)["length"].tolist()


def test_priorities_follow_their_rows(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(130), 80)
    (folder / "sampler").mkdir()
    text = '{"_alpha": 0.7, "_eps": 1e-8, "_max_priority": [3.0, 57], "_max_capacity": 80.0}'
    (folder / "sampler" / "sampler_metadata.json").write_text(text)
    tree = np.arange(1.0, 81.0)
    for name in ("sumtree", "mintree"):
        tree.tofile(folder / "sampler" / f"{name}.memmap")
    tdview.drop(folder, rows=range(50, 60), out=tmp_path / "clean")
    kept = [*range(60, 80), *range(50)]
    sums = values(tmp_path / "clean" / "sampler", "sumtree", np.float64)
    least = values(tmp_path / "clean" / "sampler", "mintree", np.float64)
    assert sums.tolist() == [tree[r] for r in kept] + [0.0] * 10
    assert (least[70:] > 1e38).all()
    assert json.loads((tmp_path / "clean/sampler/sampler_metadata.json").read_text())["_max_priority"] == [3.0, None]
    assert "priority" not in tdview.audit(tmp_path / "clean").codes


def test_a_plain_save_shrinks_and_keeps_its_order(tmp_path: Path) -> None:
    arrays = made.stream(40)
    folder = made.save(tmp_path / "run", arrays, (40,))
    (folder / "env_metadata.json").write_text("{}")
    tdview.drop(folder, rows=slice(10, 20), out=tmp_path / "clean")
    root = tdview.scan(tmp_path / "clean")
    kept = np.delete(np.arange(40), np.arange(10, 20))
    assert root.batch_size == (30,)
    for leaf in root.leaves():
        assert np.array_equal(leaf.numpy(), arrays[leaf.path][kept])
    assert (tmp_path / "clean" / "env_metadata.json").read_text() == "{}"
    assert root.problems == ()


def test_a_plain_save_can_become_an_archive(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "run", made.stream(40), (40,))
    tdview.drop(folder, rows=[0], out=tmp_path / "clean.tdz")
    assert tdview.scan(tmp_path / "clean.tdz").batch_size == (39,)
    assert tdview.verify(tmp_path / "clean.tdz").ok


def test_padded_trajectories_go_as_rows(tmp_path: Path) -> None:
    folder = made.padded_save(tmp_path / "run", 150)
    before = tdview.episodes(folder)["length"].tolist()
    tdview.drop(folder, episodes=[1, 3], out=tmp_path / "clean")
    after = tdview.episodes(tmp_path / "clean")["length"].tolist()
    assert after == [length for number, length in enumerate(before) if number not in (1, 3)]


TORCHRL = (
    "tensorclass_storage pytree_dict_storage maxvalue_writer ndim2_env_by_time sampler_without_replacement"
    " prioritized_td slice_sampler_trajids"
)


@pytest.mark.parametrize("name", TORCHRL.split())
def test_dumps_of_torchrl_lose_their_rows_soundly(dumps: Path, tmp_path: Path, name: str) -> None:
    folder = dumps / name / "buffer"
    before = tdview.scan(folder).fill
    assert before is not None
    oldest = before.chronological[0][0]
    tdview.drop(folder, rows=[oldest, oldest + 1], out=tmp_path / "clean")
    after = tdview.scan(tmp_path / "clean").fill
    assert after is not None
    assert (after.rows, after.capacity, after.certain) == (before.rows - 2, before.capacity, True)
    assert [p for p in tdview.audit(tmp_path / "clean").problems if p.severity == "error"] == []


def test_the_ranks_of_a_max_value_writer_are_renumbered(dumps: Path, tmp_path: Path) -> None:
    tdview.drop(dumps / "maxvalue_writer" / "buffer", rows=[0, 5], out=tmp_path / "clean")
    ranks = values(tmp_path / "clean" / "writer", "current_top_values").reshape(-1, 2)
    reward = values(tmp_path / "clean" / "storage" / "next", "reward")
    assert sorted(ranks[:, 1].tolist()) == list(range(18))
    assert np.allclose(ranks[:, 0], reward[ranks[:, 1].astype(int)])
    assert json.loads((tmp_path / "clean/writer/metadata.json").read_text())["shape"] == [18, 2]


def test_a_dry_run_writes_nothing_and_tells_the_same(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)
    dry = tdview.drop(folder, rows=[4], out=tmp_path / "clean", dry_run=True)
    assert not (tmp_path / "clean").exists()
    assert dry.to_json() == tdview.drop(folder, rows=[4], out=tmp_path / "clean").to_json()
    size = sum(p.stat().st_size for p in (tmp_path / "clean").rglob("*") if p.is_file())
    assert f"{size} after" in dict(dry.facts)["bytes"]


def test_an_episode_that_is_cut_in_the_middle_is_told(tmp_path: Path) -> None:
    arrays = made.stream(60)
    middle = int(np.flatnonzero(arrays[("step_count",)][:, 0] == 1)[2])
    folder = made.ring_dump(tmp_path / "run", arrays, 100)
    report = tdview.drop(folder, rows=[middle], out=tmp_path / "clean", dry_run=True)
    assert [(p.code, p.rows) for p in report.problems] == [("episode_segmentation", ((middle - 1, middle),))]


def test_work_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)

    def stop(done: int, total: int) -> None:
        raise tdview.Cancelled("stopped")

    with pytest.raises(tdview.Cancelled):
        tdview.drop(folder, rows=[4], out=tmp_path / "clean", progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)
    with pytest.raises(AlreadyExistsError):
        tdview.drop(folder, rows=[4], out=folder)


@pytest.mark.parametrize(
    "arguments", [{"rows": [60]}, {"rows": [-1]}, {"episodes": [99]}, {}, {"rows": [1], "episodes": [1]}]
)
def test_rows_that_do_not_exist_are_refused(tmp_path: Path, arguments: dict[str, list[int]]) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)
    with pytest.raises(ArgumentError):
        tdview.drop(folder, out=tmp_path / "clean", **arguments)


def test_what_cannot_lose_rows_is_refused(dumps: Path, tmp_path: Path) -> None:
    for name in ("flat_partial", "ensemble_two_members"):
        with pytest.raises(NotSupportedError):
            tdview.drop(dumps / name / "buffer", rows=[0], out=tmp_path / "clean")
    with pytest.raises(NotSupportedError):
        tdview.drop(dumps / "ndim2_env_by_time" / "buffer", episodes=[0], out=tmp_path / "clean")
    with pytest.raises(ArgumentError):
        tdview.drop(dumps / "cartpole_wrapped" / "buffer" / "storage", rows=[0], out=tmp_path / "clean")
    with pytest.raises(DecodeError):
        tdview.drop(dumps / "bad_storage_files" / "buffer", rows=[0], out=tmp_path / "clean")
    assert not (tmp_path / "clean").exists()

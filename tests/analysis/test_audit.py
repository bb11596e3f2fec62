"""The audit as a whole: options, collections, engines, comparison, progress."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.analysis.replay import Buffer
from tdview.analysis.rules import DEFAULT, Registry, builtin
from tdview.errors import ArgumentError, Problem


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made.ring_dump(tmp_path / "run", made.stream(163, seed=3), 100)


# -- rules ----------------------------------------------------------------------------------------------------------


def test_a_rule_of_the_user_runs_with_the_others_and_the_default_stays(run: Path) -> None:
    mine = builtin()

    @mine.rule("short_buffer", needs=())
    def short_buffer(buffer: Buffer) -> Iterator[Problem]:
        if buffer.rows < 1000:
            yield Problem("short_buffer", "fewer than 1000 rows", "warning", ("observation",), ((0, buffer.rows),))

    report = tdview.audit(run, rules=mine)
    assert "short_buffer" in report.codes
    assert "short_buffer" in report.checks
    assert "short_buffer" not in DEFAULT
    assert "short_buffer" not in tdview.audit(run).codes


def test_the_decorator_adds_to_the_default_rules(run: Path) -> None:
    @tdview.rule("named_here")
    def named_here(buffer: Buffer) -> Iterator[Problem]:
        """Always says something."""
        yield Problem("named_here", f"{len(buffer['next', 'reward'])} rewards", "note")

    try:
        found = [p.message for p in tdview.audit(run).problems if p.code == "named_here"]
    finally:
        del DEFAULT._rules["named_here"]
    assert found == ["100 rewards"]


def test_a_bare_decorator_takes_the_name_of_the_function() -> None:
    registry = Registry()

    @registry.rule
    def bare(buffer: Buffer) -> Iterator[Problem]:
        """What it means."""
        yield from ()

    assert [(rule.name, rule.means) for rule in registry] == [("bare", "What it means.")]


def test_rules_can_be_skipped_and_chosen(run: Path) -> None:
    assert "seam" in tdview.audit(run).codes
    assert "seam" not in tdview.audit(run, skip=["ring_seam"]).codes
    assert tdview.audit(run, only=["ring_seam"]).checks == ("ring_seam",)
    for options in ({"skip": ["nothing"]}, {"only": ["nothing"]}):
        with pytest.raises(ArgumentError):
            tdview.audit(run, **options)  # type: ignore[arg-type]


def test_every_builtin_rule_says_what_it_means() -> None:
    assert len(builtin()) == 18
    assert all(rule.means for rule in builtin())


# -- options --------------------------------------------------------------------------------------------------------


def test_other_names_are_told_by_keys(tmp_path: Path) -> None:
    arrays = made.stream(90)
    names = {("next", "reward"): ("next", "r"), ("step_count",): ("t",), ("next", "done"): ("next", "over")}
    other = {names.get(key, key): value for key, value in arrays.items()}
    other = made.without(other, "terminated", "truncated", "episode_reward", "traj_ids")
    other[("next", "r")][7] = np.nan
    other[("t",)][33:] += 50
    folder = made.ring_dump(tmp_path / "run", other, 100)
    report = tdview.audit(folder, keys={"reward": ("next", "r"), "step": "t", "done": ("next", "over")})
    assert {"non_finite"} <= set(report.codes)
    assert ("t",) in {p.key for p in report.problems}
    with pytest.raises(ArgumentError):
        tdview.audit(folder, keys={"reward": "nothing"})
    with pytest.raises(ArgumentError):
        tdview.audit(folder, keys={"nothing": ("next", "r")})


def test_the_time_dim_can_be_told(tmp_path: Path) -> None:
    folder = made.time_env_dump(tmp_path / "run", 3, 40, 60)
    assert tdview.audit(folder, time_dim=0).ok
    assert not tdview.audit(folder, time_dim=1).ok or tdview.audit(folder, time_dim=1).problems


def test_large_images_are_read_as_a_sample_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdview.analysis.replay._HEAVY_LEAF", 1 << 16)
    arrays = made.without(made.stream(300), "observation")
    images = np.random.default_rng(0).integers(0, 255, (301, 3, 20, 20), dtype=np.uint8)
    arrays[("pixels",)], arrays["next", "pixels"] = images[:-1], images[1:].copy()
    end = arrays["next", "done"][:, 0]
    arrays["next", "pixels"][end] = np.random.default_rng(1).integers(
        0, 255, (int(end.sum()), 3, 20, 20), dtype=np.uint8
    )
    folder = made.ring_dump(tmp_path / "run", arrays, 300)
    report = tdview.audit(folder, sample=100)
    assert report.ok
    assert {p.key for p in report.problems if p.code == "not_checked"} == {("pixels",), ("next", "pixels")}
    assert "not_checked" not in tdview.audit(folder, sample=None).codes


def test_an_unknown_engine_is_refused(run: Path) -> None:
    with pytest.raises(ArgumentError):
        tdview.audit(run, engine="threads")  # type: ignore[arg-type]


# -- several saves, none, damage ------------------------------------------------------------------------------------


def test_every_member_of_a_folder_is_audited_under_its_name(tmp_path: Path) -> None:
    for name, at in (("a", 7), ("b", 9)):
        arrays = made.stream(60)
        arrays["next", "reward"][at] = np.nan
        made.ring_dump(tmp_path / "all" / name, arrays, 80)
    report = tdview.audit(tmp_path / "all")
    found = {(p.key, p.rows) for p in report.problems if p.code == "non_finite" and p.key[-1] == "reward"}
    assert found == {(("a", "next", "reward"), ((7, 8),)), (("b", "next", "reward"), ((9, 10),))}


def test_weights_are_asked_only_for_numbers(tmp_path: Path) -> None:
    weight = np.zeros((4, 3), np.float32)
    folder = made.save(tmp_path / "w", {("layer", "weight"): weight}, ())
    assert len(tdview.audit(folder)) == 0
    weight[0, 0] = np.nan
    found = tdview.audit(made.save(folder, {("layer", "weight"): weight}, ())).problems
    assert [(p.code, p.severity, p.key) for p in found] == [("non_finite", "warning", ("layer", "weight"))]


def test_damaged_leaves_are_left_out_and_the_rest_is_audited(run: Path) -> None:
    (run / "storage" / "next" / "done.memmap").unlink()
    (run / "storage" / "observation.memmap").write_bytes(b"short")
    report = tdview.audit(run)
    assert {"missing_file", "file_size"} <= set(report.codes)
    assert "seam" in report.codes


def test_an_archive_and_its_directory_have_the_same_findings(run: Path, tmp_path: Path) -> None:
    reward = np.memmap(run / "storage" / "next" / "reward.memmap", np.float32, "r+", shape=(100,))
    reward[5] = np.nan
    reward.flush()
    tdview.pack_memmap(run / "storage", tmp_path / "run.tdz")
    packed = tdview.audit(tmp_path / "run.tdz")
    assert [p.rows for p in packed.problems if p.code == "non_finite"] == [
        p.rows for p in tdview.audit(run).problems if p.code == "non_finite"
    ]


# -- progress -------------------------------------------------------------------------------------------------------


def test_progress_rises_to_its_total_and_can_stop_the_audit(run: Path) -> None:
    told: list[tuple[int, int]] = []
    tdview.audit(run, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]

    def stop(done: int, total: int) -> None:
        if done > 3:
            raise tdview.Cancelled("stopped")

    with pytest.raises(tdview.Cancelled):
        tdview.audit(run, progress=stop)


# -- against --------------------------------------------------------------------------------------------------------


def test_two_runs_of_one_policy_have_no_shift_and_no_leak(tmp_path: Path) -> None:
    first = made.ring_dump(tmp_path / "a", made.stream(300, seed=1), 400)
    second = made.ring_dump(tmp_path / "b", made.stream(280, seed=2), 400)
    assert not {"shift", "train_test_leak", "schema"} & set(tdview.audit(first, against=second).codes)


def test_a_shifted_dim_is_found_the_same_way_each_time(tmp_path: Path) -> None:
    first = made.ring_dump(tmp_path / "a", made.stream(300, seed=1), 400)
    arrays = made.stream(280, seed=2)
    for key in (("observation",), ("next", "observation")):
        arrays[key][:, 1] += 0.8
    second = made.ring_dump(tmp_path / "b", arrays, 400)
    report = tdview.audit(first, against=second)
    assert [p.key for p in report.problems if p.code == "shift"] == [("observation",)]
    assert report.to_json() == tdview.audit(first, against=second).to_json()


def test_shared_episodes_are_found_at_their_rows(tmp_path: Path) -> None:
    train, test = made.stream(300, seed=1), made.stream(120, seed=2)
    mixed = {key: np.concatenate([train[key][200:224], test[key]]) for key in test}
    first = made.ring_dump(tmp_path / "a", train, 400)
    second = made.ring_dump(tmp_path / "b", mixed, 200)
    found = [p for p in tdview.audit(second, against=first).problems if p.code == "train_test_leak"]
    assert [(p.severity, p.rows) for p in found] == [("error", ((0, 24),))]


def test_other_keys_and_dtypes_are_found(tmp_path: Path) -> None:
    arrays = made.stream(100)
    first = made.ring_dump(tmp_path / "a", arrays, 120)
    arrays[("action",)] = arrays[("action",)].astype(np.int32)
    second = made.ring_dump(tmp_path / "b", made.without(arrays, "episode_reward"), 120)
    found = {(p.key, p.severity) for p in tdview.audit(first, against=second).problems if p.code == "schema"}
    assert found == {(("action",), "error"), (("episode_reward",), "warning"), (("next", "episode_reward"), "warning")}


# -- dask -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tdview.analysis.replay._CHUNK_BYTES", 1 << 12)
    arrays = made.stream(900, seed=5)
    arrays["next", "reward"][640] = np.nan
    arrays["next", "observation"][700] += 1
    return made.ring_dump(tmp_path / "run", arrays, 400)


def test_dask_threads_give_the_serial_result(faulty: Path) -> None:
    assert tdview.audit(faulty, engine="dask").to_json() == tdview.audit(faulty).to_json()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("two_workers")
def test_two_dask_workers_give_the_serial_result(faulty: Path) -> None:
    parallel = tdview.audit(faulty, engine="dask")
    assert parallel.to_json() == tdview.audit(faulty).to_json()
    assert "non_finite" in parallel.codes


def test_a_copy_elsewhere_has_the_same_findings(faulty: Path, tmp_path: Path) -> None:
    shutil.copytree(faulty, tmp_path / "copy")
    assert tdview.audit(tmp_path / "copy").problems == tdview.audit(faulty).problems


def test_a_leaf_that_cannot_be_inflated_is_left_out(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "run", made.in_ring(made.stream(400), 300), (300,))
    tdview.pack_memmap(folder, tmp_path / "run.tdz", compression="deflate")
    start = zip_offset(tmp_path / "run.tdz", "collector/traj_ids.memmap")
    with (tmp_path / "run.tdz").open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 64)
    report = tdview.audit(tmp_path / "run.tdz")
    assert not report.ok
    assert "finite" in report.checks
    assert len(tdview.episodes(tmp_path / "run.tdz")) > 3


def zip_offset(path: Path, name: str) -> int:
    """Where the compressed bytes of a zip entry start."""
    import struct
    import zipfile

    with zipfile.ZipFile(path) as archive:
        head = archive.getinfo(name).header_offset
    data = path.read_bytes()
    names, extra = struct.unpack("<HH", data[head + 26 : head + 30])
    return int(head + 30 + names + extra)

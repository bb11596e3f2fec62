"""The harness of the benchmarks times both sides by turns, sees short peaks of memory, and tells how costs grow."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import pytest

from benchmarks import harness, report
from benchmarks.memory import Watcher


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> harness.Suite:
    monkeypatch.setenv("TDVIEW_BENCH_DIR", str(tmp_path))
    for module in (harness, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return harness.Suite("example")


def touch(megabytes: int) -> None:
    """Takes memory for a moment."""
    with mmap.mmap(-1, megabytes << 20) as memory:
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1


def test_a_short_peak_of_memory_is_seen() -> None:
    watcher = Watcher()
    peak = watcher.peak_mb(lambda: touch(16), lambda: None, lambda: None)
    nothing = watcher.peak_mb(lambda: None, lambda: None, lambda: None)
    watcher.close()
    assert 14 < peak < 24
    assert nothing < 2


def test_who_begins_changes_with_every_round(suite: harness.Suite) -> None:
    seen: list[str] = []
    suite.pair("case", "size", lambda: seen.append("other"), lambda: seen.append("own"), rounds=3)
    suite.finish()
    assert seen[-6:] == ["other", "own", "own", "other", "other", "own"]


def test_what_a_round_made_is_removed_if_asked_for(suite: harness.Suite, tmp_path: Path) -> None:
    kept = suite.fresh()
    kept.mkdir()
    suite.pair("case", "size", lambda: suite.fresh().mkdir(), lambda: suite.fresh().touch(), rounds=2, clear=True)
    assert list(suite.folder.iterdir()) == [kept]
    suite.finish()
    assert not suite.folder.exists()


def test_work_of_minutes_is_done_once(suite: harness.Suite) -> None:
    calls: list[int] = []
    suite.pair("case", "size", lambda: touch(1), lambda: (touch(1), calls.append(1)), warm=False)
    suite.finish()
    assert 1 <= len(calls) <= 10
    assert suite.results[0].rounds == 1


def test_a_missed_promise_is_told(suite: harness.Suite) -> None:
    suite.pair("case", "size", lambda: None, lambda: touch(4), rounds=1, promised=1)
    assert suite.finish() == 1
    content = json.loads((report.RESULTS / "example.json").read_text())
    assert content["results"][0]["case"] == "case"
    assert content["versions"]["tdview"]


def test_the_growth_of_a_case_is_told_from_size_to_size(suite: harness.Suite) -> None:
    for size in (10, 1000):
        suite.pair("case", f"{size} rows", lambda: touch(1), lambda: touch(1), rounds=1, work=size)
    suite.pair("other", "1 row", lambda: None, lambda: None, rounds=1, work=1)
    suite.finish()
    lines = report.growth().splitlines()[2:]
    assert len(lines) == 1
    assert lines[0].startswith("| case | 10 rows | 1000 rows | × 100 |")
    assert report.table().count("\n") == 5

"""Pairs of the same work, by tdview and by what a user would take instead, timed by turns in one run.

A benchmark makes a `Suite`, adds pairs and returns its exit code. The ratio of a pair is the other's time by tdview's,
taken round by round, so that a machine that is slow for a while slows both. Who begins changes with every round. Before
each of the two the files of the one before are removed, if they are large, and what is still to be written to the disk
is waited for, so that nobody pays for the other's pages; the page cache stays warm for both. Where much is written, as
much memory is taken and given back first.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.memory import Watcher
from benchmarks.report import RESULTS, report

PACKAGES = ("tdview", "tensordict", "torch", "numpy", "pandas", "h5py", "safetensors")
SECONDS = 5
"""How long the rounds of one pair take, about, with all that is done between them."""
FEWEST, MOST = 7, 25
"""Rounds of a pair, where their number is not given."""
LARGE = 16 << 20
"""Work that writes so many bytes finds its memory at hand; see `Suite._take`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a pair gave."""

    case: str
    size: str
    against: str
    work: float | None
    """Amount of work, to be compared with that of the other sizes of the case."""
    other_ms: float
    """Median time of the other, in milliseconds."""
    own_ms: float
    low: float
    """Smallest ratio of a round."""
    ratio: float
    """Median ratio."""
    high: float
    rounds: int
    promised: float | None
    memory_mb: float
    """Memory that tdview's work took above what it started with and that no file backs, in megabytes."""
    other_memory_mb: float

    @property
    def holds(self) -> bool:
        return self.promised is None or self.ratio >= self.promised

    def line(self) -> str:
        goal = "" if self.promised is None else f"  (promised {self.promised:g}{'' if self.holds else ', MISSED'})"
        return (
            f"{self.case}, {self.size}: {self.against} {self.other_ms:.1f} ms, tdview {self.own_ms:.1f} ms,"
            f" ratio {self.ratio:.2f} [{self.low:.2f} … {self.high:.2f}] of {self.rounds};"
            f" memory {self.other_memory_mb:.1f} MB, tdview {self.memory_mb:.1f} MB{goal}"
        )


class Suite:
    """The pairs of one benchmark.

    Args:
        name: of the benchmark; the results go to ``benchmarks/results/<name>.json``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.results: list[Result] = []
        self._number = 0
        self._made: list[Path] = []
        self._watcher = Watcher()
        base = os.environ.get("TDVIEW_BENCH_DIR")
        self.folder = Path(tempfile.mkdtemp(prefix="tdview-bench-", dir=base))
        """A fresh folder on the disk that is measured (``TDVIEW_BENCH_DIR``, else the system's place for them)."""

    def fresh(self, suffix: str = "") -> Path:
        """A path at which there is nothing."""
        self._number += 1
        path = self.folder / f"out{self._number}{suffix}"
        self._made.append(path)
        return path

    def pair(
        self,
        case: str,
        size: str,
        other: Callable[[], object],
        own: Callable[[], object],
        *,
        against: str = "tensordict",
        work: float | None = None,
        promised: float | None = None,
        rounds: int | None = None,
        warm: bool = True,
        between: Callable[[], object] | None = None,
        writes: bool = False,
        clear: bool = False,
    ) -> None:
        """Times both by turns and prints the result.

        Args:
            case: what is done.
            size: how much of it, in words.
            other: the work as a user would do it without tdview.
            own: the same work by tdview.
            against: who does the other.
            work: how much of it, as a number: leaves, rows or megabytes. It tells how the cost grows.
            promised: the ratio that must be reached; None where none is promised.
            rounds: how often each is timed; None for as many as take about five seconds.
            warm: whether both are done before, untimed. Work of minutes is not; it is watched while it is timed.
            between: called before each of them, not timed.
            writes: whether the work writes files, so that the disk is waited for before each of them.
            clear: whether what the work has made is removed after each of them, as large files must be. Small ones
                stay: making files where many were just removed is slow on some file systems.
        """
        made = len(self._made)
        written = 0

        def before() -> None:
            if written >= LARGE:
                self._take(written)
            if between is not None:
                between()

        def after() -> None:
            nonlocal written
            found = 0
            while clear and len(self._made) > made:
                path = self._made.pop()
                found += _nbytes(path)
                _remove(path)
            written = max(written, found)
            if writes:
                os.sync()

        def timed(task: Callable[[], object]) -> float:
            before()
            gc.collect()
            start = time.perf_counter()
            task()
            end = time.perf_counter()
            after()
            return end - start

        def watched(task: Callable[[], object]) -> tuple[float, float]:
            took: list[float] = []

            def once() -> object:
                start = time.perf_counter()
                value = task()
                took.append(time.perf_counter() - start)
                return value

            return self._watcher.peak_mb(once, before, after), took[0]

        if warm:
            _turns(timed, other, own, 0)
            start = time.perf_counter()
            _turns(timed, other, own, 0)
            once = time.perf_counter() - start
            (theirs, _), (ours, _) = watched(other), watched(own)
            count = rounds or min(MOST, max(FEWEST, int(SECONDS / once)))
            times = [_turns(timed, other, own, number) for number in range(count)]
        else:
            (theirs, other_time), (ours, own_time) = watched(other), watched(own)
            times = [(other_time, own_time)]
        ratios = sorted(first / second for first, second in times)
        result = Result(
            case=case,
            size=size,
            against=against,
            work=work,
            other_ms=statistics.median(first for first, _ in times) * 1000,
            own_ms=statistics.median(second for _, second in times) * 1000,
            low=ratios[0],
            ratio=statistics.median(ratios),
            high=ratios[-1],
            rounds=len(times),
            promised=promised,
            memory_mb=ours,
            other_memory_mb=theirs,
        )
        self.results.append(result)
        print(result.line(), flush=True)

    def _take(self, nbytes: int) -> None:
        """Fills so much of the page cache and gives it back, so that what comes next finds memory at hand.

        A virtual machine hands freed memory back to its host, large blocks first, and to get it again costs up to ten
        times what a write does.
        """
        path = self.folder / "taken"
        block = bytes(1 << 20)
        with open(path, "wb") as file:  # in large pieces, as `write` takes it
            for _ in range(0, nbytes, len(block)):
                file.write(block)
        path.unlink()
        with open(path, "w+b") as file:  # and page by page, as a mapping does
            file.truncate(nbytes)
            with mmap.mmap(file.fileno(), nbytes) as memory:
                for place in range(0, nbytes, mmap.PAGESIZE):
                    memory[place] = 1
        path.unlink()

    def finish(self) -> int:
        """Removes the folder, writes the results and gives the exit code: 1 where a promise is missed."""
        self._watcher.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        RESULTS.mkdir(exist_ok=True)
        content = {
            "benchmark": self.name,
            "machine": {"python": platform.python_version(), "cores": os.cpu_count(), "system": platform.platform()},
            "versions": _versions(),
            "results": [asdict(result) for result in self.results],
        }
        (RESULTS / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        return 0 if all(result.holds for result in self.results) else 1


def _turns(
    timed: Callable[[Callable[[], object]], float],
    other: Callable[[], object],
    own: Callable[[], object],
    number: int,
) -> tuple[float, float]:
    """Seconds of both; the other begins in every second round."""
    if number % 2:
        second = timed(own)
        return timed(other), second
    first = timed(other)
    return first, timed(own)


def _nbytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    print(report(), end="")

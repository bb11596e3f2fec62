"""Pairs of the same work, by tdview and by what a user would take instead, timed by turns in one run.

A benchmark makes a `Suite`, adds pairs and returns its exit code. The ratio of a pair is the other's time by tdview's,
taken round by round, so that a machine that is slow for a while slows both.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a pair gave."""

    case: str
    size: str
    against: str
    other_ms: float
    """Median time of the other, in milliseconds."""
    own_ms: float
    low: float
    """Smallest ratio of a round."""
    ratio: float
    """Median ratio."""
    high: float
    promised: float | None
    memory_mb: float
    """Memory that tdview's work took above what it started with and that no file backs, in megabytes."""

    @property
    def holds(self) -> bool:
        return self.promised is None or self.ratio >= self.promised

    def line(self) -> str:
        goal = "" if self.promised is None else f"  (promised {self.promised:g}{'' if self.holds else ', MISSED'})"
        return (
            f"{self.case}, {self.size}: {self.against} {self.other_ms:.1f} ms, tdview {self.own_ms:.1f} ms,"
            f" ratio {self.ratio:.2f} [{self.low:.2f} … {self.high:.2f}], {self.memory_mb:.0f} MB{goal}"
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
        promised: float | None = None,
        rounds: int = 5,
        between: Callable[[], object] | None = None,
        clear: bool = False,
    ) -> None:
        """Times both by turns and prints the result.

        Args:
            case: what is done.
            size: how much of it.
            other: the work as a user would do it without tdview.
            own: the same work by tdview.
            against: who does the other.
            promised: the ratio that must be reached; None where none is promised.
            rounds: how often each is timed; one more round warms up.
            between: called before each of them, not timed.
            clear: whether what the work has made is removed after each round, as large files must be. Small ones
                stay: making files where many were just removed is slow on some file systems.
        """
        times: list[tuple[float, float]] = []
        peak, made = 0.0, len(self._made)
        for number in range(rounds + 1):
            pair = []
            for work in (other, own):
                if between is not None:
                    between()
                gc.collect()
                with _memory() as grown:
                    start = time.perf_counter()
                    work()
                    pair.append(time.perf_counter() - start)
                peak = grown[0] if work is own and number == 0 else peak
                while clear and len(self._made) > made:
                    _remove(self._made.pop())
            if number:
                times.append((pair[0], pair[1]))
        ratios = sorted(theirs / ours for theirs, ours in times)
        result = Result(
            case=case,
            size=size,
            against=against,
            other_ms=statistics.median(t[0] for t in times) * 1000,
            own_ms=statistics.median(t[1] for t in times) * 1000,
            low=ratios[0],
            ratio=statistics.median(ratios),
            high=ratios[-1],
            promised=promised,
            memory_mb=peak,
        )
        self.results.append(result)
        print(result.line(), flush=True)

    def finish(self) -> int:
        """Removes the folder, writes the results and gives the exit code: 1 where a promise is missed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        RESULTS.mkdir(exist_ok=True)
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "system": platform.platform()}
        content = {"benchmark": self.name, "machine": machine, "results": [asdict(result) for result in self.results]}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        return 0 if all(result.holds for result in self.results) else 1


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _anonymous_mb() -> float:
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon")), 0.0)
    except OSError:
        return 0.0


@contextmanager
def _memory() -> Iterator[list[float]]:
    """Watches the memory of this process that no file backs; gives its greatest growth."""
    start, stop, top = _anonymous_mb(), threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.01):
            top[0] = max(top[0], _anonymous_mb() - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield top
    finally:
        stop.set()
        thread.join()


def table() -> str:
    """All stored results as a Markdown table."""
    lines = [
        "| case | size | against | theirs, ms | tdview, ms | ratio | lowest … highest | promised | memory, MB |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        for row in json.loads(path.read_text())["results"]:
            promised = "" if row["promised"] is None else f"{row['promised']:g}"
            cells = [row["case"], row["size"], row["against"], f"{row['other_ms']:.1f}", f"{row['own_ms']:.1f}"]
            cells += [f"**{row['ratio']:.1f}**", f"{row['low']:.1f} … {row['high']:.1f}", promised]
            lines.append(f"| {' | '.join(cells)} | {row['memory_mb']:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")

"""The stored results as Markdown: ``python -m benchmarks.report``; the ratios, and how the costs grow with the work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def results() -> Iterator[dict[str, Any]]:
    """Every stored result, benchmark by benchmark."""
    for path in sorted(RESULTS.glob("*.json")):
        yield from json.loads(path.read_text())["results"]


def table() -> str:
    """All stored results, a line each."""
    lines = [
        "| case | size | against | theirs, ms | tdview, ms | ratio | lowest … highest | rounds | promised |"
        " their memory, MB | memory, MB |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results():
        promised = "" if row["promised"] is None else f"{row['promised']:g}"
        cells = [row["case"], row["size"], row["against"], f"{row['other_ms']:.1f}", f"{row['own_ms']:.1f}"]
        cells += [f"**{row['ratio']:.1f}**", f"{row['low']:.1f} … {row['high']:.1f}", str(row["rounds"]), promised]
        cells += [f"{row['other_memory_mb']:.0f}", f"{row['memory_mb']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def growth() -> str:
    """How many times the work, and how many times the time, from each size of a case to the next."""
    lines = ["| case | from | to | work | theirs | tdview |", "|---|---|---|---:|---:|---:|"]
    for (case, against), rows in groupby(sorted(_sized(), key=_case), key=_case):
        for small, large in pairwise(sorted(rows, key=lambda row: row["work"])):
            name = case if against == "tensordict" else f"{case}, against {against}"
            cells = [name, small["size"], large["size"], _times(large["work"] / small["work"])]
            cells += [_times(large[side] / small[side]) for side in ("other_ms", "own_ms")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _times(factor: float) -> str:
    return f"× {factor:.0f}" if factor >= 9.95 else f"× {factor:.1f}"


def _sized() -> Iterator[dict[str, Any]]:
    return (row for row in results() if row["work"] is not None)


def _case(row: dict[str, Any]) -> tuple[str, str]:
    return row["case"], row["against"]


def versions() -> str:
    """The versions and the machine of the stored results; of the last one where they differ."""
    found: dict[str, Any] = {}
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        found |= content.get("machine", {}) | content.get("versions", {})
    return ", ".join(f"{name} {value}" for name, value in found.items()) + "\n"


def report() -> str:
    """All of it."""
    return f"{versions()}\n{table()}\n{growth()}"


if __name__ == "__main__":
    print(report(), end="")

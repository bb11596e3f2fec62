"""Runs the benchmarks, each in a process of its own: ``python -m benchmarks [name …]``.

A benchmark is a file ``bench_<name>.py`` that pairs tdview with tensordict or with a limit of the machine in the same
run, prints what it measured, the ratios last, and ends with 1 where a promised figure is missed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LAST = ("million",)
"""It makes and removes a million files, after which some file systems make files slowly for minutes."""


def main(names: list[str]) -> int:
    known = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    known |= {name: known.pop(name) for name in LAST}
    if unknown := set(names) - set(known):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    missed = []
    for name in names or known:
        print(f"== {name}", flush=True)
        if subprocess.call([sys.executable, "-W", "ignore", str(known[name])]):
            missed.append(name)
    print(f"missed: {', '.join(missed)}" if missed else "every promised figure holds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Looking is cheap: importing tdview, listing 10 000 leaves from the shell, opening beside tensordict's load_memmap."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

IMPORT_LIMIT_MS = 60
OPEN_RATIO = 20


def best(work: Callable[[], object], repeat: int = 5) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def python(*args: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    import tensordict
    import torch

    import tdview

    bare = best(python("-c", "pass"), 9)
    imported = best(python("-c", "import tdview"), 9)
    more = (imported - bare) * 1000
    print(
        f"import tdview: {more:.0f} ms more than bare Python ({bare * 1000:.0f} ms); promised below {IMPORT_LIMIT_MS}"
    )

    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "wide"
        leaf = torch.zeros(4, 8)
        levels = {
            f"n{i}": tensordict.TensorDict({f"l{j}": leaf for j in range(100)}, batch_size=[4]) for i in range(100)
        }
        tensordict.TensorDict(levels, batch_size=[4]).memmap(saved)
        archive = saved.with_suffix(".tdz")
        tensordict.pack_memmap(saved, archive)
        listed = best(python("-m", "tdview", "ls", str(archive)), 3)
        print(f"tdview ls, 10 000 leaves in an archive, whole process: {listed * 1000:.0f} ms")
        ratios = []
        for path in (saved, archive):
            peer = best(lambda path=path: tensordict.TensorDict.load_memmap(path), 3)
            own = best(lambda path=path: [node.kind for node in tdview.scan(path).children()])
            ratios.append(peer / own)
            print(f"open {path.name}: tensordict {peer * 1000:.0f} ms, tdview {own * 1000:.1f} ms, {peer / own:.0f}×")
    return 0 if more < IMPORT_LIMIT_MS and min(ratios) >= OPEN_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())

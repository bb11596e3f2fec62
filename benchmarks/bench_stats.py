"""Statistics cost little more than reading: each dtype beside one pass over its freshly mapped payload, and the memory.

``python benchmarks/bench_stats.py [megabytes]``. The pass is the greatest of all bytes, seen as float32 by one thread:
what a payload of this size costs to be touched at all.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

MEMORY_MB = 64
DTYPES = {"float32": 4, "float64": 8, "int64": 8, "uint8": 1, "bool": 1, "bfloat16": 2}


def write_save(folder: Path, dtype: str, rows: int) -> None:
    """A save with one leaf ``x`` of ``[rows, 64]`` random elements."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    with open(folder / "x.memmap", "wb") as file:
        for start in range(0, rows, 1 << 16):
            block: Any = rng.standard_normal((min(1 << 16, rows - start), 64), dtype=np.float32)
            if dtype == "bfloat16":
                block = (block.view("<u4") >> 16).astype("<u2")
            else:
                block = block * 50 if dtype not in ("bool", "float32") else block > 0 if dtype == "bool" else block
                block = np.abs(block).astype(dtype) if dtype == "uint8" else block.astype(dtype)
            block.tofile(file)
    entry = {"device": "cpu", "shape": [rows, 64], "dtype": f"torch.{dtype}"}
    own = {"shape": [rows], "device": None, "_type": "<class 'tensordict._td.TensorDict'>"}
    (folder / "meta.json").write_text(json.dumps({"x": entry, **own}))


def anonymous_mb() -> float:
    """Memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def watched_memory(found: list[float]) -> Iterator[None]:
    """Appends the greatest growth of the anonymous memory meanwhile."""
    start, stop, top = anonymous_mb(), threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.002):
            top[0] = max(top[0], anonymous_mb() - start)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        found.append(top[0])


def best(work: Callable[[], float], repeat: int = 5) -> float:
    return min(work() for _ in range(repeat))


def main(megabytes: int = 256) -> int:
    import tdview

    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        for dtype, itemsize in DTYPES.items():
            folder = Path(home) / dtype
            write_save(folder, dtype, megabytes * 1_000_000 // (64 * itemsize))

            def one_pass(folder: Path = folder) -> float:
                leaf: Any = tdview.scan(folder)["x"]
                values = np.frombuffer(leaf.raw(), np.float32)
                start = time.perf_counter()
                values.max()
                return time.perf_counter() - start

            def whole(folder: Path = folder) -> float:
                node = tdview.scan(folder)
                start = time.perf_counter()
                tdview.stats(node)
                return time.perf_counter() - start

            whole()
            with watched_memory(peaks):
                whole()
            limit, own = best(one_pass), best(whole)
            print(
                f"{dtype:>9}: one pass {limit * 1000:.0f} ms, stats {own * 1000:.0f} ms, {own / limit:.1f}×,"
                f" {peaks[-1]:.0f} MB"
            )
    print(f"memory above the mapping: at most {max(peaks):.0f} MB; promised below {MEMORY_MB} MB")
    return 0 if max(peaks) < MEMORY_MB else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

"""Statistics cost little more than reading: beside one pass over memory, and beside the same figures through torch.

``python benchmarks/bench_stats.py [megabytes …]``. The pass is the greatest of all bytes, seen as float32 by one
thread: what a freshly mapped payload of this size costs to be touched at all. A ratio of 0.67 is one and a half passes.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.bench_save import small
from benchmarks.harness import Suite

MEGABYTES = (256, 1024)
ONE_AND_A_HALF = 0.67
DTYPES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1, "bfloat16": 2, "float16": 2}


def write_save(folder: Path, dtype: str, rows: int, width: int = 64) -> Path:
    """A save with one leaf ``x`` of ``[rows, width]`` random elements."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    with open(folder / "x.memmap", "wb") as file:
        for start in range(0, rows, 1 << 16):
            block: Any = rng.standard_normal((min(1 << 16, rows - start), width), dtype=np.float32)
            if dtype == "bfloat16":
                block = (block.view("<u4") >> 16).astype("<u2")
            elif dtype == "bool":
                block = block > 0
            elif dtype == "uint8":
                block = np.abs(block * 50).astype(dtype)
            else:
                block = (block * 50).astype(dtype)
            block.tofile(file)
    entry = {"device": "cpu", "shape": [rows, width], "dtype": f"torch.{dtype}"}
    own = {"shape": [rows], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    (folder / "meta.json").write_text(json.dumps({"x": entry, **own}))
    return folder


def one_pass(folder: Path) -> float:
    leaf: Any = tdview.scan(folder)["x"]
    return float(np.frombuffer(leaf.raw(), np.float32).max())


def by_torch(folder: Path) -> list[tuple[Any, ...]]:
    """The figures of `tdview.stats` as a user of torch writes them down, quantiles of as large a sample."""
    return [_figures(leaf) for leaf in Peer.load_memmap(folder).values(True, True)]


def _figures(values: torch.Tensor) -> tuple[Any, ...]:
    finite = torch.isfinite(values)
    flat = values.reshape(-1)
    sample = flat[:: max(1, flat.numel() // (1 << 17))]
    return (
        int((~finite).sum()),
        values.min(),
        values.max(),
        values.mean(),
        values.std(),
        torch.unique(sample),
        torch.histc(sample, 64),
        torch.quantile(sample, torch.tensor([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])),
    )


def beside_torch(suite: Suite, folder: Path, size: str, work: int) -> None:
    suite.pair(
        "stats",
        size,
        lambda: by_torch(folder),
        lambda: tdview.stats(folder),
        against="tensordict and torch",
        work=work,
        promised=1,
    )


def main(*sizes: int) -> int:
    suite = Suite("stats")
    for megabytes in sizes or MEGABYTES:
        for dtype, itemsize in DTYPES.items():
            folder = write_save(suite.fresh(), dtype, megabytes * 1_000_000 // (64 * itemsize))
            suite.pair(
                f"stats of {dtype}",
                f"{megabytes} MB",
                lambda: one_pass(folder),
                lambda: tdview.stats(folder),
                against="one pass",
                work=megabytes,
                promised=ONE_AND_A_HALF,
            )
            shutil.rmtree(folder)
    for rows in (1_000_000, 10_000_000):
        folder = write_save(suite.fresh(), "float32", rows, 16)
        beside_torch(suite, folder, f"{rows:,} × 16".replace(",", " "), rows)
        shutil.rmtree(folder)
    for leaves in (1_000, 10_000):
        folder = suite.fresh()
        small(Peer, leaves).memmap(folder)
        beside_torch(suite, folder, f"{leaves:,} leaves".replace(",", " "), leaves)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

"""Saving to a directory and to an archive beside tensordict: few large leaves, many small ones, leaves to be copied."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.harness import Suite
from tdview import TensorDict


def large(kind: Any, megabytes: int) -> Any:
    """Eight float32 leaves of so many megabytes."""
    rows = megabytes * (1 << 20) // 320
    return kind({f"k{i}": torch.ones(rows, 80).mul_(i) for i in range(8)}, batch_size=[rows])


def small(kind: Any, leaves: int) -> Any:
    """Levels of 50 leaves of 128 bytes."""
    leaf = torch.zeros(4, 8)
    levels = {f"n{i}": kind({f"l{j}": leaf for j in range(50)}, batch_size=[4]) for i in range(leaves // 50)}
    return kind(levels, batch_size=[4])


def strided(kind: Any, megabytes: int) -> Any:
    """Eight leaves that are transposed, so that writing them rearranges every element."""
    side = megabytes * (1 << 20) // 4 // 512
    return kind({f"k{i}": torch.ones(512, side).mul_(i).T for i in range(8)}, batch_size=[side])


def compare(
    suite: Suite, size: str, make: Callable[[Any], Any], *, directory: float | None, archive: float | None
) -> None:
    """Saves the same tensordict in both forms; the promised ratios are `directory` and `archive`."""
    peer, own = make(Peer), make(TensorDict)
    suite.pair(
        "save directory",
        size,
        lambda: peer.memmap(suite.fresh()),
        lambda: own.memmap(suite.fresh()),
        promised=directory,
        clear="MB" in size,
    )
    suite.pair(
        "save archive",
        size,
        lambda: peer.save(suite.fresh(".tdz")),
        lambda: own.save(suite.fresh(".tdz")),
        promised=archive,
        clear="MB" in size,
    )


def main() -> int:
    suite = Suite("save")
    compare(suite, "8 × 8 MB", lambda kind: large(kind, 8), directory=None, archive=None)
    compare(suite, "8 × 64 MB", lambda kind: large(kind, 64), directory=4, archive=4)
    compare(suite, "1 000 leaves", lambda kind: small(kind, 1_000), directory=None, archive=None)
    compare(suite, "10 000 leaves", lambda kind: small(kind, 10_000), directory=1.8, archive=8)
    compare(suite, "8 × 16 MB transposed", lambda kind: strided(kind, 16), directory=1, archive=1)
    peer, own = large(Peer, 64), large(TensorDict, 64)
    suite.pair(
        "save directory, 2 threads",
        "8 × 64 MB",
        lambda: peer.memmap(suite.fresh(), num_threads=2),
        lambda: own.memmap(suite.fresh(), num_threads=2),
        promised=1,
        clear=True,
    )
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

"""Saving to a directory and to an archive beside tensordict: few large leaves, many small ones, leaves to be copied.

Pinned memory is measured where torch can pin it, which it can beside a GPU only.
"""

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

Make = Callable[[Any], Any]


def large(kind: Any, megabytes: int) -> Any:
    """Eight float32 leaves of so many megabytes."""
    rows = megabytes * (1 << 20) // 320
    return kind({f"k{i}": torch.ones(rows, 80).mul_(i) for i in range(8)}, batch_size=[rows])


def small(kind: Any, leaves: int) -> Any:
    """Levels of at most 50 leaves of 128 bytes."""
    leaf, width = torch.zeros(4, 8), min(leaves, 50)
    levels = {f"n{i}": kind({f"l{j}": leaf for j in range(width)}, batch_size=[4]) for i in range(leaves // width)}
    return kind(levels, batch_size=[4])


def strided(kind: Any, megabytes: int, *, pinned: bool = False) -> Any:
    """Eight leaves that are transposed, so that writing them rearranges every element."""
    side = megabytes * (1 << 20) // 4 // 512

    def leaf(number: int) -> torch.Tensor:
        values = torch.ones(512, side).mul_(number)
        return (values.pin_memory() if pinned else values).T

    return kind({f"k{i}": leaf(i) for i in range(8)}, batch_size=[side])


def compare(
    suite: Suite,
    size: str,
    work: float,
    make: Make,
    *,
    directory: float | None,
    archive: float | None,
    label: str = "",
    clear: bool = True,
) -> None:
    """Saves the same tensordict in both forms; the promised ratios are `directory` and `archive`."""
    peer, own = make(Peer), make(TensorDict)
    suite.pair(
        f"save directory{label}",
        size,
        lambda: peer.memmap(suite.fresh()),
        lambda: own.memmap(suite.fresh()),
        work=work,
        promised=directory,
        writes=True,
        clear=clear,
    )
    suite.pair(
        f"save archive{label}",
        size,
        lambda: peer.save(suite.fresh(".tdz")),
        lambda: own.save(suite.fresh(".tdz")),
        work=work,
        promised=archive,
        writes=True,
        clear=clear,
    )


def threads(suite: Suite, size: str, work: float, make: Make, counts: tuple[int, ...], *, clear: bool) -> None:
    """Saves to a directory by several threads, as both can be asked to."""
    peer, own = make(Peer), make(TensorDict)
    for count in counts:
        suite.pair(
            f"save directory, {count} threads",
            size,
            lambda: peer.memmap(suite.fresh(), num_threads=count),
            lambda: own.memmap(suite.fresh(), num_threads=count),
            work=work,
            promised=1,
            writes=True,
            clear=clear,
        )


def can_pin() -> bool:
    """Whether torch can pin memory on this machine."""
    try:
        return torch.ones(1).pin_memory().is_pinned()
    except RuntimeError:
        return False


def main() -> int:
    suite = Suite("save")
    compare(suite, "8 × 8 MB", 8, lambda kind: large(kind, 8), directory=None, archive=None)
    compare(suite, "8 × 64 MB", 64, lambda kind: large(kind, 64), directory=4, archive=4)
    few, many = (lambda kind: small(kind, 1_000)), (lambda kind: small(kind, 10_000))
    compare(suite, "1 000 leaves", 1e3, few, directory=None, archive=None, label=", small leaves", clear=False)
    compare(suite, "10 000 leaves", 1e4, many, directory=1.8, archive=8, label=", small leaves", clear=False)
    for megabytes in (4, 16):
        make = lambda kind: strided(kind, megabytes)  # noqa: E731
        size = f"8 × {megabytes} MB"
        compare(suite, size, megabytes, make, directory=1, archive=1, label=", transposed")
    if can_pin():
        for megabytes in (4, 16):
            make = lambda kind: strided(kind, megabytes, pinned=True)  # noqa: E731
            size = f"8 × {megabytes} MB"
            compare(suite, size, megabytes, make, directory=1, archive=1, label=", transposed and pinned")
    else:
        print("torch cannot pin memory here: nothing pinned is measured")
    threads(suite, "8 × 8 MB", 8, lambda kind: large(kind, 8), (2, 8), clear=True)
    threads(suite, "8 × 64 MB", 64, lambda kind: large(kind, 64), (2,), clear=True)
    threads(suite, "1 000 leaves", 1e3, few, (2, 8), clear=False)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

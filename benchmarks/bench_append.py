"""Appending beside tensordict: one call, and an `Appender` that writes through or buffers; few leaves and many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict as Peer
from tensordict import append_memmap as peer_append

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.harness import Suite
from tdview import Appender, TensorDict, append_memmap


def rows(kind: Any, count: int, leaves: int) -> Any:
    """`count` rows of levels of 50 leaves of 8 floats."""
    per_level = min(leaves, 50)
    levels = {
        f"n{i}": kind({f"l{j}": torch.full((count, 8), float(j)) for j in range(per_level)}, batch_size=[count])
        for i in range(leaves // per_level)
    }
    return kind(levels, batch_size=[count])


def compare(
    suite: Suite, leaves: int, count: int, *, once: float | None, through: float | None, buffered: float | None
) -> None:
    """Appends `count` rows in three ways; the numbers are the promised ratios."""
    size = f"{leaves:,} leaves".replace(",", " ")
    label = "1 row" if count == 1 else f"{count:,} rows".replace(",", " ")
    peer, own, held, waiting = (suite.fresh() for _ in range(4))
    for place in (peer, own, held, waiting):
        rows(Peer, 4, leaves).memmap(place)
    theirs, ours = rows(Peer, count, leaves), rows(TensorDict, count, leaves)
    large = count * leaves > 100_000

    def pair(case: str, work: Callable[[], object], promised: float | None) -> None:
        suite.pair(
            f"{case}, {label}",
            size,
            lambda: peer_append(peer, theirs),
            work,
            work=leaves,
            promised=promised,
            writes=large,
            rounds=9 if large else None,
        )

    pair("append_memmap", lambda: append_memmap(own, ours), once)
    with Appender(held) as appender:
        pair("Appender", lambda: appender.append(ours), through)
    with Appender(waiting, flush=None) as appender:
        pair("Appender, buffered", lambda: appender.append(ours), buffered)


def main() -> int:
    suite = Suite("append")
    compare(suite, 10, 1, once=None, through=None, buffered=None)
    compare(suite, 100, 1, once=None, through=None, buffered=None)
    compare(suite, 1000, 1, once=3, through=8, buffered=50)
    compare(suite, 10, 10_000, once=1, through=1, buffered=None)
    compare(suite, 100, 10_000, once=1, through=1, buffered=None)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

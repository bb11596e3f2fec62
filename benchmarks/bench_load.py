"""Loading beside tensordict: many small leaves, few large ones, and batches of random rows of a large buffer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.bench_save import large, small
from benchmarks.harness import Suite

BATCH = 256


def main() -> int:
    suite = Suite("load")
    for size, saved, promised in (
        ("8 × 8 MB", large(Peer, 8), None),
        ("1 000 leaves", small(Peer, 1_000), None),
        ("10 000 leaves", small(Peer, 10_000), 5),
    ):
        directory, archive = suite.fresh(), suite.fresh().with_suffix(".tdz")
        saved.memmap(directory)
        tdview.pack_memmap(directory, archive)
        for form, path in (("directory", directory), ("archive", archive)):
            suite.pair(
                f"load_memmap, {form}", size,
                lambda path=path: Peer.load_memmap(path), lambda path=path: tdview.load_memmap(path), promised=promised,
            )  # fmt: skip
            suite.pair(
                f"open and list, {form}", size,
                lambda path=path: Peer.load_memmap(path), lambda path=path: _list(path),
                promised=20 if promised else None,
            )  # fmt: skip
    for count in (100_000, 1_000_000):
        directory, archive = suite.fresh(), suite.fresh().with_suffix(".tdz")
        _buffer(count).memmap(directory)
        tdview.pack_memmap(directory, archive)
        for form, path in (("directory", directory), ("archive", archive)):
            peer, own = Peer.load_memmap(path), tdview.load_memmap(path)
            index = torch.randint(count, (BATCH,))
            suite.pair(
                f"{BATCH} random rows, {form}", f"{count:,} rows".replace(",", " "),
                lambda peer=peer, index=index: peer[index], lambda own=own, index=index: own[index], promised=1,
                rounds=21,
            )  # fmt: skip
            del peer, own
    return suite.finish()


def _list(path: Path) -> list[str]:
    return [node.kind for node in tdview.scan(path).children()]


def _buffer(count: int) -> Any:
    step = {"obs": torch.ones(count, 16), "done": torch.zeros(count, 1, dtype=torch.bool)}
    return Peer(
        {**step, "action": torch.zeros(count, 4), "next": Peer({**step, "reward": torch.ones(count, 1)}, [count])},
        [count],
    )


if __name__ == "__main__":
    sys.exit(main())

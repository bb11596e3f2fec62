"""Loading and listing beside tensordict, by the number of leaves; batches of random rows of a large buffer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.bench_save import small
from benchmarks.harness import Suite

BATCH = 256


def open_and_list(path: Path) -> list[str]:
    """What a look at a save costs: its root, and what stands directly below."""
    return [node.kind for node in tdview.scan(path).children()]


def compare(suite: Suite, leaves: int, *, load: float | None, look: float | None) -> None:
    """Loads and lists a save of so many leaves; the promised ratios are `load` and `look`."""
    directory, archive = suite.fresh(), suite.fresh(".tdz")
    small(Peer, leaves).memmap(directory)
    tdview.pack_memmap(directory, archive)
    size = f"{leaves:,} leaves".replace(",", " ")
    for form, path in (("directory", directory), ("archive", archive)):
        suite.pair(
            f"load_memmap, {form}",
            size,
            lambda: Peer.load_memmap(path),
            lambda: tdview.load_memmap(path),
            work=leaves,
            promised=load,
        )
        suite.pair(
            f"open and list, {form}",
            size,
            lambda: Peer.load_memmap(path),
            lambda: open_and_list(path),
            work=leaves,
            promised=look,
        )


def random_rows(suite: Suite, count: int) -> None:
    """Ten batches of random rows of a buffer that is loaded already, its leaves mapped.

    Torch works in one thread: two wait for each other, however small the copy, and then it is the rest of the machine
    that is measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    directory, archive = suite.fresh(), suite.fresh(".tdz")
    buffer(count).memmap(directory)
    tdview.pack_memmap(directory, archive)
    for form, path in (("directory", directory), ("archive", archive)):
        peer, own = Peer.load_memmap(path), tdview.load_memmap(path)
        index = torch.randint(count, (BATCH,))
        suite.pair(
            f"10 × {BATCH} random rows, {form}",
            f"{count:,} rows".replace(",", " "),
            lambda: [peer[index] for _ in range(10)],
            lambda: [own[index] for _ in range(10)],
            work=count,
            promised=1,
            rounds=51,
        )
    torch.set_num_threads(threads)


def buffer(count: int) -> Any:
    """A replay buffer of so many steps: six leaves of floats and flags."""
    step = {"obs": torch.ones(count, 16), "done": torch.zeros(count, 1, dtype=torch.bool)}
    return Peer(
        {**step, "action": torch.zeros(count, 4), "next": Peer({**step, "reward": torch.ones(count, 1)}, [count])},
        [count],
    )


def main() -> int:
    suite = Suite("load")
    compare(suite, 10, load=None, look=None)
    compare(suite, 1_000, load=None, look=None)
    compare(suite, 10_000, load=5, look=20)
    random_rows(suite, 100_000)
    random_rows(suite, 1_000_000)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

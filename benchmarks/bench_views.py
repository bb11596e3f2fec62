"""What a look into a large leaf costs: frames of ten million rows, and the pages of the table.

``python benchmarks/bench_views.py [rows]``. The other side is what a user would do: load with tensordict, take rows,
hand them to pandas.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.harness import Suite
from tdview.widgets import pages
from tdview.widgets.router import Router

PAGE = 128, 64
"""Rows and columns of a page."""


class Shown:
    """What the pages need of a browser: the save it shows, and where the answers go."""

    def __init__(self, path: Path) -> None:
        self.root = tdview.scan(path)
        self.answers: list[tuple[dict[str, Any], Any]] = []
        self.router = Router(
            lambda message, buffers: self.answers.append((message, buffers)), lambda: self.root.store.lock
        )
        pages.register(self.router, self)  # type: ignore[arg-type]  # nothing else of a browser is asked for

    def page(self, row: int) -> float:
        """The answer to one request for a page of the leaf ``obs``; its first value."""
        self.answers.clear()
        rows, columns = PAGE
        blocks = [[row, row + rows, 0, columns]]
        self.router.handle({"id": "1", "op": "table.page", "args": {"path": ["obs"], "blocks": blocks}})
        (message, buffers), *_ = self.answers
        assert message["kind"] == "reply", message
        return float(np.frombuffer(buffers[0], "<f4", 1)[0])


def frames(suite: Suite, rows: int) -> None:
    """Frames of a leaf of four columns: all rows, a slice, and rows here and there."""
    path = suite.fresh()
    tdview.TensorDict({"obs": torch.rand(rows, 4), "index": torch.arange(rows)}, batch_size=[rows]).memmap(path)
    size = f"{rows:,} rows".replace(",", " ")
    places = np.random.default_rng(0).integers(0, rows, 10_000)
    middle = slice(rows // 2, rows // 2 + rows // 10)

    def theirs(index: Any) -> Any:
        return pandas.DataFrame(Peer.load_memmap(path)["obs"].numpy()[index])

    def ours(index: Any) -> Any:
        return tdview.scan(path)["obs"].frame(rows=index)  # type: ignore[attr-defined]

    for case, index in (("frame", slice(None)), ("frame, a tenth of the rows", middle), ("frame, 10 000 rows", places)):
        expected, found = theirs(index), ours(index)
        assert (expected.to_numpy()[::997] == found.to_numpy()[::997]).all()
        del expected, found
        suite.pair(case, size, lambda: theirs(index), lambda: ours(index), against="tensordict and pandas", work=rows)
    suite.pair(
        "frame of all leaves, a tenth of the rows",
        size,
        lambda: pandas.DataFrame(
            {
                **{f"obs.{i}": column for i, column in enumerate(Peer.load_memmap(path)["obs"][middle].numpy().T)},
                "index": Peer.load_memmap(path)["index"][middle].numpy(),
            }
        ),
        lambda: tdview.scan(path).frame(rows=middle),
        against="tensordict and pandas",
        work=rows,
    )


def grid(suite: Suite, rows: int) -> None:
    """One page of the table at a random place: the request, read and answered, without the way to the browser."""
    path = suite.fresh()
    tdview.TensorDict({"obs": torch.rand(rows, 64)}, batch_size=[rows]).memmap(path)
    shown, peer = Shown(path), Peer.load_memmap(path)
    places = iter(np.random.default_rng(0).integers(0, rows - PAGE[0], 1_000_000).tolist())

    def theirs() -> str:
        row = next(places)
        return pandas.DataFrame(peer["obs"][row : row + PAGE[0]].numpy()).to_json(orient="values")

    def bare() -> bytes:
        row = next(places)
        return pandas.DataFrame(peer["obs"][row : row + PAGE[0]].numpy()).to_numpy().tobytes()

    size = f"{rows:,} × 64".replace(",", " ")
    for against, other in (("tensordict and pandas, as JSON", theirs), ("tensordict and pandas, as bytes", bare)):
        suite.pair("page of the table", size, other, lambda: shown.page(next(places)), against=against, work=rows)


def main(rows: int = 10_000_000) -> int:
    suite = Suite("views")
    frames(suite, rows // 10)
    frames(suite, rows)
    grid(suite, rows // 100)
    grid(suite, rows // 10)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

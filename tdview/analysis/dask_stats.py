"""This module knows how the blocks of one leaf are summarised on dask: each worker opens the save itself.

It does not know how a block is summarised; the results are those of the serial way, in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from tdview.analysis.moments import Partial
from tdview.analysis.summary import Block, summarise_blocks
from tdview.analysis.workers import batched, current_client, on_client, on_threads
from tdview.errors import ArgumentError

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["summarised_on_dask"]


def summarised_on_dask(leaf: Leaf, blocks: Iterator[Block], step: int) -> Generator[Partial]:
    """Summaries in the order of the blocks.

    Raises:
        ArgumentError: the save is in memory, where no worker can open it.
        NotSupportedError: dask is not installed.
    """
    if leaf.store.form == "memory":
        raise ArgumentError("engine: a save in memory cannot be opened by dask workers; use engine='serial'")
    client = current_client()
    batches = batched(list(blocks))
    if client is None:
        results = on_threads(partial(summarise_blocks, leaf, step=step), batches)
    else:
        place = (str(leaf.root.store.location), tuple(leaf.path))
        results = on_client(client, partial(_in_worker, place=place, step=step), batches)
    with closing(results):
        for found in results:
            yield from found


def _in_worker(blocks: Sequence[Block], *, place: tuple[str, tuple[str, ...]], step: int) -> list[Partial]:
    location, path = place
    root = _opened(location, os.stat(location).st_mtime_ns)
    return summarise_blocks(cast("Leaf", root[path] if path else root), blocks, step=step)


@lru_cache(maxsize=1)
def _opened(location: str, changed: int) -> Node:
    """The save as a worker has it open, for the batches of all its leaves."""
    from tdview.tree.scan import open_root

    return open_root(location)

"""This module knows how blocks of an audit run on dask: each worker opens the save itself and reads its blocks.

It does not know what a block is asked; the results are those of the serial engine, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from tdview.analysis.blocks import Engine, SerialEngine, run_chunk
from tdview.analysis.parts import Options
from tdview.analysis.replay import Buffer
from tdview.analysis.workers import batched, current_client, on_client, on_threads
from tdview.errors import ArgumentError

if TYPE_CHECKING:
    from tdview.tree.node import Node

__all__ = ["DaskEngine"]

T = TypeVar("T")


class DaskEngine(Engine):
    """Runs blocks on the current `dask.distributed` client, or in dask's threads where there is none.

    A worker needs the same path to the save, as on one machine or a shared file system.
    """

    def __init__(self, node: Node, options: Options, client: Any = None) -> None:
        if node.store.form == "memory":
            raise ArgumentError("engine: a save in memory cannot be opened by dask workers; use engine='serial'")
        self.place = (str(node.root.store.location), node.path, _frozen(options))
        self.client = client if client is not None else current_client()

    def run(
        self, buffer: Buffer, function: Callable[..., T], spans: Sequence[tuple[int, int]], arguments: tuple[Any, ...]
    ) -> list[T]:
        if any(column.forward for column in buffer.columns.values()):
            # Every worker would inflate a payload from its start: one pass after the other is less work.
            return SerialEngine().run(buffer, function, spans, arguments)
        if self.client is not None:
            work = partial(_run, place=self.place, function=function, arguments=arguments)
            found = on_client(self.client, work, batched(spans))
        else:
            buffer.tick()

            def in_thread(batch: Sequence[tuple[int, int]]) -> list[T]:
                return [run_chunk(function, buffer, start, stop, arguments) for start, stop in batch]

            found = on_threads(in_thread, batched(spans))
        results: list[T] = []
        with closing(found):
            for part in found:
                buffer.tick()
                results += part
        return results

    def close(self) -> None:
        """Lets the workers close the files of the save."""
        if self.client is not None:
            self.client.run(_forget)


def _frozen(options: Options) -> tuple[Any, ...]:
    return (
        tuple(sorted(options.keys.items())),
        options.time_dim,
        tuple(sorted(options.bounds.items())),
        options.fps,
        options.horizon,
        options.sample,
        options.careful,
    )


def _thawed(values: tuple[Any, ...]) -> Options:
    keys, time_dim, bounds, fps, horizon, sample, careful = values
    return Options(
        keys=dict(keys),
        time_dim=time_dim,
        bounds=dict(bounds),
        fps=fps,
        horizon=horizon,
        sample=sample,
        careful=careful,
    )


@lru_cache(maxsize=4)
def _opened(location: str, path: tuple[str, ...], options: tuple[Any, ...], stamp: float) -> Buffer:
    from tdview.analysis.buffers import buffer_of
    from tdview.tree.scan import open_root

    root = open_root(location)
    return buffer_of(root[path] if path else root, _thawed(options))


def _forget() -> None:
    _opened.cache_clear()


def _run(
    spans: Sequence[tuple[int, int]],
    *,
    place: tuple[str, tuple[str, ...], tuple[Any, ...]],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> list[Any]:
    """Runs in a worker: opens the save once and keeps it for the next batches."""
    import os

    buffer = _opened(*place, os.stat(place[0]).st_mtime)
    return [run_chunk(function, buffer, start, stop, arguments) for start, stop in spans]

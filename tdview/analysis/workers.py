"""This module knows how batches of work run on dask: on the current client's workers, or in dask's threads without one.

It does not know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from tdview.errors import NotSupportedError

__all__ = ["BATCHES", "batched", "current_client", "on_client", "on_threads"]

T = TypeVar("T")
R = TypeVar("R")

BATCHES = 16
"""Batches that a call is cut into: few enough that a task outweighs its overhead, enough to report progress."""


def batched(work: Sequence[T]) -> list[Sequence[T]]:
    """`work` in at most `BATCHES` pieces, in order."""
    size = max(1, -(-len(work) // BATCHES))
    return [work[start : start + size] for start in range(0, len(work), size)]


def current_client() -> Any:
    """The current `dask.distributed` client, None if there is none.

    Raises:
        NotSupportedError: dask is not installed.
    """
    _dask()
    try:
        from distributed import get_client
    except ImportError:
        return None
    try:
        return get_client()
    except ValueError:
        return None


def on_client(client: Any, function: Callable[[T], R], batches: Sequence[T]) -> Generator[R]:
    """Results in the order of the batches, each as soon as it is there; closing the iterator cancels the rest.

    `function` must be picklable.
    """
    futures = client.map(function, batches, pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel([future for future in futures if not future.done()])


def on_threads(function: Callable[[T], R], batches: Sequence[T]) -> Generator[R]:
    """Results in the order of the batches, when all are done."""
    dask = _dask()
    tasks = [dask.delayed(function, pure=False)(batch) for batch in batches]
    yield from dask.compute(*tasks, scheduler="threads")


def _dask() -> Any:
    try:
        import dask
    except ImportError as exc:
        raise NotSupportedError("engine='dask' needs dask: pip install 'tdview[dask]'") from exc
    return dask

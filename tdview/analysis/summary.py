"""This module knows how one leaf is summarised: its blocks by threads, their summaries merged in order.

It does not know how a block is summarised, nor what is told of the result.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from tdview.analysis.fused import kernel_of
from tdview.analysis.moments import Index, Partial, block_indices, every, merge, sample_step, summarise
from tdview.errors import NotSupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf

__all__ = ["Block", "Progress", "Summarised", "summarise_blocks", "summary", "work_of"]

Progress: TypeAlias = Callable[[int, int], None]
Summarised: TypeAlias = "Callable[[Leaf, Iterator[Block], int], Generator[Partial]]"
"""Summaries of the blocks of a leaf, in their order, with every so-manieth element as a sample."""

_WHOLE = 1 << 20
"""Elements up to which quantiles, distinct and histogram look at every element."""
_SAMPLE = 1 << 16
"""Elements they look at in a larger leaf: a quantile is then right to about 0.2 % of the rank."""
_BLOCK_BYTES = 8 << 20
"""Bytes of one block, of which each thread has one: also what a narrow dtype is widened to stays under 64 MB."""
_BATCH = 8
"""Blocks that a thread does in a row: each time threads wake each other costs as much as a block."""
_LARGE = 64 << 20
"""Bytes from which a compiled loop saves more time than it takes to load."""


def work_of(leaf: Leaf) -> int:
    """Bytes of a leaf as progress counts them, at least 1."""
    return max(1, int(leaf.nbytes or 0))


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a leaf that is summarised at once."""

    index: Index
    first: int
    """Position of its first element among those that count."""


def summary(
    leaf: Leaf,
    rows: tuple[tuple[int, int], ...] | None,
    progress: Progress | None,
    summarised: Summarised | None = None,
) -> tuple[Partial, NDArray[Any] | None]:
    """Summary of a whole leaf, and a sample of its elements.

    Args:
        leaf: of any dtype and shape.
        rows: half-open ranges of axis 0 that count, ascending; None for everything.
        progress: called with the bytes done and all bytes, between blocks; what it raises stops the work.
        summarised: who does the blocks; None for threads of this process.

    Returns:
        The summary, and evenly spread elements (all of a small leaf) in stored order; None if there are none.
    """
    import numpy as np

    shape = tuple(leaf.shape)
    if not leaf.bounded:
        raise NotSupportedError(
            f"{leaf.where()}: a large view of compressed leaves or of a stack; unpack or save it first"
        )
    if leaf.is_nested:
        return _of_components(leaf, progress)
    if not shape:
        return _at_once(leaf.numpy(), progress)
    inner = math.prod(shape[1:])
    ranges = ((0, shape[0]),) if rows is None else rows
    elements = inner * sum(stop - start for start, stop in ranges)
    step = 1 if elements <= _WHOLE else sample_step(elements, _SAMPLE, inner)
    limit = max(1, _BLOCK_BYTES // max(1, _itemsize(leaf)))
    whole, samples, nbytes = Partial(), [], work_of(leaf)
    if summarised is None or leaf.streamed:  # workers would each inflate a payload from its start
        summarised = _in_threads
    with closing(summarised(leaf, _blocks(shape, ranges, limit), step)) as parts:
        for part in parts:
            merge(whole, part)
            if part.sample is not None:
                samples.append(part.sample)
            if progress is not None:
                progress(nbytes * whole.count // max(1, elements), nbytes)
    return whole, np.concatenate(samples) if samples else None


def summarise_blocks(
    leaf: Leaf, blocks: Sequence[Block], step: int, words: NDArray[Any] | None = None
) -> list[Partial]:
    """Summaries of blocks, each with every `step`-th element of what counts as its sample.

    Args:
        words: what `Leaf.carrier` gives of the block, if it was read before; then there is a single one.
    """
    return [_summarise_block(leaf, block, step, words) for block in blocks]


def _summarise_block(leaf: Leaf, block: Block, step: int, words: NDArray[Any] | None) -> Partial:
    from tdview.tree.arrays import widened

    row = leaf.dtype_row
    if row is None:
        return summarise(leaf.numpy(block.index), block.first, step)
    words = leaf.carrier(block.index) if words is None else words
    kernel = kernel_of(row) if leaf.nbytes >= _LARGE else None
    part = None if kernel is None else kernel(words)
    if part is None:
        return summarise(widened(words, row), block.first, step)
    part.sample = widened(every(words, block.first, step), row)
    return part


def _blocks(shape: tuple[int, ...], ranges: tuple[tuple[int, int], ...], limit: int) -> Iterator[Block]:
    first = 0
    for index in block_indices(shape, ranges, limit):
        yield Block(index, first)
        first += _size(index, shape)


def _in_threads(leaf: Leaf, blocks: Iterator[Block], step: int) -> Generator[Partial]:
    """Summaries in order; the loops and numpy release the interpreter's lock, so that threads do pay."""
    if leaf.nbytes <= _BLOCK_BYTES:  # a thread costs more than so little work
        for block in blocks:
            yield from summarise_blocks(leaf, [block], step)
        return
    threads = min(4, os.cpu_count() or 1)
    size, most = (1, threads) if leaf.streamed else (_BATCH, 2 * threads)  # inflated blocks wait in memory
    pending: deque[Future[list[Partial]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="tdview-stats")
    try:
        while batch := tuple(islice(blocks, size)):
            words = leaf.carrier(batch[0].index) if leaf.streamed else None  # inflated in the order of its blocks
            pending.append(pool.submit(summarise_blocks, leaf, batch, step, words))
            if len(pending) >= most:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _at_once(values: NDArray[Any], progress: Progress | None) -> tuple[Partial, NDArray[Any] | None]:
    if progress is not None:
        progress(0, 1)
    part = summarise(values, 0, 1)
    return part, part.sample


def _of_components(leaf: Leaf, progress: Progress | None) -> tuple[Partial, NDArray[Any] | None]:
    """All tensors of a nested tensor together, whatever their shapes."""
    import numpy as np

    row = leaf.dtype_row
    elements = leaf.stored_nbytes // (row.itemsize if row is not None else 1)
    step = 1 if elements <= _WHOLE else sample_step(elements, _SAMPLE, 1)
    whole, samples, nbytes = Partial(), [], work_of(leaf)
    for values in leaf.flat_blocks(_BLOCK_BYTES):
        if progress is not None:
            progress(nbytes * whole.count // max(1, elements), nbytes)
        part = summarise(values, whole.count, step)
        merge(whole, part)
        if part.sample is not None:
            samples.append(part.sample)
    return whole, np.concatenate(samples) if samples else None


def _itemsize(leaf: Leaf) -> int:
    from tdview.format.dtypes import dtype_of

    row = dtype_of(leaf.dtype)
    size = 8 if row is None else row.itemsize
    return size if row is not None and row.numpy else max(4, size)  # others are widened to float32


def _size(index: Index, shape: tuple[int, ...]) -> int:
    cut = math.prod(int(part.stop - part.start) for part in index)
    return cut * math.prod(shape[len(index) :])

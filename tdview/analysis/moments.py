"""This module knows how to summarise a stream of blocks in one pass: counts, bounds, mean, spread and an even sample.

It does not know where the blocks come from, which rows are valid, or how a result is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = ["Index", "Partial", "block_indices", "every", "merge", "sample_step", "summarise"]

Index: TypeAlias = tuple[slice, ...]

_TILE = 1 << 17
"""Elements looked at together: 512 kB of float32, which stays in the second-level cache through all passes over it."""
_ROW = 4096
"""Elements whose squares are added by one call of BLAS."""
_CANCELLATION = 1e4
"""Above this ratio of squared mean to variance the squares are summed around the mean, else bits are lost."""


@dataclass(slots=True)
class Partial:
    """What is known about the elements of one block, in a form that can be merged with that of its neighbours."""

    count: int = 0
    nan: int = 0
    inf: int = 0
    finite: int = 0
    low: Any = None
    """Smallest finite value, of the element's own type; None if there is none."""
    high: Any = None
    mean: float = 0.0
    """Mean of the finite elements."""
    spread: float = 0.0
    """Sum of squared distances from `mean`."""
    sample: Array | None = None
    """Every `step`-th element of the stream that lies in this block; a private copy."""


def block_indices(shape: Sequence[int], ranges: Sequence[tuple[int, int]], limit: int) -> Iterator[Index]:
    """Basic indices that cut `ranges` of axis 0 into boxes of at most `limit` elements, in C order.

    Args:
        shape: sizes of the leaf, at least one axis.
        ranges: half-open ranges of axis 0.
        limit: elements in a box, >= 1.

    Yields:
        Tuples of slices, one for each axis that is cut; later axes are whole.
    """
    inner = 1
    for size in shape[1:]:
        inner *= size
    if inner == 0:
        return
    for start, stop in ranges:
        if inner <= limit:
            step = max(1, limit // inner)
            for low in range(start, stop, step):
                yield (slice(low, min(stop, low + step)),)
            continue
        for row in range(start, stop):
            for rest in block_indices(shape[1:], ((0, shape[1]),), limit):
                yield (slice(row, row + 1), *rest)


def sample_step(total: int, wanted: int, inner: int) -> int:
    """Distance between sampled elements: about `total / wanted`, without a factor in common with a row's length.

    A common factor would look at the same columns again and again.
    """
    step = max(1, -(-total // wanted))
    while step > 1 and gcd(step, max(1, inner)) != 1:
        step += 1
    return step


def summarise(block: Array, first: int, step: int) -> Partial:
    """`Partial` of one block.

    Args:
        block: any shape, bool, integer, float or complex dtype; read once, in tiles that fit the cache.
        first: position of its first element in the whole stream.
        step: distance between sampled elements.

    Returns:
        The summary. Complex elements are summarised by their absolute value. Cost: one pass over memory and about
        1 MB of scratch, plus the copy of the sample.
    """
    import numpy as np

    flat = block.reshape(-1)
    total = Partial()
    tile_size = max(1, flat.size) if flat.dtype.kind == "b" else _TILE  # flags are counted in one pass
    for low in range(0, flat.size, tile_size):
        tile = flat[low : low + tile_size]
        if tile.dtype.kind == "c":
            with np.errstate(invalid="ignore", over="ignore"):
                tile = np.abs(tile)
        elif tile.dtype == np.float16:  # numpy compares halves one by one, at a thirtieth of the speed
            tile = tile.astype(np.float32)
        merge(total, _tile(tile))
    sample = every(block, first, step)
    total.sample = np.abs(sample) if sample.dtype.kind == "c" else sample
    return total


def every(block: Array, first: int, step: int) -> Array:
    """Every `step`-th element of the stream that lies in a block whose first element is the `first`-th; a copy."""
    sample: Array = block.reshape(-1)[(-first) % step :: step].copy()
    return sample


def merge(into: Partial, other: Partial) -> None:
    """Add `other` to `into`, means and spreads by Chan, Golub and LeVeque's pairwise update; samples stay apart."""
    into.count += other.count
    into.nan += other.nan
    into.inf += other.inf
    if other.finite and not into.finite:  # as it is: the square of a huge mean would overflow
        into.finite, into.low, into.high = other.finite, other.low, other.high
        into.mean, into.spread = other.mean, other.spread
    elif other.finite:
        both = into.finite + other.finite
        delta = other.mean - into.mean
        into.spread += other.spread + delta * delta * (into.finite * other.finite / both)
        into.mean += delta * (other.finite / both)
        into.low = other.low if other.low < into.low else into.low
        into.high = other.high if other.high > into.high else into.high
        into.finite = both


def _tile(tile: Array) -> Partial:
    import numpy as np

    count = int(tile.size)
    if tile.dtype.kind == "b":
        return _flags(tile)
    if tile.dtype.kind in "iu":
        return _numbers(tile, count)
    low, high = tile.min(), tile.max()
    if np.isfinite(low) and np.isfinite(high):  # NaN wins in min and max, so this tells that all are finite
        return _numbers(tile, count, low=low, high=high)
    nan = int(np.count_nonzero(np.isnan(tile)))
    kept = tile[np.isfinite(tile)]
    found = _numbers(kept, int(kept.size)) if kept.size else Partial()
    found.count, found.nan, found.inf = count, nan, count - nan - int(kept.size)
    return found


def _flags(tile: Array) -> Partial:
    import numpy as np

    count, ones = int(tile.size), int(np.count_nonzero(tile))
    mean = ones / count
    low, high = ones == count, ones > 0
    return Partial(count=count, finite=count, low=low, high=high, mean=mean, spread=count * mean * (1 - mean))


def _numbers(tile: Array, count: int, low: np.generic | None = None, high: np.generic | None = None) -> Partial:
    import numpy as np

    bounds = (tile.min() if low is None else low, tile.max() if high is None else high)
    narrow = tile.dtype.itemsize <= 2 or tile.dtype == np.float32  # exact in float32, which halves the traffic
    values = np.ascontiguousarray(tile, np.float32 if narrow else np.float64)
    peak = max(abs(float(bounds[0])), abs(float(bounds[1])))
    if peak > (1e15 if narrow else 1e150):  # squares would overflow
        return _huge(values, bounds, count, peak)
    total, squares = _sums(values)
    mean = total / count
    spread = squares - count * mean * mean
    if squares > _CANCELLATION * max(spread, 0.0):
        rest, squares = _sums(np.subtract(values, mean, dtype=values.dtype))
        spread = squares - rest * rest / count
    return Partial(
        count=count, finite=count, low=bounds[0].item(), high=bounds[1].item(), mean=mean, spread=max(spread, 0.0)
    )


def _sums(values: Array) -> tuple[float, float]:
    """Sum and sum of squares of contiguous floats.

    The sum is numpy's, which is pairwise and so right to the last digits. Squares go through BLAS, the fastest there
    is, in rows: their sums are added in double precision, and OpenBLAS hands longer vectors to threads of its own,
    which wait for each other (measured: 100 times slower when two threads of ours do it).
    """
    import numpy as np

    whole = values.size // _ROW * _ROW
    rows, rest = values[:whole].reshape(-1, 1, _ROW), values[whole:]
    squares = np.matmul(rows, rows.transpose(0, 2, 1)).sum(dtype=np.float64) + np.float64(np.dot(rest, rest))
    return float(values.sum()), float(squares)


def _huge(values: Array, bounds: tuple[Any, Any], count: int, peak: float) -> Partial:
    import numpy as np

    scaled = values.astype(np.float64) / peak
    mean = float(scaled.mean())
    spread = float(np.square(scaled - mean).sum())
    with np.errstate(over="ignore"):
        whole = float(np.float64(spread) * peak * peak)
    return Partial(
        count=count, finite=count, low=bounds[0].item(), high=bounds[1].item(), mean=mean * peak, spread=whole
    )

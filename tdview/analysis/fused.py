"""This module knows how a block of stored elements is summarised in one pass over memory, where numba is installed.

It does not know blocks that hold NaN or infinity, nor dtypes without a loop: those are `moments`' work.

numpy needs a pass for each figure and one more to widen a narrow dtype; a compiled loop needs one for all. numba is
large, so it is an extra (``pip install 'tdview[fast]'``); without it statistics are the same, and slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tdview.analysis.moments import Partial, merge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tdview.format.dtypes import Dtype

    Array: TypeAlias = NDArray[Any]

__all__ = ["Kernel", "kernel_of"]

Kernel: TypeAlias = Callable[["Array"], "Partial | None"]
"""Summarises a block as `Leaf.carrier` gives it; None where it is empty, or where NaN, infinity or squares that
overflow need a closer look."""

_PIVOT = 64  # elements whose mean is taken from all others, so that the squares keep the digits of the spread
_ROW = 2048  # elements whose sums are taken in single precision


@lru_cache
def kernel_of(dtype: Dtype) -> Kernel | None:
    """The way to summarise a dtype in one pass; None where there is none, or numba is not installed.

    The first block of a dtype waits some tenths of a second for the compiler, whose result is kept on the disk.
    """
    try:
        from tdview.analysis import loops
    except ImportError:
        return None
    if dtype.name == "torch.bfloat16":
        return partial(_halves, loops.bfloats, dtype)
    if dtype.name == "torch.float16":
        return partial(_halves, loops.halves, dtype)
    if dtype.numpy is None or dtype.kind in ("bool", "complex"):
        return None
    if dtype.kind == "float":
        return partial(_floats, loops.floats, dtype)
    return partial(_small_integers, loops.small_integers) if dtype.itemsize == 1 else partial(_integers, loops.integers)


def _flat(block: Array) -> Array:
    import numpy as np

    return np.ascontiguousarray(block).reshape(-1)


def _integers(loop: Callable[..., Any], block: Array) -> Partial | None:
    flat = _flat(block)
    if not flat.size:
        return None
    pivot = float(flat[:_PIVOT].mean())
    low, high, total, squares = loop(flat, pivot)
    return _partial(flat.size, int(low), int(high), pivot, total, squares)


def _small_integers(loop: Callable[..., Any], block: Array) -> Partial | None:
    flat = _flat(block)
    if not flat.size:
        return None
    low, high, total, squares = loop(flat)
    return _partial(flat.size, int(low), int(high), 0.0, total, squares)


def _floats(loop: Callable[..., Any], dtype: Dtype, block: Array) -> Partial | None:
    import numpy as np

    flat = _flat(block)
    pivot = _pivot(flat, dtype)
    if pivot is None:
        return None
    bits = flat.view(f"i{flat.itemsize}")
    return _checked(flat, dtype, float(pivot), loop(flat, bits, bits.dtype.type(np.iinfo(bits.dtype).max), pivot))


def _halves(loop: Callable[..., Any], dtype: Dtype, block: Array) -> Partial | None:
    import numpy as np

    flat = _flat(block)
    found = Partial()
    whole = flat.size // _ROW * _ROW
    for part, rows in ((flat[:whole], whole // _ROW), (flat[whole:], 1)):
        if not part.size:
            continue
        pivot = _pivot(part, dtype)
        if pivot is None:
            return None
        near = np.float32(pivot)
        summary = _checked(part, dtype, float(near), loop(part.view(np.int16).reshape(rows, -1), near))
        if summary is None:
            return None
        merge(found, summary)
    return found if found.count else None


def _pivot(flat: Array, dtype: Dtype) -> np.float64 | None:
    """A number near the mean; None where the first elements have none."""
    import numpy as np

    from tdview.tree.arrays import widened

    pivot = widened(flat[:_PIVOT], dtype).mean(dtype=np.float64) if flat.size else np.float64(math.nan)
    return pivot if np.isfinite(pivot) else None


def _checked(flat: Array, dtype: Dtype, pivot: float, found: tuple[int, int, float, float]) -> Partial | None:
    low, high, total, squares = found
    bounds = _of_keys(low, high, flat, dtype)
    if not all(map(math.isfinite, (*bounds, squares))):
        return None
    return _partial(flat.size, *bounds, pivot, total, squares)


def _of_keys(low: int, high: int, flat: Array, dtype: Dtype) -> tuple[float, float]:
    """The floats that two sort keys stand for; NaN where one of the elements was NaN."""
    import numpy as np

    from tdview.tree.arrays import widened

    keys = np.array([low, high], f"i{flat.itemsize}")
    bits = np.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys)
    least, greatest = widened(bits.view(flat.dtype), dtype).tolist()
    return least + 0.0, greatest + 0.0  # no negative zero


def _partial(count: int, low: Any, high: Any, pivot: float, total: float, squares: float) -> Partial:
    spread = max(0.0, squares - total * total / count)
    return Partial(count=count, finite=count, low=low, high=high, mean=pivot + total / count, spread=spread)

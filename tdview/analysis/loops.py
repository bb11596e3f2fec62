"""This module knows loops, compiled by numba, that read a block once and find bounds, sum and squares meanwhile.

It does not know dtypes by name or what the figures mean; importing it needs numba.

All run without the interpreter's lock and may add in any order, as vector units need it. Bounds of floats are
compared as integers that sort like the floats, for two reasons: compilers vectorise that, and NaN, which no float
comparison sees, lies outside the infinities there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

__all__ = ["bfloats", "floats", "halves", "integers", "small_integers"]

_SMALL = 2048
"""Elements whose squares fit an int32 together: 2048 * 255 * 255 < 2 ** 31."""


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "nsz", "contract"}}
    compiled: Callable[..., Any]
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # there is no folder in which the compiled code could be kept
        compiled = numba.njit(**options)(function)
    return compiled


@_compiled
def integers(values: Any, pivot: float) -> Any:
    """Least, greatest, sum and sum of squares of the distances from `pivot`; `values` is not empty."""
    low = high = values[0]
    total = squares = 0.0
    for place in range(values.size):
        value = values[place]
        low = min(low, value)
        high = max(high, value)
        distance = np.float64(value) - pivot
        total += distance
        squares += distance * distance
    return low, high, total, squares


@_compiled
def small_integers(values: Any) -> Any:
    """Least, greatest, sum and sum of squares of 8-bit integers, exact; `values` is not empty."""
    low = high = values[0]
    total = squares = np.int64(0)
    for start in range(0, values.size, _SMALL):
        part = part_squares = np.int32(0)  # four times as many fit a register as of 64 bits
        for value in values[start : start + _SMALL]:
            low = min(low, value)
            high = max(high, value)
            wide = np.int32(value)
            part = np.int32(part + wide)
            part_squares = np.int32(part_squares + np.int32(wide * wide))
        total += part
        squares += part_squares
    return low, high, total, squares


@_compiled
def floats(values: Any, bits: Any, magnitude: Any, pivot: float) -> Any:
    """Least and greatest sort key, sum and sum of squares of the distances from `pivot`.

    Args:
        values: float32 or float64, not empty.
        bits: the same bytes as signed integers of their width.
        magnitude: all bits but the sign, as such an integer.
        pivot: near the mean.
    """
    low, high = magnitude, ~magnitude
    total = squares = 0.0
    for place in range(values.size):
        bit = bits[place]
        key = bit ^ magnitude if bit < 0 else bit
        low = min(low, key)
        high = max(high, key)
        distance = np.float64(values[place]) - pivot
        total += distance
        squares += distance * distance
    return low, high, total, squares


@_compiled
def bfloats(rows: Any, pivot: Any) -> Any:
    """As `floats`, for bfloat16: its bits are the upper half of a float32.

    Args:
        rows: int16 ``[n, m]``, not empty; `m` few thousands, for the sums of a row are taken in single precision.
        pivot: float32.
    """
    low, high = np.int16(32767), np.int16(-32768)
    total = squares = 0.0
    for row in range(rows.shape[0]):
        low, high = _key_bounds(rows[row], low, high)
        part: Any = np.float32(0)
        part_squares: Any = np.float32(0)
        for column in range(rows.shape[1]):
            moved = np.int32(np.int32(rows[row, column]) << 16)
            distance = moved.view(np.float32) - pivot
            part += distance
            part_squares += distance * distance
        total += part
        squares += part_squares
    return low, high, total, squares


@_compiled
def halves(rows: Any, pivot: Any) -> Any:
    """As `bfloats`, for float16. With shift and factor as arguments, one loop for both takes half as long again.

    Moved into a float32 its exponent has the wrong bias. A factor of 2 ** 112 puts that right, also of subnormals.
    """
    low, high = np.int16(32767), np.int16(-32768)
    total = squares = 0.0
    for row in range(rows.shape[0]):
        low, high = _key_bounds(rows[row], low, high)
        part: Any = np.float32(0)
        part_squares: Any = np.float32(0)
        for column in range(rows.shape[1]):
            moved = np.int32((np.int32(rows[row, column]) << 13) & np.int32(-1879056384))  # sign and 15 lower bits
            distance = moved.view(np.float32) * np.float32(2.0**112) - pivot
            part += distance
            part_squares += distance * distance
        total += part
        squares += part_squares
    return low, high, total, squares


@_compiled
def _key_bounds(bits: Any, low: Any, high: Any) -> Any:
    """Least and greatest sort key: a loop of its own, in which a vector holds twice as many elements."""
    for place in range(bits.size):
        bit = bits[place]
        key = np.int16(bit ^ ((bit >> np.int16(15)) & np.int16(32767)))
        low = min(low, key)
        high = max(high, key)
    return low, high

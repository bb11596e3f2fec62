"""This module knows how two sets of episodes are told apart by a test that permutes whole episodes.

It does not know which episodes are compared, nor what a difference means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer

__all__ = ["SURE", "chance", "gaps", "labels", "thinned"]

SURE = 0.01
"""Share of permutations that may reach a difference which is still called one."""
_PERMUTATIONS = 200
_SEED = 0
_LEVELS = 64


def labels(first: int, second: int) -> NDArray[Any]:
    """Which of `first` + `second` groups are on the first side: 1 or 0 as float32, ``[permutations + 1, groups]``.

    Row 0 is the real division, the others are seeded permutations of it, the same at every call.
    """
    import numpy as np

    rng = np.random.default_rng(_SEED)
    found = np.zeros((_PERMUTATIONS + 1, first + second), np.float32)
    found[0, :first] = 1
    for number in range(1, _PERMUTATIONS + 1):
        found[number] = rng.permutation(found[0])
    return found


def thinned(buffer: Buffer, first: NDArray[Any], last: NDArray[Any], limit: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions of about `limit` evenly spread steps of some episodes, and the number of the episode of each."""
    import numpy as np

    lengths = (last - first) // buffer.stride + 1
    total = int(lengths.sum())
    step = max(1, -(-total // limit))
    number = np.repeat(np.arange(len(first)), lengths)
    offset = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    positions = first[number] + offset * buffer.stride
    return positions[::step], number[::step]


def gaps(values: NDArray[Any], number: NDArray[Any], sides: NDArray[Any]) -> NDArray[Any]:
    """Greatest distance between the cumulative distributions of the two sides, for every division: ``[rows, dims]``.

    Args:
        values: numbers ``[m, dims]``; what is not finite is left out.
        number: int ``[m]``, group of each row of values.
        sides: float32 ``[rows, groups]``, which groups are on the first side; see `labels`.
    """
    import numpy as np

    groups = sides.shape[1]
    counts = np.zeros((values.shape[1], groups, _LEVELS + 1), np.float32)
    for dim, column in enumerate(values.T):
        _count(column.astype(np.float64), number, counts[dim])
    # One product for all dims. Counts below 2**24 add up exactly in single precision, in half the time.
    flat = counts.transpose(1, 0, 2).reshape(groups, -1)
    first = (sides @ flat).reshape(len(sides), *counts.shape[::2]).cumsum(axis=2, dtype=np.float64)
    second = counts.sum(axis=1).cumsum(axis=1, dtype=np.float64) - first
    distance = first / np.maximum(1, first[:, :, -1:]) - second / np.maximum(1, second[:, :, -1:])
    found: NDArray[Any] = np.abs(distance).max(axis=2)
    return found


def _count(values: NDArray[Any], number: NDArray[Any], counts: NDArray[Any]) -> None:
    """Counts the values of each group between quantiles of all of them, into ``[groups, _LEVELS + 1]``."""
    import numpy as np

    good = np.isfinite(values)
    values, number = values[good], number[good]
    if not len(values):
        return
    levels = np.unique(values)
    if len(levels) > _LEVELS:
        levels = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS + 1)))
    cell = np.minimum(np.searchsorted(levels, values, side="left"), len(levels) - 1)
    counts[:] = np.bincount(number * counts.shape[1] + cell, minlength=counts.size).reshape(counts.shape)


def chance(gap: NDArray[Any]) -> float:
    """How often a permutation reaches the real value, which is the first: 1 where all are alike."""
    return (int((gap[1:] >= gap[0] - 1e-12).sum()) + 1) / len(gap)

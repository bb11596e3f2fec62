"""This module knows the rule about a buffer whose oldest and newest episodes come from different distributions.

It does not know why they differ: a policy that learns drifts, and so does a normalisation or a broken sensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis import permutation
from tdview.analysis.columns import Key, flat_rows
from tdview.analysis.episodes import EpisodeTable, episode_table
from tdview.analysis.order import row_ranges
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import finding
from tdview.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["drift"]

_LEAST_EPISODES = 5  # of each tenth: with fewer, too few permutations differ from each other
_MOST_EPISODES = 128  # of each tenth, evenly spread: more say nothing new and cost time
_POINTS = 6000  # steps of both tenths together
_WIDEST = 512  # values of a row; images are not compared value by value
_DIMS = 64
_LEAST_DISTANCE = 0.2
_SURE = 0.005  # of all dims together: no permutation of 200 goes as far


def drift(buffer: Buffer) -> Iterator[Problem]:
    """The newest tenth of the rows is distributed as the oldest one: the policy and the world stayed as they were.

    Whole episodes of the two tenths change sides at random. A difference counts if none of 200 such permutations
    goes as far in *any* dim of any leaf, so that wide buffers give no more false alarms than narrow ones.
    """
    if buffer.fill is None or not buffer.fill.certain:
        return
    tenths = _tenths(buffer)
    if tenths is None:
        return
    sides = permutation.labels(*(int((tenths.side == side).sum()) for side in (0, 1)))
    found = [*_leaf_gaps(buffer, tenths, sides), *_episode_gaps(buffer, tenths, sides)]
    for key, name, distance in _beyond_chance(found):
        text = (
            f"{name} differs between the oldest and the newest tenth of the rows: distance {distance:.2f} of the "
            "cumulative distributions, more than whole episodes that change sides give. A policy that learns drifts "
            "so; with a fixed policy the environment, a normalisation or a sensor changed"
        )
        yield finding("shift", "note", text, key, _newest_rows(buffer))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenths:
    """The episodes that are compared, those of the oldest tenth first."""

    table: EpisodeTable
    chosen: NDArray[Any]
    """Their numbers in the table."""
    side: NDArray[Any]
    """0 for the oldest tenth, 1 for the newest one."""


def _tenths(buffer: Buffer) -> _Tenths | None:
    """Whole episodes inside the oldest and the newest tenth of the rows; None if they are too few.

    The first and the last episode of a lane are left out: the ring or the end of the run may have cut them, and
    what is cut is no fair draw.
    """
    import numpy as np

    table = episode_table(buffer)
    first, last = table.first, table.last
    if buffer.permutation is not None:  # sorted by trajectory: the position in the ring tells the time
        first, last = buffer.permutation[first], buffer.permutation[last]
    tenth, stride = buffer.n // 10, buffer.stride
    oldest = np.flatnonzero((first >= stride) & (last < tenth))
    newest = np.flatnonzero((first >= buffer.n - tenth) & (last < buffer.n - stride))
    if min(len(oldest), len(newest)) < _LEAST_EPISODES:
        return None
    spread = [
        some[np.unique(np.linspace(0, len(some) - 1, _MOST_EPISODES).astype(np.int64))] for some in (oldest, newest)
    ]
    return _Tenths(table=table, chosen=np.concatenate(spread), side=np.repeat([0, 1], [len(some) for some in spread]))


def _newest_rows(buffer: Buffer) -> tuple[tuple[int, int], ...]:
    import numpy as np

    return row_ranges(buffer._ring(np.arange(buffer.n - buffer.n // 10, buffer.n)) // buffer.inner)


_Gap = tuple[Key, str, "NDArray[Any]"]


def _leaf_gaps(buffer: Buffer, tenths: _Tenths, sides: NDArray[Any]) -> Iterator[_Gap]:
    first, last = tenths.table.first[tenths.chosen], tenths.table.last[tenths.chosen]
    positions, number = permutation.thinned(buffer, first, last, _POINTS)
    for key in dict.fromkeys([*buffer.observed_keys, *buffer.action_keys, *buffer.reward_keys]):
        column = buffer.columns[key]
        if key in buffer.image_keys or col.is_complex(column) or column.feature_size > _WIDEST or buffer.is_heavy(key):
            continue
        buffer.tick()
        rows = flat_rows(buffer.take(key, positions))
        for dim, gap in enumerate(permutation.gaps(rows[:, :_DIMS], number, sides).T):
            yield key, f"dim {dim}" if rows.shape[1] > 1 else "the value", gap


def _episode_gaps(buffer: Buffer, tenths: _Tenths, sides: NDArray[Any]) -> Iterator[_Gap]:
    import numpy as np

    table, chosen = tenths.table, tenths.chosen
    numbers: list[tuple[Key, str, NDArray[Any]]] = []
    if buffer.end_keys:
        numbers.append((buffer.end_keys[0], "the length of the episodes", table.lengths[chosen]))
    if table.returns is not None:
        numbers.append((buffer.reward_keys[0], "the return of the episodes", table.returns[chosen]))
    for key, name, values in numbers:
        yield key, name, permutation.gaps(values[:, None], np.arange(len(chosen)), sides)[:, 0]


def _beyond_chance(found: list[_Gap]) -> Iterator[tuple[Key, str, float]]:
    """Of each leaf the dim that differs most, if chance does not explain it.

    Distances are compared in deviations of their own permutations, and held against the greatest one that a
    permutation reaches in any dim.
    """
    import numpy as np

    if not found:
        return
    gap = np.stack([one for _, _, one in found])
    spread = gap.std(axis=1, keepdims=True)
    score = (gap - gap.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    greatest = score.max(axis=0)
    best: dict[Key, tuple[float, str]] = {}
    for (key, name, _), distance, own in zip(found, gap[:, 0], score[:, 0], strict=True):
        reached = (int((greatest[1:] >= own - 1e-9).sum()) + 1) / len(greatest)
        if reached <= _SURE and distance > _LEAST_DISTANCE:
            best[key] = max(best.get(key, (0.0, "")), (float(distance), name))
    for key, (distance, name) in best.items():
        yield key, name, distance

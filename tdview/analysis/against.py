"""This module knows how two buffers are compared as data sets: same schema, same distribution, shared rows.

It does not compare them value by value: see `tdview.diff`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis import permutation
from tdview.analysis.columns import Key, flat_rows
from tdview.analysis.episodes import episode_table
from tdview.analysis.permutation import SURE
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.duplicates import row_hashes, runs
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["compare", "schema_problems"]

_POINTS = 20_000
_DIMS = 64
_LEAST_EPISODES = 4


def compare(mine: Buffer, theirs: Buffer, wanted: Sequence[str]) -> Iterator[Problem]:
    """Schema differences, then the wanted ones of ``"shift"`` and ``"leakage"``. Rows are those of `mine`."""
    yield from schema_problems(mine, theirs)
    if "leakage" in wanted:
        yield from leakage(mine, theirs)
    if "shift" in wanted:
        yield from shift(mine, theirs)


def schema_problems(mine: Buffer, theirs: Buffer) -> Iterator[Problem]:
    """Keys that only one of two buffers has, and leaves of another dtype or shape."""
    for key in sorted(set(mine.columns) | set(theirs.columns)):
        a, b = mine.columns.get(key), theirs.columns.get(key)
        if a is None or b is None:
            where = theirs.where if a is None else mine.where
            text = f"only {shown(where, 60)} has this leaf"
            yield finding("schema", "warning", text, key)
        elif (a.dtype, a.feature) != (b.dtype, b.feature):
            text = f"{a.dtype} {list(a.feature)} here, {b.dtype} {list(b.feature)} there (sizes behind the batch)"
            yield finding("schema", "error", text, key)


# -- shift ---


def shift(mine: Buffer, theirs: Buffer) -> Iterator[Problem]:
    """Dims whose distribution differs more than whole episodes that change sides at random would make it.

    The largest distance between the two cumulative distributions is compared with what 200 seeded permutations of
    whole episodes give: rows of one episode are alike, so the usual critical values would see a shift everywhere.
    """
    import numpy as np

    if not (mine.sequential and theirs.sequential and mine.n_valid and theirs.n_valid):
        return
    sides = (_episodes(mine), _episodes(theirs))
    few = min(len(side[0]) for side in sides)
    if few < _LEAST_EPISODES:
        yield finding("not_checked", "note", f"one side has {few} episodes: too few to tell a shift from chance")
        return
    labels = permutation.labels(len(sides[0][0]), len(sides[1][0]))
    for key in [*mine.observed_keys, *mine.action_keys, *mine.reward_keys]:
        ours, other = mine.columns[key], theirs.columns.get(key)
        if other is None or (other.feature, other.dtype) != (ours.feature, ours.dtype) or col.is_complex(ours):
            continue
        if key in mine.image_keys or ours.feature_size > 512:
            yield finding("not_checked", "note", "images are not compared value by value", key)
            continue
        yield from _shifted_dims(mine, theirs, key, sides, labels)
    for name, values in _episode_numbers(mine, theirs):
        gap = permutation.gaps(values[:, None], np.arange(len(values)), labels)[:, 0]
        chance = permutation.chance(gap)
        if chance <= SURE and gap[0] > 0.2:
            text = f"the {name}s of the episodes differ: distance {gap[0]:.2f}, by chance at most in {chance:.1%}"
            yield finding("shift", "warning", text, mine.reward_keys[0] if name == "return" else ())


def _episodes(buffer: Buffer) -> tuple[NDArray[Any], NDArray[Any]]:
    """First and last positions of the episodes."""
    import numpy as np

    table = episode_table(buffer)
    if not buffer.ordered:  # every row stands for itself
        rows = np.arange(buffer.n)
        return rows, rows
    return table.first, table.last


def _shifted_dims(
    mine: Buffer, theirs: Buffer, key: Key, sides: tuple[Any, Any], labels: NDArray[Any]
) -> Iterator[Problem]:
    import numpy as np

    a, a_number = permutation.thinned(mine, sides[0][0], sides[0][1], _POINTS)
    b, b_number = permutation.thinned(theirs, sides[1][0], sides[1][1], _POINTS)
    mine.tick()
    left = flat_rows(mine.take(key, a))
    right = flat_rows(theirs.take(key, b))
    number = np.concatenate([a_number, b_number + len(sides[0][0])])
    worst: list[tuple[float, int]] = []
    both = np.concatenate([left[:, :_DIMS], right[:, :_DIMS]])
    for dim, gap in enumerate(permutation.gaps(both, number, labels).T):
        if permutation.chance(gap) <= SURE and gap[0] > 0.1:
            worst.append((float(gap[0]), dim))
    if worst:
        distance, dim = max(worst)
        text = (
            f"{len(worst)} dims are distributed differently, most of all dim {dim}: distance {distance:.2f} between "
            f"the cumulative distributions, which episodes changing sides reach in less than {SURE:.0%} of all tries"
        )
        yield finding("shift", "warning", text, key)


def _episode_numbers(mine: Buffer, theirs: Buffer) -> Iterator[tuple[str, NDArray[Any]]]:
    import numpy as np

    if not (mine.ordered and theirs.ordered and mine.end_keys and theirs.end_keys):
        return
    ours, other = episode_table(mine), episode_table(theirs)
    yield "length", np.concatenate([ours.lengths, other.lengths]).astype(np.float64)
    if ours.returns is not None and other.returns is not None:
        yield "return", np.concatenate([ours.returns, other.returns])


# -- leakage ---


def leakage(mine: Buffer, theirs: Buffer) -> Iterator[Problem]:
    """Rows that both buffers hold: same observation, action and next observation."""
    import numpy as np

    keys = tuple(
        key
        for key in (*mine.observed_keys, *mine.action_keys, *(("next", *k) for k in mine.observed_keys))
        if key in theirs.columns
        and (theirs.columns[key].feature, theirs.columns[key].dtype)
        == (mine.columns[key].feature, mine.columns[key].dtype)
        and not mine.is_heavy(key)
        and not theirs.is_heavy(key)
    )
    if not keys or not any(key in mine.observed_keys for key in keys):
        yield finding("not_checked", "note", "the buffers share no observation leaf, so shared rows are not looked for")
        return
    shared = _shared(mine, theirs, keys, narrow=False)
    close = shared if len(shared) else _shared(mine, theirs, keys, narrow=True)
    stretches = runs(shared, mine.stride, 2)
    if len(shared) and (stretches or len(shared) > 0.01 * mine.n_valid):
        text = (
            f"{len(shared)} of {counted(mine.n_valid, 'row')} also in {shown(theirs.where, 60)}"
            f" ({counted(_episodes_hit(mine, shared), 'episode')} touched): split by episode, not by row"
        )
        yield finding("train_test_leak", "error", text, (), mine.ranges(shared))
    elif not len(shared) and runs(close, mine.stride, 5):
        text = f"{counted(len(close), 'row')} also in {shown(theirs.where, 60)}, rounded to half precision"
        yield finding("train_test_leak", "warning", text, (), mine.ranges(close))
    elif len(shared):
        text = f"{counted(len(shared), 'single row')} also in {shown(theirs.where, 60)}: expected in a small world"
        yield finding("train_test_leak", "note", text, (), mine.ranges(np.asarray(shared)))


def _shared(mine: Buffer, theirs: Buffer, keys: tuple[Key, ...], *, narrow: bool) -> NDArray[Any]:
    import numpy as np

    here, there = row_hashes(mine, keys, narrow=narrow), row_hashes(theirs, keys, narrow=narrow)
    if theirs.valid is not None:
        there = there[theirs.valid]
    found = np.isin(here, there)
    if mine.valid is not None:
        found &= mine.valid
    return np.flatnonzero(found)


def _episodes_hit(buffer: Buffer, positions: NDArray[Any]) -> int:
    import numpy as np

    table = episode_table(buffer)
    if buffer.stride > 1 or not len(table.first):
        return len(table.first)
    return len(np.unique(np.searchsorted(np.sort(table.first), positions, side="right")))

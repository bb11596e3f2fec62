"""This module knows the rule about rows that occur twice, and the row hashes that it and the leak check use.

It does not know why rows were doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, bits
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["duplicates", "hash_keys", "row_hashes", "runs"]

_LIMIT = 16 << 20  # rows: hashes, their order and a sorted copy then stay below 400 MB
_RUN = 5


def _hash(chunk: Chunk, keys: tuple[Key, ...], narrow: bool) -> NDArray[Any]:
    """A 64-bit hash of each row over several leaves: equal bytes give equal hashes."""
    import numpy as np

    total = np.zeros(chunk.stop - chunk.start, np.uint64)
    salt = 0x9E3779B97F4A7C15
    for key in keys:
        values = chunk.get(key)
        if narrow and values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                values = values.astype(np.float16)
        words = bits(values)
        for word in range(words.shape[1]):
            salt = (salt * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) % (1 << 64)
            total += words[:, word].astype(np.uint64) * np.uint64(salt | 1)
            total ^= total >> np.uint64(29)
            total *= np.uint64(0xBF58476D1CE4E5B9)
    return total


def hash_keys(buffer: Buffer) -> tuple[Key, ...]:
    """What identifies a step: observations, actions and rewards; heavy leaves only where nothing else does."""
    named = tuple(k for k in buffer.columns if k[0] != "next" and k[-1] in ("observation", "pixels", "state"))
    parts = (*(buffer.observed_keys or named), *buffer.action_keys, *buffer.reward_keys)
    keys = tuple(dict.fromkeys(parts))
    light = tuple(key for key in keys if not buffer.is_heavy(key))
    return light if any(k in buffer.observed_keys or k in named for k in light) else ()


def row_hashes(buffer: Buffer, keys: tuple[Key, ...], *, narrow: bool = False) -> NDArray[Any]:
    """Hashes ``[n]`` uint64 of all positions over `keys`; `narrow` rounds floats to float16 first."""
    import numpy as np

    parts = buffer.map(_hash, *keys, arguments=(keys, narrow))
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def runs(positions: NDArray[Any], stride: int, least: int) -> list[tuple[int, int]]:
    """Stretches of at least `least` positions that follow each other at distance `stride`: pairs (first, count)."""
    import numpy as np

    found: list[tuple[int, int]] = []
    for lane in range(stride):
        mine = positions[positions % stride == lane] if stride > 1 else positions
        if not len(mine):
            continue
        cuts = np.flatnonzero(np.diff(mine) != stride)
        first = np.concatenate([[0], cuts + 1])
        count = np.diff(np.concatenate([first, [len(mine)]]))
        long = count >= least
        found += list(zip(mine[first[long]].tolist(), count[long].tolist(), strict=True))
    return found


def duplicates(buffer: Buffer) -> Iterator[Problem]:
    """No stretch of rows is stored twice."""
    import numpy as np

    keys = hash_keys(buffer)
    if not keys or buffer.n < 2 * _RUN:
        return
    if buffer.n > _LIMIT:
        text = f"repeated rows are looked for in buffers of up to {_LIMIT} rows, this one has {buffer.n}"
        yield finding("not_checked", "note", text)
        return
    hashes = row_hashes(buffer, keys)
    members = np.arange(buffer.n) if buffer.valid is None else np.flatnonzero(buffer.valid)
    ordered = np.sort(hashes[members])
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return
    members = members[np.isin(hashes[members], twice)]
    order = members[np.argsort(hashes[members], kind="stable")]
    same = hashes[order][1:] == hashes[order][:-1]
    later, earlier = order[1:][same], order[:-1][same]
    back = np.zeros(buffer.n, np.int64)
    back[later] = later - earlier
    copies = np.sort(later)
    linked: list[tuple[int, int]] = []
    for first, count in runs(copies, buffer.stride, _RUN):
        steps = first + np.arange(count) * buffer.stride
        linked += [
            (int(steps[a]), b - a)
            for a, b in _equal_stretches(back[steps])
            if b - a >= _RUN and back[steps[a]] >= (b - a) * buffer.stride
        ]
    if not linked:
        return
    small = len(copies) > 0.5 * buffer.n_valid
    rows = np.concatenate([first + np.arange(count) * buffer.stride for first, count in linked])
    text = (
        f"{counted(len(rows), 'row')} in {counted(len(linked), 'run')} were there before: added twice, weighing double"
        if not small
        else f"{len(copies)} of {buffer.n_valid} rows were there before: a small world, or data that was added twice"
    )
    yield finding("duplicate_rows", "note" if small else "warning", text, (), buffer.ranges(rows))


def _equal_stretches(values: NDArray[Any]) -> list[tuple[int, int]]:
    import numpy as np

    cuts = np.flatnonzero(np.diff(values)) + 1
    edges = [0, *cuts.tolist(), len(values)]
    return list(pairwise(edges))

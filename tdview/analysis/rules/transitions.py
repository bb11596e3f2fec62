"""This module knows the rules about a step and the next one: what a step leads to, and what an episode ends in.

It does not know rewards, actions or counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, bits, equal_rows, flat_rows
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.flags import events_of
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["boundary_leak", "frozen_observation", "next_observation"]


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0, np.int64)


# -- inside an episode ---


def _unlike_next_row(chunk: Chunk, key: Key) -> tuple[NDArray[Any], int]:
    """Positions whose next value is not the value of the next row, and how many were compared."""
    inner = chunk.inner
    same = equal_rows(chunk.get(("next", *key))[: chunk.followed], chunk.after(key))
    return chunk.positions(~same & inner), int(inner.sum())


def next_observation(buffer: Buffer) -> Iterator[Problem]:
    """What a step leads to is what the next row of the episode starts from, bit for bit."""
    for key in buffer.observed_keys:
        parts = buffer.map(_unlike_next_row, key, ("next", *key), arguments=(key,))
        wrong, compared = _join([p[0] for p in parts]), sum(p[1] for p in parts)
        if not len(wrong):
            continue
        share = len(wrong) / compared
        if share > 0.5:
            text = f"the next row starts from something else in {share:.0%} of the steps: rows are not in time order, "
            text += "or next holds something else than the following observation"
        else:
            text = f"the next row starts from something else in {len(wrong)} of {compared} steps: rows were dropped, "
            text += "reordered, overwritten or joined without an end flag"
        yield finding(
            "next_obs_consistency", "warning" if share > 0.5 else "error",
            text, ("next", *key), buffer.ranges(wrong),
        )  # fmt: skip
    yield from _next_texts(buffer)


def _next_texts(buffer: Buffer) -> Iterator[Problem]:
    """The same of values that are no tensors, as the mission of a step is."""
    import numpy as np

    values = buffer.read_values()
    if not values:
        return
    positions = np.flatnonzero(~buffer.breaks[: max(0, buffer.n - buffer.stride)])
    rows, behind = buffer.storage_rows(positions), buffer.storage_rows(positions + buffer.stride)
    for key, now in values.items():
        then = values.get(("next", *key))
        if then is None:
            continue
        pairs = zip(rows.tolist(), behind.tolist(), strict=True)
        wrong = positions[[then[row] != now[after] for row, after in pairs]] if len(positions) else positions
        if len(wrong):
            text = f"the next row has another value in {len(wrong)} of {len(positions)} steps: next shares the value "
            text += "of its own row, or rows were dropped, reordered or joined"
            yield finding("next_obs_consistency", "warning", text, ("next", *key), buffer.ranges(wrong))


def _unchanged(chunk: Chunk, key: Key) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions where a step changes nothing though the next row differs, and where it changes nothing at all."""
    import numpy as np

    m, now = chunk.followed, chunk.get(key)
    still = equal_rows(now, chunk.get(("next", *key)))
    if not still.any():
        none = np.empty(0, np.int64)
        return none, none
    moved = np.zeros(len(still), bool)
    moved[:m] = ~equal_rows(now[:m], chunk.after(key)) & chunk.inner
    return chunk.positions(still & moved), chunk.positions(still & ~moved)


def frozen_observation(buffer: Buffer) -> Iterator[Problem]:
    """A step changes the observation: next is not a copy of the root, and no camera hangs."""
    for key in buffer.observed_keys:
        column = buffer.columns[key]
        if column.feature_size < 2 or _is_constant(buffer, key):
            continue
        parts = buffer.map(_unchanged, key, ("next", *key), arguments=(key,))
        aliased, frozen = _join([p[0] for p in parts]), _join([p[1] for p in parts])
        read = buffer.n_valid if not buffer.is_heavy(key) else max(1, sum(b - a for a, b in buffer.sampled((key,))))
        if len(aliased) and not buffer.n_step:
            slow = len(frozen) > 0.5 * read  # a goal or task that changes now and then is no observation
            text = (
                f"next equals the root in {counted(len(aliased), 'row')} while the following row differs: next was "
                "aliased to the root or never written"
            )
            rows = buffer.ranges(aliased)
            yield finding("next_equals_obs", "warning" if slow else "error", text, ("next", *key), rows)
        limit = 0.2 if key in buffer.image_keys or not col.is_float(column) else 0.02
        if len(frozen) > 0.9 * read:
            text = "the leaf hardly ever changes inside an episode, as a goal or a task does"
            yield finding("frozen_observation", "note", text, key)
        elif len(frozen) > max(limit * read, 2):
            text = (
                f"{len(frozen) / read:.0%} of the steps leave the observation as it is: a frozen camera or sensor, or "
                "an environment that was not stepped"
            )
            yield finding("frozen_observation", "warning", text, key, buffer.ranges(frozen))


def _spread(buffer: Buffer, key: Key) -> NDArray[Any]:
    """The bytes of up to 256 evenly spread steps, as words ``[k, words]``."""
    import numpy as np

    spread = np.unique(np.linspace(0, max(0, buffer.n - 1), min(buffer.n, 256)).astype(np.int64))
    if buffer.valid is not None:
        spread = spread[buffer.valid[spread]]
    return bits(buffer.take(key, spread))


def _is_constant(buffer: Buffer, key: Key) -> bool:
    """Whether a leaf holds the same bytes wherever it is looked at."""
    values = _spread(buffer, key)
    return len(values) < 2 or bool((values == values[:1]).all())


def _is_discrete(buffer: Buffer, key: Key) -> bool:
    """Whether values of a leaf come back, as the states of a small world do: equality then says little."""
    import numpy as np

    values = _spread(buffer, key)
    return len(np.unique(values, axis=0)) < 0.9 * len(values)


# -- at the end of an episode ---


def _restarts(buffer: Buffer) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Ends behind which another episode starts, the lane's last ends, and whether something shows the restart."""
    import numpy as np

    events = events_of(buffer)
    shown = buffer.id_key is not None or buffer.step_key is not None
    ends = events.ends
    if shown:  # a flag that only marks the end of a batch leaves id and step count running: nothing was reset
        ends = np.intersect1d(ends, np.union1d(events.changes, events.resets))
    return ends, events.ends, shown


def boundary_leak(buffer: Buffer) -> Iterator[Problem]:
    """What an episode ends in is its own last observation, not the first one of the next episode."""
    if not buffer.end_keys:
        return
    ends, all_ends, shown = _restarts(buffer)
    if not len(all_ends):
        return
    cut = _truncated_only(buffer, all_ends)
    for key in buffer.observed_keys:
        column = buffer.columns[key]
        if column.feature_size < 2 or _is_constant(buffer, key):
            continue
        limit = (buffer.options.sample or len(all_ends)) if buffer.is_heavy(key) else len(all_ends)
        yield from _leaks(buffer, key, _thin(ends, limit), cut, shown)
        yield from _not_stored(buffer, key, _thin(all_ends, limit), cut)


def _thin(positions: NDArray[Any], limit: int) -> NDArray[Any]:
    """At most `limit` of the positions, evenly spread."""
    import numpy as np

    if len(positions) <= limit:
        return positions
    return positions[np.unique(np.linspace(0, len(positions) - 1, limit).astype(np.int64))]


def _truncated_only(buffer: Buffer, ends: NDArray[Any]) -> NDArray[Any]:
    """The ends that are truncated and not terminated: a value is bootstrapped from what they lead to."""
    import numpy as np

    truncated, terminated = buffer.flag_key("truncated"), buffer.flag_key("terminated")
    if truncated is None:
        return np.empty(0, np.int64)
    set_there = flat_rows(buffer.take(truncated, ends) != 0).all(axis=1)
    if terminated is not None:
        set_there &= ~flat_rows(buffer.take(terminated, ends) != 0).any(axis=1)
    found: NDArray[Any] = ends[set_there]
    return found


def _blocks(positions: NDArray[Any], column: col.Column) -> Iterator[NDArray[Any]]:
    step = max(1, (4 << 20) // max(1, col.nbytes(column)))
    for start in range(0, len(positions), step):
        yield positions[start : start + step]


def _leaks(buffer: Buffer, key: Key, ends: NDArray[Any], cut: NDArray[Any], shown: bool) -> Iterator[Problem]:
    import numpy as np

    after = ("next", *key)
    found = []
    for part in _blocks(ends, buffer.columns[key]):
        buffer.tick()
        last, first = buffer.take(after, part), buffer.take(key, part + buffer.stride)
        flat = flat_rows(last)
        told = (flat != flat[:, :1]).any(axis=1)  # a blank frame or a zero vector says nothing
        found.append(part[equal_rows(last, first) & told])
    leaked = _join(found)
    if not len(leaked):
        return
    counts = col.is_float(buffer.columns[key]) or key in buffer.image_keys
    proven = shown or bool(np.setdiff1d(leaked, cut).size)
    few = len(leaked) < 0.5 * len(ends) and _is_discrete(buffer, key)
    plain = "info" in key or not counts or not proven or few
    text = (
        f"after {len(leaked)} of {len(ends)} ends, next holds the first observation of the following episode: the "
        "environment was reset before the last observation was stored"
    )
    yield finding("boundary_leak", "warning" if plain else "error", text, after, buffer.ranges(leaked))


def _zero_rows(chunk: Chunk, key: Key) -> int:
    return int((~bits(chunk.get(key)).any(axis=1)).sum())


def _holds_zeros(buffer: Buffer, key: Key) -> bool:
    """Whether zero is an ordinary value of the whole leaf, as the origin of a small world is."""
    return sum(buffer.map(_zero_rows, key, arguments=(key,))) > buffer.n - buffer.n_valid


def _not_stored(buffer: Buffer, key: Key, ends: NDArray[Any], cut: NDArray[Any]) -> Iterator[Problem]:
    import numpy as np

    after = ("next", *key)
    found = []
    for part in _blocks(ends, buffer.columns[key]):
        empty = ~bits(buffer.take(after, part)).any(axis=1)
        found.append(part[empty & bits(buffer.take(key, part)).any(axis=1)])
    missing = _join(found)
    if not len(missing):
        return
    wrong = np.intersect1d(missing, cut)
    text = f"after {len(missing)} of {len(ends)} ends, next is zero: the last observation is not stored"
    if not len(wrong):
        yield finding("no_terminal_observation", "note", text, after, buffer.ranges(missing))
        return
    dumped = buffer.side is not None and buffer.side.length is not None
    sure = col.is_float(buffer.columns[key]) and "info" not in key and key not in buffer.image_keys
    if not dumped and len(missing) == len(ends):  # offline data sets pad every end with zeros
        sure = False
    sure = sure and not _holds_zeros(buffer, key)
    text += f"; {len(wrong)} of them are truncated, so their value is bootstrapped from zeros"
    yield finding("no_terminal_observation", "error" if sure else "warning", text, after, buffer.ranges(wrong))

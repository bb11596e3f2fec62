"""This module knows the episodes of a buffer: where they start and stop, how they end, what they add up to.

It does not know whether that is plausible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, flat_rows
from tdview.analysis.order import episodes_of
from tdview.analysis.parts import Options
from tdview.analysis.replay import Buffer, Progress
from tdview.errors import DecodeError

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from tdview.tree.node import Node

__all__ = ["EpisodeTable", "episode_frame", "episode_rows", "episode_table", "episodes"]

COLUMNS = (
    "member", "lane", "id", "start", "stop", "time_start", "time_stop", "length", "return", "ending", "cut", "nan",
    "disagreement", "rows",
)  # fmt: skip


def episodes(
    path: str | os.PathLike[str] | Node,
    *,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    time_dim: int | None = None,
    progress: Progress | None = None,
) -> pandas.DataFrame:
    """The episodes of a saved replay buffer or data set, one row each, lane by lane in the order of time.

    Reads end flags, ids, step counts and rewards of the valid rows, and light float leaves to count NaN.

    Args:
        path: anything `scan` opens, or its node.
        keys: which entry plays which part, as in `audit`.
        time_dim: batch dim along which time runs, as in `audit`.
        progress: called as ``progress(done, total)`` between blocks; what it raises stops the work.

    Returns:
        A frame with the columns

        - ``member``: key of the buffer in a collection, else empty; ``lane``: environment or padded row, from 0;
        - ``id``: trajectory id, missing where there is none;
        - ``start``, ``stop``: storage rows of the first step and behind the last one (``stop <= start`` where the
          episode runs over the end of the ring); ``rows``: the same as half-open ranges of storage rows;
        - ``time_start``, ``time_stop``: half-open, in the order of time, oldest step 0;
        - ``length`` in steps; ``return``: sum of the reward, of all agents together;
        - ``ending``: ``"terminated"``, ``"truncated"``, ``"done"`` (only done is stored), ``"seam"`` (the newest
          episode of a full ring, cut where the ring goes on) or ``"open"``;
        - ``cut``: its first steps were overwritten by the ring;
        - ``nan``: NaN and infinite values in its rows;
        - ``disagreement``: where end flag, id and step count contradict each other, else empty.

    Raises:
        DecodeError: there is no saved tensordict at `path`.
        ArgumentError: a part or key that does not exist.
    """
    import pandas as pd

    from tdview.analysis.buffers import buffers_below
    from tdview.tree.node import Node
    from tdview.tree.scan import open_root

    root = path if isinstance(path, Node) else open_root(path)
    options = Options(
        keys={part: (key,) if isinstance(key, str) else tuple(key) for part, key in (keys or {}).items()},
        time_dim=time_dim,
    )
    members = list(buffers_below(root))
    frames = []
    for number, node in enumerate(members):

        def tick(number: int = number) -> None:
            if progress is not None:
                progress(number, len(members))

        frames.append(_frame_of(node, options, tick))
    if progress is not None:
        progress(len(members), len(members))
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(COLUMNS))


def _frame_of(node: Node, options: Options, tick: Callable[[], None]) -> pandas.DataFrame:
    """The episodes of a node; where a leaf turns out to be unreadable, once more without such leaves."""
    from tdview.analysis.buffers import buffer_of

    try:
        buffer = buffer_of(node, options)
        buffer.tick = tick
        return episode_frame(buffer, member=".".join(node.path))
    except DecodeError:
        buffer = buffer_of(node, replace(options, careful=True))
        buffer.tick = tick
        return episode_frame(buffer, member=".".join(node.path))


def episode_frame(buffer: Buffer, member: str = "") -> pandas.DataFrame:
    """The episodes of one buffer as a frame; see `episodes` for its columns."""
    import numpy as np
    import pandas as pd

    if not (buffer.sequential and buffer.ordered and buffer.columns):
        return pd.DataFrame(columns=list(COLUMNS))
    table = episode_table(buffer)
    first, last = table.first, table.last
    lane = _lanes(buffer, first)
    ids = flat_rows(buffer.take(buffer.id_key, first))[:, 0] if buffer.id_key is not None else None
    order = _time_order(buffer, first)
    frame = {
        "member": member,
        "lane": lane,
        "id": pd.array(ids if ids is not None else [None] * len(first), dtype="Int64"),
        "start": buffer.storage_rows(first),
        "stop": buffer.storage_rows(last) + 1,
        "time_start": order,
        "time_stop": order + table.lengths,
        "length": table.lengths,
        "return": table.returns if table.returns is not None else np.full(len(first), np.nan),
        "ending": _endings(buffer, last),
        "cut": _cut(buffer, first),
        "nan": _nan_counts(buffer, first, last),
        "disagreement": _disagreements(buffer, first, last),
        "rows": episode_rows(buffer, first, last),
    }
    return pd.DataFrame(frame, columns=list(COLUMNS))


def _lanes(buffer: Buffer, positions: NDArray[Any]) -> NDArray[Any]:
    if buffer.time_last:
        lanes: NDArray[Any] = buffer.elements(positions) // buffer.shape[-1]
        return lanes
    turns: NDArray[Any] = positions % buffer.stride
    return turns


def _time_order(buffer: Buffer, first: NDArray[Any]) -> NDArray[Any]:
    """Number of the first step along its lane, oldest 0."""
    if buffer.time_last:
        offset: NDArray[Any] = buffer.elements(first) % buffer.shape[-1]
        return offset
    return first // buffer.stride


def episode_rows(buffer: Buffer, first: NDArray[Any], last: NDArray[Any]) -> list[tuple[tuple[int, int], ...]]:
    """Storage rows of each episode as half-open ranges in the order of time."""
    starts, stops = buffer.storage_rows(first), buffer.storage_rows(last) + 1
    if buffer.permutation is not None:
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return [_ranges_between(buffer, a, b) for a, b in pairs]
    capacity = buffer.capacity
    return [
        ((a, b),) if a < b else ((a, capacity), (0, b)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def _ranges_between(buffer: Buffer, first: int, last: int) -> tuple[tuple[int, int], ...]:
    import numpy as np

    return buffer.ranges(np.arange(first, last + 1))


def _endings(buffer: Buffer, last: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    ending = np.full(len(last), "open", dtype=object)
    ring = buffer.fill is not None and buffer.fill.full and buffer.side is not None and buffer.side.length is not None
    if ring and not buffer.time_last and buffer.permutation is None and not buffer.profile:
        ending[last >= buffer.n - buffer.stride] = "seam"
    for name in ("done", "truncated", "terminated"):  # the last one that is set says most
        for key in buffer.end_keys:
            if key[-1] == name or key == buffer.options.keys.get(name):
                ending[flags_at(buffer, key, last)] = name
    return ending


def _cut(buffer: Buffer, first: NDArray[Any]) -> NDArray[Any]:
    """Which episodes are the oldest of a ring that wrapped and lack their first steps."""
    import numpy as np

    oldest = first < buffer.stride
    if buffer.fill is None or not buffer.fill.wrapped or buffer.time_last or not len(first):
        return np.zeros(len(first), bool)
    if buffer.step_key is None:
        return oldest
    started: NDArray[Any] = flat_rows(buffer.take(buffer.step_key, first))[:, 0] > 0
    both: NDArray[Any] = oldest & started
    return both


def _bad_counts(chunk: Chunk, key: Key) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    bad = ~np.isfinite(chunk.flat(key))
    positions = chunk.positions(bad.any(axis=1))
    return positions, bad[positions - chunk.start].sum(axis=1)


def _nan_counts(buffer: Buffer, first: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    counts = np.zeros(len(first), np.int64)
    number = _episode_numbers(buffer, first, last)
    for key, column in buffer.columns.items():
        if not col.is_float(column) or buffer.is_heavy(key):
            continue
        for positions, bad in buffer.map(_bad_counts, key, arguments=(key,)):
            if len(positions):
                index = number(int(positions[0]), int(positions[-1]) + 1)[positions - positions[0]]
                np.add.at(counts, index[index >= 0], bad[index >= 0])
    return counts


def _disagreements(buffer: Buffer, first: NDArray[Any], last: NDArray[Any]) -> list[str]:
    import numpy as np

    if not buffer.end_keys or not len(first):
        return [""] * len(first)
    ended = np.zeros(len(last), bool)
    for key in buffer.end_keys:
        ended |= flags_at(buffer, key, last)
    followed = ~_is_lane_end(buffer, last)
    texts = [[] if e or not f else ["no end flag"] for e, f in zip(ended.tolist(), followed.tolist(), strict=True)]
    behind = last[followed & ended] + buffer.stride
    at = np.flatnonzero(followed & ended)
    if buffer.id_key is not None and len(at):
        same = (
            flat_rows(buffer.take(buffer.id_key, last[at]))[:, 0] == flat_rows(buffer.take(buffer.id_key, behind))[:, 0]
        )
        for index in at[same]:
            texts[int(index)].append("id goes on")
    if buffer.step_key is not None:
        steps = flat_rows(buffer.take(buffer.step_key, first))[:, 0].astype(np.int64)
        rise = flat_rows(buffer.take(buffer.step_key, last))[:, 0].astype(np.int64) - steps
        lengths = (last - first) // buffer.stride
        for index in np.flatnonzero(rise != lengths):
            texts[int(index)].append(f"step count rises by {int(rise[index])} in {int(lengths[index])} steps")
        if len(at):
            goes_on = flat_rows(buffer.take(buffer.step_key, behind))[:, 0] > 0
            for index in at[goes_on]:
                texts[int(index)].append("step count goes on")
    return ["; ".join(text) for text in texts]


def _is_lane_end(buffer: Buffer, positions: NDArray[Any]) -> NDArray[Any]:
    """Positions behind which the data ends, so that a missing end flag means nothing."""
    found = positions + buffer.stride >= buffer.n
    if buffer.time_last:
        found = found | ((buffer.elements(positions) + 1) % buffer.shape[-1] == 0)
    if buffer.valid is not None:
        inside = positions[~found] + buffer.stride
        found[~found] = ~buffer.valid[inside]
    if buffer.permutation is not None:  # an open trajectory is followed by another one in the sorted order
        found = found | True
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTable:
    """Episodes as arrays ``[k]``, lane by lane in the order of time."""

    first: NDArray[Any]
    """First positions."""
    last: NDArray[Any]
    """Last positions (included)."""
    lengths: NDArray[Any]
    """Steps."""
    returns: NDArray[Any] | None
    """Sums of the reward (float64, of all agents together); None where there is no reward."""
    complete: NDArray[Any]
    """Episodes that carry an end flag at their last step and are not cut at their first one."""


def episode_table(buffer: Buffer) -> EpisodeTable:
    """The episodes of a buffer; computed once. Reads flags, ids, step counts and rewards, nothing else."""
    known = buffer.cache.get("episodes")
    if known is None:
        known = buffer.cache["episodes"] = _table(buffer)
    return known


def _table(buffer: Buffer) -> EpisodeTable:
    import numpy as np

    lanes = list(episodes_of(buffer))
    none = np.empty(0, np.int64)
    first = np.concatenate([none, *(a for a, _ in lanes)])
    last = np.concatenate([none, *(b for _, b in lanes)])
    lengths = (last - first) // buffer.stride + 1
    returns = episode_sums(buffer, first, last) if buffer.reward_keys else None
    ended = np.zeros(len(last), bool)
    for key in buffer.end_keys:
        ended |= flags_at(buffer, key, last)
    whole = ended.copy()
    if buffer.step_key is not None and len(first):
        whole &= flat_rows(buffer.take(buffer.step_key, first))[:, 0] <= 1
    return EpisodeTable(first=first, last=last, lengths=lengths, returns=returns, complete=whole)


def flags_at(buffer: Buffer, key: tuple[str, ...], positions: NDArray[Any]) -> NDArray[Any]:
    """A flag at some positions: bool ``[k]``; of a group of agents it is set when it is set for all."""
    found: NDArray[Any] = (flat_rows(buffer.take(key, positions)) != 0).all(axis=1)
    return found


def episode_sums(
    buffer: Buffer, first: NDArray[Any], last: NDArray[Any], keys: tuple[tuple[str, ...], ...] = ()
) -> NDArray[Any]:
    """Sums of leaves over each episode: float64 ``[k]``, all their values together."""
    import numpy as np

    totals = np.zeros(len(first), np.float64)
    number = _episode_numbers(buffer, first, last)
    for key in keys or buffer.reward_keys:
        for start, stop in buffer.spans((key,), extra=16):
            buffer.tick()
            values = flat_rows(buffer.read(key, start, stop))
            added = values.sum(axis=1, dtype=np.float64) if values.shape[1] != 1 else values[:, 0].astype(np.float64)
            mine = number(start, stop)
            inside = mine >= 0
            totals += np.bincount(mine[inside], added[inside], len(first)) if inside.any() else 0.0
    return totals


def _episode_numbers(buffer: Buffer, first: NDArray[Any], last: NDArray[Any]) -> Any:
    """A function from a span of positions to the number of the episode of each (-1 for padding)."""
    import numpy as np

    if buffer.stride == 1:

        def numbers(start: int, stop: int) -> NDArray[Any]:
            here = np.arange(start, stop)
            found = np.searchsorted(first, here, side="right") - 1
            outside = (found < 0) | (here > last[np.maximum(found, 0)]) if len(first) else np.ones(len(here), bool)
            return np.where(outside, -1, found)

        return numbers
    whole = np.full(buffer.n, -1, np.int64)
    for index, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        whole[a : b + 1 : buffer.stride] = index
    return lambda start, stop: whole[start:stop]

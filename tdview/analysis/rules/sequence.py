"""This module knows the rules about counters, ids, rewards and times along an episode, and about the ring's seam.

It does not know observations or actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, flat_rows
from tdview.analysis.episodes import episode_table
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["returns", "ring_seam", "step_count", "timestamps", "trajectory_ids"]

_TIMES = frozenset({"timestamp", "timestamps", "time_stamp"})
_FRAMES = frozenset({"frame", "frame_index"})


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0, np.int64)


# -- the seam of the ring ---


def ring_seam(buffer: Buffer) -> Iterator[Problem]:
    """Where the ring was written last: old and new episodes meet there and must not be read as one."""
    seam = buffer.fill.seam if buffer.fill is not None else None
    if buffer.fill is None or seam is None or buffer.n < 2 or buffer.fill.rotated:
        return
    guess = "" if buffer.fill.certain else f" (guessed: {buffer.fill.guessed_from})"
    parts = [f"row {seam - 1} is the newest and row {seam} the oldest{guess}"]
    if buffer.permutation is None and not buffer.time_last:
        lanes = buffer.stride
        if buffer.step_key is not None:
            first = buffer.scalar(buffer.step_key, 0, lanes)
            if (first > 0).any():
                parts.append(f"the oldest episode lacks its first {int(first.max())} steps")
        if buffer.end_keys and not buffer.end(buffer.n - lanes, buffer.n).all():
            parts.append("the newest episode is open")
        if buffer.id_key is not None:
            same = buffer.scalar(buffer.id_key, 0, lanes) == buffer.scalar(buffer.id_key, buffer.n - lanes, buffer.n)
            if same.any():
                text = "the oldest and the newest row have the same trajectory id: slices by id would join them"
                yield finding("seam", "warning", text, buffer.id_key, ((seam - 1, seam + 1),))
    yield finding("seam", "note", "; ".join(parts), (), ((seam - 1, seam + 1),))


# -- step counts ---


def _rises(chunk: Chunk, key: Key) -> dict[int, int]:
    """How often each rise of a counter inside an episode occurs."""
    import numpy as np

    delta = _delta(chunk, key)[chunk.inner]
    values, counts = np.unique(delta, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _delta(chunk: Chunk, key: Key) -> NDArray[Any]:
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    now = buffer.scalar(key, chunk.start, chunk.start + m)
    ahead = chunk.start + buffer.stride
    delta: NDArray[Any] = buffer.scalar(key, ahead, ahead + m).astype(np.int64) - now.astype(np.int64)
    return delta


def _other_rises(chunk: Chunk, key: Key, usual: int) -> NDArray[Any]:
    return chunk.positions((_delta(chunk, key) != usual) & chunk.inner)


def _own_rises(chunk: Chunk, key: Key) -> dict[int, int]:
    import numpy as np

    delta = _own_delta(chunk, key)
    delta = delta if chunk.valid is None else delta[chunk.valid]
    values, counts = np.unique(delta, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _own_delta(chunk: Chunk, key: Key) -> NDArray[Any]:
    import numpy as np

    now = chunk.buffer.scalar(key, chunk.start, chunk.stop).astype(np.int64)
    after: NDArray[Any] = chunk.buffer.scalar(("next", *key), chunk.start, chunk.stop).astype(np.int64)
    return after - now


def _other_own(chunk: Chunk, key: Key, usual: int) -> NDArray[Any]:
    return chunk.positions(_own_delta(chunk, key) != usual)


def _above(chunk: Chunk, key: Key, limit: int) -> NDArray[Any]:
    return chunk.positions(chunk.buffer.scalar(key, chunk.start, chunk.stop) > limit)


def _usual(parts: list[dict[int, int]]) -> tuple[int, float]:
    """The most common value and its share."""
    counts: dict[int, int] = {}
    for part in parts:
        for value, number in part.items():
            counts[value] = counts.get(value, 0) + number
    if not counts:
        return 1, 1.0
    usual = max(counts, key=lambda value: (counts[value], -value))
    return usual, counts[usual] / sum(counts.values())


def step_count(buffer: Buffer) -> Iterator[Problem]:
    """The step count rises by one from step to step and stays below the horizon."""
    key = buffer.step_key
    if key is None:
        return
    usual, share = _usual(buffer.map(_rises, key, arguments=(key,)))
    if share < 1:
        before = _join(buffer.map(_other_rises, key, arguments=(key, usual)))
        text = (
            f"{'.'.join(key)} does not rise by {usual} before {counted(len(before), 'row')} of an episode: "
            "rows were dropped, doubled or reordered"
        )
        rows = buffer.ranges(before + buffer.stride)
        yield finding("step_count_jump", "error" if share >= 0.5 else "warning", text, key, rows)
    after = ("next", *key)
    if after in buffer.columns and not buffer.n_step:
        usual, share = _usual(buffer.map(_own_rises, key, after, arguments=(key,)))
        if share < 1:
            wrong = _join(buffer.map(_other_own, key, after, arguments=(key, usual)))
            text = f"the count behind the step is not the count before it plus {usual} in {counted(len(wrong), 'row')}"
            severity = "error" if share >= 0.5 else "warning"
            yield finding("step_count_jump", severity, text, after, buffer.ranges(wrong))  # type: ignore[arg-type]
    if buffer.known_horizon is not None:
        counter = after if after in buffer.columns else key
        limit = buffer.known_horizon - (counter == key)
        above = _join(buffer.map(_above, counter, arguments=(counter, limit)))
        if len(above):
            text = f"{counted(len(above), 'step')} beyond the horizon of {buffer.known_horizon}"
            severity = "error" if buffer.options.horizon else "warning"
            yield finding("horizon", severity, text, counter, buffer.ranges(above))  # type: ignore[arg-type]


# -- trajectory ids ---


def _run_starts(chunk: Chunk, key: Key) -> NDArray[Any]:
    """Positions where a run of one id starts in its lane."""
    import numpy as np

    buffer = chunk.buffer
    ids = buffer.scalar(key, chunk.start, chunk.stop)
    back = chunk.start - buffer.stride
    starts = np.ones(len(ids), bool)
    if back < 0:
        m = max(0, len(ids) + back)
        starts[-back:] = ids[-back:] != ids[:m] if m else starts[-back:]
    else:
        starts = ids != buffer.scalar(key, back, back + len(ids))
    if buffer.time_last:
        starts |= buffer._ring(np.arange(chunk.start, chunk.stop)) % buffer.shape[-1] == 0
    return chunk.positions(starts)


def trajectory_ids(buffer: Buffer) -> Iterator[Problem]:
    """One id stands for one episode."""
    import numpy as np

    key = buffer.id_key
    if key is None or not buffer.n:
        return
    starts = _join(buffer.map(_run_starts, key, arguments=(key,)))
    ids = flat_rows(buffer.columns[key].take(buffer.elements(starts)))[:, 0]
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    again, earlier = order[1:][same], order[:-1][same]
    if not len(again):
        return
    restarted = _restarted(buffer, starts, again, earlier)
    if not len(restarted):
        return
    used = len(np.unique(ids[restarted]))
    text = (
        f"{used} ids are used by several episodes: grouping by {'.'.join(key)} joins what does not belong together "
        "(several collectors counted from the same number, or a run was resumed)"
    )
    yield finding("traj_id_collision", "warning", text, key, buffer.ranges(starts[restarted]))


def _restarted(buffer: Buffer, starts: NDArray[Any], again: NDArray[Any], earlier: NDArray[Any]) -> NDArray[Any]:
    """Which repeated runs begin a new episode: their step count does not go on, or the row before them ended one."""
    found: NDArray[Any]
    if buffer.step_key is not None:
        steps = flat_rows(buffer.columns[buffer.step_key].take(buffer.elements(starts)))[:, 0]
        found = again[steps[again] <= steps[earlier]]
        return found
    if not buffer.end_keys or buffer.time_last:
        found = again[:0]
        return found
    before = starts[again] - buffer.stride
    again, before = again[before >= 0], before[before >= 0]
    ended = again.astype(bool) & False
    for flag in buffer.end_keys:
        ended |= flat_rows(buffer.take(flag, before) != 0).any(axis=1)
    found = again[ended]
    return found


# -- rewards ---


def _wrong_sum(chunk: Chunk, before: Key, after: Key, reward: Key) -> NDArray[Any]:
    import numpy as np

    expected = chunk.flat(before).astype(np.float64) + chunk.flat(reward)
    stored = chunk.flat(after).astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = np.abs(stored - expected) > 1e-3 * np.maximum(1.0, np.abs(expected))
    return chunk.positions(wrong.any(axis=1))


def returns(buffer: Buffer) -> Iterator[Problem]:
    """Returns and lengths of the episodes are alike, and the running return adds up."""
    import numpy as np

    after, before = ("next", "episode_reward"), ("episode_reward",)
    reward = next(iter(buffer.reward_keys), None)
    sums = reward is not None and before in buffer.columns and after in buffer.columns
    if sums and reward is not None and not buffer.n_step:
        shapes = {buffer.columns[k].feature_size for k in (before, after, reward)}
        if len(shapes) == 1:
            wrong = _join(buffer.map(_wrong_sum, before, after, reward, arguments=(before, after, reward)))
            if len(wrong):
                text = f"the running return is not the sum of rewards in {counted(len(wrong), 'row')}: rewards changed"
                yield finding("episode_reward", "warning", text, after, buffer.ranges(wrong))
    if not buffer.ordered or not buffer.end_keys:
        return
    table = episode_table(buffer)
    whole = table.complete
    if int(whole.sum()) < 8:
        return
    for name, values in (("return", table.returns), ("length", table.lengths)):
        if values is None:
            continue
        odd = _outliers(values[whole].astype(np.float64))
        if odd.any():
            first = table.first[whole][odd]
            text = f"the {name} of {int(odd.sum())} of {int(whole.sum())} episodes stands out (robust z above 6)"
            yield finding("reward_outlier", "note", text, reward or (), buffer.ranges(first))
    lengths = table.lengths[whole].astype(np.float64)
    if lengths.std() > lengths.mean():
        text = f"episode lengths vary from {int(lengths.min())} to {int(lengths.max())}: episodes may have been merged"
        yield finding("reward_outlier", "note", text)


def _outliers(values: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    middle = np.nanmedian(values) if np.isfinite(values).any() else 0.0
    spread = np.nanmedian(np.abs(values - middle)) * 1.4826 if np.isfinite(values).any() else 0.0
    if not spread:
        return np.zeros(len(values), bool)
    found: NDArray[Any] = np.abs(values - middle) > 6 * spread
    return found


# -- time ---


def _time_steps(chunk: Chunk, key: Key) -> NDArray[Any]:
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    ahead = chunk.start + buffer.stride
    now = buffer.scalar(key, chunk.start, chunk.start + m).astype(np.float64)
    later: NDArray[Any] = buffer.scalar(key, ahead, ahead + m).astype(np.float64)
    return later - now


def _inner_steps(chunk: Chunk, key: Key) -> NDArray[Any]:
    steps: NDArray[Any] = _time_steps(chunk, key)[chunk.inner]
    return steps


def _uneven(chunk: Chunk, key: Key, low: float, high: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions behind which time stands still or runs back, and behind which it jumps or hesitates."""
    delta, inner = _time_steps(chunk, key), chunk.inner
    uneven = (delta > 0) & ((delta < low) | (delta > high))
    return chunk.positions((delta <= 0) & inner), chunk.positions(uneven & inner)


def timestamps(buffer: Buffer) -> Iterator[Problem]:
    """Time stamps and frame numbers advance evenly inside an episode."""
    import numpy as np

    chosen = buffer.options.keys.get("timestamp")
    for key, column in buffer.columns.items():
        frames = key[-1] in _FRAMES and not col.is_float(column)
        named = key == chosen if chosen is not None else key[-1] in _TIMES
        if column.feature_size != 1 or key[0] == "next" or not (named or frames):
            continue
        deltas = _join(buffer.map(_inner_steps, key, arguments=(key,)))
        deltas = deltas[np.isfinite(deltas)]
        if len(deltas) < 3:
            continue
        usual = float(np.median(deltas))
        step = 1.0 / buffer.options.fps if buffer.options.fps and not frames else usual
        margin = 1e-4 if buffer.options.fps and not frames else 0.1 * abs(step)
        parts = buffer.map(_uneven, key, arguments=(key, step - margin, step + margin))
        back, uneven = _join([p[0] for p in parts]), _join([p[1] for p in parts])
        label = ".".join(key)
        if len(back):
            severity = "error" if len(back) < 0.05 * len(deltas) or len(back) < 3 else "warning"
            text = f"{label} does not advance behind {counted(len(back), 'row')}: a doubled row, or episodes joined"
            yield finding("timestamps", severity, text, key, buffer.ranges(back, width=2))  # type: ignore[arg-type]
        if len(uneven):
            many = len(uneven) > 0.05 * len(deltas) and not buffer.options.fps
            text = f"{label} advances by something else than {step:g} behind {counted(len(uneven), 'row')}: lost frames"
            yield finding("timestamps", "note" if many else "warning", text, key, buffer.ranges(uneven, width=2))

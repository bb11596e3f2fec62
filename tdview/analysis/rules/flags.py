"""This module knows the rules about end flags: their algebra, and their agreement with ids and step counts.

It does not know the observations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key
from tdview.analysis.parts import FLAGS
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem, Severity

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["done_algebra", "events_of", "segmentation"]


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0, np.int64)


# -- algebra ---


def _broken_algebra(chunk: Chunk, done: Key, terminated: Key | None, truncated: Key | None) -> NDArray[Any]:
    import numpy as np

    flags = chunk.flat(done) != 0
    parts = [chunk.flat(key) != 0 for key in (terminated, truncated) if key is not None]
    either = np.logical_or.reduce(parts)
    wrong = flags != either if len(parts) == 2 else either & ~flags
    return chunk.positions(wrong.any(axis=1))


def _set_flags(chunk: Chunk, key: Key) -> NDArray[Any]:
    return chunk.positions(chunk.buffer.flag(key, chunk.start, chunk.stop))


def done_algebra(buffer: Buffer) -> Iterator[Problem]:
    """done is terminated or truncated, and the flags before a step are never set."""
    for done in [key for key in buffer.columns if key[-1] == "done" and key[0] == "next"]:
        terminated, truncated = (
            key if (key := (*done[:-1], name)) in buffer.columns else None for name in ("terminated", "truncated")
        )
        if terminated is None and truncated is None:
            continue
        keys = [key for key in (done, terminated, truncated) if key is not None]
        if len({buffer.columns[key].feature for key in keys}) > 1:
            continue
        wrong = _join(buffer.map(_broken_algebra, *keys, arguments=(done, terminated, truncated)))
        if len(wrong):
            text = f"done is not terminated or truncated in {counted(len(wrong), 'row')}: wrong places to bootstrap"
            yield finding("done_consistency", "error", text, done, buffer.ranges(wrong))
        yield from _both(buffer, terminated, truncated)
    for key in buffer.end_keys:
        if buffer.columns[key].dtype not in ("torch.bool", "torch.uint8"):
            text = f"an end flag is stored as {buffer.columns[key].dtype}"
            yield finding("done_consistency", "note", text, key)
    yield from _root_flags(buffer)


def _both(buffer: Buffer, terminated: Key | None, truncated: Key | None) -> Iterator[Problem]:
    import numpy as np

    if terminated is None or truncated is None:
        return
    ends = _join(buffer.map(_set_flags, terminated, arguments=(terminated,)))
    cut = _join(buffer.map(_set_flags, truncated, arguments=(truncated,)))
    if len(ends) and np.array_equal(ends, cut):
        text = "every end is both terminated and truncated, so they cannot be told apart"
        yield finding("done_consistency", "note", text, truncated)


def _root_flags(buffer: Buffer) -> Iterator[Problem]:
    import numpy as np

    if not any(key[0] == "next" for key in buffer.end_keys):
        return
    for name in sorted(FLAGS):
        key = (name,)
        if key not in buffer.columns:
            continue
        rows = _join(buffer.map(_set_flags, key, arguments=(key,)))
        if not len(rows):
            continue
        text = (
            f"the flag before the step is set in {counted(len(rows), 'row')}, as if a finished episode were stepped on"
        )
        severity: Severity = "warning"
        behind = ("next", name)
        if behind in buffer.columns:
            ends = _join(buffer.map(_set_flags, behind, arguments=(behind,)))
            shifted = ends + buffer.stride
            repeated = np.array_equal(rows, ends) or np.array_equal(rows, shifted[shifted < buffer.n])
            if repeated or _are_starts(buffer, rows):
                severity = "note"
                text = "the root flags repeat those of next, as some offline data sets do; torchrl expects False"
        yield finding("root_done", severity, text, key, buffer.ranges(rows))


def _are_starts(buffer: Buffer, positions: NDArray[Any]) -> bool:
    """Whether every one of the positions is the first of its episode, and there are several."""
    before = positions - buffer.stride
    inside = before[before >= 0]
    return len(positions) > 1 and bool(buffer.breaks[inside].all())


# -- agreement ---


class Events(NamedTuple):
    """Positions that have a successor in the same lane and …"""

    ends: NDArray[Any]
    """… carry an end flag."""
    changes: NDArray[Any]
    """… are followed by another trajectory id."""
    resets: NDArray[Any]
    """… are followed by a step count that does not rise."""
    starts: NDArray[Any]
    """… are preceded by an end, with the step count that they have: pairs ``[k, 2]``."""
    inits: NDArray[Any]
    """… are preceded by no end and say that they are the first of an episode, or the other way round."""


def _events(chunk: Chunk) -> Events:
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    start, stop, ahead = chunk.start, chunk.start + chunk.followed, chunk.start + buffer.stride
    usable = np.ones(m, bool)
    if buffer.time_last:
        usable &= (buffer._ring(np.arange(start, stop)) + 1) % buffer.shape[-1] != 0
    if buffer.valid is not None:
        usable &= buffer.valid[start:stop] & buffer.valid[ahead : ahead + m]
    end = buffer.end(start, stop) & usable
    none = np.empty(0, np.int64)
    changes = resets = inits = none
    starts = np.empty((0, 2), np.int64)
    if buffer.id_key is not None:
        ids = buffer.scalar(buffer.id_key, start, stop)
        changes = np.flatnonzero((ids != buffer.scalar(buffer.id_key, ahead, ahead + m)) & usable) + start
    if buffer.step_key is not None:
        steps = buffer.scalar(buffer.step_key, ahead, ahead + m)
        resets = np.flatnonzero((steps <= buffer.scalar(buffer.step_key, start, stop)) & usable) + start
        at = np.flatnonzero(end)
        starts = np.stack([at + ahead, steps[at].astype(np.int64)], axis=1)
    if ("is_init",) in buffer.columns:
        first = buffer.flag(("is_init",), ahead, ahead + m)
        inits = np.flatnonzero((first != end) & usable) + ahead
    return Events(np.flatnonzero(end) + start, changes, resets, starts, inits)


def events_of(buffer: Buffer) -> Events:
    """Where episodes end by flag, by id and by step count; computed once."""
    import numpy as np

    found = buffer.cache.get("events")
    if found is None:
        keys = [key for key in (*buffer.end_keys, buffer.id_key, buffer.step_key) if key is not None]
        parts = buffer.map(_events, *keys)
        found = Events(*(np.concatenate([p[i] for p in parts]) for i in range(5))) if parts else _no_events()
        buffer.cache["events"] = found
    return found


def _no_events() -> Events:
    import numpy as np

    none = np.empty(0, np.int64)
    return Events(none, none, none, np.empty((0, 2), np.int64), none)


def segmentation(buffer: Buffer) -> Iterator[Problem]:
    """End flags, trajectory ids and step counts cut the rows at the same places."""
    if not buffer.end_keys:
        return
    if buffer.stretch:
        text = (
            f"every {buffer.stretch} rows another environment's rows follow, and no trajectory ids tell them apart: "
            "slices over several rows join different environments"
        )
        yield finding("episode_segmentation", "warning", text, buffer.end_keys[0])
        return
    events = events_of(buffer)
    signs = events.changes if buffer.id_key is not None else events.resets
    name = buffer.id_key or buffer.step_key
    if name is not None:
        off = _off_by_one(buffer, events.ends, signs)
        if off is not None:
            yield off
            return
        yield from _disagreements(buffer, events, signs, name)
    yield from _odd_starts(buffer, events)


def _off_by_one(buffer: Buffer, ends: NDArray[Any], signs: NDArray[Any]) -> Problem | None:
    """End flags that fit the ids only when they are moved by one step."""
    import numpy as np

    if len(signs) < 2 or len(ends) < 2:
        return None

    def agreement(shift: int) -> float:
        moved = ends + shift * buffer.stride
        common = len(np.intersect1d(moved, signs, assume_unique=True))
        return common / max(len(signs), len(ends) - 1)

    here = agreement(0)
    best = max((-1, 1), key=agreement)
    if here >= 0.5 or agreement(best) < 0.9:
        return None
    text = (
        f"end flags agree with the episodes at {here:.0%} of the ends, and at {agreement(best):.0%} when they are "
        f"moved one step {'back' if best < 0 else 'on'}: flags (and probably rewards) stand in the wrong row"
    )
    rows = buffer.ranges(np.concatenate([ends, signs]))
    return finding("done_off_by_one", "error", text, buffer.end_keys[0], rows)


def _disagreements(buffer: Buffer, events: Events, signs: NDArray[Any], name: Key) -> Iterator[Problem]:
    import numpy as np

    label = ".".join(name)
    unended = np.setdiff1d(signs, events.ends)
    if len(unended):
        text = (
            f"{label} starts anew behind {counted(len(unended), 'row')} without an end flag: an end was lost, "
            "or a collector was restarted"
        )
        if buffer.permutation is not None:
            text = f"no end flag at the last row, so still open: {counted(len(unended), 'episode')}"
        severity: Severity = "note" if buffer.permutation is not None else "warning"
        yield finding("episode_segmentation", severity, text, name, buffer.ranges(unended))
    if not len(signs) and name != buffer.step_key:  # one id for everything: the ids say nothing
        return
    unmarked = np.setdiff1d(events.ends, signs)
    if len(unmarked) and not buffer.n_step:
        text = f"{label} goes on behind {counted(len(unmarked), 'row')} with an end flag"
        yield finding("episode_segmentation", "warning", text, name, buffer.ranges(unmarked))


def _odd_starts(buffer: Buffer, events: Events) -> Iterator[Problem]:
    import numpy as np

    if len(events.starts) > 1 and buffer.step_key is not None and not buffer.n_step and buffer.permutation is None:
        values, counts = np.unique(events.starts[:, 1], return_counts=True)
        usual = int(values[counts.argmax()])
        odd = events.starts[events.starts[:, 1] != usual, 0]
        if len(odd) and counts.max() * 2 > len(events.starts):
            text = f"{counted(len(odd), 'episode')} with a first step other than {usual}, unlike all others"
            yield finding("episode_segmentation", "warning", text, buffer.step_key, buffer.ranges(odd))
    if len(events.inits):
        text = f"is_init and the end flags disagree in {counted(len(events.inits), 'row')}"
        yield finding("episode_segmentation", "warning", text, ("is_init",), buffer.ranges(events.inits))

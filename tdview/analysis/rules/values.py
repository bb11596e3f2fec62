"""This module knows the rules about single values: finite, inside bounds, changing, scaled as images are.

It does not know how rows follow each other, except for jumps of an action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, flat_rows
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["actions", "constant_features", "finite", "pixels"]

_DISTINCT = 10
_FEW_ROWS = 20


def _masked(values: NDArray[Any], valid: NDArray[Any] | None) -> NDArray[Any]:
    return values if valid is None else values[valid]


# -- not finite ---


def _bad_values(chunk: Chunk, key: Key) -> tuple[NDArray[Any], int, int]:
    """Positions with a value that is not finite, how many values are NaN, how many infinite."""
    import numpy as np

    values = chunk.flat(key)
    good = np.isfinite(values)
    if good.all():
        return np.empty(0, np.int64), 0, 0
    positions = chunk.positions(~good.all(axis=1))
    bad = values[positions - chunk.start]
    return positions, int(np.isnan(bad).sum()), int(np.isinf(bad).sum())


def finite(buffer: Buffer) -> Iterator[Problem]:
    """Every value of the rows that count is a number: no NaN, no infinity."""
    import numpy as np

    learned = {*buffer.observed_keys, *buffer.action_keys, *buffer.reward_keys}
    for key, column in buffer.columns.items():
        if not col.is_float(column) or not column.feature_size:
            continue
        parts = buffer.map(_bad_values, key, arguments=(key,))
        positions = np.concatenate([p[0] for p in parts]) if parts else np.empty(0, np.int64)
        if not len(positions):
            continue
        nan, inf = sum(p[1] for p in parts), sum(p[2] for p in parts)
        used = key in learned or key[0] == "next" or key[-1] in ("observation", "reward", "action", "pixels", "state")
        what = " and ".join(f"{n} {name}" for n, name in ((nan, "NaN"), (inf, "infinite")) if n)
        yield finding(
            "non_finite", "error" if used else "warning",
            f"{what} values in {counted(len(positions), 'row')}; one of them spoils losses, normalisation and returns",
            key, buffer.ranges(positions),
        )  # fmt: skip


# -- extremes: computed once, used by several rules ---


def _extremes(chunk: Chunk, key: Key) -> tuple[NDArray[Any], NDArray[Any]] | None:
    import numpy as np

    values = _masked(chunk.flat(key), chunk.valid)
    if not len(values):
        return None
    if values.dtype.kind == "f":
        return np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return values.min(axis=0), values.max(axis=0)


def extremes(buffer: Buffer, key: Key) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Least and greatest value of each dim of a leaf over the steps, ``[width]`` each; NaN is left out."""
    import numpy as np

    known = buffer.cache.get(("extremes", key))
    if known is None:
        parts = [part for part in buffer.map(_extremes, key, arguments=(key,)) if part is not None]
        if not parts:
            return None
        known = (
            np.fmin.reduce(np.stack([p[0] for p in parts]), axis=0),
            np.fmax.reduce(np.stack([p[1] for p in parts]), axis=0),
        )
        buffer.cache["extremes", key] = known
    low, high = known
    return low, high


def _dims(mask: NDArray[Any], feature: tuple[int, ...]) -> str:
    import numpy as np

    found = np.flatnonzero(mask)
    names = [
        "[" + ",".join(str(int(i)) for i in np.unravel_index(int(d), feature)) + "]" if feature else ""
        for d in found[:5]
    ]
    return ", ".join(names) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def constant_features(buffer: Buffer) -> Iterator[Problem]:
    """Every observed value and every action changes somewhere."""
    if buffer.n_valid < _FEW_ROWS:
        return
    named = (key for key in buffer.columns if key[0] != "next" and key[-1] == "observation")
    observed = {*buffer.observed_keys, *named}
    images = set(buffer.image_keys)
    for key in buffer.columns:
        column = buffer.columns[key]
        if (key not in observed and key not in buffer.action_keys) or key in images or col.is_complex(column):
            continue
        found = extremes(buffer, key)
        if found is None or not len(found[0]):
            continue
        still = found[0] == found[1]
        if not still.any():
            continue
        whole = bool(still.all())
        numbers = col.is_float(column)
        text = "never changes" if whole else f"dims {_dims(still, column.feature)} never change"
        why = "a dead sensor or an unused dim; dividing by its deviation divides by zero"
        if key in buffer.action_keys:
            why = "the policy always did the same, or the action was not stored"
        yield finding("constant_feature", "warning" if whole or numbers else "note", f"{text}: {why}", key)
    for key in buffer.reward_keys:
        found = extremes(buffer, key)
        if found is not None and len(found[0]) and bool((found[0] == found[1]).all()) and found[0].any():
            yield finding("constant_feature", "note", f"the reward is always {found[0].ravel()[0]:g}", key)


# -- actions ---


def _at_bounds(
    chunk: Chunk, key: Key, low: NDArray[Any], high: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Per dim: values at either bound and values in all; and up to eleven distinct values of each dim."""
    import numpy as np

    values = _masked(chunk.flat(key), chunk.valid)
    near = 1e-6 * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
    at = ((values <= low + near) | (values >= high - near)).sum(axis=0)
    distinct = [len(np.unique(values[:4096, d])) for d in range(values.shape[1])]
    return at, np.full(values.shape[1], len(values)), np.array(distinct)


def _outside(chunk: Chunk, key: Key, low: float, high: float) -> NDArray[Any]:
    import numpy as np

    values = chunk.flat(key)
    outside = np.logical_or(values < low, values > high).any(axis=1)
    return chunk.positions(np.asarray(outside))


def _row_sums(chunk: Chunk, key: Key) -> tuple[dict[int, int], bool]:
    """How often each row sum occurs, and whether all values are 0 or 1."""
    import numpy as np

    values = _masked(chunk.flat(key), chunk.valid)
    sums, counts = np.unique(values.sum(axis=1, dtype=np.int64), return_counts=True)
    return dict(zip(sums.tolist(), counts.tolist(), strict=True)), bool(((values == 0) | (values == 1)).all())


def _other_sums(chunk: Chunk, key: Key, usual: int) -> NDArray[Any]:
    import numpy as np

    return chunk.positions(chunk.flat(key).sum(axis=1, dtype=np.int64) != usual)


def _differences(chunk: Chunk, key: Key) -> tuple[NDArray[Any], int]:
    """Sum of squared differences between neighbours per dim, and their number."""
    import numpy as np

    m = chunk.followed
    inner = chunk.inner
    delta = (chunk.flat(key)[:m] - flat_rows(chunk.after(key)))[inner].astype(np.float64)
    return np.nansum(delta * delta, axis=0), int(inner.sum())


def _jumps(chunk: Chunk, key: Key, limit: NDArray[Any]) -> NDArray[Any]:
    m = chunk.followed
    delta = abs(chunk.flat(key)[:m] - flat_rows(chunk.after(key)))
    return chunk.positions((delta > limit).any(axis=1) & chunk.inner)


def actions(buffer: Buffer) -> Iterator[Problem]:
    """Actions stay inside their bounds, are not stuck at them, and one-hot rows hold a single one."""
    import numpy as np

    for key, (low, high) in buffer.options.bounds.items():
        if key not in buffer.columns:
            continue
        outside = np.concatenate([np.empty(0, np.int64), *buffer.map(_outside, key, arguments=(key, low, high))])
        if len(outside):
            code = "action_range" if key in buffer.action_keys else "out_of_bounds"
            text = f"outside the bounds {low:g} to {high:g} that were given: {counted(len(outside), 'row')}"
            yield finding(code, "error", text, key, buffer.ranges(outside))
    for key in buffer.action_keys:
        column = buffer.columns[key]
        if buffer.n_valid < _FEW_ROWS or not column.feature_size or col.is_complex(column):
            continue
        if col.is_float(column):
            yield from _saturation(buffer, key)
            if buffer.ordered and not buffer.is_heavy(key):
                yield from _action_jumps(buffer, key)
        elif column.feature_size > 1:
            yield from _one_hot(buffer, key)


def _saturation(buffer: Buffer, key: Key) -> Iterator[Problem]:
    import numpy as np

    found = extremes(buffer, key)
    if found is None or not np.isfinite(found[0]).all() or not np.isfinite(found[1]).all():
        return
    low, high = found
    parts = buffer.map(_at_bounds, key, arguments=(key, low, high))
    share = sum(p[0] for p in parts) / np.maximum(1, sum(p[1] for p in parts))
    distinct = np.max([p[2] for p in parts], axis=0)
    moving = (high > low) & (distinct > _DISTINCT)
    for limit, severity in ((0.99, "error"), (0.3, "warning")):
        stuck = moving & (share > limit)
        if stuck.any():
            worst = float(share[stuck].max())
            yield finding(
                "action_saturation", severity,  # type: ignore[arg-type]  # sound: the literals above
                f"dims {_dims(stuck, buffer.columns[key].feature) or '[]'} sit at their least or greatest value in "
                f"up to {worst:.0%} of the steps: a saturated policy, clipping, or a wrong scale",
                key,
            )  # fmt: skip
            return


def _action_jumps(buffer: Buffer, key: Key) -> Iterator[Problem]:
    import numpy as np

    parts = buffer.map(_differences, key, key, arguments=(key,))
    count = sum(p[1] for p in parts)
    if count < 50:
        return
    limit = 8 * np.sqrt(sum(p[0] for p in parts) / count)
    if not (limit > 0).any():
        return
    limit[limit == 0] = np.inf
    jumps = np.concatenate(buffer.map(_jumps, key, key, arguments=(key, limit)))
    if len(jumps):
        text = f"{counted(len(jumps), 'step')} with a change of more than 8 standard deviations of all changes"
        yield finding("action_jump", "note", text, key, buffer.ranges(jumps))


def _one_hot(buffer: Buffer, key: Key) -> Iterator[Problem]:
    import numpy as np

    parts = buffer.map(_row_sums, key, arguments=(key,))
    if not all(p[1] for p in parts):
        return
    counts: dict[int, int] = {}
    for part, _ in parts:
        for total, number in part.items():
            counts[total] = counts.get(total, 0) + number
    usual = max(counts, key=lambda total: counts[total])
    if usual != 1 or counts[usual] < 0.99 * sum(counts.values()) or len(counts) == 1:
        return
    rows = np.concatenate(buffer.map(_other_sums, key, arguments=(key, usual)))
    text = f"{counted(len(rows), 'row')} not one-hot, unlike all others: the action was not stored or was overwritten"
    yield finding("action_range", "error", text, key, buffer.ranges(rows))


# -- images ---


def _frames(chunk: Chunk, key: Key) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Per frame: position, least and greatest value, and whether some value has a fraction."""
    import numpy as np

    values = chunk.flat(key)
    positions = np.arange(chunk.start, chunk.stop)
    if chunk.valid is not None:
        values, positions = values[chunk.valid], positions[chunk.valid]
    if not len(values):
        empty = np.empty(0)
        return positions, empty, empty, empty.astype(bool)
    low, high = values.min(axis=1), values.max(axis=1)
    fraction = np.zeros(len(values), bool)
    if values.dtype.kind == "f":
        fraction = (values != np.rint(values)).any(axis=1)
    return positions, low.astype(np.float64), high.astype(np.float64), fraction


def pixels(buffer: Buffer) -> Iterator[Problem]:
    """Images are scaled in one way, stored compactly, and not blank."""
    import numpy as np

    for key in buffer.image_keys:
        column = buffer.columns[key]
        if col.is_complex(column):
            continue
        parts = buffer.map(_frames, key, arguments=(key,))
        if not parts:
            continue
        position, low, high, fraction = (np.concatenate([p[i] for p in parts]) for i in range(4))
        if col.is_float(column):
            yield from _image_scale(buffer, key, position, low, high, fraction)
        blank = position[low == high]
        share = len(blank) / max(1, len(position))
        if len(blank):
            rows = buffer.ranges(blank)
            text = f"{len(blank)} of {len(position)} frames are one flat colour: unwritten memory or a covered camera"
            yield finding("blank_frames", "warning" if share > 0.05 else "note", text, key, rows)
        other = buffer.columns.get(("next", *key))
        if other is not None and other.dtype != column.dtype:
            text = f"{column.dtype} here and {other.dtype} in next: one of them was scaled and the other was not"
            yield finding("pixel_dtype", "warning", text, key)


def _image_scale(
    buffer: Buffer, key: Key, position: NDArray[Any], low: NDArray[Any], high: NDArray[Any], fraction: NDArray[Any]
) -> Iterator[Problem]:
    import numpy as np

    dtype = buffer.columns[key].dtype.removeprefix("torch.")
    size = int(dtype[-2:]) // 8 if dtype[-2:].isdigit() else 4
    text = f"images as {dtype} take {size} times the bytes of uint8"
    if not len(low) or not np.isfinite(low).all() or not np.isfinite(high).all():
        return
    if float(low.min()) < 0:
        text += "; values below zero say that they were normalised before they were stored"
        yield finding("pixel_dtype", "note", text, key)
        return
    looks_like_bytes = float(high.max()) <= 255.5
    yield finding("pixel_dtype", "warning" if looks_like_bytes else "note", text, key)
    unit = (high <= 1) & (high > 0) & fraction
    large = high > 1.5
    if unit.any() and large.any():
        sure = looks_like_bytes and float(np.median(high[large])) > 16
        yield finding(
            "pixel_range", "error" if sure else "warning",
            f"{int(unit.sum())} frames lie in 0 to 1 and {int(large.sum())} reach {float(high.max()):g}: "
            "two scales in one leaf",
            key, buffer.ranges(position[unit]),
        )  # fmt: skip

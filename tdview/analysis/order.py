"""This module knows how it is found out how rows follow each other: breaks, lanes, environments that take turns.

It does not know whether what follows is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Column, Key, equal_rows, flat_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer

__all__ = ["breaks_of", "episodes_of", "lightest", "row_ranges", "stretch_of", "time_runs_last", "untangled"]

_MAX_RANGES = 1000  # as `rules.registry.MAX_RANGES`


def row_ranges(rows: NDArray[Any], limit: int = _MAX_RANGES) -> tuple[tuple[int, int], ...]:
    """Row numbers as merged half-open ranges, ascending, at most `limit` of them."""
    import numpy as np

    unique = np.unique(rows)
    if not len(unique):
        return ()
    cuts = np.flatnonzero(np.diff(unique) > 1)
    starts = unique[np.concatenate([[0], cuts + 1])]
    stops = unique[np.concatenate([cuts, [len(unique) - 1]])] + 1
    return tuple(zip(starts[:limit].tolist(), stops[:limit].tolist(), strict=True))


def breaks_of(buffer: Buffer, start: int, stop: int) -> NDArray[Any]:
    import numpy as np

    stride, n = buffer.stride, buffer.n
    found = np.zeros(stop - start, bool)
    m = max(0, min(stop, n - stride) - start)
    found[m:] = True
    if not buffer.ordered:
        found[:] = True
        return found
    labelled = False
    ahead = slice(start + stride, start + stride + m)
    if buffer.id_key is not None:
        ids = buffer.scalar(buffer.id_key, start, start + m)
        found[:m] |= ids != buffer.scalar(buffer.id_key, ahead.start, ahead.stop)
        labelled = True
    if buffer.step_key is not None:
        steps = buffer.scalar(buffer.step_key, start, start + m)
        found[:m] |= buffer.scalar(buffer.step_key, ahead.start, ahead.stop) <= steps
        labelled = True
    if not (buffer.n_step and labelled):  # every one of the last n rows of an n-step buffer may carry the end flag
        found |= buffer.end(start, stop)
    if buffer.stretch:
        found |= (np.arange(start, stop) + 1 + buffer.first_write) % buffer.stretch == 0
    if buffer.time_last:
        length = buffer.shape[-1]
        found |= (buffer._ring(np.arange(start, stop)) + 1) % length == 0
    if buffer.valid is not None:
        found[:m] |= ~buffer.valid[ahead]
        found |= ~buffer.valid[start:stop]
    return found


def _broken_off(chunk: Chunk) -> NDArray[Any]:
    """Positions that carry no end flag and are not followed by the next step."""
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    start, stop = chunk.start, chunk.start + chunk.followed
    if buffer.step_key is not None:
        rise = buffer.scalar(buffer.step_key, start + 1, stop + 1) - buffer.scalar(buffer.step_key, start, stop)
        broken = rise != 1
    else:
        key = lightest(buffer)
        broken = ~equal_rows(chunk.get(("next", *key))[:m], chunk.after(key))
    return np.flatnonzero(broken & ~buffer.end(start, stop)) + start


def lightest(buffer: Buffer) -> Key:
    """The observation with the fewest bytes; there must be one."""
    return min(buffer.observed_keys, key=lambda key: col.nbytes(buffer.columns[key]))


def stretch_of(buffer: Buffer) -> int:
    import numpy as np

    if buffer.step_key is None and not buffer.observed_keys:
        return 0
    read = (buffer.step_key,) if buffer.step_key is not None else (lightest(buffer),)
    spans = buffer.spans((*read, *buffer.end_keys))
    cuts = np.concatenate([_broken_off(Chunk(buffer, a, b)) for a, b in spans]) + 1 + buffer.first_write
    if len(cuts) < 3 or len(cuts) > buffer.n // 4:
        return 0
    common = int(np.gcd.reduce(cuts))
    return common if common >= 4 and len(cuts) >= 0.3 * buffer.n / common else 0


def time_runs_last(buffer: Buffer) -> bool:
    """Whether steps follow each other along the last batch dim rather than along dim 0."""
    import numpy as np

    rows = min(buffer.rows, 512)
    lead, last = rows, buffer.shape[-1]
    if lead < 2 or last < 2:
        return lead < 2
    scores = [0.0, 0.0]

    def grid(key: Key) -> NDArray[Any]:
        column = buffer.columns[key]
        values = column.read(0, rows * buffer.inner)
        return values.reshape(rows, -1, last, *column.feature)

    if buffer.step_key is not None:
        steps = grid(buffer.step_key).reshape(rows, -1, last).astype(np.int64)
        scores = [float((np.diff(steps, axis=axis) == 1).mean()) for axis in (0, 2)]
    elif buffer.observed_keys:
        key = lightest(buffer)
        now, then = grid(key), grid(("next", *key))
        flat = now.reshape(rows, -1, last, col.width(buffer.columns[key]))
        ahead = then.reshape(flat.shape)
        scores = [float((flat[1:] == ahead[:-1]).mean()), float((flat[:, :, 1:] == ahead[:, :, :-1]).mean())]
    elif buffer.id_key is not None:
        ids = grid(buffer.id_key).reshape(rows, -1, last)
        scores = [float((np.diff(ids, axis=axis) == 0).mean()) for axis in (0, 2)]
    return scores[1] > scores[0]


def untangled(buffer: Buffer) -> NDArray[Any] | None:
    """Positions sorted by trajectory and step, if the rows of a trajectory lie apart and continue one another."""
    import numpy as np

    if buffer.id_key is None or buffer.n < 3:
        return None
    column = buffer.columns[buffer.id_key]

    def ring_values(one: Column) -> NDArray[Any]:
        values = buffer._read_in_ring(one, 0, buffer.n, np)
        return flat_rows(values)[:, 0]

    ids = ring_values(column)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    if len(np.unique(ids[starts])) == len(starts):
        return None
    order = np.argsort(ids, kind="stable")
    if buffer.step_key is not None:
        steps = ring_values(buffer.columns[buffer.step_key])
        order = np.lexsort((np.arange(buffer.n), steps, ids))
    joined = (ids[order][1:] == ids[order][:-1]) & (np.diff(order) != 1)
    before, behind = order[:-1][joined], order[1:][joined]
    if not len(before):
        return None
    if buffer.step_key is not None:
        continues = steps[behind] == steps[before] + 1
    elif buffer.observed_keys:
        key = lightest(buffer)
        ahead = buffer.columns[("next", *key)].take(buffer._ring(before))
        continues = equal_rows(ahead, buffer.columns[key].take(buffer._ring(behind)))
    else:
        return None
    return order if float(continues.mean()) >= 0.5 else None


def episodes_of(buffer: Buffer) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs (first positions, last positions) of the episodes, lane by lane in the order of time."""
    import numpy as np

    stride = buffer.stride
    if stride == 1 and buffer.valid is None:
        last = np.flatnonzero(buffer.breaks)  # the last position always breaks
        if len(last):
            yield np.concatenate([[0], last[:-1] + 1]), last
        return
    for lane in range(stride):
        steps = np.arange(lane, buffer.n, stride)
        if buffer.valid is not None:
            steps = steps[buffer.valid[steps]]
        if not len(steps):
            continue
        last = np.flatnonzero(buffer.breaks[steps])
        if not len(last) or last[-1] != len(steps) - 1:
            last = np.append(last, len(steps) - 1)
        first = np.concatenate([[0], last[:-1] + 1])
        yield steps[first], steps[last]

"""This module knows the rules about which rows were written: length, cursor, counts, empty and left-over rows.

It does not know what the values mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis import columns as col
from tdview.analysis.blocks import Chunk
from tdview.analysis.columns import Key, bits, equal_rows
from tdview.analysis.order import lightest, row_ranges
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem
from tdview.format import torchrl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["valid_range"]

_BEHIND_LIMIT = 1 << 30  # bytes behind the valid range that are read of one leaf
_BLOCK = 4 << 20


def valid_range(buffer: Buffer) -> Iterator[Problem]:
    """Length, cursor, counts and the rows themselves agree on what was written."""
    yield from _side_files(buffer)
    yield from _shift(buffer)
    empty = _all_zero(buffer)
    yield from empty
    if any(not problem.key for problem in empty):
        return
    yield from _unwritten(buffer)
    yield from _stale(buffer)
    yield from _index_leaf(buffer)
    yield from _generation(buffer)


# -- side files ---


def _side_files(buffer: Buffer) -> Iterator[Problem]:
    side, fill = buffer.side, buffer.fill
    if side is None or fill is None:
        return
    meta, writer = side.length, side.writer
    yield from side.problems
    if meta is None:
        if not fill.certain and (fill.seam is not None or not fill.full):
            text = f"{fill.rows} of {fill.capacity} rows are taken as written, guessed from {fill.guessed_from}"
            yield finding("not_checked", "note", f"no length and no cursor are stored: {text}")
        return
    elements = fill.capacity * (1 if fill.single else fill.inner)
    if meta.length > elements:
        text = f"the stored length {meta.length} exceeds the capacity of {elements} rows"
        yield finding("len_vs_cursor", "error", text)
    if not fill.single and meta.length % fill.inner:
        text = f"the stored length {meta.length} is no multiple of the {fill.inner} elements of a row"
        yield finding("len_vs_cursor", "error", text)
    if writer is None or not fill.ordered:
        return
    cursor, capacity = writer.cursor, fill.capacity
    if cursor is not None and not 0 <= cursor < max(1, capacity):
        text = f"the cursor {cursor} lies outside the {capacity} rows: the next row would be written nowhere"
        yield finding("cursor_range", "error", text)
    elif cursor is not None and fill.rows < capacity and cursor != fill.rows:
        low, high = sorted((cursor, fill.rows))
        text = (
            f"{fill.rows} rows are said to be written and the cursor stands at {cursor}: one of the side files is "
            "older than the other, or the rows were changed behind torchrl's back"
        )
        yield finding("len_vs_cursor", "error", text, (), [(low, high)])
    count = writer.write_count
    if count is not None and cursor is not None and capacity:
        if count < fill.rows:
            yield finding("write_count", "warning", f"{count} writes were counted for {fill.rows} written rows")
        elif 0 <= cursor < capacity and count % capacity != cursor:
            text = f"after {count} writes into {capacity} rows the cursor would be {count % capacity}, it is {cursor}"
            yield finding("write_count", "warning", text)


def _shift(buffer: Buffer) -> Iterator[Problem]:
    shift = buffer.cache.get("shift")
    writer = buffer.side.writer if buffer.side is not None else None
    if shift is None or writer is None or writer.cursor is None:
        return
    capacity = max(1, buffer.fill.capacity if buffer.fill is not None else 1)
    if (shift - writer.cursor) % capacity == 0:
        return
    text = (
        f"the checkpoint says that the rows were rotated by {shift}, the writer's cursor is {writer.cursor}: loading "
        "puts the rows in a wrong order or fails (a checkpoint that was loaded and saved again)"
    )
    yield finding("shift_vs_cursor", "error", text, ("shift",))


# -- never written ---


def _all_zero(buffer: Buffer) -> list[Problem]:
    if not buffer.n or not buffer.columns or not buffer.sequential:
        return []
    flags = {key for key in buffer.columns if buffer.columns[key].dtype == "torch.bool"}
    zero = [key for key in buffer.columns if _is_zero(buffer, key)]
    if len(zero) == len(buffer.columns) and buffer.n > 1:
        text = "every value of every leaf is zero: the rows were never written, or written into a copy that was lost"
        return [finding("all_zero", "error", text, (), [(0, buffer.rows)])]
    return [
        finding("all_zero", "warning", "every value is zero: the leaf was never written, or always holds zero", key)
        for key in zero
        if key not in flags and col.is_float(buffer.columns[key])
    ]


def _is_zero(buffer: Buffer, key: Key) -> bool:
    spans = buffer.sampled((key,)) if buffer.is_heavy(key) else buffer.spans((key,))
    for start, stop in spans:
        buffer.tick()
        if bits(buffer.read(key, start, stop)).any():
            return False
    return buffer.columns[key].feature_size > 0


def _empty_rows(chunk: Chunk, but: tuple[Key, ...]) -> NDArray[Any]:
    """Positions whose every value in every leaf is a zero byte. Looks on only where a leaf was zero so far."""
    import numpy as np

    buffer = chunk.buffer
    left = np.arange(chunk.start, chunk.stop)
    valid = chunk.valid
    if valid is not None:
        left = left[valid]
    for key in sorted(buffer.columns, key=lambda k: col.nbytes(buffer.columns[k])):
        if not len(left):
            break
        if key in but:
            continue
        dense = len(left) * 4 > chunk.stop - chunk.start
        values = chunk.get(key)[left - chunk.start] if dense else buffer.take(key, left)
        left = left[~bits(values).any(axis=1)]
    return left


def _unwritten(buffer: Buffer) -> Iterator[Problem]:
    import numpy as np

    known = buffer.side is not None and buffer.side.length is not None
    if not buffer.columns or not (buffer.sequential or known):
        return
    light = [key for key in buffer.columns if not buffer.is_heavy(key)]
    spans = buffer.spans(light or buffer.columns)
    never_zero = _never_zero(buffer)
    numbered = (("index",),) if never_zero not in ((), ("index",)) else ()  # a row number alone is no data
    found = buffer.engine.run(buffer, _empty_rows, spans, (numbered,))
    empty = np.concatenate(found) if found else np.empty(0, np.int64)
    if not len(empty):
        return
    rows = buffer.storage_rows(empty)
    sure = bool(never_zero) and (bool((rows > 0).any()) or never_zero != ("index",))
    if never_zero in buffer.observed_keys:  # rest at the origin is data; a run of zeros up to the last row is none
        sure = len(rows) > 1 and bool((np.sort(rows) == np.arange(buffer.rows - len(rows), buffer.rows)).all())
    text = f"{counted(len(empty), 'row')} inside the valid range with nothing but zeros in every leaf"
    why = f": they were never written, since {'.'.join(never_zero)} is never zero" if sure else ": they look unwritten"
    yield finding("unwritten_rows", "error" if sure else "warning", text + why, (), row_ranges(rows))


def _never_zero(buffer: Buffer) -> Key:
    """A leaf that is zero in no written row: the step count behind a step, the row number, a one-hot action."""
    after = ("next", *(buffer.step_key or ("step_count",)))
    if after in buffer.columns:
        return after
    for key in buffer.action_keys:
        column = buffer.columns[key]
        if not col.is_float(column) and column.feature_size > 1:
            values = buffer.read(key, 0, min(buffer.n, 64)).reshape(-1, column.feature_size)
            if bool((values.sum(axis=1) == 1).all()):
                return key
    if ("index",) in buffer.columns and buffer.side is not None:
        return ("index",)
    for key in buffer.observed_keys:
        if col.is_float(buffer.columns[key]) and buffer.columns[key].feature_size > 2 and key not in buffer.image_keys:
            return key
    return ()


# -- behind the valid range ---


def _stale(buffer: Buffer) -> Iterator[Problem]:
    import numpy as np

    first = buffer.rows * buffer.inner
    rows: list[NDArray[Any]] = []
    held: list[Key] = []
    for key, column in buffer.columns.items():
        last = getattr(column, "data_end", column.elements)
        size = max(1, col.nbytes(column))
        last = min(last, column.elements)
        if last - first > max(1, _BEHIND_LIMIT // size):
            last = first + max(1, _BEHIND_LIMIT // size)
            text = f"of the rows behind the valid ones only the first {_BEHIND_LIMIT >> 20} MiB were read"
            yield finding("not_checked", "note", text, key)
        step = max(1, _BLOCK // size)
        here = [_nonzero(buffer, column, start, min(start + step, last)) for start in range(first, last, step)]
        found = np.concatenate(here) if here else np.empty(0, np.int64)
        if len(found):
            held.append(key)
            rows.append(np.unique(found // buffer.inner))
    if rows:
        where = row_ranges(np.concatenate(rows))
        text = (
            f"rows behind the {buffer.rows} valid ones hold data in {len(held)} leaves: a scratch directory that was "
            "used before, a buffer that was emptied, memory that was never set, or a dump of a run that went on"
        )
        yield finding("stale_rows", "warning", text, (), where)
    elif buffer.fill is not None and not buffer.fill.certain and not buffer.fill.full and buffer.ordered:
        yield from _older_run(buffer)


def _nonzero(buffer: Buffer, column: col.Column, start: int, stop: int) -> NDArray[Any]:
    import numpy as np

    buffer.tick()
    words = bits(column.read(start, stop))
    if not words.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(words.any(axis=1)) + start


def _joints(chunk: Chunk, key: Key | None) -> NDArray[Any]:
    """Positions behind which another run may begin: ids fall, or ids, steps or observations break off unended."""
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    start, stop = chunk.start, chunk.start + chunk.followed
    torn, falls = np.zeros(m, bool), np.zeros(m, bool)
    if buffer.id_key is not None:
        ids, after = buffer.scalar(buffer.id_key, start, stop), buffer.scalar(buffer.id_key, start + 1, stop + 1)
        torn |= ids != after
        falls |= after < ids
    if buffer.step_key is not None:
        steps = buffer.scalar(buffer.step_key, start, stop + 1).astype(np.int64)
        torn |= np.diff(steps) != 1
        falls |= buffer.end(start, stop) & (steps[1:] > 1)  # behind an end the count starts over
    if key is not None and not buffer.n_step:
        torn |= ~equal_rows(chunk.get(("next", *key))[:m], chunk.after(key))
    return np.flatnonzero((torn & ~buffer.end(start, stop)) | falls) + start


def _older_run(buffer: Buffer) -> Iterator[Problem]:
    """Rows whose number was guessed: behind the only place that breaks off, they may be those of an earlier run."""
    import numpy as np

    if buffer.inner > 1 or buffer.permutation is not None or buffer.stretch or buffer.n < 2:
        return
    key = lightest(buffer) if buffer.observed_keys else None
    read = [k for k in (buffer.id_key, buffer.step_key, key, *buffer.end_keys) if k is not None]
    joints = np.concatenate([np.empty(0, np.int64), *buffer.map(_joints, *read, arguments=(key,))])
    if len(joints) == 1:
        row = int(joints[0]) + 1
        text = (
            f"at row {row} of a buffer that is not full an episode breaks off or ids start over: the rows behind it "
            "are probably those of an earlier run in the same directory"
        )
        yield finding("stale_rows", "warning", text, (), [(row, buffer.rows)])


# -- torchrl's own row numbers ---


def _wrong_index(chunk: Chunk, key: Key) -> NDArray[Any]:
    import numpy as np

    positions = np.arange(chunk.start, chunk.stop)
    rows = chunk.buffer.storage_rows(positions)
    return chunk.positions(chunk.buffer.scalar(key, chunk.start, chunk.stop) != rows)


def _index_leaf(buffer: Buffer) -> Iterator[Problem]:
    import numpy as np

    key = ("index",)
    if key not in buffer.columns or not buffer.ordered or buffer.side is None or buffer.side.writer is None:
        return
    column = buffer.columns[key]
    if column.feature_size != 1 or col.is_float(column) or buffer.profile:
        return
    wrong = np.concatenate([np.empty(0, np.int64), *buffer.map(_wrong_index, key, arguments=(key,))])
    if len(wrong):
        text = f"{counted(len(wrong), 'row')} with another row number than its own: moved, dropped or appended by hand"
        yield finding("index_leaf", "warning", text, key, buffer.ranges(wrong))


def _generation(buffer: Buffer) -> Iterator[Problem]:
    import numpy as np

    from tdview.format.dtypes import dtype_of

    side = buffer.side
    raw = side.writer.generation if side is not None and side.writer is not None else None
    if side is None or raw is None:
        return
    dtype = dtype_of(raw.dtype)
    count = int(col._size(raw.shape))
    values = side.array("writer", torchrl.GENERATION, dtype.numpy, count) if dtype and dtype.numpy else None
    if values is None:
        yield finding("side_file", "warning", f"writer/{torchrl.GENERATION} is missing or too short")
        return
    per_row: NDArray[Any] = np.zeros(0, bool)
    if count:
        per_row = (values.reshape(raw.shape[0], -1)[: buffer.capacity] != 0).any(axis=1)
    wrong = np.flatnonzero(per_row[buffer.rows :]) + buffer.rows
    if len(wrong):
        text = f"{counted(len(wrong), 'row')} behind the valid ones counted as written"
        yield finding("write_count", "warning", text, (), row_ranges(wrong))

"""This module knows how two saves are compared: their entries, and their values bit by bit.

It does not judge which of them is right, nor how their distributions differ: see `tdview.audit(a, against=b)`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tdview.analysis.columns import Key, bits, flat_rows
from tdview.analysis.order import row_ranges
from tdview.analysis.report import Report
from tdview.analysis.rules.registry import finding
from tdview.errors import ArgumentError, DecodeError, NotSupportedError, Problem, TdviewError, shown
from tdview.storage.mapping import give_back

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer, Progress
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["diff"]

_BLOCK = 4 << 20
_GIVEN_BACK = 64 << 20  # bytes after which the pages that were read are given back
_FIRST = 3
_VERDICT = ("equal", "different")
_MAX_ROWS = 1_000_000  # differing rows that are remembered of one leaf


def diff(
    a: str | os.PathLike[str] | Node,
    b: str | os.PathLike[str] | Node,
    *,
    align: Literal["row", "episode"] = "row",
    progress: Progress | None = None,
) -> Report:
    """Compares two saves: which entries they have, and where their values differ.

    Values are compared bit by bit in blocks; blocks with equal bytes are skipped, so two equal saves cost one read
    of each. Only where bytes differ are numbers looked at.

    Args:
        a: anything `scan` opens, or its node.
        b: the save that `a` is compared with.
        align: ``"row"``: storage row i of one against storage row i of the other. ``"episode"``: of replay buffers,
            episodes with the same steps are matched wherever they stand; what is left over is reported.
        progress: called as ``progress(done, total)`` in bytes between blocks; what it raises stops the work.

    Returns:
        A `Report`; ``report.ok`` says that nothing differs. Codes: ``schema`` (entries, dtypes, shapes, values that
        are no tensors) and ``differs`` (with the storage rows of `a` and the first differing indices). Format
        versions and devices that differ are notes.

    Raises:
        DecodeError: there is no saved tensordict at one of the paths.
        ArgumentError: `align` is ``"episode"`` and a save holds no episodes.
    """
    from tdview.analysis.audit import _node

    if align not in ("row", "episode"):
        raise ArgumentError(f"align: expected 'row' or 'episode', got {shown(align)}")
    left, right = _node(a), _node(b)
    where = f"{left.where()} against {right.where()}"
    if align == "episode":
        return Report(where=where, problems=tuple(_by_episode(left, right)), checks=("episodes",), verdict=_VERDICT)
    work = _Work(progress=progress, total=sum(leaf.nbytes for leaf in left.leaves()))
    problems = tuple(_nodes(left, right, (), work))
    facts = (("leaves", f"{work.equal} of {work.equal + work.unequal} that both have are equal"),)
    return Report(where=where, problems=problems, facts=facts, checks=("schema", "values"), verdict=_VERDICT)


@dataclass(slots=True)
class _Work:
    """How far the comparison is."""

    progress: Progress | None
    total: int
    done: int = 0
    equal: int = 0
    unequal: int = 0
    started: bool = field(default=False)

    def advance(self, nbytes: int) -> None:
        self.done += nbytes
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


# -- structure ---


def _nodes(a: Node, b: Node, key: Key, work: _Work) -> Iterator[Problem]:
    if a.is_leaf and b.is_leaf:
        yield from _leaves(a, b, key, work)  # type: ignore[arg-type]  # sound: is_leaf says that both are Leaf
        return
    if a.is_leaf != b.is_leaf or _plain_kind(a) != _plain_kind(b):
        yield finding("schema", "error", f"a {a.kind} here, a {b.kind} there", key)
        return
    if str(a.kind) in ("non_tensor", "non_tensor_stack"):
        yield from _values(a, b, key)
        return
    yield from _levels(a, b, key)
    names = list(dict.fromkeys([*a, *b]))
    for name in names:
        here = (*key, name)
        if name not in a or name not in b:
            side = "second" if name not in a else "first"
            yield finding("schema", "error", f"only the {side} save has this entry", here)
            continue
        yield from _nodes(a[(name,)], b[(name,)], here, work)


def _plain_kind(node: Node) -> str:
    kind = str(node.kind)
    return "tensordict" if kind == "replay_buffer" else kind


def _levels(a: Node, b: Node, key: Key) -> Iterator[Problem]:
    if a.batch_size != b.batch_size and str(a.kind) != "collection":
        text = f"batch size {_sizes(a.batch_size)} here, {_sizes(b.batch_size)} there"
        yield finding("schema", "error", text, key)
    if a.class_name != b.class_name and str(a.kind) != "collection":
        text = f"class {shown(a.class_name)} here, {shown(b.class_name)} there"
        yield finding("schema", "error", text, key)
    if (a.names or None) != (b.names or None):
        yield finding("schema", "error", f"dim names {shown(a.names)} here, {shown(b.names)} there", key)
    if a.device != b.device:
        yield finding("schema", "note", f"device {shown(a.device)} here, {shown(b.device)} there", key)
    if a.format_version != b.format_version and not key:
        yield finding("schema", "note", f"format version {a.format_version} here, {b.format_version} there", key)


def _sizes(shape: tuple[int, ...] | None) -> str:
    return "unknown" if shape is None else str(list(shape))


def _values(a: Node, b: Node, key: Key) -> Iterator[Problem]:
    try:
        left, right = a.value, b.value
    except TdviewError as error:
        yield finding("not_checked", "note", f"the value cannot be compared: {error}"[:300], key)
        return
    if left is not right and not bool(left == right):
        if isinstance(left, list) and isinstance(right, list):
            rows = [i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]]
            text = f"{len(rows)} of {len(left)} values differ"
            text += f"; {len(right)} values there" if len(left) != len(right) else ""
            yield finding("differs", "error", text, key, tuple((r, r + 1) for r in rows[:1000]))
        else:
            yield finding("differs", "error", f"{shown(left, 60)} here, {shown(right, 60)} there", key)


# -- values ---


def _leaves(a: Leaf, b: Leaf, key: Key, work: _Work) -> Iterator[Problem]:
    sizes = tuple(a.shape), tuple(b.shape)
    like = len(sizes[0]) == len(sizes[1]) and sizes[0][1:] == sizes[1][1:]
    if a.dtype != b.dtype or not like or a.is_nested != b.is_nested:
        work.unequal += 1
        text = f"{a.dtype} {list(a.shape)} here, {b.dtype} {list(b.shape)} there"
        yield finding("schema", "error", text, key)
        return
    if sizes[0] != sizes[1]:
        rows = min(sizes[0][0], sizes[1][0])
        text = f"{sizes[0][0]} rows here, {sizes[1][0]} there; the first {rows} are compared"
        yield finding("schema", "error", text, key)
    try:
        differing = list(_compare(a, b, key, work))
    except (DecodeError, NotSupportedError) as error:
        work.unequal += 1
        yield finding("not_checked", "warning", f"the leaf cannot be compared: {error}"[:300], key)
        return
    if differing or sizes[0] != sizes[1]:
        work.unequal += 1
    else:
        work.equal += 1
    yield from differing


def _compare(a: Leaf, b: Leaf, key: Key, work: _Work) -> Iterator[Problem]:
    import numpy as np

    if a.is_nested:
        yield from _compare_nested(a, b, key)
        return
    if not a.shape:
        work.advance(a.nbytes)
        left, right = a.numpy().reshape(1), b.numpy().reshape(1)
        if (bits(left) != bits(right)).any():
            yield finding("differs", "error", f"{left[0]!s} here, {right[0]!s} there", key)
        return
    rows = min(a.shape[0], b.shape[0])
    size = max(1, a.nbytes // max(1, a.shape[0]))
    step = max(1, _BLOCK // size)
    found = _Found()
    if not (a.bounded and b.bounded):
        raise NotSupportedError("it is a large view of compressed leaves or of a stack; unpack or save the view first")
    direct = a.direct and b.direct and a.nbytes > 0
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        work.advance((stop - start) * size)
        if direct and _same_bytes(a, b, start * size, stop * size):
            continue
        found.add(start, a.rows(start, stop), b.rows(start, stop), np)
    if found.values:
        yield finding("differs", "error", found.text(a), key, row_ranges(np.array(found.rows, np.int64)))


def _same_bytes(a: Leaf, b: Leaf, start: int, stop: int) -> bool:
    left, right = a.octets(start, stop), b.octets(start, stop)
    same = left == right
    if start // _GIVEN_BACK != stop // _GIVEN_BACK:
        give_back(left)
        give_back(right)
    return same


@dataclass(slots=True)
class _Found:
    """What differs between two leaves."""

    values: int = 0
    n_rows: int = 0
    rows: list[int] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    greatest: float = 0.0

    def add(self, start: int, left: NDArray[Any], right: NDArray[Any], np: Any) -> None:
        words = bits(left.reshape(-1, 1)) != bits(right.reshape(-1, 1))
        differs = words.any(axis=1).reshape(left.shape)
        if not differs.any():
            return
        self.values += int(differs.sum())
        rows = np.flatnonzero(flat_rows(differs).any(axis=1)) + start
        self.n_rows += len(rows)
        self.rows += rows[: _MAX_ROWS - len(self.rows)].tolist()
        for index in np.argwhere(differs)[: _FIRST - len(self.first)]:
            place = [int(index[0]) + start, *(int(i) for i in index[1:])]
            at = tuple(index)
            self.first.append(f"{place}: {left[at]!s} here, {right[at]!s} there")
        if left.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                gap = np.abs(left[differs].astype(np.float64) - right[differs].astype(np.float64))
            finite = gap[np.isfinite(gap)]
            self.greatest = max(self.greatest, float(finite.max()) if len(finite) else 0.0)

    def text(self, leaf: Leaf) -> str:
        total = 1
        for size in leaf.shape:
            total *= size
        text = f"{self.values} of {total} values in {self.n_rows} rows differ, first at " + "; ".join(self.first)
        return text + (f"; the greatest difference is {self.greatest:g}" if self.greatest else "")


def _compare_nested(a: Leaf, b: Leaf, key: Key) -> Iterator[Problem]:
    import numpy as np

    pairs = zip(_components(a), _components(b), strict=False)
    rows = [i for i, (left, right) in enumerate(pairs) if left != right]
    if rows:
        text = f"{len(rows)} of {a.shape[0]} tensors of the nested tensor differ, first tensor {rows[0]}"
        yield finding("differs", "error", text, key, row_ranges(np.array(rows, np.int64)))


def _components(leaf: Leaf) -> Iterator[tuple[tuple[int, ...], memoryview]]:
    """Shape and bytes of each tensor of a nested tensor, read in their order."""
    shapes = leaf.component_shapes()
    itemsize = leaf.stored_nbytes // max(1, sum(map(math.prod, shapes)))
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape) * itemsize
        yield shape, leaf.octets(start, stop)
        start = stop


# -- by episode ---


def _by_episode(a: Node, b: Node) -> Iterator[Problem]:
    from tdview.analysis.against import schema_problems
    from tdview.analysis.buffers import buffer_of

    left, right = buffer_of(a), buffer_of(b)
    yield from schema_problems(left, right)
    keys = tuple(
        key
        for key, column in left.columns.items()
        if key != ("index",)
        and key in right.columns
        and (right.columns[key].feature, right.columns[key].dtype) == (column.feature, column.dtype)
    )
    ours, theirs = _episode_hashes(left, keys), _episode_hashes(right, keys)
    missing = [i for i, value in enumerate(ours[0]) if value not in set(theirs[0])]
    extra = [i for i, value in enumerate(theirs[0]) if value not in set(ours[0])]
    for which, indices, buffer, spans in (
        ("first", missing, left, ours[1]),
        ("second", extra, right, theirs[1]),
    ):
        if indices:
            rows = _rows_of(buffer, spans, indices)
            text = f"{len(indices)} of {len(spans)} episodes are only in the {which} save"
            text += ": they were changed, added or removed" if which == "first" else "; rows are those of that save"
            yield finding("differs", "error", text, (), rows)


def _episode_hashes(buffer: Buffer, keys: tuple[Key, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """A hash of the steps of every episode over `keys`, and its first and last position."""
    from tdview.analysis.episodes import episode_table
    from tdview.analysis.rules.duplicates import row_hashes

    if not (buffer.sequential and buffer.ordered and buffer.columns):
        raise ArgumentError(f"{buffer.where}: there are no episodes to align by; use align='row'")
    light = tuple(key for key in keys if not buffer.is_heavy(key))
    hashes = row_hashes(buffer, light)
    table = episode_table(buffer)
    spans = list(zip(table.first.tolist(), table.last.tolist(), strict=True))
    return [hash(hashes[a : b + 1 : buffer.stride].tobytes()) for a, b in spans], spans


def _rows_of(buffer: Buffer, spans: list[tuple[int, int]], indices: list[int]) -> tuple[tuple[int, int], ...]:
    import numpy as np

    steps = [np.arange(spans[i][0], spans[i][1] + 1, buffer.stride) for i in indices]
    return buffer.ranges(np.concatenate(steps))

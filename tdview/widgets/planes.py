"""This module knows how a leaf or a level becomes a table: which axis runs down, which across, in which order.

It does not know messages; a plane answers with arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tdview.errors import ArgumentError, TdviewError, shown
from tdview.tree.fill import buffer_above

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = [
    "Asked",
    "Box",
    "Column",
    "LeafPlane",
    "LevelPlane",
    "Order",
    "Plane",
    "Ring",
    "Segment",
    "Span",
    "base_of",
    "clamp",
    "companions",
    "default_axes",
    "ring_of",
]

Span: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[Span, ...]
Order = Literal["storage", "time"]
Asked = Literal["storage", "time", "auto"]
"""``"auto"`` is time where the ring is certain."""

FOLD = 64
"""A leaf with more elements in a row is one folded column of a level's table: its numbers are in its own table."""
MAX_LEAVES = 1000
"""Leaves of a level's table; the rest is counted and said."""
MAX_COMPANIONS = 200
"""Leaves that are offered to stand beside another."""
MAX_COUNTED = 20_000
"""Leaves that are counted at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Which rows of a replay buffer are written and how they follow each other in time."""

    capacity: int
    spans: tuple[Span, ...]
    """Half-open storage rows, oldest first."""
    certain: bool

    @property
    def rows(self) -> int:
        """Number of written rows."""
        return sum(stop - start for start, stop in self.spans)

    def as_dict(self) -> dict[str, Any]:
        """JSON for the view."""
        return {"capacity": self.capacity, "spans": [list(span) for span in self.spans], "certain": self.certain}


def ring_of(node: Node, rows: int) -> Ring | None:
    """The ring that the first `rows` storage rows of `node` belong to, None where there is none."""
    buffer = buffer_above(node)
    fill = None if buffer is None else buffer.fill
    if fill is None or fill.capacity != rows or fill.rotated or (fill.rows and not fill.chronological):
        return None  # a rotated checkpoint counts rows of the buffer, not of the file
    if fill.chronological == ((0, rows),):
        return None  # every row is written, in the order of time
    return Ring(capacity=rows, spans=fill.chronological, certain=fill.certain and fill.ordered)


def default_axes(shape: Sequence[int], *, picture: bool) -> tuple[int | None, int | None]:
    """Row and column axis to start with: time down and the last axis across; of pictures the last two."""
    if not shape:
        return None, None
    if len(shape) == 1:
        return 0, None
    return (len(shape) - 2, len(shape) - 1) if picture else (0, len(shape) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Neighbouring columns of one dtype."""

    start: int
    """First column in the plane."""
    values: NDArray[Any]
    """``[rows, columns]``; may be a view of the mapped file."""
    blanks: bool = False
    """Negative integers and NaN say that there is no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One leaf's columns in a level's table."""

    leaf: Leaf
    key: tuple[str, ...]
    """Nested key below the level."""
    start: int
    count: int
    """Columns in the table: 1 for a folded leaf."""
    folded: bool
    problem: str
    depth: int
    """Batch dimensions of the level, fewer perhaps than those of the own one; 0 where its rows are not the leaf's."""

    def as_dict(self) -> dict[str, Any]:
        """JSON for the view."""
        return {
            "key": list(self.key),
            "dtype": self.leaf.dtype,
            "shape": list(self.trailing),
            "count": self.count,
            "folded": self.folded,
            "problem": self.problem,
        }

    @property
    def trailing(self) -> tuple[int, ...]:
        """Sizes of the element axes."""
        return tuple(self.leaf.shape[self.depth :])


class Plane:
    """A table of `rows` x `cols` cells. Row numbers count in `order`; `runs` turns them into storage rows."""

    rows: int
    cols: int
    inner: int = 1
    """Table rows that share one index of axis 0."""

    def __init__(self, node: Node, ring: Ring | None, order: Asked, total: int) -> None:
        self.node = node
        self.ring = ring
        if order == "auto":
            order = "time" if ring is not None and ring.certain and ring.rows else "storage"
        self.order: Order = order if ring is not None else "storage"
        self.rows = ring.rows * self.inner if ring is not None and self.order == "time" else total

    def runs(self, start: int, stop: int) -> Iterator[Span]:
        """Spans of storage rows that the table rows ``start .. stop`` stand for, in table order."""
        if self.order == "storage" or self.ring is None:
            yield start, stop
            return
        first = 0
        for low, high in self.ring.spans:
            low, high = low * self.inner, high * self.inner
            left, right = max(start, first), min(stop, first + high - low)
            if left < right:
                yield low + left - first, low + right - first
            first += high - low

    def place(self, row: int) -> int | None:
        """The table row of an index of axis 0, None where the order leaves it out."""
        first = 0
        if self.order == "storage" or self.ring is None:
            return row * self.inner if 0 <= row * self.inner < self.rows else None
        for low, high in self.ring.spans:
            if low <= row < high:
                return (first + row - low) * self.inner
            first += high - low
        return None

    def read(self, rows: Span, cols: Span, *, raw: bool = False) -> list[Segment]:
        """The cells of a rectangle, clamped to the table.

        Args:
            rows: half-open table rows.
            cols: half-open columns.
            raw: the bits of an element as an unsigned integer instead of its value.

        Returns:
            Segments that cover the columns in order; a folded or damaged leaf has none.

        Raises:
            DecodeError: the leaf cannot be read (of a level: its other leaves can).
        """
        import numpy as np

        start, stop = clamp(rows, self.rows)
        cols = clamp(cols, self.cols)
        parts = [self._read(run, cols, raw) for run in self.runs(start, stop)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._read((0, 0), cols, raw)
        return [
            replace(same[0], values=np.concatenate([part.values for part in same])) for same in zip(*parts, strict=True)
        ]

    def numbers(self, rows: Span, col: int) -> NDArray[Any]:
        """One column as float64 (the absolute value of complex elements); empty for a folded column."""
        import numpy as np

        found = self.read(rows, (col, col + 1))
        if not found:
            return np.empty(0)
        values = found[0].values[:, 0]
        return np.asarray(np.abs(values) if values.dtype.kind == "c" else values, np.float64)

    def labels(self, cols: Span) -> list[str]:
        """Names of columns, as the header shows them."""
        raise NotImplementedError

    def cells(self, box: Box, key: tuple[str, ...]) -> tuple[Span, Span] | None:
        """Storage rows and columns that the index box `box` of the leaf `key` covers here, None if it covers none."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """JSON for the view: sizes, labels, ring."""
        return {
            "rows": self.rows,
            "cols": self.cols,
            "order": self.order,
            "ring": None if self.ring is None else self.ring.as_dict(),
        }

    def _read(self, rows: Span, cols: Span, raw: bool) -> list[Segment]:
        raise NotImplementedError


class LeafPlane(Plane):
    """Two axes of a leaf, the others held at an index."""

    node: Leaf

    def __init__(
        self, leaf: Leaf, row_axis: int | None, col_axis: int | None, index: Sequence[int], order: Asked
    ) -> None:
        self.shape = tuple(leaf.shape)
        _check_axes(self.shape, row_axis, col_axis)
        self.row_axis, self.col_axis = row_axis, col_axis
        self.index = tuple(
            min(max(int(index[axis]) if axis < len(index) else 0, 0), max(size - 1, 0))
            for axis, size in enumerate(self.shape)
        )
        total = 1 if row_axis is None else self.shape[row_axis]
        if any(size == 0 for axis, size in enumerate(self.shape) if axis not in (row_axis, col_axis)):
            total = 0  # there is nothing behind the two axes
        super().__init__(leaf, ring_of(leaf, total) if row_axis == 0 else None, order, total)
        self.cols = 1 if col_axis is None else self.shape[col_axis]

    def slices(self, rows: Span, cols: Span) -> tuple[slice | int, ...]:
        """The index of the leaf that gives these storage rows and columns."""
        index: list[slice | int] = list(self.index)
        if self.row_axis is not None:
            index[self.row_axis] = slice(*rows)
        if self.col_axis is not None:
            index[self.col_axis] = slice(*cols)
        return tuple(index)

    def labels(self, cols: Span) -> list[str]:
        name = ".".join(self.node.path) or "value"
        if self.cols == 1 or self.col_axis is None:
            return [name] * (clamp(cols, 1)[1] - clamp(cols, 1)[0])
        return [f"{name}[{col}]" for col in range(*clamp(cols, self.cols))]

    def cells(self, box: Box, key: tuple[str, ...]) -> tuple[Span, Span] | None:
        if key or len(box) != len(self.shape):
            return None
        for axis, (start, stop) in enumerate(box):
            if axis not in (self.row_axis, self.col_axis) and not start <= self.index[axis] < stop:
                return None
        rows = (0, 1) if self.row_axis is None else box[self.row_axis]
        return rows, (0, 1) if self.col_axis is None else box[self.col_axis]

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "rowAxis": self.row_axis,
            "colAxis": self.col_axis,
            "index": list(self.index),
            "columns": [],
            "hidden": 0,
            "batch": [],
            "base": list(self.node.path),
            "companions": companions(self.node) if self.row_axis == 0 and self.col_axis in (None, 1) else [],
        }

    def _read(self, rows: Span, cols: Span, raw: bool) -> list[Segment]:
        import numpy as np

        empty = 0 in self.shape or rows[0] == rows[1] or cols[0] == cols[1]
        index = (slice(0, 0),) * len(self.shape) if empty else self.slices(rows, cols)
        values = np.asarray(_bits(self.node, index) if raw else self.node.numpy(index))
        if empty:
            values = values.reshape(-1)[:0]
        elif self.row_axis is not None and self.col_axis is not None and self.row_axis > self.col_axis:
            values = values.T
        # An axis that the leaf does not have is one wide, however little of it was asked for.
        shape = [1 if axis is None else b - a for axis, (a, b) in ((self.row_axis, rows), (self.col_axis, cols))]
        if empty:
            shape = [rows[1] - rows[0], cols[1] - cols[0]]
        values = values.reshape(shape)
        values = values[slice(*rows)] if self.row_axis is None else values
        return [Segment(start=cols[0], values=values[:, slice(*cols)] if self.col_axis is None else values)]


class LevelPlane(Plane):
    """Leaves below a level side by side: a row per element of the batch, a column per element of a key.

    `leaves` are the ones to show, None for all.
    """

    def __init__(self, node: Node, order: Asked, leaves: Sequence[Leaf] | None = None) -> None:
        self.batch = tuple(node.batch_size or ())
        self.inner = math.prod(self.batch[1:])
        total = math.prod(self.batch)
        super().__init__(node, ring_of(node, self.batch[0]) if self.batch else None, order, total)
        self.companions: list[list[str]] = []
        """Keys of leaves that could stand beside the first one, where it is shown with others."""
        self.columns: list[Column] = []
        self.hidden = self.cols = 0
        for leaf in itertools.islice(node.leaves(), MAX_COUNTED) if leaves is None else leaves:
            if len(self.columns) == MAX_LEAVES:
                self.hidden += 1
                continue
            column = self._column(leaf)
            self.columns.append(column)
            self.cols += column.count

    def labels(self, cols: Span) -> list[str]:
        return [label for column, left, right in self.cut(cols) for label in _element_labels(column)[left:right]]

    def cells(self, box: Box, key: tuple[str, ...]) -> tuple[Span, Span] | None:
        column = next((column for column in self.columns if column.key == key and not column.folded), None)
        depth = len(self.batch)
        if column is None or len(box) != len(column.leaf.shape):
            return None
        rows, elements = _flat(box[:depth], self.batch), _flat(box[depth:], tuple(column.leaf.shape[depth:]))
        return rows, (column.start + elements[0], column.start + elements[1])

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "rowAxis": None,
            "colAxis": None,
            "index": [],
            "columns": [column.as_dict() for column in self.columns],
            "hidden": self.hidden,
            "batch": list(self.batch),
            "base": list(self.node.path),
            "companions": self.companions,
        }

    def _column(self, leaf: Leaf) -> Column:
        shape = tuple(leaf.shape)
        key = tuple(leaf.path)[len(self.node.path) :]
        problem = next((found.message for found in leaf.problems if found.severity == "error"), "")
        # The rows of a stack are its members, not those of a leaf in one of them.
        own = shape[: len(self.batch)] == self.batch and not any(map(_is_stack, _levels(leaf, self.node)))
        depth = len(self.batch) if own else 0
        elements = math.prod(shape[depth:])
        folded = bool(problem) or not own or leaf.is_nested or not 1 <= elements <= FOLD
        return Column(
            leaf=leaf,
            key=key,
            start=self.cols,
            count=1 if folded else elements,
            folded=folded,
            problem=problem,
            depth=depth,
        )

    def cut(self, cols: Span) -> Iterator[tuple[Column, int, int]]:
        """The leaves of some columns of the table, each with the elements that it has among them."""
        start, stop = clamp(cols, self.cols)
        for column in self.columns:
            left, right = max(start, column.start), min(stop, column.start + column.count)
            if left < right:
                yield column, left - column.start, right - column.start

    def _read(self, rows: Span, cols: Span, raw: bool) -> list[Segment]:
        found = []
        for column, left, right in self.cut(cols):
            if column.folded:
                continue
            try:
                values = self._rows(column.leaf, rows, raw)
            except TdviewError:
                continue  # the header of the column says why
            found.append(Segment(start=column.start + left, values=values[:, left:right]))
        return found

    def _rows(self, leaf: Leaf, rows: Span, raw: bool) -> NDArray[Any]:
        import numpy as np

        elements = math.prod(leaf.shape[len(self.batch) :])
        if not self.batch:
            return np.asarray(_bits(leaf, ()) if raw else leaf.numpy()).reshape(1, elements)[rows[0] : rows[1]]
        low, high = rows[0] // max(1, self.inner), -(-rows[1] // max(1, self.inner))
        values = np.asarray(_bits(leaf, (slice(low, high),)) if raw else leaf.numpy((slice(low, high),)))
        flat = values.reshape((high - low) * self.inner, elements)
        return flat[rows[0] - low * self.inner : rows[1] - low * self.inner]


def base_of(leaf: Leaf) -> Node | None:
    """The highest level whose batch the leaf shares: its other leaves can stand beside it, row by row."""
    base, above = None, leaf.parent
    while above is not None and above.batch_size and not _is_stack(above):
        if tuple(leaf.shape[: len(above.batch_size)]) == above.batch_size:
            base = above
        above = above.parent
    elements = 0 if base is None else math.prod(leaf.shape[len(base.batch_size or ()) :])
    return base if 1 <= elements <= FOLD else None


def _levels(leaf: Leaf, top: Node) -> Iterator[Node]:
    """The levels that hold a leaf, up to `top`."""
    above = leaf.parent
    while above is not None:
        yield above
        above = None if above.path == top.path else above.parent


def _is_stack(node: Node) -> bool:
    return node.kind == "lazy_stack"


def companions(leaf: Leaf) -> list[list[str]]:
    """Keys, below `base_of`, of the leaves that can stand beside this one."""
    base = base_of(leaf)
    if base is None:
        return []
    batch = tuple(base.batch_size or ())
    found = []
    for other in itertools.islice(base.leaves(), MAX_COMPANIONS):
        shape = tuple(other.shape)
        fits = shape[: len(batch)] == batch and not other.is_nested and 1 <= math.prod(shape[len(batch) :]) <= FOLD
        if fits and other.path != leaf.path and not any(map(_is_stack, _levels(other, base))):
            found.append(list(other.path[len(base.path) :]))
    return found


def clamp(span: Span, size: int) -> Span:
    """`span` cut to ``0 .. size``, empty where it lies outside."""
    start = min(max(span[0], 0), size)
    return start, min(max(span[1], start), size)


def _check_axes(shape: tuple[int, ...], row_axis: int | None, col_axis: int | None) -> None:
    for name, axis in (("row axis", row_axis), ("column axis", col_axis)):
        if axis is not None and not 0 <= axis < len(shape):
            raise ArgumentError(f"{name}: expected one of {len(shape)} axes, got {shown(axis)}")
    if row_axis is not None and row_axis == col_axis:
        raise ArgumentError(f"row and column axis: expected two axes, got {row_axis} twice")


def _element_labels(column: Column) -> list[str]:
    name = ".".join(column.key)
    sizes = column.trailing
    if column.folded or math.prod(sizes) == 1:
        return [name] * column.count
    labels = []
    for element in range(column.count):
        index = []
        for size in reversed(sizes):
            element, place = divmod(element, size)
            index.append(place)
        labels.append(f"{name}[{', '.join(map(str, reversed(index)))}]")
    return labels


def _flat(box: Box, sizes: tuple[int, ...]) -> Span:
    """The flat span from the first to the last element of an index box."""
    first = last = 0
    for (start, stop), size in zip(box, sizes, strict=True):
        first, last = first * size + start, last * size + stop - 1
    return first, last + 1


def _bits(leaf: Leaf, index: tuple[slice | int, ...]) -> NDArray[Any]:
    """Elements as the unsigned integers that their bytes are; complex ones stay pairs of floats."""
    import numpy as np

    values = np.asarray(leaf.carrier()[index])
    if values.dtype.kind == "c":
        return values
    return np.ascontiguousarray(values).view(f"<u{values.dtype.itemsize}")

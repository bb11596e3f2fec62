"""This module knows the requests of the table: open it, read pages of it, hand a slice on as a file.

It does not know how a leaf becomes a table (`planes`) nor how edits are made.

Operations (``view`` is ``{rowAxis, colAxis, index, order, with, side}``, all optional; ``with`` names other leaves to
stand beside a leaf, ``side`` asks for the columns of `side_plane` in front; spans are half-open):

- ``table.page`` ``{path, view, blocks: [[row, row, col, col], …], describe, raw, at}`` → ``{table?, at?, pages: [{rows,
  cols, segments: [{start, cols, wire}], edited: [[row, row, col, col], …]}]}`` and one buffer per segment, row-major.
  ``at`` is an index of axis 0: the answer's is its table row (or null), and the blocks around it come along.
- ``table.export`` (slow) ``{path, view, format, rows, cols}`` → ``{name, mime}`` and the file in parts.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tdview.errors import ArgumentError, NotSupportedError, shown
from tdview.widgets.messages import Reply, bool_arg, int_arg, path_arg, str_arg
from tdview.widgets.nested_plane import LEAD, NestedPlane
from tdview.widgets.planes import (
    Asked,
    Box,
    LeafPlane,
    LevelPlane,
    Plane,
    Span,
    base_of,
    clamp,
    companions,
    default_axes,
)
from tdview.widgets.side_plane import Sides, bare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["bytes_of", "leaf_of", "node_at", "plane_of", "register", "span_arg", "wire_of"]

PAGE_BYTES = 256 << 10
"""Most payload bytes of one page; a view asks for less."""
MAX_PAGES = 64
EXPORT_CELLS = 4_000_000
EXPORT_BYTES = 64 << 20
"""A file travels through the browser's memory; larger slices are better written by Python."""
PART_BYTES = 4 << 20
CHUNK_CELLS = 1 << 16
_BLOCK, _BLOCK_COLS = 128, 16
"""Rows and columns of the blocks that the view keeps; mirrors `js/src/blocks.ts`."""


def register(router: Router, browser: Browser) -> None:
    """Adds the operations of the table to `router`."""
    planes = _Planes(browser)
    router.register("table.page", lambda args, _buffers, _call: _page(browser, planes, args))
    router.register("table.export", lambda args, _buffers, call: _export(planes.of(args), args, call), slow=True)


class _Planes:
    """The plane that was asked for last: scrolling asks for the same one again and again."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.sides = Sides()
        self.last: tuple[Any, Node, Plane] | None = None

    def of(self, args: dict[str, Any]) -> Plane:
        node = node_at(self.browser, args)
        view = args.get("view", {})
        last = self.last
        if last is not None and last[1] is node and last[0] == view and not bool_arg(args, "describe"):
            return last[2]
        plane = self.sides.before(plane_of(node, view), view)
        self.last = (view, node, plane)
        return plane


def node_at(browser: Browser, args: dict[str, Any]) -> Node:
    """The node that ``args["path"]`` names."""
    path = path_arg(args)
    return browser.root[path] if path else browser.root


def plane_of(node: Node, view: object) -> Plane:
    """The table of a node in the arrangement that the view asks for.

    Raises:
        ArgumentError: the arrangement is malformed or does not fit.
        NotSupportedError: the node has no numbers.
    """
    if not isinstance(view, dict):
        raise ArgumentError(f"view: expected an object, got {shown(view)}")
    asked = view.get("order", "auto")
    if asked not in ("storage", "time", "auto"):
        raise ArgumentError(f"order: expected 'storage', 'time' or 'auto', got {shown(asked)}")
    order: Asked = asked
    leaf = leaf_of(node)
    if leaf is None:
        if node.kind in ("non_tensor", "non_tensor_stack"):
            raise NotSupportedError(f"{'.'.join(node.path)}: a non-tensor has no table; its value is under Info")
        return LevelPlane(node, order)
    if leaf.is_nested:
        return NestedPlane(leaf)
    beside = _beside(leaf, view.get("with", []), order)
    if beside is not None:
        return beside
    index = view.get("index", [])
    if not isinstance(index, list) or not all(isinstance(place, int) for place in index):
        raise ArgumentError(f"index: expected a list of integers, got {shown(index)}")
    picture = leaf.dtype == "torch.uint8" and len(leaf.shape) >= 3
    rows, cols = default_axes(leaf.shape, picture=picture)
    return LeafPlane(leaf, _axis(view, "rowAxis", rows), _axis(view, "colAxis", cols), index, order)


def _beside(leaf: Leaf, keys: object, order: Asked) -> LevelPlane | None:
    """The leaf with others beside it; None where there are none, or none that fits."""
    if not isinstance(keys, list) or not all(
        isinstance(key, list) and all(isinstance(part, str) for part in key) for key in keys
    ):
        raise ArgumentError(f"with: expected a list of nested keys, got {shown(keys)}")
    known = companions(leaf) if keys else []
    base = base_of(leaf)
    chosen = [leaf_of(base[tuple(key)]) for key in keys if key in known] if base is not None else []
    others = [other for other in chosen if other is not None]
    if base is None or not others:
        return None
    plane = LevelPlane(base, order, [leaf, *others])
    plane.companions = known
    return plane


def leaf_of(node: Node) -> Leaf | None:
    """`node` as the leaf that it is, None for all other nodes."""
    return cast("Leaf", node) if node.is_leaf else None


def bytes_of(values: NDArray[Any]) -> memoryview:
    """The bytes of an array in C order, uncopied where they lie so."""
    import numpy as np

    flat: Any = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return memoryview(flat)


def wire_of(values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """How an array travels: its wire name and little-endian C-order elements; float16 is widened to float32."""
    import numpy as np

    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "b":
        return "b1", np.ascontiguousarray(values).view(np.uint8)
    if kind == "f" and size == 2:
        return "f4", np.ascontiguousarray(values, "<f4")
    if kind not in "iufc" or size > 16:
        raise NotSupportedError(f"elements of type {values.dtype} cannot be shown")
    return f"{kind}{size}", np.ascontiguousarray(values, values.dtype.newbyteorder("<"))


def span_arg(args: dict[str, Any], name: str, size: int) -> Span:
    """The half-open span in ``args[name]``, clamped to ``0 .. size``; everything when it is absent."""
    value = args.get(name)
    if value is None:
        return 0, size
    start, stop = _integers(value, name, 2)
    return clamp((start, stop), size)


def _page(browser: Browser, planes: _Planes, args: dict[str, Any]) -> Reply:
    raw = bool_arg(args, "raw")
    blocks = args.get("blocks", [])
    if not isinstance(blocks, list) or len(blocks) > MAX_PAGES:
        raise ArgumentError(f"blocks: expected a list of at most {MAX_PAGES}, got {shown(blocks)}")
    wanted = [_integers(block, "block", 4) for block in blocks]
    plane = planes.of(args)
    value: dict[str, Any] = {"pages": []}
    if bool_arg(args, "describe"):
        value["table"] = plane.describe() | planes.sides.describe(plane)
    if args.get("at") is not None:
        value["at"] = place = plane.place(int_arg(args, "at"))
        if place is not None:
            wanted += [
                (low, low + _BLOCK, col, col + _BLOCK_COLS) for low in _around(place) for col in (0, _BLOCK_COLS)
            ]
    buffers: list[memoryview] = []
    for r0, r1, c0, c1 in wanted:
        rows, cols = clamp((r0, r1), plane.rows), clamp((c0, c1), plane.cols)
        if (rows[1] - rows[0]) * (cols[1] - cols[0]) * 8 > 2 * PAGE_BYTES:
            raise ArgumentError(f"block {[r0, r1, c0, c1]}: a page is at most {PAGE_BYTES} bytes; ask for several")
        segments = []
        for segment in plane.read(rows, cols, raw=raw):
            wire, values = wire_of(segment.values)
            segments.append({"start": segment.start, "cols": segment.values.shape[1], "wire": wire})
            buffers.append(bytes_of(values))
        value["pages"].append(
            {"rows": rows, "cols": cols, "segments": segments, "edited": _edited(browser, plane, rows, cols)}
        )
    return Reply(value, buffers)


def _around(place: int) -> tuple[int, ...]:
    """First rows of the blocks that hold a row and the rows that a view shows around it."""
    first = place // _BLOCK * _BLOCK
    other = first + _BLOCK if place - first >= _BLOCK // 2 else first - _BLOCK
    return (first, other) if other >= 0 else (first,)


def _edited(browser: Browser, plane: Plane, rows: Span, cols: Span) -> list[list[int]]:
    """Rectangles of storage rows and columns that the browser's edits changed, as far as they meet the block."""
    changed: Iterable[tuple[Sequence[str], Box]] = getattr(browser, "edited_boxes", lambda _path: ())(plane.node.path)
    depth = len(plane.node.path)
    spans = list(plane.runs(*rows))
    found = []
    for key, box in changed:
        place = plane.cells(box, tuple(key)[depth:])
        if place is None:
            continue
        (r0, r1), (c0, c1) = place
        left, right = max(c0, cols[0]), min(c1, cols[1])
        for start, stop in spans:
            low, high = max(r0, start), min(r1, stop)
            if low < high and left < right:
                found.append([low, high, left, right])
    return found


def _export(plane: Plane, args: dict[str, Any], call: Call) -> Reply:
    kind = str_arg(args, "format")
    rows, cols = span_arg(args, "rows", plane.rows), span_arg(args, "cols", plane.cols)
    cells = (rows[1] - rows[0]) * (cols[1] - cols[0])
    if cells > EXPORT_CELLS:
        raise NotSupportedError(
            f"{cells:,} cells are too many for a download, at most {EXPORT_CELLS:,}; use the code of the view in Python"
        )
    writers = {"csv": (_csv, "text/csv"), "npy": (_npy, "application/octet-stream"), "parquet": (_parquet, _PARQUET)}
    if kind not in writers:
        raise ArgumentError(f"format: expected one of {sorted(writers)}, got {shown(kind)}")
    write, mime = writers[kind]
    data = write(plane, rows, cols, call)
    if len(data) > EXPORT_BYTES:
        raise NotSupportedError(f"{len(data):,} bytes are too many for a download; use the code of the view in Python")
    name = ".".join(plane.node.path) or "root"
    parts = [memoryview(data)[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    return Reply({"name": f"{name}.{kind}", "mime": mime}, parts)


_PARQUET = "application/vnd.apache.parquet"


def _csv(plane: Plane, rows: Span, cols: Span, call: Call) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    shown_cols = _columns(plane, cols)
    labels = plane.labels(cols)
    writer.writerow(["row", *(labels[col - cols[0]] for col in shown_cols)])
    step = max(1, CHUNK_CELLS // max(1, cols[1] - cols[0]))
    for start in range(rows[0], rows[1], step):
        stop = min(rows[1], start + step)
        call.progress(start - rows[0], rows[1] - rows[0])
        places = [place for run in plane.runs(start, stop) for place in range(*run)]
        parts = [[_texts(row, part.blanks) for row in part.values] for part in plane.read((start, stop), cols)]
        for place, *pieces in zip(places, *parts, strict=True):
            writer.writerow([place, *(text for piece in pieces for text in piece)])
    return out.getvalue().encode()


def _npy(plane: Plane, rows: Span, cols: Span, call: Call) -> bytes:
    import numpy as np

    whole = plane
    plane, cols = bare(whole, cols)
    if plane is not whole and cols[0] == cols[1]:
        raise NotSupportedError("an NPY file has one dtype; take CSV or Parquet for ages and priorities")
    if isinstance(plane, LevelPlane):
        raise NotSupportedError("an NPY file has one dtype, a level has several; take CSV or Parquet, or a single leaf")
    if isinstance(plane, NestedPlane):
        cols = max(cols[0], LEAD), max(cols[1], LEAD + 1)  # the elements, without the numbers in front
    call.progress(0, 1)
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(plane.read(rows, cols)[0].values), allow_pickle=False)
    return out.getvalue()


def _parquet(plane: Plane, rows: Span, cols: Span, call: Call) -> bytes:
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    except ImportError:
        raise NotSupportedError("Parquet needs pyarrow, which is not installed: pip install pyarrow") from None
    import pandas

    call.progress(0, 1)
    labels = plane.labels(cols)
    data: dict[str, Any] = {}
    for part in plane.read(rows, cols):
        for place in range(part.values.shape[1]):
            values = part.values[:, place]
            name = labels[part.start - cols[0] + place]
            if values.dtype.kind == "c":  # Parquet has no complex numbers
                data[f"{name}.real"], data[f"{name}.imag"] = values.real, values.imag
            elif part.blanks and values.dtype.kind == "i":
                data[name] = pandas.array(values, "Int64")
                data[name][values < 0] = pandas.NA
            else:
                data[name] = values
    places = [place for run in plane.runs(*rows) for place in range(*run)]
    out = io.BytesIO()
    pandas.DataFrame(data, index=pandas.Index(places, name="row")).to_parquet(out, engine="pyarrow")
    return out.getvalue()


def _columns(plane: Plane, cols: Span) -> list[int]:
    return [part.start + place for part in plane.read((0, 0), cols) for place in range(part.values.shape[1])]


def _texts(row: NDArray[Any], blanks: bool) -> list[str]:
    """Elements as text that reads back exactly."""
    if blanks:
        return [str(value) if value >= (0 if row.dtype.kind == "i" else -math.inf) else "" for value in row.tolist()]
    if row.dtype.kind == "f" and row.dtype.itemsize < 8:
        return [str(value) for value in row]  # a numpy scalar prints the shortest form of its own precision
    return [str(value) for value in row.tolist()]


def _axis(view: dict[str, Any], name: str, default: int | None) -> int | None:
    if name not in view:
        return default
    return None if view[name] is None else int_arg(view, name)


def _integers(value: object, name: str, count: int) -> tuple[int, ...]:
    if (
        not isinstance(value, (list, tuple))
        or len(value) != count
        or not all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    ):
        raise ArgumentError(f"{name}: expected {count} integers, got {shown(value)}")
    return tuple(value)

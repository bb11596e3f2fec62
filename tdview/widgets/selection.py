"""This module knows what is selected in a browser, as tensors, as a frame, as rows and as Python code.

It does not know how a view selects.

Operation: ``selection`` ``{path, view, rows, cols}``: the node whose table is shown, how it is arranged (see
`tdview.widgets.pages`), and the half-open spans of rows and columns that are selected in it; without them it is the
whole node.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tdview.errors import NotSupportedError
from tdview.widgets.messages import path_arg
from tdview.widgets.pages import plane_of, span_arg
from tdview.widgets.planes import LeafPlane, LevelPlane, Plane, Span
from tdview.widgets.side_plane import Sides, bare
from tdview.widgets.tree_ops import node_of

if TYPE_CHECKING:
    import pandas
    import torch

    from tdview.operations.edits import Box
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Router

__all__ = ["Selection", "register"]

MAX_BOXES = 10_000


def register(router: Router, browser: Browser) -> None:
    """Adds the operation of the selection to `router`."""
    router.register("selection", lambda args, _buffers, _call: _select(browser, args))


class Selection:
    """What is selected: a node, or boxes of elements of the leaves below it. Reads nothing until it is asked."""

    def __init__(self, root: Node, path: tuple[str, ...], boxes: Sequence[tuple[tuple[str, ...], Box]] = ()) -> None:
        self._root = root
        self.path = path
        """Nested key of the selected node."""
        self.boxes = tuple(boxes)
        """Nested key of a leaf and a span for each axis, in the order of the table; empty for the whole node."""

    @property
    def node(self) -> Node:
        """The selected node."""
        return self._root[self.path] if self.path else self._root

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Half-open spans of axis 0 in the order of the table, each once; all rows where no range is selected."""
        if not self.boxes:
            size = (getattr(self.node, "shape", None) or self.node.batch_size or (1,))[0]
            return ((0, size),)
        return tuple(dict.fromkeys(box[0] for _, box in self.boxes if box))

    @property
    def tensors(self) -> dict[tuple[str, ...], torch.Tensor]:
        """The selected elements of each leaf by its nested key; views of the mapped file where that is possible."""
        import torch

        parts: dict[tuple[str, ...], list[torch.Tensor]] = {}
        for leaf, box in self._parts():
            tensor = leaf.tensor()
            parts.setdefault(leaf.path, []).append(tensor if box is None else tensor[_slices(box)])
        return {path: part[0] if len(part) == 1 else torch.cat(part) for path, part in parts.items()}

    def frame(self) -> pandas.DataFrame:
        """The selected elements as a frame: batch dims down, elements of the leaves across."""
        import pandas

        if not self.boxes:
            return self.node.frame()
        columns: dict[tuple[str, ...], list[pandas.DataFrame]] = {}
        for leaf, box in self._parts():
            if box is not None:
                columns.setdefault((*leaf.path, str(box[1:])), []).append(_frame(leaf, box, len(self.path)))
        return pandas.concat([pandas.concat(parts) for parts in columns.values()], axis=1)

    @property
    def code(self) -> str:
        """Python that gives the selected elements without the browser."""
        lines = ["import tdview", "", f"root = tdview.scan({self._root.store.label!r})"]
        if not self.boxes:
            node = f"root[{', '.join(map(repr, self.path))}]" if self.path else "root"
            lines.append(f"{node}.tensor()" if self.node.is_leaf else f"{node}.frame()")
            return "\n".join(lines) + "\n"
        for path, box in self.boxes:
            index = ", ".join(f"{start}:{stop}" for start, stop in box)
            lines.append(f"root[{', '.join(map(repr, path))}].tensor(){f'[{index}]' if index else ''}")
        return "\n".join(lines) + "\n"

    def tensordict(self) -> Any:
        """The selected rows of the whole save as a `tdview.TensorDict`, for example to append them to another save.

        Raises:
            NotSupportedError: the save has no batch dims, or the selected leaf is not one of its rows.
        """
        import torch

        from tdview.containers.load import load_memmap

        if not self._root.batch_size:
            raise NotSupportedError(f"{self._root.where()}: there are no rows: the batch size is []")
        whole = load_memmap(self._root.store.location, mode="r")
        spans = [whole[start:stop] for start, stop in self.rows]
        return spans[0] if len(spans) == 1 else torch.cat(spans)

    def _parts(self) -> Iterator[tuple[Leaf, Box | None]]:
        from tdview.tree.leaf import Leaf

        if not self.boxes:
            yield from ((leaf, None) for leaf in self.node.leaves())
        for path, box in self.boxes:
            leaf = self._root[path]
            if isinstance(leaf, Leaf):
                yield leaf, box

    def __repr__(self) -> str:
        name = ".".join(self.path) or "the save"
        if not self.boxes:
            return f"<selection: {name}>"
        count = sum(math.prod(stop - start for start, stop in box) for _, box in self.boxes)
        rows = ", ".join(f"{start}:{stop}" for start, stop in self.rows[:4])
        return f"<selection: {name}, {count} elements in rows {rows}>"


def _select(browser: Browser, args: dict[str, Any]) -> dict[str, Any]:
    node = node_of(browser.root, path_arg(args))
    boxes: list[tuple[tuple[str, ...], Box]] = []
    if "rows" in args or "cols" in args:
        view = args.get("view", {})
        whole = Sides().before(plane_of(node, view), view)
        rows, cols = span_arg(args, "rows", whole.rows), span_arg(args, "cols", whole.cols)
        plane, cols = bare(whole, cols)
        if plane is not whole and cols[0] == cols[1]:
            cols = 0, plane.cols  # ages and priorities alone stand for their rows
        boxes = list(itertools.islice(_boxes(plane, rows, cols), MAX_BOXES))
    browser.choose(node.path, boxes)
    return {}


def _boxes(plane: Plane, rows: Span, cols: Span) -> Iterator[tuple[tuple[str, ...], Box]]:
    """The elements behind a rectangle of a table, in the order in which it shows them."""
    for run in plane.runs(*rows):
        if isinstance(plane, LeafPlane):
            yield plane.node.path, tuple(_span(place) for place in plane.slices(run, cols))
        elif isinstance(plane, LevelPlane):
            for column, left, right in plane.cut(cols):
                if column.folded:
                    continue
                for outer in _spans_of(run, plane.batch):
                    for inner in _spans_of((left, right), column.trailing):
                        yield column.leaf.path, (*outer, *inner)


def _spans_of(span: Span, sizes: tuple[int, ...]) -> Iterator[Box]:
    """The positions ``start .. stop`` in C order as boxes: whole blocks of the inner axes together."""
    if not sizes:
        yield ()
        return
    start, stop = span
    inner = math.prod(sizes[1:])
    while start < stop:
        first, within = divmod(start, inner)
        if within == 0 and stop - start >= inner:
            last = first + (stop - start) // inner
            yield ((first, last), *((0, size) for size in sizes[1:]))
            start = last * inner
        else:
            end = min(stop, (first + 1) * inner)
            for box in _spans_of((within, within + end - start), sizes[1:]):
                yield ((first, first + 1), *box)
            start = end


def _span(place: slice | int) -> Span:
    return (place, place + 1) if isinstance(place, int) else (place.start, place.stop)


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)


def _frame(leaf: Leaf, box: Box, depth: int) -> pandas.DataFrame:
    """A box of a leaf: a row for each index of the batch dims, a column for each element."""
    import pandas

    batch = min(len(leaf.batch_size or ()) or 1, len(box))
    values = leaf.numpy(_slices(box))
    name = ".".join(leaf.path[depth:]) or leaf.key
    places = list(itertools.product(*(range(*span) for span in box[batch:])))
    whole = leaf.shape[batch:]
    labels = [name if math.prod(whole) == 1 else f"{name}[{', '.join(map(str, place))}]" for place in places]
    levels = [range(*span) for span in box[:batch]]
    names = [known or f"dim {axis}" for axis, known in enumerate((leaf.names or (None,) * batch)[:batch])]
    if not levels:
        index = pandas.RangeIndex(1)
    elif len(levels) == 1:
        index = pandas.Index(levels[0], name=names[0])
    else:
        index = pandas.MultiIndex.from_product(levels, names=names)
    return pandas.DataFrame(values.reshape(len(index), len(labels)), index=index, columns=labels, copy=True)

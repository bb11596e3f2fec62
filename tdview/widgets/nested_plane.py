"""This module knows how a nested tensor becomes a table: its tensors one below the other, and in front which one it is.

It does not know messages. The table is read-only.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from tdview.widgets.planes import Box, Plane, Segment, Span, clamp

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf

__all__ = ["LEAD", "NestedPlane"]

LEAD = 2
"""Columns in front of the elements."""


class NestedPlane(Plane):
    """The rows of all tensors of a nested tensor: ``tensor``, ``position``, and the elements.

    Where the tensors differ in the first size only, a row is one of their rows. Where they differ in more, no column
    means the same in all of them: a row is one element then, in C order.
    """

    node: Leaf

    def __init__(self, leaf: Leaf) -> None:
        shapes = leaf.component_shapes()
        filled = {shape[1:] for shape in shapes if math.prod(shape)}
        self.common = len(filled) <= 1 and bool(leaf.entry.shape[1])
        """Whether the tensors differ in the first size only."""
        self.trailing = next(iter(filled), ()) if self.common else ()
        width = math.prod(self.trailing)
        sizes = [math.prod(shape) // width for shape in shapes]
        self.starts = [0, *itertools.accumulate(sizes)]
        """First row of each tensor, and the number of all rows."""
        super().__init__(leaf, None, "storage", self.starts[-1])
        self.cols = LEAD + width

    @property
    def counted(self) -> str:
        """What the second column counts."""
        return "position" if self.common else "element"

    def labels(self, cols: Span) -> list[str]:
        name = ".".join(self.node.path)
        places = itertools.product(*map(range, self.trailing))
        elements = [f"{name}[{', '.join(map(str, place))}]" if place else name for place in places]
        return ["tensor", self.counted, *elements][slice(*clamp(cols, self.cols))]

    def cells(self, box: Box, key: tuple[str, ...]) -> tuple[Span, Span] | None:
        return None

    def describe(self) -> dict[str, Any]:
        lead = [
            {"key": [name], "dtype": "torch.int64", "shape": [], "count": 1, "folded": False, "problem": ""}
            for name in ("tensor", self.counted)
        ]
        own = {"key": list(self.node.path), "dtype": self.node.dtype, "shape": list(self.trailing)}
        return {
            **super().describe(),
            "rowAxis": None,
            "colAxis": None,
            "index": [],
            "columns": [*lead, own | {"count": self.cols - LEAD, "folded": False, "problem": ""}],
            "hidden": 0,
            "batch": [self.rows],
            "base": list(self.node.path),
            "companions": [],
        }

    def _read(self, rows: Span, cols: Span, raw: bool) -> list[Segment]:
        import numpy as np

        from tdview.tree.arrays import carrier_array, widened

        places = np.arange(*rows)
        tensors = np.searchsorted(self.starts, places, side="right") - 1
        lead = (tensors, places - np.asarray(self.starts)[tensors])
        found = [Segment(start=col, values=lead[col][:, None]) for col in range(*clamp(cols, LEAD))]
        left, right = (max(0, col - LEAD) for col in clamp(cols, self.cols))
        dtype = self.node.dtype_row
        if left < right and dtype is not None:
            # The payload is the tensors one behind the other, so it is this table.
            whole = carrier_array(self.node.raw(), dtype, (self.rows, self.cols - LEAD))
            values = whole[slice(*rows), left:right]
            if not raw or values.dtype.kind == "c":
                values = widened(values, dtype)
            else:
                values = np.ascontiguousarray(values).view(f"<u{values.dtype.itemsize}")
            found.append(Segment(start=LEAD + left, values=values))
        return found

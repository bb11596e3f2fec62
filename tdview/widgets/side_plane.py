"""This module knows a table with columns in front that say how old each row of a replay buffer is and how it is drawn.

It does not know where those numbers come from: see `tdview.analysis.side_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tdview.widgets.messages import bool_arg
from tdview.widgets.planes import Box, LeafPlane, LevelPlane, Plane, Segment, Span, clamp

if TYPE_CHECKING:
    from tdview.analysis.side_columns import SideColumns

__all__ = ["SidePlane", "Sides", "bare"]


class SidePlane(Plane):
    """Another plane with side columns before its own: ``lead`` of them."""

    def __init__(self, plane: Plane, side: SideColumns) -> None:
        self.plane = plane
        self.side = side
        self.lead = len(side.names)
        self.node, self.ring, self.order = plane.node, plane.ring, plane.order
        self.rows, self.cols, self.inner = plane.rows, self.lead + plane.cols, plane.inner

    def labels(self, cols: Span) -> list[str]:
        own = slice(*clamp(cols, self.lead))
        return [*self.side.names[own], *self.plane.labels(self.behind(cols))]

    def cells(self, box: Box, key: tuple[str, ...]) -> tuple[Span, Span] | None:
        found = self.plane.cells(box, key)
        return found and (found[0], (found[1][0] + self.lead, found[1][1] + self.lead))

    def describe(self) -> dict[str, Any]:
        return self.plane.describe() | {"cols": self.cols}

    def behind(self, cols: Span) -> Span:
        """Columns of the plane behind the side columns."""
        return clamp((cols[0] - self.lead, cols[1] - self.lead), self.plane.cols)

    def _read(self, rows: Span, cols: Span, raw: bool) -> list[Segment]:
        own = range(*clamp(cols, self.lead))
        found = [Segment(start=col, values=self._column(self.side.names[col], rows), blanks=True) for col in own]
        rest = self.behind(cols)
        if own and rest[0] == rest[1]:
            return found
        behind = self.plane._read(rows, rest, raw)
        return found + [replace(part, start=part.start + self.lead) for part in behind]

    def _column(self, name: str, rows: Span) -> Any:
        import numpy as np

        low, high = rows[0] // self.inner, -(-rows[1] // self.inner)
        values = np.repeat(self.side.values(name, low, high), self.inner)
        return values[rows[0] - low * self.inner : rows[1] - low * self.inner, None]


class Sides:
    """The side columns of the buffer that was asked for last: its arrays, at most 64 MB each, are read once."""

    def __init__(self) -> None:
        self._last: SideColumns | None = None

    def before(self, plane: Plane, view: Mapping[str, Any]) -> Plane:
        """`plane` with side columns in front where `view` asks for them and there are any."""
        side = self.of(plane) if bool_arg(view, "side") else None
        return plane if side is None or not side.names else SidePlane(plane, side)

    def describe(self, plane: Plane) -> dict[str, Any]:
        """JSON for the view: which side columns there are, and how many of them stand in front."""
        side = self.of(bare(plane, (0, 0))[0])
        columns = [] if side is None else [{"name": name, "title": side.meaning(name)} for name in side.names]
        return {"side": columns, "lead": plane.lead if isinstance(plane, SidePlane) else 0}

    def of(self, plane: Plane) -> SideColumns | None:
        """What stands beside the rows of `plane`, None where they are not the storage rows of a buffer."""
        from tdview.analysis.side_columns import side_of

        rows = _rows(plane)
        found = None if rows is None else side_of(plane.node, rows)
        if found is not None and (self._last is None or self._last.node is not found.node):
            self._last = found
        return found and self._last


def bare(plane: Plane, cols: Span) -> tuple[Plane, Span]:
    """A plane without its side columns, and which of `cols` are left."""
    return (plane.plane, plane.behind(cols)) if isinstance(plane, SidePlane) else (plane, cols)


def _rows(plane: Plane) -> int | None:
    """Indices of axis 0 that the table's rows run through; None where they run through another axis."""
    if isinstance(plane, LevelPlane):
        return plane.batch[0] if plane.batch else None
    return plane.shape[0] if isinstance(plane, LeafPlane) and plane.row_axis == 0 else None

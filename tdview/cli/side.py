"""This module knows how `tdview show` puts ages and priorities before the values of a buffer's rows.

It does not know where they come from: see `tdview.analysis.side_columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tdview.errors import NotSupportedError

if TYPE_CHECKING:
    import pandas

    from tdview.tree.node import Node

__all__ = ["Side", "put_before", "side_at"]

Side: TypeAlias = "dict[str, dict[int, int | float | None]]"
"""By column: the value of each row that was asked for, None where there is none."""


def side_at(node: Node, rows: Sequence[int] | None, total: int | None) -> Side:
    """What stands beside some rows of `node`, which has `total` of them.

    Raises:
        NotSupportedError: they are no rows of a replay buffer.
    """
    from tdview.analysis.side_columns import side_of

    side = None if total is None or rows is None else side_of(node, total)
    if side is None or rows is None:
        raise NotSupportedError(f"{node.where()}: these are no rows of a replay buffer, so --side has nothing to say")
    found: Side = {}
    for name in side.names:
        values = side.values(name)
        missing = values < 0 if name in side.COUNTS else values != values
        found[name] = {row: None if missing[row] else values[row].item() for row in rows}
    return found


def put_before(frame: pandas.DataFrame, side: Side) -> None:
    """Inserts the columns at the left of `frame`, whose first index level holds the rows; four digits for fractions."""
    rows = frame.index.get_level_values(0)
    for place, (name, values) in enumerate(side.items()):
        frame.insert(place, name, [_text(values[row]) for row in rows], allow_duplicates=True)


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:#.4g}"

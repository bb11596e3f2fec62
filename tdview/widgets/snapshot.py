"""This module knows what a browser says of the whole save: its header line, its repr and its static HTML.

It does not know messages, and counts no further than it is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tdview.tree.text import nbytes_text, quoted, shape_text
from tdview.widgets.tree_ops import page_of, row_of, rows_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tdview.tree.fill import Fill
    from tdview.tree.node import Node

__all__ = ["FIRST_PAGE", "Count", "count_leaves", "head_of", "one_line", "save_name"]

FIRST_PAGE = 100
"""Rows that travel with the widget: more than a window shows, and less than 40 kB in a saved notebook."""

EAGER_NODES = 2000
"""Nodes that are counted before the first paint; a larger save is counted behind it."""


@dataclass(frozen=True, slots=True)
class Count:
    """How much there is in a save."""

    leaves: int
    nbytes: int
    """Bytes of all logical values."""
    complete: bool
    """False: there is more than was counted."""


def count_leaves(root: Node, *, limit: int | None = None, check: Callable[[], None] | None = None) -> Count:
    """Counts leaves and bytes. Reads every level, no payload.

    Args:
        limit: stop after this many nodes; None to count all.
        check: called now and then; what it raises ends the count.
    """
    leaves = nbytes = seen = 0
    stack = [root]
    while stack:
        node = stack.pop()
        seen += 1
        if check is not None and seen % 256 == 0:
            check()
        if node.is_leaf:
            leaves += 1
            nbytes += node.nbytes
            continue
        if limit is not None and seen + len(stack) > limit:
            return Count(leaves, nbytes, False)
        stack.extend(reversed(node.children()))
    return Count(leaves, nbytes, True)


def save_name(root: Node) -> str:
    """File or directory name of the save, bounded and printable."""
    location = root.store.location
    return quoted(location.name or str(location), 120)


def head_of(root: Node, mode: str, count: Count, generation: int) -> dict[str, Any]:
    """The trait ``_head``; `js/src/protocol.ts` describes its fields."""
    fill = root.fill
    return {
        "name": save_name(root),
        "location": root.store.label,
        "form": root.store.form,
        "kind": root.kind,
        "kindText": _kind_text(root),
        "mode": mode,
        "rowsText": _rows_text(root),
        "fill": None if fill is None else _fill(fill),
        "leaves": count.leaves,
        "nbytes": count.nbytes,
        "counted": count.complete,
        "problems": len(root.problems),
        "generation": generation,
        "root": row_of(root, name=save_name(root)),
        "page": page_of(root, 0, FIRST_PAGE),
    }


def _fill(fill: Fill) -> dict[str, Any]:
    oldest = fill.chronological[0][0] if fill.chronological else None
    return {"capacity": fill.capacity, "rows": fill.rows, "cursor": fill.cursor, "oldest": oldest}


def _kind_text(root: Node) -> str:
    words = root.kind.replace("_", " ")
    if root.kind == "tensorclass" and root.class_name:
        return f"{words} {quoted(root.class_name)}"
    return words


def _rows_text(root: Node) -> str:
    fill = root.fill
    if fill is not None and (root.kind == "replay_buffer" or not fill.full):
        text = f"{fill.rows:,} of {fill.capacity:,} rows" + ("" if fill.certain else " (guessed)")
        seam = fill.seam
        return f"{text}, oldest at {seam}" if seam is not None else text
    batch = root.batch_size
    if not batch:
        return ""
    return rows_text(batch[0]) if len(batch) == 1 else f"batch {shape_text(batch)}"


def one_line(root: Node, mode: str, count: Count) -> str:
    """The repr: the same in every process and for every opening of the same save."""
    more = "" if count.complete else "+"
    leaves = "1 leaf" if count.leaves == 1 and count.complete else f"{count.leaves}{more} leaves"
    how = "read-only" if mode == "r" else mode
    return f"<tdview.Browser {save_name(root)}: {_kind_text(root)}, {leaves}, {nbytes_text(count.nbytes)}{more}, {how}>"

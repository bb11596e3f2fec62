"""This module knows how a tree is told in static HTML, for hosts that run no JavaScript.

Everything from the files is escaped, and the same save gives the same HTML in every process.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tdview.tree.text import describe, kind_words, nbytes_text, quoted

if TYPE_CHECKING:
    from tdview.tree.node import Node

__all__ = ["to_html"]

_STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;line-height:24px;"
    "border:1px solid var(--jp-border-color2,#d0d7de);border-radius:6px;padding:6px 12px;max-width:720px"
)
_MONO = "font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:11px;opacity:.75;float:right"


def to_html(node: Node, *, max_nodes: int = 300) -> str:
    """The tree below `node` as a self-contained fragment: ``<details>`` for levels, a line for each leaf.

    Args:
        max_nodes: how many nodes are shown; the rest is counted in words.
    """
    left = [max_nodes]
    body = "".join(_node(child, left, 1) for child in node.children())
    more = "" if left[0] > 0 else f"<div>only the first {max_nodes} entries are shown</div>"
    name = escape(quoted(node.key or node.store.location.name or str(node.store.location)))
    summary = f"{kind_words(node)} · {describe(node)} · {nbytes_text(node.nbytes)}"
    head = f"<div><b>{name}</b><span style='{_MONO}'>{escape(summary)}</span></div>"
    return f"<div class='tdview-static' style='{_STYLE}'>{head}{_problems(node)}{body}{more}</div>"


def _node(node: Node, left: list[int], depth: int) -> str:
    if left[0] <= 0:
        return ""
    left[0] -= 1
    line = f"{escape(quoted(node.key))}<span style='{_MONO}'>{escape(describe(node))}</span>{_problems(node)}"
    below = () if node.is_leaf else node.children()
    if not below:
        return f"<div style='margin-left:16px'>{line}</div>"
    opened = " open" if depth < 2 else ""
    inner = "".join(_node(child, left, depth + 1) for child in below)
    return f"<details style='margin-left:16px'{opened}><summary>{line}</summary>{inner}</details>"


def _problems(node: Node) -> str:
    errors = [problem for problem in node.problems if problem.severity == "error"]
    if not errors:
        return ""
    title = escape("; ".join(problem.message for problem in errors)[:400], quote=True)
    codes = escape(", ".join(dict.fromkeys(problem.code for problem in errors)))
    return f" <span title='{title}' style='color:var(--jp-error-color1,#b3261e)'>{codes}</span>"

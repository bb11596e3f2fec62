"""This module knows how a tree is told in plain text.

It does not know terminals or HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.errors import TdviewError

if TYPE_CHECKING:
    from tdview.tree.node import Node

__all__ = ["describe", "kind_words", "nbytes_text", "one_line", "quoted", "shape_text", "text_tree", "tree_lines"]

_MAX_LINES = 200
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def nbytes_text(nbytes: int) -> str:
    """A size for people.

    Examples:
        >>> nbytes_text(0), nbytes_text(999), nbytes_text(3_200_000)
        ('0 B', '999 B', '3.2 MB')
    """
    if nbytes < 1000:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in _UNITS:
        size /= 1000
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:.3g} {unit}" if size >= 10 else f"{size:.1f} {unit}"


def quoted(text: str, limit: int = 60) -> str:
    """A key or string from a file, without control characters and cut; unchanged where it is harmless.

    Examples:
        >>> quoted("obs"), quoted("a\\nb"), quoted("")
        ('obs', "'a\\\\nb'", "''")
    """
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text if text and text.isprintable() and text.strip() == text else repr(text)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as in torch: ``[256, 4]``, with ``*`` where the sizes of a nested tensor differ."""
    return "[" + ", ".join("*" if size < 0 else str(size) for size in shape) + "]"


def kind_words(node: Node) -> str:
    """The kind of a node as words."""
    return node.kind.replace("_", " ")


def describe(node: Node) -> str:
    """What a node is, without its key: dtype and shape of a leaf, class and batch size of a level, or the value."""
    from tdview.tree.leaf import Leaf

    if isinstance(node, Leaf):
        nested = "nested " if node.is_nested else ""
        return f"{nested}{quoted(node.dtype.removeprefix('torch.'))} {shape_text(node.shape)}"
    if node.kind in ("non_tensor", "non_tensor_stack"):
        return _value_text(node)
    name = quoted(node.class_name) if node.class_name else kind_words(node)
    batch = node.batch_size
    return f"{name} {shape_text(batch)}" if batch is not None else name


def _value_text(node: Node) -> str:
    try:
        value: Any = node.value
    except TdviewError:
        return "pickle, not opened" if node.has_pickle else "value cannot be read"
    if isinstance(value, list) and node.kind == "non_tensor_stack":
        return f"{len(value)} values"
    text = repr(value) if not isinstance(value, str | list | dict) else repr(_short_value(value))
    return text if len(text) <= 60 else text[:59] + "…"


def _short_value(value: Any) -> Any:
    return value[:60] if isinstance(value, str | list) else value


def one_line(node: Node) -> str:
    """A node in one line that is the same in every process."""
    where = "/".join(quoted(part) for part in node.path) or quoted(node.store.location.name or str(node.store.location))
    return f"{where}: {describe(node)}"


def text_tree(node: Node, *, max_lines: int = _MAX_LINES) -> str:
    """A node and all below as an indented text tree of at most `max_lines` lines."""
    lines: list[str] = []
    for line in tree_lines(node):
        if len(lines) >= max_lines:
            lines.append(f"… more than {max_lines} lines; take an entry: node[key]")
            break
        lines.append(line)
    return "\n".join(lines)


def tree_lines(node: Node) -> Iterator[str]:
    """A node and all below, a line each; a level is read when its lines are asked for."""
    stack: list[tuple[Node, str, str]] = [(node, "", "")]
    while stack:
        node, head, indent = stack.pop()
        yield f"{head}{_line(node)}"
        if node.is_leaf:
            continue
        below = node.children()
        for i, child in reversed(list(enumerate(below))):
            last = i == len(below) - 1
            stack.append((child, f"{indent}{'└─ ' if last else '├─ '}", f"{indent}{'   ' if last else '│  '}"))


def _line(node: Node) -> str:
    name = quoted(node.key) if node.path else quoted(node.store.location.name or str(node.store.location))
    text = f"{name}  {describe(node)}"
    if node.parent is None:
        text += f"  ({kind_words(node)}{_fill_text(node)}, {nbytes_text(node.nbytes)})"
    worst = [problem.code for problem in node.problems if problem.severity == "error"]
    return f"{text}  ! {', '.join(dict.fromkeys(worst))}" if worst else text


def _fill_text(node: Node) -> str:
    fill = node.fill if node.kind == "replay_buffer" else None
    if fill is None:
        return ""
    return f", {fill.rows} of {fill.capacity} rows" + ("" if fill.certain else " (guessed)")

"""This module knows how nodes become rows of the tree, pages of rows, search results and the facts of the Info panel.

It does not know how anything is drawn, and reads no payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tdview.errors import ArgumentError, KeyMissingError, Problem, TdviewError, shown
from tdview.operations.view_layout import has_places
from tdview.tree.text import describe, kind_words, nbytes_text, quoted, shape_text
from tdview.widgets.messages import int_arg, path_arg, str_arg, wire_text

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["SIDE_FILES", "node_of", "page_of", "problem_json", "register", "row_of", "rows_text", "wire_path"]

SIDE_FILES = "\0side_files"
"""Stands for the torchrl files beside the tensordict of a replay buffer; no entry has this key on disk."""

MAX_PAGE = 1000
MAX_FOUND = 5000
SEARCH_NODES = 200_000
"""A search looks at this many nodes; the reply says that it is not complete when there are more."""
MAX_VALUE_TEXT = 20_000
MAX_PROBLEMS = 500
MAX_SHAPES = 50
"""Tensors of a nested tensor whose shapes are listed."""
NON_TENSOR = frozenset({"non_tensor", "non_tensor_stack"})


def register(router: Router, browser: Browser) -> None:
    """Adds the operations of the tree and the Info panel to `router`."""
    router.register("tree.children", lambda args, _buffers, _call: _children(browser, args))
    router.register("tree.locate", lambda args, _buffers, _call: _locate(browser, args))
    router.register("tree.search", lambda args, _buffers, call: _search(browser, args, call), slow=True)
    router.register("node.info", lambda args, _buffers, _call: _info(browser, args))


def wire_path(path: tuple[str, ...]) -> list[str]:
    """A nested key as it travels."""
    return [wire_text(part) for part in path]


def node_of(root: Node, path: tuple[str, ...]) -> Node:
    """The node that a nested key from the wire names; lone surrogates in keys travel escaped.

    Raises:
        KeyMissingError: there is no such node.
    """
    node = root
    for part in path:
        if part in node:
            node = node[part]
            continue
        match = next((child for child in node.children() if wire_text(child.key) == part), None)
        if match is None:
            raise KeyMissingError(f"{node.where()}: there is no entry {shown(part)}; it may be gone: press Reload")
        node = match
    return node


def row_of(node: Node, *, name: str | None = None) -> dict[str, Any]:
    """What the tree shows of a node, and the views need before they ask for more.

    Opens the level of a branch to count its entries, which reads one small file; reads no payload.
    """
    from tdview.tree.leaf import Leaf

    row: dict[str, Any] = {
        "key": wire_text(node.key if name is None else name),
        "kind": node.kind,
        "className": wire_text(node.class_name) or None,
        "dtype": None,
        "shape": None if node.batch_size is None else list(node.batch_size),
        "batchDims": len(node.batch_size or ()),
        "names": None if node.names is None else list(node.names),
        "nbytes": None,
        "children": None,
        "nested": False,
        "writable": False,
        "note": "",
        "badges": _badges(node.problems),
    }
    if isinstance(node, Leaf):
        row |= _leaf_facts(node)
    elif node.kind in NON_TENSOR:
        row["note"] = wire_text(describe(node))
    else:
        row |= {"children": len(_children_of(node)), "note": _note(node)}
    return row


def _leaf_facts(leaf: Leaf) -> dict[str, Any]:
    shape = list(leaf.shape)
    return {
        "dtype": wire_text(leaf.dtype),
        "shape": shape,
        "batchDims": min(len(leaf.batch_size or ()), len(shape)),
        "nbytes": leaf.nbytes,
        "nested": leaf.is_nested,
        "writable": leaf.store.writable and has_places(leaf),
    }


def rows_text(count: int) -> str:
    """``1 row``, ``256 rows``, ``1,000,000 rows``."""
    return "1 row" if count == 1 else f"{count:,} rows"


def _note(node: Node) -> str:
    fill = node.fill
    if fill is not None:
        return rows_text(fill.rows)
    if node.parent is None and node.batch_size:
        return rows_text(node.batch_size[0])
    children = node.children()
    if node.kind == "lazy_stack":
        return f"stack of {len(children)}"
    leaves = sum(child.is_leaf for child in children)
    if leaves == len(children):
        return "1 leaf" if leaves == 1 else f"{leaves} leaves"
    return "1 entry" if len(children) == 1 else f"{len(children)} entries"


def _badges(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    faults = [problem for problem in problems if problem.severity != "note"]
    if not faults:
        return []
    worst = min(faults, key=lambda problem: problem.severity)  # "error" sorts before "warning"
    text = worst.code.replace("_", " ") if len(faults) == 1 else f"{len(faults)} findings"
    return [{"severity": worst.severity, "text": text}]


def _children_of(node: Node) -> list[Node | None]:
    """The children, None standing for torchrl's side files."""
    return [*node.children(), *([None] if node.side_files else [])]


def _side_row(node: Node) -> dict[str, Any]:
    names = node.side_files
    pickles = [name for name in names if name.endswith((".pkl", ".pt", ".pickle"))]
    note = f"{pickles[0]} not opened" if pickles else "1 file" if len(names) == 1 else f"{len(names)} files"
    row = row_of(node, name=SIDE_FILES)
    return row | {
        "kind": "side_files",
        "className": "other files" if node.kind == "collection" else "torchrl side files",
        "shape": None,
        "batchDims": 0,
        "names": None,
        "children": None,
        "note": wire_text(note),
        "badges": [],
    }


def page_of(node: Node, start: int, count: int) -> dict[str, Any]:
    """Children `start` to `start + count` of a node as rows. Costs a small file per branch among them."""
    children = _children_of(node)
    rows = [row_of(child) if child is not None else _side_row(node) for child in children[start : start + count]]
    return {"path": wire_path(node.path), "start": start, "total": len(children), "rows": rows}


def problem_json(problem: Problem) -> dict[str, Any]:
    """A finding as it travels."""
    return {
        "code": problem.code,
        "severity": problem.severity,
        "key": wire_path(problem.key),
        "rows": [list(span) for span in problem.rows[:100]],
        "message": wire_text(problem.message),
    }


def _children(browser: Browser, args: dict[str, Any]) -> dict[str, Any]:
    node = node_of(browser.root, path_arg(args))
    return page_of(node, int_arg(args, "start", 0), int_arg(args, "count", 200, high=MAX_PAGE))


def _locate(browser: Browser, args: dict[str, Any]) -> dict[str, Any]:
    """For each level on the way to a node the page that holds the next key, so that one request reveals it."""
    path, count = path_arg(args), int_arg(args, "count", 200, low=1, high=MAX_PAGE)
    node, pages = browser.root, []
    for part in path:
        if part == SIDE_FILES and node.side_files:
            index, below = len(node.children()), None
        else:
            below = node_of(node, (part,))
            index = next(i for i, child in enumerate(node.children()) if child is below)
        pages.append(page_of(node, index - index % count, count))
        if below is None:
            return {"pages": pages, "row": _side_row(node)}
        node = below
    return {"pages": pages, "row": row_of(node, name=None if path else browser.name)}


def _search(browser: Browser, args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Nodes whose nested key contains every word of the query, in the order of the tree."""
    words = str_arg(args, "query").lower().split()
    limit = int_arg(args, "limit", 1000, high=MAX_FOUND)
    if not words:
        raise ArgumentError("query: expected a word to look for, got none")
    rows: list[dict[str, Any]] = []
    total, seen = 0, 0
    for node in _below(browser.root):
        seen += 1
        if seen % 256 == 0:
            call.check()
        if seen > SEARCH_NODES:
            break
        if not _matches(node, words):
            continue
        total += 1
        if len(rows) < limit:
            rows.append(row_of(node) | {"path": wire_path(node.path)})
    return {"rows": rows, "total": total, "complete": total == len(rows) and seen <= SEARCH_NODES}


def _below(root: Node) -> Iterator[Node]:
    nodes = root.walk()
    next(nodes)
    return nodes


def _matches(node: Node, words: list[str]) -> bool:
    key = node.key.lower()
    whole = ".".join(node.path).lower()
    # The last word must be in the key itself: else every entry below a match would be one too.
    return all(word in whole for word in words) and (words[-1] in key or "." in words[-1])


def _info(browser: Browser, args: dict[str, Any]) -> dict[str, Any]:
    path = path_arg(args)
    if path and path[-1] == SIDE_FILES:
        return _side_info(node_of(browser.root, path[:-1]))
    node = node_of(browser.root, path)
    facts = list(_facts(node))
    problems = [problem_json(problem) for problem in node.problems[:MAX_PROBLEMS]]
    value = _value(node) if node.kind in NON_TENSOR else None
    return {"facts": [[label, wire_text(text)] for label, text in facts], "problems": problems, "value": value}


def _side_info(node: Node) -> dict[str, Any]:
    facts = []
    for name in node.side_files:
        info = node.store.info(name)
        facts.append([wire_text(name), nbytes_text(info.nbytes) if info is not None else ""])
    if node.kind == "collection":
        text = "Files beside the saves of the collection. They are listed and not opened."
    else:
        text = "Files that torchrl keeps beside the tensordict. They are listed; a pickle among them is never executed."
    return {"facts": facts, "problems": [], "value": {"text": text, "form": "refused", "cut": False}}


def _facts(node: Node) -> Iterator[tuple[str, str]]:
    from tdview.tree.leaf import Leaf

    if isinstance(node, Leaf):
        yield from _payload_facts(node)
        return
    yield "kind", kind_words(node)
    if node.class_name:
        yield "class", quoted(node.class_name, 200)
    if node.batch_size is not None:
        yield "batch size", str(list(node.batch_size))
    if node.names:
        yield "dim names", ", ".join("–" if name is None else quoted(name) for name in node.names)
    if node.device:
        yield "device", quoted(node.device)
    if node.format_version is not None:
        yield "format version", str(node.format_version)
    if node.fill is not None:
        yield from _fill_facts(node)
    yield "level", quoted(node.prefix, 400) if node.prefix else "the top of the save"
    if node.parent is None:
        yield "location", str(node.store.location)


def _fill_facts(node: Node) -> Iterator[tuple[str, str]]:
    fill = node.fill
    assert fill is not None
    yield "rows", str(fill)
    if fill.cursor is not None:
        yield "cursor", f"row {fill.cursor} is written next"
    if fill.write_count is not None:
        yield "written", f"{fill.write_count} rows in all"


def _payload_facts(leaf: Leaf) -> Iterator[tuple[str, str]]:
    yield "dtype", quoted(leaf.dtype)
    yield "shape", shape_text(leaf.shape)
    if leaf.is_nested:
        yield "shapes", _component_text(leaf)
    yield "bytes", f"{leaf.nbytes:,} ({nbytes_text(leaf.nbytes)})"
    if leaf.device:
        yield "device", quoted(leaf.device)
    info = leaf.info
    if info is None:
        if leaf.direct:
            yield "file", "none"
        return
    yield "file", quoted(info.name, 400)
    if info.nbytes != leaf.nbytes:
        yield "file bytes", f"{info.nbytes:,}"
    if leaf.store.form == "archive":
        kind = info.compression
        yield "compression", kind if kind == "stored" else f"{kind}, {info.stored_nbytes:,} bytes in the archive"
    if info.offset is not None:
        yield "offset", f"{info.offset:,}"
    if info.crc is not None:
        yield "CRC-32", f"{info.crc:08x}"
    kept = "one tensor behind the other" if leaf.is_nested else "seen through a view"
    yield "values", "mapped in place" if leaf.direct else kept


def _component_text(leaf: Leaf) -> str:
    """The shapes of the first tensors of a nested tensor."""
    try:
        shapes = leaf.component_shapes()
    except TdviewError as error:
        return wire_text(str(error))
    more = f", … ({len(shapes):,} in all)" if len(shapes) > MAX_SHAPES else ""
    return ", ".join(shape_text(shape) for shape in shapes[:MAX_SHAPES]) + more


def _value(node: Node) -> dict[str, Any]:
    try:
        value = node.value
    except TdviewError as error:
        return {"text": wire_text(str(error)), "form": "refused", "cut": False}
    form = "text"
    if isinstance(value, str):
        text = value
    else:
        try:
            text, form = json.dumps(value, indent=2, ensure_ascii=False), "json"
        except (TypeError, ValueError, RecursionError):
            text = _repr(value)
    cut = len(text) > MAX_VALUE_TEXT
    return {"text": wire_text(text[:MAX_VALUE_TEXT]), "form": form, "cut": cut}


def _repr(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key!r}: {item!r}" for key, item in value.items())
    return repr(value)

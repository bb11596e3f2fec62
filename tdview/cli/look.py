"""This module knows the verbs that look: ls, info, show, stats.

They read, and change nothing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tdview.cli.arguments import Verbs, add_key, add_verb, node_at, row_numbers, row_ranges
from tdview.cli.output import progress, say, say_json
from tdview.cli.side import Side, put_before, side_at
from tdview.tree.text import nbytes_text, tree_lines

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["add_verbs"]

_FIRST_ROWS = 10
_SHOWN_COLUMNS = 24
_WIDEST = 64  # elements of a row up to which a leaf stands beside others


def add_verbs(verbs: Verbs) -> None:
    """Adds the verbs of this group."""
    parser = add_verb(verbs, "ls", _ls, "print the tree of a save", detail="Reads the meta.json files and no payload.")
    parser.add_argument("path", metavar="PATH")
    add_key(parser, "only what stands below this entry")

    parser = add_verb(verbs, "info", _info, "print what is known of a save or of one entry")
    parser.add_argument("path", metavar="PATH")
    add_key(parser, "the entry")

    parser = add_verb(verbs, "show", _show, "print values: of a leaf, of a non-tensor, or one row per transition")
    parser.add_argument("path", metavar="PATH")
    add_key(parser, "the entry")
    parser.add_argument(
        "--rows", type=row_ranges, metavar="ROWS", help=f"rows such as 3,10:20; the first {_FIRST_ROWS} without it"
    )

    parser.add_argument(
        "--side",
        action="store_true",
        help="put age, priority, probability and generation of a replay buffer's rows first",
    )

    parser = add_verb(verbs, "stats", _stats, "describe the values of every leaf", detail="Reads every payload once.")
    parser.add_argument("path", metavar="PATH")
    add_key(parser, "only this entry")
    parser.add_argument("--engine", choices=("serial", "dask"), default="serial", help="who reads the payloads")


def _open(args: argparse.Namespace) -> Node:
    import tdview

    node: Node = node_at(tdview.scan(args.path), args.key)
    return node


def _ls(args: argparse.Namespace) -> int:
    node = _open(args)
    if args.json:
        say_json([_entry(found) for found in node.walk()])
        return 0
    for line in tree_lines(node):
        say(line)
    return 0


def _entry(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"key": node.path, "kind": node.kind}
    if node.is_leaf:
        leaf: Leaf = node  # type: ignore[assignment]  # sound: only a Leaf says is_leaf
        entry |= {"dtype": leaf.dtype, "shape": leaf.shape, "nbytes": leaf.nbytes, "is_nested": leaf.is_nested}
    else:
        entry |= {"class": node.class_name, "batch_size": node.batch_size, "names": node.names}
    entry["problems"] = [problem.code for problem in node.problems]
    return entry


def _info(args: argparse.Namespace) -> int:
    node = _open(args)
    facts = _leaf_facts(node) if node.is_leaf else _level_facts(node)  # type: ignore[arg-type]
    problems = [str(problem) for problem in node.problems]
    if args.json:
        say_json({**facts, "problems": problems})
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        if value not in (None, "", (), []):
            say(f"{name.ljust(width)}  {_text(name, value)}")
    for problem in problems:
        say(f"{'problem'.ljust(width)}  {problem}")
    return 0


def _level_facts(node: Node) -> dict[str, Any]:
    leaves = list(node.leaves())
    fill = node.fill
    facts: dict[str, Any] = {
        "save": node.store.label,
        "form": node.store.form,
        "key": node.path,
        "kind": node.kind,
        "class": node.class_name,
        "batch size": node.batch_size,
        "names": node.names,
        "device": node.device,
        "format version": node.format_version,
        "leaves": len(leaves),
        "bytes": sum(leaf.nbytes for leaf in leaves),
    }
    if node.kind in ("non_tensor", "non_tensor_stack"):
        facts["pickle"] = node.has_pickle
    if fill is not None:
        facts |= {
            "rows": fill.rows,
            "capacity": fill.capacity,
            "cursor": fill.cursor,
            "write count": fill.write_count,
            "time order": fill.chronological,
            "certain": fill.certain,
            "guessed from": fill.guessed_from,
            "side files": node.side_files,
        }
    return facts


def _leaf_facts(leaf: Leaf) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "save": leaf.store.label,
        "form": leaf.store.form,
        "key": leaf.path,
        "kind": leaf.kind,
        "dtype": leaf.dtype,
        "shape": leaf.shape,
        "bytes": leaf.nbytes,
        "nested": leaf.is_nested,
    }
    if (info := leaf.info) is not None:
        facts |= {
            "file": info.name,
            "stored bytes": info.stored_nbytes,
            "compression": info.compression,
            "offset": info.offset,
            "crc": None if info.crc is None else f"{info.crc:08x}",
        }
    return facts


def _text(name: str, value: Any) -> str:
    if name == "key":
        return " › ".join(value)
    if name in ("bytes", "stored bytes"):
        return f"{value} ({nbytes_text(value)})" if value >= 1000 else str(value)
    if name == "time order":
        return ", then ".join(f"{start}:{stop}" for start, stop in value)
    if name == "side files":
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("batch size", "shape"):
        return str(list(value))
    return str(value)


def _show(args: argparse.Namespace) -> int:
    node = _open(args)
    if node.kind in ("non_tensor", "non_tensor_stack"):
        if args.json:
            say_json({"key": node.path, "value": node.value})
        else:
            say(repr(node.value))
        return 0
    shape = node.shape if node.is_leaf else node.batch_size  # type: ignore[attr-defined]
    total = shape[0] if shape else None
    rows: list[int] | None = None
    if total is not None:
        rows = list(range(min(_FIRST_ROWS, total))) if args.rows is None else row_numbers(args.rows, total)
    side = side_at(node, rows, total) if args.side else {}
    if args.json:
        _show_json(node, rows, side)
    else:
        _show_text(node, rows, total, side)
    return 0


def _show_json(node: Node, rows: list[int] | None, side: Side) -> None:
    from tdview.tree.frame import frame_of_node

    beside = {"side": {name: [values[row] for row in rows or ()] for name, values in side.items()}} if side else {}
    if node.is_leaf:
        leaf: Leaf = node  # type: ignore[assignment]  # sound: only a Leaf says is_leaf
        values = leaf.numpy() if rows is None else leaf.numpy(rows)
        say_json({"key": leaf.path, "dtype": leaf.dtype, "shape": leaf.shape, "rows": rows, **beside, "values": values})
        return
    frame = frame_of_node(node, rows, widest=_WIDEST)
    facts = {"key": node.path, "batch_size": node.batch_size, "rows": rows, "left_out": frame.attrs["left_out"]}
    say_json({**facts, **beside, "records": frame.reset_index().to_dict(orient="records")})


def _show_text(node: Node, rows: list[int] | None, total: int | None, side: Side) -> None:
    from tdview.tree.frame import frame_of_node

    if node.is_leaf:
        leaf: Leaf = node  # type: ignore[assignment]  # sound: only a Leaf says is_leaf
        if leaf.is_nested:
            say(leaf.tensor())
            return
        frame = leaf.frame(rows=rows)
    else:
        frame = frame_of_node(node, rows, widest=_WIDEST)
    put_before(frame, side)
    say(frame.to_string(max_cols=_SHOWN_COLUMNS, max_rows=200))
    if left_out := frame.attrs.get("left_out"):
        say(f"left out: {', '.join(left_out)}; name one to see it")
    if rows is not None and total is not None and len(rows) < total:
        say(f"{len(rows)} of {total} rows; --rows START:STOP shows others")


def _stats(args: argparse.Namespace) -> int:
    import tdview

    node = _open(args)
    with progress("stats") as ticking:
        report = tdview.stats(node, progress=ticking, engine=args.engine)
    if args.json:
        print(report.to_json())
    else:
        say(report)
    return int(any(leaf.problem for leaf in report.leaves))

"""This module knows how the layouts of saved buffers and data sets become columns of steps.

It does not know the rules that are asked of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tdview.analysis.columns import (
    Column,
    GatherColumn,
    JoinedColumn,
    Key,
    LeafColumn,
    flat_rows,
    inflate_small,
    width,
)
from tdview.analysis.parts import Options
from tdview.analysis.replay import Buffer
from tdview.errors import Problem, TdviewError
from tdview.format.dtypes import dtype_of
from tdview.tree.fill import fill_of, side_files_of

if TYPE_CHECKING:
    from tdview.tree.fill import Fill
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["buffer_of", "buffers_below", "is_sound", "loose_findings"]

FLAT_KEYS = frozenset({"shift", "is_full", "_storage_shape"})
ATARI_KEYS = frozenset({"data", "add_count", "invalid_range"})
_BLOCK = 4 << 20


def buffers_below(node: Node) -> Iterator[Node]:
    """The saves at and below a node that hold rows: the node itself, or the members of a collection."""
    if str(node.kind) != "collection":
        yield node
        return
    for child in node.children():
        yield from buffers_below(child)


def buffer_of(node: Node, options: Options | None = None) -> Buffer:
    """The rows of a save as a `Buffer`.

    Leaves whose file is damaged, and leaves that do not start with the batch size, are left out: `verify` tells
    about them. So are those that cannot be read in bounded memory: see `Buffer.unread`. No payload is read, except
    the end flags of a flat or nested checkpoint, and ids and step counts beside a large compressed leaf.
    """
    buffer = _buffer_of(node, options)
    scattered = [key for key, column in buffer.columns.items() if column.forward]
    if scattered and buffer.permutation is not None:
        # Rows in time order lie all over the file: each block of them would inflate it from its start.
        order = {buffer.id_key, buffer.step_key}
        gone = set(buffer.columns if order & set(scattered) else scattered)
        paths = frozenset((*node.path, *buffer.original_key(key)) for key in gone)
        buffer = _buffer_of(node, replace(options or Options(), unread=paths))
    buffer.unread = tuple(_unread(node, buffer.options))
    return buffer


def _buffer_of(node: Node, options: Options | None) -> Buffer:
    names = set(node)
    if names >= FLAT_KEYS:
        return _folded(node, options)
    if names >= ATARI_KEYS:
        return _atari(node, options)
    fill = _fill(node)
    shape = tuple(node.batch_size or ())
    side = side_files_of(node)
    if side.length is not None and side.length.is_pytree and fill is not None:
        shape = (fill.capacity,)
    columns: dict[Key, Column] = {}
    for key, leaf in _sound_leaves(node, options):
        if shape and tuple(leaf.shape)[: len(shape)] == shape:
            columns[key] = LeafColumn(key, leaf, len(shape))
    inflate_small(columns.values())
    profile = "pytree" if side.length is not None and side.length.is_pytree else ""
    buffer = Buffer(
        _with_next(columns),
        shape,
        fill=fill,
        side=side,
        options=options,
        where=node.where(),
        profile=profile,
        horizon=_horizon(node),
    )
    buffer.leaf_keys = tuple(columns)
    if len(shape) == 1:
        buffer.read_values = lambda: dict(_row_values(node, shape[0]))
    return buffer


def _row_values(node: Node, rows: int) -> Iterator[tuple[Key, list[Any]]]:
    """Stacks of values that are no tensors and stand both at the root and below `next`: pickles are not opened."""
    stacks = {
        tuple(child.path[len(node.path) :]): child
        for child in node.walk()
        if str(child.kind) == "non_tensor_stack" and not child.problems and not child.has_pickle
    }
    for key, child in stacks.items():
        if key[1:] not in stacks if key[0] == "next" else ("next", *key) not in stacks:
            continue
        try:
            values = child.value
        except TdviewError:
            continue
        if isinstance(values, list) and len(values) == rows:
            yield key, values


def _fill(node: Node) -> Fill | None:
    try:
        return fill_of(node)
    except TdviewError:
        return None


def is_sound(leaf: Leaf, options: Options | None) -> bool:
    """Whether a leaf can be a column: no error is known of it and, where care is asked for, it can be read."""
    if any(p.severity == "error" for p in leaf.problems) or dtype_of(leaf.dtype) is None or _is_unread(leaf, options):
        return False
    if options is not None and options.careful:
        try:
            _read_through(leaf)
        except TdviewError:
            return False
    return True


def _is_unread(leaf: Leaf, options: Options | None) -> bool:
    return not leaf.bounded or (options is not None and leaf.path in options.unread)


def _unread(node: Node, options: Options) -> Iterator[Key]:
    return (tuple(leaf.path[len(node.path) :]) for leaf in node.leaves() if _is_unread(leaf, options))


def _read_through(leaf: Leaf) -> None:
    """Reads a leaf once, a large compressed one in blocks; raises where it is damaged."""
    if not leaf.compressed or leaf.parts:
        leaf.numpy()
        return
    for start in range(0, leaf.stored_nbytes, _BLOCK):
        leaf.octets(start, min(start + _BLOCK, leaf.stored_nbytes))


def _sound_leaves(node: Node, options: Options | None) -> Iterator[tuple[Key, Leaf]]:
    for leaf in node.leaves():
        if leaf.is_nested or not is_sound(leaf, options):
            continue
        row = dtype_of(leaf.dtype)
        if row is not None and row.kind not in ("packed", "quantized"):
            yield tuple(leaf.path[len(node.path) :]), leaf


def _with_next(columns: dict[Key, Column]) -> dict[Key, Column]:
    """Adds ``next_X`` of a flat tensorclass as ``("next", X)``, so that rules find the pair."""
    found = dict(columns)
    for key, column in columns.items():
        name = key[-1].removeprefix("next_")
        pair = (*key[:-1], name)
        if key[0] != "next" and name != key[-1] and pair in columns and ("next", *pair) not in columns:
            found["next", *pair] = column
    return found


def _horizon(node: Node) -> int | None:
    """`max_episode_steps` of a Minari data set's env_metadata.json."""
    import json

    try:
        if node.store.info(node.file("env_metadata.json")) is None:
            return None
        spec = json.loads(node.store.read(node.file("env_metadata.json"), 1 << 24))
        steps = spec["env_spec"]["max_episode_steps"]
    except (TdviewError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return steps if isinstance(steps, int) and steps > 0 else None


# -- flat and nested checkpoints ---


def _folded(node: Node, options: Options | None) -> Buffer:
    """Flat and nested checkpoints: `next` is folded away; observed leaves have one more row per trajectory."""
    import numpy as np

    bases: dict[Key, Column] = {}
    nested = False
    for leaf in node.leaves():
        if not is_sound(leaf, options):
            continue
        key = tuple(leaf.path[len(node.path) :])
        if leaf.is_nested:
            nested = True
            joined = _joined(key, leaf)
            if joined is not None:
                bases[key] = joined
        elif leaf.shape:
            bases[key] = LeafColumn(key, leaf, 1)
    inflate_small(bases.values())
    fill = _fill(node)
    ends = [bases[name,] for name in ("done", "terminated", "truncated") if (name,) in bases]
    steps = min((column.elements for column in bases.values()), default=0)
    valid = min(steps, fill.rows) if fill is not None else steps
    index = np.arange(valid)
    for column in ends[:1]:  # every end before a step has pushed the observations on by one row
        index = index + np.concatenate([[0], np.cumsum(flat_rows(column.read(0, valid))[:, 0] != 0)])[:-1]
    columns: dict[Key, Column] = {}
    for key, column in bases.items():
        if column.elements == steps:
            columns[key] = GatherColumn(key, column, np.arange(valid))
        elif not len(index) or column.elements > int(index[-1]) + 1:
            columns[key] = GatherColumn(key, column, index)
            columns["next", *key] = GatherColumn(("next", *key), column, index + 1)
    buffer = Buffer(
        columns,
        (valid,),
        fill=fill,
        side=side_files_of(node),
        options=options,
        where=node.where(),
        profile="nested" if nested else "flat",
    )
    buffer.cache["shift"] = _value(node, "shift")
    buffer.leaf_keys = tuple(bases)
    return buffer


def _joined(key: Key, leaf: Leaf) -> Column | None:
    """The rows of all components of a nested leaf behind one another, if they are alike."""
    row = dtype_of(leaf.dtype)
    try:
        shapes = leaf.component_shapes()
    except (TdviewError, ValueError):
        return None
    features = {shape[1:] for shape in shapes}
    if row is None or row.numpy is None or len(features) != 1 or not all(shapes):
        return None
    column = JoinedColumn(key, leaf, row.numpy, features.pop())
    return column if width(column) else None


def _value(node: Node, name: str) -> int | None:
    try:
        value = node[name].value
    except TdviewError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# -- Atari ---


def _atari(node: Node, options: Options | None) -> Buffer:
    """A run of the DQN replay data: rows stand below `data`, observations have one filler row more."""
    import numpy as np

    data = node["data"]
    leaves = {
        tuple(leaf.path[len(data.path) :]): leaf for leaf in data.leaves() if is_sound(leaf, options) and leaf.shape
    }
    steps = min((leaf.shape[0] for leaf in leaves.values()), default=0)
    bases = {key: LeafColumn(key, leaf, 1) for key, leaf in leaves.items()}
    inflate_small(bases.values())
    columns: dict[Key, Column] = {}
    for key, column in bases.items():
        columns[key] = column if column.elements == steps else GatherColumn(key, column, np.arange(steps))
    buffer = Buffer(columns, (steps,), options=options, where=node.where(), profile="atari")
    buffer.prefix = ("data",)
    buffer.leaf_keys = tuple(columns)
    return buffer


def loose_findings(node: Node) -> Iterator[Problem]:
    """What can be said about a save that holds no rows: which float leaves hold values that are not finite."""
    import numpy as np

    for leaf in node.leaves():
        row = dtype_of(leaf.dtype)
        if row is None or row.kind not in ("float", "complex") or any(p.severity == "error" for p in leaf.problems):
            continue
        if not leaf.bounded:
            continue
        try:
            bad = sum(int((~np.isfinite(part)).sum()) for part in leaf.flat_blocks(_BLOCK))
        except TdviewError:
            continue
        if bad:
            key = tuple(leaf.path[len(node.path) :])
            yield Problem("non_finite", f"{bad} values are NaN or infinite", "warning", key)

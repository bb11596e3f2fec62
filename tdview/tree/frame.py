"""This module knows how a leaf or a level becomes a pandas frame: batch dimensions are the index, elements the columns.

It does not know files; it asks leaves for their values.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tdview.errors import ArgumentError, DecodeError, KeyMissingError, shown
from tdview.tree.derived import stacked_children

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["Rows", "frame_of_leaf", "frame_of_node"]

Rows: TypeAlias = "int | slice | range | Sequence[int] | None"
Places: TypeAlias = "range | NDArray[Any]"
"""Rows from 0 on."""

MAX_COLUMNS = 4096
"""Elements of a leaf up to which a level's frame has a column for each; a larger one is left out unless asked for."""


def frame_of_leaf(leaf: Leaf, rows: Rows = None) -> pandas.DataFrame:
    """The values of a leaf as a frame.

    Batch dimensions are the index, named by the dim names (``"dim 0"`` where there is none), trailing dimensions the
    columns: an integer for one trailing dimension, a MultiIndex for several. A leaf without a batch has one row per
    index of its first axis. bfloat16 and float8 are widened to float32, exactly.

    Args:
        leaf: any tensor leaf that is no nested tensor.
        rows: which indices of axis 0: an int, a slice (as of a list), a range or a sequence; None for all.

    Returns:
        A private copy of the chosen rows.

    Raises:
        ArgumentError: `rows` is malformed or out of range, or the leaf is a nested tensor.
        DecodeError: the payload is damaged.
    """
    import pandas

    shape = tuple(leaf.shape)
    if leaf.is_nested:
        raise ArgumentError(f"{_where(leaf)}: the rows of a nested tensor differ in shape; use tensor()")
    batch = len(leaf.batch_size or ())
    if not batch and shape:
        batch = 1
    values, places = _values(leaf, rows, batch)
    columns = _columns(shape[batch:])
    count = math.prod(shape[1:batch]) * len(places) if batch else 1
    flat = values.reshape(count, math.prod(shape[batch:]))
    return pandas.DataFrame(flat, index=_index(leaf.names, shape[:batch], places), columns=columns, copy=True)


def frame_of_node(
    node: Node, rows: Rows = None, keys: Iterable[str | Sequence[str]] | None = None, *, widest: int = MAX_COLUMNS
) -> pandas.DataFrame:
    """All leaves below a level side by side: a row per element of the batch, a column per key and element.

    Columns are named by the nested key joined with dots, with the element's index behind it where there is more than
    one: ``"next.reward"``, ``"action[1]"``. The members of a lazy stack are stacked. Leaves that are wide (images),
    nested, damaged, or of another batch than `node`, as those of unlike members, are left out unless `keys`
    names them; ``frame.attrs["left_out"]`` lists them.

    Args:
        node: a level with a batch size.
        rows: which indices of axis 0, as for `frame_of_leaf`.
        keys: only these leaves or levels, nested keys below `node`, in this order.
        widest: elements of a row up to which a leaf is not left out.

    Returns:
        A private copy.

    Raises:
        KeyMissingError: a key is not there.
        ArgumentError: `rows` is malformed or out of range.
        DecodeError: a leaf that `keys` names is damaged.
    """
    import pandas

    batch = tuple(node.batch_size or ())
    chosen, left_out = _leaves(node, keys, widest)
    places = _places(rows, batch[0], _where(node)) if batch else range(1)
    if rows is not None and not batch:
        raise ArgumentError(f"{_where(node)}: rows: the batch size is [], so there is one row; leave rows out")
    data: dict[str, NDArray[Any]] = {}
    count = math.prod(batch[1:]) * len(places) if batch else 1
    for leaf in chosen:
        shape = tuple(leaf.shape)
        try:
            values = _values(leaf, places if batch else None, len(batch))[0]
        except DecodeError:
            if keys is not None:
                raise
            left_out.append(leaf)
            continue
        flat = values.reshape(count, math.prod(shape[len(batch) :]))
        name = ".".join(tuple(leaf.path)[len(node.path) :])
        for element, suffix in enumerate(_suffixes(shape[len(batch) :])):
            data[name + suffix] = flat[:, element]
    frame = pandas.DataFrame(data, index=_index(node.names, batch, places), copy=True)
    frame.attrs["left_out"] = [".".join(leaf.path) for leaf in left_out]
    return frame


def _leaves(node: Node, keys: Iterable[str | Sequence[str]] | None, widest: int) -> tuple[list[Leaf], list[Leaf]]:
    if keys is None:
        batch = tuple(node.batch_size or ())
        found: list[Leaf] = []
        left_out: list[Leaf] = []
        for leaf in _stacked_leaves(node):
            fits = not leaf.is_nested and tuple(leaf.shape[: len(batch)]) == batch
            small = fits and math.prod(leaf.shape[len(batch) :]) <= widest
            (found if small else left_out).append(leaf)
        return found, left_out
    chosen: list[Leaf] = []
    for key in keys:
        wanted = (key,) if isinstance(key, str) else tuple(key)
        try:
            below = node[wanted]
        except KeyError:
            raise KeyMissingError(f"{_where(node)}: keys: no key {shown(wanted)}") from None
        chosen.extend([cast("Leaf", below)] if below.is_leaf else below.leaves())
    return chosen, []


def _stacked_leaves(node: Node) -> Iterator[Leaf]:
    """The leaves below, those of the members of a lazy stack as their stack."""
    below = node.children()
    if node.kind == "lazy_stack" and node.stack_dim is not None:
        below = tuple(stacked_children(below, node.stack_dim, node))
    for child in below:
        if child.is_leaf:
            yield cast("Leaf", child)
        else:
            yield from _stacked_leaves(child)


def _values(leaf: Leaf, rows: Rows | Places, batch: int) -> tuple[NDArray[Any], Places]:
    import numpy as np

    shape = tuple(leaf.shape)
    if not batch or not shape:
        if rows is not None:
            raise ArgumentError(f"{_where(leaf)}: rows: a leaf without dimensions has one row; leave rows out")
        return np.asarray(leaf.numpy()), range(1)
    places = _places(rows, shape[0], _where(leaf))
    if isinstance(places, range) and places.step == 1:
        return np.asarray(leaf.numpy((slice(places.start, places.stop),))), places
    if isinstance(places, range) and places.step > 1:
        return np.asarray(leaf.numpy((slice(places.start, places.stop, places.step),))), places
    info = leaf.info
    if len(places) and info is not None and info.compression != "stored":
        # row by row, so that no more of it is held than the row that is read
        return np.concatenate([np.asarray(leaf.numpy((slice(row, row + 1),))) for row in places]), places
    return np.asarray(leaf.numpy((np.asarray(places, np.intp),))), places


def _places(rows: Rows | Places, size: int, where: str) -> Places:
    import numpy as np

    if rows is None:
        return range(size)
    if isinstance(rows, slice):
        return range(*rows.indices(size))
    if isinstance(rows, range) and (not rows or (min(rows[0], rows[-1]) >= 0 and max(rows[0], rows[-1]) < size)):
        return rows
    try:
        wanted = np.asarray([operator.index(rows)] if isinstance(rows, int) else rows)
        if wanted.dtype.kind not in "iu":
            wanted = np.asarray([int(row) for row in cast("Sequence[int]", rows)], np.intp)
        if wanted.ndim != 1:
            raise ValueError(wanted.shape)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"{where}: rows: expected an int, a slice, a range or integers, got {shown(rows)}"
        ) from None
    outside = (wanted < -size) | (wanted >= size)
    if outside.any():
        raise ArgumentError(f"{where}: rows: {wanted[outside][0]} is outside the {size} rows")
    wanted = wanted.astype(np.intp)
    return np.where(wanted < 0, wanted + size, wanted)


def _index(names: Sequence[str | None] | None, batch: tuple[int, ...], places: Places) -> pandas.Index:
    import pandas

    known = list(names or ()) + [None] * len(batch)
    titles = [known[axis] or f"dim {axis}" for axis in range(len(batch))]
    if not batch:
        return pandas.RangeIndex(1)
    if len(batch) == 1:
        return pandas.Index(places, name=titles[0])
    levels: list[Places] = [places, *(range(size) for size in batch[1:])]
    return pandas.MultiIndex.from_product(levels, names=titles)


def _columns(sizes: tuple[int, ...]) -> pandas.Index:
    import pandas

    if len(sizes) < 2:
        return pandas.RangeIndex(sizes[0] if sizes else 1)
    return pandas.MultiIndex.from_product([range(size) for size in sizes])


def _suffixes(sizes: tuple[int, ...]) -> list[str]:
    if math.prod(sizes) == 1:
        return [""]
    return [f"[{', '.join(map(str, index))}]" for index in itertools.product(*map(range, sizes))]


def _where(node: Node) -> str:
    return ".".join(node.path) or node.store.label

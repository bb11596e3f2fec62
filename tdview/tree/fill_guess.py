"""This module knows how written rows and the seam of a ring are guessed from the values alone.

It does not know the side files that would say it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

from tdview.errors import TdviewError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["data_end", "guess_rows", "guess_seam"]

_BLOCK = 4 << 20
_SEAM_LIMIT = 256 << 20  # leaves beyond this are not read: the guess is made when a save is opened
_ENDS = ("done", "terminated", "truncated")
_IDS = (("collector", "traj_ids"), ("traj_ids",), ("episode",))
_FLAT = frozenset({"shift", "is_full", "_storage_shape"})


def guess_rows(node: Node, shape: tuple[int, ...]) -> tuple[int, str]:
    capacity = shape[0]
    if capacity == 0 or set(node) >= _FLAT:
        return capacity, "the capacity"
    index = _leaf(node, ("index",))
    if index is not None and index.dtype == "torch.int64" and tuple(index.shape) == shape:
        rows = _rows_by_index(index, capacity)
        if rows is not None:
            return rows, "the index leaf"
    rows = _rows_by_zeros(node, capacity)
    if rows == 0:
        return capacity, "the capacity; every row is empty"
    return rows, "empty rows at the end" if rows < capacity else "no empty rows at the end"


def _rows_by_index(index: Leaf, capacity: int) -> int | None:
    """Rows whose index is their own number, by bisection; None if the leaf is no row number."""
    import numpy as np

    def holds(row: int) -> bool:
        return bool(np.all(index.numpy(slice(row, row + 1)) == row))

    if capacity < 2 or not holds(0) or not holds(1):
        return None
    low, high = 2, capacity
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(middle) else (low, middle)
    probe = np.unique(np.linspace(0, low - 1, min(low, 64)).astype(np.int64))
    return low if all(holds(int(row)) for row in probe) else None


def _rows_by_zeros(node: Node, capacity: int) -> int:
    """Rows up to the last one that is not empty in every plain leaf. The smallest leaf often decides."""
    rows = 0
    for leaf in sorted(node.leaves(), key=lambda leaf: leaf.nbytes):
        shape = tuple(leaf.shape)
        if not leaf.direct or not shape or shape[0] != capacity or not leaf.nbytes:
            continue
        try:
            last = _last_byte(leaf)
        except TdviewError:
            continue
        rows = max(rows, -(-last // max(1, leaf.nbytes // capacity)))
        if rows == capacity:
            break
    return min(rows, capacity)


def _last_byte(leaf: Leaf) -> int:
    """Number of bytes up to the last one that is not zero. Reads from the end and stops there, if it can."""
    import numpy as np

    end = data_end(leaf, leaf.nbytes)
    starts = range(0, end, _BLOCK)
    last = 0
    for start in starts if leaf.compressed else reversed(starts):
        found = np.flatnonzero(np.frombuffer(leaf.octets(start, min(start + _BLOCK, end)), np.uint8))
        if len(found):
            last = start + int(found[-1]) + 1
            if not leaf.compressed:  # which is inflated forwards, to its end
                break
    return last


def data_end(leaf: Leaf, nbytes: int) -> int:
    """End of the last region of a sparse file that has storage; what lies behind was never written."""
    info, store = leaf.info, leaf.store
    if info is None or store.form != "directory" or not hasattr(os, "SEEK_DATA"):
        return nbytes
    try:
        handle = os.open(store.location / info.name, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return nbytes
    try:
        end = position = 0
        while position < nbytes:
            position = os.lseek(handle, position, os.SEEK_DATA)
            end = position = os.lseek(handle, position, os.SEEK_HOLE)
    except OSError:  # ENXIO: nothing but a hole behind `position`
        return min(end, nbytes)
    finally:
        os.close(handle)
    return min(end, nbytes)


def _leaf(node: Node, key: tuple[str, ...]) -> Leaf | None:
    found = node[key] if key in node else None  # noqa: SIM401 (a Node has no get)
    return found if found is not None and found.is_leaf else None  # type: ignore[return-value]  # sound: is_leaf


def guess_seam(node: Node, shape: tuple[int, ...]) -> tuple[int | None, str]:
    """Cursor of a full ring: the one row where every lane starts over, and what says so.

    Trajectory ids fall there; or the only step that breaks off without an end flag lies before it.
    """
    import numpy as np

    capacity = shape[0]
    falls = _between(node, shape, _IDS, np.greater)
    if falls is not None:
        rows = np.flatnonzero(falls.all(axis=1)) + 1
        if len(rows) == 1 and int(falls.sum()) == falls.shape[1]:
            return int(rows[0]), "the seam is where the trajectory ids fall"
    broken = _between(node, shape, (("step_count",),), lambda now, then: then != now + 1)
    if broken is None:
        broken = _unlike(node, shape)
    if broken is not None:
        broken = broken & ~_ends(node, capacity, broken.shape[1])[:-1]
        rows = np.flatnonzero(broken.all(axis=1)) + 1
        if len(rows) == 1 and int(broken.sum()) == broken.shape[1]:
            return int(rows[0]), "the seam is where an episode breaks off without an end"
    return None, "no sign of a seam"


Pairs = Callable[[Any, Any], Any]


def _between(node: Node, shape: tuple[int, ...], keys: tuple[tuple[str, ...], ...], differ: Pairs) -> Any:
    """``differ(row, next row)`` of the first of some leaves with one number per element: ``[rows - 1, lanes]``."""
    for key in keys:
        leaf = _leaf(node, key)
        if leaf is None or leaf.nbytes > _SEAM_LIMIT or tuple(leaf.shape) not in (shape, (*shape, 1)):
            continue
        try:
            return _compared(leaf, leaf, shape, differ)
        except TdviewError:
            continue
    return None


def _compared(left: Leaf, right: Leaf, shape: tuple[int, ...], differ: Pairs) -> NDArray[Any]:
    """Where a row of `left` and the next row of `right` differ, ``[rows - 1, lanes]``; read in blocks."""
    import numpy as np

    rows, lanes = shape[0] - 1, reduce(mul, shape[1:], 1)
    found = np.zeros((rows, lanes), bool)
    for start, stop in _blocks(left, rows if lanes else 0):
        size = (stop - start, lanes, -1)
        now, then = left.rows(start, stop), right.rows(start + 1, stop + 1)
        found[start:stop] = differ(now.reshape(size), then.reshape(size)).any(axis=2)
    return found


def _blocks(leaf: Leaf, rows: int) -> list[tuple[int, int]]:
    step = max(1, _BLOCK // max(1, leaf.nbytes // leaf.shape[0]))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def _unlike(node: Node, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Where the observation that a step leads to is not the next row's, ``[rows - 1, lanes]``."""
    import numpy as np

    for name in node["next"] if "next" in node and not node["next"].is_leaf else ():
        leaf, before = _leaf(node, ("next", name)), _leaf(node, (name,))
        if leaf is None or before is None or name in (*_ENDS, "reward", "step_count", "episode_reward"):
            continue
        fits = before.dtype == leaf.dtype and before.shape == leaf.shape and tuple(leaf.shape)[: len(shape)] == shape
        if not fits or len(leaf.shape) <= len(shape) or leaf.nbytes > _SEAM_LIMIT:
            continue
        try:
            return _compared(leaf, before, shape, np.not_equal)
        except TdviewError:
            continue
    return None


def _ends(node: Node, capacity: int, lanes: int) -> NDArray[Any]:
    import numpy as np

    ends = np.zeros((capacity, lanes), bool)
    for name in _ENDS:
        leaf = _leaf(node, ("next", name))
        if leaf is None or leaf.nbytes > _SEAM_LIMIT or leaf.shape[:1] != (capacity,):
            continue
        if reduce(mul, leaf.shape, 1) == ends.size:
            for start, stop in _blocks(leaf, capacity):
                ends[start:stop] |= leaf.rows(start, stop).reshape(stop - start, lanes) != 0
    return ends

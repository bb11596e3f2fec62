"""This module knows which rows of a replay buffer were written, and in which order.

It does not know what the rows mean, nor whether they are sound.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdview.errors import Problem, TdviewError
from tdview.format import torchrl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["Fill", "SideFiles", "fill_of", "ring", "side_files_of"]

_SIDE_LIMIT = 64 << 20
_BLOCK = 4 << 20
_ENDS = ("done", "terminated", "truncated")
_IDS = (("collector", "traj_ids"), ("traj_ids",), ("episode",))
_FLAT = frozenset({"shift", "is_full", "_storage_shape"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Which rows of a buffer are data. Rows are counted along the first batch dim of the storage."""

    capacity: int
    """Rows that the storage can hold."""
    rows: int
    """Rows that were written and are still there."""
    cursor: int | None = None
    """Row that is written next; None where it is not known."""
    write_count: int | None = None
    """Rows ever written; None before torchrl 0.14 and wherever nobody counted."""
    chronological: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of storage rows, oldest row first. The last row of one range is followed in time by the
    first row of the next; nothing follows the last range."""
    certain: bool = True
    """The side files say so and agree. False: see `guessed_from`."""
    guessed_from: str = ""
    """What rows and order were concluded from, empty when they are certain."""
    ordered: bool = True
    """The rows are in time order. False for a max-value writer, which keeps the best rows wherever they fit."""
    rotated: bool = False
    """A flat or nested checkpoint: the *file* already holds the rows oldest first, while `cursor` and
    `chronological` count the rows of the buffer that torchrl restores from it."""
    inner: int = 1
    """Elements of one row: the product of the further batch dims (environments, or steps of a slice)."""
    single: bool = True
    """`len` counts rows. False: it counts elements, as storages with ``ndim > 1`` do."""

    @property
    def full(self) -> bool:
        """Every row is written."""
        return self.rows == self.capacity

    @property
    def seam(self) -> int | None:
        """The oldest row of a full ring: the row before it in the storage is the newest, and no predecessor.

        None where the order of the storage is the order in time.
        """
        return self.chronological[0][0] if len(self.chronological) > 1 else None

    def __str__(self) -> str:
        spans = " then ".join(f"{a}–{b - 1}" for a, b in self.chronological)
        text = f"{self.rows} of {self.capacity} rows"
        text += f", oldest first: {spans}" if self.seam is not None else ""
        return text + (f" (guessed from {self.guessed_from})" if not self.certain else "")


def ring(capacity: int, rows: int, cursor: int | None) -> tuple[tuple[int, int], ...]:
    """Time order of a ring buffer as half-open row ranges, oldest first.

    Examples:
        >>> ring(256, 256, 144), ring(256, 100, 100), ring(300, 300, 0)
        (((144, 256), (0, 144)), ((0, 100),), ((0, 300),))
    """
    if rows == 0:
        return ()
    if rows < capacity or not cursor:
        return ((0, rows),)
    return ((cursor, capacity), (0, cursor))


class SideFiles:
    """torchrl's files beside the storage of a buffer: read as JSON or plain numbers, never as pickles."""

    def __init__(self, node: Node) -> None:
        self.node = node
        prefix = node.prefix
        if not prefix and node.store.info(f"storage/{torchrl.STORAGE_META}") is not None:
            prefix = "storage"
        self.storage = prefix
        """Level of the store that holds the rows."""
        self.problems: list[Problem] = []
        """Side files that could not be read."""

    def _places(self, part: str) -> list[str]:
        """Where the files of `part` ("writer", "sampler", "") lie, relative to the storage."""
        levels = Path(self.node.store.location.name, *self.storage.split("/")).parts if self.storage else (
            self.node.store.location.parent.name,
            self.node.store.location.name,
        )  # fmt: skip
        own = levels[-1] if levels else ""
        if own.isdigit() and len(levels) > 1 and levels[-2] == "storage":  # a member of an ensemble
            return [f"../../{part}/{own}", f"../../{part}"] if part else ["../.."]
        return [f"../{part}" if part else ".."]

    def read(self, part: str, name: str) -> bytes | None:
        """Content of a side file of ``"storage"``, ``"writer"``, ``"sampler"`` or ``""``; None if it is not there."""
        places = ["."] if part == "storage" else self._places(part)
        for place in places:
            found = self._read(f"{place}/{name}")
            if found is not None:
                return found
        return None

    def _read(self, relative: str) -> bytes | None:
        steps = [*self.storage.split("/"), *relative.split("/")] if self.storage else relative.split("/")
        inside: list[str] = []
        above = 0
        for step in steps:
            if step == "..":
                above, _ = (above, inside.pop()) if inside else (above + 1, None)
            elif step not in ("", "."):
                inside.append(step)
        store = self.node.store
        if not above:
            name = "/".join(inside)
            return store.read(name, _SIDE_LIMIT) if store.info(name) is not None else None
        if store.form != "directory":
            return None
        path = store.location.resolve().joinpath(*[".."] * above, *inside)
        if not path.is_file() or path.stat().st_size > _SIDE_LIMIT:
            return None
        return path.read_bytes()

    def _parsed(self, part: str, name: str, parse: Any) -> Any:
        try:
            data = self.read(part, name)
            return None if data is None else parse(data, f"{part}/{name}")
        except (TdviewError, OSError) as error:
            self.problems.append(Problem("side_file", f"{error}; the buffer is shown without it"))
            return None

    @cached_property
    def length(self) -> torchrl.StorageMeta | None:
        """`storage_metadata.json`."""
        found = self._parsed("storage", torchrl.STORAGE_META, torchrl.parse_storage)
        return found if isinstance(found, torchrl.StorageMeta) else None

    @cached_property
    def writer(self) -> torchrl.WriterMeta | None:
        """`writer/metadata.json`."""
        found = self._parsed("writer", torchrl.WRITER_META, torchrl.parse_writer)
        return found if isinstance(found, torchrl.WriterMeta) else None

    @cached_property
    def sampler(self) -> torchrl.SamplerMeta | None:
        """`sampler/sampler_metadata.json`."""
        found = self._parsed("sampler", torchrl.SAMPLER_META, torchrl.parse_sampler)
        return found if isinstance(found, torchrl.SamplerMeta) else None

    def array(self, part: str, name: str, dtype: str, count: int) -> NDArray[Any] | None:
        """The first `count` numbers of a raw file of torchrl, None if it is missing or shorter. A private copy."""
        import numpy as np

        data = self.read(part, name)
        kind = np.dtype(dtype)
        if data is None or len(data) < count * kind.itemsize:
            return None
        return np.frombuffer(data, kind, count)


def side_files_of(node: Node) -> SideFiles:
    """The side files of a buffer's storage; all lookups are lazy."""
    return SideFiles(node)


def fill_of(node: Node) -> Fill | None:
    """Which rows of a buffer are written; None for a node that is no replay buffer and does not look like one.

    Reads two small JSON files. Without them (the scratch directory of a killed run, a packed storage) it looks at
    the `index` leaf, at empty rows at the end and at the place where trajectory ids fall, and says so.
    """
    if node.is_leaf or not _is_top(node):
        return None
    side = side_files_of(node)
    if node.kind != "replay_buffer" and side.length is None and not _looks_like_transitions(node):
        return None
    shape = _storage_shape(node, side)
    if not shape:
        return None
    fill = _from_side_files(shape, side)
    if fill is None:
        return _guess(node, shape)
    if fill.full and fill.cursor is None and fill.ordered:
        cursor, why = _guess_seam(node, shape)
        chronological = ring(fill.capacity, fill.rows, cursor)
        return replace(fill, chronological=chronological, certain=False, guessed_from=f"{why}; there is no cursor")
    return replace(fill, rotated=set(node) >= _FLAT)


def _is_top(node: Node) -> bool:
    return node.parent is None or node.kind == "replay_buffer" or str(node.parent.kind) == "collection"


def _looks_like_transitions(node: Node) -> bool:
    """Rows with a `next` entry that has an end flag, or a flat checkpoint."""
    names = set(node)
    if names >= _FLAT:
        return True
    if not node.batch_size or "next" not in names or node["next"].is_leaf:
        return False
    return any(name in node["next"] for name in (*_ENDS, "reward"))


def _storage_shape(node: Node, side: SideFiles) -> tuple[int, ...]:
    if set(node) >= _FLAT:
        try:
            value = node["_storage_shape"].value
        except TdviewError:
            value = None
        sizes = value if isinstance(value, list | tuple) else ()
        return tuple(size for size in sizes if isinstance(size, int) and size >= 0)
    if side.length is not None and side.length.is_pytree:
        firsts = [raw.shape[0] for _, raw in side.length.entries if raw.shape]
        return (min(firsts),) if firsts else ()
    return tuple(node.batch_size or ())


def _from_side_files(shape: tuple[int, ...], side: SideFiles) -> Fill | None:
    meta, writer = side.length, side.writer
    if meta is None:
        return None
    capacity, inner = shape[0], reduce(mul, shape[1:], 1)
    cursor = writer.cursor if writer else None
    single = _counts_rows(meta.length, capacity, inner, cursor)
    rows = meta.length if single else meta.length // max(1, inner)
    fill = Fill(
        capacity=capacity,
        rows=min(rows, capacity),
        cursor=cursor,
        write_count=writer.write_count if writer else None,
        ordered=writer is None or writer.rank_key is None,
        inner=inner,
        single=single,
    )
    if not fill.ordered:
        return replace(fill, chronological=ring(capacity, fill.rows, 0))
    if cursor is not None and not 0 <= cursor < max(1, capacity):
        fill = replace(fill, cursor=None, certain=False, guessed_from="the length; the cursor is out of range")
    elif cursor is not None and not fill.full and cursor != fill.rows:
        fill = replace(fill, certain=False, guessed_from="the length; the cursor contradicts it")
    if rows > capacity:
        fill = replace(fill, certain=False, guessed_from="the capacity; the length exceeds it")
    return replace(fill, chronological=ring(capacity, fill.rows, fill.cursor))


def _counts_rows(length: int, capacity: int, inner: int, cursor: int | None) -> bool:
    """Whether `len` counts rows of dim 0: it counts elements in storages with ``ndim > 1``, and nothing says which."""
    if inner <= 1 or length % inner:
        return True
    if length > capacity or cursor is None:
        return length <= capacity and cursor is None and length == capacity
    if length // inner == cursor:
        return False
    return length in (cursor, capacity)


# -- without side files ---------------------------------------------------------------------------------------------


def _guess(node: Node, shape: tuple[int, ...]) -> Fill:
    capacity, inner = shape[0], reduce(mul, shape[1:], 1)
    rows, why = _guess_rows(node, shape)
    fill = Fill(capacity=capacity, rows=rows, certain=False, guessed_from=why, inner=inner, single=inner == 1)
    if not fill.full:
        return replace(fill, cursor=rows, chronological=ring(capacity, rows, rows))
    cursor, seam = _guess_seam(node, shape)
    return replace(
        fill, cursor=cursor, chronological=ring(capacity, rows, cursor), guessed_from=f"{why}; {seam}"
    )  # fmt: skip


def _guess_rows(node: Node, shape: tuple[int, ...]) -> tuple[int, str]:
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
    """Rows up to the last one that is not empty in every plain leaf."""
    rows = 0
    for leaf in node.leaves():
        shape = tuple(leaf.shape)
        if not leaf.direct or not shape or shape[0] != capacity or not leaf.nbytes:
            continue
        try:
            raw = leaf.raw()
        except TdviewError:
            continue
        last = _last_byte(raw, _data_end(leaf, len(raw)))
        rows = max(rows, -(-last // max(1, len(raw) // capacity)))
        if rows == capacity:
            break
    return min(rows, capacity)


def _last_byte(raw: memoryview, end: int) -> int:
    """Number of bytes up to the last one that is not zero. Reads from the end and stops there."""
    import numpy as np

    values = np.frombuffer(raw, np.uint8)
    while end > 0:
        start = max(0, end - _BLOCK)
        found = np.flatnonzero(values[start:end])
        if len(found):
            return start + int(found[-1]) + 1
        end = start
    return 0


def _data_end(leaf: Leaf, nbytes: int) -> int:
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


def _guess_seam(node: Node, shape: tuple[int, ...]) -> tuple[int | None, str]:
    """Cursor of a full ring: the one row where the trajectory ids of every lane fall, or an episode breaks off."""
    import numpy as np

    capacity = shape[0]
    try:
        for key in _IDS:
            leaf = _leaf(node, key)
            if leaf is not None and tuple(leaf.shape)[: len(shape)] == shape:
                ids = leaf.numpy().reshape(capacity, -1)
                falls = ids[1:] < ids[:-1]
                rows = np.flatnonzero(falls.all(axis=1)) + 1
                if len(rows) == 1 and int(falls.sum()) == falls.shape[1]:
                    return int(rows[0]), f"the seam is where {'.'.join(key)} falls"
                return None, f"no seam: {'.'.join(key)} {'falls at several rows' if falls.any() else 'never falls'}"
        steps = _leaf(node, ("step_count",))
        if steps is not None and tuple(steps.shape)[: len(shape)] == shape:
            count = steps.numpy().reshape(capacity, -1)
            broken = (count[1:] <= count[:-1]) & ~_ends(node, capacity, count.shape[1])[:-1]
            rows = np.flatnonzero(broken.all(axis=1)) + 1
            if len(rows) == 1 and int(broken.sum()) == broken.shape[1]:
                return int(rows[0]), "the seam is where step_count falls without an end"
    except TdviewError:
        pass
    return None, "no sign of a seam"


def _ends(node: Node, capacity: int, lanes: int) -> NDArray[Any]:
    import numpy as np

    ends = np.zeros((capacity, lanes), bool)
    for name in _ENDS:
        leaf = _leaf(node, ("next", name))
        if leaf is not None:
            values = leaf.numpy().reshape(capacity, -1)
            if values.shape == ends.shape:
                ends |= values.astype(bool)
    return ends

"""This module knows which rows of a replay buffer were written, and in which order.

It does not know what the rows mean, nor whether they are sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdview.errors import Problem, TdviewError
from tdview.format import torchrl
from tdview.tree.fill_guess import guess_rows, guess_seam

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.node import Node

__all__ = ["Fill", "SideFiles", "buffer_above", "fill_of", "ring", "side_files_of"]

_SIDE_LIMIT = 64 << 20
_ENDS = ("done", "terminated", "truncated")
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
    def wrapped(self) -> bool:
        """Rows were overwritten: the oldest episode may lack its first steps."""
        return self.seam is not None or (self.full and (self.write_count or 0) > self.capacity)

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
        found = self._find(part, name)
        return None if found is None else found[1]()

    def nbytes(self, part: str, name: str) -> int:
        """Size of a side file, 0 if it is not there or too large for `read`. Does not read it."""
        found = self._find(part, name)
        return found[0] if found is not None and found[0] <= _SIDE_LIMIT else 0

    def _find(self, part: str, name: str) -> tuple[int, Callable[[], bytes]] | None:
        """Size of a side file and how it is read."""
        places = ["."] if part == "storage" else self._places(part)
        return next((found for place in places if (found := self._at(f"{place}/{name}"))), None)

    def _at(self, relative: str) -> tuple[int, Callable[[], bytes]] | None:
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
            info = store.info(name)
            return None if info is None else (info.nbytes, lambda: store.read(name, _SIDE_LIMIT))
        if store.form != "directory":
            return None
        path = store.location.resolve().joinpath(*[".."] * above, *inside)
        if not path.is_file() or path.stat().st_size > _SIDE_LIMIT:
            return None
        return path.stat().st_size, path.read_bytes

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
        cursor, why = guess_seam(node, shape)
        chronological = ring(fill.capacity, fill.rows, cursor)
        return replace(fill, chronological=chronological, certain=False, guessed_from=f"{why}; there is no cursor")
    return replace(fill, rotated=set(node) >= _FLAT)


def buffer_above(node: Node) -> Node | None:
    """The replay buffer that `node` is or stands in, None where there is none."""
    above: Node | None = node
    while above is not None and above.fill is None:
        above = above.parent
    return above


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


def _guess(node: Node, shape: tuple[int, ...]) -> Fill:
    capacity, inner = shape[0], reduce(mul, shape[1:], 1)
    rows, why = guess_rows(node, shape)
    fill = Fill(capacity=capacity, rows=rows, certain=False, guessed_from=why, inner=inner, single=inner == 1)
    if not fill.full:
        return replace(fill, cursor=rows, chronological=ring(capacity, rows, rows))
    cursor, seam = guess_seam(node, shape)
    return replace(
        fill, cursor=cursor, chronological=ring(capacity, rows, cursor), guessed_from=f"{why}; {seam}"
    )  # fmt: skip

"""This module knows one edit as it is shown: where, what was there, what is there now.

It does not know how edits are made.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

from tdview.errors import DecodeError, TdviewError, shown
from tdview.format.dtypes import dtype_of
from tdview.operations.journal import Journal, Record
from tdview.operations.region import index_text
from tdview.operations.target import Target, target_from_json
from tdview.operations.value_change import field_value
from tdview.operations.values import decode_block

__all__ = ["Box", "Edit", "check_edit", "index_from_json", "index_to_json", "sides_of"]

Box = tuple[tuple[int, int], ...]
"""Half-open span of positions along each axis."""

_MOST_BOXES = 1000
_LATEST = 2**37
"""Seconds since 1970 that a date can still be made of on every platform."""


class Edit:
    """One edit of a save. Its bytes are read from the journal when they are asked for."""

    __slots__ = ("_journal", "_record")

    def __init__(self, record: Record, journal: Journal) -> None:
        self._record = record
        self._journal = journal

    @property
    def id(self) -> int:
        """Its number in the journal, from 1."""
        return self._record.id

    @property
    def path(self) -> tuple[str, ...]:
        """Nested key of the leaf or value."""
        return tuple(map(str, self._record.head.get("path", ())))

    @property
    def index(self) -> tuple[Any, ...]:
        """What was replaced: an int, a slice, or a tuple of positions for each axis."""
        return index_from_json(self._record.head.get("index", ()))

    @property
    def time(self) -> datetime.datetime:
        """When it was made, in the local time zone."""
        return datetime.datetime.fromtimestamp(float(self._record.head.get("time", 0))).astimezone()

    @property
    def dtype(self) -> str | None:
        """Dtype of the leaf; None for a non-tensor value."""
        dtype = self._record.head.get("dtype")
        return dtype if isinstance(dtype, str) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block that was replaced; ``()`` for one element."""
        return tuple(int(size) for size in self._record.head.get("shape", ()))

    @property
    def nbytes(self) -> int:
        """Bytes that were replaced."""
        return self._record.old_nbytes

    @property
    def old_bytes(self) -> bytes:
        """What was there, in C order of the block; of a non-tensor the whole meta.json.

        Raises:
            DecodeError: the journal is damaged there.
        """
        return self._journal.contents(self._record)[0]

    @property
    def new_bytes(self) -> bytes:
        """What the edit wrote, as `old_bytes`."""
        return self._journal.contents(self._record)[1]

    @property
    def old(self) -> Any:
        """What was there: a Python value, or nested lists for a block."""
        return self._value(self.old_bytes)

    @property
    def new(self) -> Any:
        """What the edit wrote: a Python value, or nested lists for a block."""
        return self._value(self.new_bytes)

    def boxes(self) -> Iterator[Box]:
        """The elements as boxes: one, or one for each position where they are not neighbours."""
        spans: list[tuple[int, int]] = []
        scattered: tuple[int, range | tuple[int, ...]] | None = None
        for axis, item in enumerate(self.index):
            places = range(item, item + 1) if isinstance(item, int) else _places(item)
            if not places:
                return
            spans.append((min(places), max(places) + 1))
            if max(places) - min(places) + 1 != len(places) and len(places) <= _MOST_BOXES:
                scattered = (axis, places)
        if scattered is None:
            yield tuple(spans)
            return
        axis, places = scattered
        for place in places:
            yield (*spans[:axis], (place, place + 1), *spans[axis + 1 :])

    def _value(self, data: bytes) -> Any:
        if self.dtype is None:
            return field_value(data, str(self._record.head.get("field", "data")), self.index)
        return decode_block(self.dtype, data, self.shape)

    def __repr__(self) -> str:
        where = f"{'.'.join(self.path)}[{index_text(self.index)}]" if self.index else ".".join(self.path)
        if self.nbytes > 4096 and self.dtype is not None:
            return f"<edit {self.id}: {where}: {self.nbytes} bytes>"
        try:
            return f"<edit {self.id}: {where}: {shown(self.old, 40)} -> {shown(self.new, 40)}>"
        except TdviewError as error:
            return f"<edit {self.id}: {where}: {error}>"


def check_edit(record: Record) -> None:
    """Raises if the record of an edit cannot be what an editor wrote: a journal is a file like any other.

    Raises:
        DecodeError: a fact of it is missing, of another type, or contradicts the others.
    """
    head = record.head
    target_from_json(head, record.old_nbytes, record.new_nbytes)
    path, shape, dtype, when = (head.get(name) for name in ("path", "shape", "dtype", "time"))
    sound = (
        isinstance(path, list)
        and all(isinstance(part, str) for part in path)
        and isinstance(shape, list)
        and all(type(size) is int and size >= 0 for size in shape)
        and isinstance(when, (int, float))
        and 0 <= when < _LATEST
        and (isinstance(head.get("field"), str) if dtype is None else isinstance(dtype, str))
    )
    if not sound or not isinstance(shape, list):
        raise DecodeError(f"edit {record.id}: the journal does not say where and when it was made")
    index_from_json(head.get("index"))
    row = dtype_of(dtype)
    if isinstance(dtype, str) and (row is None or math.prod(shape) * row.itemsize != record.old_nbytes):
        raise DecodeError(f"edit {record.id}: the journal holds {record.old_nbytes} bytes for the shape {shown(shape)}")


def sides_of(journal: Journal, record: Record, action: str) -> tuple[Target, bytes, bytes]:
    """What an edit writes to, and the bytes there before and after an action of it.

    Args:
        record: of the edit.
        action: ``"edit"``, ``"undo"`` or ``"redo"``.

    Raises:
        DecodeError: the journal is damaged there.
    """
    target = target_from_json(record.head, record.old_nbytes, record.new_nbytes)
    old, new = journal.contents(record)
    return (target, new, old) if action == "undo" else (target, old, new)


def index_to_json(index: Any) -> list[Any]:
    """An index as JSON.

    Examples:
        >>> index_to_json((0, slice(1, 5), (2, 4), ...))
        [0, {'slice': [1, 5, None]}, [2, 4], '...']
    """
    return [_item_to_json(item) for item in (index if isinstance(index, tuple) else (index,))]


def index_from_json(value: Any) -> tuple[Any, ...]:
    """The index that `index_to_json` gave.

    Raises:
        DecodeError: it is none.
    """
    try:
        return tuple(_item_from_json(item) for item in value)
    except (KeyError, TypeError, ValueError):
        raise DecodeError(f"this is no index: {shown(value)}") from None


def _item_to_json(item: Any) -> Any:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        return {"slice": [item.start, item.stop, item.step]}
    if isinstance(item, (list, tuple, range)):
        return list(item)
    return int(item)


def _item_from_json(item: Any) -> Any:
    if item == "...":
        return Ellipsis
    if isinstance(item, dict):
        bounds = item["slice"]
        if len(bounds) != 3 or not all(bound is None or type(bound) is int for bound in bounds):
            raise ValueError(bounds)
        return slice(*bounds)
    if isinstance(item, list):
        if not all(type(place) is int for place in item):
            raise ValueError(item)
        return tuple(item)
    if type(item) is not int:
        raise ValueError(item)
    return item


def _places(item: Any) -> range | tuple[int, ...]:
    if isinstance(item, slice):
        start, step = item.start or 0, item.step or 1
        return range(start, (-1 if step < 0 else 0) if item.stop is None else item.stop, step)
    return tuple(item)

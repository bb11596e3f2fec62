"""This module knows which bytes of a payload an index selects: strides, runs, and the checksum of a change to them.

It does not know where the payload lies, nor what its bytes mean.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tdview.errors import EditRefusedError, shown
from tdview.storage.crc import delta

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Axis", "Layout", "Region", "index_text"]

Axis = range | tuple[int, ...]
"""Byte offset of each position along an axis: a range where it has a stride, a tuple where positions were picked."""

# Changes this close together are combined into one checksum: the zeros between them are cheaper than a shift.
_WINDOW = 1 << 20
# From here on numpy moves the runs of a strided region; for a few it would only be imported.
_MANY_RUNS = 4096


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of a payload that are edited together, in C order of the selected elements."""

    shape: tuple[int, ...]
    """Of the selection, in elements."""
    base: int
    """Byte offset of the first element."""
    axes: tuple[Axis, ...]
    """Offsets that are added to `base` for each run, outermost axis first."""
    run: int
    """Bytes of one contiguous run."""

    @property
    def n_runs(self) -> int:
        """Number of contiguous runs."""
        return math.prod(len(axis) for axis in self.axes) if self.run else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return self.n_runs * self.run

    @property
    def end(self) -> int:
        """Byte offset behind the last byte; 0 for an empty region."""
        return self.base + sum(_highest(axis) for axis in self.axes) + self.run if self.nbytes else 0

    @property
    def start(self) -> int:
        """Byte offset of the first byte in the payload."""
        return self.base + sum(_lowest(axis) for axis in self.axes) if self.nbytes else 0

    def offsets(self) -> Iterator[int]:
        """Byte offset of each run, in C order of the selection."""
        if not self.run:
            return iter(())
        if not self.axes:
            return iter((self.base,))
        if len(self.axes) == 1:
            base = self.base
            return (base + offset for offset in self.axes[0])
        return map(sum, itertools.product((self.base,), *self.axes))

    def gather(self, payload: memoryview) -> bytes:
        """The bytes of the region, in C order of the selection."""
        strided = self._strided(payload)
        if strided is not None:
            return strided.tobytes()
        run = self.run
        return b"".join(payload[offset : offset + run] for offset in self.offsets())

    def scatter(self, payload: memoryview, data: bytes | memoryview) -> None:
        """Writes `data`, as `gather` gives it, into a writable payload."""
        strided = self._strided(payload)
        if strided is not None:
            strided[...] = _octets(data, strided.shape)
            return
        run = self.run
        view = memoryview(data)
        for position, offset in enumerate(self.offsets()):
            payload[offset : offset + run] = view[position * run : (position + 1) * run]

    def crc_delta(self, old: bytes, new: bytes, payload_nbytes: int) -> int:
        """What the CRC-32 of the payload changes by, under XOR, when the region's bytes change from `old` to `new`.

        Costs the bytes of the region and the gaps up to 1 MB between them, not those of the payload.
        """
        change = 0
        for start, before, after in self._windows(old, new):
            change ^= delta(before, after, payload_nbytes - start - len(before))
        return change

    def _windows(self, old: bytes, new: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Pieces of the payload with both contents; bytes that do not change are zero in both."""
        run = self.run
        if (
            self.n_runs >= _MANY_RUNS
            and len(self.axes) == 1
            and isinstance(self.axes[0], range)
            and self.axes[0].step > 0
        ):
            yield from self._strided_windows(self.axes[0], old, new)
            return
        places = sorted((offset, position * run) for position, offset in enumerate(self.offsets()))
        at = 0
        while at < len(places):
            start = places[at][0]
            stop = at + 1
            while stop < len(places) and places[stop][0] + run - start <= _WINDOW:
                stop += 1
            if stop == at + 1:
                source = places[at][1]
                yield start, old[source : source + run], new[source : source + run]
            else:
                before, after = (
                    bytearray(places[stop - 1][0] + run - start),
                    bytearray(places[stop - 1][0] + run - start),
                )
                for offset, source in places[at:stop]:
                    before[offset - start : offset - start + run] = old[source : source + run]
                    after[offset - start : offset - start + run] = new[source : source + run]
                yield start, bytes(before), bytes(after)
            at = stop

    def _strided_windows(self, axis: range, old: bytes, new: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        import numpy as np

        run, step = self.run, axis.step
        count = max(1, _WINDOW // step)
        for first in range(0, len(axis), count):
            runs = min(count, len(axis) - first)
            pieces = []
            for data in (old, new):
                window = np.zeros((runs - 1) * step + run, np.uint8)
                np.ndarray((runs, run), np.uint8, window, 0, (step, 1))[...] = _octets(
                    data[first * run : (first + runs) * run], (runs, run)
                )
                pieces.append(window.tobytes())
            yield self.base + axis[first], pieces[0], pieces[1]

    def _strided(self, payload: memoryview) -> NDArray[Any] | None:
        """The region as an array over the payload, where it has strides and enough runs to be worth it."""
        ranges = [axis for axis in self.axes if isinstance(axis, range)]
        if self.n_runs < _MANY_RUNS or len(ranges) != len(self.axes):
            return None
        import numpy as np

        shape = (*map(len, ranges), self.run)
        first = self.base + sum(axis[0] for axis in ranges)
        return np.ndarray(shape, np.uint8, payload, first, (*(axis.step for axis in ranges), 1))

    def to_json(self) -> dict[str, Any]:
        """The region as JSON; see `from_json`."""
        axes = [[axis.start, axis.step, len(axis)] if isinstance(axis, range) else {"at": axis} for axis in self.axes]
        return {"shape": self.shape, "base": self.base, "axes": axes, "run": self.run}

    @classmethod
    def from_json(cls, value: Any) -> Region:
        """The region that `to_json` described.

        Raises:
            ValueError: the value is no region.
        """
        try:
            axes = tuple(_axis_from_json(axis) for axis in value["axes"])
            shape = tuple(_size(size) for size in value["shape"])
            region = cls(shape, _size(value["base"]), axes, _size(value["run"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no region: {shown(value)}") from error
        if region.start < 0 or region.end >= 1 << 63:
            raise ValueError(f"no region: {shown(value)}")
        return region


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a leaf lie in its payload.

    Examples:
        >>> Layout.contiguous((3, 4), 2).select((slice(None), 1))
        Region(shape=(3,), base=2, axes=(range(0, 24, 8),), run=2)
        >>> Layout.contiguous((3, 4), 2).select((slice(1, 3),))
        Region(shape=(2, 4), base=8, axes=(), run=16)
    """

    axes: tuple[Axis, ...]
    itemsize: int
    base: int = 0

    @classmethod
    def contiguous(cls, shape: Sequence[int], itemsize: int) -> Layout:
        """The layout of a payload in C order."""
        axes: list[Axis] = []
        stride = itemsize
        for size in reversed(shape):
            axes.append(range(0, size * stride, stride))
            stride *= max(size, 1)
        return cls(tuple(reversed(axes)), itemsize)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(len(axis) for axis in self.axes)

    def normalize(self, index: Any) -> tuple[int | slice | tuple[int, ...], ...]:
        """`index` with one item for each axis: a position >= 0, a slice, or a tuple of positions.

        Args:
            index: an int, a slice, Ellipsis, a range, a list of positions, a mask of one axis, or a tuple of these.

        Raises:
            EditRefusedError: too many items, a position outside the shape, or an item of another kind.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        if sum(item is Ellipsis for item in items) > 1:
            raise EditRefusedError(f"index {index_text(index)} has more than one Ellipsis")
        rest = len(self.axes) - sum(item is not Ellipsis for item in items)
        if rest < 0:
            raise EditRefusedError(f"index {index_text(index)} has too many items for the shape {list(self.shape)}")
        at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
        items[at : at + 1] = [slice(None)] * rest
        normal = tuple(_item(item, size, n) for n, (item, size) in enumerate(zip(items, self.shape, strict=True)))
        if sum(isinstance(item, tuple) for item in normal) > 1:
            raise EditRefusedError("an index can hold one list of positions; use slices for the other axes")
        return normal

    def select(self, index: Any) -> Region:
        """The bytes that `index` selects, see `normalize` for what it can be.

        Raises:
            EditRefusedError: as `normalize`.
        """
        base, axes = self.base, []
        for axis, item in zip(self.axes, self.normalize(index), strict=True):
            if isinstance(item, int):
                base += axis[item]
            else:
                axes.append(axis[item] if isinstance(item, slice) else tuple(axis[i] for i in item))
        shape = tuple(map(len, axes))
        run = self.itemsize
        while axes:
            last = axes[-1]
            if len(last) == 1:
                base += last[0]
            elif isinstance(last, range) and last and last.step == run:
                base += last.start
                run *= len(last)
            else:
                break
            axes.pop()
        if 0 in shape:
            return Region(shape, base, (), 0)
        return Region(shape, base, tuple(axes), run)


def _octets(data: bytes | memoryview, shape: tuple[int, ...]) -> NDArray[Any]:
    import numpy as np

    return np.frombuffer(data, np.uint8).reshape(shape)


def _lowest(axis: Axis) -> int:
    return min(axis[0], axis[-1]) if isinstance(axis, range) else min(axis)


def _highest(axis: Axis) -> int:
    return max(axis[0], axis[-1]) if isinstance(axis, range) else max(axis)


def index_text(index: Any) -> str:
    """An index as it is written in Python, without the brackets.

    Examples:
        >>> index_text((0, slice(None, 5), slice(None), ...))
        '0, :5, :, ...'
    """
    items = index if isinstance(index, tuple) else (index,)
    return ", ".join(_item_text(item) for item in items)


def _item_text(item: Any) -> str:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        bounds = [item.start, item.stop] + ([item.step] if item.step not in (None, 1) else [])
        return ":".join("" if bound is None else str(bound) for bound in bounds)
    if isinstance(item, (list, tuple)):
        return shown(list(item))
    return shown(item)


def _item(item: Any, size: int, axis: int) -> int | slice | tuple[int, ...]:
    if isinstance(item, slice):
        try:
            start, stop, step = item.indices(size)
        except (TypeError, ValueError):
            raise EditRefusedError(f"index item {_item_text(item)} is no slice of integers") from None
        # A negative step may stop before the first position, which only None can say.
        return slice(start, None if stop < 0 else stop, step)
    if hasattr(item, "tolist"):
        item = item.tolist()
    if isinstance(item, (list, tuple, range)):
        return _positions(item, size, axis)
    if isinstance(item, bool) or item is None:
        raise EditRefusedError(f"index item {item} is neither an integer nor a slice")
    try:
        position = operator.index(item)
    except TypeError:
        raise EditRefusedError(f"index item {shown(item)} is neither an integer nor a slice") from None
    return _position(position, size, axis)


def _positions(items: list[Any] | tuple[Any, ...] | range, size: int, axis: int) -> tuple[int, ...]:
    if items and all(isinstance(item, bool) for item in items):
        if len(items) != size:
            raise EditRefusedError(f"a mask of {len(items)} does not fit axis {axis} of size {size}")
        return tuple(i for i, chosen in enumerate(items) if chosen)
    positions = tuple(_position(item, size, axis) for item in items if type(item) is int)
    if len(positions) != len(items) or len(set(positions)) != len(positions):
        raise EditRefusedError(f"axis {axis}: expected a list of different positions, got {shown(list(items))}")
    return positions


def _position(position: int, size: int, axis: int) -> int:
    if not -size <= position < size:
        raise EditRefusedError(f"index {position} is out of range for axis {axis} of size {size}")
    return position % size


def _axis_from_json(value: Any) -> Axis:
    if isinstance(value, dict):
        return tuple(_size(offset) for offset in value["at"])
    start, step, count = value
    if type(start) is not int or type(step) is not int or step == 0:
        raise ValueError(f"no axis: {shown(value)}")
    return range(start, start + step * _size(count), step)


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"no size: {shown(value)}")
    return value

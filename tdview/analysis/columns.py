"""This module knows how one leaf is read as a column: element `i` along the flattened batch, in blocks or by index.

It does not know which elements are valid, nor in which order they follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tdview.format.dtypes import dtype_of
from tdview.storage.mapping import give_back

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf

__all__ = [
    "ArrayColumn", "Column", "GatherColumn", "JoinedColumn", "Key", "LeafColumn",
    "bits", "equal_rows", "flat_rows", "inflate_small", "take_forward",
]  # fmt: skip

Key: TypeAlias = tuple[str, ...]

_INFLATED = 128 << 20  # of the compressed leaves of a buffer, those that may stay in memory as a whole
_BLOCK = 4 << 20
_RELEASED = 32 << 20  # leaves of fewer bytes may stay in memory
_SCATTERED = 64  # rows that are read one by one before their pages (up to 2 MB each) are given back


def _size(shape: Sequence[int]) -> int:
    return reduce(mul, shape, 1)


class Column(Protocol):
    """Values of one key along the flattened batch: `elements` of them, each of shape `feature`."""

    key: Key
    dtype: str
    """Name of the stored dtype, ``"torch.float32"``."""
    feature: tuple[int, ...]
    elements: int

    @property
    def feature_size(self) -> int:
        """Values of one element."""
        ...

    @property
    def forward(self) -> bool:
        """Whether elements are only read cheaply in ascending order: the payload is inflated on the way."""
        ...

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Elements `start` to `stop` as an array ``[stop - start, *feature]``; a view where it can be."""
        ...

    def take(self, index: NDArray[Any]) -> NDArray[Any]:
        """The elements of an index array, in its order: ``[len(index), *feature]``, a private copy."""
        ...


def is_float(column: Column) -> bool:
    """Whether the values can be NaN or infinite."""
    row = dtype_of(column.dtype)
    return row is not None and row.kind in ("float", "complex")


def is_complex(column: Column) -> bool:
    """Whether the values have no order."""
    row = dtype_of(column.dtype)
    return row is not None and row.kind == "complex"


def width(column: Column) -> int:
    """Values of one element."""
    return _size(column.feature)


def nbytes(column: Column) -> int:
    """Bytes of one element as stored."""
    row = dtype_of(column.dtype)
    return width(column) * (row.itemsize if row else 1)


class _Sized:
    __slots__ = ()
    feature: tuple[int, ...]

    @property
    def feature_size(self) -> int:
        """Values of one element."""
        return _size(self.feature)

    @property
    def forward(self) -> bool:
        """Whether elements are only read cheaply in ascending order."""
        return False


class ArrayColumn(_Sized):
    """A column over an array that is there already."""

    __slots__ = ("array", "dtype", "elements", "feature", "key")

    def __init__(self, key: Key, dtype: str, array: NDArray[Any]) -> None:
        self.key = key
        self.dtype = dtype
        self.array = array
        self.elements = len(array)
        self.feature = tuple(array.shape[1:])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.array[start:stop]

    def take(self, index: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self.array[index]
        return found


class LeafColumn(_Sized):
    """A column over a leaf of the tree.

    A payload that numpy can view is mapped once and sliced; others (bfloat16, lazy views) are decoded block by
    block, and compressed ones are inflated forwards unless `keep` is set, so memory stays bounded either way.
    """

    __slots__ = ("_inner", "_leaf", "_whole", "dtype", "elements", "feature", "keep", "key")

    def __init__(self, key: Key, leaf: Leaf, batch_dims: int) -> None:
        shape = tuple(leaf.shape)
        self.key = key
        self.dtype = leaf.dtype
        self.feature = shape[batch_dims:]
        self.elements = _size(shape[:batch_dims])
        self.keep = not (leaf.direct and leaf.compressed)
        """Whether the payload may stay in memory as a whole: it is mapped, or `inflate_small` allowed it."""
        self._leaf = leaf
        self._inner = _size(shape[1:batch_dims])
        self._whole: NDArray[Any] | None = None

    @property
    def leaf(self) -> Leaf:
        return self._leaf

    @property
    def forward(self) -> bool:
        """Whether the payload is inflated on the way, so that elements are only read cheaply in ascending order."""
        return not self.keep

    def release(self) -> None:
        """Lets the system take back the pages that were read, so that resident memory stays bounded."""
        if self._whole is not None and self._leaf.nbytes >= _RELEASED and not self._leaf.compressed:
            give_back(self._leaf.raw())

    @property
    def data_end(self) -> int:
        """Elements up to the end of the last region of the file that has storage; behind it are holes, all zero."""
        from tdview.tree.fill_guess import data_end

        total = self._leaf.nbytes
        if not self._leaf.direct or not total or not self.elements:
            return self.elements
        return -(-data_end(self._leaf, total) * self.elements // total)

    def _view(self) -> NDArray[Any] | None:
        row = dtype_of(self.dtype)
        if self._whole is None and self.keep and self._leaf.direct and row is not None and row.numpy is not None:
            self._whole = self._leaf.numpy().reshape((self.elements, *self.feature))
        return self._whole

    def read(self, start: int, stop: int) -> NDArray[Any]:
        whole = self._view()
        if whole is not None:
            return whole[start:stop]
        first, last = start // max(1, self._inner), -(-stop // max(1, self._inner))
        part = self._leaf.numpy(slice(first, last)) if self.keep else self._leaf.rows(first, last)
        block = part.reshape(((last - first) * self._inner, *self.feature))
        skip = start - first * self._inner
        return block[skip : skip + stop - start]

    def take(self, index: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        whole = self._view()
        if whole is not None:
            found: NDArray[Any]
            if self._leaf.nbytes < _RELEASED or len(index) <= _SCATTERED:
                found = whole[index]
                return found
            found = np.empty((len(index), *self.feature), whole.dtype)
            for start in range(0, len(index), _SCATTERED):  # each row brings its neighbourhood into memory
                found[start : start + _SCATTERED] = whole[index[start : start + _SCATTERED]]
                self.release()
            return found
        if self.forward:
            return take_forward(self.read, index, nbytes(self))
        if not len(index):
            return self.read(0, 0)
        return np.concatenate([self.read(int(i), int(i) + 1) for i in index])


class JoinedColumn(_Sized):
    """A column over the rows of all components of a nested leaf behind one another."""

    __slots__ = ("_leaf", "_numpy", "dtype", "elements", "feature", "key")

    def __init__(self, key: Key, leaf: Leaf, numpy_dtype: str, feature: tuple[int, ...]) -> None:
        self.key = key
        self.dtype = leaf.dtype
        self.feature = feature
        self._leaf = leaf
        self._numpy = numpy_dtype
        self.elements = leaf.nbytes // max(1, nbytes(self))

    @property
    def forward(self) -> bool:
        """Whether the payload is inflated on the way, so that elements are only read cheaply in ascending order."""
        return self._leaf.compressed

    def read(self, start: int, stop: int) -> NDArray[Any]:
        import numpy as np

        data = self._leaf.octets(start * nbytes(self), stop * nbytes(self))
        return np.frombuffer(data, self._numpy).reshape((stop - start, *self.feature))

    def take(self, index: NDArray[Any]) -> NDArray[Any]:
        return take_forward(self.read, index, nbytes(self))


def take_forward(read: Callable[[int, int], NDArray[Any]], index: NDArray[Any], size: int) -> NDArray[Any]:
    """Elements of an index array, read in ascending order in blocks of 4 MB: ``[len(index), ...]``, a private copy.

    Args:
        read: gives the elements from a start to a stop.
        size: bytes of one element.
    """
    import numpy as np

    order = np.argsort(index, kind="stable")
    ascending = index[order]
    step = max(1, _BLOCK // max(1, size))
    nothing = read(0, 0)
    found = np.empty((len(index), *nothing.shape[1:]), nothing.dtype)
    at = 0
    while at < len(ascending):
        start = int(ascending[at])
        until = int(np.searchsorted(ascending, start + step))
        block = read(start, int(ascending[until - 1]) + 1)
        found[order[at:until]] = block[ascending[at:until] - start]
        at = until
    return found


def inflate_small(columns: Iterable[Column]) -> None:
    """Lets the smallest compressed leaves of a buffer stay inflated, as long as 128 MB hold them all."""
    left = _INFLATED
    waiting = (column for column in columns if isinstance(column, LeafColumn) and column.forward)
    for column in sorted(waiting, key=lambda column: column.leaf.nbytes):
        left -= column.leaf.nbytes
        column.keep = left >= 0


class GatherColumn(_Sized):
    """A column that shows another one through an index, as the folded `next` of a flat checkpoint needs."""

    __slots__ = ("_base", "_index", "dtype", "elements", "feature", "key")

    def __init__(self, key: Key, base: Column, index: NDArray[Any]) -> None:
        self.key = key
        self.dtype = base.dtype
        self.feature = base.feature
        self.elements = len(index)
        self._base = base
        self._index = index

    @property
    def forward(self) -> bool:
        """Whether the column behind it is only read cheaply in ascending order."""
        return self._base.forward

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self._base.take(self._index[start:stop])

    def take(self, index: NDArray[Any]) -> NDArray[Any]:
        return self._base.take(self._index[index])


def flat_rows(values: NDArray[Any]) -> NDArray[Any]:
    """Rows ``[n, ...]`` as ``[n, width]``, also where there are none; a view where it can be."""
    return values.reshape(len(values), _size(values.shape[1:]))


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """Rows as unsigned words ``[n, words]``, so that equality is equality of bytes (NaN equals NaN, 0 is not -0).

    A view where the array is contiguous, else a copy.
    """
    import numpy as np

    n = len(values)
    if not values.size:
        return np.zeros((n, 0), np.uint8)
    flat = np.ascontiguousarray(values).reshape(n, -1)
    row = flat.shape[1] * flat.dtype.itemsize
    size = next(s for s in (8, 4, 2, 1) if row % s == 0)
    return flat.view(f"<u{size}")


def equal_rows(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Which rows of two arrays ``[n, ...]`` of one dtype hold the same bytes: bool ``[n]``."""
    import numpy as np

    left, right = bits(a), bits(b)
    if left.dtype != right.dtype or left.shape != right.shape:
        left = np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8)
        right = np.ascontiguousarray(b).reshape(len(b), -1).view(np.uint8)
    words = left.shape[1]
    if words > 16:
        whole: NDArray[Any] = (left == right).all(axis=1)
        return whole
    same = np.ones(len(left), bool)
    for word in range(words):  # column by column: `all(axis=1)` over few columns costs five times as much
        same &= left[:, word] == right[:, word]
    return same

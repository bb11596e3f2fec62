"""This module knows values that are no tensors: one value for a whole batch, or one for each batch element.

It does not know how they are written.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch

from tdview.containers.collection import Collection
from tdview.containers.savable import Savable
from tdview.containers.shapes import Names, Op
from tdview.errors import ArgumentError, shown

__all__ = ["NonTensorBase", "NonTensorData", "NonTensorStack"]


class NonTensorBase(Savable, Collection):
    """What `NonTensorData` and `NonTensorStack` share."""

    _is_value: ClassVar[bool] = True
    _shared: bool = False
    """Whether the value is read from its file at each access, so that other processes' writes are seen."""

    def _reread(self) -> Any:
        """What the file says now."""
        from tdview.tree.scan import scan

        assert self._prefix is not None
        return scan(self._prefix).value

    @property
    def device(self) -> torch.device | None:
        """Non-tensor data has no device."""
        return None

    def _children(self) -> Iterator[Collection]:
        return iter(())

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Itself: it has neither a device nor a dtype."""
        return self

    def _compared(self, other: Any, how: Callable[[Any, Any], Any]) -> torch.Tensor:
        left = self._array()
        if isinstance(other, list) and isinstance(self, NonTensorStack):
            other = NonTensorStack.from_list(other, left.ndim)
        elif not isinstance(other, NonTensorBase):
            other = NonTensorData(other, batch_size=self.batch_size)
        right = other._array()
        if right.shape != left.shape:
            return torch.full(self.batch_size, how is operator.ne, dtype=torch.bool)
        flat = [_same(a, b) is (how is operator.eq) for a, b in zip(left.reshape(-1), right.reshape(-1), strict=True)]
        return torch.tensor(flat, dtype=torch.bool).reshape(self.batch_size)

    def __eq__(self, other: object) -> Any:
        """A bool tensor of the batch size."""
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    __hash__ = object.__hash__

    def _rewrite(self) -> None:
        """Writes a value that was changed to its file, where it is memory-mapped in one."""
        from tdview.containers.saving import rewrite_value

        if self._mapped and self._prefix is not None:
            shared, self._shared = self._shared, False  # what is written is here, not in the old file
            rewrite_value(self, self._prefix)
            self._shared = shared

    def to_tensordict(self) -> Self:
        """A copy: there is nothing to make dense."""
        return self.clone()

    @abstractmethod
    def _array(self) -> np.ndarray[Any, Any]:
        """The values as an object array of the batch size."""

    @abstractmethod
    def _with_batch(self, batch: torch.Size) -> Any:
        """The same values in a tensordict of another batch size."""

    def _with_rows(self, index: Any, value: Any) -> NonTensorBase:
        """The same values, those at `index` replaced by `value`; non-tensor data becomes a stack if they differ."""
        values = self._array().copy()
        places = torch.arange(values.size).reshape(values.shape)[index].reshape(-1).tolist()
        flat = values.reshape(-1)
        if isinstance(value, NonTensorStack):
            new = list(value._array().reshape(-1))
        else:
            new = [value.data if isinstance(value, NonTensorData) else value]
        for count, place in enumerate(places):
            flat[place] = new[count % len(new)]
        if isinstance(self, NonTensorData) and all(_same(item, self.data) for item in flat):
            return self
        return NonTensorStack._of(flat.reshape(values.shape))


def _same(left: Any, right: Any) -> bool:
    try:
        return bool(left == right)
    except (ValueError, RuntimeError, TypeError):  # arrays compare element by element, and some values not at all
        return repr(left) == repr(right)


class NonTensorData(NonTensorBase):
    """One value that is no tensor and holds for the whole batch.

    Args:
        data: any Python object. What JSON can encode is saved as JSON, anything else is pickled.
        batch_size: batch size of the tensordict that it belongs to.

    Spec: "Non-tensor data".

    Examples:
        >>> NonTensorData("hello").data
        'hello'
        >>> NonTensorData("a", batch_size=[2]).tolist()
        ['a', 'a']
    """

    def __init__(
        self, data: Any = None, batch_size: Any = (), device: Any = None, names: Any = None, *, metadata: Any = None
    ) -> None:
        del device, names  # accepted as by tensordict; the value has neither
        self._data = data.data if isinstance(data, NonTensorData) else data
        self._batch_size = torch.Size([batch_size] if isinstance(batch_size, int) else batch_size or ())
        self._metadata = metadata
        self._class_name = "NonTensorData"

    @property
    def data(self) -> Any:
        """The value."""
        return self._reread() if self._shared else self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, size: Any) -> None:
        self._batch_size = torch.Size(size)

    def _with_batch(self, batch: torch.Size) -> NonTensorData:
        out = NonTensorData(self.data, batch_size=batch, metadata=self._metadata)
        out._class_name, out._prefix = self._class_name, self._prefix
        return out

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> NonTensorData:
        out = self._with_batch(op(torch.zeros((), dtype=torch.bool).expand(self._batch_size), ndim).shape)
        out._prefix = None  # a change of some rows is none of the saved value
        return out

    def _array(self) -> np.ndarray[Any, Any]:
        out = np.empty(self._batch_size, dtype=object)
        flat = out.reshape(-1)
        for place in range(flat.size):
            flat[place] = self.data
        return out

    def _plain(self) -> Any:
        return self.data

    def _summary(self) -> str:
        return type(self.data).__name__

    def tolist(self) -> Any:
        """The value, in nested lists of the batch size."""
        out = self.data
        for size in reversed(self._batch_size):
            out = [out] * size
        return out

    def clone(self, recurse: bool = True) -> NonTensorData:
        """A new object with the same value."""
        out = self._with_batch(self._batch_size)
        out._prefix = None
        return out

    def update_(self, other: Any) -> NonTensorData:
        """Replaces the value; one that is memory-mapped is rewritten on disk at once."""
        self._data = other._plain() if isinstance(other, NonTensorBase) else other
        self._rewrite()
        return self

    def update(self, other: Any) -> NonTensorData:
        """The same as `update_`."""
        return self.update_(other)

    def __repr__(self) -> str:
        return f"{self._class_name}(data={shown(self.data, 200)}, batch_size={list(self._batch_size)})"


class NonTensorStack(NonTensorBase):
    """One value that is no tensor for each batch element.

    Args:
        values: the values, one for each row; `NonTensorData` and nested stacks as well.
        stack_dim: where a new dimension of stacked `NonTensorStack`s goes.

    Spec: "Non-tensor data", last paragraph.

    Examples:
        >>> NonTensorStack("a", "b").tolist()
        ['a', 'b']
        >>> NonTensorStack.from_list([["a", "b"], ["c", "d"]]).batch_size
        torch.Size([2, 2])
    """

    _values: np.ndarray[Any, Any]
    stack_dim: int = 0

    def __init__(self, *values: Any, stack_dim: int = 0) -> None:
        items = [value if isinstance(value, NonTensorBase) else NonTensorData(value) for value in values]
        shapes = {item.batch_size for item in items}
        if len(shapes) > 1:
            raise ArgumentError(f"stack: expected one batch size, got {sorted(map(list, shapes))}")
        shape = next(iter(shapes), torch.Size())
        joined = np.empty((len(items), *shape), dtype=object)
        for place, item in enumerate(items):
            joined[(place, ...) if shape else place] = item._array() if shape else item._array()[()]
        self._values = np.moveaxis(joined, 0, stack_dim)
        self.stack_dim = stack_dim

    @classmethod
    def _of(cls, values: np.ndarray[Any, Any], stack_dim: int = 0) -> NonTensorStack:
        out = object.__new__(NonTensorStack)
        out._values, out.stack_dim = values, stack_dim
        return out

    @classmethod
    def from_list(cls, values: Sequence[Any], ndim: int | None = None) -> NonTensorStack:
        """A stack of nested lists: `ndim` dimensions deep, or as deep as they are lists of equal length."""
        shape, level = [len(values)], list(values)
        while level and (ndim is None or len(shape) < ndim):
            if not all(isinstance(item, list) for item in level) or len({len(item) for item in level}) > 1:
                break
            shape.append(len(level[0]))
            level = [inner for item in level for inner in item]
        out = np.empty(shape, dtype=object)
        for place in np.ndindex(*shape):
            item: Any = values
            for part in place:
                item = item[part]
            out[place] = item
        return cls._of(out)

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions."""
        return torch.Size(self._values.shape)

    def _with_batch(self, batch: torch.Size) -> NonTensorStack:
        if self.batch_size[: len(batch)] != batch:
            raise ArgumentError(f"expected a batch size that starts with {list(batch)}, got {list(self.batch_size)}")
        return self

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> NonTensorBase:
        # Whatever `op` does, it does to the numbers of the elements, and so tells where each value goes.
        places = op(torch.arange(self._values.size).reshape(self._values.shape), ndim)
        flat = self._values.reshape(-1)
        if places.ndim == 0:
            return NonTensorData(flat[int(places)])
        out = np.empty(places.shape, dtype=object)
        out.reshape(-1)[:] = flat[places.reshape(-1).numpy()]
        return NonTensorStack._of(out)

    def _array(self) -> np.ndarray[Any, Any]:
        if self._shared:
            self._values = NonTensorStack.from_list(self._reread(), self._values.ndim)._values
        return self._values

    def _plain(self) -> Any:
        return self.tolist()

    def _summary(self) -> str:
        return "NonTensorStack"

    @property
    def data(self) -> Any:
        """The value, where all are the same.

        Raises:
            AttributeError: they differ.
        """
        flat = self._array().reshape(-1)
        if not flat.size or not all(_same(item, flat[0]) for item in flat):
            raise AttributeError("the values of a NonTensorStack differ; use tolist()")
        return flat[0]

    def tolist(self) -> list[Any]:
        """The values as nested lists in row-major order of the batch."""
        return _nested(self._array())

    def clone(self, recurse: bool = True) -> NonTensorStack:
        """A copy of the stack; the values themselves are shared."""
        return NonTensorStack._of(self._values.copy(), self.stack_dim)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Replaces the values at an index; a stack that is memory-mapped is rewritten on disk at once."""
        self._values = self._with_rows(index, value)._array()
        self._rewrite()

    def __repr__(self) -> str:
        return f"NonTensorStack({shown(self.tolist(), 200)}, batch_size={list(self.batch_size)})"


def _nested(values: np.ndarray[Any, Any]) -> list[Any]:
    # ndarray.tolist() would also open lists that are values themselves.
    return [item if values.ndim == 1 else _nested(item) for item in values]

"""This module knows tensordicts that are a lazy view of another one: an index, or a change of its batch dimensions.

It does not know how the view is written or read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from tdview.containers.base import TensorDictBase, is_level
from tdview.containers.collection import Collection
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import cloned
from tdview.containers.non_tensor import NonTensorBase
from tdview.containers.savable import Savable
from tdview.containers.shapes import (
    Names,
    Op,
    batch_after,
    dim_of,
    full_index,
    indexed,
    names_after_index,
    permuted,
    reshaped,
    squeezed,
    transposed,
    unsqueezed,
    viewed,
)
from tdview.containers.tensordict import TensorDict, applied
from tdview.containers.values import to_entry
from tdview.errors import ArgumentError, shown
from tdview.format.view_index import dump_index

__all__ = ["VIEW_CLASSES", "LazyView", "SubTensorDict", "ViewName"]

ViewName = Literal["permute", "transpose", "view", "unsqueeze", "squeeze"]

VIEW_CLASSES: dict[str, str] = {
    "permute": "_PermutedTensorDict",
    "transpose": "_TransposedTensorDict",
    "view": "_ViewedTensorDict",
    "unsqueeze": "_UnsqueezedTensorDict",
    "squeeze": "_SqueezedTensorDict",
}
"""The class under which a lazy view of each operation is saved. Spec: "Lazy stacks and views"."""


class _View(Savable, TensorDictBase):
    """Reads and writes through to a source. Keys and values are those of the source, moved by one operation."""

    _source: Any
    _op: Op
    _class_name: str

    def __init__(self, source: Any) -> None:
        if not isinstance(source, TensorDictBase):
            source = getattr(source, "_tensordict", source)
        if not isinstance(source, TensorDictBase):
            raise ArgumentError(f"view: expected a tensordict, got {type(source).__name__}")
        self._source = source

    @property
    def source(self) -> TensorDictBase:
        """The tensordict that this is a view of."""
        return self._source  # type: ignore[no-any-return]

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions after the operation."""
        return batch_after(self._op, self._source.batch_size)

    @property
    def device(self) -> torch.device | None:
        """Device of the source."""
        return self._source.device  # type: ignore[no-any-return]

    def _stacked(self) -> Any:
        """Of a lazy stack, the stack after the operation: its members may have no stacked tensors. Else None."""
        if isinstance(self._source, LazyStackedTensorDict):
            return self._source._rearranged(self._op, self._source.ndim, self._moved_names)
        return None

    def _keys(self) -> Iterator[str]:
        stacked = self._stacked()
        return (self._source if stacked is None else stacked)._keys()  # type: ignore[no-any-return]

    def _get(self, key: str) -> Any:
        stacked = self._stacked()
        if stacked is not None:
            return stacked._get(key)
        return applied(self._op, self._source._get(key), self._source.ndim, self._moved_names)

    def _peek(self, key: str) -> Any:
        """The entry `key`, for display."""
        stacked = self._stacked()
        return self._get(key) if stacked is None else stacked._peek(key)

    def _type(self, key: str) -> type:
        stacked = self._stacked()
        return (self._source if stacked is None else stacked)._type(key)  # type: ignore[no-any-return]

    @abstractmethod
    def _moved_names(self, names: Names) -> Names:
        """Dim names of the source after the operation."""

    @property
    def names(self) -> Names:
        """Names of the source's dimensions, moved along."""
        return self._moved_names(self._source.names)

    def _delete(self, key: str) -> None:
        self._source.del_(key)

    def _converted(self, value: Any, key: str) -> Any:
        return to_entry(value, key, self.batch_size, self.device)

    def _children(self) -> Iterator[Collection]:
        yield self._source

    def _empty(self) -> TensorDict:
        return TensorDict._made({}, self.batch_size, self.device, list(self.names))

    def _indexed(self, index: Any) -> Any:
        stacked = self._stacked()
        return super()._indexed(index) if stacked is None else self._handed_on(stacked._indexed(index))

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> Any:
        if (stacked := self._stacked()) is not None:
            return stacked._rearranged(op, ndim, names)
        out = self._empty()
        for key in self._keys():
            out._entries[key] = self._get(key)
        return out._rearranged(op, ndim, names)

    def to_tensordict(self) -> TensorDict:
        """A dense `TensorDict` of the viewed elements; copies."""
        out = self._empty()
        for key in self._keys():
            value = self._get(key)
            if isinstance(value, Tensor):
                out._entries[key] = cloned(value)
            else:
                out._entries[key] = value.to_tensordict() if is_level(value) else value.clone()
        return out

    def clone(self, recurse: bool = True) -> Any:
        """A dense copy; ``recurse=False`` gives the same view of a shallow copy."""
        return self.to_tensordict() if recurse else self._of_source(self._source.clone(recurse=False))

    @abstractmethod
    def _of_source(self, source: Any) -> Any:
        """The same view of another source."""


class SubTensorDict(_View):
    """The rows of a tensordict that an index names, read and written through to it.

    Args:
        source: the tensordict.
        index: index of its batch dimensions.

    Saved with the whole source; an archive holds the rows alone.

    Spec: "Lazy stacks and views".

    Examples:
        >>> import torch
        >>> td = TensorDict(a=torch.zeros(4), batch_size=[4])
        >>> part = SubTensorDict(td, slice(1, 3))
        >>> _ = part.set_("a", torch.ones(2))
        >>> td["a"].tolist()
        [0.0, 1.0, 1.0, 0.0]
    """

    _class_name = "_SubTensorDict"

    def __init__(self, source: Any, index: Any, *, saved_index: Any = None) -> None:
        super().__init__(source)
        self._index = full_index(index, self._source.ndim)
        self._saved = dump_index(self._index) if saved_index is None else saved_index
        self._op = indexed(self._index)
        batch_after(self._op, self._source.batch_size)

    @property
    def index(self) -> tuple[Any, ...]:
        """The index, without ellipsis."""
        return self._index

    def _stacked(self) -> Any:
        return self._source._indexed(self._index) if isinstance(self._source, LazyStackedTensorDict) else None

    def _moved_names(self, names: Names) -> Names:
        return names_after_index(names, self._index)

    def _of_source(self, source: Any) -> SubTensorDict:
        return SubTensorDict(source, self._index, saved_index=self._saved)

    def _set(self, key: str, value: Any) -> None:
        if key not in self._source:
            self._source.set(key, _room_for(value, self._source.batch_size, self.ndim))
        self._write(key, value)

    def _write(self, key: str, value: Any) -> None:
        whole = self._source._get(key)
        if isinstance(whole, NonTensorBase):
            self._source._overwrite(key, whole._with_rows(self._index, value))
        else:
            whole[self._index] = value

    def set_(self, key: Any, item: Any, *, non_blocking: bool = False) -> SubTensorDict:
        """Writes an existing entry's rows in the source, in place."""
        del non_blocking
        self._found(key)
        if isinstance(key, tuple) and len(key) > 1:
            SubTensorDict(self._source._found(key[:-1]), self._index).set_(key[-1], item)
        else:
            self._write(key[0] if isinstance(key, tuple) else key, item)
        return self


def _room_for(value: Any, batch: torch.Size, ndim: int) -> Any:
    """Zeros for the whole source where an entry is new to it."""
    if isinstance(value, Tensor):
        return value.new_zeros((*batch, *value.shape[ndim:]))
    if isinstance(value, NonTensorBase):
        return value._with_batch(batch) if not hasattr(value, "stack_dim") else [None] * batch[0]
    out = TensorDict(batch_size=batch)
    for key, item in value.items():
        out.set(key, _room_for(item, batch, ndim))
    return out


class LazyView(_View):
    """A tensordict whose batch dimensions are viewed in another way, read and written through to it.

    Args:
        source: the tensordict.
        op: ``"permute"``, ``"transpose"``, ``"view"``, ``"unsqueeze"`` or ``"squeeze"``.
        kwargs: arguments of the operation: ``dims``; ``dim0`` and ``dim1``; ``size``; ``dim``.

    Spec: "Lazy stacks and views".

    Examples:
        >>> import torch
        >>> td = TensorDict(a=torch.zeros(3, 2, 5), batch_size=[3, 2])
        >>> view = LazyView(td, "permute", {"dims": [1, 0]})
        >>> view.batch_size, view["a"].shape
        (torch.Size([2, 3]), torch.Size([2, 3, 5]))
    """

    def __init__(
        self, source: Any, op: str, kwargs: Mapping[str, Any], *, saved: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(source)
        if op not in VIEW_CLASSES:
            raise ArgumentError(f"view: expected one of {sorted(VIEW_CLASSES)}, got {shown(op)}")
        self.op: str = op
        self.kwargs = dict(kwargs)
        self._class_name = VIEW_CLASSES[op]
        self._op, self._order = _operation(op, self.kwargs, self._source)
        self._saved = dict(saved) if saved is not None else self._fields()

    def _moved_names(self, names: Names) -> Names:
        return [None if place is None else names[place] for place in self._order]

    def _of_source(self, source: Any) -> LazyView:
        return LazyView(source, self.op, self.kwargs, saved=self._saved)

    def _inverse(self) -> tuple[str, dict[str, Any]]:
        batch = list(self._source.batch_size)
        if self.op == "permute":
            dims = [dim % len(batch) for dim in self.kwargs["dims"]]
            return "permute", {"dims": [dims.index(place) for place in range(len(dims))]}
        if self.op == "transpose":
            return "transpose", dict(self.kwargs)
        if self.op == "view":
            return "view", {"size": batch}
        return ("squeeze" if self.op == "unsqueeze" else "unsqueeze"), dict(self.kwargs)

    def _fields(self) -> dict[str, Any]:
        """Operation and inverse as meta.json records them."""
        inverse, inverse_kwargs = self._inverse()
        return {
            "custom_op": self.op,
            "inv_op": inverse,
            "custom_op_kwargs": self.kwargs,
            "inv_op_kwargs": inverse_kwargs,
        }

    def _set(self, key: str, value: Any) -> None:
        inverse, kwargs = self._inverse()
        back = {
            "permute": lambda: permuted(kwargs["dims"]),
            "transpose": lambda: transposed(*_pair(kwargs, self.ndim)),
            "view": lambda: reshaped(kwargs["size"]),
            "squeeze": lambda: squeezed([kwargs["dim"] % self.ndim]),
            "unsqueeze": lambda: unsqueezed(kwargs["dim"] % self._source.ndim),
        }[inverse]()
        self._source.set(key, applied(back, value, self.ndim, lambda names: self._source.names))


def _pair(kwargs: Mapping[str, Any], ndim: int) -> tuple[int, int]:
    return dim_of(kwargs["dim0"], ndim, "transpose"), dim_of(kwargs["dim1"], ndim, "transpose")


def _operation(op: str, kwargs: Mapping[str, Any], source: TensorDictBase) -> tuple[Op, list[int | None]]:
    """The operation, and for each new dimension the old one that gives it its name."""
    ndim = source.ndim
    order: list[int | None] = list(range(ndim))
    if op == "permute":
        dims = [dim_of(dim, ndim, op) for dim in kwargs["dims"]]
        if sorted(dims) != list(range(ndim)):
            raise ArgumentError(f"permute: expected each of {ndim} dimensions once, got {shown(kwargs['dims'])}")
        return permuted(dims), list(dims)
    if op == "transpose":
        left, right = _pair(kwargs, ndim)
        order[left], order[right] = right, left
        return transposed(left, right), order
    if op == "view":
        size = batch_after(viewed(kwargs["size"]), source.batch_size)
        return viewed(size), [None] * len(size)
    if op == "unsqueeze":
        place = dim_of(kwargs["dim"], ndim + 1, op)
        return unsqueezed(place), [*order[:place], None, *order[place:]]
    place = dim_of(kwargs["dim"], ndim, op)
    if source.batch_size[place] != 1:
        return (lambda tensor, _: tensor), order
    return squeezed([place]), order[:place] + order[place + 1 :]

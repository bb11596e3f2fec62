"""This module knows the tensordict that keeps its entries in memory: a dict, a batch size, names and a device.

It does not know files, apart from leaves that are mapped when they are first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from tdview.containers.base import TensorDictBase
from tdview.containers.collection import Collection
from tdview.containers.keys import unravel
from tdview.containers.memory import CARRIERS, cloned, view_of
from tdview.containers.pending import Pending
from tdview.containers.savable import Savable
from tdview.containers.shapes import Names, Op, batch_after
from tdview.containers.values import check_batch, foreign, to_entry
from tdview.errors import ArgumentError

__all__ = ["TensorDict", "applied"]


def applied(op: Op, value: Any, ndim: int, names: Callable[[Names], Names]) -> Any:
    """A tensor or collection after `op` along its first `ndim` batch dimensions."""
    if not isinstance(value, Tensor):
        return value._rearranged(op, ndim, names)
    try:
        return view_of(op(value, ndim), value)
    except NotImplementedError:  # torch cannot index some dtypes, but it can index ints of their size
        carrier = CARRIERS.get(value.dtype.itemsize)
        if carrier is None or value.is_nested:
            raise
        return op(value.view(carrier), ndim).view(value.dtype)


class TensorDict(Savable, TensorDictBase):
    """A dictionary of tensors, nested tensordicts and non-tensor values that share their leading dimensions.

    Args:
        source: mapping from keys or nested keys to values, or another tensordict; keywords give entries as well.
        batch_size: leading sizes that every entry starts with, ``[]`` by default.
        device: device that every tensor is moved to; None leaves each where it is.
        names: name of each batch dimension, None where it has none.
        lock: whether the tensordict is locked at once.

    Raises:
        RuntimeError: a value does not start with the batch size.
        KeyError: a key is neither a string nor a tuple of strings.

    Tensors are kept, not copied. A dict becomes a nested tensordict of the same batch size, numbers and numeric
    arrays become tensors, anything else is stored as non-tensor data.

    Spec: "A saved tensordict".

    Examples:
        >>> import torch
        >>> td = TensorDict(obs=torch.zeros(3, 4), next={"reward": torch.ones(3, 1)}, batch_size=[3])
        >>> td["next", "reward"].shape, td[0].batch_size
        (torch.Size([3, 1]), torch.Size([]))
        >>> sorted(td.keys(include_nested=True, leaves_only=True), key=str)
        [('next', 'reward'), 'obs']
    """

    def __init__(
        self,
        source: Any = None,
        batch_size: Any = None,
        device: Any = None,
        names: Sequence[str | None] | None = None,
        lock: bool = False,
        **kwargs: Any,
    ) -> None:
        if source is not None and not isinstance(source, dict | TensorDictBase):
            adapted = foreign(source)  # tensordict's own count as mappings as well
            source = source if adapted is None else adapted
            if not isinstance(source, Mapping | TensorDictBase):
                raise ArgumentError(f"source: expected a mapping or a tensordict, got {type(source).__name__}")
        if batch_size is None:
            batch_size = source.batch_size if isinstance(source, TensorDictBase) else ()
        self._batch_size = torch.Size([batch_size] if isinstance(batch_size, int) else batch_size)
        self._device = None if device is None else torch.device(device)
        self._names: Names | None = None
        self._entries: dict[str, Any] = {}
        if names is not None:
            self.names = list(names)
        for key, value in [*(source.items() if source is not None else ()), *kwargs.items()]:
            self.set(unravel(key), value)
        if lock:
            self.lock_()

    @classmethod
    def _made(
        cls, entries: dict[str, Any], batch: torch.Size, device: torch.device | None, names: Names | None
    ) -> TensorDict:
        """A tensordict of entries that are known to be right."""
        out = object.__new__(TensorDict)
        out._batch_size = batch
        out._device = device
        out._names = names
        out._entries = entries
        return out

    @classmethod
    def from_dict(cls, input_dict: Mapping[str, Any], batch_size: Any = None, device: Any = None) -> TensorDict:
        """A tensordict of nested dicts."""
        return cls(input_dict, batch_size=batch_size, device=device)

    # the batch

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions; can be set to what every entry starts with."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, size: Any) -> None:
        new = torch.Size(size)
        for key in self._entries:
            value = self._get(key)
            if isinstance(value, Tensor):
                check_batch(value, key, new)
            elif value._is_value:
                self._entries[key] = value._with_batch(new)
            elif value.batch_size[: len(new)] != new:
                value.batch_size = new
        self._batch_size = new
        if self._names is not None:
            self._names = (self._names + [None] * len(new))[: len(new)]

    @property
    def names(self) -> Names:
        """Name of each batch dimension, None where it has none; setting them names nested levels as well."""
        return list(self._names) if self._names is not None else [None] * self.ndim

    @names.setter
    def names(self, names: Sequence[str | None] | None) -> None:
        new = None if names is None else list(names)
        if new is not None:
            if len(new) != self.ndim:
                raise ArgumentError(f"names: expected one for each of {self.ndim} batch dimensions, got {new}")
            given = [name for name in new if name is not None]
            if len(set(given)) != len(given):
                raise ArgumentError(f"names: expected different names, got {new}")
        self._names = new if new is not None and any(name is not None for name in new) else None
        for value in self._entries.values():
            self._name_child(value)

    def _name_child(self, value: Any) -> None:
        if self._names is None:
            return
        value = getattr(value, "_tensordict", value)
        if isinstance(value, TensorDict) or hasattr(value, "tensordicts"):
            value.names = [*self._names, *value.names[self.ndim :]]

    def refine_names(self, *names: str | None) -> Self:
        """Sets the dim names."""
        self.names = list(names)
        return self

    @property
    def device(self) -> torch.device | None:
        """Device of the leaves, None if it is not fixed."""
        return self._device

    def _to_device(self, device: torch.device) -> None:
        self._device = device

    # entries

    def _keys(self) -> Iterator[str]:
        return iter(self._entries)

    def _get(self, key: str) -> Any:
        value = self._entries[key]
        if isinstance(value, Pending):
            value = self._entries[key] = value.open()
        return value

    def _peek(self, key: str) -> Any:
        """The entry `key` without mapping it: a leaf may still be `Pending`."""
        return self._entries[key]

    def _type(self, key: str) -> type:
        value = self._entries[key]
        return Tensor if isinstance(value, Pending) else type(value)

    def _set(self, key: str, value: Any) -> None:
        self._entries[key] = value
        self._name_child(value)
        if self._locked and isinstance(value, Collection):
            value._held = True
            value.lock_()

    def _delete(self, key: str) -> None:
        del self._entries[key]

    def _converted(self, value: Any, key: str) -> Any:
        return to_entry(value, key, self._batch_size, self._device)

    def _children(self) -> Iterator[Collection]:
        return (value for value in list(self._entries.values()) if isinstance(value, Collection))

    def _empty(self) -> TensorDict:
        return TensorDict._made({}, self._batch_size, self._device, None if self._names is None else list(self._names))

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> TensorDict:
        entries = {key: applied(op, self._get(key), ndim, names) for key in self._entries}
        batch = self._batch_after(op, ndim, entries)
        new = None if self._names is None else [*names(self._names[:ndim]), *self._names[ndim:]]
        return TensorDict._made(entries, batch, self._device, new)

    def _batch_after(self, op: Op, ndim: int, entries: dict[str, Any]) -> torch.Size:
        """The batch size that `entries`, made by `op`, have: that of any tensor, or else what `op` makes of none."""
        inner = len(self._batch_size)
        for key, value in self._entries.items():
            if isinstance(value, Tensor) and not value.is_nested:
                shape: torch.Size = entries[key].shape
                return shape[: len(shape) + inner - value.ndim]
        return batch_after(op, self._batch_size) if ndim == inner else _nested_batch(op, ndim, self._batch_size)

    def to_tensordict(self) -> TensorDict:
        """A dense `TensorDict` of copies."""
        out = self._empty()
        for key in self._keys():
            value = self._get(key)
            if isinstance(value, Tensor):
                out._entries[key] = cloned(value)
            else:
                out._entries[key] = value.clone() if value._is_value else value.to_tensordict()
        return out

    def auto_batch_size_(self, batch_dims: int | None = None) -> Self:
        """Sets the largest batch size that every entry starts with, of at most `batch_dims` dimensions."""
        shapes = [value.shape for value in self.values() if isinstance(value, Tensor | TensorDictBase)]
        size: list[int] = []
        for column in zip(*shapes, strict=False):
            if len(set(column)) > 1 or (batch_dims is not None and len(size) == batch_dims):
                break
            size.append(column[0])
        self.batch_size = torch.Size(size)
        return self


def _nested_batch(op: Op, ndim: int, batch: torch.Size) -> torch.Size:
    return op(torch.zeros((), dtype=torch.bool).expand(batch), ndim).shape

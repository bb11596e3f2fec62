"""This module knows tensordicts that are stacked without being copied: each keeps its own shapes and keys.

It does not know files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tdview.containers.base import TensorDictBase, is_level
from tdview.containers.collection import Collection
from tdview.containers.non_tensor import NonTensorBase, NonTensorStack
from tdview.containers.pending import Pending
from tdview.containers.savable import Savable
from tdview.containers.shapes import Names, Op, full_index, names_after_index
from tdview.containers.tensordict import TensorDict
from tdview.containers.values import to_entry
from tdview.errors import ArgumentError, NotSupportedError, shown

__all__ = ["LazyStackedTensorDict", "stacked_entry"]


def stacked_entry(values: Sequence[Any], dim: int, key: str = "") -> Any:
    """Entries of the members as one entry: stacked tensors (copied), a lazy stack of levels, or a `NonTensorStack`.

    Raises:
        ArgumentError: the shapes differ, so that only the members one by one can be read.
    """
    if all(isinstance(value, Tensor) for value in values):
        shapes = {tuple(value.shape) for value in values if not value.is_nested}
        if len(shapes) != 1 or any(value.is_nested for value in values):
            raise ArgumentError(
                f"entry {shown(key)}: the members have the shapes {sorted(map(list, shapes))}, so there is no stacked"
                " tensor; read them one by one from td.tensordicts"
            )
        return torch.stack(list(values), dim)
    if all(isinstance(value, NonTensorBase) for value in values):
        return NonTensorStack(*values, stack_dim=dim)
    if all(isinstance(value, TensorDictBase) for value in values):
        return LazyStackedTensorDict(*values, stack_dim=dim)
    if all(is_level(value) for value in values):
        inner = LazyStackedTensorDict(*(value._tensordict for value in values), stack_dim=dim)
        return values[0]._with_tensordict(inner)
    raise ArgumentError(f"entry {shown(key)}: the members hold different kinds of values")


class LazyStackedTensorDict(Savable, TensorDictBase):
    """Tensordicts stacked along a batch dimension without copying; their shapes and keys may differ.

    Args:
        tensordicts: the members, of one batch size; they are kept, not copied.
        stack_dim: where the new batch dimension goes.
        stack_dim_name: its name.

    Reading an entry stacks the members' tensors (a copy); keys are those that all members have.

    Spec: "Lazy stacks and views".

    Examples:
        >>> import torch
        >>> from tdview.containers.tensordict import TensorDict
        >>> td = LazyStackedTensorDict(TensorDict(a=torch.zeros(2)), TensorDict(a=torch.ones(3)))
        >>> td.batch_size, td[1]["a"].shape
        (torch.Size([2]), torch.Size([3]))
    """

    def __init__(self, *tensordicts: Any, stack_dim: int = 0, stack_dim_name: str | None = None) -> None:
        members = [getattr(member, "_tensordict", member) for member in tensordicts]
        if any(not isinstance(member, TensorDictBase) for member in members):
            raise ArgumentError("stack: expected tensordicts or tensorclasses")
        shapes = {member.batch_size for member in members}
        if len(shapes) > 1:
            raise ArgumentError(f"stack: expected one batch size, got {sorted(map(list, shapes))}")
        self._members: list[TensorDictBase] = list(members)
        ndim = len(next(iter(shapes))) if shapes else 0
        self.stack_dim = stack_dim % (ndim + 1) if -ndim - 1 <= stack_dim <= ndim else stack_dim
        if self.stack_dim > ndim or self.stack_dim < 0:
            raise IndexError(f"stack: dimension {stack_dim} is outside the batch dimensions")
        self._stack_name = stack_dim_name

    @property
    def tensordicts(self) -> list[TensorDictBase]:
        """The members, in order."""
        return self._members

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions."""
        size = list(self._members[0].batch_size) if self._members else []
        size.insert(self.stack_dim, len(self._members))
        return torch.Size(size)

    @batch_size.setter
    def batch_size(self, size: Any) -> None:
        new = list(size)
        if len(new) <= self.stack_dim or new[self.stack_dim] != len(self._members):
            raise ArgumentError(f"batch size {new}: dimension {self.stack_dim} has {len(self._members)} members")
        del new[self.stack_dim]
        for member in self._members:
            member.batch_size = torch.Size(new)  # type: ignore[misc]

    @property
    def names(self) -> Names:
        """Name of each batch dimension, None where it has none."""
        names = list(self._members[0].names) if self._members else []
        names.insert(self.stack_dim, self._stack_name)
        return names

    @names.setter
    def names(self, names: Sequence[str | None]) -> None:
        rest = list(names)
        self._stack_name = rest.pop(self.stack_dim)
        for member in self._members:
            member.names = rest  # type: ignore[misc]

    @property
    def device(self) -> torch.device | None:
        """Device of the members, None if it is not fixed or they differ."""
        devices = {member.device for member in self._members}
        return devices.pop() if len(devices) == 1 else None

    def _to_device(self, device: torch.device) -> None:
        for member in self._members:
            member._to_device(device)  # type: ignore[attr-defined]

    # entries

    def _keys(self) -> Iterator[str]:
        if not self._members:
            return iter(())
        common = set(self._members[0]._keys()).intersection(*(member._keys() for member in self._members[1:]))
        return (key for key in list(self._members[0]._keys()) if key in common)

    def _get(self, key: str) -> Any:
        if not self._members:
            raise KeyError(key)
        return stacked_entry([member._get(key) for member in self._members], self.stack_dim, key)

    def _peek(self, key: str) -> Any:
        """The entry `key` for display: without stacking, and with -1 for sizes that differ."""
        found = [member._peek(key) for member in self._members]  # type: ignore[attr-defined]
        if not all(isinstance(value, Tensor | Pending) for value in found):
            return self._get(key)
        shapes = [list(value.shape) for value in found]
        if len({len(shape) for shape in shapes}) != 1:
            return found[0]
        shape = [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True)]
        shape.insert(self.stack_dim, len(found))
        return Pending("", found[0].dtype, tuple(shape), None)

    def _type(self, key: str) -> type:
        kinds = [member._type(key) for member in self._members]
        if all(issubclass(kind, Tensor) for kind in kinds):
            return Tensor
        return type(self._get(key))

    def get_nestedtensor(self, key: str) -> Tensor:
        """Tensors of different shapes as one nested tensor; copies."""
        return torch.nested.nested_tensor([member._get(key) for member in self._members])

    def _parts(self, value: Any) -> Sequence[Any]:
        return value.unbind(self.stack_dim)  # type: ignore[no-any-return]

    def _set(self, key: str, value: Any) -> None:
        for member, part in zip(self._members, self._parts(value), strict=True):
            member._set(key, part)

    def set_(self, key: Any, item: Any, *, non_blocking: bool = False) -> LazyStackedTensorDict:
        """Writes an existing entry of every member in place."""
        value = item if isinstance(item, Tensor | Collection) else torch.as_tensor(item)
        if isinstance(value, Tensor) and value.ndim <= self.stack_dim:
            value = value.expand(self.batch_size)
        for member, part in zip(self._members, self._parts(value), strict=True):
            member.set_(key, part)
        return self

    def update_(self, other: Any, clone: bool = False) -> LazyStackedTensorDict:
        """Writes every entry of `other` in place; it must exist in every member."""
        if isinstance(other, Collection):
            for member, part in zip(self._members, other.unbind(self.stack_dim), strict=True):
                member.update_(part)
            return self
        super().update_(other)
        return self

    def _delete(self, key: str) -> None:
        for member in self._members:
            member._delete(key)

    def _converted(self, value: Any, key: str) -> Any:
        return to_entry(value, key, self.batch_size, self.device)

    def _children(self) -> Iterator[Collection]:
        return iter(self._members)

    def _empty(self) -> Any:
        return TensorDict._made({}, self.batch_size, self.device, list(self.names))

    def _each(self, change: Callable[[TensorDictBase], Any]) -> LazyStackedTensorDict:
        out = LazyStackedTensorDict(*map(change, self._members), stack_dim=self.stack_dim)
        out._stack_name = self._stack_name
        return out

    def clone(self, recurse: bool = True) -> LazyStackedTensorDict:
        """A lazy stack of copies; ``recurse=False`` shares the tensors."""
        return self._each(lambda member: member.clone(recurse))

    def to(self, *args: Any, **kwargs: Any) -> LazyStackedTensorDict:
        """On another device or of another dtype."""
        return self._each(lambda member: member.to(*args, **kwargs))

    def apply(self, fn: Callable[..., Any], *others: Any, batch_size: Sequence[int] | None = None) -> Any:
        """A lazy stack of `fn` of every member's tensors."""
        parts = [other.unbind(self.stack_dim) for other in others]
        return LazyStackedTensorDict(
            *(member.apply(fn, *(part[i] for part in parts)) for i, member in enumerate(self._members)),
            stack_dim=self.stack_dim,
            stack_dim_name=self._stack_name,
        )

    def _filtered(self, keep: Any, whole: Any, inplace: bool) -> Any:
        out = self._each(lambda member: member._filtered(keep, whole, inplace))
        return self if inplace else out

    def is_empty(self) -> bool:
        """Whether no member has an entry."""
        return all(member.is_empty() for member in self._members)

    # shapes

    def _indexed(self, index: Any) -> Any:
        whole = full_index(index, self.ndim)
        whole += (slice(None),) * (self.ndim - len([item for item in whole if item is not None]))
        at = self._place_of_stack_dim(whole)
        if at is None:
            return self._handed_on(self._dense_or_view(whole))
        item, rest = whole[at], whole[:at] + whole[at + 1 :]
        if isinstance(item, int) or (isinstance(item, Tensor) and item.ndim == 0 and item.dtype != torch.bool):
            row = int(item)
            if not -len(self._members) <= row < len(self._members):
                raise IndexError(f"index {row} is outside the {len(self._members)} members of the stack")
            member = self._members[row]
            return self._handed_on(member if _is_whole(rest) else member[rest])
        chosen = self._chosen(item)
        members = [member if _is_whole(rest) else member[rest] for member in chosen]
        names = names_after_index(list(range(self.ndim)), whole)  # type: ignore[arg-type]
        out = LazyStackedTensorDict(*members, stack_dim=names.index(self.stack_dim), stack_dim_name=self._stack_name)  # type: ignore[arg-type]
        return self._handed_on(out)

    def _place_of_stack_dim(self, index: tuple[Any, ...]) -> int | None:
        """Where an index addresses the stack dimension by an item of its own; None where it is not that simple."""
        place, tensors = 0, 0
        found = None
        for at, item in enumerate(index):
            if isinstance(item, Tensor) and item.ndim:
                tensors += 1
                if item.ndim > 1:
                    return None
            if item is None:
                continue
            if place == self.stack_dim:
                found = at
            place += 1
        return found if tensors <= 1 else None

    def _chosen(self, item: Any) -> list[TensorDictBase]:
        if isinstance(item, slice):
            return self._members[item]
        rows = torch.arange(len(self._members))[item]
        return [self._members[row] for row in rows.tolist()]

    def _dense_or_view(self, index: tuple[Any, ...]) -> Any:
        return self.to_tensordict()._indexed(index)

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> Any:
        """A lazy stack where each part of the result lies in one member; else a dense copy."""
        parts = self._parts_after(op, ndim)
        if parts is None:
            return self.to_tensordict()._rearranged(op, ndim, names)
        dim, rows = parts
        move = self._within_member(op, ndim, dim)
        inner = self._members[0].batch_size
        out = LazyStackedTensorDict(
            *(_moved(self._members[owner], places, move, inner) for owner, places in rows), stack_dim=dim
        )
        if any(name is not None for name in self.names):
            out.names = [*names(self.names[:ndim]), *self.names[ndim:]]
        return out

    def _parts_after(self, op: Op, ndim: int) -> tuple[int, list[tuple[int, Tensor]]] | None:
        """A dimension of the result each of whose parts lies in one member, with that member and the places in it."""
        batch, at = self.batch_size, self.stack_dim
        inner = torch.Size([*batch[:at], *batch[at + 1 :]])
        owner = torch.arange(batch[at]).reshape([-1] + [1] * (len(batch) - at - 1)).expand(batch)
        owners = op(owner, ndim)
        places = op(torch.arange(inner.numel()).reshape(inner).unsqueeze(at).expand(batch), ndim)
        if not owners.numel():
            return None
        for dim in range(owners.ndim):
            parts = owners.unbind(dim)
            if all(bool((part == part.reshape(-1)[0]).all()) for part in parts):
                found = [int(part.reshape(-1)[0]) for part in parts]
                return dim, list(zip(found, places.unbind(dim), strict=True))
        return None

    def _within_member(self, op: Op, ndim: int, dim: int) -> tuple[Op, int]:
        """`op` as it acts inside one member, whose place in the result is along `dim`."""
        at, inside = self.stack_dim, self.stack_dim < ndim
        return (lambda tensor, n: op(tensor.unsqueeze(at), n + inside).select(dim, 0)), ndim - inside

    def to_tensordict(self) -> TensorDict:
        """A dense `TensorDict`: every entry stacked; copies.

        Raises:
            ArgumentError: the members' shapes differ.
            NotSupportedError: their keys differ.
        """
        keys = {tuple(sorted(member._keys())) for member in self._members}
        if len(keys) > 1:
            raise NotSupportedError("the members of the stack have different keys, so there is no dense tensordict")
        out = self._empty()
        for key in self._keys():
            value = self._get(key)
            out._set(key, value.to_tensordict() if is_level(value) else value)
        return out  # type: ignore[no-any-return]


def _is_whole(index: tuple[Any, ...]) -> bool:
    return all(isinstance(item, slice) and item == slice(None) for item in index)


def _moved(member: TensorDictBase, places: Tensor, move: tuple[Op, int], inner: torch.Size) -> Any:
    """The elements of one member at `places`: a view where the operation or a reshape gives them, else a copy."""
    everything = torch.arange(inner.numel())
    if places.shape == inner and torch.equal(places.reshape(-1), everything):
        return member
    op, ndim = move
    try:
        if torch.equal(op(everything.reshape(inner), ndim), places):
            return member._rearranged(op, ndim, lambda names: [None] * (places.ndim - len(inner) + len(names)))
    except (RuntimeError, IndexError):  # the operation names sizes of the whole stack
        pass
    flat = member.reshape(-1) if inner else member.unsqueeze(0)
    return flat[places.reshape(-1)].reshape(places.shape)

"""This module knows how entries are read, written, compared and shown, whatever holds them.

It does not know where the entries are kept: a subclass gives its keys and reads, writes and deletes one entry.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from tdview.containers.collection import Collection
from tdview.containers.compare import Compared
from tdview.containers.keys import Key, NestedKey, NestedKeys, is_nested_key, joined, unravel
from tdview.containers.shapes import full_index
from tdview.containers.text import container_text
from tdview.errors import KeyMissingError, shown

__all__ = ["Entries", "is_level", "is_plain_value", "unwrapped"]


def is_level(value: object) -> bool:
    """Whether a value has entries of its own: a tensordict or a tensorclass, not non-tensor data."""
    return isinstance(value, Collection) and not value._is_value


def is_plain_value(value: Any) -> bool:
    """Whether a value is non-tensor data."""
    return isinstance(value, Collection) and value._is_value


def unwrapped(value: Any) -> Any:
    """A non-tensor value itself; anything else unchanged."""
    return value._plain() if is_plain_value(value) else value


class Entries(Compared, Collection):
    """A mapping from keys to tensors, nested tensordicts and non-tensor values that share a batch size.

    ``td["a"]`` and ``td["a", "b"]`` read an entry, any other index addresses the batch dimensions.
    """

    # what a subclass knows

    @abstractmethod
    def _keys(self) -> Iterator[str]:
        """The keys of this level, in order."""

    @abstractmethod
    def _get(self, key: str) -> Any:
        """The entry `key` of this level: tensor or collection. Raises KeyError."""

    @abstractmethod
    def _set(self, key: str, value: Any) -> None:
        """Adds or replaces the entry `key` of this level by a converted value; the lock was checked."""

    @abstractmethod
    def _delete(self, key: str) -> None:
        """Removes the entry `key` of this level; the lock was checked."""

    @abstractmethod
    def _converted(self, value: Any, key: str) -> Any:
        """`value` as an entry: a tensor or collection that starts with the batch size."""

    # reading

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> NestedKeys:
        """A live view of the keys.

        Args:
            include_nested: also the keys of nested levels, as tuples, before the key of their level.
            leaves_only: tensors only; with `is_leaf`, what it accepts.
            is_leaf: tells from a value's type whether it counts as a leaf.
            sort: in sorted order.
        """
        return NestedKeys(
            lambda: (key for key, _ in self._walk(include_nested, leaves_only, is_leaf)),
            sort=sort,
        )

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> Iterator[tuple[Key, Any]]:
        """Keys and values; see `keys`. Non-tensor values come as `NonTensorData`."""
        for key in self.keys(include_nested, leaves_only, is_leaf, sort=sort):
            yield key, self.get(key)

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> Iterator[Any]:
        """Values; see `keys`."""
        return (value for _, value in self.items(include_nested, leaves_only, is_leaf, sort=sort))

    def _walk(
        self, nested: bool, leaves: bool, is_leaf: Callable[[type], bool] | None, prefix: tuple[str, ...] = ()
    ) -> Iterator[tuple[Key, None]]:
        for key in list(self._keys()):
            kind = self._type(key)
            leaf = is_leaf(kind) if is_leaf is not None else issubclass(kind, Tensor)
            level = issubclass(kind, Collection) and not kind._is_value and not (is_leaf is not None and leaf)
            if nested and level:
                yield from self._level(key)._walk(nested, leaves, is_leaf, (*prefix, key))
            if not leaves or leaf:
                yield joined(prefix, key), None

    def _level(self, key: str) -> Any:
        """The nested tensordict `key`; of a tensorclass, the one that it wraps."""
        value = self._get(key)
        return value if isinstance(value, Entries) else value._tensordict

    def _type(self, key: str) -> type:
        return type(self._get(key))

    def entry_class(self, key: NestedKey) -> type:
        """The type of an entry."""
        return type(self._found(key))

    def _found(self, key: NestedKey) -> Any:
        value: Any = self
        for part in unravel(key):
            if not isinstance(value, Entries):
                value = getattr(value, "_tensordict", None)
            if value is None:
                raise self._missing(key)
            try:
                value = value._get(part)
            except KeyError as error:
                if isinstance(error, KeyMissingError):
                    raise
                raise self._missing(key) from None
        return value

    def _missing(self, key: object) -> KeyMissingError:
        if isinstance(key, tuple) and len(key) == 1:
            key = key[0]
        known = sorted(self._keys())
        return KeyMissingError(f"key {shown(key)} not found in {type(self).__name__} with keys {shown(known, 200)}")

    def get(self, key: NestedKey, default: Any = None) -> Any:
        """An entry, or `default` where there is none. Non-tensor values come as `NonTensorData`."""
        try:
            return self._found(key)
        except KeyMissingError:
            return default

    def get_non_tensor(self, key: NestedKey, default: Any = None) -> Any:
        """A non-tensor value itself."""
        value = self.get(key, None)
        return default if value is None else unwrapped(value)

    def __getitem__(self, index: Any) -> Any:
        """An entry, non-tensor values unwrapped; or the rows that an index of the batch dimensions names."""
        if is_nested_key(index):
            return unwrapped(self._found(index))
        return self._indexed(index)

    def __contains__(self, key: object) -> bool:
        try:
            self._found(unravel(key))
        except KeyMissingError:
            return False
        return True

    def is_empty(self) -> bool:
        """Whether there is no tensor and no non-tensor value, at any level."""
        return all(is_level(value) and value.is_empty() for value in self.values())

    @property
    def device(self) -> torch.device | None:
        return None

    def _children(self) -> Iterator[Collection]:
        for key in list(self._keys()):
            if issubclass(self._type(key), Collection):
                yield self._get(key)

    # writing

    def set(self, key: NestedKey, item: Any, *, inplace: bool = False, non_blocking: bool = False) -> Self:
        """Adds or replaces an entry; nested levels are made as needed.

        Raises:
            LockedError: the tensordict is locked, and this is not an existing entry written with ``inplace=True``.
            RuntimeError: the value does not start with the batch size.
        """
        del non_blocking  # a copy of CPU memory is made at once
        parts = unravel(key)
        if inplace and parts in self:
            return self.set_(parts, item)
        if len(parts) > 1:
            self._level_for(parts[0]).set(parts[1:], item)
            return self
        self._check_unlocked(f"set {shown(key)}")
        self._set(parts[0], self._converted(item, parts[0]))
        return self

    def _level_for(self, key: str) -> Any:
        if key not in self:
            self._check_unlocked(f"set {shown(key)}")
            self._set(key, self._converted({}, key))
        value = self._get(key)
        if not is_level(value):
            raise KeyError(f"entry {shown(key)} is a {type(value).__name__}, which has no nested entries")
        return value

    def set_(self, key: NestedKey, item: Any, *, non_blocking: bool = False) -> Self:
        """Writes an existing entry in place: a mapped leaf reaches its file. Allowed when locked.

        Raises:
            KeyMissingError: there is no such entry.
        """
        del non_blocking
        parts = unravel(key)
        if len(parts) > 1:
            holder = self._found(parts[:-1])
            holder = holder if isinstance(holder, Entries) else holder._tensordict
            holder.set_(parts[-1], item)
            return self
        old = self._found(parts)
        if isinstance(old, Tensor):
            value = item if isinstance(item, Tensor) else torch.as_tensor(item)
            old.copy_(value)
        elif is_level(old):
            old.update_(item)
        else:
            self._overwrite(parts[0], self._converted(item, parts[0]))
        return self

    def _overwrite(self, key: str, value: Any) -> None:
        """Replaces a non-tensor value, also when locked; a memory-mapped one is rewritten on disk at once."""
        old = self._get(key)
        if not self._mapped:
            self._set(key, value)
            return
        from tdview.containers.saving import rewrite_value

        if getattr(old, "_prefix", None) is not None:
            rewrite_value(value, old._prefix)
        value._prefix, value._mapped, value._locked, value._held = old._prefix, True, True, True
        value._shared = old._shared
        self._set(key, value)

    def get_at(self, key: NestedKey, index: Any) -> Any:
        """Rows of one entry."""
        return unwrapped(self._found(key)[index])

    def set_at_(self, key: NestedKey, value: Any, index: Any) -> Self:
        """Writes rows of one entry in place. Allowed when locked."""
        entry = self._found(key)
        if is_plain_value(entry):
            parts = unravel(key)
            holder: Any = self._found(parts[:-1]) if len(parts) > 1 else self
            holder._overwrite(parts[-1], entry._with_rows(index, value))
        else:
            entry[index] = value
        return self

    def update_at_(self, other: Any, index: Any) -> Self:
        """Writes rows of the entries that `other` has in place; they must exist here. Allowed when locked."""
        pairs = list(_pairs(other))
        for key, _ in pairs:
            self._found(key)
        for key, value in pairs:
            entry = self._found(key)
            if is_level(entry):
                entry.update_at_(value, index)
            else:
                self.set_at_(key, value, index)
        return self

    def set_non_tensor(self, key: NestedKey, value: Any) -> Self:
        """Sets a value as non-tensor data, whatever its type."""
        from tdview.containers.non_tensor import NonTensorData

        parts = unravel(key)
        holder = self if len(parts) == 1 else self._found(parts[:-1])
        holder.set(parts[-1], NonTensorData(value, batch_size=holder.batch_size))
        return self

    def setdefault(self, key: NestedKey, default: Any) -> Any:
        """The entry `key`, which is set to `default` first where it is missing."""
        if key not in self:
            self.set(key, default)
        return self.get(key)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Sets an entry, or writes rows in place: ``td["a"] = tensor``, ``td[0] = other_td``."""
        if is_nested_key(index):
            if self._locked and is_plain_value(self.get(index)):
                self.set_(index, value)
            else:
                self.set(index, value)
            return
        self._set_rows(full_index(index, self.ndim), value)

    def _set_rows(self, index: tuple[Any, ...], value: Any) -> None:
        if not isinstance(value, Collection | Mapping):
            for key in self._keys():
                entry = self._get(key)
                if isinstance(entry, Tensor | Entries):
                    entry[index] = value
            return
        other = value if isinstance(value, Entries | Mapping) else value._tensordict  # type: ignore[attr-defined]
        if differing := set(other.keys()) ^ set(self._keys()):
            raise KeyMissingError(f"rows: both sides need the same keys, they differ in {shown(sorted(differing))}")
        for key in self._keys():
            entry = self._get(key)
            item = other.get(key)
            if isinstance(entry, Tensor) or is_level(entry):
                entry[index] = item
            else:
                self._overwrite(key, entry._with_rows(index, item))

    def __delitem__(self, key: NestedKey) -> None:
        self.del_(key)

    def del_(self, key: NestedKey) -> Self:
        """Removes an entry.

        Raises:
            LockedError: the tensordict is locked.
            KeyMissingError: there is no such entry.
        """
        parts = unravel(key)
        holder: Any = self._found(parts[:-1]) if len(parts) > 1 else self
        holder = holder if isinstance(holder, Entries) else holder._tensordict
        holder._check_unlocked(f"delete {shown(key)}")
        holder._found(parts[-1])
        holder._delete(parts[-1])
        return self

    def pop(self, key: NestedKey, *default: Any) -> Any:
        """Removes an entry and returns it, non-tensor values unwrapped; `default` where it is missing."""
        if default and key not in self:
            return default[0]
        value = self[key]
        self.del_(key)
        return value

    def clear(self) -> Self:
        """Removes every entry."""
        self._check_unlocked("clear")
        for key in list(self._keys()):
            self._delete(key)
        return self

    def rename_key_(self, old_key: NestedKey, new_key: NestedKey, safe: bool = False) -> Self:
        """Moves an entry to another key; ``safe=True`` refuses to replace one."""
        if safe and new_key in self:
            raise KeyError(f"there is an entry {shown(new_key)} already")
        value = self._found(old_key)
        self.del_(old_key)
        return self.set(new_key, value)

    def update(self, other: Any, clone: bool = False, inplace: bool = False) -> Self:
        """Sets every entry of `other`; nested levels on both sides are merged."""
        for key, value in _pairs(other):
            old = self.get(key)
            if is_level(old) and isinstance(value, Entries | Mapping):
                old.update(value, clone, inplace)
                continue
            if clone and isinstance(value, Tensor | Collection):
                value = value.clone()
            self.set(key, value, inplace=inplace)
        return self

    def update_(self, other: Any, clone: bool = False) -> Self:
        """Writes every entry of `other` in place; it must exist here.

        Raises:
            KeyMissingError: an entry does not exist here; nothing was written then.
        """
        del clone  # values are copied into the leaves
        pairs = list(_pairs(other))
        for key, _ in pairs:
            self._found(key)
        for key, value in pairs:
            self.set_(key, value)
        return self

    def _try_each(self, act: Callable[[Tensor], Any]) -> Self:
        for key in self._keys():
            value = self._get(key)
            if isinstance(value, Tensor):
                act(value)
            elif is_level(value):
                self._level(key)._try_each(act)
        return self

    def zero_(self) -> Self:
        """Fills every tensor with zeros, in place."""
        return self._try_each(lambda leaf: leaf.zero_())

    def fill_(self, key: NestedKey, value: Any) -> Self:
        """Fills one tensor, in place."""
        self._found(key).fill_(value)
        return self

    def __repr__(self) -> str:
        return container_text(self)


def _pairs(other: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(other, Mapping):
        return iter(other.items())
    if isinstance(other, Entries):
        return other.items()
    inner = getattr(other, "_tensordict", None)
    if isinstance(inner, Entries):
        return inner.items()
    raise TypeError(f"expected a tensordict or a mapping, got {type(other).__name__}")

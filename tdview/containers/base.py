"""This module knows the tensordicts that are made of another one: copies, parts, other devices, other layouts of keys.

It does not know where the entries are kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from tdview.containers.collection import Collection
from tdview.containers.entries import Entries, is_level, unwrapped
from tdview.containers.keys import NestedKey, unravel
from tdview.containers.memory import cloned

__all__ = ["TensorDictBase", "is_level"]


class TensorDictBase(Entries):
    """A mapping from keys to tensors, nested tensordicts and non-tensor values that share a batch size."""

    def _mapped_by(self, change: Callable[[Any], Any], keep: Callable[[str], bool] | None = None) -> Any:
        """A tensordict of the same batch size whose entries are `change` of these."""
        out = self._empty()
        for key in self._keys():
            if keep is None or keep(key):
                out._set(key, change(self._get(key)))
        return out

    @abstractmethod
    def _empty(self) -> TensorDictBase:
        """An unlocked tensordict of the same batch size, names and device without entries."""

    def empty(self, recurse: bool = False) -> Any:
        """A tensordict of the same batch size, names and device without entries; `recurse` keeps empty levels."""
        out = self._empty()
        if recurse:
            for key in self._keys():
                if is_level(self._get(key)):
                    out._set(key, self._level(key).empty(recurse=True))
        return out

    def clone(self, recurse: bool = True) -> Self:
        """A copy, unlocked and not memory-mapped; ``recurse=False`` shares the tensors."""

        def copied(value: Any) -> Any:
            return value.clone(recurse) if isinstance(value, Collection) else cloned(value) if recurse else value

        return self._mapped_by(copied)  # type: ignore[no-any-return]

    def copy(self) -> Self:
        """The same as ``clone(recurse=False)``."""
        return self.clone(recurse=False)

    def select(self, *keys: NestedKey, inplace: bool = False, strict: bool = True) -> Any:
        """The entries named, nested ones with their levels. Shares the tensors.

        Raises:
            KeyMissingError: there is no such entry, and `strict`.
        """
        wanted = [unravel(key) for key in keys]
        if strict:
            for key in wanted:
                self._found(key)
        return self._filtered(lambda path: any(_under(path, key) or _under(key, path) for key in wanted),
                              lambda path: any(_under(path, key) for key in wanted), inplace)  # fmt: skip

    def exclude(self, *keys: NestedKey, inplace: bool = False) -> Any:
        """All entries but the named ones, which may be missing. Shares the tensors."""
        unwanted = [unravel(key) for key in keys]
        return self._filtered(lambda path: path not in unwanted,
                              lambda path: not any(_under(key, path) for key in unwanted), inplace)  # fmt: skip

    def _filtered(
        self, keep: Callable[[tuple[str, ...]], bool], whole: Callable[[tuple[str, ...]], bool], inplace: bool
    ) -> Any:
        def part(level: Any, prefix: tuple[str, ...]) -> Any:
            out = level._empty()
            for key in level._keys():
                path, value = (*prefix, key), level._get(key)
                if not keep(path):
                    continue
                if whole(path):
                    out._set(key, value.clone(recurse=False) if isinstance(value, Collection) else value)
                elif is_level(value):
                    out._set(key, part(level._level(key), path))
            return out

        found = part(self, ())
        if not inplace:
            return found
        self._check_unlocked("select")
        for key in list(self._keys()):
            self._delete(key)
        for key in found._keys():
            self._set(key, found._get(key))
        return self

    def apply(self, fn: Callable[..., Any], *others: Any, batch_size: Sequence[int] | None = None) -> Any:
        """A tensordict of `fn` of every tensor (and those of `others` under the same keys); values stay as they are."""
        out = self._empty()
        if batch_size is not None:
            out.batch_size = torch.Size(batch_size)  # type: ignore[misc]  # sound: `_empty` gives a TensorDict
        for key in self._keys():
            value = self._get(key)
            more = [other.get(key) for other in others]
            if is_level(value):
                out._set(key, value.apply(fn, *more, batch_size=batch_size))
            elif isinstance(value, Tensor):
                changed = fn(value, *more)
                if changed is not None:
                    out.set(key, changed)
            else:
                out._set(key, value)
        return out

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device, or of another dtype; itself where nothing changes."""
        kwargs.pop("non_blocking", None)
        probe = torch.empty(0).to(*args, **kwargs)
        device = probe.device if any(not isinstance(arg, torch.dtype) for arg in (*args, *kwargs.values())) else None
        dtype = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.dtype)), None)
        if dtype is None and device is not None and device == self.device:
            return self

        def moved(value: Any) -> Any:
            return value.to(*args, **kwargs) if isinstance(value, Collection) else value.to(device=device, dtype=dtype)

        out = self._mapped_by(moved)
        if device is not None:
            out._to_device(device)
        return out  # type: ignore[no-any-return]

    def detach(self) -> Any:
        """The same entries, detached from the graph."""
        return self.apply(lambda leaf: leaf.detach())

    def contiguous(self) -> Any:
        """A dense `TensorDict` of contiguous tensors."""
        return self.to_tensordict()

    def flatten_keys(self, separator: str = ".") -> Any:
        """One level: nested keys joined by `separator`. Shares the tensors."""
        out = self._empty()
        for key in self.keys(include_nested=True):
            value = self._found(key)
            if not is_level(value):
                out.set(key if isinstance(key, str) else separator.join(key), value)
        return out

    def unflatten_keys(self, separator: str = ".") -> Any:
        """Keys split at `separator` into nested levels. Shares the tensors."""
        out = self._empty()
        for key in self._keys():
            out.set(tuple(key.split(separator)), self._get(key))
        return out

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of the tensors and plain values."""
        out: dict[str, Any] = {}
        for key in self._keys():
            value = self._get(key)
            out[key] = value.to_dict() if is_level(value) else unwrapped(value)
        return out

    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(
            value.numel() * value.element_size() if isinstance(value, Tensor) else value.bytes()
            for value in self.values()
            if isinstance(value, Tensor) or is_level(value)
        )


def _under(path: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """Whether `path` is `key` or lies below it."""
    return path[: len(key)] == key

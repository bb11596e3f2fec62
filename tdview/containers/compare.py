"""This module knows how tensordicts are compared with each other and with numbers.

It does not know where the entries are kept.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tdview.containers.collection import Collection
from tdview.errors import KeyMissingError, shown

__all__ = ["Compared", "all_of", "any_of", "compared"]

Comparison = Callable[[Any, Any], Any]


def compared(value: Any, other: Any, how: Comparison) -> Any:
    """`value` compared with `other`, element by element: bool tensors in the structure of `value`."""
    if isinstance(value, Tensor):
        if isinstance(other, Collection):
            return torch.full(value.shape, how is operator.ne, dtype=torch.bool)
        if value.is_nested:
            return torch.tensor(_nested_equal(value, other) is (how is operator.eq))
        return how(value, other)
    return value._compared(other, how)


def _nested_equal(value: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor) or not other.is_nested:
        return False
    left, right = value.unbind(0), other.unbind(0)
    return len(left) == len(right) and all(map(torch.equal, left, right))


def all_of(value: Any) -> bool:
    """Whether every element is true."""
    return bool(value.all())


def any_of(value: Any) -> bool:
    """Whether some element is true."""
    return bool(value.any())


class Compared:
    """Gives a container of entries ``==``, ``!=``, ``<`` …, `all` and `any`."""

    def _compared(self: Any, other: Any, how: Comparison) -> Any:
        out = self._empty()
        inner = getattr(other, "_tensordict", None)
        other = inner if inner is not None else other
        by_key = isinstance(other, Mapping) or hasattr(other, "_keys")
        if by_key and (differing := set(self._keys()) ^ set(other.keys())):
            raise KeyMissingError(f"both sides need the same keys, they differ in {shown(sorted(differing))}")
        for key in self._keys():
            out._set(key, compared(self._get(key), other.get(key) if by_key else other, how))
        return out

    def __eq__(self, other: object) -> Any:
        """Bool tensors of the same structure; KeyMissingError where the keys differ."""
        return compared(self, other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return compared(self, other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return compared(self, other, operator.lt)

    def __le__(self, other: object) -> Any:
        return compared(self, other, operator.le)

    def __gt__(self, other: object) -> Any:
        return compared(self, other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return compared(self, other, operator.ge)

    __hash__ = object.__hash__

    def all(self: Any, dim: int | None = None) -> Any:
        """Whether every element is true; along a batch dimension, a tensordict of bool tensors."""
        if dim is not None:
            return self._reduced(lambda leaf, place: leaf.all(dim=place), dim)
        return all(all_of(self._get(key)) for key in self._keys() if not _is_value(self._get(key)))

    def any(self: Any, dim: int | None = None) -> Any:
        """Whether some element is true; along a batch dimension, a tensordict of bool tensors."""
        if dim is not None:
            return self._reduced(lambda leaf, place: leaf.any(dim=place), dim)
        return any(any_of(self._get(key)) for key in self._keys() if not _is_value(self._get(key)))

    def _reduced(self: Any, fn: Callable[[Tensor, int], Tensor], dim: int) -> Any:
        place = dim % max(1, self.ndim)
        return self._rearranged(
            lambda leaf, _: fn(leaf, place), self.ndim, lambda names: [*names[:place], *names[place + 1 :]]
        )


def _is_value(value: Any) -> bool:
    return isinstance(value, Collection) and value._is_value

"""This module knows how collections are stacked and joined.

It does not know how each kind of collection rearranges itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdview.containers.base import TensorDictBase
from tdview.containers.collection import Collection
from tdview.containers.lazy_stack import LazyStackedTensorDict, stacked_entry
from tdview.containers.non_tensor import NonTensorBase, NonTensorData, NonTensorStack, _same
from tdview.containers.tensordict import TensorDict
from tdview.errors import ArgumentError, KeyMissingError, shown

__all__ = ["cat", "lazy_stack", "stack"]


def _inner(items: Sequence[Any]) -> tuple[list[Any], Any]:
    """The tensordicts of tensorclasses, and how the result is wrapped again."""
    items = list(items)
    if not items:
        raise ArgumentError("stack: expected at least one tensordict")
    first = items[0]
    if hasattr(first, "_tensordict"):
        return [item._tensordict for item in items], first._with_tensordict
    return items, lambda td: td


def _shared_keys(items: Sequence[TensorDictBase]) -> list[str]:
    keys = list(items[0]._keys())
    for item in items[1:]:
        if differing := set(keys) ^ set(item._keys()):
            raise KeyMissingError(f"stack: expected the same keys, they differ in {shown(sorted(differing))}")
    return keys


def stack(items: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """Stacks collections of one batch size along a new batch dimension.

    Args:
        items: tensordicts, tensorclasses or non-tensor data with the same keys and shapes.
        dim: place of the new dimension among the batch dimensions.
        out: tensordict that is written in place instead.

    Returns:
        A dense collection of new tensors.

    Raises:
        ArgumentError: the batch sizes or shapes differ. KeyMissingError: the keys differ.
    """
    inner, wrap = _inner(items)
    if all(isinstance(item, NonTensorBase) for item in inner):
        return stacked_entry(inner, dim % (inner[0].ndim + 1))
    lazy = LazyStackedTensorDict(*inner, stack_dim=dim)
    _shared_keys(inner)
    dense = lazy.to_tensordict()
    return wrap(dense) if out is None else out.update_(dense)


def lazy_stack(items: Sequence[Any], dim: int = 0) -> Any:
    """Stacks collections along a new batch dimension without copying; shapes and keys may differ."""
    inner, wrap = _inner(items)
    if all(isinstance(item, NonTensorBase) for item in inner):
        return NonTensorStack(*inner, stack_dim=dim % (inner[0].ndim + 1))
    return wrap(LazyStackedTensorDict(*inner, stack_dim=dim))


def cat(items: Sequence[Any], dim: int = 0, *, out: Any = None) -> Any:
    """Joins collections along an existing batch dimension.

    Returns:
        A dense collection of new tensors; see `stack` for what is raised.
    """
    inner, wrap = _inner(items)
    place = dim % max(1, inner[0].ndim)
    joined = _joined(inner, place)
    return wrap(joined) if out is None else out.update_(joined)


def _joined(items: list[Any], dim: int) -> Any:
    if all(isinstance(item, Tensor) for item in items):
        return torch.cat(items, dim)
    if all(isinstance(item, NonTensorBase) for item in items):
        if all(isinstance(item, NonTensorData) and _same(item.data, items[0].data) for item in items):
            batch = list(items[0].batch_size)
            batch[dim] = sum(item.batch_size[dim] for item in items)
            return NonTensorData(items[0].data, batch_size=batch)
        return NonTensorStack._of(np.concatenate([item._array() for item in items], axis=dim))
    if all(isinstance(item, TensorDictBase) for item in items):
        keys = _shared_keys(items)
        batch = list(items[0].batch_size)
        if any([s for d, s in enumerate(i.batch_size) if d != dim] != batch[:dim] + batch[dim + 1 :] for i in items):
            sizes = [list(item.batch_size) for item in items]
            raise ArgumentError(f"cat: the batch sizes differ outside dimension {dim}: {shown(sizes, 200)}")
        batch[dim] = sum(item.batch_size[dim] for item in items)
        entries = {key: _joined([item._get(key) for item in items], dim) for key in keys}
        return TensorDict._made(entries, torch.Size(batch), items[0].device, list(items[0].names))
    if all(isinstance(item, Collection) and hasattr(item, "_tensordict") for item in items):
        return items[0]._with_tensordict(_joined([item._tensordict for item in items], dim))
    raise ArgumentError("cat: the entries are of different kinds")

"""This module knows what a shape operation does to a tensor that starts with the batch dimensions.

It does not know tensordicts: each operation is a function of one tensor and the number of its batch dimensions,
so that leaves, nested levels, non-tensor stacks and batch sizes all follow from the same definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "Names",
    "Op",
    "batch_after",
    "dim_of",
    "expanded",
    "full_index",
    "indexed",
    "names_after_index",
    "permuted",
    "reshaped",
    "squeezed",
    "transposed",
    "unsqueezed",
    "viewed",
]

Op = Callable[[Tensor, int], Tensor]
"""Maps a tensor ``[*batch, *rest]`` and ``len(batch)`` to ``[*new_batch, *rest]``."""

Names = list[str | None]


def batch_after(op: Op, batch: Sequence[int]) -> torch.Size:
    """The batch size after `op`; wrong dims and indices raise what torch raises. Allocates no data for a view."""
    return op(torch.zeros((), dtype=torch.bool).expand(*batch), len(batch)).shape


def dim_of(dim: int, ndim: int, what: str) -> int:
    """`dim` counted from the front.

    Raises:
        IndexError: it is no dimension of `ndim`.
    """
    if not -ndim <= dim < ndim:
        raise IndexError(f"{what}: dimension {dim} is outside [{-ndim}, {ndim - 1}] of the batch dimensions")
    return dim % ndim


def _consumed(item: Any) -> int:
    """How many batch dimensions one item of an index stands for."""
    if item is None or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.ndim
    dtype = getattr(item, "dtype", None)
    if dtype is not None and str(dtype) == "bool":
        return int(item.ndim)
    return 1


def full_index(index: Any, ndim: int) -> tuple[Any, ...]:
    """An index of the batch dimensions as a tuple without an ellipsis: ``...`` stands for batch dimensions alone.

    Raises:
        IndexError: it addresses more than `ndim` dimensions.
    """
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(_as_index(item) for item in items)
    used = sum(_consumed(item) for item in items if item is not Ellipsis)
    if used > ndim:
        raise IndexError(f"too many indices: {used} for {ndim} batch dimensions")
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not dots:
        return items
    fill = (slice(None),) * (ndim - used)
    return items[: dots[0]] + fill + items[dots[0] + 1 :]


def _as_index(item: Any) -> Any:
    if isinstance(item, range):
        return torch.arange(item.start, item.stop, item.step)
    if isinstance(item, list):
        return torch.tensor(item, dtype=torch.long) if not item else torch.tensor(item)
    if type(item).__module__ == "numpy" and hasattr(item, "ndim"):
        return int(item) if item.ndim == 0 and item.dtype.kind in "iu" else torch.as_tensor(item)
    return item


def indexed(index: tuple[Any, ...]) -> Op:
    """Indexing with the result of `full_index`."""

    def op(tensor: Tensor, ndim: int) -> Tensor:
        del ndim
        return tensor[index] if index else tensor.view(tensor.shape)

    return op


def names_after_index(names: Names, index: tuple[Any, ...]) -> Names:
    """Dim names after indexing: an int drops one, None adds one, a 1-d index keeps it."""
    out: Names = []
    place = 0
    for item in index:
        used = _consumed(item)
        if item is None:
            out.append(None)
        elif isinstance(item, slice):
            out.append(names[place])
        elif isinstance(item, Tensor) and item.ndim:
            out.extend([names[place]] if item.ndim == 1 and used == 1 else [None] * (1 if used > 1 else item.ndim))
        place += used
    return out + names[place:]


def unsqueezed(dim: int) -> Op:
    """A new batch dimension of size 1 at `dim`, counted from the front."""
    return lambda tensor, ndim: tensor.unsqueeze(dim)


def squeezed(dims: Sequence[int]) -> Op:
    """Without the batch dimensions `dims`, each of size 1 and counted from the front."""

    def op(tensor: Tensor, ndim: int) -> Tensor:
        for dim in sorted(dims, reverse=True):
            tensor = tensor.squeeze(dim)
        return tensor

    return op


def permuted(dims: Sequence[int]) -> Op:
    """The batch dimensions in the order `dims`, counted from the front."""
    return lambda tensor, ndim: tensor.permute(*dims, *range(ndim, tensor.ndim))


def transposed(dim0: int, dim1: int) -> Op:
    """Two batch dimensions exchanged, counted from the front."""
    return lambda tensor, ndim: tensor.transpose(dim0, dim1)


def viewed(size: Sequence[int]) -> Op:
    """The batch dimensions viewed as `size`; never copies."""
    return lambda tensor, ndim: tensor.view((*size, *tensor.shape[ndim:]))


def reshaped(size: Sequence[int]) -> Op:
    """The batch dimensions reshaped to `size`; copies where no view is possible."""
    return lambda tensor, ndim: tensor.reshape((*size, *tensor.shape[ndim:]))


def expanded(size: Sequence[int]) -> Op:
    """The batch dimensions expanded to `size`; never copies."""
    return lambda tensor, ndim: tensor.expand((*size, *tensor.shape[ndim:]))

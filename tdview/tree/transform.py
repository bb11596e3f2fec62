"""This module knows the operations between a stored tensor and its logical value in a lazy view.

It does not know where the tensor comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tdview.format.view_index import Advanced, Index, indexed_shape, viewed_shape

__all__ = ["Indexed", "Stacked", "Transform", "Viewed", "stacked_shape"]

Library = Literal["numpy", "torch"]


class Transform(Protocol):
    """One step from a source tensor to the logical one; it acts on the batch dims alone."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after the step, by arithmetic."""
        ...

    def apply(self, array: Any, library: Library) -> Any:
        """The step applied to a numpy array or torch tensor: a view where that library makes one."""
        ...


@dataclass(frozen=True, slots=True)
class Indexed:
    """The index of a sub-tensordict."""

    index: Index
    where: str

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return indexed_shape(shape, self.index, self.where)

    def apply(self, array: Any, library: Library) -> Any:
        # Ints first: torch does not let them part the lists beside them, numpy would.
        selected = array[tuple(part for item in self.index for part in _selecting(item))]
        rest = tuple(item for item in self.index if not isinstance(item, int))
        return selected[tuple(_array_item(item, library) for item in rest)]


def _selecting(item: Any) -> tuple[Any, ...]:
    if isinstance(item, int) or item is Ellipsis:
        return (item,)
    if item is None:
        return ()
    return (slice(None),) * (len(item.shape) if isinstance(item, Advanced) and item.is_mask else 1)


def _array_item(item: Any, library: Library) -> Any:
    if not isinstance(item, Advanced):
        return item
    values = list(item.values) if isinstance(item.values, range) else item.values
    if library == "torch":
        import torch

        return torch.tensor(values, dtype=torch.bool if item.is_mask else torch.int64)
    import numpy as np

    return np.array(values, dtype=bool if item.is_mask else np.int64)


@dataclass(frozen=True, slots=True)
class Viewed:
    """The operation of a lazy view."""

    op: str
    kwargs: dict[str, Any]
    ndim: int
    """Number of batch dims of the source."""
    where: str

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return viewed_shape(shape, self.op, self.kwargs, self.ndim, self.where)

    def apply(self, array: Any, library: Library) -> Any:
        shape = self.shape(tuple(array.shape))
        if self.op in ("permute", "transpose"):
            order = list(range(array.ndim))
            if self.op == "permute":
                order[: self.ndim] = [dim % self.ndim for dim in self.kwargs["dims"]]
            else:
                a, b = self.kwargs["dim0"] % self.ndim, self.kwargs["dim1"] % self.ndim
                order[a], order[b] = order[b], order[a]
            return array.permute(order) if library == "torch" else array.transpose(order)
        return array.reshape(shape)


def stacked_shape(shapes: list[tuple[int, ...]], dim: int) -> tuple[int, ...] | None:
    """The shape of tensors stacked along `dim`; None if their shapes differ or there are none.

    Examples:
        >>> stacked_shape([(3, 2), (3, 2)], 1), stacked_shape([(3,), (2,)], 0)
        ((3, 2, 2), None)
    """
    if not shapes or len(set(shapes)) > 1 or not 0 <= dim <= len(shapes[0]):
        return None
    return (*shapes[0][:dim], len(shapes), *shapes[0][dim:])


@dataclass(frozen=True, slots=True)
class Stacked:
    """Marks a leaf that is the stack of the same leaf of several members."""

    dim: int

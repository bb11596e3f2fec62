"""This module knows where the elements of a leaf lie in its file, also when it is seen through lazy views.

It does not know values. A view that has no exact place for each element is refused with the reason.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from tdview.errors import EditRefusedError, TdviewError
from tdview.format.view_index import Advanced
from tdview.operations.region import Axis, Layout
from tdview.operations.values import itemsize
from tdview.tree.transform import Indexed, Viewed

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf

__all__ = ["full_index", "has_places", "locate"]


def locate(leaf: Leaf, index: Any) -> tuple[Leaf, Layout, Any]:
    """The stored leaf, the layout of its file as `leaf` shows it, and the index into that layout.

    Of a nested tensor the first item of the index chooses the component. Of a stack of members, the item at the stack
    dim must be an integer: it chooses the member, whose file is written.

    Raises:
        EditRefusedError: the elements have no place of their own that an index describes.
        DecodeError: the entry is damaged.
    """
    if leaf.is_nested:
        return _component(leaf, index)
    if leaf.parts:
        return _member(leaf, index)
    layout = Layout.contiguous(leaf.entry.shape, itemsize(leaf.dtype))
    for step in leaf.steps:
        layout = _through(layout, step)
    return leaf, layout, index


def has_places(leaf: Leaf) -> bool:
    """Whether elements of a leaf can be edited in place, also through its views, as far as the entry tells."""
    if leaf.direct or leaf.is_nested:
        return leaf.writable
    try:
        stored = locate(leaf, (0,) * len(leaf.shape))[0]
    except TdviewError:
        return False
    return stored.store.writable and stored.info is not None and stored.info.compression == "stored"


def full_index(leaf: Leaf, index: Any) -> tuple[Any, ...]:
    """`index` with one item for each axis of `leaf` as it is shown; see `Layout.normalize`."""
    if leaf.is_nested:
        items = index if isinstance(index, tuple) else (index,)
        shapes = leaf.component_shapes()
        number = _number(len(shapes), items)
        return (number, *Layout.contiguous(shapes[number], 1).normalize(items[1:] or (...,)))
    return Layout.contiguous(leaf.shape, 1).normalize(index)


def _number(count: int, items: tuple[Any, ...]) -> int:
    number = Layout.contiguous((count,), 1).normalize(items[:1] or (...,))[0]
    if not isinstance(number, int):
        raise EditRefusedError("the components of a nested tensor have different shapes; give the number of one first")
    return number


def _component(leaf: Leaf, index: Any) -> tuple[Leaf, Layout, Any]:
    items = index if isinstance(index, tuple) else (index,)
    shapes = leaf.component_shapes()
    number = _number(len(shapes), items)
    size = itemsize(leaf.dtype)
    base = sum(math.prod(shape) for shape in shapes[:number]) * size
    layout = Layout.contiguous(shapes[number], size)
    return leaf, Layout(layout.axes, size, base), items[1:] or (...,)


def _member(leaf: Leaf, index: Any) -> tuple[Leaf, Layout, Any]:
    dim = leaf.stack_dim or 0
    if leaf.steps:
        raise EditRefusedError("a view of a stack of members spreads over several files; edit the members themselves")
    items = Layout.contiguous(leaf.shape, 1).normalize(index)
    number = items[dim]
    if not isinstance(number, int):
        raise EditRefusedError(f"axis {dim} counts the members of a stack, each in a file of its own; give one number")
    return locate(leaf.parts[number], items[:dim] + items[dim + 1 :])


def _through(layout: Layout, step: Any) -> Layout:
    if isinstance(step, Viewed):
        return _viewed(layout, step)
    if isinstance(step, Indexed):
        return _indexed(layout, step)
    raise EditRefusedError("elements behind this view have no exact place in a file; edit its source")


def _viewed(layout: Layout, step: Viewed) -> Layout:
    batch, rest = list(layout.axes[: step.ndim]), layout.axes[step.ndim :]
    if step.op == "permute":
        batch = [batch[dim % step.ndim] for dim in step.kwargs["dims"]]
    elif step.op == "transpose":
        a, b = step.kwargs["dim0"] % step.ndim, step.kwargs["dim1"] % step.ndim
        batch[a], batch[b] = batch[b], batch[a]
    elif step.op == "unsqueeze":
        batch.insert(step.kwargs["dim"] % (step.ndim + 1), range(1))
    elif step.op == "squeeze" and len(batch[step.kwargs["dim"]]) == 1:
        base = layout.base + batch.pop(step.kwargs["dim"])[0]
        return Layout((*batch, *rest), layout.itemsize, base)
    elif step.op == "view":
        shape = step.shape(layout.shape)
        return _reshaped(layout, step.ndim, shape[: len(shape) - len(rest)])
    return Layout((*batch, *rest), layout.itemsize, layout.base)


def _reshaped(layout: Layout, ndim: int, shape: tuple[int, ...]) -> Layout:
    """The first `ndim` axes with other sizes: without a copy where one stride leads through all of them."""
    batch, rest = layout.axes[:ndim], layout.axes[ndim:]
    if 0 in shape:
        return Layout((*map(range, shape), *rest), layout.itemsize, layout.base)
    wide = [axis for axis in batch if len(axis) != 1]
    ranges = [axis for axis in wide if isinstance(axis, range)]
    if len(ranges) != len(wide) or any(a.step != b.step * len(b) for a, b in itertools.pairwise(ranges)):
        raise EditRefusedError("this view reorders rows, so an element has no exact place in it; edit its source")
    axes: list[Axis] = []
    stride = ranges[-1].step if ranges else layout.itemsize
    for size in reversed(shape):
        axes.append(range(0, size * stride, stride))
        stride *= size
    return Layout((*reversed(axes), *rest), layout.itemsize, layout.base + sum(axis[0] for axis in batch))


def _indexed(layout: Layout, step: Indexed) -> Layout:
    items = list(step.index)
    advanced = [item for item in items if isinstance(item, Advanced)]
    if len(advanced) > 1 or any(len(item.shape) != 1 for item in advanced):
        raise EditRefusedError("a sub-tensordict of several index tensors has no exact places; edit its source")
    used = sum(item is not None and item is not Ellipsis for item in items)
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at : at + 1] = [slice(None)] * (len(layout.axes) - used)
    axes: list[Axis] = []
    base, rest = layout.base, iter(layout.axes)
    for item in items:
        if item is None:
            axes.append(range(1))
            continue
        axis = next(rest)
        if isinstance(item, int):
            base += axis[item]
        elif isinstance(item, slice):
            axes.append(axis[item])
        elif isinstance(item, Advanced):
            axes.append(_picked(axis, item))
    return Layout(tuple(axes), layout.itemsize, base)


def _picked(axis: Axis, item: Advanced) -> Axis:
    values = list(item.values)
    if item.is_mask:
        return tuple(offset for offset, chosen in zip(axis, values, strict=True) if chosen)
    if len({value % len(axis) for value in values}) != len(values):
        raise EditRefusedError("the sub-tensordict shows a row twice, so an edit would show twice; edit its source")
    return tuple(axis[value] for value in values)

"""This module knows how the index of a sub-tensordict is written in JSON and what shape it gives.

It does not know tensors: an index is a tuple of plain Python values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from tdview.errors import DecodeError, Problem, shown

__all__ = ["Index", "dump_index", "indexed_shape", "parse_index", "viewed_shape"]

_MAX_INDICES = 100_000_000


@dataclass(frozen=True, slots=True)
class Advanced:
    """A list of positions, or a mask, as it was a tensor, a list or a range."""

    values: Any
    """Nested lists of ints, or of bools for a mask; or a `range`."""
    shape: tuple[int, ...]
    is_mask: bool


Item = int | None | slice | Advanced | EllipsisType
Index = tuple[Item, ...]


def parse_index(value: Any, where: object) -> Index:
    """The index that a JSON value describes.

    Spec: "Lazy stacks and views", ``"index"``: an untagged list is the older form of a tuple.

    Raises:
        DecodeError: ``index``: the value is none of the known forms.

    Examples:
        >>> parse_index(["tuple", [["slice", {"start": 1, "stop": 3, "step": None}], None, 2]], "x")
        (slice(1, 3, None), None, 2)
    """
    items = value[1] if _is_tagged(value, "tuple") else value
    if items is value and (not isinstance(value, list) or _is_any_tagged(value)):
        items = [value]
    if not isinstance(items, list):
        raise _error(where, value)
    return tuple(_item(item, where) for item in items)


def _is_tagged(value: Any, tag: str) -> bool:
    return isinstance(value, list) and len(value) >= 2 and value[0] == tag


def _is_any_tagged(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _item(item: Any, where: object) -> Item:
    if item is None or type(item) is int:
        return item
    if isinstance(item, bool):
        return Advanced(item, (), True)
    if item in (["ellipsis"], "..."):
        return Ellipsis
    if isinstance(item, list) and item and isinstance(item[0], str):
        tag, payload = item[0], item[1] if len(item) > 1 else None
        if tag in ("slice", "range") and isinstance(payload, dict):
            bounds = [payload.get(name) for name in ("start", "stop", "step")]
            if all(bound is None or type(bound) is int for bound in bounds):
                return slice(*bounds) if tag == "slice" else _range(bounds, where, item)
        if tag in ("tensor", "list", "tuple", "ndarray"):
            return _advanced(payload, where)
        raise _error(where, item)
    if isinstance(item, list):
        return _advanced(item, where)
    raise _error(where, item)


def _range(bounds: list[Any], where: object, item: Any) -> Advanced:
    start, stop, step = bounds[0] or 0, bounds[1], 1 if bounds[2] is None else bounds[2]
    if stop is None or step == 0 or len(values := range(start, stop, step)) > _MAX_INDICES:
        raise _error(where, item)
    return Advanced(values, (len(values),), False)


def _advanced(values: Any, where: object) -> Advanced:
    shape, level, leaves = [], values, [values]
    while isinstance(level, list):
        shape.append(len(level))
        if not all(isinstance(part, list) and len(part) == len(level) for part in leaves):
            raise _error(where, values)
        leaves = [leaf for part in leaves for leaf in part]
        level = leaves[0] if leaves else None
    is_mask = bool(leaves) and all(isinstance(leaf, bool) for leaf in leaves)
    if not is_mask and not all(type(leaf) is int for leaf in leaves):
        raise _error(where, values)
    return Advanced(values, tuple(shape), is_mask)


def _error(where: object, value: Any) -> DecodeError:
    message = f"{where}: the index of the sub-tensordict cannot be read: {shown(value)}"
    return DecodeError(message, [Problem("index", message)])


def dump_index(index: Any) -> list[Any]:
    """The JSON value of an index: a tagged tuple, as version 1 writes it.

    Args:
        index: an int, slice, None, Ellipsis, range, list, tensor or array (with ``tolist``), or a tuple of these.
    """
    items = index if isinstance(index, tuple) else (index,)
    return ["tuple", [_dump_item(item) for item in items]]


def _dump_item(item: Any) -> Any:
    if item is None or type(item) is int:
        return item
    if item is Ellipsis:
        return ["ellipsis"]
    if isinstance(item, slice):
        return ["slice", {"start": item.start, "stop": item.stop, "step": item.step}]
    if isinstance(item, range):
        return ["range", {"start": item.start, "stop": item.stop, "step": item.step}]
    if isinstance(item, Advanced):
        return ["tensor", item.values if isinstance(item.values, list) else list(item.values), "cpu"]
    if isinstance(item, list):
        return ["list", item]
    return ["tensor", item.tolist(), str(getattr(item, "device", "cpu"))]


def indexed_shape(shape: Sequence[int], index: Index, where: object) -> tuple[int, ...]:
    """The shape that indexing a tensor of `shape` gives, by the rules of torch and numpy.

    Pure arithmetic: nothing is allocated.

    Raises:
        DecodeError: ``index``: too many items, or a position outside the shape.

    Examples:
        >>> indexed_shape((4, 3, 2), (slice(1, 3), 0), "x")
        (2, 2)
        >>> indexed_shape((4, 3), parse_index(["tuple", [["tensor", [0, 2, 3], "cpu"]]], "x"), "x")
        (3, 3)
    """
    used = sum(_dims_of(item) for item in index if item is not None and item is not Ellipsis)
    if used > len(shape):
        raise _bad(where, shape)
    rest = len(shape) - used
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    result: list[int] = []
    advanced: list[tuple[int, ...]] = []
    places: list[int] = []
    dim = 0
    for item in index:
        if item is Ellipsis:
            result += shape[dim : dim + rest]
            dim += rest
        elif item is None:
            result.append(1)
        elif isinstance(item, slice):
            result.append(len(range(shape[dim])[item]))
            dim += 1
        elif isinstance(item, int):  # torch selects these first, so they do not part advanced items
            _check_position(item, shape[dim], where)
            dim += 1
        elif isinstance(item, Advanced):
            advanced.append(_advanced_shape(item, shape[dim : dim + _dims_of(item)], where))
            places.append(len(result))
            dim += _dims_of(item)
    if not places:
        return tuple(result)
    at = places[0] if places[0] == places[-1] else 0
    return tuple(result[:at]) + _broadcast(advanced, where, shape) + tuple(result[at:])


def _dims_of(item: Any) -> int:
    return len(item.shape) if isinstance(item, Advanced) and item.is_mask else 1


def _check_position(position: int, size: int, where: object) -> None:
    if not -size <= position < size:
        raise _bad(where, (size,))


def _advanced_shape(item: Advanced, dims: Sequence[int], where: object) -> tuple[int, ...]:
    if item.is_mask:
        if tuple(dims) != item.shape:
            raise _bad(where, dims)
        return (_count(item.values),)
    flat = item.values if isinstance(item.values, range) else _flat(item.values)
    ends = (flat[0], flat[-1]) if isinstance(flat, range) and flat else flat
    for position in ends:
        _check_position(position, dims[0], where)
    return tuple(item.shape)


def _flat(values: Any) -> list[Any]:
    return [leaf for part in values for leaf in _flat(part)] if isinstance(values, list) else [values]


def _count(values: Any) -> int:
    return sum(map(_count, values)) if isinstance(values, list) else int(values)


def _broadcast(shapes: list[tuple[int, ...]], where: object, of: Sequence[int]) -> tuple[int, ...]:
    size = max(map(len, shapes))
    result = []
    for dims in zip(*((1,) * (size - len(shape)) + shape for shape in shapes), strict=True):
        wide = {dim for dim in dims if dim != 1}
        if len(wide) > 1:
            raise _bad(where, of)
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _bad(where: object, shape: Sequence[int]) -> DecodeError:
    message = f"{where}: the stored index does not fit the source's shape {list(shape)}"
    return DecodeError(message, [Problem("index", message)])


def viewed_shape(shape: Sequence[int], op: str, kwargs: dict[str, Any], ndim: int, where: object) -> tuple[int, ...]:
    """The shape after a lazy view's operation on the first `ndim` dims of `shape`.

    Args:
        op: ``"permute"``, ``"transpose"``, ``"view"``, ``"unsqueeze"`` or ``"squeeze"``.
        kwargs: its arguments as saved.

    Raises:
        DecodeError: ``index``: the operation is unknown or does not fit.

    Examples:
        >>> viewed_shape((3, 2, 5), "permute", {"dims": [1, 0]}, 2, "x")
        (2, 3, 5)
        >>> viewed_shape((2, 3, 5), "view", {"size": [-1]}, 2, "x")
        (6, 5)
    """
    batch, rest = list(shape[:ndim]), tuple(shape[ndim:])
    try:
        if op == "permute":
            dims = [dim % ndim for dim in kwargs["dims"]]
            if sorted(dims) == list(range(ndim)):
                return tuple(batch[dim] for dim in dims) + rest
        elif op == "transpose":
            a, b = _dim(kwargs["dim0"], ndim), _dim(kwargs["dim1"], ndim)
            batch[a], batch[b] = batch[b], batch[a]
            return tuple(batch) + rest
        elif op == "view":
            return _reshaped(batch, list(kwargs["size"])) + rest
        elif op == "unsqueeze":
            batch.insert(_dim(kwargs["dim"], ndim + 1), 1)
            return tuple(batch) + rest
        elif op == "squeeze":
            dim = _dim(kwargs["dim"], ndim)
            return tuple(batch[:dim] + batch[dim + (batch[dim] == 1) :]) + rest
    except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError):
        pass
    message = f"{where}: the operation of the lazy view cannot be applied: {shown(op)} {shown(kwargs)} to {list(shape)}"
    raise DecodeError(message, [Problem("index", message)])


def _dim(value: Any, ndim: int) -> int:
    if type(value) is not int or not -ndim <= value < ndim:
        raise ValueError(value)
    return value % ndim


def _reshaped(batch: list[int], size: list[int]) -> tuple[int, ...]:
    total = math.prod(batch)
    if size.count(-1) == 1:
        known = -math.prod(size)
        size[size.index(-1)] = total // known if known else 0
    if any(type(n) is not int or n < 0 for n in size) or math.prod(size) != total:
        raise ValueError(size)
    return tuple(size)

"""This module knows how a non-tensor value is replaced in the meta.json that holds it.

It does not know tensors, and changes nothing by itself: it makes the new bytes of the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from tdview.errors import EditRefusedError, shown
from tdview.format.meta import META_LIMIT, parse_json
from tdview.format.payload import META
from tdview.operations.region import Layout
from tdview.tree.derived import StackedNode
from tdview.tree.node import Node
from tdview.tree.non_tensor import ValueNode

__all__ = ["ValueChange", "change_value", "field_value", "pick"]

_STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"separators": (",", ":"), "ensure_ascii": False},
)
"""How meta.json files in the wild are written: by json, by json compactly, by orjson."""
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class ValueChange:
    """The file that holds a value, with its bytes before and after."""

    name: str
    field: str
    """Entry of the JSON object."""
    index: tuple[Any, ...]
    """Positions in the nested lists of a non-tensor stack; ``()`` for a whole value."""
    old: bytes
    new: bytes


def change_value(node: Node, index: Any, value: object) -> ValueChange:
    """The change that puts `value` into a non-tensor.

    Args:
        node: a non-tensor, a stack of them, or a field of a tensorclass.
        index: of a stack, the positions of one value, or slices for several that all become `value`; of a single
            value ``()`` or Ellipsis.
        value: what JSON holds: str, int, float, bool, None, lists and dicts of them with str keys. A tuple becomes
            a list, as in tensordict.

    Raises:
        EditRefusedError: JSON cannot hold the value, or the saved one is a pickle.
    """
    name, field = _place(node)
    old = node.store.read(name, META_LIMIT)
    fields = parse_json(old, node.where(META))
    if field not in fields or (node.kind == "non_tensor_stack" and not isinstance(fields[field], list)):
        raise EditRefusedError("the value is not in the meta.json: a pickle is never rewritten")
    new_value = _json_value(value, 0)
    style = next((style for style in _STYLES if json.dumps(fields, **style).encode("utf-8", "replace") == old), {})
    if node.kind == "non_tensor_stack":
        items = Layout.contiguous(node.batch_size or (), 1).normalize(index)
        _assign(fields[field], items, new_value)
    else:
        if index not in ((), Ellipsis, None, (Ellipsis,)):
            raise EditRefusedError("a single value has no index; give ()")
        items = ()
        fields[field] = new_value
    try:
        new = json.dumps(fields, **style).encode()
    except UnicodeEncodeError:
        raise EditRefusedError(f"{shown(value)} holds a lone surrogate, which this file cannot") from None
    return ValueChange(name, field, items, old, new)


def field_value(data: bytes, field: str, index: tuple[Any, ...]) -> Any:
    """The value at `index` of an entry, in the bytes of a meta.json."""
    value = parse_json(data, META).get(field)
    return pick(value, index)


def _place(node: Node) -> tuple[str, str]:
    if isinstance(node, ValueNode):
        return node.file(META), node.key
    if isinstance(node, StackedNode):
        raise EditRefusedError("the value is spread over the members of a stack; edit it in each member")
    return node.file(META), "data"


def pick(value: Any, index: tuple[Any, ...]) -> Any:
    """The value at some positions of nested lists."""
    if not index:
        return value
    first, rest = index[0], index[1:]
    if isinstance(first, int):
        return pick(value[first], rest)
    chosen = value[first] if isinstance(first, slice) else [value[position] for position in first]
    return [pick(part, rest) for part in chosen]


def _assign(data: list[Any], items: tuple[Any, ...], value: Any) -> None:
    first, rest = items[0], items[1:]
    positions = range(len(data))[first] if isinstance(first, slice) else (first,) if isinstance(first, int) else first
    for position in positions:
        if rest:
            _assign(data[position], rest, value)
        else:
            data[position] = value


def _json_value(value: object, depth: int) -> Any:
    """`value` in the types that JSON gives back, so that what is read later equals what was given."""
    if depth > _DEEPEST:
        raise EditRefusedError(f"the value is nested deeper than {_DEEPEST}")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (list, tuple)):
        return [_json_value(part, depth + 1) for part in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise EditRefusedError(f"{shown(value)} has keys that are no text, which JSON cannot hold")
        return {str(key): _json_value(part, depth + 1) for key, part in value.items()}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    item = getattr(value, "item", None)
    if item is not None and math.prod(getattr(value, "shape", (2,))) == 1:
        return _json_value(item(), depth + 1)
    raise EditRefusedError(f"{shown(value)} is of type {type(value).__name__}, which JSON cannot hold")

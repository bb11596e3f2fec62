"""This module knows the values of non-tensors: in JSON, in a pickle that is decoded but never executed, or missing.

It does not know how a pickle's opcodes are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tdview.errors import DecodeError, KeyMissingError, MissingFileError, PickleRefusedError, Problem
from tdview.format.classes import Kind
from tdview.format.pickles import PICKLE_LIMIT, safe_loads
from tdview.tree.node import Node

__all__ = ["FIELD_ENTRIES", "ValueNode", "field_nodes", "pickled_fields", "value_of"]

FIELD_ENTRIES = frozenset({"_type", "_class", "_format_version", "_metadata", "_is_non_tensor", "_names", "batch_size"})
"""Entries of a tensorclass's meta.json that are not fields."""


class ValueNode(Node):
    """A field of a tensorclass whose value stands in the tensorclass's own meta.json or pickle."""

    def __init__(self, above: Node, key: str, value: Any = None, error: Exception | None = None) -> None:
        super().__init__(above.store, above.prefix, path=(*above.path, key), parent=above, type_name="NonTensorData")
        self._value, self._error = value, error

    @property
    def meta(self) -> None:
        return None

    @property
    def kind(self) -> Kind:
        return "non_tensor"

    @property
    def value(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def problems(self) -> tuple[Problem, ...]:
        return ()


def value_of(node: Node) -> Any:
    """The value of a non-tensor node; see `Node.value`. Spec: "Non-tensor data"."""
    if node.meta is None:
        problems = node._read[1]
        raise DecodeError(problems[0].message if problems else f"{node.where()}: the value is missing", problems)
    fields = node.meta.fields
    if node.kind == "non_tensor":
        if "data" in fields:
            return fields["data"]
        return _pickled(node)
    if node.kind == "non_tensor_stack":
        data = fields.get("data")
        if data == "pickle.pkl":
            return safe_loads(_read(node, "pickle.pkl"), node.where("pickle.pkl"))
        if isinstance(data, list):
            return data
        if "stack_dim" in fields and data is None and node.store.is_level(node.file("0")):
            return _members(node)
        raise _missing(node, 'the meta.json of a non-tensor stack must have a list of values in "data"')
    raise KeyMissingError(f"{node.where()}: this is a {node.kind}, which has no value; take one of its entries")


def _members(node: Node) -> list[Any]:
    """The values of a non-tensor stack that was saved as a lazy stack of its members, as old versions did."""
    below = sorted((name for name in node.store.listing(node.prefix).levels if name.isdigit()), key=int)
    return [Node(node.store, node.file(name), path=(*node.path, name), parent=node).value for name in below]


def _pickled(node: Node) -> Any:
    fields = pickled_fields(node)
    if "data" not in fields:
        raise _missing(node, 'the value is neither in "data" of meta.json nor in other.pickle')
    return fields["data"]


def pickled_fields(node: Node) -> dict[str, Any]:
    """What the other.pickle of a level holds.

    Raises:
        MissingFileError: there is none.
        PickleRefusedError: it holds more than the allow-list.
    """
    where = node.where("other.pickle")
    try:
        fields = safe_loads(_read(node, "other.pickle"), where)
    except MissingFileError:
        raise _missing(node, "the value is not in meta.json, and there is no other.pickle") from None
    if not isinstance(fields, dict):
        raise _missing(node, "other.pickle does not hold a dict of fields")
    return fields


def _read(node: Node, name: str) -> bytes:
    return node.store.read(node.file(name), PICKLE_LIMIT)


def _missing(node: Node, what: str) -> DecodeError:
    message = f"{node.where()}: {what}"
    return DecodeError(message, [node.problem("missing_value", message)])


def field_nodes(node: Node) -> Iterator[ValueNode]:
    """The fields of a tensorclass that are values in its own meta.json or pickle.

    Spec: "Tensorclasses"; saves of tensordict before 0.5 keep all non-tensor fields there.
    """
    fields = node.meta.fields if node.meta is not None else {}
    for key, value in fields.items():
        if key not in FIELD_ENTRIES:
            yield ValueNode(node, key, value)
    if "other.pickle" not in node.store.listing(node.prefix).files:
        return
    try:
        for key, value in pickled_fields(node).items():
            if type(key) is str and key not in FIELD_ENTRIES:
                yield ValueNode(node, key, value)
    except (DecodeError, PickleRefusedError):
        return  # which fields it holds is not known without executing it: the level says so as a problem

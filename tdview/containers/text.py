"""This module knows how a container reads in a terminal.

It does not know how to read a leaf: what is not mapped yet is shown without being mapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tdview.errors import shown

__all__ = ["container_text"]

_LIMIT = 200


def container_text(value: Any, indent: str = "") -> str:
    """A tree of keys, dtypes and trailing shapes::

    TensorDict(batch_size=[3], fields={
        next: {reward: float32[1]},
        obs: float32[4]})
    """
    parts = [f"batch_size={list(value.batch_size)}"]
    if value.device is not None:
        parts.append(f"device={value.device}")
    if any(name is not None for name in value.names):
        parts.append(f"names={value.names}")
    if (stack_dim := getattr(value, "stack_dim", None)) is not None:
        parts.append(f"stack_dim={stack_dim}")
    return f"{_class_name(value)}({', '.join(parts)}, fields={_fields(value, indent, value.ndim)})"


def _class_name(value: Any) -> str:
    return str(getattr(value, "_class_name", None) or type(value).__name__)


def _fields(value: Any, indent: str, ndim: int) -> str:
    lines = list(_lines(value, indent + "    ", ndim))
    if not lines:
        return "{}"
    if len(lines) == 1 and len(lines[0]) < 60:
        return "{" + lines[0] + "}"
    inner = f",\n{indent}    ".join(lines)
    return "{\n" + f"{indent}    {inner}" + "}"


def _lines(value: Any, indent: str, ndim: int) -> Iterator[str]:
    keys = sorted(value._keys())
    for key in keys[:_LIMIT]:
        name = key if key.isprintable() and key else shown(key)
        yield f"{name}: {_entry(value._peek(key), indent, ndim)}"
    if len(keys) > _LIMIT:
        yield f"… {len(keys) - _LIMIT} more"


def _entry(value: Any, indent: str, ndim: int) -> str:
    if getattr(value, "_is_value", False):
        return str(value._summary())
    if hasattr(value, "_keys"):
        return _fields(value, indent, value.ndim)
    if hasattr(value, "_tensordict"):
        return f"{_class_name(value)} {_fields(value._tensordict, indent, value.ndim)}"
    dtype = str(value.dtype).removeprefix("torch.")
    if getattr(value, "is_nested", False):
        return f"{dtype}[nested, {value.size(0)} parts]"
    return f"{dtype}{list(value.shape[ndim:])}"

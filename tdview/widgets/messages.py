"""This module knows the form of the messages between the kernel and a view, and makes values fit to travel.

It does not know what is asked nor how messages are sent; it mirrors `js/src/protocol.ts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tdview.errors import ArgumentError, Cancelled, TdviewError, shown, system_text

__all__ = [
    "Reply",
    "Request",
    "bool_arg",
    "clean",
    "error_message",
    "int_arg",
    "parse_request",
    "path_arg",
    "str_arg",
    "wire_text",
]

SAFE_INTEGER = 2**53
"""Above it a JavaScript number is not exact."""

MAX_ID = 100
MAX_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    value: Mapping[str, Any]
    """JSON; see `clean` for what is made of numbers and text that JSON cannot carry."""
    buffers: Sequence[bytes | bytearray | memoryview] = ()
    """C-contiguous bytes that travel beside the JSON, uncopied."""


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed message of a view."""

    id: str
    op: str
    args: dict[str, Any] = field(default_factory=dict)


def parse_request(content: object) -> Request:
    """The request in a custom message.

    Raises:
        ArgumentError: the message has not the form ``{id, op, args}``.
    """
    if not isinstance(content, dict):
        raise ArgumentError(f"message: expected an object, got {shown(content)}")
    ident, op, args = content.get("id"), content.get("op"), content.get("args", {})
    if not isinstance(ident, str) or not 0 < len(ident) <= MAX_ID:
        raise ArgumentError(f"message id: expected a string of 1 to {MAX_ID} characters, got {shown(ident)}")
    if not isinstance(op, str) or not op:
        raise ArgumentError(f"message op: expected the name of an operation, got {shown(op)}")
    if not isinstance(args, dict):
        raise ArgumentError(f"message args: expected an object, got {shown(args)}")
    return Request(ident, op, args)


def error_message(ident: object, error: BaseException) -> dict[str, Any]:
    """The answer that says why there is no answer: class of the tdview error as code, its text bounded."""
    code = type(error).__name__ if isinstance(error, TdviewError) else "internal"
    text = str(error) or type(error).__name__
    if isinstance(error, Cancelled):
        code, text = "cancelled", str(error) or "stopped"
    elif isinstance(error, OSError) and code == "internal":
        code, text = "system", system_text(error)
    elif code == "internal":
        text = f"{type(error).__name__}: {text}"
    text = wire_text(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")
    known = ident if isinstance(ident, str) and len(ident) <= MAX_ID else None
    known = None if known is None else wire_text(known)
    return {"id": known, "kind": "error", "error": {"code": code, "message": text}}


def wire_text(text: str) -> str:
    """`text` with lone surrogates escaped: keys may hold them, UTF-8 may not."""
    return text.encode("utf-8", "backslashreplace").decode()


def clean(value: Any) -> Any:
    """`value` as JSON that reaches JavaScript unchanged.

    Integers that a double cannot hold and non-finite floats become strings that `Number()` and `BigInt()` read
    (``"9007199254740993"``, ``"NaN"``, ``"-Infinity"``); text loses lone surrogates; tuples become lists.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return wire_text(value)
    if isinstance(value, int):
        return int(value) if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(int(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {wire_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    item = getattr(value, "item", None)  # a NumPy scalar
    if callable(item) and getattr(value, "shape", None) == ():
        return clean(item())
    return wire_text(str(value))


def path_arg(args: Mapping[str, Any], name: str = "path") -> tuple[str, ...]:
    """The nested key in ``args[name]``, ``()`` for the root."""
    value = args.get(name)
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise ArgumentError(f"{name}: expected a list of keys, got {shown(value)}")
    return tuple(value)


def int_arg(
    args: Mapping[str, Any], name: str, default: int | None = None, *, low: int = 0, high: int = SAFE_INTEGER
) -> int:
    """The integer in ``args[name]``, clamped to ``low .. high``.

    Raises:
        ArgumentError: it is no integer, or absent without a default.
    """
    value = args.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{name}: expected an integer, got {shown(value)}")
    return min(max(value, low), high)


def str_arg(args: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """The text in ``args[name]``."""
    value = args.get(name, default)
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: expected text, got {shown(value)}")
    return value


def bool_arg(args: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """The truth value in ``args[name]``."""
    value = args.get(name, default)
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: expected true or false, got {shown(value)}")
    return value

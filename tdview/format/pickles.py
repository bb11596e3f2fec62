"""This module knows how to read the values of a pickle without executing it.

It interprets the opcodes itself and builds only values of an allow-list (builtin containers and scalars,
``OrderedDict``, paths, sizes). It never imports or calls what a pickle names.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from tdview.errors import DecodeError, PickleRefusedError, Problem, shown

__all__ = ["PICKLE_LIMIT", "json_types", "safe_loads"]

PICKLE_LIMIT = 1 << 26
"""Largest pickle that is interpreted, in bytes."""

_MAX_VALUES = 2_000_000
_MAX_DEPTH = 200

_CLASSES: dict[tuple[str, str], type] = {
    **{("builtins", kind.__name__): kind for kind in (bool, bytes, complex, dict, float, int, list, set, str, tuple)},
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "range"): range,
    ("builtins", "slice"): slice,
    ("builtins", "NoneType"): type(None),
    ("collections", "OrderedDict"): OrderedDict,
}
_CLASSES |= {("__builtin__", "xrange"): range, ("__builtin__", "unicode"): str, ("__builtin__", "long"): int}
_CLASSES |= {("__builtin__", name): kind for (module, name), kind in _CLASSES.items() if module == "builtins"}


def _path(kind: type[PurePosixPath] | type[PureWindowsPath]) -> Callable[..., Any]:
    return lambda *parts: kind(*(_only(part, str) for part in parts))


def _only(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise _Refused(f"a call with a {type(value).__name__}")
    return value


def _container(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    """A constructor that takes what exists already: nothing, or one container; never a size to allocate."""
    return lambda *args: (
        kind(_only(args[0], list, tuple, set, frozenset, dict, bytes, OrderedDict)) if args else kind(())
    )


_NUMBER = (int, float, bool)
_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): _container(set),
    ("builtins", "frozenset"): _container(frozenset),
    ("builtins", "list"): _container(list),
    ("builtins", "tuple"): _container(tuple),
    ("builtins", "dict"): _container(dict),
    ("collections", "OrderedDict"): _container(OrderedDict),
    ("builtins", "complex"): lambda *args: complex(*(_only(a, *_NUMBER) for a in args)),
    ("builtins", "range"): lambda *args: range(*(_only(a, int) for a in args)),
    ("builtins", "slice"): lambda *args: slice(*(_only(a, int, type(None)) for a in args)),
    ("builtins", "bytearray"): lambda *args: bytearray(_bytes(*args)) if args else bytearray(),
    ("builtins", "bytes"): lambda *args: _bytes(*args) if args else b"",
    ("builtins", "type"): lambda *args: _none_type(*args),
    ("_codecs", "encode"): lambda text, codec="utf-8": _latin1(text, codec),
    ("torch", "Size"): _container(tuple),
    **{("pathlib", name): _path(PurePosixPath) for name in ("PosixPath", "PurePosixPath", "Path", "PurePath")},
    **{("pathlib", name): _path(PureWindowsPath) for name in ("WindowsPath", "PureWindowsPath")},
}
# Protocols 0 to 2 spell the names of Python 2.
_CALLS |= {("__builtin__", "xrange"): _CALLS["builtins", "range"]}
_CALLS |= {("__builtin__", name): call for (module, name), call in _CALLS.items() if module == "builtins"}
_CALLS |= {("pathlib._local", name): call for (module, name), call in _CALLS.items() if module == "pathlib"}


def _none_type(*args: Any) -> type:
    """The class of None is pickled as a call of `type`; nothing else is."""
    if args != (None,):
        raise _Refused("a call of 'builtins.type'")
    return type(None)


def _bytes(value: Any, codec: Any = None) -> bytes:
    if codec is not None:
        return _latin1(value, codec)
    return bytes(_only(value, bytes, bytearray))


def _latin1(text: Any, codec: Any) -> bytes:
    if _only(codec, str) not in ("latin1", "latin-1", "utf-8"):
        raise _Refused("an unusual codec")
    return str(_only(text, str)).encode(codec)


class _Refused(Exception):
    """Inside this module: the pickle asks for more than the allow-list."""


class _Global:
    """A name that a pickle refers to. Called, it must be in `_CALLS`; as a value, in `_CLASSES`."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def call(self, args: Any) -> Any:
        constructor = _CALLS.get((self.module, self.name))
        if constructor is None:
            raise _Refused(f"a call of {shown(f'{self.module}.{self.name}')}")
        return constructor(*_only(args, tuple))


_MARK = object()


def safe_loads(data: bytes, where: object) -> Any:
    """The value of a pickle, built without executing anything.

    Args:
        data: the bytes of the pickle.
        where: the file, for messages.

    Returns:
        The value. Paths come back as pure paths, ``torch.Size`` as a tuple.

    Raises:
        PickleRefusedError: it names a class or function that is not on the allow-list, or is too large.
        DecodeError: ``pickle_present``: it is no pickle.

    Examples:
        >>> import pickle
        >>> safe_loads(pickle.dumps({"a": {1, 2}, "b": (1 + 2j)}), "x") == {"a": {1, 2}, "b": (1 + 2j)}
        True
    """
    if len(data) > PICKLE_LIMIT:
        raise PickleRefusedError(
            f"{where}: the pickle has {len(data)} bytes, more than the {PICKLE_LIMIT} that are read"
        )
    try:
        value = _plain(_interpret(data))
        _check_size(value)
    except _Refused as refused:
        raise PickleRefusedError(
            f"{where}: the pickle is not executed: it contains {refused}; pass allow_pickle=True where you trust it"
        ) from None
    except (RecursionError, MemoryError):
        raise PickleRefusedError(f"{where}: the pickle is not executed: it is nested too deeply or too large") from None
    except Exception as error:  # pickletools and the constructors raise whatever the bytes provoke
        message = f"{where}: this is no readable pickle: {type(error).__name__}: {str(error)[:100]}"
        raise DecodeError(message, [Problem("pickle_present", message)]) from None
    return value


def json_types(data: bytes, pickle: bytes) -> dict[str, str] | None:
    """Names of the classes that a json_types.json records for its pickle; None if it belongs to another one.

    Spec: "Non-tensor data".
    """
    try:
        record = json.loads(data)
        if record["pickle_sha256"] != hashlib.sha256(pickle).hexdigest():
            return None
        types = record["types"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return types if isinstance(types, dict) and all(isinstance(v, str) for v in types.values()) else None


def _interpret(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for made, (opcode, arg, _position) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if made >= _MAX_VALUES:
            raise _Refused(f"more than {_MAX_VALUES} operations")
        if name in _PUSH_ARGUMENT:
            stack.append(arg)
        elif name in _PUT:
            memo[len(memo) if name == "MEMOIZE" else _memo_index(arg)] = stack[-1]
        elif name in _GET:
            stack.append(memo[_memo_index(arg)])
        elif name == "STOP":
            return stack.pop()
        elif name in _ACTIONS:
            _ACTIONS[name](stack)
        elif name == "GLOBAL":
            stack.append(_Global(*str(arg).split(" ", 1)))
        elif name not in _IGNORED:
            raise _Refused(f"the operation {name}")
    raise ValueError("the pickle does not end")


def _memo_index(arg: Any) -> int:
    return int(arg)


def _pop_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    items.reverse()
    return items


def _tuple_of(count: int) -> Callable[[list[Any]], None]:
    def make(stack: list[Any]) -> None:
        items = tuple(stack[len(stack) - count :])
        del stack[len(stack) - count :]
        stack.append(items)

    return make


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {_plain_key(items[i]): items[i + 1] for i in range(0, len(items), 2)}


def _plain_key(key: Any) -> Any:
    return _plain(key) if isinstance(key, _Global) else key


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _only(stack[-1], dict, OrderedDict)[_plain_key(key)] = value


def _set_items(stack: list[Any]) -> None:
    pairs = _pairs(_pop_mark(stack))
    _only(stack[-1], dict, OrderedDict).update(pairs)


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    _only(stack[-1], list).append(value)


def _appends(stack: list[Any]) -> None:
    items = _pop_mark(stack)
    _only(stack[-1], list).extend(items)


def _add_items(stack: list[Any]) -> None:
    items = _pop_mark(stack)
    _only(stack[-1], set).update(items)


def _stack_global(stack: list[Any]) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(_Global(_only(module, str), _only(name, str)))


def _reduce(stack: list[Any]) -> None:
    args, function = stack.pop(), stack.pop()
    stack.append(_only(function, _Global).call(args))


_PUSH_ARGUMENT = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
    ]
)
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_IGNORED = frozenset(("PROTO", "FRAME"))
_ACTIONS: dict[str, Callable[[list[Any]], object]] = {
    "NONE": lambda stack: stack.append(None),
    "NEWTRUE": lambda stack: stack.append(True),
    "NEWFALSE": lambda stack: stack.append(False),
    "MARK": lambda stack: stack.append(_MARK),
    "POP": lambda stack: stack.pop(),
    "POP_MARK": _pop_mark,
    "DUP": lambda stack: stack.append(stack[-1]),
    "EMPTY_LIST": lambda stack: stack.append([]),
    "EMPTY_TUPLE": lambda stack: stack.append(()),
    "EMPTY_DICT": lambda stack: stack.append({}),
    "EMPTY_SET": lambda stack: stack.append(set()),
    "LIST": lambda stack: stack.append(_pop_mark(stack)),
    "TUPLE": lambda stack: stack.append(tuple(_pop_mark(stack))),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "DICT": lambda stack: stack.append(_pairs(_pop_mark(stack))),
    "FROZENSET": lambda stack: stack.append(frozenset(_pop_mark(stack))),
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPEND": _append,
    "APPENDS": _appends,
    "ADDITEMS": _add_items,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
}


def _plain(value: Any, depth: int = 0, done: dict[int, Any] | None = None) -> Any:
    """`value` with every reference to a class resolved by the allow-list."""
    done = {} if done is None else done
    if depth > _MAX_DEPTH:
        raise _Refused("values nested too deeply, or in a circle")
    if isinstance(value, _Global):
        if (value.module, value.name) not in _CLASSES:
            raise _Refused(f"the name {shown(f'{value.module}.{value.name}')}")
        return _CLASSES[value.module, value.name]
    if id(value) in done:
        return done[id(value)][1]
    if type(value) in (dict, OrderedDict):
        for key in value:
            value[key] = _plain(value[key], depth + 1, done)
        result = value
    elif type(value) is list:
        value[:] = [_plain(item, depth + 1, done) for item in value]
        result = value
    elif type(value) is tuple:
        result = tuple(_plain(item, depth + 1, done) for item in value)
    elif type(value) in (set, frozenset):
        result = type(value)(_plain(item, depth + 1, done) for item in value)
    else:
        return value
    done[id(value)] = (value, result)  # keeps the object alive, so that its id stays its own
    return result


def _check_size(value: Any) -> None:
    """Refuses a small pickle whose shared parts unfold to an enormous value."""
    weights: dict[int, int] = {}

    def weigh(item: Any) -> int:
        if type(item) in (dict, OrderedDict):
            parts = [*item.keys(), *item.values()]
        elif type(item) in (list, tuple, set, frozenset):
            parts = list(item)
        else:
            return 1
        if id(item) not in weights:
            weights[id(item)] = 1 + sum(weigh(part) for part in parts)
            if weights[id(item)] > _MAX_VALUES:
                raise _Refused(f"more than {_MAX_VALUES} values")
        return weights[id(item)]

    weigh(value)

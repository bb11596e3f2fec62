"""This module knows how edits travel to another copy of a save: as a runnable script, or as a guarded patch.

It does not know how an edit is made.

A patch is JSON in the form of RFC 6902: for each edit a ``test`` of the old value and a ``replace`` by the new one.
Beside the JSON pointer each step names the nested key, the index and the dtype, which a pointer cannot say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tdview.errors import ArgumentError, ConcurrentWriteError, EditRefusedError, TdviewError, shown
from tdview.operations.edits import Edit, index_from_json, index_to_json
from tdview.operations.region import index_text
from tdview.operations.values import decode_block, encode_block, itemsize, text

if TYPE_CHECKING:
    from tdview.operations.edit import Editor

__all__ = ["apply_patch", "patch_of", "script_of"]

_LONGEST_COMMENT = 60


def script_of(editor: Editor) -> str:
    """The edits of a save as a Python script that makes them again, in the save or in another copy.

    Values are written as exact numbers or as text that reads back exactly; only the payload bits of NaN are not kept.
    """
    name = str(editor.root.store.location)
    lines = [
        f'"""Edits of {shown(editor.root.store.location.name)[1:-1]}, written by tdview.',
        "",
        "Run it with the path of the save to edit; without one it edits the save that it was written from.",
        '"""',
        "",
        "import sys",
        "",
        "import tdview",
        "",
        f"editor = tdview.Editor(sys.argv[1] if len(sys.argv) > 1 else {name!r})",
    ]
    for edit in editor.edits:
        was = shown(edit.old, _LONGEST_COMMENT) if edit.nbytes <= 4096 else f"{edit.nbytes} bytes"
        value = repr(_value_of(edit, edit.new_bytes))
        lines.append(f"editor.edit({edit.path!r}, {_index_code(edit.index)}, {value})  # was {was}")
    lines.append("editor.refresh_checksums()")
    return "\n".join(lines) + "\n"


def patch_of(editor: Editor) -> list[dict[str, Any]]:
    """The edits of a save as a JSON patch; `apply_patch` makes them in another copy.

    Returns:
        JSON-able steps, ``test`` and ``replace`` by turns, oldest edit first.
    """
    steps = []
    for edit in editor.edits:
        place = {
            "path": _pointer(edit),
            "key": list(edit.path),
            "index": index_to_json(edit.index),
            "dtype": edit.dtype,
        }
        steps.append({"op": "test", **place, "value": _value_of(edit, edit.old_bytes)})
        steps.append({"op": "replace", **place, "value": _value_of(edit, edit.new_bytes)})
    return steps


def apply_patch(editor: Editor, patch: Any) -> int:
    """Makes the edits of a patch in another copy, all of them or none.

    Args:
        editor: of the copy.
        patch: what `patch_of` gave, also after a way through a JSON file.

    Returns:
        Number of edits that were made. Each can be undone by itself.

    Raises:
        ConcurrentWriteError: a tested value is another one here, or a leaf has another dtype.
        EditRefusedError: a value or index does not fit.
        ArgumentError: this is no patch.
    """
    steps = [_checked_step(step) for step in patch] if isinstance(patch, list) else None
    if steps is None:
        raise ArgumentError(f"a patch is a list of steps, got {shown(patch)}")
    done = 0
    try:
        for step in steps:
            key, index = tuple(step["key"]), index_from_json(step["index"])
            if step["op"] == "test":
                _test(editor, key, index, step)
            else:
                editor.edit(key, index, step["value"])
                done += 1
    except TdviewError:
        for _ in range(done):
            editor.undo()
        raise
    return done


def _checked_step(step: Any) -> dict[str, Any]:
    if not isinstance(step, dict) or step.get("op") not in ("test", "replace") or "value" not in step:
        raise ArgumentError(f'expected a step with "op" test or replace and a "value", got {shown(step)}')
    key = step.get("key")
    if not isinstance(key, list) or not all(isinstance(part, str) for part in key) or "index" not in step:
        raise ArgumentError(f'expected a step with a "key" and an "index", got {shown(step)}')
    return step


def _test(editor: Editor, key: tuple[str, ...], index: tuple[Any, ...], step: dict[str, Any]) -> None:
    where = f"{'.'.join(key)}[{index_text(index)}]"
    dtype, now = editor.read(key, index)
    if dtype != step.get("dtype"):
        raise ConcurrentWriteError(f"{where}: the dtype is {dtype}, the patch is for {shown(step.get('dtype'))}")
    if dtype is None:
        same = now == step["value"]
    else:
        shape = _shape_of(step["value"], len(now) // itemsize(dtype))
        same = _canonical(dtype, now) == encode_block(dtype, step["value"], shape)
    if not same:
        raise ConcurrentWriteError(f"{where}: the value is not {shown(step['value'], 40)}, which the patch replaces")


def _canonical(dtype: str, data: bytes) -> bytes:
    """The bytes with one pattern for NaN and one for True, as a value that went through text has them."""
    count = len(data) // itemsize(dtype)
    return encode_block(dtype, decode_block(dtype, data, (count,)), (count,))


def _shape_of(value: Any, count: int) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    if math.prod(shape) != count:
        raise EditRefusedError(f"a block of shape {shape} does not fit; expected {count} elements")
    return tuple(shape)


def _value_of(edit: Edit, data: bytes) -> Any:
    """A value as JSON: exact integers and truth values, floats as numbers where JSON has them, the rest as text."""
    if edit.dtype is None:
        return edit.old if data == edit.old_bytes else _filled(edit)
    dtype, size = edit.dtype, itemsize(edit.dtype)
    flat = [_json_number(dtype, data[i : i + size]) for i in range(0, len(data), size)]
    return _nest(flat, edit.shape)


def _filled(edit: Edit) -> Any:
    """The one value that an edit put at all its places in a stack of non-tensors."""
    value = edit.new
    for item in edit.index:
        value = value if isinstance(item, int) else value[0]
    return value


def _json_number(dtype: str, data: bytes) -> Any:
    value = text(dtype, data)
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    step = math.prod(shape[1:])
    return [_nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _pointer(edit: Edit) -> str:
    parts = [*edit.path, *(index_text((item,)) for item in edit.index)]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _index_code(index: tuple[Any, ...]) -> str:
    items = [list(item) if isinstance(item, tuple) else item for item in index]
    return f"({', '.join(map(repr, items))}{',' if len(items) == 1 else ''})"

"""This module knows which files of a directory belong to the save in it, and what an interrupted append left there.

It changes nothing, and it does not look into directories that the save does not name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tdview.errors import DecodeError
from tdview.format.dtypes import dtype_of
from tdview.format.keys import file_names
from tdview.format.meta import META_LIMIT, parse_json
from tdview.format.payload import META, check_shape, payload_file, payload_nbytes, shape_file

__all__ = ["APPEND_TMP", "AppendState", "inspect_append", "level_fields", "level_paths", "names_level", "owned_files"]

APPEND_TMP = ".meta.json.append.tmp"
"""The new ``meta.json`` of a level while an append is under way. Spec: `append_memmap`."""

_SIDE_FILES = (META, "other.pickle", "pickle.pkl", "json_types.json", APPEND_TMP)
_MAX_DEPTH = 200


# the levels of a save ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Level:
    """One directory of a save as it lies there."""

    path: str
    """``/``-joined path below the save, ``""`` for the save itself."""
    fields: dict[str, Any]
    """Its ``meta.json``; empty where that is missing or damaged."""
    files: frozenset[str]
    levels: frozenset[str]


def level_paths(root: Path) -> Iterator[Level]:
    """The directories that belong to the save in `root`, parents first.

    A nested level counts if the ``meta.json`` above it names it, as an entry, a member of a lazy stack, a tensorclass's
    ``_tensordict`` or a view's ``_source``. Other directories, such as another save that is kept below this one, do
    not, and neither do links.
    """
    todo = [("", 0)]
    while todo:
        path, depth = todo.pop()
        directory = root / path if path else root
        files, levels = _listing(directory)
        fields = _fields(directory / META) if META in files else {}
        yield Level(path, fields, files, levels)
        if depth < _MAX_DEPTH:
            named = [name for name in _named_levels(fields, levels) if name in levels]
            todo += [(f"{path}/{name}" if path else name, depth + 1) for name in reversed(named)]


def _listing(directory: Path) -> tuple[frozenset[str], frozenset[str]]:
    files, levels = set(), set()
    try:
        with os.scandir(directory) as found:
            for entry in found:
                if entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    levels.add(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    return frozenset(files), frozenset(levels)


def level_fields(directory: Path) -> dict[str, Any]:
    """The ``meta.json`` of a directory; empty where there is none, or a damaged one."""
    return _fields(directory / META)


def names_level(fields: dict[str, Any], name: str) -> bool:
    """Whether a ``meta.json`` names the directory `name` beside it as a level of its save."""
    if "stack_dim" in fields and name.isdigit():
        return True
    return name in _named_levels(fields, frozenset())


def _fields(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(META_LIMIT + 1)
        return parse_json(data, path) if len(data) <= META_LIMIT else {}
    except (OSError, DecodeError):
        return {}


def _named_levels(fields: dict[str, Any], levels: frozenset[str]) -> Iterator[str]:
    for key, entry in fields.items():
        if isinstance(entry, dict) and "type" in entry:
            yield from file_names(key)
    if "_type" in fields:
        yield "_tensordict"
        if "index" in fields or "custom_op" in fields:
            yield "_source"
    if "stack_dim" in fields:
        member = 0
        while str(member) in levels:
            yield str(member)
            member += 1


def owned_files(root: Path) -> list[str]:
    """Files in `root` that belong to the save there, ``/``-joined and relative: what a new save would make stale.

    Files of the format that no ``meta.json`` names are not listed, nor are files of any other kind.
    """
    out = []
    for level in level_paths(root):
        names = {name for name in _SIDE_FILES if name in level.files}
        for key, entry in level.fields.items():
            if isinstance(entry, dict) and "dtype" in entry and "shape" in entry:
                for name in file_names(key):
                    names |= {payload_file(name), shape_file(name)} & level.files
        out += [f"{level.path}/{name}" if level.path else name for name in sorted(names)]
    return out


# an interrupted append --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendState:
    """An interrupted append, and how it is ended."""

    action: Literal["complete", "discard"]
    temporaries: tuple[str, ...]
    """The temporary files, relative to the save; ended in this order, so that a kill can be followed by a retry."""
    reason: str
    """Why this and not the other, for a message."""


def inspect_append(root: Path) -> AppendState | None:
    """What an interrupted append left in the save in `root`, None if nothing. Changes nothing.

    The rule of the specification: while the temporary file of the top level is there, no ``meta.json`` was replaced,
    so the append is taken back; without it the append is completed. Hardened against stray temporaries of an older
    save: completing needs every temporary to describe the very level it lies in, with the top level's rows, and
    payloads that hold them.

    Spec: `append_memmap`.
    """
    levels = {level.path: level for level in level_paths(root)}
    found = [path for path, level in levels.items() if APPEND_TMP in level.files]
    if not found:
        return None
    top = top_path(levels[""])
    names = tuple(_join(path, APPEND_TMP) for path in found)
    if top in found:
        # The top goes last: as long as it is there, a second look comes to the same result.
        last = _join(top, APPEND_TMP)
        ordered = (*(name for name in names if name != last), last)
        return AppendState("discard", ordered, "no meta.json was replaced yet")
    rows = _rows(levels[top].fields) if top in levels else None
    for path in found:
        fault = _misfit(root, levels[path], rows)
        if fault is not None:
            return AppendState("discard", names, f"{_join(path, APPEND_TMP)}: {fault}")
    return AppendState("complete", names, "the top meta.json is replaced already")


def top_path(root: Level) -> str:
    """The level whose ``meta.json`` an append replaces first: ``_tensordict`` for a tensorclass."""
    is_class = "shape" not in root.fields and "stack_dim" not in root.fields and "_type" in root.fields
    return "_tensordict" if is_class and "_tensordict" in root.levels else ""


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _rows(fields: dict[str, Any]) -> int | None:
    shape = check_shape(fields.get("shape"))
    return shape[0] if shape else None


def _misfit(root: Path, level: Level, rows: int | None) -> str | None:
    """Why a temporary file cannot be the next ``meta.json`` of its level, None if it can."""
    fields = _fields(root / _join(level.path, APPEND_TMP))
    if not fields:
        return "it is incomplete"
    if rows is None or _rows(fields) != rows:
        return f"it has {_rows(fields)} rows, the top level {rows}"
    if list(fields) != list(level.fields):
        return "its keys are not those of the meta.json beside it"
    for key, new in fields.items():
        old = level.fields[key]
        if isinstance(new, dict) and "dtype" in new and "shape" in new:
            fault = _leaf_misfit(root, level, key, old, new)
            if fault is not None:
                return fault
        elif key == "shape":
            if not isinstance(old, list) or old[1:] != new[1:]:
                return "its batch size is not that of the meta.json beside it"
        elif new != old:
            return f"its entry {key[:80]!r} is not that of the meta.json beside it"
    return None


def _leaf_misfit(root: Path, level: Level, key: str, old: object, new: dict[str, Any]) -> str | None:
    shape, dtype = check_shape(new["shape"]), dtype_of(new["dtype"])
    if not isinstance(old, dict) or {**old, "shape": None} != {**new, "shape": None}:
        return f"its entry {key[:80]!r} has another dtype than the meta.json beside it"
    before = check_shape(old.get("shape"))
    if shape is None or before is None or dtype is None or shape[1:] != before[1:]:
        return f"its entry {key[:80]!r} has another shape than the meta.json beside it"
    needed = payload_nbytes(dtype.itemsize, shape)
    for name in file_names(key):
        if payload_file(name) in level.files:
            size = os.stat(root / _join(level.path, payload_file(name))).st_size
            return f"the payload of {key[:80]!r} has {size} bytes, it needs {needed}" if size < needed else None
    return None if needed == 0 else f"the payload of {key[:80]!r} is missing"

"""This module knows what the meta.json of a level says, and how to write one.

It does not know which of the files that it names exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tdview.errors import DecodeError, Problem, shown
from tdview.format.classes import CLASS_NAMES, Kind, class_kind, class_parts
from tdview.format.dtypes import dtype_of
from tdview.format.payload import check_shape
from tdview.format.versions import FORMAT_VERSION, RESERVED_KEYS, version_of

__all__ = [
    "META_LIMIT",
    "Entry",
    "LeafEntry",
    "LevelMeta",
    "NestedEntry",
    "dump_json",
    "leaf_json",
    "parse_json",
    "parse_level",
    "tensordict_json",
]

META_LIMIT = 1 << 28
"""Largest meta.json that is read, in bytes: a million strings of a non-tensor stack take about 20 MB."""


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """The entry of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    """As stored: of a nested tensor the shape ``[n, ndim]`` of its sizes; ``()`` where it is malformed."""
    device: str = "cpu"
    is_nested: bool = False
    problem: tuple[str, str] | None = None
    """Code and message where the entry itself is damaged, so that the payload cannot be read."""


@dataclass(frozen=True, slots=True)
class NestedEntry:
    """The entry of a nested collection."""

    type_name: str
    """``__name__`` of its class; the class itself is in the meta.json of the level."""


Entry = LeafEntry | NestedEntry


@dataclass(frozen=True)
class LevelMeta:
    """What one meta.json says. Its entries are decoded when they are asked for."""

    kind: Kind
    class_parts: tuple[str, str] | None
    """Module and qualified name of the class."""
    batch_size: tuple[int, ...] | None
    names: tuple[str | None, ...] | None
    device: str | None
    version: int | None
    """Format version; 0 where there is no entry, None where it is no version at all."""
    fields: dict[str, Any]
    """The whole JSON object."""
    where: str
    """The file, for messages."""
    head_problems: tuple[Problem, ...] = ()
    """Problems of all but the entries."""

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The tensors and nested collections by key, in the order of the file; empty but for a tensordict."""
        return dict(_entries(self.fields, self.where)) if self.kind == "tensordict" else {}

    @property
    def names_no_levels(self) -> bool:
        """Whether tensordict before 0.4 wrote it: only tensors have entries, and those lack ``"is_nested"``."""
        if self.kind != "tensordict" or "_format_version" in self.fields:
            return False
        entries = [entry for entry in self.fields.values() if isinstance(entry, dict)]
        return all("dtype" in entry and "is_nested" not in entry and "type" not in entry for entry in entries)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Own problems of this file; the keys are relative to its level."""
        skipped = _skipped_entries(self.fields, self.where) if self.kind == "tensordict" else ()
        return (*self.head_problems, *skipped)


def parse_json(data: bytes, where: object) -> dict[str, Any]:
    """The JSON object in a meta.json.

    Raises:
        DecodeError: ``json``: it is no JSON, nested too deeply, or no object.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise _json_error(where, "the JSON is nested too deeply to be read") from None
    except (ValueError, UnicodeError) as error:
        raise _json_error(where, f"this is no JSON: {str(error)[:120]}") from None
    if not isinstance(value, dict):
        raise _json_error(where, f"expected a JSON object, got {type(value).__name__} {shown(value, 40)}")
    return value


def _json_error(where: object, what: str) -> DecodeError:
    message = f"{where}: {what}"
    return DecodeError(message, [Problem("json", message)])


def parse_level(data: bytes, where: object, *, has_tensordict: bool = False) -> LevelMeta:
    """Reads the meta.json of a level. What is damaged becomes a problem, so that the rest stays readable.

    Args:
        data: the bytes of the file.
        where: the file, for messages.
        has_tensordict: whether the level holds a ``_tensordict`` level, as a tensorclass does.

    Raises:
        DecodeError: ``json``: it is no JSON object.

    Spec: "A saved tensordict", "Lazy stacks and views", "Tensorclasses".
    """
    fields = parse_json(data, where)
    problems: list[Problem] = []
    parts = class_parts(fields.get("_class"), fields.get("_type"))
    kind = class_kind(parts)
    if kind is None:
        kind = _kind_by_structure(fields, has_tensordict)
        if parts is None and kind != "tensorclass":
            what = f'{where}: there is no class: expected "_class" or "_type", got {shown(fields.get("_type"))}'
            problems.append(Problem("unknown_class", what))
        elif kind == "tensordict":
            what = f"{where}: the class {shown(':'.join(parts or ()))} is not known; read as a TensorDict"
            problems.append(Problem("unknown_class", what, "note"))
    version = 0 if kind == "tensorclass" else version_of(fields.get("_format_version"))
    if version is None:
        what = f'{where}: "_format_version" is no version: {shown(fields["_format_version"])}; read as version 0'
        problems.append(Problem("version", what, "warning"))
    elif version > FORMAT_VERSION:
        problems.append(Problem("version", newer_version(where, version)))
    batch_size = _batch_size(fields, kind, where, problems)
    return LevelMeta(
        kind=kind,
        class_parts=parts,
        batch_size=batch_size,
        names=_names(fields, batch_size, where, problems),
        device=None if fields.get("device") in (None, "None") else str(fields["device"]),
        version=version,
        fields=fields,
        where=str(where),
        head_problems=tuple(problems),
    )


def newer_version(where: object, version: int) -> str:
    """The message for a save in a newer version than this reader knows."""
    return (
        f"{where}: format version {version} is newer than version {FORMAT_VERSION}, the newest that this tdview reads;"
        " update tdview"
    )


def _kind_by_structure(fields: Mapping[str, Any], has_tensordict: bool) -> Kind:
    """The kind of a level whose class is not one of the tensordict package."""
    if has_tensordict:
        return "tensorclass"
    if "stack_dim" in fields and "shape" not in fields:
        return "non_tensor_stack" if "data" in fields else "lazy_stack"
    if "custom_op" in fields:
        return "lazy_view"
    if fields.get("_is_non_tensor") is True:
        return "non_tensor"
    if "shape" in fields or "_format_version" in fields:
        return "tensordict"
    return "tensorclass" if "_type" in fields else "tensordict"


def _batch_size(
    fields: Mapping[str, Any], kind: Kind, where: object, problems: list[Problem]
) -> tuple[int, ...] | None:
    if kind not in ("tensordict", "lazy_view"):
        return None
    if "shape" not in fields:
        return ()
    shape = check_shape(fields["shape"])
    if shape is None:
        what = f"{where}: the batch size is no list of sizes >= 0: {shown(fields['shape'])}"
        problems.append(Problem("shape", what))
    return shape


def _names(
    fields: Mapping[str, Any], batch_size: tuple[int, ...] | None, where: object, problems: list[Problem]
) -> tuple[str | None, ...] | None:
    names = fields.get("_names")
    if not isinstance(names, list):
        return None
    if batch_size is not None and len(names) == len(batch_size) and all(isinstance(n, str | None) for n in names):
        return tuple(names)
    expected = "" if batch_size is None else f" for a batch size of {len(batch_size)} dims"
    what = f'{where}: "_names" must be one string or null for each batch dim{expected}, got {shown(names)}'
    problems.append(Problem("names", what))
    return None


def _entries(fields: Mapping[str, Any], where: object) -> Iterator[tuple[str, Entry]]:
    for key, entry in fields.items():
        if not isinstance(entry, dict):
            continue  # Spec: "A reader skips the entries that are not objects."
        if "dtype" in entry and "shape" in entry and "type" not in entry:
            yield key, _leaf_entry(key, entry, where)
        elif entry.get("type") is not None:
            yield key, NestedEntry(entry["type"] if isinstance(entry["type"], str) else shown(entry["type"]))


def _skipped_entries(fields: Mapping[str, Any], where: object) -> Iterator[Problem]:
    for key, entry in fields.items():
        if not isinstance(entry, dict) or key in RESERVED_KEYS or entry.get("type") is not None:
            continue
        if "type" in entry or "dtype" not in entry or "shape" not in entry:
            what = 'neither a "type" nor a "dtype" and a "shape", so it is skipped'
            yield Problem("entry", f"{where}: entry {shown(key)} has {what}", "warning", (key,))


_SOUND: dict[tuple[Any, ...], LeafEntry] = {}
"""Entries that were checked before: ten thousand leaves share a few dtypes and shapes."""


def _leaf_entry(key: str, entry: Mapping[str, Any], where: object) -> LeafEntry:
    shape = entry["shape"]
    if type(shape) is not list or len(entry) > 4:
        return _checked_leaf_entry(key, entry, where)
    for size in shape:
        if type(size) is not int:  # True and 1.0 equal 1 as parts of a key
            return _checked_leaf_entry(key, entry, where)
    nested = entry.get("is_nested")
    try:
        identity = (entry["dtype"], entry.get("device"), nested is True, nested is False, *shape)
        found = _SOUND.get(identity)
    except TypeError:  # a list or an object where a string belongs
        return _checked_leaf_entry(key, entry, where)
    if found is None:
        found = _checked_leaf_entry(key, entry, where)
        if found.problem is None:
            if len(_SOUND) > 4096:
                _SOUND.clear()
            _SOUND[identity] = found
    return found


def _checked_leaf_entry(key: str, entry: Mapping[str, Any], where: object) -> LeafEntry:
    name = entry["dtype"]
    dtype = dtype_of(name)
    shape = check_shape(entry["shape"], dtype.itemsize if dtype else 1)
    nested = entry.get("is_nested", False)
    problem = None
    if dtype is None:
        problem = ("dtype", f"{where}: entry {shown(key)}: unknown dtype {shown(name)}, so its payload cannot be read")
    elif shape is None:
        what = f"expected a list of sizes >= 0 of fewer than 2**63 bytes, got {shown(entry['shape'])}"
        problem = ("shape", f"{where}: entry {shown(key)}: {what}")
    elif nested is True and (len(shape) != 2 or shape[1] > 64):
        what = f"a nested tensor needs the shape [n, ndim] of its sizes, got {list(shape)}"
        problem = ("shape", f"{where}: entry {shown(key)}: {what}")
    device = entry.get("device", "cpu")
    return LeafEntry(
        dtype=name if isinstance(name, str) else shown(name),
        shape=shape or (),
        device=device if isinstance(device, str) else shown(device),
        is_nested=nested is True,
        problem=problem,
    )


def dump_json(fields: Mapping[str, Any], *, compact: bool = False) -> bytes:
    """The bytes of a meta.json: ASCII JSON, non-finite floats as ``NaN`` and ``Infinity``, no final newline.

    Args:
        compact: without blanks after ``,`` and ``:``, as the meta.json of a non-tensor stack is written.
    """
    return json.dumps(fields, separators=(",", ":") if compact else None).encode()


def leaf_json(dtype: str, shape: Sequence[int], *, device: str = "cpu", is_nested: bool = False) -> dict[str, Any]:
    """The entry of a leaf, in the order in which version 1 writes it. Spec: "A saved tensordict"."""
    return {"device": device, "shape": list(shape), "dtype": dtype, "is_nested": is_nested}


def tensordict_json(
    entries: Mapping[str, Any],
    batch_size: Sequence[int],
    *,
    device: str = "cpu",
    names: Sequence[str | None] | None = None,
    type_entry: str = CLASS_NAMES["TensorDict"][0],
    class_entry: str = CLASS_NAMES["TensorDict"][1],
) -> dict[str, Any]:
    """The JSON object of a tensordict's meta.json, version 1.

    A key that equals a reserved name keeps its place; ``shape``, ``device`` and ``_type`` lose their entry,
    ``_format_version``, ``_class`` and ``_names`` keep it and suppress the tensordict's own.

    Args:
        entries: by key, in insertion order: `leaf_json` of a leaf, ``{"type": name}`` of a collection.

    Spec: "A saved tensordict".
    """
    fields = dict(entries)
    fields.update(shape=list(batch_size), device=device, _type=type_entry)
    fields.setdefault("_format_version", FORMAT_VERSION)
    fields.setdefault("_class", class_entry)
    if names is not None and any(name is not None for name in names):
        fields.setdefault("_names", list(names))
    return fields

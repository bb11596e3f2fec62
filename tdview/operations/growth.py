"""This module knows which saves can grow: the levels, payloads and ``meta.json`` files that an append touches.

It does not know the rows, and it writes nothing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tdview.errors import (
    ArgumentError,
    DecodeError,
    InterruptedAppendError,
    MissingFileError,
    NotDirectoryError,
    Problem,
    UnsupportedVersionError,
    shown,
)
from tdview.format.dtypes import dtype_of
from tdview.format.keys import file_names
from tdview.format.meta import META_LIMIT, LeafEntry, LevelMeta, NestedEntry, parse_level
from tdview.format.payload import META, payload_file, payload_nbytes
from tdview.format.torchrl import STORAGE_META
from tdview.storage.leftovers import APPEND_TMP, level_fields, names_level
from tdview.storage.store import absolute

__all__ = ["GrowingLeaf", "GrowingLevel", "GrowingSave", "MetaTemplate", "SavedValue", "read_growing"]

_MAX_DEPTH = 200
_KINDS = {
    "lazy_stack": "a lazy stack",
    "sub_tensordict": "a lazily indexed tensordict",
    "lazy_view": "a lazy view",
    "non_tensor_stack": "a NonTensorStack",
    "non_tensor": "a non-tensor value",
}


class MetaTemplate:
    """A ``meta.json`` in which the number of rows can be replaced without reading it again."""

    def __init__(self, original: bytes, fields: dict[str, Any]) -> None:
        self.original = original
        """The bytes of the file as they were read."""
        mark = next(str(n) for n in itertools.count(10**18) if str(n).encode() not in original)
        self._parts = _dumped(fields, int(mark)).split(mark)

    def render(self, rows: int) -> bytes:
        """The file with `rows` rows: the batch size and the shape of every tensor, everything else as it is."""
        return str(rows).join(self._parts).encode()


def _dumped(fields: dict[str, Any], mark: int) -> str:
    """The JSON of a level with the mark in place of the number of rows; the fields are as they were afterwards."""
    tensors = [entry for entry in fields.values() if isinstance(entry, dict) and "dtype" in entry]
    shapes = [fields["shape"], *(shape for entry in tensors if isinstance(shape := entry.get("shape"), list) and shape)]
    rows = [shape[0] for shape in shapes]
    try:
        for shape in shapes:
            shape[0] = mark
        return json.dumps(fields)
    finally:
        for shape, number in zip(shapes, rows, strict=True):
            shape[0] = number


@dataclass(slots=True)
class GrowingLeaf:
    """A tensor that grows."""

    path: str
    """Its file."""
    key: tuple[str, ...]
    dtype: str
    trailing: tuple[int, ...]
    """Its shape without the rows."""
    row_nbytes: int
    exists: bool
    """Whether there is a file; a leaf without elements may have none."""
    size: int = 0
    """Size of the file in bytes, once a writer has looked."""
    fd: int | None = None
    """Open descriptor, where a writer keeps one."""

    def check_size(self, rows: int) -> None:
        """Raises DecodeError, ``file_size``, if the file is too short for so many rows."""
        if self.size < rows * self.row_nbytes:
            what = f"the payload is {self.size} bytes, expected {rows * self.row_nbytes}"
            _damaged(f"{_at(os.path.dirname(self.path), self.key)}: {what}", "file_size", self.key)


@dataclass(slots=True)
class SavedValue:
    """A non-tensor value, which stays as it is saved."""

    directory: Path


@dataclass(slots=True)
class GrowingLevel:
    """A level that grows."""

    directory: str
    key: tuple[str, ...]
    class_parts: tuple[str, str] | None
    type_entry: str | None
    """``"_type"`` of the meta.json."""
    batch_size: tuple[int, ...] = ()
    entries: dict[str, GrowingLeaf | GrowingLevel | SavedValue] = field(default_factory=dict)
    template: MetaTemplate | None = None
    """None for a tensorclass, whose rows are those of `inner`."""
    inner: GrowingLevel | None = None
    """The tensordict of a tensorclass."""


@dataclass(slots=True)
class GrowingSave:
    """A save that can grow, as it is on disk."""

    prefix: Path
    root: GrowingLevel
    rows: int
    levels: tuple[GrowingLevel, ...]
    """Those with a template, parents first: the order in which their ``meta.json`` are replaced."""
    leaves: tuple[GrowingLeaf, ...]
    """All of them, level by level in the order of `levels`, in the order of their entries."""


def read_growing(prefix: Path) -> GrowingSave:
    """Reads what an append to the save in `prefix` needs; maps nothing and opens no payload.

    Costs one look at each level. Whether a payload is as long as it should be is seen when it is opened.

    Raises:
        NotDirectoryError: `prefix` is an archive or another file. (A ValueError, as the next one.)
        ArgumentError: the save cannot grow: it has no batch dims, or holds a lazy stack, a view, a nested tensor or
            a NonTensorStack; it lies in a torchrl dump; a file or a level of it is a link.
        InterruptedAppendError: an append was interrupted.
        DecodeError: the save is damaged, or its parts have different numbers of rows.
    """
    if not prefix.is_dir():
        what = "expected a saved directory; an archive cannot grow" if prefix.exists() else "there is no such directory"
        raise NotADirectoryValue(f"{prefix}: {what}")
    _check_place(prefix)
    prefix = absolute(prefix)
    root = _read_level(prefix, "", (), 0)
    if isinstance(root, SavedValue):
        raise ArgumentError(f"{prefix}: {_KINDS['non_tensor']} cannot grow")
    top = root.inner or root
    if not top.batch_size:
        raise ArgumentError(f"{prefix}: the save has no batch dims, so it has no rows to add to")
    levels = tuple(_with_templates(root))
    for level in levels:
        if level.batch_size[:1] != top.batch_size[:1]:
            what = f"has the batch size {list(level.batch_size)}, the save has {top.batch_size[0]} rows"
            _damaged(f"{level.directory}: it {what}", "batch_size", level.key)
    leaves = [entry for level in levels for entry in level.entries.values() if isinstance(entry, GrowingLeaf)]
    return GrowingSave(prefix, root, top.batch_size[0], levels, tuple(leaves))


def _check_place(prefix: Path) -> None:
    """Raises if the rows of `prefix` are also counted elsewhere: by a replay buffer, or by a level above it."""
    storage = prefix / "storage" if (prefix / "storage" / STORAGE_META).exists() else prefix
    level = Path(os.path.realpath(storage))
    chain, counted_above = [level], None
    while level.parent != level and names_level(fields := level_fields(level.parent), level.name):
        level = level.parent
        chain.append(level)
        if fields.get("shape") or "stack_dim" in fields:
            counted_above = level
    if any((level / STORAGE_META).exists() for level in chain):
        raise ArgumentError(
            f"{prefix}: this belongs to a torchrl replay buffer ({STORAGE_META}): its capacity, length and cursor"
            " are kept beside the tensordict, and appended rows would lie behind them; extend the buffer in"
            " torchrl and dump it again"
        )
    if counted_above is not None:
        raise ArgumentError(
            f"{prefix}: this is a level of the save {counted_above}, whose rows it shares; append to that"
        )


class NotADirectoryValue(NotDirectoryError, ArgumentError):
    """A directory was expected; tensordict documents a ValueError here."""


def _with_templates(level: GrowingLevel) -> Iterator[GrowingLevel]:
    if level.inner is not None:
        yield from _with_templates(level.inner)
        return
    yield level
    for entry in level.entries.values():
        if isinstance(entry, GrowingLevel):
            yield from _with_templates(entry)


def _read_level(prefix: Path, path: str, key: tuple[str, ...], depth: int) -> GrowingLevel | SavedValue:
    directory = f"{prefix}/{path}" if path else str(prefix)
    if depth > _MAX_DEPTH:
        _damaged(f"{directory}: levels are nested deeper than {_MAX_DEPTH}", "depth", key)
    files, levels = _listing(directory)
    if APPEND_TMP in files:
        message = f"{directory}: an append to this save was interrupted; run recover_append({str(prefix)!r}) first"
        raise InterruptedAppendError(message, [Problem("interrupted_append", message, key=key)])
    where = f"{directory}/{META}"
    if META not in files:
        raise MissingFileError(f"{where}: there is no such file, so there is no save to append to")
    data = _small_file(where)
    meta = parse_level(data, where, has_tensordict="_tensordict" in levels)
    _check_meta(meta, where, key)
    type_entry = meta.fields.get("_type")
    level = GrowingLevel(directory, key, meta.class_parts, type_entry if isinstance(type_entry, str) else None)
    if meta.kind == "tensorclass":
        if "_tensordict" not in levels:
            _damaged(f"{directory}: the level _tensordict of the tensorclass is missing", "missing_level", key)
        inner = _read_level(prefix, f"{path}/_tensordict" if path else "_tensordict", key, depth + 1)
        if isinstance(inner, SavedValue):
            _damaged(f"{directory}: the level _tensordict of the tensorclass is no tensordict", "entry", key)
        level.inner, level.batch_size = inner, inner.batch_size
        return level
    if meta.kind == "non_tensor" and depth:
        return SavedValue(Path(directory))
    if meta.kind != "tensordict":
        raise ArgumentError(f"{directory}: {_KINDS.get(meta.kind, meta.kind)} cannot grow; load it, cat, and save anew")
    level.batch_size = meta.batch_size or ()
    for name, entry in meta.entries.items():
        below = (*key, name)
        if isinstance(entry, NestedEntry):
            level.entries[name] = _read_nested(prefix, path, levels, below, depth)
        else:
            level.entries[name] = _read_leaf(directory, files, below, entry, level.batch_size)
    if level.batch_size:
        level.template = MetaTemplate(data, meta.fields)
    return level


def _listing(directory: str) -> tuple[dict[str, os.DirEntry[str]], dict[str, os.DirEntry[str]]]:
    files: dict[str, os.DirEntry[str]] = {}
    levels: dict[str, os.DirEntry[str]] = {}
    with os.scandir(directory) as found:
        for entry in found:
            (levels if entry.is_dir() else files)[entry.name] = entry
    return files, levels


def _small_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size > META_LIMIT:
            _damaged(f"{path}: it has {size} bytes, at most {META_LIMIT} are read", "file_size", ())
        return os.read(fd, size)
    finally:
        os.close(fd)


def _check_meta(meta: LevelMeta, where: str, key: tuple[str, ...]) -> None:
    for problem in meta.problems:
        if problem.code == "version" and problem.severity == "error":
            raise UnsupportedVersionError(problem.message, [problem])
        if problem.severity == "error":
            raise DecodeError(problem.message, [problem])


def _read_nested(
    prefix: Path,
    path: str,
    levels: dict[str, os.DirEntry[str]],
    key: tuple[str, ...],
    depth: int,
) -> GrowingLevel | SavedValue:
    name = next((name for name in file_names(key[-1]) if name in levels), None)
    if name is None:
        _damaged(f"{prefix}: the level of entry {shown(key)} is missing", "missing_level", key)
    if levels[name].is_symlink():
        raise ArgumentError(f"{levels[name].path}: this is a symlink, and rows are not written through one")
    return _read_level(prefix, f"{path}/{name}" if path else name, key, depth + 1)


def _read_leaf(
    directory: str,
    files: dict[str, os.DirEntry[str]],
    key: tuple[str, ...],
    entry: LeafEntry,
    batch_size: tuple[int, ...],
) -> GrowingLeaf:
    if entry.problem is not None:
        _damaged(entry.problem[1], entry.problem[0], key)
    shape, rank = entry.shape, len(batch_size)
    if entry.is_nested:
        raise ArgumentError(f"{_at(directory, key)}: a nested tensor cannot grow; load it, cat, and save anew")
    if shape[:rank] != batch_size:
        what = f"expected a shape that starts with the batch size {list(batch_size)}, got {list(shape)}"
        _damaged(f"{_at(directory, key)}: {what}", "batch_size", key)
    dtype = dtype_of(entry.dtype)
    assert dtype is not None  # an unknown one is a problem of the entry
    row_nbytes = payload_nbytes(dtype.itemsize, shape[1:])
    names = [payload_file(name) for name in file_names(key[-1])]
    name = names[0] if names[0] in files else next((name for name in names if name in files), names[0])
    exists = name in files
    if exists and not files[name].is_file(follow_symlinks=False):
        if files[name].is_symlink():
            raise ArgumentError(f"{files[name].path}: this is a symlink, and rows are not written through one")
        _damaged(f"{_at(directory, key)}: {name} is no regular file", "missing_file", key)
    if not exists and row_nbytes * (shape[0] if shape else 1):
        message = f"{_at(directory, key)}: the file {name} is missing"
        raise MissingFileError(message, [Problem("missing_file", message, key=key)])
    return GrowingLeaf(f"{directory}/{name}", key, entry.dtype, shape[1:], row_nbytes, exists)


def _at(directory: str, key: tuple[str, ...]) -> str:
    return f"{directory}: entry {shown(key[-1] if len(key) == 1 else key)}"


def _damaged(message: str, code: str, key: tuple[str, ...]) -> NoReturn:
    raise DecodeError(message, [Problem(code, message, key=key)])

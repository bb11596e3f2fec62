"""This module knows how a node of the tree becomes a container, and what damage keeps it from becoming one.

It does not know paths or how a save is found; `load` asks for the container of a node. No payload is read.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from tdview.containers.collection import Collection
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import MapMode
from tdview.containers.non_tensor import NonTensorBase, NonTensorData, NonTensorStack
from tdview.containers.pending import ArchiveMap, Pending, PendingEntry, PendingNested, PendingNestedEntry
from tdview.containers.tensorclass import UnknownTensorClass, class_of
from tdview.containers.tensordict import TensorDict
from tdview.containers.views import LazyView, SubTensorDict
from tdview.errors import (
    ArgumentError,
    DecodeError,
    MissingFileError,
    NotSupportedError,
    Problem,
    ReadOnlyError,
    TdviewError,
    UnsupportedVersionError,
    shown,
)
from tdview.format.classes import CLASS_NAMES, class_text, type_text
from tdview.format.dtypes import DTYPES
from tdview.format.keys import decode_key, encode_key, file_names
from tdview.format.meta import LeafEntry, LevelMeta
from tdview.format.payload import payload_file, shape_file
from tdview.format.pickles import PICKLE_LIMIT
from tdview.format.view_index import parse_index
from tdview.storage.archive import ArchiveStore
from tdview.storage.directory import DirectoryStore
from tdview.tree.arrays import torch_dtype
from tdview.tree.checks import level_problems
from tdview.tree.leaf import Leaf
from tdview.tree.node import Node
from tdview.tree.non_tensor import field_nodes

__all__ = ["Builder"]

_FATAL = frozenset(
    ("missing_level", "missing_value", "missing_meta", "member_gap", "index", "entry", "names", "shape", "batch_size")
)
"""Problems of a level that keep it from becoming a container; the others leave a use for the rest."""

_MODEST_EXCESS = 1 << 20


@dataclass(slots=True)
class Builder:
    """Makes containers of nodes. Sizes of all files are checked now, payloads are mapped on first use."""

    mode: MapMode = None
    robust_key: bool = True
    allow_pickle: bool = False
    caller: type | None = None
    """The class on which `load_memmap` was called."""
    pending: list[Pending] = field(default_factory=list)
    """Leaves that will have to be inflated."""
    _map: ArchiveMap | None = None
    _absolute: str = ""
    _plans: dict[int, tuple[LeafEntry, torch.dtype, int]] = field(default_factory=dict)

    def container(self, node: Node, batch: torch.Size | None = None, device: torch.device | None = None) -> Collection:
        """The container of a node.

        Args:
            node: of any kind but a leaf.
            batch: batch size of the level above, which a non-tensor value takes over.
            device: device of the level above.

        Raises:
            DecodeError: the level, or one below it, is damaged.
            PickleRefusedError: a value is pickled, not on the allow-list, and pickles are not allowed.
        """
        kind = node._stored_kind
        _raise_first((*node._read[1], *(node.meta.head_problems if node.meta is not None else ())))
        if kind == "tensordict":
            return self._tensordict(node)
        if kind == "lazy_stack":
            return self._lazy_stack(node)
        if kind == "tensorclass":
            return self._tensorclass(node)
        if kind in ("non_tensor", "non_tensor_stack"):
            return self._value(node, batch or torch.Size())
        return self._view(node)

    # a tensordict

    def _tensordict(self, node: Node) -> TensorDict:
        meta = node.meta
        if meta is None:
            return self._without_meta(node)
        batch = torch.Size(meta.batch_size or ())
        device = _device_of(meta, node)
        entries: dict[str, Any] = {}
        ndim = len(batch)
        for key, entry in meta.entries.items():
            if isinstance(entry, LeafEntry):
                if ndim and entry.shape[:ndim] != batch and not entry.is_nested and entry.problem is None:
                    _fail(node, key, "batch_size", f"the shape {list(entry.shape)} does not start with {list(batch)}")
                entries[key] = self._leaf(node, key, entry)
            else:
                entries[key] = self._nested(node, key, entry.type_name, batch, device)
        for key in node.unnamed_levels:
            entries[key] = self._nested(node, key, "TensorDict", batch, device)
        names = node.names
        out = TensorDict._made(entries, batch, device, None if names is None else list(names))
        out._prefix = self._place(node)
        parts = meta.class_parts
        if parts is not None and not _is_plain(parts):
            out._saved_as = (type_text(*parts), class_text(*parts), parts[1].rpartition(".")[2])
        return out

    def _without_meta(self, node: Node) -> TensorDict:
        """The storage of a replay buffer that has no meta.json: its entries stand in another file."""
        entries: dict[str, Any] = {}
        for child in node.children():
            if isinstance(child, Leaf):
                _raise_first(child.problems)
                entries[child.key] = self._leaf(node, child.key, child.entry)
            else:
                entries[child.key] = self._without_meta(child)
        return TensorDict._made(entries, torch.Size(node.batch_size or ()), torch.device("cpu"), None)

    def _nested(self, node: Node, key: str, type_name: str, batch: torch.Size, device: torch.device | None) -> Any:
        prefix = node.file(self._level_name(node, key))
        child = Node(node.store, prefix, path=(*node.path, key), parent=node, type_name=type_name)
        value = self.container(child, batch, device)
        if value.batch_size[: len(batch)] != batch:
            _fail(node, key, "batch_size", f"the batch size {list(value.batch_size)} does not start with {list(batch)}")
        if type(value) is TensorDict and type_name != "TensorDict":
            entries = value._saved_as or CLASS_NAMES["TensorDict"]
            value._saved_as = (entries[0], entries[1], type_name)
        return value

    def _names(self, node: Node, key: str, level: bool) -> tuple[str, ...]:
        """File names under which an entry may lie, the first that exists counts."""
        if self.robust_key:
            return file_names(key, level=level, paths=node.keys_are_paths)
        encoded = encode_key(key)
        if key in ("", ".", "..") or "\0" in key or key.startswith("/") or ".." in key.split("/"):
            return (encoded,)  # such a name would leave the save
        return (key, encoded) if key != encoded else (key,)

    def _candidates(self, node: Node, key: str, *, level: bool = False) -> list[str]:
        """`_names` without those that another key of the level is encoded to, as the empty key is to ``%``."""
        entries = node.meta.entries if node.meta is not None else {}

        def owner(name: str) -> str:
            found = decode_key(name)
            return found if found != key and found in entries and encode_key(found) == name else key

        return [name for name in self._names(node, key, level) if owner(name) == key]

    def _level_name(self, node: Node, key: str) -> str:
        names = self._candidates(node, key, level=True) if encode_key(key) != key else [key]
        for name in names if len(names) > 1 else ():
            if node.store.is_level(node.file(name)):
                return name
        return names[0]

    # leaves

    def _leaf(self, node: Node, key: str, entry: LeafEntry) -> Pending:
        plan = self._plans.get(id(entry))
        if plan is None:
            plan = self._plans[id(entry)] = self._plan(node, key, entry)
        dtype, nbytes = plan[1], plan[2]
        name = encode_key(key)
        if name != key:
            name = self._file_name(node, key)
        place = f"{node.prefix}/{name}.memmap" if node.prefix else f"{name}.memmap"
        store = node.store
        if entry.is_nested:
            return self._nested_leaf(node, key, entry, dtype, name)
        if type(store) is DirectoryStore:
            filename = f"{self._root(store)}/{place}"
            identity = self._check_file(node, key, entry, filename, nbytes) if nbytes else None
            return Pending(filename, dtype, entry.shape, self.mode, identity)
        archive = self._map or self._archive(node)
        leaf = PendingEntry(archive, place, dtype, entry.shape)
        found = archive.store.directory.sizes(place)
        if found is None or found[2] != nbytes or found[1] or found[0] & 1 or self.mode == "r+":
            self._check_entry(node, key, entry, leaf, nbytes, found)
        return leaf

    def _archive(self, node: Node) -> ArchiveMap:
        if self._map is None:
            if not isinstance(node.store, ArchiveStore):
                raise NotSupportedError(f"{node.where()}: only a directory or an archive is loaded; use scan()")
            self._map = ArchiveMap(node.store, self.mode)
        return self._map

    def _plan(self, node: Node, key: str, entry: LeafEntry) -> tuple[LeafEntry, torch.dtype, int]:
        """What the leaves of an entry share: its dtype and size. Keeps the entry, so that its id stays its own."""
        if entry.problem is not None:
            code, message = entry.problem
            raise DecodeError(message, [Problem(code, message, key=(*node.path, key))])
        dtype, itemsize = self._dtype(node, key, entry.dtype)
        return entry, dtype, math.prod(entry.shape) * itemsize

    def _file_name(self, node: Node, key: str) -> str:
        """The first of the names under which a leaf may lie that exists."""
        names = self._candidates(node, key)
        there = (name for name in names if node.store.info(node.file(payload_file(name))) is not None)
        return next(there, names[0])

    def _dtype(self, node: Node, key: str, name: str) -> tuple[torch.dtype, int]:
        row = DTYPES[name]
        try:
            dtype = torch_dtype(row)
        except NotSupportedError as error:
            _fail(node, key, "dtype", str(error))
        if row.kind == "quantized":
            _fail(node, key, "dtype", f"a quantized tensor of {row.short} cannot be made of a payload; use scan()")
        return dtype, row.itemsize

    def _nested_leaf(self, node: Node, key: str, entry: LeafEntry, dtype: torch.dtype, name: str) -> Pending:
        probe = Leaf(node.store, node.prefix, path=(*node.path, key), parent=node, entry=entry, file_key=key)
        _raise_first(probe.problems)
        place, sizes = node.file(payload_file(name)), node.file(shape_file(name))
        store = node.store
        if type(store) is DirectoryStore:
            root = self._root(store)
            identity = os.stat(f"{root}/{sizes}").st_ino if entry.shape[0] else None
            return PendingNested(f"{root}/{place}", f"{root}/{sizes}", dtype, entry.shape, self.mode, identity)
        return PendingNestedEntry(self._archive(node), place, sizes, dtype, entry.shape)

    def _check_file(self, node: Node, key: str, entry: LeafEntry, filename: str, nbytes: int) -> int:
        """Number of a leaf's file, which is long enough."""
        try:
            status = os.stat(filename)
        except (OSError, ValueError):
            what = f"{filename}: the file is missing; {entry.dtype} {list(entry.shape)} needs {nbytes} bytes"
            raise MissingFileError(what, [Problem("missing_file", what, key=(*node.path, key))]) from None
        if status.st_size < nbytes:
            _fail_size(node, key, entry, status.st_size, nbytes)
        if self.mode == "r+" and not os.access(filename, os.W_OK):
            raise ReadOnlyError(f"{filename}: the file may not be written; load it with mode=None or 'r'")
        return status.st_ino

    def _check_entry(
        self,
        node: Node,
        key: str,
        entry: LeafEntry,
        leaf: PendingEntry,
        nbytes: int,
        found: tuple[int, int, int] | None,
    ) -> None:
        """Raises unless a leaf can be read from its zip entry, of which flags, method and size were found."""
        store, place = leaf.archive.store, leaf.filename
        if found is None:
            if not nbytes:
                return
            what = f"{store.label}: zip entry {shown(place)} is missing; it needs {nbytes} bytes"
            raise MissingFileError(what, [Problem("missing_file", what, key=(*node.path, key))])
        flags, method, size = found
        if size != nbytes:  # nothing appends to an archive: another size is damage, too long or too short
            _fail_size(node, key, entry, size, nbytes)
        if flags & 1:
            _fail(node, key, "encrypted", f"zip entry {shown(place)} is encrypted, so it cannot be read")
        if method != 0:
            if self.mode == "r+":
                raise NotSupportedError(
                    f"{store.label}: zip entry {shown(place)} is compressed, so a write in place cannot reach"
                    " the file; pack it uncompressed, or load it with mode=None or 'r'"
                )
            self.pending.append(leaf)
        elif self.mode == "r+" and nbytes:
            leaf.open()  # raises if it is not aligned

    # what is no tensordict

    def _lazy_stack(self, node: Node) -> LazyStackedTensorDict:
        _raise_level(node)
        members = [self.container(child) for child in node.children()]
        dim, name = node.stack_dim, node.meta.fields.get("stack_dim_name") if node.meta is not None else None
        name = name if isinstance(name, str) else None
        try:
            out = LazyStackedTensorDict(*members, stack_dim=dim or 0, stack_dim_name=name)
        except (ArgumentError, IndexError) as error:
            _fail(node, "", "batch_size", str(error))
        out._prefix = self._place(node)
        return out

    def _tensorclass(self, node: Node) -> Collection:
        _raise_level(node)
        inner = node._tensordict
        if inner is None or node.meta is None:
            _fail(node, "", "missing_level", 'a tensorclass without its "_tensordict" level')
        td: Any = self.container(inner)
        fields = list(field_nodes(node))
        if fields or "other.pickle" in node.store.listing(node.prefix).files:
            for key, value in {**{f.key: f.value for f in fields}, **self._pickled_fields(node)}.items():
                if key not in td and key not in ("_metadata", "_is_non_tensor"):
                    td.set(key, NonTensorData(value, batch_size=td.batch_size))
        saved = node.meta.fields.get("_type")
        saved_type = saved if isinstance(saved, str) else type_text(*(node.meta.class_parts or ("?", "TensorClass")))
        kind = class_of(saved_type, self.caller)
        if kind is not None and set(td.keys()) <= set(kind._fields):
            out: Any = kind._wrap(td, None if str(kind) == saved_type else saved_type)
        else:
            out = UnknownTensorClass._wrap(td, saved_type)
        out._prefix = self._place(node)
        return out  # type: ignore[no-any-return]

    def _pickled_fields(self, node: Node) -> dict[str, Any]:
        from tdview.tree.non_tensor import pickled_fields

        if "other.pickle" not in node.store.listing(node.prefix).files:
            return {}
        if not self.allow_pickle:
            return pickled_fields(node)
        loaded = self._unpickled(node, "other.pickle")
        return loaded if isinstance(loaded, dict) else {}

    def _value(self, node: Node, batch: torch.Size) -> NonTensorBase:
        if node.meta is None:
            _fail(node, "", "missing_value", "the value is missing")
        fields = node.meta.fields
        files = node.store.listing(node.prefix).files
        if node.kind == "non_tensor_stack":
            value = self._unpickled(node, "pickle.pkl") if self._runs("pickle.pkl", fields, files) else node.value
            if not isinstance(value, list):
                _fail(node, "", "missing_value", f"expected a list of values, got {type(value).__name__}")
            stack = NonTensorStack.from_list(value)
            dim = fields.get("stack_dim")
            stack.stack_dim = dim if type(dim) is int else 0
            stack._prefix = self._place(node)
            return stack
        pickled: dict[str, Any] = {}
        if self._runs("other.pickle", fields, files):
            loaded = self._unpickled(node, "other.pickle")
            pickled = loaded if isinstance(loaded, dict) else {}
        data = pickled["data"] if "data" in pickled else node.value  # noqa: SIM401  the value may be refused
        metadata = fields["_metadata"] if "_metadata" in fields else pickled.get("_metadata")
        out = NonTensorData(data, batch_size=batch, metadata=metadata)
        parts = node.meta.class_parts
        if parts is not None and parts[1] in CLASS_NAMES:
            out._class_name = parts[1]
        out._prefix = self._place(node)
        return out

    def _runs(self, name: str, fields: dict[str, Any], files: tuple[str, ...]) -> bool:
        """Whether a value is in a pickle that may be executed."""
        return self.allow_pickle and name in files and fields.get("data", name) == name

    def _unpickled(self, node: Node, name: str) -> Any:
        where = node.where(name)
        try:
            return pickle.loads(node.store.read(node.file(name), PICKLE_LIMIT * 16))
        except TdviewError:
            raise
        except Exception as error:  # whatever the pickle raises while it is executed
            what = f"{where}: the pickle cannot be loaded: {type(error).__name__}: {str(error)[:120]}"
            raise DecodeError(what, [Problem("pickle_present", what)]) from error

    def _view(self, node: Node) -> Collection:
        _raise_level(node)
        source, meta = node.source, node.meta
        if source is None or meta is None:
            _fail(node, "", "index", "the lazy view has no source, or too many views lie on each other")
        below = self.container(source)
        out: SubTensorDict | LazyView
        try:
            if meta.kind == "sub_tensordict":
                index = tuple(map(_torch_index, parse_index(meta.fields["index"], node.where())))
                out = SubTensorDict(below, index, saved_index=meta.fields["index"])
            else:
                out = self._lazy_view(meta, below)
        except (ArgumentError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, DecodeError):
                raise
            _fail(node, "", "index", f"the view cannot be applied: {str(error)[:120]}")
        out._prefix = self._place(node)
        return out

    @staticmethod
    def _lazy_view(meta: LevelMeta, source: Collection) -> LazyView:
        saved = {name: meta.fields[name] for name in ("custom_op", "inv_op", "custom_op_kwargs", "inv_op_kwargs")}
        return LazyView(source, saved["custom_op"], saved["custom_op_kwargs"], saved=saved)

    def _place(self, node: Node) -> Any:
        """The directory of a level that writes may reach, None for archives and with ``mode="r"``."""
        if self.mode == "r" or type(node.store) is not DirectoryStore:
            return None
        root = Path(self._root(node.store))
        return root / node.prefix if node.prefix else root

    def _root(self, store: DirectoryStore) -> str:
        """The save's absolute path: leaves are mapped later, from whatever directory the process is in then."""
        if not self._absolute:
            self._absolute = str(store.location)
        return self._absolute


def _torch_index(item: Any) -> Any:
    values = getattr(item, "values", None)
    if values is None:
        return item
    flat = list(values) if isinstance(values, range) else values
    return torch.tensor(flat, dtype=torch.bool if item.is_mask else torch.int64)


def _device_of(meta: LevelMeta, node: Node) -> torch.device | None:
    if meta.device is None or isinstance(meta.entries.get("device"), LeafEntry):
        return None
    try:
        device = torch.device(meta.device)
    except RuntimeError:
        _fail(node, "", "entry", f"the device {shown(meta.device)} is none")
    return torch.device("cpu") if device.type != "cpu" else device  # the payload lies in a file: on the CPU


def _is_plain(parts: tuple[str, str]) -> bool:
    return parts[0].split(".")[0] == "tensordict"


def _errors_of(node: Node) -> Iterator[Problem]:
    for problem in level_problems(node):
        if problem.severity == "error" and problem.code in _FATAL:
            yield problem


def _raise_level(node: Node) -> None:
    _raise_first(tuple(_errors_of(node)))


def _raise_first(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        if problem.severity == "error":
            kind = UnsupportedVersionError if problem.code == "version" else DecodeError
            if problem.code in ("missing_file", "missing_level", "missing_meta"):
                kind = MissingFileError
            raise kind(problem.message, problems)


def _fail(node: Node, key: str, code: str, what: str) -> NoReturn:
    path = (*node.path, key) if key else node.path
    message = f"{node.where()}: {f'entry {shown(key)}: ' if key else ''}{what}"
    raise DecodeError(message, [Problem(code, message, key=path)])


def _fail_size(node: Node, key: str, entry: LeafEntry, found: int, needed: int) -> NoReturn:
    bomb = found > 64 * needed + _MODEST_EXCESS
    what = f"the payload is {found} bytes, {entry.dtype} {list(entry.shape)} needs {needed}"
    _fail(node, key, "bomb" if bomb else "file_size", what)

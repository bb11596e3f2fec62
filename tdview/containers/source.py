"""This module knows how a container becomes the levels and files of a save.

It does not know where they are written; `operations.write` asks for the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tdview.containers.base import TensorDictBase
from tdview.containers.collection import Collection
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import file_of, whole_file_of
from tdview.containers.non_tensor import NonTensorData, NonTensorStack
from tdview.containers.payload import check_savable, component_sizes, nbytes_of, payload_blocks
from tdview.containers.pending import Pending, PendingEntry
from tdview.containers.tensorclass import TensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.values import foreign
from tdview.containers.views import LazyView, SubTensorDict, _View
from tdview.errors import AlreadyExistsError, ArgumentError, EncodeError, Problem, shown
from tdview.format.classes import CLASS_NAMES
from tdview.format.keys import encode_key
from tdview.format.meta import dump_json, leaf_json, tensordict_json
from tdview.format.payload import payload_file, shape_file
from tdview.format.versions import FORMAT_VERSION, RESERVED_KEYS, SHADOWABLE_KEYS
from tdview.operations.source import SourceFile, SourceLevel

__all__ = ["Options", "dense_of", "source_level", "value_level"]

_MAX_DEPTH = 90
_TYPE_VALUES: dict[Any, str] = {dict: "dict", OrderedDict: "OrderedDict", list: "list", tuple: "tuple"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a container is turned into a source."""

    robust_key: bool = True
    """Whether keys are encoded in file names; else they are used unchanged."""
    dense: bool = False
    """Whether lazy views become dense tensordicts, as in an archive."""
    target: Path | None = None
    """The directory that will be written: leaves that lie there already stay."""
    replaced: tuple[str, ...] = ()
    """Spellings of the directory that is replaced: leaves that lie in it are mapped before they go."""
    copy_existing: bool = True
    """Whether a leaf that lies in another file may be copied."""
    zeros: bool = False
    """Whether the payloads are zeros of the same sizes, as `memmap_like` writes."""

    def file_name(self, key: str) -> str:
        """The file name of a key without suffix."""
        return encode_key(key) if self.robust_key else key


def source_level(value: Any, options: Options | None = None, *, name: str = "") -> SourceLevel:
    """What a writer needs to save a container.

    Everything that can be refused is refused here, before a file is touched: dtypes and layouts that the format
    cannot hold, values that cannot be pickled, leaves that lie in another file. Payloads are read later, in blocks.

    Args:
        value: a container of tdview, or an object of tensordict.
        options: see `Options`.
        name: directory name of the level in its parent, ``""`` for the save itself.

    Raises:
        EncodeError: the format cannot hold a value.
        AlreadyExistsError: a leaf lies in another file, and it may not be copied.
        ArgumentError: `value` is no container.

    Spec: "A saved tensordict".
    """
    if not isinstance(value, Collection):
        adapted = foreign(value)
        if adapted is None:
            raise ArgumentError(f"expected a tensordict, got {type(value).__name__}")
        value = adapted
    target = "" if options is None or options.target is None else os.fspath(options.target)
    return _Builder(options or Options())._level(value, name, target, None, 0)


def value_level(value: Any, name: str = "") -> SourceLevel:
    """The level of a non-tensor value alone, as it is rewritten when the value changes."""
    return _Builder(Options())._level(value, name, "", "cpu", 0)


def dense_of(view: _View) -> Any:
    """What an archive holds of a lazy view: a tensordict of the viewed entries. Views are not copied."""
    stacked = view._stacked()
    if stacked is not None:
        return stacked
    out = view._empty()
    for key in view._keys():
        out._entries[key] = view._get(key)
    return out


class _Builder:
    def __init__(self, options: Options) -> None:
        self.options = options

    def _level(self, value: Collection, name: str, place: str, device: str | None, depth: int) -> SourceLevel:
        if depth > _MAX_DEPTH:
            what = f"levels are nested more than {_MAX_DEPTH} deep, or contain themselves"
            raise EncodeError(what, [Problem("depth", what)])
        if isinstance(value, _View) and self.options.dense:
            value = dense_of(value)
        if isinstance(value, NonTensorData):
            return self._non_tensor(value, name)
        if isinstance(value, NonTensorStack):
            return self._non_tensor_stack(value, name, device)
        if isinstance(value, TensorClass):
            inner = self._level(value._tensordict, "_tensordict", f"{place}/_tensordict", device, depth + 1)
            meta = dump_json({"_type": value._saved_type or str(type(value))})
            return SourceLevel(name=name, meta=meta, levels=(inner,))
        if isinstance(value, LazyStackedTensorDict):
            return self._lazy_stack(value, name, place, depth)
        if isinstance(value, _View):
            return self._view(value, name, place, depth)
        assert isinstance(value, TensorDictBase)
        return self._tensordict(value, name, place, depth)

    # a tensordict

    def _tensordict(self, td: TensorDictBase, name: str, place: str, depth: int) -> SourceLevel:
        entries: dict[str, Any] = {}
        files: list[SourceFile] = []
        levels: list[SourceLevel] = []
        device = None if td.device is None else str(td.device)
        for key in td._keys():
            value = td._peek(key)  # type: ignore[attr-defined]  # sound: every tensordict can peek
            file_name = self.options.file_name(key)
            if isinstance(value, Collection):
                level = self._level(value, file_name, f"{place}/{file_name}", device, depth + 1)
                levels.append(level)
                entries[key] = {"type": self._entry_type(value)}
            else:
                if isinstance(value, Pending) and (value.is_nested or self._goes(value)):
                    value = td._get(key)
                entries[key] = self._leaf(value, key, file_name, place, files)
            if key in RESERVED_KEYS - SHADOWABLE_KEYS:
                warnings.warn(
                    f"the key {key!r} is a reserved name of the format: its entry is lost in the save; rename it",
                    UserWarning,
                    stacklevel=2,
                )
        saved = td._saved_as
        type_entry, class_entry = saved[:2] if saved is not None else _class_entries(type(td))
        meta = tensordict_json(
            entries, td.batch_size, names=_saved_names(td), type_entry=type_entry, class_entry=class_entry
        )
        return SourceLevel(name=name, meta=dump_json(meta), files=tuple(files), levels=tuple(levels))

    def _goes(self, leaf: Pending) -> bool:
        """Whether the file of a leaf is replaced by this save, so that it could not be mapped later."""
        return bool(self.options.replaced) and leaf.filename.startswith(self.options.replaced)

    def _entry_type(self, value: Collection) -> str:
        if isinstance(value, _View):
            if self.options.dense:
                return type(dense_of(value)).__name__
            return value._class_name
        if isinstance(value, TensorClass):
            saved = value._saved_type
            return type(value).__name__ if saved is None else saved[8:-2].rpartition(".")[2]
        if value._saved_as is not None:
            return value._saved_as[2]
        return str(getattr(value, "_class_name", None) or type(value).__name__)

    def _leaf(self, leaf: Any, key: str, file_name: str, place: str, files: list[SourceFile]) -> dict[str, Any]:
        check_savable(leaf, key)
        device = "cpu" if isinstance(leaf, Pending) else str(leaf.device)
        name = payload_file(file_name)
        mapped_at = self._checked_origin(leaf, key, f"{place}/{name}")
        if leaf.is_nested:
            return self._nested_leaf(leaf, file_name, device, files)
        nbytes = nbytes_of(leaf)
        if nbytes:
            blocks = None if self.options.zeros else payload_blocks(leaf)
            files.append(SourceFile(name=name, nbytes=nbytes, blocks=blocks, mapped_at=mapped_at))
        return leaf_json(str(leaf.dtype), leaf.shape, device=device)

    def _nested_leaf(self, leaf: Tensor, file_name: str, device: str, files: list[SourceFile]) -> dict[str, Any]:
        sizes = component_sizes(leaf)
        ndim = len(sizes[0]) if sizes else 0
        flat = [size for row in sizes for size in row]
        packed = struct.pack(f"<{len(flat)}q", *flat)
        if packed:
            files.append(SourceFile.of(shape_file(file_name), packed, payload=True))
        nbytes = leaf.numel() * leaf.element_size()
        if nbytes:
            blocks = None if self.options.zeros else payload_blocks(leaf)
            files.append(SourceFile(name=payload_file(file_name), nbytes=nbytes, blocks=blocks))
        return leaf_json(str(leaf.dtype), [len(sizes), ndim], device=device, is_nested=True)

    def _checked_origin(self, leaf: Any, key: str, goal: str) -> Path | None:
        """The file in which the leaf lies, if a write may leave it there; raises where it may not be copied."""
        pending = isinstance(leaf, Pending)
        found = None if isinstance(leaf, PendingEntry) else leaf.filename if pending else file_of(leaf)
        if found is None:
            return None
        if not self.options.copy_existing and not (self.options.target is not None and _same_file(found, goal)):
            raise AlreadyExistsError(
                f"entry {shown(key)}: the leaf lies in {found} already; pass copy_existing=True to copy it"
            )
        if not pending and getattr(leaf, "_mode", None) == "r":
            return None
        whole = leaf.whole_file if pending else whole_file_of(leaf)
        return None if whole is None or self.options.zeros else Path(whole)

    # what is no tensordict

    def _lazy_stack(self, td: LazyStackedTensorDict, name: str, place: str, depth: int) -> SourceLevel:
        levels = tuple(
            self._level(member, str(number), f"{place}/{number}", None, depth + 1)
            for number, member in enumerate(td.tensordicts)
        )
        meta = {
            **_class_fields("LazyStackedTensorDict"),
            "stack_dim": td.stack_dim,
            "stack_dim_name": td._stack_name,
        }
        return SourceLevel(name=name, meta=dump_json(meta), levels=levels)

    def _view(self, view: _View, name: str, place: str, depth: int) -> SourceLevel:
        source = self._level(view.source, "_source", f"{place}/_source", None, depth + 1)
        own = _class_fields(view._class_name)
        meta: dict[str, Any]
        if isinstance(view, SubTensorDict):
            meta = {**own, "index": view._saved}
        else:
            assert isinstance(view, LazyView)
            meta = {"shape": list(view.batch_size), "device": "cpu", "_type": own.pop("_type"), **view._saved, **own}
        return SourceLevel(name=name, meta=dump_json(meta), levels=(source,))

    def _non_tensor(self, value: NonTensorData, name: str) -> SourceLevel:
        fields = {"data": value.data, "_metadata": value._metadata, "_is_non_tensor": True}
        meta: dict[str, Any] = {"_type": CLASS_NAMES.get(value._class_name, CLASS_NAMES["NonTensorData"])[0]}
        pickled: dict[str, Any] = {}
        for field, item in fields.items():
            (meta if _is_json(item) else pickled)[field] = item
        files: tuple[SourceFile, ...] = ()
        if pickled:
            content = _pickled(pickled, name)
            files = (SourceFile.of("other.pickle", content), *_type_names(pickled, content))
        return SourceLevel(name=name, meta=_dumped(meta), files=files)

    def _non_tensor_stack(self, value: NonTensorStack, name: str, device: str | None) -> SourceLevel:
        data = value.tolist()
        as_json = _is_json(data)
        meta = {
            **_class_fields("NonTensorStack"),
            "stack_dim": value.stack_dim,
            "device": device,
            "data": data if as_json else "pickle.pkl",
        }
        files = () if as_json else (SourceFile.of("pickle.pkl", _pickled(data, name)),)
        return SourceLevel(name=name, meta=_dumped(meta, compact=True), files=files)


def _class_fields(name: str) -> dict[str, Any]:
    type_entry, class_entry = CLASS_NAMES[name]
    return {"_type": type_entry, "_format_version": FORMAT_VERSION, "_class": class_entry}


def _class_entries(kind: type) -> tuple[str, str]:
    """``"_type"`` and ``"_class"`` of a tensordict: tensordict's own, or those of a subclass of the user."""
    if kind is TensorDict or kind.__module__.startswith("tdview."):
        return CLASS_NAMES["TensorDict"]
    return str(kind), f"{kind.__module__}:{kind.__qualname__}"


def _saved_names(td: TensorDictBase) -> list[str | None] | None:
    """The dim names, or those that a named nested tensordict gives."""
    names = td.names
    if any(name is not None for name in names):
        return names
    for key in td._keys():
        if issubclass(td._type(key), TensorDict):
            below = td._get(key).names[: td.ndim]
            if any(name is not None for name in below):
                return below  # type: ignore[no-any-return]
    return None


def _same_file(left: str, right: str) -> bool:
    return left == right or os.path.realpath(left) == os.path.realpath(right)


def _is_json(value: Any, depth: int = 0) -> bool:
    """Whether JSON can hold a value: a structural test, so that a tuple counts as a list. Spec: "Non-tensor data"."""
    if value is None or isinstance(value, bool | float | str):
        return True
    if isinstance(value, int):
        return value.bit_length() < 14_000  # Python refuses to print longer ones
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item, depth + 1) for key, item in value.items())
    return isinstance(value, list | tuple) and all(_is_json(item, depth + 1) for item in value)


def _dumped(meta: dict[str, Any], *, compact: bool = False) -> bytes:
    try:
        return dump_json(meta, compact=compact)
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"a non-tensor value cannot be written as JSON: {str(error)[:100]}") from error


def _pickled(value: Any, name: str) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # whatever a value's own reduction raises
        what = f"entry {shown(name)}: the value can be written neither as JSON nor as a pickle: {str(error)[:100]}"
        raise EncodeError(what, [Problem("pickle_present", what)]) from error


def _type_names(pickled: dict[str, Any], content: bytes) -> tuple[SourceFile, ...]:
    """json_types.json, where the pickle holds only the classes of plain containers. Spec: "Non-tensor data"."""
    names: dict[str, str] = {}
    for field, item in pickled.items():
        name = _TYPE_VALUES.get(item) if isinstance(item, type) else None
        if name is None:
            return ()
        names[field] = name
    record = {"types": names, "pickle_sha256": hashlib.sha256(content).hexdigest()}
    return (SourceFile.of("json_types.json", json.dumps(record).encode()),)

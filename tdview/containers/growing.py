"""This module knows how one leaf is added to a memory-mapped tensordict: its file, its entry, and the leaf here.

It does not know how a whole save is written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdview.containers.keys import unravel
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import MemoryMappedTensor, anonymous, opened
from tdview.containers.payload import check_savable, payload_blocks
from tdview.containers.source import Options, source_level
from tdview.containers.tensorclass import TensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.values import check_batch
from tdview.errors import AlreadyExistsError, LockedError, NotSupportedError, shown
from tdview.format.meta import META_LIMIT, dump_json, leaf_json, parse_json
from tdview.format.payload import META, payload_file
from tdview.operations.write import write_directory
from tdview.storage.fileio import write_all
from tdview.storage.lock import writer_lock
from tdview.storage.staging import new_file

__all__ = ["make_memmap", "make_memmap_from_storage", "make_memmap_from_tensor"]


def make_memmap(value: Any, key: Any, shape: Any, *, dtype: Any = None, robust_key: bool | None = True) -> Any:
    """Adds a leaf of zeros to a memory-mapped tensordict.

    The file is written first (sparse), then the ``meta.json`` of its level is replaced by one with the new entry at
    its end; missing levels are made. A kill between the two leaves a file that no entry names. Works though the
    tensordict is locked.

    Args:
        value: a tensordict that `memmap` returned.
        key: key or nested key; there must be no such entry.
        shape: sizes of the leaf, which start with the batch size.
        dtype: torch dtype, the default one if None.
        robust_key: whether the key is percent-encoded in the file name.

    Returns:
        The leaf ``[*shape]``: a `MemoryMappedTensor`, view of the mapped file.

    Raises:
        LockedError: the tensordict is not memory-mapped. (A RuntimeError, as the next two.)
        AlreadyExistsError: there is such an entry.
        ArgumentError: the shape does not start with the batch size; nothing was written then.
        NotSupportedError: a lazy view.

    Spec: `TensorDictBase.memmap`.
    """
    size = torch.Size(shape.tolist() if isinstance(shape, Tensor) else shape)
    zeros = torch.zeros((), dtype=dtype or torch.get_default_dtype()).expand(size)
    return _added(value, unravel(key), zeros, None, robust_key, holes=True)


def make_memmap_from_tensor(
    value: Any,
    key: Any,
    tensor: Any,
    *,
    copy_data: bool = True,
    existsok: bool = True,
    robust_key: bool | None = True,
) -> Any:
    """Adds a leaf with the elements of a tensor, or zeros of its shape and dtype with ``copy_data=False``.

    Args:
        existsok: whether a file that lies at the leaf's place, without an entry, is replaced.

    See `make_memmap` for the rest.
    """
    leaf = tensor if isinstance(tensor, Tensor) else torch.as_tensor(tensor)
    return _added(value, unravel(key), leaf.detach(), None, robust_key, holes=not copy_data, existsok=existsok)


def make_memmap_from_storage(
    value: Any, key: Any, storage: Any, shape: Any, *, dtype: Any = None, robust_key: bool | None = True
) -> Any:
    """Adds a leaf with the elements of a storage.

    A storage that is mapped to the very file of the leaf becomes the leaf; one without a file is copied into it.

    Raises:
        AlreadyExistsError: the storage is mapped to another file.

    See `make_memmap` for the rest.
    """
    size = torch.Size(shape.tolist() if isinstance(shape, Tensor) else shape)
    octets = torch.empty(0, dtype=torch.uint8).set_(storage)
    kind = dtype or torch.get_default_dtype()
    leaf = octets[: size.numel() * kind.itemsize].view(kind).view(size)
    return _added(value, unravel(key), leaf, getattr(storage, "filename", None), robust_key)


def _added(
    value: Any,
    key: tuple[str, ...],
    leaf: Tensor,
    origin: str | None,
    robust_key: bool | None,
    *,
    holes: bool = False,
    existsok: bool = True,
) -> Any:
    if isinstance(value, TensorClass):
        value = value._tensordict
    if not value.is_memmap():
        raise LockedError("a memory-mapped leaf can only be added to a tensordict that memmap() returned")
    if isinstance(value, LazyStackedTensorDict):
        check_batch(leaf, key[-1], value.batch_size)
        parts = leaf.unbind(value.stack_dim)
        for member, part in zip(value.tensordicts, parts, strict=True):
            _added(member, key, part, None, robust_key, holes=holes, existsok=existsok)
        return value.get(key)
    if not isinstance(value, TensorDict):
        raise NotSupportedError(f"an entry cannot be added to a {type(value).__name__}; add it to its source")
    if key in value:
        raise AlreadyExistsError(f"there is an entry {shown(key[-1])} already; delete it before it is made anew")
    options = Options(robust_key=robust_key is not False)
    if len(key) > 1 and key[0] in value:
        return _added(value._level(key[0]), key[1:], leaf, origin, robust_key, holes=holes, existsok=existsok)
    check_batch(leaf, key[-1], value.batch_size)
    check_savable(leaf, key[-1])
    for level in key[:-1]:
        value = _new_level(value, level, options)
    return _write_leaf(value, key[-1], leaf, origin, options, holes, existsok)


def _new_level(td: TensorDict, key: str, options: Options) -> TensorDict:
    level = TensorDict._made({}, td.batch_size, td.device, td._names and list(td._names))
    level._mapped = level._locked = level._held = True
    if td._prefix is not None:
        level._prefix = td._prefix / options.file_name(key)
        write_directory(source_level(level), level._prefix)
        _add_entry(td._prefix, key, {"type": "TensorDict"})
    td._entries[key] = level
    return level


def _write_leaf(
    td: TensorDict, key: str, leaf: Tensor, origin: str | None, options: Options, holes: bool, existsok: bool
) -> Tensor:
    if td._prefix is None:
        made: Tensor = anonymous(leaf.shape, leaf.dtype) if holes else MemoryMappedTensor.from_tensor(leaf)
        td._entries[key] = made
        return made
    path = td._prefix / payload_file(options.file_name(key))
    if origin is not None and os.path.realpath(origin) != os.path.realpath(path):
        raise AlreadyExistsError(f"entry {shown(key)}: the storage lies in {origin}, not in {path}; copy it first")
    with writer_lock(td._prefix):
        if origin is None and leaf.numel():
            _write_payload(path, leaf, holes, existsok)
        _add_entry(td._prefix, key, leaf_json(str(leaf.dtype), leaf.shape))
    made = opened(str(path), leaf.dtype, leaf.shape, "r+" if leaf.numel() else None)
    td._entries[key] = made
    return made


def _write_payload(path: Path, leaf: Tensor, holes: bool, existsok: bool) -> None:
    with new_file(path, existsok=existsok) as fd:
        if holes:
            os.ftruncate(fd, leaf.numel() * leaf.element_size())
            return
        for block in payload_blocks(leaf)():
            write_all(fd, block)


def _add_entry(place: Path, key: str, entry: dict[str, Any]) -> None:
    """Replaces the meta.json of a level by one with an entry more, at its end."""
    path = place / META
    data = path.read_bytes()
    fields = parse_json(data[: META_LIMIT + 1], path)
    fields[key] = entry
    with new_file(path) as fd:
        write_all(fd, dump_json(fields))

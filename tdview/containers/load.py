"""This module knows how a save becomes containers: which part of it, on which device, into which object.

It does not know the nodes of a save one by one; `build` makes a container of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from tdview.containers.build import Builder
from tdview.containers.collection import Collection
from tdview.containers.collector import no_collection
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.non_tensor import NonTensorBase
from tdview.containers.pending import Pending
from tdview.containers.tensorclass import TensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.views import _View
from tdview.errors import (
    ArgumentError,
    DecodeError,
    InterruptedAppendError,
    KeyMissingError,
    LockedError,
    MissingFileError,
    Problem,
    shown,
)
from tdview.storage.leftovers import inspect_append
from tdview.tree.node import Node
from tdview.tree.scan import scan

__all__ = ["load", "load_memmap", "refresh"]


def load_memmap(
    prefix: str | os.PathLike[str],
    device: Any = None,
    non_blocking: bool = False,
    *,
    out: Any = None,
    robust_key: bool | None = True,
    subpath: str | tuple[Any, ...] | None = None,
    mode: Literal["r", "r+"] | None = None,
    num_threads: int = 0,
    allow_pickle: bool | None = False,
    caller: type | None = None,
) -> Any:
    """Loads a saved tensordict. By default no pickle is executed, unlike in tensordict.

    Reads each ``meta.json`` and the size of each file; a leaf is mapped when it is first asked for. Nothing is
    grown, created or dropped: a leaf that is short, missing or of an unknown dtype raises. Values in a pickle are
    decoded if they are plain containers and scalars, and refused otherwise. Does not check CRC-32.

    Args:
        prefix: a saved directory, a ``.tdz`` or other zip archive, or a torchrl dump, whose storage is loaded.
        device: where the leaves go. ``"cpu"`` keeps the mapping; ``"meta"`` gives shapes and dtypes only.
        non_blocking: as for `torch.Tensor.to`.
        out: container of the same batch size that takes the entries; its nested containers are kept as objects.
        robust_key: whether file names are encoded keys, unencoded ones are tried next; with False the other way
            round. None is True.
        subpath: nested key of the part to load, a tuple or a string of keys joined by ``/``.
        mode: where in-place writes to leaves go. None: into the files of a directory, into memory for an archive.
            ``"r"``: into memory. ``"r+"``: into the files, also of an archive, whose checksums they make stale.
        num_threads: threads that inflate the leaves of a compressed archive at once; 0 inflates each on first use.
        allow_pickle: True executes pickles: only for files that you trust. None is False.
        caller: tensorclass for which a class of its name that was saved from ``__main__`` is taken.

    Returns:
        The container that the files name: `TensorDict`, `LazyStackedTensorDict`, a tensorclass (an
        `UnknownTensorClass` where its class is not imported), … It is not locked and does not count as
        memory-mapped. Leaves are `MemoryMappedTensor` views of the files; of an archive, tensor views of its
        mapping, copies where an entry is compressed or not aligned.

    Raises:
        MissingFileError: there is no save at `prefix`, or a file of it is missing. (A FileNotFoundError.)
        DecodeError: the save is damaged. (A RuntimeError and ValueError.)
        UnsupportedVersionError: it is in a newer format version.
        InterruptedAppendError: an append was killed midway, and left levels of different lengths.
        PickleRefusedError: a value would need a pickle to be executed. (A RuntimeError.)
        ArgumentError: a wrong mode, subpath or `out`. (A ValueError.)
        ReadOnlyError: ``mode="r+"`` and a file may not be written. (A PermissionError.)
        NotSupportedError: ``mode="r+"`` and an archive's entry is compressed or not aligned. (A RuntimeError.)

    Spec: "The on-disk format".

    Examples:
        >>> import tempfile, torch
        >>> from tdview import TensorDict, load_memmap
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = TensorDict(a=torch.arange(3), n={"b": torch.ones(3)}, batch_size=[3]).memmap(folder)
        ...     loaded = load_memmap(folder, mode="r")
        ...     print(loaded["a"].tolist(), loaded["n", "b"].tolist())
        [0, 1, 2] [1.0, 1.0, 1.0]
    """
    if mode not in (None, "r", "r+"):
        raise ArgumentError(f"mode: expected None, 'r' or 'r+', got {mode!r}")
    if allow_pickle is not None and not isinstance(allow_pickle, bool):
        raise TypeError(f"allow_pickle: expected a bool or None, got {type(allow_pickle).__name__}")
    target = torch.device(device) if device is not None else None
    parts = _parts_of(subpath)
    builder = Builder(mode, robust_key is not False, allow_pickle is True, caller)
    with no_collection(), _interruptions_named(prefix):
        node = _below(scan(prefix, "r+" if mode == "r+" and not os.path.isdir(prefix) else "r"), parts, subpath)
        value = builder.container(node)
    if num_threads > 1 and builder.pending:
        _inflate(value, num_threads)
    if out is not None:
        return _into(out, value, target)
    if target is None or target.type == "cpu":
        return value
    return value.to(target, non_blocking=non_blocking) if target.type != "meta" else _on_meta(value)


@contextmanager
def _interruptions_named(prefix: str | os.PathLike[str]) -> Iterator[None]:
    """Says so where a save cannot be loaded because an append to it was killed midway."""
    try:
        yield
    except DecodeError as error:
        if os.path.isdir(prefix) and inspect_append(Path(prefix)) is not None:
            message = f"{prefix}: an append was interrupted ({error}); tdview.recover_append ends it"
            raise InterruptedAppendError(message, [Problem("interrupted_append", message)]) from error
        if os.path.isdir(prefix) and any(problem.code == "missing_meta" for problem in error.problems):
            raise MissingFileError(str(error), error.problems) from error
        raise


load = load_memmap
"""The same as `load_memmap`."""


def _parts_of(subpath: Any) -> tuple[str, ...]:
    if subpath is None:
        return ()
    if isinstance(subpath, str):
        return tuple(part for part in subpath.split("/") if part)
    from tdview.containers.keys import is_nested_key, unravel

    if not is_nested_key(subpath):
        raise ArgumentError(f"subpath: expected a string or a (nested) tuple of strings, got {shown(subpath)}")
    return unravel(subpath)


def _below(node: Node, parts: tuple[str, ...], subpath: Any) -> Node:
    if node.kind == "collection":
        if parts and parts[0] in node:
            return _below(node[parts[0]], parts[1:], subpath)
        raise DecodeError(
            f"{node.where()}: there is no save, but below it are {shown(list(node), 200)}; load one of them"
        )
    try:
        found = node[parts] if parts else node
    except KeyMissingError as error:
        raise ArgumentError(f"subpath {shown(subpath)}: {error}") from None
    if found.is_leaf:
        raise ArgumentError(f"subpath {shown(subpath)}: this is a leaf; load the level that holds it")
    return found


def _inflate(value: Any, num_threads: int) -> None:
    """Reads the leaves of an archive in parallel: zlib and its kin release the interpreter lock."""
    waiting: list[tuple[dict[str, Any], str, Pending]] = []
    _collect(value, waiting)
    with ThreadPoolExecutor(num_threads, "tdview-load") as pool:
        for (entries, key, _), leaf in zip(waiting, pool.map(lambda item: item[2].open(), waiting), strict=True):
            entries[key] = leaf


def _collect(value: Any, into: list[tuple[dict[str, Any], str, Pending]]) -> None:
    if isinstance(value, TensorDict):
        into += [(value._entries, key, item) for key, item in value._entries.items() if isinstance(item, Pending)]
    for child in value._children():
        _collect(child, into)


def _on_meta(value: Any) -> Any:
    """The container with leaves that have shapes and dtypes but no elements; no file is opened."""
    meta = torch.device("meta")
    if isinstance(value, TensorDict):
        entries: dict[str, Any] = {}
        for key, item in value._entries.items():
            if isinstance(item, Collection):
                entries[key] = _on_meta(item)
            elif item.is_nested:
                entries[key] = item.open()  # torch has no nested tensor without elements
            else:
                entries[key] = torch.empty(item.shape, dtype=item.dtype, device=meta)
        return TensorDict._made(entries, value.batch_size, meta, value._names)
    if isinstance(value, LazyStackedTensorDict):
        members = map(_on_meta, value.tensordicts)
        return LazyStackedTensorDict(*members, stack_dim=value.stack_dim, stack_dim_name=value._stack_name)
    if isinstance(value, TensorClass):
        return value._with_tensordict(_on_meta(value._tensordict))
    if isinstance(value, _View):
        return value._of_source(_on_meta(value.source))
    return value


# into an object that is there


def _into(out: Any, value: Any, device: torch.device | None) -> Any:
    """Gives `out` the entries of a loaded container; everything is checked first."""
    if not isinstance(out, Collection):
        raise ArgumentError(f"out: expected a tensordict, got {type(out).__name__}")
    if device is not None and out.device is not None and out.device != device:
        raise ArgumentError(f"out: it is on {out.device}, and the device {device} is asked for")
    if device is None and out.device is not None and out.device.type not in ("cpu", "meta"):
        value = value.to(out.device)
    if device is not None and device.type != "cpu":
        value = _on_meta(value) if device.type == "meta" else value.to(device)
    _check_fits(out, value)
    _graft(out, value)
    return out


def _check_fits(out: Any, value: Any) -> None:
    if isinstance(out, TensorClass) and isinstance(value, TensorClass):
        _check_fits(out._tensordict, value._tensordict)
        return
    if out._locked:
        raise LockedError("out: the tensordict is locked; call unlock_() first")
    if out.batch_size != value.batch_size:
        what = f"expected the batch size {list(value.batch_size)} of the save, got {list(out.batch_size)}"
        raise ArgumentError(f"out: {what}")
    if isinstance(out, LazyStackedTensorDict) != isinstance(value, LazyStackedTensorDict):
        raise ArgumentError(f"out: expected a {type(value).__name__}, got {type(out).__name__}")
    if isinstance(out, LazyStackedTensorDict):
        if out.stack_dim != value.stack_dim:
            raise ArgumentError(f"out: expected the stack dim {value.stack_dim}, got {out.stack_dim}")
        for mine, theirs in zip(out.tensordicts, value.tensordicts, strict=True):
            _check_fits(mine, theirs)
    elif not isinstance(out, TensorDict) or not isinstance(value, TensorDict):
        raise ArgumentError(f"out: a {type(value).__name__} cannot be loaded into a {type(out).__name__}")


def _graft(out: Any, value: Any) -> None:
    if isinstance(out, TensorClass):
        _graft(out._tensordict, value._tensordict)
        return
    if isinstance(out, LazyStackedTensorDict):
        for mine, theirs in zip(out.tensordicts, value.tensordicts, strict=True):
            _graft(mine, theirs)
    else:
        entries: dict[str, Any] = {}
        for key, item in value._entries.items():
            old = out._entries.get(key)
            if _same_kind(old, item):
                _graft(old, item)
                entries[key] = old
            else:
                entries[key] = item
        out._entries = entries
        out._batch_size, out._names, out._saved_as = value._batch_size, value._names, value._saved_as
    out._prefix = value._prefix


def _same_kind(old: Any, new: Any) -> bool:
    """Whether a nested container can be kept as an object and take the entries of the new one."""
    if type(old) is not type(new) or isinstance(old, NonTensorBase | _View) or not isinstance(old, Collection):
        return False
    if isinstance(old, LazyStackedTensorDict):
        same = len(old.tensordicts) == len(new.tensordicts) and old.stack_dim == new.stack_dim
        return same and all(map(_same_kind, old.tensordicts, new.tensordicts))
    if isinstance(old, TensorClass):
        return _same_kind(old._tensordict, new._tensordict)
    return True


def refresh(value: Any, *, allow_pickle: bool | None) -> Any:
    """Reads the structure of a memory-mapped container anew; see `Savable.memmap_refresh_`."""
    from tdview.containers.saving import _marked

    if not value.is_memmap() or value._prefix is None:
        raise LockedError("only a tensordict that memmap() wrote to a directory can be refreshed")
    fresh = load_memmap(value._prefix, allow_pickle=allow_pickle, caller=type(value))
    if not _same_kind(value, fresh):
        what = f"{value._prefix}: the save is no {type(value).__name__} of the same structure any more; load it anew"
        raise DecodeError(what, [Problem("unknown_class", what)])
    place = value._prefix
    _graft(value, fresh)
    return _marked(value, place, False)

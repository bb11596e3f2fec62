"""This module knows how a container is written, and which memory-mapped container the caller gets back.

It does not know the files of a save; `source` describes them and `operations.write` writes them.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdview.containers.collection import Collection
from tdview.containers.collector import no_collection
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import MemoryMappedTensor, file_of
from tdview.containers.non_tensor import NonTensorBase
from tdview.containers.payload import component_sizes
from tdview.containers.pending import Pending, PendingNested, nested_of
from tdview.containers.source import Options, dense_of, source_level, value_level
from tdview.containers.tensorclass import TensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.views import _View
from tdview.errors import ArgumentError, NotSupportedError
from tdview.format.payload import payload_file, shape_file
from tdview.operations.write import write_archive, write_directory

__all__ = ["TensorDictFuture", "memmap", "memmap_", "memmap_like", "rewrite_value"]


class TensorDictFuture:
    """A save that is still being written by threads.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     td = TensorDict(a=torch.ones(3), batch_size=[3])
        ...     future = td.memmap(folder, num_threads=2, return_early=True)
        ...     future.result().is_memmap()
        True
    """

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    @classmethod
    def of(cls, value: Any) -> TensorDictFuture:
        """A future that is done."""
        future: Future[Any] = Future()
        future.set_result(value)
        return cls(future)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the threads and returns the memory-mapped tensordict; raises what the write raised."""
        return self._future.result(timeout)

    def done(self) -> bool:
        """Whether everything is written, or the write failed."""
        return self._future.done()


def is_archive_path(prefix: Path | None, archive: bool | None) -> bool:
    """Whether a save goes to an archive: as asked for, else by the suffix ``.tdz`` (in lower case)."""
    return archive if archive is not None else prefix is not None and prefix.name.endswith(".tdz")


def memmap(
    value: Any,
    prefix: str | os.PathLike[str] | None,
    copy_existing: bool,
    *,
    num_threads: int,
    return_early: bool,
    existsok: bool,
    robust_key: bool | None,
    archive: bool | None,
    compression: str | int | None,
    atomic: bool,
    share_non_tensor: bool = False,
) -> Any:
    """Writes a container; see `Savable.memmap` for every parameter."""
    path = Path(prefix) if prefix is not None else None
    if is_archive_path(path, archive):
        if path is None:
            raise ArgumentError("prefix: an archive needs a path")
        if return_early:
            raise NotSupportedError("return_early: an archive is written in one pass; it cannot be returned early")
        return _to_archive(value, path, copy_existing, existsok, robust_key, compression, zeros=False)
    if compression is not None:
        raise ArgumentError("compression: only an archive can be compressed; pass archive=True or a path with .tdz")
    if atomic:
        if path is None:
            raise ArgumentError("prefix: atomic=True needs a path")
        if return_early:
            raise NotSupportedError("return_early is not possible with atomic=True")
        if os.name == "nt":
            raise NotSupportedError("atomic=True is not possible for a directory on Windows")
    path = Path(os.path.abspath(path)) if path is not None else value._prefix
    if path is None:
        return _marked(_in_memory(value), None, share_non_tensor)
    options = Options(
        robust_key=robust_key is not False,
        target=None if atomic else path,
        replaced=(f"{path}/", f"{os.path.realpath(path)}/"),
        copy_existing=copy_existing,
    )
    with no_collection():
        level = source_level(value, options)

    def write() -> Any:
        write_directory(level, path, existsok=existsok, num_threads=num_threads, atomic=atomic)
        with no_collection():
            return _marked(mapped_copy(value, str(path), options), path, share_non_tensor, options)

    if not (return_early and num_threads > 1):
        return write()
    with_one = ThreadPoolExecutor(1, "tdview-save")
    future = with_one.submit(write)
    with_one.shutdown(wait=False)
    return TensorDictFuture(future)


def memmap_(value: Any, prefix: Any, copy_existing: bool, **options: Any) -> Any:
    """Writes a container and maps its own leaves to the files; see `Savable.memmap_`."""
    result = memmap(value, prefix, copy_existing, archive=False, compression=None, **options)
    if isinstance(result, TensorDictFuture):
        written = result

        def finish() -> Any:
            return adopt(value, written.result())

        pool = ThreadPoolExecutor(1, "tdview-save")
        future = pool.submit(finish)
        pool.shutdown(wait=False)
        return TensorDictFuture(future)
    return adopt(value, result)


def memmap_like(
    value: Any,
    prefix: str | os.PathLike[str] | None,
    *,
    existsok: bool,
    num_threads: int,
    robust_key: bool | None,
    archive: bool | None,
    share_non_tensor: bool = False,
) -> Any:
    """Writes zeros of the shapes of a container; see `Savable.memmap_like`."""
    path = Path(prefix) if prefix is not None else None
    if is_archive_path(path, archive):
        if path is None:
            raise ArgumentError("prefix: an archive needs a path")
        return _to_archive(value, path, True, existsok, robust_key, None, zeros=True)
    if path is None:
        return _marked(_in_memory(value, zeros=True), None, share_non_tensor)
    path = Path(os.path.abspath(path))
    options = Options(robust_key=robust_key is not False, dense=True, zeros=True)
    write_directory(source_level(value, options), path, existsok=existsok, num_threads=num_threads)
    return _marked(mapped_copy(value, str(path), options), path, share_non_tensor, options)


def _to_archive(
    value: Any,
    path: Path,
    copy_existing: bool,
    existsok: bool,
    robust_key: bool | None,
    compression: str | int | None,
    *,
    zeros: bool,
) -> Any:
    from tdview.containers.load import load_memmap  # loading builds on what is saved

    options = Options(robust_key=robust_key is not False, dense=True, zeros=zeros)
    with no_collection():
        level = source_level(value, options)
    write_archive(level, path, compression=compression, existsok=existsok)
    del copy_existing  # an archive is always a copy
    # The pickles in it were written a moment ago from this very value.
    return load_memmap(path, robust_key=robust_key, allow_pickle=True, mode="r+" if zeros else None)


# what the caller gets back


def mapped_copy(value: Any, place: str, options: Options) -> Any:
    """The container that the save at `place` holds, its leaves mapped when they are first asked for."""
    if isinstance(value, _View) and options.dense:
        value = dense_of(value)
    if isinstance(value, NonTensorBase):
        return value.clone()
    if isinstance(value, TensorClass):
        return value._with_tensordict(mapped_copy(value._tensordict, f"{place}/_tensordict", options))
    if isinstance(value, LazyStackedTensorDict):
        members = (mapped_copy(item, f"{place}/{number}", options) for number, item in enumerate(value.tensordicts))
        return LazyStackedTensorDict(*members, stack_dim=value.stack_dim, stack_dim_name=value._stack_name)
    if isinstance(value, _View):
        return value._of_source(mapped_copy(value.source, f"{place}/_source", options))
    if not isinstance(value, TensorDict):
        from tdview.containers.values import foreign

        return mapped_copy(foreign(value), place, options)
    entries: dict[str, Any] = {}
    for key in value._keys():
        item = value._peek(key)
        name = options.file_name(key)
        if isinstance(item, Collection):
            entries[key] = mapped_copy(item, f"{place}/{name}", options)
        else:
            entries[key] = _mapped_leaf(item, f"{place}/{payload_file(name)}", f"{place}/{shape_file(name)}")
    out = TensorDict._made(entries, value.batch_size, torch.device("cpu"), value._names and list(value._names))
    out._saved_as = value._saved_as
    return out


def _mapped_leaf(leaf: Any, filename: str, shape_filename: str) -> Any:
    if leaf.is_nested:
        whole = leaf.open() if isinstance(leaf, Pending) else leaf
        parts = whole.unbind(0)
        ndim = parts[0].ndim if parts else 0
        if not whole.numel():
            return whole
        return PendingNested(filename, shape_filename, leaf.dtype, (len(parts), ndim), None)
    return Pending(filename, leaf.dtype, tuple(leaf.shape), None)


def _in_memory(value: Any, *, zeros: bool = False) -> Any:
    """The container with its leaves in anonymous memory that child processes share."""

    def moved(leaf: Any) -> Any:
        tensor = leaf.open() if isinstance(leaf, Pending) else leaf
        if tensor.is_nested:
            return _nested_in_memory(tensor, zeros)
        if type(tensor) is MemoryMappedTensor and file_of(tensor) is None and not zeros:
            return tensor
        return MemoryMappedTensor.from_tensor(tensor.detach().cpu(), copy_data=not zeros)

    if isinstance(value, _View):
        value = dense_of(value)
    if isinstance(value, NonTensorBase):
        return value.clone()
    if isinstance(value, TensorClass):
        return value._with_tensordict(_in_memory(value._tensordict, zeros=zeros))
    if isinstance(value, LazyStackedTensorDict):
        members = (_in_memory(item, zeros=zeros) for item in value.tensordicts)
        return LazyStackedTensorDict(*members, stack_dim=value.stack_dim, stack_dim_name=value._stack_name)
    entries = {}
    for key in value._keys():
        item = value._peek(key)
        entries[key] = _in_memory(item, zeros=zeros) if isinstance(item, Collection) else moved(item)
    out = TensorDict._made(entries, value.batch_size, torch.device("cpu"), value._names and list(value._names))
    out._saved_as = value._saved_as
    return out


def _nested_in_memory(tensor: Tensor, zeros: bool) -> Tensor:
    parts = [part.detach().cpu().reshape(-1) for part in tensor.unbind(0)]
    flat = MemoryMappedTensor.from_tensor(torch.cat(parts) if parts else tensor.new_empty(0), copy_data=not zeros)
    return nested_of(flat.as_subclass(Tensor), torch.tensor(component_sizes(tensor), dtype=torch.int64))


def _marked(value: Collection, place: Path | None, shared: bool, options: Options | None = None) -> Any:
    """The container as memory-mapped at `place`, locked."""
    _mark(value, place, shared, options or Options())
    value.lock_()
    return value


def _mark(value: Any, place: Path | None, shared: bool, options: Options) -> None:
    value._mapped, value._prefix = True, place

    def below(child: Collection, name: str) -> None:
        _mark(child, None if place is None else place / name, shared, options)

    if isinstance(value, NonTensorBase):
        value._shared = shared and place is not None
    elif isinstance(value, TensorClass):
        below(value._tensordict, "_tensordict")
    elif isinstance(value, LazyStackedTensorDict):
        for number, member in enumerate(value.tensordicts):
            below(member, str(number))
    elif isinstance(value, _View):
        below(value.source, "_source")
    elif isinstance(value, TensorDict):
        for key, item in value._entries.items():
            if isinstance(item, Collection):
                below(item, options.file_name(key))


def adopt(value: Any, result: Any) -> Any:
    """Gives `value` the leaves and marks of `result`, which has the same structure; nested objects stay the same."""
    if isinstance(value, TensorClass):
        adopt(value._tensordict, result._tensordict)
    elif isinstance(value, LazyStackedTensorDict):
        for member, other in zip(value.tensordicts, result.tensordicts, strict=True):
            adopt(member, other)
    elif isinstance(value, _View):
        if isinstance(result, _View):
            adopt(value.source, result.source)
    elif isinstance(value, TensorDict):
        for key, item in list(value._entries.items()):
            other = result._entries[key]
            if isinstance(item, Collection):
                adopt(item, other)
            elif not (isinstance(other, Pending) and _stays(item, other)):
                value._entries[key] = other
        value._device = result._device
    for mark in ("_mapped", "_prefix", "_locked", "_held"):
        setattr(value, mark, getattr(result, mark))
    return value


def _stays(leaf: Any, pending: Pending) -> bool:
    """Whether a leaf is mapped to the file already."""
    return isinstance(leaf, Tensor) and file_of(leaf) == pending.filename and getattr(leaf, "_mode", None) != "r"


def rewrite_value(value: NonTensorBase, place: Path) -> None:
    """Writes a non-tensor value of a memory-mapped tensordict anew; the old files are replaced at once."""
    write_directory(value_level(value), place)

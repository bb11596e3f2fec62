"""This module knows memory-mapped tensors: how a payload file becomes a tensor, and which file a tensor lies in.

It does not know keys, levels or meta.json.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from tdview.errors import AlreadyExistsError, ArgumentError, DecodeError, MissingFileError, Problem, ReadOnlyError

__all__ = [
    "CARRIERS",
    "MapMode",
    "MemoryMappedTensor",
    "anonymous",
    "cloned",
    "empty",
    "file_of",
    "opened",
    "view_of",
    "whole_file_of",
]

MapMode = Literal["r", "r+"] | None
"""None: writes reach the file where the process may write it, else they stay private. "r": they stay private.
"r+": they reach the file, or opening raises."""


CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of each item size: torch can copy and index them where it cannot some rarer dtype."""

_COMMON = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
     torch.float32, torch.float64, torch.complex64, torch.complex128)
)  # fmt: skip


class MemoryMappedTensor(torch.Tensor):
    """A tensor whose elements lie in a mapped file, or in anonymous memory shared with child processes.

    In-place operations change the mapped bytes; every other operation gives a plain tensor. Indexing that gives
    a view gives a `MemoryMappedTensor` on the same file.

    Spec: "Leaves".

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     there = MemoryMappedTensor.from_tensor(torch.ones(3), filename=f"{folder}/a.memmap")
        ...     there += 1
        ...     again = MemoryMappedTensor.from_filename(there.filename, torch.float32, [3])
        ...     print(again.tolist(), type(there + 1).__name__)
        [2.0, 2.0, 2.0] Tensor
    """

    _filename: str | None
    _mode: MapMode

    # Results of operations are plain tensors, as those of a Parameter are: only the leaf itself is special.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def _of(tensor: Tensor, filename: str | None, mode: MapMode = None) -> MemoryMappedTensor:
        out = torch.Tensor._make_subclass(MemoryMappedTensor, tensor)
        out._filename = filename
        out._mode = mode
        return out

    @property
    def filename(self) -> str | None:
        """Absolute path of the mapped file; None for anonymous memory."""
        return self._filename

    def __getitem__(self, index: Any) -> Any:
        return view_of(super().__getitem__(index), self)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        filename = whole_file_of(self)
        if filename is None or self._mode == "r":
            return torch.Tensor.clone(self).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]
        return opened, (filename, self.dtype, tuple(self.shape), self._mode)

    @classmethod
    def from_filename(
        cls, filename: str | os.PathLike[str], dtype: torch.dtype, shape: Sequence[int], *, mode: MapMode = None
    ) -> MemoryMappedTensor:
        """Maps the payload in a file; unlike tensordict's, never grows or creates it.

        Args:
            filename: a file that holds the elements in C order, with no header.
            dtype: torch dtype.
            shape: sizes; the file has at least their product times the item size in bytes.
            mode: see `MapMode`.

        Returns:
            A tensor of this shape: view of the mapped file.

        Raises:
            MissingFileError: there is no such file.
            DecodeError: the file is too short.
            ReadOnlyError: ``mode="r+"`` and the file may not be written.

        Spec: "Leaves".
        """
        return opened(os.path.abspath(filename), dtype, tuple(shape), mode)

    @classmethod
    def from_tensor(
        cls,
        input: Any,
        *,
        filename: str | os.PathLike[str] | None = None,
        existsok: bool = False,
        copy_existing: bool = False,
        copy_data: bool = True,
        shape: Sequence[int] | None = None,
    ) -> MemoryMappedTensor:
        """Writes a tensor to a file, or to anonymous shared memory, and maps it.

        Args:
            input: tensor, or what `torch.as_tensor` takes.
            filename: file to write; None for anonymous memory.
            existsok: whether an existing file is replaced.
            copy_existing: whether a tensor that lies in another file may be copied.
            copy_data: False leaves the new elements zero.
            shape: shape of the result; that of `input` by default.

        Returns:
            A tensor ``[*shape]``: view of the mapped file or memory.

        Raises:
            AlreadyExistsError: the file exists, or the tensor lies in another file, and that is not allowed.
        """
        here = file_of(input) if isinstance(input, Tensor) else None
        source = input.detach() if isinstance(input, Tensor) else torch.as_tensor(input)
        if here is not None and filename is not None and not copy_existing and not _same(here, filename):
            raise AlreadyExistsError(f"{filename}: the tensor already lies in {here}; pass copy_existing=True to copy")
        size = torch.Size(source.shape if shape is None else shape)
        if here is not None and filename is not None and _same(here, filename) and whole_file_of(input) is not None:
            return cls._of(source, here, input._mode if isinstance(input, cls) else None)
        if filename is None:
            out = anonymous(size, source.dtype)
        else:
            if os.path.lexists(filename) and not existsok:
                raise AlreadyExistsError(f"{filename}: there is a file already; pass existsok=True to replace it")
            with open(filename, "wb") as file:
                file.truncate(size.numel() * source.dtype.itemsize)
            out = opened(os.path.abspath(filename), source.dtype, size, "r+")
        if copy_data:
            _copy(source.expand(size), out)
        return out

    @classmethod
    def full(
        cls, *size: Any, dtype: torch.dtype | None = None, filename: str | None = None, fill_value: Any = 0
    ) -> MemoryMappedTensor:
        """A mapped tensor filled with one value; the sizes as for `torch.zeros`."""
        shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        out = cls.from_tensor(
            torch.zeros((), dtype=dtype or torch.get_default_dtype()), filename=filename, copy_data=False, shape=shape
        )
        if fill_value:
            out.fill_(fill_value)
        return out

    @classmethod
    def zeros(cls, *size: Any, dtype: torch.dtype | None = None, filename: str | None = None) -> MemoryMappedTensor:
        """A mapped tensor of zeros; a new file is sparse."""
        return cls.full(*size, dtype=dtype, filename=filename)

    @classmethod
    def empty(cls, *size: Any, dtype: torch.dtype | None = None, filename: str | None = None) -> MemoryMappedTensor:
        """The same as `zeros`: new pages are zero anyway."""
        return cls.full(*size, dtype=dtype, filename=filename)

    @classmethod
    def ones(cls, *size: Any, dtype: torch.dtype | None = None, filename: str | None = None) -> MemoryMappedTensor:
        """A mapped tensor of ones."""
        return cls.full(*size, dtype=dtype, filename=filename, fill_value=1)

    @classmethod
    def zeros_like(cls, input: Tensor, *, filename: str | None = None) -> MemoryMappedTensor:
        """Zeros of the shape and dtype of `input`."""
        return cls.full(input.shape, dtype=input.dtype, filename=filename)

    @classmethod
    def empty_like(cls, input: Tensor, *, filename: str | None = None) -> MemoryMappedTensor:
        """The same as `zeros_like`."""
        return cls.full(input.shape, dtype=input.dtype, filename=filename)

    @classmethod
    def ones_like(cls, input: Tensor, *, filename: str | None = None) -> MemoryMappedTensor:
        """Ones of the shape and dtype of `input`."""
        return cls.full(input.shape, dtype=input.dtype, filename=filename, fill_value=1)


def _copy(source: Tensor, target: Tensor) -> None:
    try:
        target.copy_(source)
    except NotImplementedError:  # torch has no copy of its own for some rarer dtypes
        carrier = CARRIERS[source.dtype.itemsize]
        target.view(carrier).copy_(source.view(carrier))


def opened(filename: str, dtype: torch.dtype, shape: Sequence[int], mode: MapMode) -> MemoryMappedTensor:
    """Maps a payload file; see `MemoryMappedTensor.from_filename`."""
    size = torch.Size(shape)
    nbytes = size.numel() * dtype.itemsize
    if mode not in (None, "r", "r+"):
        raise ArgumentError(f"mode: expected None, 'r' or 'r+', got {mode!r}")
    if nbytes == 0:
        return MemoryMappedTensor._of(empty(size, dtype), filename, mode)
    try:
        found = os.stat(filename).st_size
    except FileNotFoundError:
        what = f"{filename}: the file of this leaf is missing"
        raise MissingFileError(what, [Problem("missing_file", what)]) from None
    if found < nbytes:
        what = f"{filename}: payload is {found} bytes, {dtype} {list(size)} needs {nbytes}"
        raise DecodeError(what, [Problem("file_size", what)])
    storage = _mapped(filename, nbytes, mode)
    return MemoryMappedTensor._of(_over(storage, dtype, size), filename, mode)


def empty(size: torch.Size, dtype: torch.dtype) -> Tensor:
    """A tensor without elements."""
    if dtype == torch.complex32:  # torch warns of its own dtype when it makes one
        return torch.empty(0, dtype=torch.int32).view(dtype).view(size)
    return torch.empty(size, dtype=dtype)


def _over(storage: torch.UntypedStorage, dtype: torch.dtype, size: torch.Size) -> Tensor:
    """The tensor whose elements fill a storage from its first byte."""
    tensor = torch.empty(0, dtype=torch.int32 if dtype == torch.complex32 else dtype)
    tensor.set_(storage, 0, size)  # type: ignore[call-overload]  # sound: the strides have a default
    return tensor.view(dtype) if dtype == torch.complex32 else tensor


def _mapped(filename: str, nbytes: int, mode: MapMode) -> torch.UntypedStorage:
    # torch's own mapping closes the file at once; one of the mmap module would keep a descriptor per leaf.
    shared = mode != "r" and os.access(filename, os.W_OK)
    if mode == "r+" and not shared:
        raise ReadOnlyError(f"{filename}: the file may not be written; open it with mode=None or 'r'")
    return torch.UntypedStorage.from_file(filename, shared, nbytes)  # type: ignore[return-value]


def anonymous(shape: torch.Size, dtype: torch.dtype) -> MemoryMappedTensor:
    """Zeros in anonymous memory that child processes share; it lasts as long as the process."""
    nbytes = shape.numel() * dtype.itemsize
    if nbytes == 0:
        return MemoryMappedTensor._of(empty(shape, dtype), None)
    flat = torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8, count=nbytes)
    return MemoryMappedTensor._of(_over(flat.untyped_storage(), dtype, shape), None)


def cloned(tensor: Tensor) -> Tensor:
    """A copy of a tensor of whatever dtype; torch has no copy of its own for some rarer ones."""
    if tensor.is_nested:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the strided layout a prototype, once a process
            return tensor.clone()
    carrier = CARRIERS.get(tensor.dtype.itemsize)
    if tensor.dtype in _COMMON or carrier is None or tensor.is_conj():
        return tensor.clone()
    return tensor.detach().view(carrier).clone().view(tensor.dtype)


def view_of(result: Any, source: Tensor) -> Any:
    """`result` of an operation on `source` as a `MemoryMappedTensor`, where it still lies in its memory."""
    if type(source) is not MemoryMappedTensor or type(result) is not torch.Tensor or result.dtype != source.dtype:
        return result
    if result.untyped_storage().data_ptr() != source.untyped_storage().data_ptr():
        return result
    return MemoryMappedTensor._of(result, source._filename, source._mode)


def file_of(tensor: Any) -> str | None:
    """The file that a tensor, or a part of it, lies in; also for tensordict's own memory-mapped tensors."""
    if type(tensor) is torch.Tensor:
        return None
    filename = getattr(tensor, "filename", None)
    return str(filename) if filename is not None else None


def whole_file_of(tensor: Any) -> str | None:
    """The file in which exactly this tensor lies, in C order from byte 0; None for a part, a view or a copy."""
    filename = file_of(tensor)
    if filename is None or tensor.storage_offset() != 0 or not tensor.is_contiguous():
        return None
    return filename if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() else None


def _same(left: str | os.PathLike[str], right: str | os.PathLike[str]) -> bool:
    return Path(left).resolve() == Path(right).resolve()

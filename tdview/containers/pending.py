"""This module knows leaves that are mapped when they are first asked for.

It does not know meta.json: whoever makes one has checked that its file is there and long enough.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch import Tensor

from tdview.containers.memory import MapMode, empty, opened
from tdview.errors import DecodeError, NotSupportedError, shown
from tdview.storage.archive import ArchiveStore

__all__ = ["ArchiveMap", "Pending", "PendingEntry", "PendingNested", "PendingNestedEntry", "nested_of"]


class Pending:
    """A leaf in a file of its own. It stands in the entries of a tensordict until the leaf is asked for.

    Loading ten thousand leaves this way opens none of their files.
    """

    __slots__ = ("dtype", "filename", "identity", "leaf", "mode", "shape")

    is_nested = False

    def __init__(
        self,
        filename: str,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        mode: MapMode,
        identity: int | None = None,
    ) -> None:
        self.filename = filename
        self.dtype = dtype
        self.shape = shape
        self.mode: MapMode = mode
        self.identity = identity
        """Number of the file that was there when the save was loaded; None where it does not matter."""
        self.leaf: Tensor | None = None

    def open(self) -> Tensor:
        """The leaf itself, mapped at the first call: all containers that share it get the same tensor.

        Raises:
            DecodeError: the file was replaced, shortened or removed meanwhile.
        """
        if self.leaf is None:
            self.leaf = self._opened()
        return self.leaf

    def passing(self) -> Tensor:
        """The leaf for one use: a copy of ten thousand leaves does not keep them all mapped."""
        return self._opened() if self.leaf is None else self.leaf

    def _opened(self) -> Tensor:
        if self.identity is not None:
            self._check_identity()
        return opened(self.filename, self.dtype, self.shape, self.mode)

    def _check_identity(self) -> None:
        filename = self._witness()
        try:
            status = os.stat(filename)
        except OSError:
            return  # `opened` says what is missing
        if status.st_ino != self.identity:
            raise DecodeError(f"{filename}: the save was replaced after it was loaded; load it again")

    def _witness(self) -> str:
        """The file whose identity is known."""
        return self.filename

    def __reduce__(self) -> Any:
        return _itself, (self.open(),)

    @property
    def whole_file(self) -> str | None:
        """The file in which exactly this leaf lies, if writes to it reach the file."""
        return None if self.mode == "r" else self.filename

    def size(self, dim: int) -> int:
        """As `torch.Tensor.size`."""
        return self.shape[dim]


class PendingNested(Pending):
    """A strided nested tensor in two files: its elements and its sizes. Spec: "Nested tensors"."""

    __slots__ = ("shape_filename",)

    is_nested = True

    def __init__(
        self,
        filename: str,
        shape_filename: str,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        mode: MapMode,
        identity: int | None = None,
    ) -> None:
        super().__init__(filename, dtype, shape, mode, identity)
        self.shape_filename = shape_filename

    def _witness(self) -> str:
        return self.shape_filename

    def _opened(self) -> Tensor:
        if self.identity is not None:
            self._check_identity()
        sizes = opened(self.shape_filename, torch.int64, self.shape, "r").as_subclass(Tensor)
        flat = opened(self.filename, self.dtype, (int(sizes.prod(1).sum()),), self.mode)
        return nested_of(flat.as_subclass(Tensor), sizes)


class ArchiveMap:
    """The one mapping of an archive that all leaves of a load are views of.

    Each load has its own, so that private writes of one are not seen by another. With ``mode="r+"`` writes reach the
    archive, else they stay in memory.
    """

    def __init__(self, store: ArchiveStore, mode: MapMode) -> None:
        self.store = store
        self.mode = mode
        nbytes = os.stat(store.location).st_size
        # torch's own mapping keeps no file descriptor open.
        storage: Any = torch.UntypedStorage.from_file(str(store.location), mode == "r+", nbytes)
        self._storage = storage
        if not store.is_current():
            raise DecodeError(f"{store.label}: the archive was replaced while it was opened; load it again")

    def octets(self, name: str, nbytes: int, alignment: int) -> Tensor:
        """The first `nbytes` bytes of a zip entry: a view where it is stored and aligned, else a copy.

        Raises:
            NotSupportedError: writes have to reach the archive, and the entry is compressed or not aligned.
        """
        info = self.store.info(name)
        where = f"{self.store.label}: zip entry {shown(name)}"
        if info is None or info.compression != "stored" or info.offset is None:
            if self.mode == "r+":
                raise NotSupportedError(f"{where} cannot be written in place; pack the archive uncompressed")
            return torch.frombuffer(self.store.view(name, nbytes, "copy"), dtype=torch.uint8, count=nbytes)
        if info.nbytes < nbytes:
            raise DecodeError(f"{where}: the payload is {info.nbytes} bytes, expected {nbytes}")
        octets = torch.empty(0, dtype=torch.uint8).set_(self._storage, info.offset, (nbytes,), (1,))
        if info.offset % alignment == 0:
            return octets
        if self.mode == "r+":
            raise NotSupportedError(f"{where} is not aligned, so it cannot be written in place; pack the archive again")
        return octets.clone()


class PendingEntry(Pending):
    """A leaf in a zip entry; a view of the archive's one mapping where it is stored and aligned."""

    __slots__ = ("archive",)

    def __init__(self, archive: ArchiveMap, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.filename = name  # not by the parent's constructor: thousands are made at once
        self.dtype = dtype
        self.shape = shape
        self.mode = archive.mode
        self.identity = None
        self.leaf = None
        self.archive = archive

    def _opened(self) -> Tensor:
        return self._flat(torch.Size(self.shape).numel()).view(self.shape)

    def _flat(self, count: int) -> Tensor:
        size = self.dtype.itemsize
        if count == 0:
            return empty(torch.Size([0]), self.dtype)
        return self.archive.octets(self.filename, count * size, size).view(self.dtype)

    @property
    def whole_file(self) -> str | None:
        """None: an archive is never written in place by a save."""
        return None


class PendingNestedEntry(PendingEntry):
    """A strided nested tensor in two zip entries."""

    __slots__ = ("shape_name",)

    is_nested = True

    def __init__(
        self, archive: ArchiveMap, name: str, shape_name: str, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        super().__init__(archive, name, dtype, shape)
        self.shape_name = shape_name

    def _opened(self) -> Tensor:
        sizes = PendingEntry(self.archive, self.shape_name, torch.int64, self.shape).open()
        return nested_of(self._flat(int(sizes.prod(1).sum())), sizes)


def _itself(leaf: Tensor) -> Tensor:
    """What a pickled or copied pending leaf becomes: the leaf."""
    return leaf


def nested_of(flat: Tensor, sizes: Tensor) -> Tensor:
    """A strided nested tensor over the elements in `flat`, its parts one after another in C order; a view.

    Args:
        flat: ``[elements]``.
        sizes: int64 ``[n, ndim]``, one row for each of the n parts.
    """
    if not sizes.numel():
        return _nested(flat, sizes, sizes, torch.zeros(len(sizes), dtype=torch.int64))
    counts = sizes.prod(1)
    start = int(flat.storage_offset())  # torch counts offsets from the start of the storage
    offsets = counts.cumsum(0) - counts + start
    strides = torch.ones_like(sizes)
    for dim in range(sizes.shape[1] - 2, -1, -1):
        strides[:, dim] = strides[:, dim + 1] * sizes[:, dim + 1]
    return _nested(flat, sizes, strides, offsets)


def _nested(flat: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> Tensor:
    made: Any = torch._nested_view_from_buffer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the strided layout a prototype, once a process
        result: Tensor = made(flat, sizes.clone(), strides.clone(), offsets)
    return result

"""This module knows leaves that are mapped when they are first asked for.

It does not know meta.json: whoever makes one has checked that its file is there and long enough.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from tdview.containers.memory import MapMode, empty, opened
from tdview.errors import NotSupportedError, shown
from tdview.storage.mapping import Access
from tdview.storage.store import Store

__all__ = ["Pending", "PendingEntry", "PendingNested", "PendingNestedEntry", "nested_of"]


class Pending:
    """A leaf in a file of its own. It stands in the entries of a tensordict until the leaf is asked for.

    Loading ten thousand leaves this way opens none of their files.
    """

    __slots__ = ("dtype", "filename", "mode", "shape")

    is_nested = False

    def __init__(self, filename: str, dtype: torch.dtype, shape: tuple[int, ...], mode: MapMode) -> None:
        self.filename = filename
        self.dtype = dtype
        self.shape = shape
        self.mode: MapMode = mode

    def open(self) -> Tensor:
        """The leaf itself: a `MemoryMappedTensor`, mapped now."""
        return opened(self.filename, self.dtype, self.shape, self.mode)

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
        self, filename: str, shape_filename: str, dtype: torch.dtype, shape: tuple[int, ...], mode: MapMode
    ) -> None:
        super().__init__(filename, dtype, shape, mode)
        self.shape_filename = shape_filename

    def open(self) -> Tensor:
        """The nested tensor: a view of the mapped file."""
        sizes = opened(self.shape_filename, torch.int64, self.shape, "r").as_subclass(Tensor)
        flat = opened(self.filename, self.dtype, (int(sizes.prod(1).sum()),), self.mode)
        return nested_of(flat.as_subclass(Tensor), sizes)


class PendingEntry(Pending):
    """A leaf in a zip entry; a view of the archive's one mapping where it is stored and aligned.

    With ``mode=None`` and ``"r"`` writes stay in memory, with ``"r+"`` they reach the archive.
    """

    __slots__ = ("store",)

    def __init__(self, store: Store, name: str, dtype: torch.dtype, shape: tuple[int, ...], mode: MapMode) -> None:
        super().__init__(name, dtype, shape, mode)
        self.store = store

    def open(self) -> Tensor:
        """The leaf itself: a plain tensor."""
        return self._flat(torch.Size(self.shape).numel()).view(self.shape)

    def _flat(self, count: int) -> Tensor:
        nbytes = count * self.dtype.itemsize
        if nbytes == 0:
            return empty(torch.Size([0]), self.dtype)
        access: Access = "write" if self.mode == "r+" else "copy"
        buffer = self.store.view(self.filename, nbytes, access)
        octets = torch.frombuffer(buffer, dtype=torch.uint8, count=nbytes)
        if octets.data_ptr() % self.dtype.itemsize:
            if self.mode == "r+":
                raise NotSupportedError(
                    f"{self.store.location}: zip entry {shown(self.filename)} is not aligned, so it cannot be written"
                    " in place; pack the archive again"
                )
            octets = octets.clone()
        return octets.view(self.dtype)

    @property
    def whole_file(self) -> str | None:
        """None: an archive is never written in place by a save."""
        return None


class PendingNestedEntry(PendingEntry):
    """A strided nested tensor in two zip entries."""

    __slots__ = ("shape_name",)

    is_nested = True

    def __init__(
        self, store: Store, name: str, shape_name: str, dtype: torch.dtype, shape: tuple[int, ...], mode: MapMode
    ) -> None:
        super().__init__(store, name, dtype, shape, mode)
        self.shape_name = shape_name

    def open(self) -> Tensor:
        """The nested tensor, over the mapped archive."""
        sizes = PendingEntry(self.store, self.shape_name, torch.int64, self.shape, "r").open()
        return nested_of(self._flat(int(sizes.prod(1).sum())), sizes)


def nested_of(flat: Tensor, sizes: Tensor) -> Tensor:
    """A strided nested tensor over the elements in `flat`, its parts one after another in C order; a view.

    Args:
        flat: ``[elements]``.
        sizes: int64 ``[n, ndim]``, one row for each of the n parts.
    """
    if not sizes.numel():
        return _nested(flat, sizes, sizes, torch.zeros(len(sizes), dtype=torch.int64))
    counts = sizes.prod(1)
    offsets = counts.cumsum(0) - counts
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


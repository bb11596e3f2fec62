"""This module knows what every container can do along its batch dimensions, and how one is locked.

It does not know entries: a subclass says how its content is rearranged.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from tdview.containers.shapes import (
    Names,
    Op,
    batch_after,
    dim_of,
    expanded,
    full_index,
    indexed,
    names_after_index,
    permuted,
    reshaped,
    squeezed,
    transposed,
    unsqueezed,
    viewed,
)
from tdview.errors import ArgumentError, LockedError

__all__ = ["Collection", "sizes_of"]


def sizes_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes or dims given one by one or as one sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        return tuple(sizes[0])
    return sizes


class Collection:
    """A value with a batch size: tensordict, stack, view, non-tensor data or tensorclass.

    Invariant: what it holds starts with `batch_size`. Shape operations give a new collection of the same storage:
    in-place writes to its leaves reach this one.
    """

    _locked: bool = False
    _undo: str = ""
    _held: bool = False
    _mapped: bool = False
    _prefix: Path | None = None
    _saved_as: tuple[str, str, str] | None = None
    """``"_type"``, ``"_class"`` and entry type under which it was saved, where tdview has no class of that name."""
    _is_value: ClassVar[bool] = False
    """Whether it holds non-tensor data instead of entries."""

    # what a subclass knows

    @property
    @abstractmethod
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions."""

    @property
    def names(self) -> Names:
        """Name of each batch dimension, None where it has none."""
        return [None] * self.ndim

    @property
    @abstractmethod
    def device(self) -> torch.device | None:
        """Device of the leaves, None if it is not fixed."""

    @abstractmethod
    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> Any:
        """A collection of the same storage after `op` along the first `ndim` batch dimensions."""

    @abstractmethod
    def _children(self) -> Iterator[Collection]:
        """The nested collections."""

    @abstractmethod
    def clone(self, recurse: bool = True) -> Self:
        """A copy, unlocked and not memory-mapped; ``recurse=False`` shares the tensors."""

    @abstractmethod
    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device or of another dtype, as `torch.Tensor.to`."""

    @abstractmethod
    def to_tensordict(self) -> Any:
        """A dense `TensorDict` of the same entries, or a copy of non-tensor data."""

    def _plain(self) -> Any:
        """Of non-tensor data, what it holds; the collection itself otherwise."""
        return self

    # sizes

    @property
    def shape(self) -> torch.Size:
        """The same as `batch_size`."""
        return self.batch_size

    @property
    def ndim(self) -> int:
        """Number of batch dimensions."""
        return len(self.batch_size)

    @property
    def batch_dims(self) -> int:
        """The same as `ndim`."""
        return self.ndim

    def dim(self) -> int:
        """The same as `ndim`."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The batch size, or its size along `dim`."""
        return self.batch_size if dim is None else self.batch_size[dim]

    def numel(self) -> int:
        """Number of batch elements."""
        return math.prod(self.batch_size)

    def __len__(self) -> int:
        return self.batch_size[0] if self.batch_size else 0

    def __bool__(self) -> bool:
        raise RuntimeError("a tensordict has no truth value; use len(td.keys()), td.is_empty() or (a == b).all()")

    def __iter__(self) -> Iterator[Any]:
        if not self.batch_size:
            raise TypeError("iteration needs a batch dimension; this batch size is []")
        return (self[place] for place in range(self.batch_size[0]))

    # shape operations

    def __getitem__(self, index: Any) -> Any:
        return self._indexed(index)

    def _indexed(self, index: Any) -> Any:
        """Indexes the batch dimensions; a view where torch gives one."""
        whole = full_index(index, self.ndim)
        out = self._rearranged(indexed(whole), self.ndim, lambda names: names_after_index(names, whole))
        return self._handed_on(out)

    def _handed_on(self, out: Any) -> Any:
        """A view of memory-mapped leaves is memory-mapped and locked as well."""
        if self._mapped and isinstance(out, Collection):
            out._mapped = True
            out.lock_()
        return out

    def _changed(self, op: Op, names: Callable[[Names], Names]) -> Any:
        return self._handed_on(self._rearranged(op, self.ndim, names))

    def unsqueeze(self, dim: int) -> Any:
        """A new batch dimension of size 1 at `dim`. A view."""
        place = dim_of(dim, self.ndim + 1, "unsqueeze")
        return self._changed(unsqueezed(place), lambda names: [*names[:place], None, *names[place:]])

    def squeeze(self, dim: int | None = None) -> Any:
        """Without batch dimension `dim` where its size is 1; without all of size 1 by default. A view."""
        dims = range(self.ndim) if dim is None else (dim_of(dim, self.ndim, "squeeze"),)
        gone = [place for place in dims if self.batch_size[place] == 1]
        if not gone:
            return self
        return self._changed(squeezed(gone), lambda names: [n for place, n in enumerate(names) if place not in gone])

    def permute(self, *dims: Any) -> Any:
        """The batch dimensions in another order. A view."""
        order = [dim_of(dim, self.ndim, "permute") for dim in sizes_of(dims)]
        if sorted(order) != list(range(self.ndim)):
            raise ArgumentError(f"permute: expected each of {self.ndim} batch dimensions once, got {list(dims)}")
        return self._changed(permuted(order), lambda names: [names[place] for place in order])

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two batch dimensions exchanged. A view."""
        left, right = dim_of(dim0, self.ndim, "transpose"), dim_of(dim1, self.ndim, "transpose")
        order = list(range(self.ndim))
        order[left], order[right] = right, left
        return self._changed(transposed(left, right), lambda names: [names[place] for place in order])

    def view(self, *size: Any) -> Any:
        """The batch dimensions as `size`, one of which may be -1. A view; raises where torch cannot give one."""
        return self._resized(viewed, sizes_of(size))

    def reshape(self, *size: Any) -> Any:
        """The batch dimensions as `size`, one of which may be -1. A view where torch gives one, else a copy."""
        return self._resized(reshaped, sizes_of(size))

    def _resized(self, make: Callable[[Sequence[int]], Op], size: Sequence[int]) -> Any:
        new = batch_after(reshaped(size), self.batch_size)  # resolves -1 from the batch alone
        if new == self.batch_size:
            return self
        return self._changed(make(new), lambda names: [None] * len(new))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """The batch dimensions from `start_dim` to `end_dim` as one."""
        start, end = dim_of(start_dim, self.ndim, "flatten"), dim_of(end_dim, self.ndim, "flatten")
        batch = self.batch_size
        return self.reshape(*batch[:start], math.prod(batch[start : end + 1]), *batch[end + 1 :])

    def expand(self, *size: Any) -> Any:
        """The batch dimensions expanded to `size`; new ones come first. A view."""
        new = batch_after(expanded(sizes_of(size)), self.batch_size)
        more = len(new) - self.ndim
        return self._changed(expanded(new), lambda names: [None] * more + names)

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """One collection for each index along batch dimension `dim`. Views."""
        place = dim_of(dim, self.ndim, "unbind")
        before = (slice(None),) * place
        return tuple(self._indexed((*before, row)) for row in range(self.batch_size[place]))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Consecutive parts along `dim`, of `split_size` rows each or of the given sizes. Views."""
        place = dim_of(dim, self.ndim, "split")
        rows = self.batch_size[place]
        if isinstance(split_size, int):
            if split_size < 1:
                raise ArgumentError(f"split: expected a size >= 1, got {split_size}")
            split_size = [min(split_size, rows - start) for start in range(0, rows, split_size)] or [0]
        if sum(split_size) != rows:
            raise ArgumentError(f"split: the sizes {list(split_size)} do not add up to {rows}")
        parts, start = [], 0
        for count in split_size:
            parts.append(self._indexed(((slice(None),) * place) + (slice(start, start + count),)))
            start += count
        return tuple(parts)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """At most `chunks` consecutive parts of equal size along `dim`. Views."""
        rows = self.batch_size[dim_of(dim, self.ndim, "chunk")]
        return self.split(max(1, -(-rows // chunks)), dim)

    def cpu(self) -> Self:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> Self:
        """On a GPU."""
        return self.to(torch.device("cuda", device) if device is not None else "cuda")

    # locking

    @property
    def is_locked(self) -> bool:
        """Whether entries can be neither added, removed nor replaced; leaves can still be written in place."""
        return self._locked

    def lock_(self) -> Self:
        """Forbids to add, remove or replace entries, here and in every nested collection.

        As a context manager, allows it again at the end of the block.
        """
        self._locked = True
        self._undo = "unlock_"
        for child in self._children():
            child._held = True
            child.lock_()
        return self

    def unlock_(self) -> Self:
        """Allows it again; the collection then counts as not memory-mapped.

        As a context manager, forbids it again at the end of the block.

        Raises:
            LockedError: it is part of a collection that is locked as a whole.
        """
        if self._held:
            raise LockedError("this collection is part of a locked one; unlock that one")
        self._release()
        self._undo = "lock_"
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        undo, self._undo = self._undo, ""
        if undo:
            getattr(self, undo)()

    def _release(self) -> None:
        self._locked = self._held = self._mapped = False
        for child in self._children():
            child._release()

    def _check_unlocked(self, what: str) -> None:
        if self._locked:
            raise LockedError(f"{what}: the tensordict is locked; write in place with set_(), or call unlock_() first")

    # memory mapping

    def is_memmap(self) -> bool:
        """Whether every leaf is memory-mapped and the collection is locked, as `memmap` returns it."""
        return self._mapped

    @property
    def saved_path(self) -> Path | None:
        """The directory in which `memmap` saved it; None for anonymous memory.

        Raises:
            AttributeError: it is not memory-mapped.
        """
        if not self._mapped:
            raise AttributeError(f"the tensordict has no saved path (memmap={self._mapped}, path={self._prefix})")
        return self._prefix

    # torch functions

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from tdview.containers.stacking import cat, stack

        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("stack", "cat", "concat", "concatenate"):
            return (stack if name == "stack" else cat)(*args, **kwargs)
        if name in _TORCH_METHODS:
            return getattr(args[0], name)(*args[1:], **kwargs)
        return NotImplemented

    @classmethod
    def stack(cls, items: Sequence[Any], dim: int = 0) -> Any:
        """Stacks collections along a new batch dimension; copies. See `tdview.containers.stacking.stack`."""
        from tdview.containers.stacking import stack

        return stack(items, dim)

    @classmethod
    def cat(cls, items: Sequence[Any], dim: int = 0) -> Any:
        """Joins collections along a batch dimension; copies. See `tdview.containers.stacking.cat`."""
        from tdview.containers.stacking import cat

        return cat(items, dim)

    @classmethod
    def lazy_stack(cls, items: Sequence[Any], dim: int = 0) -> Any:
        """Stacks collections along a new batch dimension without copying."""
        from tdview.containers.stacking import lazy_stack

        return lazy_stack(items, dim)


_TORCH_METHODS = frozenset(
    ("unbind", "split", "chunk", "permute", "transpose", "unsqueeze", "squeeze", "reshape", "flatten", "clone", "all",
     "any", "numel")
)  # fmt: skip

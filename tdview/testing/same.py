"""This module knows when two containers are the same to the last bit.

It does not know where they come from: one may be of tensordict, the other of tdview.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from tdview.containers.collection import Collection
from tdview.containers.convert import from_tensordict
from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.non_tensor import NonTensorBase, NonTensorData
from tdview.containers.payload import payload_blocks
from tdview.containers.tensorclass import TensorClass
from tdview.containers.views import _View

__all__ = ["differences", "file_differences", "octets"]


def octets(leaf: Tensor) -> bytes:
    """The payload bytes of a tensor of whatever dtype."""
    return b"".join(bytes(block) for block in payload_blocks(leaf)())


def differences(left: Any, right: Any, *, order: bool = True, path: str = "") -> Iterator[str]:
    """What differs between two containers: kinds, batch sizes, names, keys, dtypes, shapes, bits, values.

    Args:
        left, right: containers of tdview or of tensordict.
        order: whether the order of keys counts.
    """
    if not isinstance(left, Collection):
        left = from_tensordict(left)
    if not isinstance(right, Collection):
        right = from_tensordict(right)
    if left.batch_size != right.batch_size:
        yield f"{path}: batch size {list(left.batch_size)} and {list(right.batch_size)}"
    if isinstance(left, NonTensorBase) or isinstance(right, NonTensorBase):
        yield from _value_differences(left, right, path)
        return
    if isinstance(left, TensorClass) or isinstance(right, TensorClass):
        left, right = getattr(left, "_tensordict", left), getattr(right, "_tensordict", right)
    if [name or None for name in left.names] != [name or None for name in right.names]:
        yield f"{path}: names {left.names} and {right.names}"
    if isinstance(left, LazyStackedTensorDict) and isinstance(right, LazyStackedTensorDict):
        if left.stack_dim != right.stack_dim:
            yield f"{path}: stack dim {left.stack_dim} and {right.stack_dim}"
        for number, (mine, theirs) in enumerate(zip(left.tensordicts, right.tensordicts, strict=True)):
            yield from differences(mine, theirs, order=order, path=f"{path}/{number}")
        return
    if not isinstance(left, _View) and not isinstance(right, _View) and type(left) is not type(right):
        yield f"{path}: {type(left).__name__} and {type(right).__name__}"
        return
    keys, others = list(left._keys()), list(right._keys())
    if (keys if order else sorted(keys)) != (others if order else sorted(others)):
        yield f"{path}: keys {keys} and {others}"
        return
    for key in keys:
        yield from _entry_differences(left._get(key), right._get(key), order, f"{path}/{key}")


def _entry_differences(left: Any, right: Any, order: bool, path: str) -> Iterator[str]:
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            yield f"{path}: {type(left).__name__} and {type(right).__name__}"
        else:
            yield from differences(left, right, order=order, path=path)
        return
    if left.dtype != right.dtype or left.is_nested != right.is_nested:
        yield f"{path}: {left.dtype} and {right.dtype}"
    elif left.is_nested:
        mine, theirs = left.unbind(0), right.unbind(0)
        if [part.shape for part in mine] != [part.shape for part in theirs] or octets(left) != octets(right):
            yield f"{path}: nested tensors differ"
    elif left.shape != right.shape:
        yield f"{path}: shape {list(left.shape)} and {list(right.shape)}"
    elif octets(left) != octets(right):
        yield f"{path}: bits differ"


def _value_differences(left: Any, right: Any, path: str) -> Iterator[str]:
    if isinstance(left, NonTensorData) is not isinstance(right, NonTensorData):
        yield f"{path}: {type(left).__name__} and {type(right).__name__}"
    elif repr(left._plain()) != repr(right._plain()):
        yield f"{path}: value {left._plain()!r} and {right._plain()!r}"


def file_differences(left: Path, right: Path) -> Iterator[str]:
    """What differs between the files of two saved directories: names, JSON and bytes, to the last one."""
    mine = {path.relative_to(left): path.read_bytes() for path in left.rglob("*") if path.is_file()}
    theirs = {path.relative_to(right): path.read_bytes() for path in right.rglob("*") if path.is_file()}
    for name in sorted(mine.keys() ^ theirs.keys()):
        yield f"{name}: only on one side"
    for name in sorted(mine.keys() & theirs.keys()):
        if mine[name] != theirs[name]:
            yield f"{name}: {mine[name][:300]!r} and {theirs[name][:300]!r}"

"""This module knows the bytes of a tensor as a save holds them: C order, little-endian, no header.

It does not know keys or files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tdview.containers.memory import CARRIERS
from tdview.containers.pending import Pending
from tdview.errors import EncodeError, NotSupportedError, Problem, shown
from tdview.format.dtypes import DTYPES

__all__ = ["check_savable", "component_sizes", "nbytes_of", "payload_blocks"]

_PLAIN = frozenset((torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8))
"""Dtypes whose arrays Python can view as bytes."""

_BLOCK = 1 << 24
"""Bytes that a tensor which is not contiguous is copied in at a time."""


def check_savable(leaf: Tensor | Pending, key: str) -> None:
    """Raises unless the format can hold the leaf.

    Raises:
        NotSupportedError: a jagged nested tensor, a quantized one, or one on the meta device, which has no elements.
        EncodeError: a sparse tensor, or a dtype that the format does not know.

    Spec: "Leaves", "Nested tensors".
    """
    row = DTYPES.get(str(leaf.dtype))
    if row is None:
        raise EncodeError(f"entry {shown(key)}: the dtype {leaf.dtype} cannot be saved", [Problem("dtype", key)])
    if row.kind == "quantized":
        raise NotSupportedError(f"entry {shown(key)}: a quantized tensor cannot be saved; save its int_repr()")
    if isinstance(leaf, Pending):
        return
    if leaf.layout == torch.jagged:
        raise NotSupportedError(
            f"entry {shown(key)}: a nested tensor of the jagged layout cannot be saved; use the strided layout"
        )
    if leaf.layout != torch.strided:
        raise EncodeError(f"entry {shown(key)}: a tensor of the layout {leaf.layout} cannot be saved; use to_dense()")
    if leaf.device.type == "meta":
        raise NotSupportedError(f"entry {shown(key)}: a tensor on the meta device has no elements to save")


def component_sizes(leaf: Tensor) -> list[list[int]]:
    """Sizes of the parts of a nested tensor, one row for each."""
    return [list(part.shape) for part in leaf.unbind(0)]


def nbytes_of(leaf: Tensor | Pending) -> int:
    """Bytes of a dense leaf's payload."""
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def payload_blocks(leaf: Tensor | Pending) -> Callable[[], Iterator[memoryview]]:
    """Gives the payload in blocks, anew at each call. A contiguous tensor is one block and is not copied."""

    def blocks() -> Iterator[memoryview]:
        tensor = leaf.passing() if isinstance(leaf, Pending) else leaf
        for part in tensor.unbind(0) if tensor.is_nested else (tensor,):
            yield from _dense_blocks(part)

    return blocks


def _dense_blocks(leaf: Tensor) -> Iterator[memoryview]:
    tensor = leaf.detach()
    if type(tensor) is not Tensor:
        tensor = tensor.as_subclass(Tensor)
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.dtype.is_complex and tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.numel() == 0:
        return
    if not tensor.is_contiguous() and tensor.dtype.itemsize in CARRIERS:
        tensor = tensor.view(CARRIERS[tensor.dtype.itemsize])  # some dtypes have no copy of their own
    if tensor.is_contiguous() or tensor.ndim == 0:
        yield _octets(tensor.contiguous())
        return
    rows = max(1, _BLOCK * len(tensor) // (tensor.numel() * tensor.dtype.itemsize))
    block = tensor.new_empty((min(rows, len(tensor)), *tensor.shape[1:]))  # one for all: fresh memory costs as much
    for start in range(0, len(tensor), rows):
        part = tensor[start : start + rows]
        yield _octets(block[: len(part)].copy_(part))


def _octets(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor of whatever dtype; a view."""
    if tensor.dtype in _PLAIN:  # a third of the time of the general way
        return memoryview(tensor.numpy() if tensor.ndim else tensor.view(1).numpy()).cast("B")  # type: ignore[arg-type]
    size = tensor.dtype.itemsize
    octets = torch.empty(0, dtype=torch.uint8)
    octets.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (tensor.numel() * size,), (1,))
    return memoryview(octets.numpy()).cast("B")  # type: ignore[arg-type]  # sound: an array is a buffer

"""This module knows the sizes of payloads and the names of their files.

It does not know where the files are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["MAX_BYTES", "META", "check_shape", "numel", "payload_file", "payload_nbytes", "shape_file"]

META = "meta.json"
"""File name of the entries of a level."""

MAX_BYTES = 2**63 - 1
"""No file, and no tensor, has more bytes; a larger size is damage, never allocated."""

_MAX_DIMS = 64


def numel(shape: Sequence[int]) -> int:
    """Number of elements of a shape.

    Examples:
        >>> numel((3, 4)), numel(()), numel((0, 7))
        (12, 1, 0)
    """
    return math.prod(shape)


def payload_nbytes(itemsize: int, shape: Sequence[int]) -> int:
    """Number of bytes that the file of a leaf holds: what the entry says, not what is there.

    Spec: "Leaves".

    Examples:
        >>> payload_nbytes(2, (3, 4)), payload_nbytes(4, ()), payload_nbytes(1, (0, 7))
        (24, 4, 0)
    """
    return math.prod(shape) * itemsize


def payload_file(name: str) -> str:
    """File name of a leaf whose encoded key is `name`."""
    return f"{name}.memmap"


def shape_file(name: str) -> str:
    """File name of the sizes of a nested tensor whose encoded key is `name`. Spec: "Nested tensors"."""
    return f"{name}.shape.memmap"


def check_shape(value: object, itemsize: int = 1) -> tuple[int, ...] | None:
    """`value` as a shape, None if it is none: a list of at most 64 ints >= 0 that can exist in memory.

    A size is checked before anything is allocated: the whole shape must describe fewer than 2**63 bytes.

    Examples:
        >>> check_shape([3, 4]), check_shape([-1]), check_shape([2**62, 2**62]), check_shape([True])
        ((3, 4), None, None, None)
    """
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_DIMS:
        return None
    if not all(type(size) is int and 0 <= size <= MAX_BYTES for size in value):
        return None
    if math.prod(size or 1 for size in value) * itemsize > MAX_BYTES:
        return None
    return tuple(value)

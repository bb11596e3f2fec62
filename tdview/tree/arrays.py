"""This module knows how payload bytes become a numpy array or a torch tensor of any dtype of the format.

It does not know which leaf the bytes belong to.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tdview.errors import NotSupportedError
from tdview.format.dtypes import Dtype

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["carrier_array", "region_of", "tensor_of", "torch_dtype", "widened", "widened_name"]


def carrier_array(buffer: Any, dtype: Dtype, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The elements as an array without a copy: of numpy's own dtype, or of unsigned ints that hold the bits."""
    import numpy as np

    name = dtype.numpy or f"<u{dtype.itemsize}"
    return np.frombuffer(buffer, dtype=name, count=-1).reshape(shape)


def region_of(shape: tuple[int, ...], index: Any) -> tuple[int, tuple[int, ...], tuple[Any, ...]]:
    """The contiguous stretch of an array in C order that an index touches: offset, shape, and the index inside it.

    It is tight for an int or a slice behind any number of ints and slices of one element; whatever follows is
    applied inside the stretch. ``whole[index]`` equals ``whole.reshape(-1)[offset:][:size].reshape(shape)[inside]``.

    Raises:
        IndexError: an int lies outside.

    Examples:
        >>> region_of((10, 4), slice(2, 5)), region_of((10, 4), (-1, slice(1, 3)))
        ((8, (3, 4), (slice(0, 3, 1),)), (37, (1, 2), (0, slice(0, 2, 1))))
    """
    import numpy as np

    items = index if isinstance(index, tuple) else (index,)
    offset, inside = 0, list[Any]()
    for depth, (size, item) in enumerate(zip(shape, items, strict=False)):
        rest = shape[depth + 1 :]
        inner = math.prod(rest)
        if isinstance(item, int | np.integer) and not isinstance(item, bool):
            offset += range(size)[item] * inner
            inside.append(0)
            continue
        picked = range(*item.indices(size)) if isinstance(item, slice) else range(0)
        if len(picked) == 1:
            offset += picked[0] * inner
            inside.append(slice(None))
            continue
        if not isinstance(item, slice) or picked.step < 0:
            return offset, (*(1,) * depth, size, *rest), (*inside, *items[depth:])
        length = picked[-1] + 1 - picked[0] if picked else 0
        start = picked[0] if picked else 0
        cut = slice(0, length, picked.step)
        return offset + start * inner, (*(1,) * depth, length, *rest), (*inside, cut, *items[depth + 1 :])
    used = len(inside)
    return offset, (*(1,) * used, *shape[used:]), (*inside, *items[used:])


def widened_name(dtype: Dtype) -> str:
    """Name of the numpy dtype in which `Leaf.numpy` gives the values.

    Examples:
        >>> from tdview.format.dtypes import DTYPES
        >>> widened_name(DTYPES["torch.bfloat16"]), widened_name(DTYPES["torch.int64"])
        ('float32', 'int64')
    """
    import numpy as np

    if dtype.numpy:
        return str(np.dtype(dtype.numpy))
    return {"float": "float32", "complex": "complex64"}.get(dtype.kind, f"uint{8 * dtype.itemsize}")


def widened(array: np.ndarray[Any, Any], dtype: Dtype) -> np.ndarray[Any, Any]:
    """`carrier_array`'s elements as numbers: bfloat16 and float8 become float32, complex32 becomes complex64.

    Exact: each value of the narrow dtype is a value of the wide one. Dtypes that numpy has come back as they
    are, without a copy; packed dtypes stay the unsigned ints of their bytes.
    """
    import numpy as np

    if dtype.numpy or dtype.kind == "packed":
        return array
    if dtype.kind == "complex":
        pairs = np.ascontiguousarray(array).reshape(*array.shape, 1).view("<f2").astype("<f4")
        return pairs.view("<c8").reshape(array.shape)
    if dtype.name == "torch.bfloat16":
        return (array.astype("<u4") << 16).view("<f4")
    values: np.ndarray[Any, Any] = _float8_table(dtype)[array]
    return values


@lru_cache
def _float8_table(dtype: Dtype) -> np.ndarray[Any, Any]:
    """The float32 value of each of the 256 bit patterns of an 8-bit float."""
    import numpy as np

    values = np.empty(256, "<f4")
    for bits in range(256):
        values[bits] = _float8_value(bits, dtype)
    return values


def _float8_value(bits: int, dtype: Dtype) -> float:
    if dtype.specials == "scale":
        return float("nan") if bits == 0xFF else 2.0 ** (bits - dtype.bias)
    sign = -1.0 if bits & 0x80 else 1.0
    exponent = (bits & 0x7F) >> dtype.mantissa
    fraction = bits & ((1 << dtype.mantissa) - 1)
    if dtype.specials == "fnuz" and bits == 0x80:
        return float("nan")
    if dtype.specials == "fn" and bits & 0x7F == 0x7F:
        return float("nan")
    if dtype.specials == "ieee" and exponent == (1 << dtype.exponent) - 1:
        return float("nan") if fraction else sign * float("inf")
    scale: float = 2.0 ** (max(exponent, 1) - dtype.bias - dtype.mantissa)
    return sign * (fraction + ((1 << dtype.mantissa) if exponent else 0)) * scale


def torch_dtype(dtype: Dtype) -> torch.dtype:
    """The dtype of the running torch.

    Raises:
        NotSupportedError: this torch has no such dtype.
    """
    import torch

    found = getattr(torch, dtype.short, None)
    if not isinstance(found, torch.dtype):
        raise NotSupportedError(f"torch {torch.__version__} has no dtype {dtype.short}; use numpy() or raw()")
    return found


def tensor_of(buffer: Any, dtype: Dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The elements of a writable buffer as a tensor that shares its memory."""
    import torch

    kind = torch_dtype(dtype)
    if 0 in shape:
        return torch.empty(shape, dtype=kind)
    if dtype.kind == "quantized":
        raise NotSupportedError(f"a quantized tensor of {dtype.short} cannot be made of a saved payload; use numpy()")
    if memoryview(buffer).nbytes and dtype.itemsize > 1 and _address(buffer) % dtype.itemsize:
        buffer = bytearray(buffer)  # a foreign zip tool laid it down unaligned: torch computes wrongly there
    return torch.frombuffer(buffer, dtype=torch.uint8).view(kind).reshape(shape)


def _address(buffer: Any) -> int:
    import numpy as np

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)

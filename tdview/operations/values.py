"""This module knows how a value that somebody gives becomes the bytes of a dtype, exactly or not at all.

It does not know where the bytes go.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tdview.errors import EditRefusedError, shown
from tdview.operations.floats import FloatFormat, FloatRangeError
from tdview.operations.typed_numbers import Real, parse_bool, parse_complex, parse_real

__all__ = ["Scalar", "decode", "decode_block", "encode", "encode_block", "itemsize", "text"]

Scalar = bool | int | float | complex
"""What one element is in Python."""

_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class _Codec:
    """How one dtype is written and read."""

    nbytes: int
    encode: Callable[[object], bytes]
    decode: Callable[[bytes], Scalar]


def encode(dtype: str, value: object) -> bytes:
    """Bytes of one element, exact or rounded once to the nearest number of a float dtype.

    Args:
        dtype: name in the file, ``"torch.bfloat16"``.
        value: a Python, numpy or torch number, a `Fraction` or `Decimal`, or text as a person types it.
            Dtypes without arithmetic (``bits8``, ``float4_e2m1fn_x2``, ``quint4x2``, …) take their raw
            pattern as an unsigned integer, ``"0x1f"``.

    Returns:
        Little-endian bytes, `itemsize` many.

    Raises:
        EditRefusedError: the dtype cannot hold the value: out of range, not an integer, not a truth value, a
            finite number that would become infinite, a text that is no number.

    Examples:
        >>> encode("torch.bfloat16", "1.5").hex(), encode("torch.int64", 2**53 + 1).hex()
        ('c03f', '0100000000002000')
        >>> encode("torch.uint8", 300)
        Traceback (most recent call last):
        tdview.errors.EditRefusedError: 300 is out of range of torch.uint8; expected 0 to 255
    """
    codec = _codec(dtype)
    try:
        return codec.encode(_plain(value))
    except _Reason as reason:
        raise EditRefusedError(f"{shown(value)} {reason.with_dtype(dtype)}") from None


def encode_block(dtype: str, value: object, shape: Sequence[int]) -> bytes:
    """C-order bytes of a block of elements.

    Args:
        dtype: name in the file.
        value: one value for all of them, or nested lists, a numpy array, a tensor or anything with ``tolist``.
            Its shape must be `shape`, or broadcast to it: missing leading axes and axes of size 1 are repeated.
        shape: of the block.

    Returns:
        ``prod(shape) * itemsize(dtype)`` bytes. Arrays and tensors of the same dtype are copied bit for bit.

    Raises:
        EditRefusedError: an element cannot be held, the lists are ragged, or the shapes do not fit.
    """
    nbytes = itemsize(dtype)
    given = _raw_block(dtype, value)
    if given is None:
        elements, given_shape = _flatten(value)
        data = b"".join(_encode_all(dtype, elements))
    else:
        data, given_shape = given
    return _broadcast(data, given_shape, tuple(shape), nbytes)


def decode(dtype: str, data: bytes) -> Scalar:
    """One element as a Python number; bfloat16, float16 and float8 numbers are exact in a Python float."""
    codec = _codec(dtype)
    if len(data) != codec.nbytes:
        raise EditRefusedError(f"{len(data)} bytes are not one element of {dtype}; expected {codec.nbytes}")
    return codec.decode(data)


def decode_block(dtype: str, data: bytes, shape: Sequence[int]) -> Any:
    """A block as nested lists of Python numbers, or one number for the shape ``()``."""
    codec = _codec(dtype)
    step = codec.nbytes
    flat: list[Any] = [codec.decode(data[i : i + step]) for i in range(0, len(data), step)]
    return _nest(flat, tuple(shape))


def text(dtype: str, data: bytes) -> str:
    """One element as the shortest text that `encode` turns into the same number again.

    Examples:
        >>> text("torch.float32", encode("torch.float32", 0.1)), text("torch.bool", b"\\x01")
        ('0.1', 'true')
    """
    value = decode(dtype, data)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"0x{value:0{2 * len(data)}x}" if dtype in _RAW else str(value)
    if isinstance(value, float):
        return _shortest(dtype, value)
    part = _COMPLEX[dtype]
    real, imaginary = _shortest(part, value.real), _shortest(part, value.imag)
    return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"


def itemsize(dtype: str) -> int:
    """Bytes of one element.

    Raises:
        EditRefusedError: no value of this dtype can be written.
    """
    return _codec(dtype).nbytes


class _Reason(Exception):
    """Why a value is refused; the text follows the value in the message."""

    def __init__(self, before: str, after: str = "") -> None:
        super().__init__(before)
        self.before, self.after = before, after

    def with_dtype(self, dtype: str) -> str:
        return f"{self.before} {dtype}{self.after}"


def _codec(dtype: str) -> _Codec:
    codec = _CODECS.get(dtype)
    if codec is None:
        raise EditRefusedError(f"values of dtype {shown(dtype)} cannot be written")
    return codec


def _plain(value: object) -> object:
    """`value` without its array or scalar type: numpy and torch numbers become Python's."""
    item = getattr(value, "item", None)
    if item is None or isinstance(value, (str, bytes)):
        return value
    if getattr(value, "size", 1) == 1 or getattr(value, "shape", None) == ():
        return item()
    return value


def _exact(value: object) -> Real:
    if isinstance(value, str):
        return parse_real(value)
    if isinstance(value, (int, float, Fraction)):
        return value
    if isinstance(value, complex):
        raise _Reason("is a complex number, not one of")
    if hasattr(value, "is_finite"):  # Decimal: its text is bounded before its exponent is expanded
        return parse_real(str(value))
    ratio = getattr(value, "as_integer_ratio", None)  # numpy's long double
    if ratio is None:
        raise _Reason("is no number of")
    try:
        return Fraction(*ratio())
    except (OverflowError, ValueError):
        return float(value)  # type: ignore[arg-type]  # NaN or infinite, which a float holds as well


def _integer(value: object) -> int:
    number = _exact(value)
    if isinstance(number, float) and not math.isfinite(number):
        raise _Reason("is not finite, so no integer of")
    if number != math.floor(number):
        raise _Reason("is not an integer of")
    return int(number)


def _integer_codec(nbytes: int, signed: bool) -> _Codec:
    low = -(1 << (8 * nbytes - 1)) if signed else 0
    high = (1 << (8 * nbytes - int(signed))) - 1

    def write(value: object) -> bytes:
        number = _integer(value)
        if not low <= number <= high:
            raise _Reason("is out of range of", f"; expected {low} to {high}")
        return number.to_bytes(nbytes, "little", signed=signed)

    def read(data: bytes) -> int:
        return int.from_bytes(data, "little", signed=signed)

    return _Codec(nbytes, write, read)


def _bool_codec() -> _Codec:
    def write(value: object) -> bytes:
        if isinstance(value, str):
            return b"\1" if parse_bool(value) else b"\0"
        number = _exact(value)
        if number not in (0, 1):
            raise _Reason("is no truth value of", "; expected True or False")
        return b"\1" if number else b"\0"

    return _Codec(1, write, lambda data: data != b"\0")


def _float_codec(form: FloatFormat, native: str | None = None) -> _Codec:
    nbytes = form.bits // 8

    def write(value: object) -> bytes:
        number = _exact(value)
        if native and isinstance(number, float):
            try:
                return struct.pack(native, number)
            except OverflowError:
                pass  # the reason comes from below
        try:
            return form.encode(Fraction(number) if isinstance(number, int) else number).to_bytes(nbytes, "little")
        except FloatRangeError as error:
            what, _, why = str(error).partition(";")
            raise _Reason(f"{what} for", f";{why}") from None

    def read(data: bytes) -> float:
        if native:
            number: float = struct.unpack(native, data)[0]
            return number
        return form.decode(int.from_bytes(data, "little"))

    return _Codec(nbytes, write, read)


def _complex_codec(part: _Codec) -> _Codec:
    def write(value: object) -> bytes:
        if isinstance(value, str):
            pair: tuple[object, object] = parse_complex(value)
        elif isinstance(value, complex):
            pair = value.real, value.imag
        else:
            pair = value, 0.0
        return part.encode(pair[0]) + part.encode(pair[1])

    def read(data: bytes) -> complex:
        real, imaginary = part.decode(data[: part.nbytes]), part.decode(data[part.nbytes :])
        return complex(float(real.real), float(imaginary.real))

    return _Codec(2 * part.nbytes, write, read)


_HALF = _float_codec(FloatFormat(exponent_bits=5, fraction_bits=10), "<e")
_SINGLE = _float_codec(FloatFormat(exponent_bits=8, fraction_bits=23), "<f")
_DOUBLE = _float_codec(FloatFormat(exponent_bits=11, fraction_bits=52), "<d")
_COMPLEX = {
    "torch.complex32": "torch.float16",
    "torch.complex64": "torch.float32",
    "torch.complex128": "torch.float64",
}
# Packed or untyped elements: several numbers, or none, in one element, so only the pattern itself can be given.
_RAW = {
    "torch.bits8": 1,
    "torch.bits16": 2,
    "torch.bits1x8": 1,
    "torch.bits2x4": 1,
    "torch.bits4x2": 1,
    "torch.float4_e2m1fn_x2": 1,
    "torch.quint4x2": 1,
}
_CODECS: dict[str, _Codec] = {
    "torch.bool": _bool_codec(),
    **{f"torch.int{8 * n}": _integer_codec(n, signed=True) for n in (1, 2, 4, 8)},
    **{f"torch.uint{8 * n}": _integer_codec(n, signed=False) for n in (1, 2, 4, 8)},
    "torch.qint8": _integer_codec(1, signed=True),
    "torch.qint32": _integer_codec(4, signed=True),
    "torch.quint8": _integer_codec(1, signed=False),
    **{name: _integer_codec(nbytes, signed=False) for name, nbytes in _RAW.items()},
    "torch.float16": _HALF,
    "torch.float32": _SINGLE,
    "torch.float64": _DOUBLE,
    "torch.bfloat16": _float_codec(FloatFormat(exponent_bits=8, fraction_bits=7)),
    "torch.float8_e5m2": _float_codec(FloatFormat(exponent_bits=5, fraction_bits=2)),
    "torch.float8_e4m3fn": _float_codec(FloatFormat(exponent_bits=4, fraction_bits=3, infinity="none", nan=0x7F)),
    "torch.float8_e4m3fnuz": _float_codec(
        FloatFormat(exponent_bits=4, fraction_bits=3, bias=8, infinity="none", nan=0x80, signed_zero=False)
    ),
    "torch.float8_e5m2fnuz": _float_codec(
        FloatFormat(exponent_bits=5, fraction_bits=2, bias=16, infinity="none", nan=0x80, signed_zero=False)
    ),
    "torch.float8_e8m0fnu": _float_codec(
        FloatFormat(exponent_bits=8, fraction_bits=0, infinity="none", nan=0xFF, signed=False, subnormal=False)
    ),
    "torch.complex32": _complex_codec(_HALF),
    "torch.complex64": _complex_codec(_SINGLE),
    "torch.complex128": _complex_codec(_DOUBLE),
}


def _shortest(dtype: str, value: float) -> str:
    if dtype == "torch.float64" or not math.isfinite(value):
        return repr(value)
    target = encode(dtype, value)
    for digits in range(1, 10):
        candidate = f"{value:.{digits}g}"
        try:
            if encode(dtype, candidate) == target:
                return repr(float(candidate))
        except EditRefusedError:  # rounded up beyond the largest number
            continue
    return repr(value)


def _encode_all(dtype: str, elements: Iterable[object]) -> Iterable[bytes]:
    for element in elements:
        yield encode(dtype, element)


def _raw_block(dtype: str, value: object) -> tuple[bytes, tuple[int, ...]] | None:
    """Bytes and shape of a numpy array or a tensor that already has the dtype; None for anything else."""
    shape = getattr(value, "shape", None)
    own = getattr(value, "dtype", None)
    if shape is None or own is None:
        return None
    if str(own) == dtype:
        import torch

        tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()  # type: ignore[attr-defined]
        flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        return flat.numpy().tobytes(), tuple(tensor.shape)
    if f"torch.{own}" == dtype and getattr(own, "isnative", False):
        return value.tobytes(), tuple(shape)  # type: ignore[attr-defined]
    return None


def _flatten(value: object) -> tuple[list[object], tuple[int, ...]]:
    """Elements in C order and the shape of nested lists; one element and ``()`` for a single value."""
    given = getattr(value, "shape", None)
    for unwrap in ("to_numpy", "tolist"):  # a data frame has the first only, an array or a tensor the second
        convert = getattr(value, unwrap, None)
        if convert is not None and not isinstance(value, (str, bytes)):
            value = convert()
    if given is not None and 0 in given:
        return [], tuple(given)  # empty lists have lost their inner axes
    if not _is_sequence(value):
        return [value], ()
    level: list[object] = [value]
    shape: list[int] = []
    while level and _is_sequence(level[0]):
        sizes = {len(part) if _is_sequence(part) else -1 for part in level}  # type: ignore[arg-type]
        if len(sizes) != 1 or len(shape) == _DEEPEST:
            raise EditRefusedError(f"axis {len(shape)} of the given block is ragged; expected lists of one length")
        shape.append(sizes.pop())
        level = [element for part in level for element in part]  # type: ignore[attr-defined]
    if any(_is_sequence(element) for element in level):
        raise EditRefusedError(f"axis {len(shape)} of the given block is ragged; expected lists of one length")
    return level, tuple(shape)


def _is_sequence(value: object) -> bool:
    return isinstance(value, (list, tuple, range))


def _broadcast(data: bytes, given: tuple[int, ...], shape: tuple[int, ...], nbytes: int) -> bytes:
    if given == shape:
        return data
    padded = (1,) * (len(shape) - len(given)) + given
    if len(padded) != len(shape) or any(have not in (1, want) for have, want in zip(padded, shape, strict=True)):
        raise EditRefusedError(f"a block of shape {list(given)} does not fit; expected {list(shape)} or one value")
    run = nbytes
    for have, want in zip(reversed(padded), reversed(shape), strict=True):
        if have != want:
            data = b"".join(data[i : i + run] * want for i in range(0, len(data), run))
        run *= want
        if not run:
            return b""
    return data


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    step = math.prod(shape[1:])
    return [_nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]

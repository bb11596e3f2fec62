"""Values become bytes exactly as torch and numpy would write them, or are refused."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tdview.errors import EditRefusedError
from tdview.operations.values import decode, decode_block, encode, encode_block, itemsize, text

INTS = {f"torch.{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
FLOATS = {"torch.float16", "torch.float32", "torch.float64", "torch.bfloat16"}
FLOAT8 = {f"torch.float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")}
COMPLEX = {"torch.complex32", "torch.complex64", "torch.complex128"}


def torch_bytes(dtype: str, value: object) -> bytes:
    return (
        torch.tensor(value, dtype=getattr(torch, dtype.removeprefix("torch.")))
        .reshape(1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
    )


@pytest.mark.parametrize("dtype", sorted(INTS))
def test_integers_are_exact_to_both_ends_of_their_range(dtype: str) -> None:
    info = torch.iinfo(getattr(torch, dtype.removeprefix("torch.")))
    for value in (info.min, info.max, 0, 1):
        assert encode(dtype, value) == torch_bytes(dtype, value)
        assert decode(dtype, encode(dtype, str(value))) == value
    for value in (info.min - 1, info.max + 1, 1.5, "x", "", math.nan, math.inf, 1j, None, "1.5", b"1"):
        with pytest.raises(EditRefusedError):
            encode(dtype, value)


@given(st.floats(width=64))
def test_floats_are_rounded_as_struct_rounds(value: float) -> None:
    for dtype, code in (("torch.float16", "<e"), ("torch.float32", "<f"), ("torch.float64", "<d")):
        try:
            expected = struct.pack(code, value)
        except OverflowError:
            with pytest.raises(EditRefusedError):
                encode(dtype, value)
            continue
        assert encode(dtype, value) == expected
        if not math.isnan(value):
            assert encode(dtype, repr(value)) == expected
            assert encode(dtype, text(dtype, expected)) == expected


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_is_rounded_as_torch_rounds(value: float) -> None:
    expected = torch_bytes("torch.bfloat16", value)
    if math.isfinite(value) and math.isinf(torch.tensor(value, dtype=torch.bfloat16).item()):
        with pytest.raises(EditRefusedError):
            encode("torch.bfloat16", value)
    else:
        assert encode("torch.bfloat16", value) == expected


@pytest.mark.parametrize("dtype", sorted(FLOAT8 | {"torch.bfloat16", "torch.float16"}))
def test_every_pattern_of_a_small_float_decodes_as_torch_decodes(dtype: str) -> None:
    size = itemsize(dtype)
    patterns = torch.arange(1 << (8 * size), dtype=torch.int32).to(torch.uint8 if size == 1 else torch.uint16)
    numbers = patterns.view(getattr(torch, dtype.removeprefix("torch."))).to(torch.float64).tolist()
    for bits, expected in enumerate(numbers[:: 1 if size == 1 else 7]):
        data = (bits * (1 if size == 1 else 7)).to_bytes(size, "little")
        value = decode(dtype, data)
        assert isinstance(value, float)
        assert value == expected or (math.isnan(value) and math.isnan(expected))
        if not math.isnan(value):
            assert encode(dtype, value) == data
            assert encode(dtype, text(dtype, data)) == data


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("torch.float8_e4m3fn", 465.0),
        ("torch.float8_e4m3fn", math.inf),
        ("torch.float8_e4m3fnuz", 248.1),
        ("torch.float8_e5m2", 61440.0),
        ("torch.float8_e5m2fnuz", -math.inf),
        ("torch.float8_e8m0fnu", 0.0),
        ("torch.float8_e8m0fnu", -1.0),
        ("torch.float8_e8m0fnu", 2.6e38),
        ("torch.float32", 1e39),
        ("torch.float32", "1e400"),
        ("torch.float32", 10**400),
        ("torch.float16", 65520),
        ("torch.float32", "1" * 2000),
        ("torch.float32", Decimal("1e999999999")),
        ("torch.float32", 1j),
        ("torch.float32", ""),
        ("torch.float32", "0x"),
        ("torch.complex64", "1+2k"),
        ("torch.complex64", 1e39),
        ("torch.bits8", 256),
        ("torch.nothing", 1),
    ],
)
def test_a_number_that_the_format_cannot_hold_is_refused(dtype: str, value: object) -> None:
    with pytest.raises(EditRefusedError):
        encode(dtype, value)


@pytest.mark.parametrize("text", ["1e400", "-1e99999999", "0x1p9999", "2e999j"])
def test_a_number_that_is_too_large_is_not_called_no_number(text: str) -> None:
    with pytest.raises(EditRefusedError, match="is beyond the range of every dtype"):
        encode("torch.complex128", text)
    if "j" not in text:
        with pytest.raises(EditRefusedError, match="is beyond the range of every dtype"):
            encode("torch.float64", text)


def test_decimal_text_is_rounded_once() -> None:
    # Halfway between two float32 numbers plus a bit that a double loses: through a double it would round down.
    assert encode("torch.float32", "1.000000059604644775390625000000000001") == struct.pack("<f", 1 + 2**-23)
    assert encode("torch.float32", Fraction(1, 3)) == struct.pack("<f", 1 / 3)
    assert encode("torch.float32", Decimal("0.1")) == struct.pack("<f", 0.1)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1e-3", 1e-3),
        (" 0x1f ", 31.0),
        ("-0b11", -3.0),
        ("0x1.8p1", 3.0),
        ("1_000", 1000.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("\u22122", -2.0),
        ("1e-400", 0.0),
        ("-0", -0.0),
    ],
)
def test_numbers_are_read_as_a_person_types_them(typed: str, value: float) -> None:
    assert encode("torch.float64", typed) == struct.pack("<d", value)


@pytest.mark.parametrize("dtype", sorted(FLOATS | COMPLEX | (FLOAT8 - {"torch.float8_e8m0fnu"})))
def test_nan_is_accepted_by_every_float(dtype: str) -> None:
    value = decode(dtype, encode(dtype, "nan"))
    assert value != value


def test_truth_values_are_not_numbers() -> None:
    for value in (True, 1, "true", "True", "1", "yes", np.True_, torch.tensor(True), 1.0):
        assert encode("torch.bool", value) == b"\1"
    for value in (False, 0, "false", np.False_, "off"):
        assert encode("torch.bool", value) == b"\0"
    for bad in (7, -1, 0.5, "7", "x", None, math.nan):
        with pytest.raises(EditRefusedError):
            encode("torch.bool", bad)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1+2j", 1 + 2j),
        ("-3i", complex(0, -3)),
        ("(1e-3 - 2e+1j)", 1e-3 - 20j),
        ("j", 1j),
        ("4", 4 + 0j),
        ("-infj", complex(0, -math.inf)),
        (2.5, 2.5 + 0j),
        (np.complex64(1 + 1j), 1 + 1j),
    ],
)
def test_complex_numbers_are_read_in_both_parts(typed: object, value: complex) -> None:
    assert encode("torch.complex128", typed) == struct.pack("<dd", value.real, value.imag)
    assert decode("torch.complex128", encode("torch.complex128", typed)) == value


@pytest.mark.parametrize("dtype", sorted(COMPLEX))
def test_complex_text_comes_back(dtype: str) -> None:
    for value in (1.5 - 2j, complex(-0.0, math.inf), 0.25j):
        data = encode(dtype, value)
        assert encode(dtype, text(dtype, data)) == data


def test_raw_dtypes_take_their_pattern() -> None:
    assert encode("torch.float4_e2m1fn_x2", "0xa5") == b"\xa5"
    assert text("torch.bits16", encode("torch.bits16", 0x1F)) == "0x001f"


@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "float8_e5m2", "complex64", "int64", "uint64", "bool", "float16"]
)
def test_tensors_and_arrays_of_the_dtype_are_copied_bit_for_bit(name: str) -> None:
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, name)).t()
    expected = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert encode_block(f"torch.{name}", tensor, (3, 2)) == expected
    if name in ("float32", "int64", "uint64", "complex64", "float16", "bool"):
        assert encode_block(f"torch.{name}", tensor.numpy(), (3, 2)) == expected
        assert (
            encode_block(f"torch.{name}", tensor.numpy().astype(tensor.numpy().dtype.newbyteorder(">")), (3, 2))
            == expected
        )


def test_nan_payloads_of_an_array_survive() -> None:
    data = struct.pack("<I", 0x7FC12345)
    assert encode_block("torch.float32", np.frombuffer(data, np.float32), (1,)) == data


def test_blocks_are_checked_and_broadcast() -> None:
    assert encode_block("torch.uint8", 7, (2, 2)) == b"\7\7\7\7"
    assert encode_block("torch.uint8", [1, 2], (2, 2)) == b"\1\2\1\2"
    assert encode_block("torch.uint8", [[1], [2]], (2, 3)) == b"\1\1\1\2\2\2"
    assert encode_block("torch.uint8", np.array([[1.0, 2.0]]), (1, 2)) == b"\1\2"
    assert encode_block("torch.uint8", torch.zeros(0, 3), (0, 3)) == b""
    assert encode_block("torch.uint8", "7", ()) == b"\7"
    assert encode_block("torch.uint8", [["1", "0x2"]], (1, 2)) == b"\1\2"
    for bad in ([1, 2, 3], [[1, 2], [3]], [1, [2]], [[]], np.array([1.5, 2.0])):
        with pytest.raises(EditRefusedError):
            encode_block("torch.uint8", bad, (2, 2))
    assert decode_block("torch.uint8", b"\1\2\3\4", (2, 2)) == [[1, 2], [3, 4]]
    assert decode_block("torch.uint8", b"", (2, 0)) == [[], []]
    assert decode_block("torch.bool", b"\1", ()) is True


def test_data_frames_and_series_are_blocks() -> None:
    import pandas as pd

    assert encode_block("torch.int32", pd.Series([1, 2]), (2,)) == struct.pack("<2i", 1, 2)
    assert encode_block("torch.uint8", pd.DataFrame({"a": [1, 2], "b": [3, 4]}), (2, 2)) == b"\1\3\2\4"


def test_long_double_is_rounded_once() -> None:
    assert encode("torch.float32", np.longdouble("0.1")) == struct.pack("<f", 0.1)
    assert decode("torch.float32", encode("torch.float32", np.longdouble("nan"))) != 0

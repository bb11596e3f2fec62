"""A block that is read once by a compiled loop gives what numpy gives in several passes."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tdview
from tdview.analysis import fused, loops
from tdview.analysis.moments import Partial, summarise
from tdview.format.dtypes import DTYPES, Dtype
from tdview.tree.arrays import widened

FLOATS = ["float16", "float32", "float64", "bfloat16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "quint8"]
FIGURES = ("count", "nan", "inf", "finite", "low", "high")


def carrier(dtype: Dtype) -> np.dtype[Any]:
    return np.dtype(dtype.numpy or f"<u{dtype.itemsize}")


def both(dtype: Dtype, words: Any) -> tuple[Partial | None, Partial]:
    kernel = fused.kernel_of(dtype)
    assert kernel is not None
    return kernel(words), summarise(widened(words, dtype), 0, 1)


def check(dtype: Dtype, words: Any) -> None:
    found, expected = both(dtype, words)
    assert found is not None
    assert [getattr(found, name) for name in FIGURES] == [getattr(expected, name) for name in FIGURES]
    numbers = widened(words, dtype).reshape(-1).astype(np.longdouble)
    reach = float(np.abs(numbers).max()) or 1.0
    digits = 1e-6 if dtype.kind == "float" and dtype.itemsize == 2 else 1e-12  # those are added in single precision
    assert found.mean == pytest.approx(float(numbers.mean()), abs=digits * reach)
    spread = float(((numbers - numbers.mean()) ** 2).sum())
    assert found.spread == pytest.approx(spread, rel=max(digits, 1e-9), abs=digits * reach**2 * numbers.size)


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("size", [1, 63, 2047, 2048, 2049, 70_001])
def test_the_figures_are_those_of_numpy(name: str, size: int) -> None:
    dtype = DTYPES[f"torch.{name}"]
    rng = np.random.default_rng(size)
    if name in FLOATS:
        numbers = rng.standard_normal(size) * 30 + 7
        words = (numbers.astype("f4").view("u4") >> 16).astype("u2") if name == "bfloat16" else numbers.astype(name)
    else:
        limits = np.iinfo(carrier(dtype))
        words = rng.integers(limits.min, limits.max, size, carrier(dtype), endpoint=True)
    check(dtype, words)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_16_bit_float_has_its_value(name: str) -> None:
    dtype = DTYPES[f"torch.{name}"]
    words = np.arange(1 << 16, dtype=np.uint16).view(carrier(dtype))
    with np.errstate(invalid="ignore"):  # signalling NaN
        numbers = widened(words, dtype).astype(np.float64)
    moderate = words[np.isfinite(numbers) & (np.abs(numbers) < 1e15)]
    check(dtype, moderate)
    for word in moderate[::97]:
        check(dtype, np.array([word]))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["int8", "uint8", "int64", "uint64"]), data=st.data())
def test_integers_of_any_size_are_summarised_exactly(name: str, data: st.DataObject) -> None:
    words = data.draw(arrays(np.dtype(name), st.integers(1, 50)))
    check(DTYPES[f"torch.{name}"], words)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["float32", "float64"]), data=st.data())
def test_a_block_of_floats_is_right_or_left_to_numpy(name: str, data: st.DataObject) -> None:
    words = data.draw(arrays(np.dtype(name), st.integers(1, 50)))
    found, expected = both(DTYPES[f"torch.{name}"], words)
    if found is None:
        assert expected.nan or expected.inf or max(map(abs, words.tolist())) > 1e150
    else:
        check(DTYPES[f"torch.{name}"], words)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf])
def test_a_block_with_no_number_is_left_to_numpy(name: str, value: float) -> None:
    dtype = DTYPES[f"torch.{name}"]
    numbers = np.zeros(500)
    numbers[400] = value
    words = (numbers.astype("f4").view("u4") >> 16).astype("u2") if name == "bfloat16" else numbers.astype(name)
    assert fused.kernel_of(dtype)(words) is None  # type: ignore[misc]


def test_zero_has_no_sign_and_nothing_has_no_summary() -> None:
    found = fused.kernel_of(DTYPES["torch.float32"])(np.full(3, -0.0, np.float32))  # type: ignore[misc]
    assert found is not None
    assert (str(found.low), str(found.high)) == ("0.0", "0.0")
    for name in ("float32", "bfloat16", "uint8", "int64"):
        dtype = DTYPES[f"torch.{name}"]
        assert fused.kernel_of(dtype)(np.zeros((0, 4), carrier(dtype))) is None  # type: ignore[misc]


@pytest.mark.parametrize("name", ["bool", "complex64", "float8_e5m2", "bits8"])
def test_other_dtypes_have_no_loop(name: str) -> None:
    assert fused.kernel_of(DTYPES[f"torch.{name}"]) is None


def save(folder: Path, dtype: str, words: Any) -> Path:
    folder.mkdir()
    entry = {"device": "cpu", "shape": list(words.shape), "dtype": f"torch.{dtype}"}
    own = {"shape": [len(words)], "device": None, "_type": "<class 'tensordict._td.TensorDict'>"}
    (folder / "meta.json").write_text(json.dumps({"x": entry, **own}))
    words.tofile(folder / "x.memmap")
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_a_large_leaf_has_the_same_statistics_without_numba(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 200, (30_000, 70), np.uint8)
    if dtype != "uint8":
        numbers = words.astype("f4") / 7
        numbers[20_000:20_010, 3] = np.nan
        words = (numbers.view("u4") >> 16).astype("u2") if dtype == "bfloat16" else numbers
    path = save(tmp_path / "run", dtype, words)
    plain = tdview.stats(path)["x"].as_dict()
    used = []
    known = fused.kernel_of
    monkeypatch.setattr("tdview.analysis.summary._LARGE", 0)
    monkeypatch.setattr("tdview.analysis.summary.kernel_of", lambda row: used.append(row.name) or known(row))
    quick = tdview.stats(path)["x"].as_dict()
    assert set(used) == {f"torch.{dtype}"}
    for name in ("mean", "std"):
        assert quick.pop(name) == pytest.approx(plain.pop(name), rel=1e-6)
    assert quick == plain


def test_numba_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tdview.analysis.loops", raising=False)
    monkeypatch.delattr("tdview.analysis.loops", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert fused.kernel_of.__wrapped__(DTYPES["torch.float32"]) is None


def test_loops_compile_where_no_folder_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        made.append(options)
        return lambda function: function

    monkeypatch.setattr(loops.numba, "njit", njit)
    assert loops._compiled(len) is len
    assert made[0]["nogil"]

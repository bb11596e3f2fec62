"""Statistics equal numpy's on the whole array; what is sampled says so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tdview
from tdview.analysis.dask_stats import summarised_on_dask
from tdview.analysis.moments import block_indices, sample_step
from tdview.analysis.stats import LeafStats, StatsReport, leaf_stats
from tdview.errors import ArgumentError, Cancelled, DecodeError

from .fakes import FakeLeaf


def of(array: Any, **options: Any) -> LeafStats:
    return leaf_stats(FakeLeaf(np.asarray(array), **options))  # type: ignore[arg-type]


RNG = np.random.default_rng(3)
ARRAYS: dict[str, Any] = {
    "float32": RNG.standard_normal((3000, 7)).astype(np.float32),
    "float32 far from zero": (RNG.standard_normal((3000, 7)) + 1e5).astype(np.float32),
    "float64": RNG.standard_normal((100, 3, 5)),
    "float16": RNG.standard_normal(500).astype(np.float16),
    "uint8": RNG.integers(0, 256, (50, 3, 16, 16), dtype=np.uint8),
    "int64": RNG.integers(-9, 9, 1000),
    "int32": RNG.integers(-(2**31), 2**31 - 1, 5000, dtype=np.int32),
    "uint16": RNG.integers(0, 2**16, 5000, dtype=np.uint16),
    "bool": RNG.random(5000) < 0.25,
    "constant": np.full((70000, 2), 0.1, np.float32),
    "scalar": np.float32(3.5),
    "one": np.array([7], np.int8),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_moments_and_quantiles_are_those_of_numpy(name: str) -> None:
    array = ARRAYS[name]
    found = of(array)
    wide = np.asarray(array, np.float64)
    assert (found.count, found.nan, found.inf) == (array.size, 0, 0)
    assert (found.min, found.max) == (array.min(), array.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-6, abs=1e-7)
    assert found.std == pytest.approx(wide.std(), rel=1e-4, abs=1e-6)
    assert found.whole
    for probability, value in found.quantiles:
        assert value == pytest.approx(np.quantile(wide, probability), rel=1e-6)
    assert found.distinct == len(np.unique(array))
    assert found.histogram is not None
    assert sum(found.histogram.counts) == array.size
    assert len(found.histogram.edges) == len(found.histogram.counts) + 1


def test_bounds_of_large_integers_are_exact() -> None:
    found = of(np.array([2**63 - 1, -(2**63), 2**53 + 1]))
    assert (found.min, found.max) == (-(2**63), 2**63 - 1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinity_are_counted_apart_from_the_numbers(dtype: str) -> None:
    found = of(np.array([1.0, np.nan, np.inf, -np.inf, 3.0, np.nan], dtype))
    assert (found.count, found.nan, found.inf, found.min, found.max, found.mean, found.std) == (6, 2, 2, 1, 3, 2, 1)
    assert found.distinct == 5
    assert found.histogram is not None
    assert sum(found.histogram.counts) == 2


def test_the_spread_of_huge_numbers_is_no_nan() -> None:
    assert of(np.full(300_000, 1e200)).std == 0
    assert of(np.array([1e200, -1e200])).std == math.inf  # its square is, as numpy's


def test_one_element_is_not_counted_in_the_plural() -> None:
    assert of(np.float32(3.5)).note == "all 1 element"


@pytest.mark.parametrize("array", [np.full(5, np.nan), np.zeros((0, 3)), np.zeros((4, 0), int), np.full(3, np.inf)])
def test_no_finite_value_leaves_the_numbers_empty(array: Any) -> None:
    found = of(array)
    assert (found.min, found.max, found.mean, found.std, found.quantiles, found.histogram) == (None,) * 4 + ((), None)
    json.dumps(found.as_dict(), allow_nan=False)


def test_huge_floats_do_not_overflow() -> None:
    found = of(np.array([1e300, -1e300]))
    assert found.mean == 0
    assert found.std in (pytest.approx(1e300, rel=1e-6), math.inf)
    found = of(np.array([3e38, -3e38], np.float32))
    assert found.std == pytest.approx(3e38, rel=1e-6)


def test_complex_is_described_by_its_absolute_value() -> None:
    found = of(np.array([3 + 4j, 0j], np.complex64))
    assert (found.min, found.max, found.mean) == (0, 5, 2.5)


def test_only_written_rows_of_a_replay_buffer_count() -> None:
    fill = SimpleNamespace(capacity=10, rows=4, chronological=((8, 10), (0, 2)), rotated=False)
    found = of(np.arange(20).reshape(10, 2), fill=fill)
    assert found.rows == ((0, 2), (8, 10))
    assert (found.count, found.min, found.max, found.mean) == (8, 0, 19, 9.5)
    assert "written rows" in found.note


def test_a_large_leaf_is_sampled_evenly_and_says_so() -> None:
    array = np.arange(64 * 40_000, dtype=np.float32).reshape(40_000, 64)
    found = of(array)
    assert not found.whole
    assert 50_000 < found.sampled < 65_536 + 64
    assert (found.count, found.max) == (array.size, array.max())
    assert dict(found.quantiles)[0.5] == pytest.approx(array.size / 2, rel=1e-3)
    assert "from " in found.note


def test_a_sample_step_never_follows_the_columns() -> None:
    assert sample_step(64 * 10**6, 2**18, 64) % 2 == 1
    assert sample_step(100, 1000, 64) == 1


@pytest.mark.parametrize("limit", [1, 3, 10, 10**6])
def test_blocks_cover_every_row_once_and_respect_the_limit(limit: int) -> None:
    seen = np.zeros((5, 3, 4), int)
    for index in block_indices((5, 3, 4), ((0, 2), (3, 5)), limit):
        assert seen[index].size <= max(limit, 4 if limit > 3 else 1)
        seen[index] += 1
    assert seen[[0, 1, 3, 4]].min() == seen.max() == 1
    assert seen[2].max() == 0


def test_progress_rises_and_can_cancel() -> None:
    array = np.zeros((3000, 4096), np.float32)
    seen: list[tuple[int, int]] = []
    leaf_stats(FakeLeaf(array), progress=lambda done, total: seen.append((done, total)))  # type: ignore[arg-type]
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == (array.nbytes, array.nbytes)

    def stop(_done: int, _total: int) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        leaf_stats(FakeLeaf(array), progress=stop)  # type: ignore[arg-type]


def test_a_damaged_leaf_is_reported_and_not_raised() -> None:
    class Damaged(FakeLeaf):
        def numpy(self, index: Any = None) -> Any:
            raise DecodeError("x.memmap: too short")

    found = leaf_stats(Damaged(np.zeros(3)))  # type: ignore[arg-type]
    assert found.problem == found.note == "x.memmap: too short"


def test_the_report_is_a_frame_json_text_and_html() -> None:
    hostile = "<img src=x>"
    report = StatsReport("run.tdz", (of(np.arange(6.0), path=(hostile,)), of([True, False], path=("next", "done"))))
    frame = report.to_frame()
    assert list(frame.index) == [hostile, "next.done"]
    assert frame.loc["next.done", "mean"] == 0.5
    assert "q0.5" in frame.columns
    assert json.loads(report.to_json())["leaves"][1]["key"] == ["next", "done"]
    assert report[("next", "done")].max is True or report[("next", "done")].max == 1
    assert "next.done" in str(report)
    assert repr(report) == "<StatsReport run.tdz: 2 leaves>"
    assert hostile not in report._repr_html_()


def test_members_of_a_nested_tensor_count_together(tmp_path: Path) -> None:
    entry = {"device": "cpu", "shape": [2, 1], "dtype": "torch.float32", "is_nested": True}
    level = {"a": entry, "shape": [2], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    (tmp_path / "meta.json").write_text(json.dumps(level))
    (tmp_path / "a.memmap").write_bytes(np.array([0, 1, 2, 0, 1, 2, 3, 4], "float32").tobytes())
    (tmp_path / "a.shape.memmap").write_bytes(np.array([[3], [5]]).tobytes())
    found = tdview.stats(tmp_path)["a"]
    assert (found.count, found.min, found.max) == (8, 0.0, 4.0)


# -- dask -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A save with a good leaf of many blocks, one of a dtype that numpy lacks, and one whose file is short."""
    monkeypatch.setattr("tdview.analysis.summary._BLOCK_BYTES", 1 << 10)
    rng = np.random.default_rng(0)
    entry = {"device": "cpu", "shape": [900, 5], "dtype": "torch.float32", "is_nested": False}
    level = dict.fromkeys(("good", "short"), entry) | {"half": {**entry, "dtype": "torch.bfloat16"}}
    level |= {"shape": [900], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    (tmp_path / "meta.json").write_text(json.dumps(level))
    numbers = rng.standard_normal((900, 5)).astype("f4")
    numbers[700, 2] = np.nan
    (tmp_path / "good.memmap").write_bytes(numbers.tobytes())
    (tmp_path / "half.memmap").write_bytes((numbers.view("u4") >> 16).astype("u2").tobytes())
    (tmp_path / "short.memmap").write_bytes(numbers.tobytes()[:-8])
    return tmp_path


def test_dask_threads_give_the_serial_statistics(several_blocks: Path) -> None:
    seen: list[int] = []
    parallel = tdview.stats(several_blocks, engine="dask", progress=lambda done, _total: seen.append(done))
    assert parallel.to_json() == tdview.stats(several_blocks).to_json()
    assert seen == sorted(seen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("two_workers")
def test_two_dask_workers_give_the_serial_statistics(several_blocks: Path) -> None:
    parallel = tdview.stats(several_blocks, engine="dask")
    assert parallel.to_json() == tdview.stats(several_blocks).to_json()
    assert [bool(leaf.problem) for leaf in parallel] == [False, True, False]
    assert parallel["good"].nan == parallel["half"].nan == 1


def test_an_unknown_engine_and_a_save_in_memory_are_refused() -> None:
    with pytest.raises(ArgumentError, match="engine"):
        tdview.stats("nowhere", engine="spark")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="memory"):
        list(summarised_on_dask(FakeLeaf(np.zeros(3), store=SimpleNamespace(form="memory")), iter(()), 1))  # type: ignore[arg-type]

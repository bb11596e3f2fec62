"""Envelopes see every row, heat maps average, frames are the pixels, figures are PNG."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdview
from tdview.testing.sample import write_replay_buffer
from tdview.widgets import pictures
from tests.widgets.conftest import View
from tests.widgets.saves import write_save


@pytest.fixture
def open_view(tmp_path: Path) -> Callable[..., View]:
    def make(dtype: str, array: Any) -> View:
        entries = {"x": (dtype, list(array.shape), array.tobytes())}
        return View(tdview.open(write_save(tmp_path / "run", entries, batch_size=list(array.shape[:1]))))

    return make


def lines(view: View, **args: Any) -> tuple[dict[str, Any], list[Any]]:
    answer, buffers = view.exchange("plot.lines", {"path": ["x"], **args})
    assert answer["kind"] == "reply", answer
    return answer["value"], [np.frombuffer(buffer).reshape(2, -1) for buffer in buffers]


def test_few_rows_are_drawn_as_they_are(open_view: Callable[..., View]) -> None:
    array = np.array([1, 2, np.nan, 4, np.inf], "<f4")
    value, (found,) = lines(open_view("float32", array), bins=100)
    assert value["starts"] == [0, 1, 2, 3, 4, 5]
    assert value["gaps"] == [2]
    np.testing.assert_array_equal(found, [[1, 2, np.nan, 4, np.nan]] * 2)


@pytest.mark.parametrize("chunk", [1 << 20, 64])
@pytest.mark.parametrize("bins", [1, 7, 100])
def test_no_outlier_is_lost(open_view: Callable[..., View], chunk: int, bins: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(pictures, "CHUNK", chunk)
    array = np.random.default_rng(0).standard_normal((1000, 2))
    array[617, 1] = 1e6
    array[500, 1] = np.nan
    value, found = lines(open_view("float64", array), bins=bins, cols=[1, 0])
    edges = value["starts"]
    assert (edges[0], edges[-1], len(edges)) == (0, 1000, bins + 1)
    for column, envelope in zip((1, 0), found, strict=True):
        cut = [array[start:stop, column] for start, stop in itertools.pairwise(edges)]
        np.testing.assert_array_equal(envelope[0], [np.nanmin(part) for part in cut])
        np.testing.assert_array_equal(envelope[1], [np.nanmax(part) for part in cut])


def test_zooming_in_gives_the_rows_themselves(open_view: Callable[..., View]) -> None:
    array = np.arange(10_000, dtype="<i8")
    value, (found,) = lines(open_view("int64", array), rows=[5000, 5010], bins=50)
    assert (value["rows"], value["total"]) == ([5000, 5010], 10_000)
    assert found[0].tolist() == list(range(5000, 5010))


def test_a_level_offers_its_columns_and_starts_with_the_reward(tmp_path: Path) -> None:
    view = View(tdview.open(write_replay_buffer(tmp_path / "buffer", capacity=64, steps=100)))
    answer, buffers = view.exchange("plot.lines", {"path": []})
    assert answer["value"]["labels"] == ["next.reward"]
    assert "pixels" not in [group["label"] for group in answer["value"]["available"]]
    assert answer["value"]["order"] == "time"
    assert len(buffers) == 1


def test_heat_maps_average_the_finite_values(open_view: Callable[..., View]) -> None:
    array = np.arange(60, dtype="<f4").reshape(20, 3)
    array[0, 0] = np.nan
    answer, (buffer,) = open_view("float32", array).exchange("plot.heat", {"path": ["x"], "height": 5, "width": 3})
    found = np.frombuffer(buffer, "<f4").reshape(answer["value"]["height"], answer["value"]["width"])
    np.testing.assert_allclose(found, np.nanmean(array.reshape(5, 4, 3), axis=1), rtol=1e-6)


def test_heat_maps_of_many_rows_are_read_in_chunks(open_view: Callable[..., View], monkeypatch: Any) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 50)
    array = np.random.default_rng(1).standard_normal((1000, 8))
    array[3, 3] = np.inf
    view = open_view("float64", array)
    _, (buffer,) = view.exchange("plot.heat", {"path": ["x"], "height": 10, "width": 4})
    expected = np.where(np.isfinite(array), array, np.nan).reshape(10, 100, 4, 2)
    np.testing.assert_allclose(np.frombuffer(buffer, "<f4").reshape(10, 4), np.nanmean(expected, (1, 3)), rtol=1e-5)


def test_a_figure_is_a_png(open_view: Callable[..., View]) -> None:
    view = open_view("float32", np.arange(50, dtype="<f4"))
    for kind in ("auto", "line", "histogram", "heatmap"):
        answer, (data,) = view.exchange("plot.figure", {"path": ["x"], "kind": kind})
        assert answer["value"] == {"name": "x.png", "mime": "image/png"}
        assert bytes(data[:8]) == b"\x89PNG\r\n\x1a\n"
    assert view.refused("plot.figure", {"path": ["x"], "kind": "pie"}) == "ArgumentError"
    assert view.refused("plot.figure", {"path": []}) == "NotSupportedError"


def frames(view: View, **args: Any) -> tuple[dict[str, Any], Any]:
    answer, (buffer,) = view.exchange("frames", {"path": ["x"], **args})
    value = answer["value"]
    shape = (value["count"], value["height"], value["width"], value["channels"])
    return value, np.frombuffer(buffer, np.uint8).reshape(shape)


RNG = np.random.default_rng(2)


@pytest.mark.parametrize(("shape", "layout", "expected"), [
    ((5, 3, 8, 6), "CHW", lambda a: np.moveaxis(a, 1, -1)),
    ((5, 8, 6, 3), "HWC", lambda a: a),
    ((5, 8, 6, 1), "HWC", lambda a: a),
    ((5, 8, 6), "HW", lambda a: a[..., None]),
    ((5, 4, 8, 6), "HW", lambda a: a.reshape(20, 8, 6, 1)),
    ((8, 6), "HW", lambda a: a[None, ..., None]),
])  # fmt: skip
def test_frames_are_the_pixels(
    open_view: Callable[..., View], shape: tuple[int, ...], layout: str, expected: Callable[[Any], Any]
) -> None:
    array = RNG.integers(0, 256, shape, np.uint8)
    value, found = frames(open_view("uint8", array), count=100)
    assert value["layout"] == layout
    np.testing.assert_array_equal(found, expected(array))


def test_a_page_of_frames_stays_small(open_view: Callable[..., View]) -> None:
    view = open_view("uint8", RNG.integers(0, 256, (60, 3, 64, 64), np.uint8))
    value, found = frames(view, start=10, count=60)
    assert value["count"] == (256 << 10) // (3 * 64 * 64)
    assert found.nbytes <= 256 << 10
    value, found = frames(view, start=999, count=5)
    assert (value["start"], value["count"]) == (59, 1)


def test_floats_between_0_and_1_become_black_to_white(open_view: Callable[..., View]) -> None:
    array = np.linspace(0, 1, 2 * 4 * 4, dtype="<f4").reshape(2, 4, 4)
    array[0, 0, 0] = np.nan
    value, found = frames(open_view("float32", array), count=2)
    assert (value["low"], value["high"]) == (0, 1)
    assert (found[0, 0, 0, 0], found[-1, -1, -1, 0]) == (0, 255)


def test_a_ring_plays_in_time_order(tmp_path: Path) -> None:
    path = write_replay_buffer(tmp_path / "buffer", capacity=64, steps=100)
    view = View(tdview.open(path))
    pixels = tdview.scan(path)["pixels"].numpy()
    answer, (buffer,) = view.exchange("frames", {"path": ["pixels"], "start": 27, "count": 2})
    assert answer["value"]["order"] == "time"
    expected = np.stack([pixels[63], pixels[0]])
    if answer["value"]["layout"] == "CHW":
        expected = np.moveaxis(expected, 1, -1)
    np.testing.assert_array_equal(np.frombuffer(buffer, np.uint8), expected.reshape(-1))


def test_what_is_no_image_is_refused(open_view: Callable[..., View]) -> None:
    view = open_view("float32", np.zeros((5, 17), "<f4"))
    assert view.refused("frames", {"path": ["x"]}) == "NotSupportedError"
    assert view.refused("frames", {"path": []}) == "NotSupportedError"
    assert view.refused("plot.lines", {"path": ["x"], "cols": "0"}) == "ArgumentError"
    assert view.refused("plot.lines", {"path": ["x"], "rows": [0]}) == "ArgumentError"
    assert view.refused("plot.heat", {"path": []}) == "NotSupportedError"


def test_statistics_of_a_leaf_and_of_a_level(tmp_path: Path) -> None:
    view = View(tdview.open(write_replay_buffer(tmp_path / "buffer", capacity=64, steps=20)))
    (leaf,) = view.ask("stats", {"path": ["next", "reward"], "bins": 8})["leaves"]
    assert (leaf["key"], leaf["count"], leaf["rows"]) == (["next", "reward"], 20, [[0, 20]])
    reply = view.ask("stats", {"path": ["next"]})
    assert {leaf["key"][0] for leaf in reply["leaves"]} == {"next"}
    assert reply["hidden"] == 0
    assert view.refused("stats", {"path": ["absent"]}) == "KeyMissingError"

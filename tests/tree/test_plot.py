"""The picture suits dtype and shape, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import tdview
from tdview.errors import ArgumentError
from tests.widgets.saves import write_save

CASES = {
    "line": ("float32", [50, 2]),
    "histogram": ("float32", [1]),
    "heatmap": ("float32", [50, 30]),
    "image": ("uint8", [5, 3, 8, 8]),
    "flags": ("bool", [50, 1]),
    "many": ("int64", [5000]),
    "empty": ("float32", [0, 3]),
    "scalar": ("float64", []),
}
KINDS = {"flags": "line", "many": "line", "empty": "histogram", "scalar": "histogram"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Any]:
    root = tdview.scan(write_save(tmp_path / "run", CASES, batch_size=[]))
    yield root
    root.store.close()


@pytest.mark.parametrize("name", CASES)
def test_the_kind_suits_the_leaf(root: Any, name: str) -> None:
    from tdview.tree.plot import plot_kind

    leaf = root[name]
    assert plot_kind(leaf) == KINDS.get(name, name)
    ax = Figure().add_subplot()
    assert leaf.plot(ax=ax) is ax
    assert ax.get_title().startswith(name)
    ax.figure.canvas.draw()


@pytest.mark.parametrize("kind", ["line", "histogram", "heatmap"])
def test_a_kind_can_be_asked_for(root: Any, kind: Any) -> None:
    ax = root["heatmap"].plot(ax=Figure().add_subplot(), kind=kind)
    assert bool(ax.lines) == (kind == "line")
    assert bool(ax.images) == (kind == "heatmap")
    assert bool(ax.patches) == (kind == "histogram")


def test_an_unknown_kind_is_refused(root: Any) -> None:
    with pytest.raises(ArgumentError):
        root["line"].plot(ax=Figure().add_subplot(), kind="pie")


def test_lines_that_are_left_out_are_said(root: Any) -> None:
    ax = root["heatmap"].plot(ax=Figure().add_subplot(), kind="line")
    assert len(ax.lines) == 8
    assert "8 of 30" in ax.get_title()


def test_a_heat_map_averages(tmp_path: Path) -> None:
    data = np.repeat(np.arange(2, dtype="<f4"), 1500)
    root: Any = tdview.scan(write_save(tmp_path / "r", {"x": ("float32", [3000, 1], data.tobytes())}, batch_size=[]))
    ax = root["x"].plot(ax=Figure().add_subplot(), kind="heatmap")
    assert ax.images[0].get_array().shape == (1000, 1)

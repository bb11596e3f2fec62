"""Age, priority and generation of rows."""

from __future__ import annotations

import json
from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.errors import NotSupportedError


def test_the_newest_row_has_age_zero_and_the_oldest_the_greatest(tmp_path: Path) -> None:
    frame = tdview.side_columns(made.ring_dump(tmp_path / "run", made.stream(163), 100))
    assert list(frame.columns) == ["age"]
    assert frame["age"].iloc[62] == 0
    assert frame["age"].iloc[63] == 99
    assert sorted(frame["age"]) == list(range(100))


def test_rows_that_were_never_written_have_no_age(tmp_path: Path) -> None:
    frame = tdview.side_columns(made.ring_dump(tmp_path / "run", made.stream(60), 100))
    assert frame["age"].isna().tolist() == [False] * 60 + [True] * 40


def test_priorities_are_those_that_were_given(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 80)
    (folder / "sampler").mkdir()
    (folder / "sampler" / "sampler_metadata.json").write_text('{"_alpha": 0.5, "_eps": 0.01}')
    given = np.random.default_rng(0).uniform(0, 3, 60)
    tree = np.zeros(80)
    tree[:60] = np.sqrt(given + 0.01)
    for name in ("sumtree", "mintree"):
        tree.tofile(folder / "sampler" / f"{name}.memmap")
    frame = tdview.side_columns(folder)
    assert np.allclose(frame["priority"][:60], given)
    assert frame["priority"][60:].isna().all()
    assert frame["probability"].sum() == pytest.approx(1)


def test_generations_are_shown_where_the_writer_counts_them(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(163), 100)
    text = {"cursor": 63, "write_count": 163, "generation_shape": [100], "generation_dtype": "torch.int64"}
    (folder / "writer" / "metadata.json").write_text(json.dumps(text))
    np.where(np.arange(100) < 63, 1, 0).astype(np.int64).tofile(folder / "writer" / "generation.memmap")
    assert tdview.side_columns(folder)["generation"].sum() == 63


def test_a_max_value_buffer_has_no_age(dumps: Path) -> None:
    assert "age" not in tdview.side_columns(dumps / "maxvalue_writer" / "buffer")


def test_weights_have_no_side_columns(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError):
        tdview.side_columns(made.save(tmp_path / "w", {("weight",): np.ones((4, 3), np.float32)}, ()))

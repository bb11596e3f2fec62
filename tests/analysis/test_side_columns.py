"""Age, priority and generation of rows."""

from __future__ import annotations

import json
from pathlib import Path

import made
import numpy as np
import pytest

import tdview
from tdview.analysis.side_columns import SideColumns
from tdview.errors import NotSupportedError
from tdview.testing.sample import write_replay_buffer
from tdview.tree.fill import SideFiles


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


def test_a_part_of_the_rows_is_the_part_of_the_whole(tmp_path: Path) -> None:
    folder = write_replay_buffer(tmp_path / "run", capacity=60, steps=100)
    frame = tdview.side_columns(folder)
    node = tdview.scan(folder)
    side = SideColumns(node, node.fill)
    assert side.names == tuple(frame.columns) == ("age", "priority", "probability")
    for name in side.names:
        parts = [side.values(name, start, start + 20) for start in (0, 20, 40)]
        assert np.concatenate(parts).tolist() == frame[name].tolist()


def test_names_are_known_before_an_array_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tdview.scan(write_replay_buffer(tmp_path / "run", capacity=60, steps=100))
    side = SideColumns(node, node.fill)
    monkeypatch.setattr(SideFiles, "array", None)
    assert "priority" in side.names


@pytest.mark.parametrize("nbytes", [0, 7, 8 * 59])
def test_a_short_tree_gives_no_priorities(nbytes: int, tmp_path: Path) -> None:
    folder = write_replay_buffer(tmp_path / "run", capacity=60, steps=100)
    (folder / "sampler" / "sumtree.memmap").write_bytes(bytes(nbytes))
    assert list(tdview.side_columns(folder).columns) == ["age"]


def test_counts_that_are_no_integers_are_left_out(tmp_path: Path) -> None:
    folder = write_replay_buffer(tmp_path / "run", capacity=60, steps=100)
    text = {"cursor": 40, "write_count": 100, "generation_shape": [60], "generation_dtype": "torch.complex64"}
    (folder / "writer" / "metadata.json").write_text(json.dumps(text))
    (folder / "writer" / "generation.memmap").write_bytes(bytes(480))
    assert "generation" not in tdview.side_columns(folder)


def test_weights_have_no_side_columns(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError):
        tdview.side_columns(made.save(tmp_path / "w", {("weight",): np.ones((4, 3), np.float32)}, ()))

"""Which rows of a buffer are written, and in which order: from side files, and guessed without them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import tdview
from tdview.tree.fill import Fill, ring

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
import made


def fill(path: Path) -> Fill:
    found = tdview.scan(path).fill
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("steps", "order"), [(60, ((0, 60),)), (100, ((0, 100),)), (163, ((63, 100), (0, 63))), (300, ((0, 100),))]
)
def test_a_dump_says_its_order(tmp_path: Path, steps: int, order: tuple[tuple[int, int], ...]) -> None:
    found = fill(made.ring_dump(tmp_path / "run", made.stream(steps), 100))
    assert (found.chronological, found.certain, found.write_count) == (order, True, steps)
    assert found.rows == min(steps, 100)
    assert found.wrapped == (steps > 100)


def test_the_storage_of_a_dump_finds_the_writer_beside_it(tmp_path: Path) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(163), 100)
    assert fill(folder / "storage") == fill(folder)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("drop", [(), ("traj_ids",)])
def test_a_storage_without_side_files_guesses_the_seam(tmp_path: Path, packed: bool, drop: tuple[str, ...]) -> None:
    arrays = made.without(made.in_ring(made.stream(163), 100), *drop)
    path = made.save(tmp_path / "run", arrays, (100,))
    if packed:
        tdview.pack_memmap(path, tmp_path / "run.tdz")
        path = tmp_path / "run.tdz"
    found = fill(path)
    assert found.chronological == ((63, 100), (0, 63))
    assert not found.certain
    assert "seam" in found.guessed_from


def test_a_full_storage_without_signs_is_taken_as_it_lies(tmp_path: Path) -> None:
    arrays = made.without(made.in_ring(made.stream(163), 100), "traj_ids", "step_count", "observation")
    found = fill(made.save(tmp_path / "run", arrays, (100,)))
    assert found.chronological == ((0, 100),)
    assert not found.certain


@pytest.mark.parametrize("index", [True, False])
def test_a_killed_run_guesses_its_rows(tmp_path: Path, index: bool) -> None:
    arrays = made.in_ring(made.stream(60), 100)
    if index:
        arrays[("index",)] = np.where(np.arange(100) < 60, np.arange(100), 0)
    found = fill(made.save(tmp_path / "run", arrays, (100,)))
    assert (found.rows, found.chronological, found.certain) == (60, ((0, 60),), False)
    assert found.guessed_from.startswith("the index leaf" if index else "empty rows")


def test_a_sparse_file_is_not_read_behind_its_data(tmp_path: Path) -> None:
    rows = 50_000_000
    folder = made.save(tmp_path / "run", {("next", "reward"): np.ones((10, 1), np.float32)}, (10,))
    for meta in (folder / "meta.json", folder / "next" / "meta.json"):
        meta.write_text(meta.read_text().replace("[10", f"[{rows}"))
    os.truncate(folder / "next" / "reward.memmap", rows * 4)
    assert fill(folder).rows == 10


def test_rows_of_a_storage_with_several_dims_are_counted_along_the_first(tmp_path: Path) -> None:
    found = fill(made.time_env_dump(tmp_path / "run", 3, 80, 60))
    assert (found.capacity, found.rows, found.inner, found.single) == (60, 60, 3, False)
    assert found.chronological == ((20, 60), (0, 20))


@pytest.mark.parametrize(("length", "cursor", "rows", "single"), [
    (10, 10, 10, True), (200, 10, 10, False), (30, 4, 30, True), (600, 4, 30, False), (60, 3, 3, False),
])  # fmt: skip
def test_elements_and_rows_are_told_apart(tmp_path: Path, length: int, cursor: int, rows: int, single: bool) -> None:
    arrays = {("next", "reward"): np.ones((30, 20, 1), np.float32)}
    found = fill(made.dump(tmp_path / "run", arrays, (30, 20), length=length, cursor=cursor))
    assert (found.rows, found.single) == (rows, single)


@pytest.mark.parametrize("text", ["", "[]", '{"len": -4}', '{"len": "x"}'])
def test_damaged_side_files_leave_a_guess(tmp_path: Path, text: str) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)
    (folder / "storage" / "storage_metadata.json").write_text(text)
    found = fill(folder)
    assert (found.rows, found.certain) == (60, False)
    assert "side_file" in tdview.audit(folder).codes


@pytest.mark.parametrize("cursor", [-1, 100, 7])
def test_a_cursor_that_contradicts_the_length_is_not_believed(tmp_path: Path, cursor: int) -> None:
    folder = made.ring_dump(tmp_path / "run", made.stream(60), 100)
    (folder / "writer" / "metadata.json").write_text(json.dumps({"cursor": cursor}))
    found = fill(folder)
    assert (found.chronological, found.certain) == (((0, 60),), False)


def test_members_of_an_ensemble_have_fills_of_their_own(tmp_path: Path) -> None:
    for number, steps in enumerate((60, 163)):
        made.ring_dump(tmp_path / str(number), made.stream(steps), 100)
        for part in ("storage", "writer"):
            (tmp_path / "all" / part).mkdir(parents=True, exist_ok=True)
            shutil.move(tmp_path / str(number) / part, tmp_path / "all" / part / str(number))
    root = tdview.scan(tmp_path / "all")
    orders = [node.fill.chronological for node in root["storage"].children()]  # type: ignore[union-attr]
    assert orders == [((0, 60),), ((63, 100), (0, 63))]


def test_weights_have_no_fill(tmp_path: Path) -> None:
    assert tdview.scan(made.save(tmp_path / "w", {("weight",): np.ones((4, 3), np.float32)}, ())).fill is None


def test_the_text_says_what_is_known() -> None:
    sure = Fill(capacity=256, rows=256, cursor=144, chronological=ring(256, 256, 144))
    assert str(sure) == "256 of 256 rows, oldest first: 144–255 then 0–143"
    guess = Fill(capacity=9, rows=3, chronological=((0, 3),), certain=False, guessed_from="the index leaf")
    assert str(guess) == "3 of 9 rows (guessed from the index leaf)"

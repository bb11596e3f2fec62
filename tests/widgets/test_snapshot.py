from __future__ import annotations

from pathlib import Path

import pytest

import tdview
from tdview.errors import Cancelled
from tdview.testing.sample import write_replay_buffer
from tdview.widgets.snapshot import FIRST_PAGE, Count, count_leaves, head_of, one_line
from tests.widgets.saves import write_save


@pytest.fixture
def save(tmp_path: Path) -> Path:
    levels = {f"level{i}": {f"leaf{j}": ("float32", [2]) for j in range(300)} for i in range(3)}
    return write_save(tmp_path / "run", {"obs": ("float32", [2, 3]), **levels}, batch_size=[2])


def test_everything_is_counted_without_a_limit(save: Path) -> None:
    assert count_leaves(tdview.scan(save)) == Count(901, 24 + 900 * 8, True)


def test_a_count_stops_at_its_limit_and_says_so(save: Path) -> None:
    count = count_leaves(tdview.scan(save), limit=200)
    assert not count.complete
    assert count.leaves < 901


def test_a_count_can_be_stopped(save: Path) -> None:
    def stop() -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        count_leaves(tdview.scan(save), check=stop)


def test_the_head_holds_one_page_of_a_wide_level(tmp_path: Path) -> None:
    root = tdview.scan(write_save(tmp_path / "w", {f"k{i}": ("bool", [2]) for i in range(500)}, batch_size=[2]))
    page = head_of(root, "r", count_leaves(root), 3)["page"]
    assert (len(page["rows"]), page["total"]) == (FIRST_PAGE, 500)


def test_a_ring_says_where_it_begins(tmp_path: Path) -> None:
    root = tdview.scan(write_replay_buffer(tmp_path / "buffer"))
    head = head_of(root, "r", count_leaves(root), 0)
    assert head["rowsText"] == "256 of 256 rows, oldest at 144"
    assert head["fill"] == {"capacity": 256, "rows": 256, "cursor": 144, "oldest": 144}
    assert one_line(root, "r+", count_leaves(root)).startswith("<tdview.Browser buffer: replay buffer, ")


@pytest.mark.parametrize(
    ("batch", "text"), [([1], "1 row"), ([6], "6 rows"), ([7000], "7,000 rows"), ([6, 4], "batch [6, 4]"), ([], "")]
)
def test_rows_are_told_as_the_batch_size_has_them(tmp_path: Path, batch: list[int], text: str) -> None:
    root = tdview.scan(write_save(tmp_path / "run", {"x": ("bool", [*batch, 2])}, batch_size=batch))
    assert head_of(root, "r", count_leaves(root), 0)["rowsText"] == text


def test_a_name_with_control_characters_is_one_line(tmp_path: Path) -> None:
    root = tdview.scan(write_save(tmp_path / "a\nb", {"x": ("bool", [2])}, batch_size=[2]))
    assert "\n" not in one_line(root, "r", count_leaves(root))

"""Nested keys and rows as they are typed on the command line."""

from __future__ import annotations

import argparse

import pytest

from tdview.cli.arguments import row_numbers, row_ranges, rows_text
from tdview.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "ranges"),
    [("3", ((3, 4),)), ("3,10:20", ((3, 4), (10, 20))), ("0:0", ((0, 0),)), (" 1 , 2:3", ((1, 2), (2, 3)))],
)
def test_rows_are_numbers_and_half_open_ranges(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert row_ranges(text) == ranges


@pytest.mark.parametrize("text", ["", "x", "-1", "5:3", "1:", ":3", "1,,2", "1:2:3"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        row_ranges(text)


def test_rows_are_cut_at_the_end_of_the_save() -> None:
    assert row_numbers(((0, 2), (8, 99)), 10) == [0, 1, 8, 9]
    with pytest.raises(ArgumentError):
        row_numbers(((10, 12),), 10)


def test_rows_are_shown_as_they_are_typed() -> None:
    assert rows_text(row_ranges("3,10:20")) == "3,10:20"

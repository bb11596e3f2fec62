"""Sizes: what a shape may be before anything is allocated."""

from __future__ import annotations

from typing import Any

import pytest

from tdview.format.payload import check_shape


@pytest.mark.parametrize("shape", [[], [0], [3, 4], [0, 2**40], [2**60]])
def test_sizes_that_memory_can_hold_are_a_shape(shape: list[int]) -> None:
    assert check_shape(shape) == tuple(shape)


@pytest.mark.parametrize("shape", [[-1], [1.0], [True], ["3"], None, "34", [2**62, 2], [2**62, 0, 4], [1] * 65, {3: 4}])
def test_anything_else_is_no_shape(shape: Any) -> None:
    assert check_shape(shape) is None


def test_the_item_size_counts() -> None:
    assert check_shape([2**61], 2) == (2**61,)
    assert check_shape([2**61], 4) is None

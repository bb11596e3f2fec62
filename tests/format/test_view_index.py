"""The index of a sub-tensordict: its JSON, and the shape that torch would give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tdview.errors import DecodeError
from tdview.format.view_index import dump_index, indexed_shape, parse_index, viewed_shape


@st.composite
def indices(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and a torch index that fits it."""
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=4)))
    length = draw(st.integers(1, 3))
    items: list[Any] = []
    for size in shape:
        kind = draw(st.sampled_from(["int", "slice", "none", "tensor", "range", "mask", "ellipsis"]))
        if kind == "int":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            bound = st.none() | st.integers(0, size)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2]))))
        elif kind == "none":
            items.append(None)
        elif kind == "tensor":
            items.append(torch.tensor(draw(st.lists(st.integers(0, size - 1), min_size=length, max_size=length))))
        elif kind == "range":
            items.append(range(min(length, size)))
        elif kind == "mask":
            items.append(torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
        elif Ellipsis not in [i for i in items if not isinstance(i, torch.Tensor)]:
            items.append(Ellipsis)
            break
    return shape, tuple(items)


@given(indices())
def test_the_shape_is_that_of_torch(made: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, index = made
    try:
        plain = tuple(torch.tensor(list(i)) if isinstance(i, range) else i for i in index)
        want = tuple(torch.zeros(shape)[plain].shape)
    except IndexError:
        return
    if 0 in want:  # torch does not look at positions that select nothing; here they are refused
        return
    assert indexed_shape(shape, parse_index(dump_index(index), "x"), "x") == want


@pytest.mark.parametrize(
    "value", ["x", {"a": 1}, [["slice", 3]], [["nope", 1]], [[1, [2]]], [["range", {"stop": 1e9}]]]
)
def test_what_is_no_index_is_a_decode_error(value: Any) -> None:
    with pytest.raises(DecodeError):
        indexed_shape((3,), parse_index(value, "x"), "x")


@pytest.mark.parametrize("value", [[3], [0, 0], [["tensor", [0, 9], "cpu"]], [["tensor", [True], "cpu"]]])
def test_an_index_outside_the_shape_is_a_decode_error(value: Any) -> None:
    with pytest.raises(DecodeError):
        indexed_shape((3,), parse_index(value, "x"), "x")


def test_an_untagged_list_is_the_older_form_of_a_tuple() -> None:
    assert indexed_shape((4, 3), parse_index([1, ["slice", {"start": 0, "stop": 2, "step": None}]], "x"), "x") == (2,)


@pytest.mark.parametrize(
    ("op", "kwargs"),
    [("permute", {"dims": [0, 0]}), ("view", {"size": [7]}), ("squeeze", {}), ("nope", {}), ("unsqueeze", {"dim": 9})],
)
def test_an_operation_that_does_not_fit_is_a_decode_error(op: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        viewed_shape((2, 3, 5), op, kwargs, 2, "x")

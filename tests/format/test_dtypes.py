"""The dtype table agrees with torch, byte for byte."""

from __future__ import annotations

import pytest
import torch

from tdview.format.dtypes import DTYPES, dtype_of


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_item_size_is_that_of_torch(name: str) -> None:
    kind = getattr(torch, name.removeprefix("torch."))
    assert DTYPES[name].itemsize == kind.itemsize


def test_every_dtype_of_torch_is_in_the_table() -> None:
    kinds = {str(value) for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert kinds - set(DTYPES) == set()


@pytest.mark.parametrize("name", ["torch.float7", "float32", "", None, 3, ["torch.int8"]])
def test_an_unknown_name_has_no_row(name: object) -> None:
    assert dtype_of(name) is None

"""The comparison that the other tests stand on sees every kind of difference."""

from __future__ import annotations

import pytest
import torch

import tdview
from tdview import NonTensorData, NonTensorStack, TensorDict
from tdview.containers.pending import nested_of
from tdview.testing.same import differences, file_differences


def make(**changes):
    entries = {
        "a": torch.ones(2, 3),
        "n": {"b": torch.zeros(2)},
        "s": "x",
        "j": nested_of(torch.arange(3.0), torch.tensor([[1], [2]])),
        "l": tdview.lazy_stack([TensorDict(q=torch.ones(1)), TensorDict(q=torch.ones(2))]),
    }
    return TensorDict({**entries, **changes}, batch_size=[2])


CHANGES = {
    "bits": {"a": torch.full((2, 3), 1 + 2**-23)},
    "sign of zero": {"n": {"b": torch.tensor([0.0, -0.0])}},
    "dtype": {"a": torch.ones(2, 3, dtype=torch.int32)},
    "shape": {"a": torch.ones(2, 3, 1)},
    "value": {"s": "y"},
    "type of value": {"s": NonTensorData(["x"], batch_size=[2])},
    "one value and many": {"s": NonTensorStack("x", "x")},
    "tensor and value": {"a": "x"},
    "tensor and level": {"a": {}},
    "key": {"more": torch.ones(2)},
    "parts of a nested tensor": {"j": nested_of(torch.arange(3.0), torch.tensor([[2], [1]]))},
    "member of a stack": {"l": tdview.lazy_stack([TensorDict(q=torch.ones(1)), TensorDict(q=torch.zeros(2))])},
    "stack and dense": {"l": {"q": torch.ones(2, 1)}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_difference_is_seen(name):
    assert list(differences(make(), make())) == []
    assert len(list(differences(make(), make(**CHANGES[name])))) > 0
    assert len(list(differences(make(**CHANGES[name]), make()))) > 0


def test_order_and_names_count():
    one, two = TensorDict(a=1, b=2), TensorDict(b=2, a=1)
    assert list(differences(one, two)) != []
    assert list(differences(one, two, order=False)) == []
    assert list(differences(TensorDict(batch_size=[1], names=["t"]), TensorDict(batch_size=[1]))) != []


def test_files_are_compared_by_name_and_byte(tmp_path):
    make().save(tmp_path / "a")
    make().save(tmp_path / "b")
    assert list(file_differences(tmp_path / "a", tmp_path / "b")) == []
    (tmp_path / "b/a.memmap").write_bytes(b"x")
    (tmp_path / "b/more").write_bytes(b"")
    assert len(list(file_differences(tmp_path / "a", tmp_path / "b"))) == 2

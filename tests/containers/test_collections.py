"""Lazy stacks, views, non-tensor data and tensorclasses in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tdview
from tdview import KeyMissingError, LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorClass, TensorDict
from tdview.containers.views import LazyView, SubTensorDict
from tdview.testing.same import differences


def _stack(dim=0):
    members = [TensorDict(a=torch.full((2, 3), float(i)), s=f"s{i}", batch_size=[2]) for i in range(3)]
    return LazyStackedTensorDict(*members, stack_dim=dim)


@pytest.fixture
def uneven():
    return LazyStackedTensorDict(
        TensorDict(a=torch.zeros(2, 3), batch_size=[2]),
        TensorDict(a=torch.ones(2, 4), b=torch.zeros(2), batch_size=[2]),
    )


# lazy stacks


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_lazy_stack_reads_as_the_dense_stack(dim):
    lazy = _stack(dim)
    dense = torch.stack(lazy.tensordicts, dim)
    assert lazy.batch_size == dense.batch_size
    assert torch.equal(lazy["a"], dense["a"])
    assert lazy["s"] == dense["s"]
    assert list(differences(lazy.to_tensordict(), dense)) == []


INDICES = [
    0, -1, slice(1, None), (slice(None), 0), (0, 1), [2, 0], torch.tensor([True, False, True]), None, ..., (..., 0),
    (slice(1), slice(1)), (None, 1), torch.tensor([[0, 1]]), (torch.tensor([0, 1]), torch.tensor([1, 0])),
    np.array([1]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_lazy_stack_is_indexed_as_the_dense_one(index):
    lazy = _stack()
    dense = lazy.to_tensordict()
    assert torch.equal(lazy[index]["a"], dense[index]["a"])
    assert lazy[index].get("s")._array().tolist() == dense[index].get("s")._array().tolist()
    assert lazy[index].batch_size == dense[index].batch_size


OPERATIONS = {
    "unsqueeze": lambda td: td.unsqueeze(0),
    "unsqueeze last": lambda td: td.unsqueeze(-1),
    "permute": lambda td: td.permute(1, 0),
    "transpose": lambda td: td.transpose(0, 1),
    "squeeze": lambda td: td.unsqueeze(1).squeeze(1),
    "reshape": lambda td: td.reshape(2, 3),
    "flatten": lambda td: td.flatten(),
    "expand": lambda td: td.expand(4, 3, 2),
    "unbind": lambda td: td.unbind(1)[0],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_lazy_stack_is_reshaped_as_the_dense_one(name):
    lazy = _stack()
    expected = OPERATIONS[name](lazy.to_tensordict())
    found = OPERATIONS[name](lazy)
    assert found.batch_size == expected.batch_size
    assert torch.equal(found["a"], expected["a"])


def test_uneven_stack_keeps_each_member(uneven):
    assert uneven.batch_size == (2, 2)
    assert list(uneven.keys()) == ["a"]
    assert uneven[1]["a"].shape == (2, 4)
    assert uneven[:, 0][0]["a"].shape == (3,)
    assert uneven.permute(1, 0)[0][1]["a"].shape == (4,)
    assert uneven.unsqueeze(0)[0][1]["b"].shape == (2,)
    with pytest.raises(ValueError, match="shapes"):
        uneven["a"]
    with pytest.raises(NotImplementedError):
        uneven.to_tensordict()
    assert repr(uneven).startswith("LazyStackedTensorDict(batch_size=[2, 2], stack_dim=0")
    assert list(differences(uneven, uneven.clone())) == []


def test_writes_reach_the_members():
    lazy = _stack(1)
    lazy["new"] = torch.arange(6).view(2, 3)
    assert lazy.tensordicts[1]["new"].tolist() == [1, 4]
    lazy.set_("a", torch.zeros(2, 3, 3))
    assert all(member["a"].sum() == 0 for member in lazy.tensordicts)
    lazy[0] = lazy[1].clone()
    del lazy["new"]
    assert "new" not in lazy.tensordicts[0]
    lazy.update_(TensorDict(a=torch.ones(2, 3, 3), s="x", batch_size=[2, 3]))
    assert lazy["a"].sum() == 18
    lazy.lock_()
    with pytest.raises(RuntimeError):
        lazy.tensordicts[0].set("q", torch.ones(2))


def test_stack_of_unequal_batch_sizes_is_refused():
    with pytest.raises(ValueError, match="batch size"):
        LazyStackedTensorDict(TensorDict(batch_size=[1]), TensorDict(batch_size=[2]))
    with pytest.raises(IndexError):
        LazyStackedTensorDict(TensorDict(batch_size=[1]), stack_dim=3)


# views


def test_sub_tensordict_reads_and_writes_through():
    td = TensorDict(a=torch.zeros(4, 2), n={"b": torch.zeros(4)}, s="x", batch_size=[4])
    part = SubTensorDict(td, slice(1, 3))
    part.set_("a", torch.ones(2, 2))
    part.set_(("n", "b"), torch.ones(2))
    part["new"] = torch.full((2,), 5.0)
    assert td["a"].sum() == 4
    assert td["n", "b"].tolist() == [0, 1, 1, 0]
    assert td["new"].tolist() == [0, 5, 5, 0]
    assert part["s"] == "x"
    assert part.batch_size == (2,)
    assert list(part.to_tensordict().keys()) == ["a", "n", "s", "new"]
    with pytest.raises(IndexError):
        SubTensorDict(td, 9)


@pytest.mark.parametrize(
    ("op", "kwargs", "how"),
    [
        ("permute", {"dims": [1, 0]}, lambda t: t.permute(1, 0, 2)),
        ("transpose", {"dim0": 0, "dim1": 1}, lambda t: t.transpose(0, 1)),
        ("view", {"size": [6]}, lambda t: t.view(6, 4)),
        ("unsqueeze", {"dim": 1}, lambda t: t.unsqueeze(1)),
        ("squeeze", {"dim": 0}, lambda t: t),
    ],
)
def test_lazy_view_reads_and_writes_through(op, kwargs, how):
    td = TensorDict(a=torch.arange(24.0).view(2, 3, 4), batch_size=[2, 3])
    view = LazyView(td, op, kwargs)
    assert torch.equal(view["a"], how(td["a"]))
    if op != "squeeze":
        view["new"] = how(td["a"]) * 2
        assert torch.equal(td["new"], td["a"] * 2)


def test_view_of_an_uneven_stack_can_be_read(uneven):
    view = LazyView(uneven, "unsqueeze", {"dim": 0})
    assert view[0, 1]["a"].shape == (2, 4)
    assert SubTensorDict(uneven, 1)["b"].shape == (2,)
    assert "_UnsqueezedTensorDict" in repr(view)
    with pytest.raises(ValueError, match="expected one of"):
        LazyView(uneven, "roll", {})


# non-tensor data


def test_non_tensor_data_follows_the_batch():
    value = NonTensorData("a", batch_size=[2, 3])
    assert value[0].batch_size == (3,)
    assert value.unsqueeze(0).batch_size == (1, 2, 3)
    assert value.data == "a"
    assert value[0, 0].tolist() == "a"
    assert (value == "a").all()
    assert not (value == NonTensorData("b", batch_size=[2, 3])).any()


def test_non_tensor_stack_holds_one_value_for_each_element():
    stack = NonTensorStack.from_list([["a", "b"], ["c", "d"], ["e", "f"]])
    assert stack.batch_size == (3, 2)
    assert stack[:, 1].tolist() == ["b", "d", "f"]
    assert stack.permute(1, 0).tolist() == [["a", "c", "e"], ["b", "d", "f"]]
    assert stack[1, 1].data == "d"
    assert stack[torch.tensor([True, False, True])].tolist() == [["a", "b"], ["e", "f"]]
    stack[0, 0] = "z"
    assert stack.tolist()[0] == ["z", "b"]
    with pytest.raises(AttributeError):
        _ = stack.data
    assert NonTensorStack("x", "x").data == "x"
    assert NonTensorStack(NonTensorStack("a"), NonTensorStack("b"), stack_dim=1).tolist() == [["a", "b"]]
    assert NonTensorStack([1, 2], {"a": 1}).tolist() == [[1, 2], {"a": 1}]


# tensorclasses


@tdview.tensorclass
class Point:
    xy: torch.Tensor
    label: str = "p"
    inner: Any = None

    def norm(self) -> torch.Tensor:
        return self.xy.norm(dim=-1)


class Derived(TensorClass):
    a: torch.Tensor
    n: int = 3


def test_tensorclass_has_fields_rows_and_methods():
    point = Point(torch.ones(3, 2), label="l", batch_size=[3])
    assert point.label == "l"
    assert point.inner is None
    assert point[0].xy.shape == (2,)
    assert point.norm().shape == (3,)
    assert [row.label for row in point] == ["l"] * 3
    assert isinstance(torch.stack([point, point]), Point)
    assert isinstance(torch.cat([point, point]), Point)
    assert isinstance(tdview.lazy_stack([point, point]), Point)
    assert (point == point.clone()).all()
    point.label = "new"
    point.inner = Point(torch.zeros(3, 2), batch_size=[3])
    assert point.inner.label == "p"
    point.inner = None
    assert list(point.keys()) == ["xy", "label"]
    assert point.to_dict()["inner"] is None
    assert [field.name for field in Point.fields()] == ["xy", "label", "inner"]
    assert tdview.is_tensorclass(point)
    assert str(Point).endswith("Point'>")


def test_plain_types_stay_what_they_are():
    thing = Derived(a=torch.zeros(2), n=5, batch_size=[2])
    assert thing.n == 5
    assert thing[0].n == 5
    assert isinstance(thing.unsqueeze(0), Derived)
    assert isinstance(thing.select("a"), Derived)


@pytest.mark.parametrize(
    "call",
    [lambda: Point(), lambda: Point(torch.ones(1), 1, 2, 3), lambda: Point(torch.ones(1), xy=1), lambda: Point(q=1)],
)
def test_wrong_fields_are_refused(call):
    with pytest.raises(TypeError):
        call()


def test_unknown_field_is_an_attribute_error():
    point = Point(torch.ones(3, 2), batch_size=[3])
    with pytest.raises(AttributeError):
        _ = point.nothing
    with pytest.raises(AttributeError):
        point.nothing = 1
    with pytest.raises(ValueError, match="get"):
        point["xy"]
    with pytest.raises(ValueError, match="no fields"):
        Point.from_tensordict(TensorDict(q=1))


def test_tensorclass_in_a_tensordict_is_a_level():
    td = TensorDict(p=Point(torch.ones(3, 2), batch_size=[3]), batch_size=[3])
    assert list(td.keys(True)) == [("p", "xy"), ("p", "label"), "p"]
    assert td["p", "xy"].shape == (3, 2)
    assert td[0]["p"].label == "p"
    td["p", "label"] = "x"
    assert td["p"].label == "x"
    with pytest.raises(KeyMissingError):
        td["p", "nothing"]

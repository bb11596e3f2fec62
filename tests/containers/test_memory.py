"""Memory-mapped tensors by themselves, and containers of every kind mapped in place or in anonymous memory."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle

import pytest
import torch

import tdview
from tdview import AlreadyExistsError, DecodeError, MemoryMappedTensor, NonTensorStack, TensorDict, load_memmap
from tdview.containers.pending import nested_of
from tdview.containers.tensorclass import UnknownTensorClass
from tdview.containers.views import LazyView, SubTensorDict
from tdview.testing.same import differences


def test_constructors_fill_and_size():
    assert MemoryMappedTensor.zeros(2, 3).shape == (2, 3)
    assert MemoryMappedTensor.empty((2, 3), dtype=torch.int8).sum() == 0
    assert MemoryMappedTensor.ones([2], dtype=torch.bfloat16).sum() == 2
    assert MemoryMappedTensor.full(2, 2, fill_value=3).sum() == 12
    like = torch.ones(3, dtype=torch.int16)
    assert MemoryMappedTensor.zeros_like(like).dtype == torch.int16
    assert MemoryMappedTensor.empty_like(like).shape == (3,)
    assert MemoryMappedTensor.ones_like(like).sum() == 3
    assert MemoryMappedTensor.zeros(0, 3).shape == (0, 3)


def test_file_is_written_mapped_and_found_again(tmp_path):
    there = MemoryMappedTensor.from_tensor(torch.arange(6).view(2, 3), filename=tmp_path / "a.memmap")
    there[0] += 10
    again = MemoryMappedTensor.from_filename(tmp_path / "a.memmap", torch.int64, [2, 3])
    assert again.tolist() == [[10, 11, 12], [3, 4, 5]]
    assert again[1].filename == str(tmp_path / "a.memmap")
    assert MemoryMappedTensor.from_tensor([1.0, 2.0], shape=[2]).tolist() == [1, 2]
    assert MemoryMappedTensor.from_tensor(there, filename=tmp_path / "a.memmap").filename == there.filename


def test_existing_file_and_foreign_leaf_are_refused(tmp_path):
    there = MemoryMappedTensor.from_tensor(torch.ones(2), filename=tmp_path / "a.memmap")
    with pytest.raises(AlreadyExistsError):
        MemoryMappedTensor.from_tensor(torch.ones(2), filename=tmp_path / "a.memmap")
    with pytest.raises(AlreadyExistsError):
        MemoryMappedTensor.from_tensor(there, filename=tmp_path / "b.memmap")
    copied = MemoryMappedTensor.from_tensor(there, filename=tmp_path / "b.memmap", copy_existing=True)
    assert copied.filename == str(tmp_path / "b.memmap")
    replaced = MemoryMappedTensor.from_tensor(torch.zeros(3), filename=tmp_path / "b.memmap", existsok=True)
    assert os.path.getsize(replaced.filename) == 12


def test_short_and_missing_files_raise_and_stay(tmp_path):
    (tmp_path / "a.memmap").write_bytes(b"123")
    with pytest.raises(DecodeError):
        MemoryMappedTensor.from_filename(tmp_path / "a.memmap", torch.float32, [1])
    with pytest.raises(FileNotFoundError):
        MemoryMappedTensor.from_filename(tmp_path / "b.memmap", torch.float32, [1])
    with pytest.raises(ValueError, match="mode"):
        MemoryMappedTensor.from_filename(tmp_path / "a.memmap", torch.uint8, [1], mode="w")
    assert (tmp_path / "a.memmap").read_bytes() == b"123"
    assert not (tmp_path / "b.memmap").exists()


def test_pickle_of_a_mapped_leaf_is_its_path_and_of_a_part_its_elements(tmp_path):
    there = MemoryMappedTensor.from_tensor(torch.ones(1000), filename=tmp_path / "a.memmap")
    data = pickle.dumps(there)
    assert len(data) < 500
    other = pickle.loads(data)
    other.fill_(2)
    assert there.sum() == 2000
    assert type(pickle.loads(pickle.dumps(there[:2]))) is torch.Tensor
    assert type(copy.deepcopy(there)) is torch.Tensor
    assert pickle.loads(pickle.dumps(MemoryMappedTensor.ones(2))).sum() == 2


def _kinds():
    nested = nested_of(torch.arange(3.0), torch.tensor([[1], [2]]))
    td = TensorDict(a=torch.ones(2, 3), j=nested, e=torch.ones(2, 0), s="x", batch_size=[2], names=["t"])
    stack = tdview.lazy_stack([TensorDict(q=torch.ones(1), s={1}), TensorDict(q=torch.ones(2), s=b"2")])
    wide = TensorDict(a=torch.arange(6.0).view(2, 3), n={"b": torch.ones(2, 3)}, batch_size=[2, 3])
    return {
        "tensordict": td,
        "stack": stack,
        "stack of nested": tdview.lazy_stack([td, td.clone()], 1),
        "class": UnknownTensorClass._wrap(td.clone(), "<class 'x.Y'>"),
        "classes": tdview.lazy_stack([UnknownTensorClass._wrap(td.clone(), "<class 'x.Y'>") for _ in range(2)]),
        "sub": SubTensorDict(wide, (slice(None), 1)),
        "view": LazyView(wide.clone(), "permute", {"dims": [1, 0]}),
        "inside": TensorDict(t=td.clone(), l=stack, v=SubTensorDict(wide.clone(), 0), batch_size=[]),
        "value": tdview.NonTensorData("x"),
        "values": NonTensorStack("a", {1}),
    }


@pytest.mark.parametrize("name", _kinds())
def test_every_kind_is_mapped_in_place(tmp_path, name):
    td = _kinds()[name]
    assert td.memmap_(tmp_path / "s") is td
    assert td.is_memmap()
    assert td.is_locked
    assert td.saved_path == tmp_path / "s"
    assert list(differences(td, _kinds()[name])) == []
    assert list(differences(td, load_memmap(tmp_path / "s"))) == []
    td.memmap_(tmp_path / "s")
    td.unlock_()
    assert not td.is_memmap()


@pytest.mark.parametrize("name", _kinds())
def test_every_kind_lies_in_anonymous_memory(name):
    td = _kinds()[name]
    mapped = td.memmap()
    assert mapped.is_memmap()
    assert mapped.saved_path is None
    assert list(differences(mapped, _kinds()[name])) == []
    again = mapped.memmap()
    assert list(differences(again, td)) == []
    like = td.memmap_like()
    assert like.batch_size == td.batch_size


@pytest.mark.parametrize("name", _kinds())
def test_every_kind_is_refreshed_or_says_that_it_cannot(tmp_path, name):
    mapped = _kinds()[name].memmap(tmp_path / "s")
    try:
        mapped.memmap_refresh_()
    except DecodeError:
        assert name in ("sub", "view", "value", "values")
    else:
        assert mapped.is_locked
    assert list(differences(mapped, _kinds()[name])) == []


def test_tensorclass_details():
    class Base(tdview.TensorClass):
        a: torch.Tensor
        tags: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.a = self.a + 1

    class Child(Base):
        b: tuple = (1, 2)

    child = Child(torch.zeros(2), batch_size=[2], names=["t"])
    assert child.a.tolist() == [1, 1]
    assert child.tags == []
    assert child.b == (1, 2)
    assert [field.name for field in Child.fields()] == ["a", "tags", "b"]
    assert child.names == ["t"]
    child.names = ["u"]
    assert child.names == ["u"]
    child.set("a", torch.ones(2)).set("b", 3)
    assert child.get("b") == 3
    assert child.get("tags", 5) == []
    with pytest.raises(AttributeError):
        child.set("q", 1)
    assert child.to(torch.float64).a.dtype == torch.float64
    assert list(child.to_tensordict().keys()) == ["a", "tags", "b"]
    assert Child.from_dict({"a": torch.ones(1)}).a.item() == 1
    assert not child.is_empty()
    assert (child != child.clone()).any() is False
    child[0] = child[1].clone()
    td = TensorDict(c=child, batch_size=[2])
    td["c", "a"] = torch.full((2,), 7.0)
    assert child.a.tolist() == [7, 7]
    assert td["c"].update_(TensorDict(a=torch.zeros(2))) is child
    assert child.a.sum() == 0


def test_unknown_class_takes_any_field():
    thing = UnknownTensorClass._wrap(TensorDict(a=torch.ones(2), batch_size=[2]), "<class 'x.Y'>")
    thing.b = torch.zeros(2)
    thing["c"] = torch.ones(2)
    thing.set("d", torch.ones(2))
    assert thing._field_names() == ["a", "b", "c", "d"]
    thing[0] = thing[1].clone()
    assert UnknownTensorClass.from_tensordict(thing.to_tensordict()).d.sum() == 2


def test_views_of_all_kinds_are_read_and_written():
    td = TensorDict(a=torch.zeros(4, 2), s="x", l=["a", "b", "c", "d"], n={"b": torch.zeros(4)}, batch_size=[4])
    part = SubTensorDict(td, torch.tensor([3, 1]))
    part["l"] = ["z", "y"]
    part["new"] = {"deep": torch.ones(2)}
    assert td["l"] == ["a", "y", "c", "z"]
    assert td["new", "deep"].tolist() == [0, 1, 0, 1]
    assert part["l"] == ["z", "y"]
    assert part.unsqueeze(0).batch_size == (1, 2)
    assert part[0]["l"] == "z"
    assert part.clone(recurse=False).index[0].tolist() == [3, 1]
    del part["new"]
    assert "new" not in td
    uneven = tdview.lazy_stack([TensorDict(a=torch.zeros(2, i + 1), batch_size=[2]) for i in range(2)])
    view = LazyView(uneven, "permute", {"dims": [1, 0]})
    assert view.unsqueeze(0).batch_size == (1, 2, 2)
    assert [value.shape for value in (view[0, 0]["a"], view[0, 1]["a"])] == [(1,), (2,)]
    with pytest.raises(ValueError, match="permute"):
        LazyView(uneven, "permute", {"dims": [0, 0]})
    with pytest.raises(ValueError, match="expected a tensordict"):
        SubTensorDict(3, 0)

"""Leaves that are added to a memory-mapped tensordict: on disk and in memory at once, or not at all."""

from __future__ import annotations

import json

import pytest
import torch

import tdview
from tdview import AlreadyExistsError, LockedError, MemoryMappedTensor, NotSupportedError, TensorDict, load_memmap
from tdview.containers.views import SubTensorDict
from tdview.testing.same import differences


@pytest.fixture
def mapped(tmp_path):
    return TensorDict(a=torch.ones(3, 2), n={"b": torch.ones(3)}, batch_size=[3]).memmap(tmp_path / "s")


def _metas(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_new_leaf_is_zero_mapped_and_last_in_meta(mapped, tmp_path):
    leaf = mapped.make_memmap("new", [3, 5], dtype=torch.int16)
    assert isinstance(leaf, MemoryMappedTensor)
    assert leaf.shape == (3, 5)
    assert leaf.sum() == 0
    leaf.fill_(2)
    meta = json.loads((tmp_path / "s/meta.json").read_text())
    assert list(meta)[-2:] == ["_class", "new"]
    assert load_memmap(tmp_path / "s")["new"].sum() == 30
    assert mapped["new"] is leaf
    assert mapped.is_locked


def test_missing_levels_are_made(mapped, tmp_path):
    mapped.make_memmap(("x", "y", "z"), torch.tensor([3, 1]))
    mapped.make_memmap(("n", "c"), (3,), dtype=torch.bool)
    loaded = load_memmap(tmp_path / "s")
    assert loaded["x", "y", "z"].shape == (3, 1)
    assert loaded["n", "c"].dtype == torch.bool
    assert mapped["x"].is_memmap()
    assert mapped["x", "y"].saved_path == tmp_path / "s/x/y"
    assert list(differences(mapped, loaded, order=False)) == []


def test_leaf_of_a_tensor(mapped, tmp_path):
    tensor = torch.arange(6.0).view(2, 3).T
    assert torch.equal(mapped.make_memmap_from_tensor("t", tensor), tensor)
    assert mapped.make_memmap_from_tensor("z", tensor, copy_data=False).sum() == 0
    mapped.make_memmap_from_tensor("empty", torch.ones(3, 0))
    loaded = load_memmap(tmp_path / "s")
    assert torch.equal(loaded["t"], tensor)
    assert loaded["empty"].shape == (3, 0)
    (tmp_path / "s/lost.memmap").write_bytes(b"x")
    with pytest.raises(AlreadyExistsError):
        mapped.make_memmap_from_tensor("lost", torch.ones(3), existsok=False)
    assert mapped.make_memmap_from_tensor("lost", torch.ones(3)).sum() == 3


def test_leaf_of_a_storage(mapped, tmp_path):
    there = MemoryMappedTensor.from_tensor(torch.ones(3), filename=tmp_path / "s/q.memmap")
    assert mapped.make_memmap_from_storage("q", there.untyped_storage(), [3]).sum() == 3
    there.fill_(4)
    assert mapped["q"].sum() == 12
    plain = torch.arange(3, dtype=torch.int64).untyped_storage()
    mapped.make_memmap_from_storage("p", plain, [3], dtype=torch.int64)
    assert load_memmap(tmp_path / "s")["p"].tolist() == [0, 1, 2]
    other = MemoryMappedTensor.from_tensor(torch.ones(3), filename=tmp_path / "o.memmap")
    with pytest.raises(RuntimeError):
        mapped.make_memmap_from_storage("other", other.untyped_storage(), [3])
    assert "other" not in load_memmap(tmp_path / "s")


@pytest.mark.parametrize("key", ["a", "n", ("n", "b")])
def test_existing_entry_is_refused(mapped, tmp_path, key):
    before = _metas(tmp_path)
    with pytest.raises(AlreadyExistsError):
        mapped.make_memmap(key, [3])
    assert _metas(tmp_path) == before


@pytest.mark.parametrize("key", ["bad", ("n", "bad"), ("new", "bad")])
def test_wrong_batch_leaves_no_trace(mapped, tmp_path, key):
    before = _metas(tmp_path)
    with pytest.raises(RuntimeError):
        mapped.make_memmap(key, [2])
    assert _metas(tmp_path) == before
    assert key not in mapped


def test_only_a_mapped_tensordict_takes_leaves(mapped, tmp_path):
    for td in (TensorDict(batch_size=[3]), load_memmap(tmp_path / "s")):
        with pytest.raises(LockedError):
            td.make_memmap("x", [3])
    view = SubTensorDict(TensorDict(a=torch.ones(3), batch_size=[3]), slice(0, 2)).memmap(tmp_path / "v")
    with pytest.raises(NotSupportedError):
        view.make_memmap("x", [2])


def test_stacks_classes_and_anonymous_memory(tmp_path):
    stack = tdview.lazy_stack([TensorDict(a=torch.ones(2), batch_size=[2]) for _ in range(3)], 1).memmap(tmp_path / "s")
    stack.make_memmap_from_tensor("b", torch.arange(6).view(2, 3))
    assert load_memmap(tmp_path / "s")["b"].tolist() == [[0, 1, 2], [3, 4, 5]]

    class Thing(tdview.TensorClass):
        a: torch.Tensor
        b: torch.Tensor | None = None

    thing = Thing(a=torch.ones(2), batch_size=[2]).memmap(tmp_path / "t")
    thing.make_memmap("b", [2, 2])
    assert Thing.load_memmap(tmp_path / "t").b.shape == (2, 2)
    nowhere = TensorDict(a=torch.ones(2), batch_size=[2]).memmap()
    assert nowhere.make_memmap(("n", "b"), [2]).filename is None
    assert nowhere["n", "b"].sum() == 0

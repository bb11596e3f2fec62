"""tdview beside the real tensordict: tensorclasses, views, parameters, memmap_like, growing, archives of all kinds."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import tdview
from tdview.containers.views import LazyView, SubTensorDict
from tdview.testing.same import differences, file_differences

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensordict
    from tensordict.nn import TensorDictParams

pytestmark = pytest.mark.filterwarnings("ignore")


@tensordict.tensorclass
class Thing:
    x: torch.Tensor
    name: str = "n"
    count: int = 3
    table: dict | None = None
    inner: Thing | None = None


def _same_saves(mine, peer, folder: Path, **options):
    mine.memmap(folder / "mine", **options)
    peer.memmap(folder / "peers", **options)
    assert list(file_differences(folder / "mine", folder / "peers")) == []


def _trees():
    return (
        tdview.TensorDict(a=torch.arange(6.0).view(2, 3), n={"b": torch.ones(2)}, s="x", batch_size=[2]),
        tensordict.TensorDict(a=torch.arange(6.0).view(2, 3), n={"b": torch.ones(2)}, s="x", batch_size=[2]),
    )


def test_tensorclass_of_the_peer_is_saved_to_the_same_bytes(tmp_path):
    inner = Thing(x=torch.zeros(2, 3), batch_size=[2])
    peer = Thing(x=torch.ones(2), name="v", table={"a": 1}, inner=inner, batch_size=[2])
    _same_saves(tdview.from_tensordict(peer), peer, tmp_path)
    back = tensordict.load_memmap(tmp_path / "mine")
    assert type(back) is Thing
    assert back.inner.count == 3
    mine = tdview.load_memmap(tmp_path / "peers")
    assert mine.inner.name == "n"
    assert type(tdview.to_tensordict(mine)) is Thing
    assert (tdview.to_tensordict(mine) == peer).all()


def test_tensorclass_of_tdview_is_read_by_the_peer(tmp_path):
    class Mine(tdview.TensorClass):
        x: torch.Tensor
        note: str = "hi"

    Mine(x=torch.ones(3), batch_size=[3]).save(tmp_path / "s")
    inside = tensordict.load_memmap(tmp_path / "s/_tensordict")
    assert inside["x"].sum() == 3
    assert inside["note"] == "hi"


@pytest.mark.parametrize(
    "index", [0, slice(0, 1), (slice(None), slice(0, 2)), torch.tensor([1, 0]), torch.tensor([True, False])], ids=str
)
def test_sub_tensordict_is_written_to_the_same_bytes(tmp_path, index):
    mine = tdview.TensorDict(a=torch.arange(24.0).view(2, 3, 4), batch_size=[2, 3])
    peer = tensordict.TensorDict(a=torch.arange(24.0).view(2, 3, 4), batch_size=[2, 3])
    part, peers = SubTensorDict(mine, index), peer._get_sub_tensordict(index)
    _same_saves(part, peers, tmp_path)
    read = tdview.load_memmap(tmp_path / "peers")
    assert isinstance(read, SubTensorDict)
    assert torch.equal(read["a"], peers["a"])
    part.save(tmp_path / "mine.tdz")
    assert torch.equal(tensordict.load_memmap(tmp_path / "mine.tdz")["a"], peers["a"])


@pytest.mark.parametrize(
    ("op", "kwargs", "make"),
    [
        ("permute", {"dims": [1, 0]}, lambda td: td.permute(1, 0)),
        ("transpose", {"dim0": 0, "dim1": 1}, lambda td: td.transpose(0, 1)),
        ("view", {"size": [6]}, lambda td: td.view(6)),
        ("unsqueeze", {"dim": 0}, lambda td: td.unsqueeze(0)),
    ],
)
def test_lazy_view_is_written_to_the_same_bytes(tmp_path, op, kwargs, make):
    mine = LazyView(tdview.TensorDict(a=torch.arange(24.0).view(2, 3, 4), batch_size=[2, 3]), op, kwargs)
    with tensordict.set_lazy_legacy(True):
        peer = make(tensordict.TensorDict(a=torch.arange(24.0).view(2, 3, 4), batch_size=[2, 3]))
        _same_saves(mine, peer, tmp_path)
    read = tdview.load_memmap(tmp_path / "peers")
    assert isinstance(read, LazyView)
    assert list(differences(read, mine)) == []


def test_parameters_and_pytrees_are_saved_alike(tmp_path):
    params = TensorDictParams(tensordict.TensorDict(w=torch.ones(2), n=tensordict.TensorDict(b=torch.ones(1))))
    peer = tensordict.TensorDict(p=params)
    _same_saves(tdview.from_tensordict(peer), peer, tmp_path / "p")
    tree = tensordict.from_pytree({"a": [torch.ones(2), {"b": torch.ones(1)}], "c": (torch.zeros(1),)})
    _same_saves(tdview.from_tensordict(tree), tree, tmp_path / "t")


def test_memmap_like_is_the_same_and_sparse(tmp_path):
    mine, peer = _trees()
    mine.memmap_like(tmp_path / "mine")
    peer.memmap_like(tmp_path / "peers")
    assert list(file_differences(tmp_path / "mine", tmp_path / "peers")) == []


def test_new_leaves_are_written_alike(tmp_path):
    mine, peer = _trees()
    mine, peer = mine.memmap(tmp_path / "mine"), peer.memmap(tmp_path / "peers")
    for td in (mine, peer):
        td.make_memmap("z", torch.Size([2, 4]), dtype=torch.int16)
        td.make_memmap_from_tensor(("n", "t"), torch.arange(2.0))
        td.make_memmap(("new", "deep"), torch.Size([2]), dtype=torch.bool)
    assert list(file_differences(tmp_path / "mine", tmp_path / "peers")) == []


def test_changed_values_are_written_alike(tmp_path):
    mine, peer = _trees()
    mine, peer = mine.memmap(tmp_path / "mine"), peer.memmap(tmp_path / "peers")
    for td in (mine, peer):
        td.update_({"s": "changed"})
        td["a"].fill_(3)
    assert list(file_differences(tmp_path / "mine", tmp_path / "peers")) == []


@pytest.mark.parametrize("compression", [None, "deflate", "bzip2", "lzma"])
def test_archives_of_each_compression_are_read_by_the_peer(tmp_path, compression):
    mine, peer = _trees()
    mine.save(tmp_path / "mine.tdz", compression=compression)
    peer.save(tmp_path / "peers.tdz", compression=compression)
    assert list(differences(tensordict.load_memmap(tmp_path / "mine.tdz"), mine, order=False)) == []
    assert list(differences(tdview.load_memmap(tmp_path / "peers.tdz"), mine, order=False)) == []
    tdview.load_memmap(tmp_path / "mine.tdz", num_threads=2)


def test_objects_of_the_peer_are_accepted_where_a_tensordict_is(tmp_path):
    mine, peer = _trees()
    assert list(differences(tdview.TensorDict(peer), mine)) == []
    td = tdview.TensorDict(inner=peer, batch_size=[2])
    assert td["inner", "a"].shape == (2, 3)
    tdview.save(peer, tmp_path / "s")
    tdview.append_memmap(tmp_path / "s", peer)
    assert tensordict.load_memmap(tmp_path / "s").batch_size == (4,)
    with pytest.raises(ValueError, match="expected"):
        tdview.save({"a": 1}, tmp_path / "t")


def test_mapped_leaves_of_the_peer_need_copy_existing(tmp_path):
    _, peer = _trees()
    mapped = peer.memmap(tmp_path / "peers")
    with pytest.raises(RuntimeError, match="copy_existing"):
        tdview.save(mapped, tmp_path / "mine")
    tdview.save(mapped, tmp_path / "mine", copy_existing=True)
    assert list(file_differences(tmp_path / "mine", tmp_path / "peers")) == []

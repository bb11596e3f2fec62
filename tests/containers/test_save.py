"""Every parameter of memmap, memmap_, memmap_like and save; what they return, refuse and leave behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import zipfile
from pathlib import Path

import pytest
import torch

import tdview
from tdview import (
    AlreadyExistsError,
    ArgumentError,
    EncodeError,
    LockedError,
    MemoryMappedTensor,
    NonTensorData,
    NonTensorStack,
    NotSupportedError,
    TensorDict,
    load_memmap,
)
from tdview.containers.pending import nested_of
from tdview.containers.views import SubTensorDict
from tdview.testing.same import differences


def make(rows=3):
    return TensorDict(
        obs=torch.arange(4.0 * rows).view(rows, 4),
        next={"reward": torch.ones(rows, 1), "note": "n"},
        label="hi",
        batch_size=[rows],
    )


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# prefix and what comes back


def test_result_is_mapped_locked_and_knows_its_path(tmp_path):
    td = make()
    mapped = td.memmap(tmp_path / "s")
    assert mapped.is_memmap()
    assert mapped.is_locked
    assert mapped.saved_path == tmp_path / "s"
    assert mapped["next"].saved_path == tmp_path / "s/next"
    assert mapped.get("label").saved_path == tmp_path / "s/label"
    assert mapped.device == torch.device("cpu")
    assert isinstance(mapped["obs"], MemoryMappedTensor)
    assert mapped["obs"].filename == str(tmp_path / "s/obs.memmap")
    assert not td.is_memmap()
    assert not td.is_locked
    with pytest.raises(AttributeError):
        _ = td.saved_path
    with pytest.raises(LockedError):
        mapped["new"] = torch.ones(3)
    mapped.unlock_()
    assert not mapped.is_memmap()
    with pytest.raises(AttributeError):
        _ = mapped.saved_path


def test_rows_of_a_mapped_tensordict_are_mapped_views(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    assert mapped[0].is_memmap()
    assert mapped[0].is_locked
    assert isinstance(mapped[:2]["obs"], MemoryMappedTensor)
    mapped[0]["obs"].fill_(9)
    assert load_memmap(tmp_path / "s")["obs"][0].tolist() == [9.0] * 4
    assert not mapped.clone().is_locked
    assert not mapped.select("obs").is_memmap()
    assert type(mapped["obs"] + 1) is torch.Tensor


def test_no_prefix_gives_anonymous_shared_memory():
    td = make()
    mapped = td.memmap()
    assert mapped.is_memmap()
    assert mapped.saved_path is None
    assert mapped["obs"].filename is None
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: mapped["obs"].fill_(5))
    child.start()
    child.join()
    assert mapped["obs"].sum() == 60
    assert td["obs"].sum() == 66
    assert td.memmap_() is td
    assert td.is_memmap()
    assert td.saved_path is None


def test_no_prefix_of_a_mapped_tensordict_means_its_directory(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    inode = os.stat(tmp_path / "s/obs.memmap").st_ino
    mapped["obs"].zero_()
    again = mapped.memmap()
    assert again.saved_path == tmp_path / "s"
    assert os.stat(tmp_path / "s/obs.memmap").st_ino == inode
    assert load_memmap(tmp_path / "s").memmap().saved_path == tmp_path / "s"
    assert load_memmap(tmp_path / "s", mode="r").memmap().saved_path is None


def test_memmap_in_place_maps_the_same_objects(tmp_path):
    td = make()
    inner = td["next"]
    assert td.memmap_(tmp_path / "s.tdz") is td
    assert td["next"] is inner
    assert (tmp_path / "s.tdz").is_dir()
    assert inner.saved_path == tmp_path / "s.tdz/next"
    td["obs"].zero_()
    assert load_memmap(tmp_path / "s.tdz")["obs"].sum() == 0


def test_value_of_some_rows_does_not_replace_the_saved_one(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    mapped[0].update_({"label": "row"})
    assert load_memmap(tmp_path / "s")["label"] == "hi"
    mapped[0] = {"obs": 0.0, "next": {"reward": 0.0, "note": "n"}, "label": "row"}
    assert load_memmap(tmp_path / "s")["label"] == ["row", "hi", "hi"]


def test_writes_through_the_result_reach_the_files(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    mapped["obs"].fill_(1)
    mapped.set_(("next", "reward"), torch.zeros(3, 1))
    mapped[1] = mapped[0].clone()
    mapped.update_({"label": "new"})
    loaded = load_memmap(tmp_path / "s")
    assert loaded["obs"].sum() == 12
    assert loaded["next", "reward"].sum() == 0
    assert loaded["label"] == "new"
    mapped["label"] = {1, 2}
    assert names(tmp_path / "s/label") == ["meta.json", "other.pickle"]
    assert load_memmap(tmp_path / "s")["label"] == {1, 2}
    mapped.get("label").update_("text")
    assert names(tmp_path / "s/label") == ["meta.json"]


# copy_existing and existsok


def test_leaf_that_lies_elsewhere_needs_copy_existing(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    for value in (mapped, mapped[:2], load_memmap(tmp_path / "s"), TensorDict(a=mapped["obs"])):
        with pytest.raises(RuntimeError, match="copy_existing"):
            value.memmap(tmp_path / "t")
        assert not (tmp_path / "t").exists()
    copied = mapped.memmap(tmp_path / "t", copy_existing=True)
    assert copied["obs"].filename == str(tmp_path / "t/obs.memmap")
    assert list(differences(mapped, copied)) == []
    mapped.memmap(tmp_path / "s")
    with pytest.raises(AlreadyExistsError):
        mapped.memmap(tmp_path / "s", atomic=True)


def test_private_changes_are_saved_over_the_file_they_came_from(tmp_path):
    make().memmap(tmp_path / "s")
    private = load_memmap(tmp_path / "s", mode="r")
    private["obs"].fill_(4)
    assert load_memmap(tmp_path / "s")["obs"].sum() == 66
    private.memmap(tmp_path / "s")
    assert load_memmap(tmp_path / "s")["obs"].sum() == 48


@pytest.mark.parametrize("form", ["s", "s.tdz"])
def test_existing_save_is_kept_with_existsok_false(tmp_path, form):
    make().save(tmp_path / form)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(RuntimeError):
        make(2).memmap(tmp_path / form, existsok=False)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    (tmp_path / "empty").mkdir()
    make().memmap(tmp_path / "empty", existsok=False)


def test_saving_again_leaves_nothing_of_the_old_save(tmp_path):
    members = [TensorDict(a=torch.ones(2), b=torch.ones(2), batch_size=[2]) for _ in range(3)]
    tdview.lazy_stack(members).save(tmp_path / "s")
    tdview.lazy_stack(members[:1]).save(tmp_path / "s")
    assert load_memmap(tmp_path / "s").batch_size == (1, 2)
    TensorDict(a={1, 2}, long=torch.ones(9)).save(tmp_path / "s")
    assert names(tmp_path / "s") == ["a/meta.json", "a/other.pickle", "long.memmap", "meta.json"]
    TensorDict(a={"b": torch.ones(1)}, long=torch.ones(1)).save(tmp_path / "s")
    assert names(tmp_path / "s") == ["a/b.memmap", "a/meta.json", "long.memmap", "meta.json"]
    assert (tmp_path / "s/long.memmap").stat().st_size == 4
    thing = tdview.tensorclass(type("Thing", (), {"__annotations__": {"a": torch.Tensor}}))
    thing(a=torch.ones(1)).save(tmp_path / "s")
    make().save(tmp_path / "s")
    assert not (tmp_path / "s/_tensordict").exists()


# threads and futures


def test_threads_write_the_same_files(tmp_path):
    make().save(tmp_path / "one")
    make().save(tmp_path / "many", num_threads=4)
    for name in names(tmp_path / "one"):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert names(tmp_path / "one") == names(tmp_path / "many")


def test_return_early_gives_a_future(tmp_path):
    td = make()
    future = td.memmap(tmp_path / "s", num_threads=2, return_early=True)
    assert isinstance(future, tdview.TensorDictFuture)
    assert future.result(60).saved_path == tmp_path / "s"
    assert future.done()
    assert td.memmap(tmp_path / "t", num_threads=1, return_early=True).is_memmap()
    future = td.memmap_(tmp_path / "u", num_threads=2, return_early=True)
    assert future.result(60) is td
    like = td.memmap_like(tmp_path / "v", num_threads=2, return_early=True)
    assert like.result()["obs"].sum() == 0


def test_future_raises_what_the_write_raised(tmp_path):
    (tmp_path / "s").write_text("a file")
    with pytest.raises(NotADirectoryError):
        make().memmap(tmp_path / "s", num_threads=2, return_early=True).result(60)


# archives


@pytest.mark.parametrize("compression", [None, "stored", "deflate", "bzip2", "lzma", zipfile.ZIP_DEFLATED])
def test_archive_holds_the_same_and_comes_back_loaded(tmp_path, compression):
    td = make()
    back = td.memmap(tmp_path / "s.tdz", compression=compression)
    assert not back.is_locked
    assert not back.is_memmap()
    assert type(back["obs"]) is torch.Tensor
    assert list(differences(td, back)) == []
    back["obs"].fill_(9)
    assert list(differences(td, load_memmap(tmp_path / "s.tdz"))) == []


def test_archive_is_chosen_by_argument_or_lower_case_suffix(tmp_path):
    make().save(tmp_path / "a", archive=True)
    make().save(tmp_path / "B.TDZ")
    make().save(tmp_path / "c.tdz", archive=False)
    assert [(tmp_path / name).is_file() for name in ("a", "B.TDZ", "c.tdz")] == [True, False, False]


def test_archive_of_a_mapped_save_holds_no_stale_files(tmp_path):
    make().memmap(tmp_path / "s")
    (tmp_path / "s/secret.memmap").write_bytes(b"x")
    load_memmap(tmp_path / "s").save(tmp_path / "s.tdz")
    with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
        assert "secret.memmap" not in archive.namelist()


def test_archive_holds_views_dense(tmp_path):
    part = SubTensorDict(make(), slice(1, 3))
    part.save(tmp_path / "s")
    part.save(tmp_path / "s.tdz")
    assert isinstance(load_memmap(tmp_path / "s"), SubTensorDict)
    dense = load_memmap(tmp_path / "s.tdz")
    assert isinstance(dense, TensorDict)
    assert list(differences(load_memmap(tmp_path / "s"), dense)) == []


# wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "builtin"),
    [
        ({"archive": True}, ArgumentError, ValueError),
        ({"atomic": True}, ArgumentError, ValueError),
        ({"prefix": "d", "compression": "stored"}, ArgumentError, ValueError),
        ({"prefix": "d.tdz", "compression": "zip"}, ArgumentError, ValueError),
        ({"prefix": "d.tdz", "return_early": True}, NotSupportedError, NotImplementedError),
        ({"prefix": "d", "return_early": True, "atomic": True}, NotSupportedError, NotImplementedError),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path, monkeypatch, options, error, builtin):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as found:
        make().memmap(num_threads=2, **options)
    assert isinstance(found.value, builtin)
    assert names(tmp_path) == []


def test_atomic_replaces_the_directory_as_a_whole(tmp_path):
    make().save(tmp_path / "s", atomic=True)
    (tmp_path / "s/notes.txt").write_text("x")
    make(2).save(tmp_path / "s", atomic=True)
    assert load_memmap(tmp_path / "s").batch_size == (2,)
    assert not (tmp_path / "s/notes.txt").exists()
    assert sorted(os.listdir(tmp_path)) == ["s"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x").write_text("x")
    with pytest.raises(RuntimeError):
        make().save(tmp_path / "other", atomic=True)
    with pytest.raises(RuntimeError):
        make().memmap(tmp_path / "s", atomic=True, existsok=False)
    with pytest.raises(NotADirectoryError):
        make().save(tmp_path / "s/obs.memmap", atomic=True)


# what cannot be saved


def _jagged():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make_leaf", "error"),
    [
        (_jagged, NotImplementedError),
        (lambda: torch.ones(2, 2).to_sparse(), RuntimeError),
        (lambda: torch.ones(2, device="meta"), NotImplementedError),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), NotImplementedError),
    ],
    ids=["jagged", "sparse", "meta", "quantized"],
)
@pytest.mark.parametrize("form", ["s", "s.tdz"])
def test_leaf_that_the_format_cannot_hold_is_refused_without_a_trace(tmp_path, make_leaf, error, form):
    td = TensorDict(a=torch.ones(2), b=make_leaf())
    with pytest.raises(error):
        td.save(tmp_path / form)
    assert list(tmp_path.iterdir()) == []


def test_value_that_cannot_be_pickled_is_refused_without_a_trace(tmp_path):
    td = TensorDict(a=torch.ones(2))
    td.set_non_tensor("f", lambda: None)
    with pytest.raises(EncodeError):
        td.save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("robust", [True, False])
def test_colliding_file_names_are_refused_before_the_first_write(tmp_path, robust):
    nested = nested_of(torch.ones(1), torch.tensor([[1]]))
    trees = [TensorDict({"a": nested, "a.shape": torch.ones(1)}), TensorDict({"x": torch.ones(1), "x.memmap": {}})]
    trees.append(TensorDict({"meta.json": {}}))
    for td in trees:
        with pytest.raises(EncodeError) as found:
            td.memmap(tmp_path / "s", robust_key=robust)
        assert found.value.problems[0].code == "name_collision"
        assert not (tmp_path / "s").exists()


def test_reserved_key_is_said_to_be_lost(tmp_path):
    with pytest.warns(UserWarning, match="reserved"):
        TensorDict(shape=torch.ones(1), ok=torch.ones(1)).save(tmp_path / "s")
    assert list(load_memmap(tmp_path / "s").keys()) == ["ok"]


def test_tensordict_that_contains_itself_is_refused(tmp_path):
    td = TensorDict(a=torch.ones(1))
    td["self"] = td
    with pytest.raises(EncodeError):
        td.save(tmp_path / "s")


def test_raw_keys_are_file_names_and_stay_inside(tmp_path):
    td = TensorDict({"a b": torch.ones(1), "n x": {"y": torch.ones(1)}})
    mapped = td.memmap(tmp_path / "s", robust_key=False)
    assert names(tmp_path / "s") == ["a b.memmap", "meta.json", "n x/meta.json", "n x/y.memmap"]
    assert mapped["n x"].saved_path == tmp_path / "s/n x"
    assert list(differences(td, load_memmap(tmp_path / "s"))) == []
    assert list(differences(td, load_memmap(tmp_path / "s", robust_key=False))) == []
    for key in ("../out", "a/b", "..", ""):
        with pytest.raises(EncodeError):
            TensorDict({key: {"x": torch.ones(1)}}).memmap(tmp_path / "t", robust_key=False)
    assert sorted(os.listdir(tmp_path)) == ["s"]


# values of leaves


def test_transposed_nested_tensor_keeps_its_values(tmp_path):
    nested = torch._nested_view_from_buffer(
        torch.arange(6.0), torch.tensor([[3, 2]]), torch.tensor([[1, 3]]), torch.tensor([0])
    )
    TensorDict(a=nested).save(tmp_path / "s")
    assert load_memmap(tmp_path / "s")["a"].unbind(0)[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_nested_tensors_without_elements_come_back(tmp_path):
    empty = nested_of(torch.empty(0), torch.zeros(2, 2, dtype=torch.int64))
    none = nested_of(torch.empty(0), torch.zeros(0, 0, dtype=torch.int64))
    TensorDict(a=empty, b=none).save(tmp_path / "s")
    loaded = load_memmap(tmp_path / "s")
    assert [part.shape for part in loaded["a"].unbind(0)] == [(0, 0), (0, 0)]
    assert loaded["b"].size(0) == 0


def test_strides_conjugates_gradients_and_expansions_are_resolved(tmp_path):
    values = torch.randn(3, 4, dtype=torch.complex64)
    td = TensorDict(
        t=values.T, conj=values.conj(), neg=values.conj().imag, grad=torch.ones(2, requires_grad=True),
        wide=torch.ones(1).expand(5), param=torch.nn.Parameter(torch.ones(2)), rows=torch.arange(12).view(3, 4)[::2],
    )  # fmt: skip
    td.save(tmp_path / "s")
    loaded = load_memmap(tmp_path / "s")
    for key in td.keys():  # noqa: SIM118
        assert torch.equal(loaded[key], td[key].detach().resolve_conj().resolve_neg())
    assert not loaded["grad"].requires_grad


def test_large_leaf_that_is_not_contiguous_is_written_in_blocks(tmp_path):
    leaf = torch.arange(6_000_000, dtype=torch.int64).view(1000, 6000).T
    TensorDict(a=leaf).save(tmp_path / "s")
    assert torch.equal(load_memmap(tmp_path / "s")["a"], leaf)


# memmap_like


@pytest.mark.parametrize("form", ["s", "s.tdz"])
def test_memmap_like_gives_zeros_of_the_same_structure(tmp_path, form):
    make().save(tmp_path / form)
    like = make().memmap_like(tmp_path / form)
    assert like["obs"].sum() == 0
    assert like["label"] == "hi"
    assert like.is_locked is (form == "s")
    like["obs"].fill_(3)
    assert load_memmap(tmp_path / form)["obs"].sum() == 36
    with pytest.raises(RuntimeError):
        make().memmap_like(tmp_path / form, existsok=False)


def test_memmap_like_writes_sparse_files(tmp_path):
    TensorDict(a=torch.zeros((), dtype=torch.uint8).expand(1 << 26)).memmap_like(tmp_path / "s")
    found = os.stat(tmp_path / "s/a.memmap")
    assert found.st_size == 1 << 26
    assert found.st_blocks * 512 < 1 << 20
    assert make().memmap_like()["obs"].sum() == 0


# share_non_tensor


def test_shared_values_are_seen_by_other_processes(tmp_path):
    td = make()
    td["tags"] = ["a", "b", "c"]
    mapped = td.memmap(tmp_path / "s", share_non_tensor=True)

    def change():
        mapped.update_({"label": "from the child"})
        mapped.get("tags")[1] = "z"

    child = multiprocessing.get_context("fork").Process(target=change)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert mapped["label"] == "from the child"
    assert mapped["tags"] == ["a", "z", "c"]


# non-tensor files


def test_values_are_json_where_json_can_hold_them(tmp_path):
    td = TensorDict(s={1, 2}, text="x", t=("a", 1), nan=NonTensorData(float("nan")))
    td["kind"] = NonTensorData(dict)
    td["stack"] = NonTensorStack("a", b"x")
    td.save(tmp_path / "s")
    files = names(tmp_path / "s")
    assert [name for name in files if not name.endswith("meta.json")] == [
        "kind/json_types.json", "kind/other.pickle", "s/other.pickle", "stack/pickle.pkl",
    ]  # fmt: skip
    assert json.loads((tmp_path / "s/kind/json_types.json").read_text())["types"] == {"data": "dict"}
    loaded = load_memmap(tmp_path / "s")
    assert loaded["s"] == {1, 2}
    assert loaded["t"] == ["a", 1]
    assert loaded["kind"] is dict
    assert loaded["stack"] == ["a", b"x"]
    assert repr(loaded["nan"]) == "nan"


def test_int_that_python_refuses_to_print_is_pickled(tmp_path):
    TensorDict(n=NonTensorData(10**5000)).save(tmp_path / "s")
    assert load_memmap(tmp_path / "s", allow_pickle=True)["n"] == 10**5000

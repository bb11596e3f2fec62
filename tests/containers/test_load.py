"""Every parameter of load_memmap and its kin: what they give, where writes go, what they refuse."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

import tdview
from tdview import (
    DecodeError,
    LockedError,
    MemoryMappedTensor,
    PickleRefusedError,
    ReadOnlyError,
    TensorDict,
    load_memmap,
)
from tdview.containers.tensorclass import UnknownTensorClass
from tdview.testing.corpus import foreign_zip
from tdview.testing.same import differences


def make():
    return TensorDict(
        obs=torch.arange(12.0).view(3, 4),
        next={"reward": torch.ones(3, 1), "deep": {"x": torch.zeros(3)}},
        label="hi",
        batch_size=[3],
    )


@pytest.fixture
def saved(tmp_path):
    make().save(tmp_path / "s")
    make().save(tmp_path / "s.tdz")
    return tmp_path


def state(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_result_is_unlocked_and_does_not_count_as_mapped(saved):
    for form in ("s", "s.tdz"):
        td = load_memmap(saved / form)
        assert not td.is_locked
        assert not td.is_memmap()
        assert td.device == torch.device("cpu")
        with pytest.raises(AttributeError):
            _ = td.saved_path
        td["new"] = torch.ones(3)
        del td["obs"]
    assert list(differences(make(), tdview.load(saved / "s"))) == []
    assert list(differences(make(), TensorDict.load(saved / "s"))) == []


def test_loading_opens_no_payload(saved, monkeypatch):
    opened = []
    real = torch.UntypedStorage.from_file
    monkeypatch.setattr(torch.UntypedStorage, "from_file", lambda *a, **k: opened.append(a) or real(*a, **k))
    td = load_memmap(saved / "s")
    assert list(td.keys(True, True)) == ["obs", ("next", "reward"), ("next", "deep", "x")]
    assert "float32" in repr(td)
    assert opened == []
    _ = td["obs"]
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("form", "mode", "reaches"),
    [("s", None, True), ("s", "r", False), ("s", "r+", True), ("s.tdz", None, False), ("s.tdz", "r", False),
     ("s.tdz", "r+", True)],
)  # fmt: skip
def test_in_place_writes_go_where_the_mode_says(saved, form, mode, reaches):
    td = load_memmap(saved / form, mode=mode)
    td["obs"].fill_(5)
    td["next", "deep", "x"] += 1
    assert td["obs"].sum() == 60
    again = load_memmap(saved / form, mode="r")
    assert (again["obs"].sum() == 60) == reaches
    assert (again["next", "deep", "x"].sum() == 3) == reaches


def test_structure_changes_never_reach_the_save(saved):
    before = state(saved)
    for form in ("s", "s.tdz"):
        td = load_memmap(saved / form)
        td["obs"] = torch.zeros(3, 4)
        td["label"] = "other"
        del td["next"]
    assert state(saved) == before


def test_unwritable_file_and_mode(saved, monkeypatch):
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **k: False if mode & os.W_OK else real(path, mode, **k))
    td = load_memmap(saved / "s")
    td["obs"].fill_(1)
    assert load_memmap(saved / "s", mode="r")["obs"].sum() == 66
    for form in ("s", "s.tdz"):
        with pytest.raises(PermissionError) as found:
            load_memmap(saved / form, mode="r+")
        assert isinstance(found.value, ReadOnlyError)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_foreign_zip_is_read_and_refused_for_writing_where_it_cannot_be(saved, compression):
    archive = foreign_zip(saved / "s", saved / "foreign.zip", compression=compression)
    for threads in (0, 4):
        td = load_memmap(archive, num_threads=threads)
        assert list(differences(make(), td, order=False)) == []
        td["obs"].fill_(1)
    assert load_memmap(archive)["obs"].sum() == 66
    if compression != zipfile.ZIP_STORED:
        with pytest.raises(RuntimeError, match="compressed"):
            load_memmap(archive, mode="r+")


def test_unaligned_entry_is_copied_and_cannot_be_written(tmp_path):
    make().save(tmp_path / "s")
    with zipfile.ZipFile(tmp_path / "u.zip", "w") as archive:
        for path in sorted((tmp_path / "s").rglob("*")):
            if path.is_file():
                name = path.relative_to(tmp_path / "s").as_posix()
                archive.write(path, name)
                archive.writestr(f"pad{name.replace('/', '')}", "x")
    aligned = {name: load_memmap(tmp_path / "u.zip")[name].data_ptr() % 4 for name in ("obs",)}
    assert aligned == {"obs": 0}
    td = load_memmap(tmp_path / "u.zip")
    assert list(differences(make(), td, order=False)) == []
    with pytest.raises(RuntimeError, match="aligned"):
        load_memmap(tmp_path / "u.zip", mode="r+")


def test_device(saved):
    assert isinstance(load_memmap(saved / "s", device="cpu")["obs"], MemoryMappedTensor)
    for form in ("s", "s.tdz"):
        meta = load_memmap(saved / form, "meta")
        assert meta["obs"].device.type == "meta"
        assert meta["next", "reward"].shape == (3, 1)
        assert meta.device == torch.device("meta")
        assert meta["label"] == "hi"
    with pytest.raises(RuntimeError):
        load_memmap(saved / "s", device="nowhere")


@pytest.mark.parametrize(
    ("subpath", "keys"),
    [("", ["obs", "next", "label"]), ("next", ["reward", "deep"]), ("next/deep", ["x"]), ("/next//deep/", ["x"]),
     (("next", "deep"), ["x"]), (("next", ("deep",)), ["x"])],
)  # fmt: skip
def test_subpath_loads_a_part(saved, subpath, keys):
    for form in ("s", "s.tdz"):
        assert list(load_memmap(saved / form, subpath=subpath).keys()) == keys


@pytest.mark.parametrize("subpath", ["nothing", "obs", "next/reward", (), ("next", 1), 3, ["next"], "../s"])
def test_wrong_subpath_is_a_value_error(saved, subpath):
    with pytest.raises(ValueError, match="subpath"):
        load_memmap(saved / "s", subpath=subpath)


def test_subpath_through_stack_class_and_value(tmp_path):
    @tdview.tensorclass
    class Thing:
        a: torch.Tensor

    stack = tdview.lazy_stack([TensorDict(t=Thing(a=torch.full((1,), float(i))), s="v") for i in range(2)])
    stack.save(tmp_path / "s")
    assert load_memmap(tmp_path / "s", subpath="1/t").a.item() == 1
    assert load_memmap(tmp_path / "s", subpath="0/s").data == "v"


def test_damage_outside_the_subpath_does_not_matter(saved):
    (saved / "s/obs.memmap").unlink()
    assert load_memmap(saved / "s", subpath="next")["reward"].sum() == 3


def test_out_takes_the_entries_and_keeps_its_objects(saved):
    out = TensorDict(obs=torch.zeros(3), stale=torch.zeros(3), next={"reward": torch.zeros(3)}, batch_size=[3])
    inner = out["next"]
    assert load_memmap(saved / "s", out=out) is out
    assert out["next"] is inner
    assert "stale" not in out
    assert list(differences(make(), out)) == []
    td = TensorDict(batch_size=[3])
    assert td.load_memmap_(saved / "s.tdz") is td
    assert td["label"] == "hi"


def test_out_that_does_not_fit_stays_as_it_is(saved):
    stack = tdview.lazy_stack([TensorDict(batch_size=[]) for _ in range(3)])
    for out, error in (
        (TensorDict(obs=torch.zeros(5), batch_size=[5]), ValueError),
        (TensorDict(batch_size=[3]).lock_(), LockedError),
        (stack, ValueError),
        (3, ValueError),
        (TensorDict(batch_size=[3], device="meta"), ValueError),
    ):
        with pytest.raises(error):
            load_memmap(saved / "s", out=out, device="cpu")
    (saved / "s/obs.memmap").unlink()
    out = TensorDict(obs=torch.ones(3), batch_size=[3])
    with pytest.raises(DecodeError):
        load_memmap(saved / "s", out=out)
    assert out["obs"].sum() == 3


def test_out_of_stacks_and_classes(tmp_path):
    members = [TensorDict(a=torch.full((2,), float(i)), batch_size=[2]) for i in range(3)]
    tdview.lazy_stack(members).save(tmp_path / "s")
    out = tdview.lazy_stack([TensorDict(batch_size=[2]) for _ in range(3)])
    first = out.tensordicts[0]
    load_memmap(tmp_path / "s", out=out)
    assert out.tensordicts[0] is first
    assert first["a"].sum() == 0
    with pytest.raises(ValueError, match="batch size"):
        load_memmap(tmp_path / "s", out=tdview.lazy_stack([TensorDict(batch_size=[2])]))
    UnknownTensorClass._wrap(make(), "<class 'x.Y'>").save(tmp_path / "c")
    thing = UnknownTensorClass._wrap(TensorDict(batch_size=[3]), "<class 'x.Y'>")
    assert thing.load_memmap_(tmp_path / "c").label == "hi"


@pytest.mark.parametrize("mode", ["w", "a", "", 1])
def test_wrong_mode_is_refused_before_the_path_is_looked_at(mode):
    with pytest.raises(ValueError, match="mode"):
        load_memmap("/nowhere", mode=mode)


def test_missing_save(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_memmap(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        load_memmap(tmp_path / "empty")
    (tmp_path / "x.tdz").write_text("no zip")
    with pytest.raises(DecodeError):
        load_memmap(tmp_path / "x.tdz")
    make().save(tmp_path / "several/a")
    make().save(tmp_path / "several/b")
    with pytest.raises(DecodeError, match="below it"):
        load_memmap(tmp_path / "several")
    assert load_memmap(tmp_path / "several", subpath="b").batch_size == (3,)


# pickles


class Gadget:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def _with_pickle(folder, content, name="other.pickle"):
    TensorDict(v="x").save(folder)
    meta = json.loads((folder / "v/meta.json").read_text())
    del meta["data"]
    (folder / "v/meta.json").write_text(json.dumps(meta))
    (folder / "v" / name).write_bytes(content)


@pytest.mark.parametrize("allow", [False, None])
def test_pickle_is_never_executed_unless_allowed(tmp_path, allow):
    mark = tmp_path / "ran"
    _with_pickle(tmp_path / "s", pickle.dumps({"data": Gadget(mark)}))
    with pytest.raises(PickleRefusedError) as found:
        load_memmap(tmp_path / "s", allow_pickle=allow)
    assert isinstance(found.value, RuntimeError)
    with pytest.raises(PickleRefusedError):
        TensorDict().load_memmap_(tmp_path / "s", allow_pickle=allow)
    assert not mark.exists()
    with pytest.raises(TypeError):
        load_memmap(tmp_path / "s", allow_pickle=1)
    load_memmap(tmp_path / "s", allow_pickle=True)
    assert mark.exists()


class Custom:
    def __eq__(self, other):
        return isinstance(other, Custom)

    __hash__ = None


def test_allowed_pickle_gives_any_class(tmp_path):
    TensorDict(a=Custom(), b=TensorDict(c=Custom()), batch_size=[]).save(tmp_path / "s")
    with pytest.raises(PickleRefusedError):
        load_memmap(tmp_path / "s")
    td = load_memmap(tmp_path / "s", allow_pickle=True)
    assert td["a"] == Custom()
    assert td["b", "c"] == Custom()


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"garbage", pickle.dumps([1]), pickle.dumps({"other": 1})])
def test_broken_pickle_is_a_decode_error(tmp_path, content):
    _with_pickle(tmp_path / "s", content)
    with pytest.raises(DecodeError):
        load_memmap(tmp_path / "s")


def test_pickle_that_raises_when_executed_is_a_decode_error(tmp_path):
    _with_pickle(tmp_path / "s", b"cos\nnothing_of_that_name\n.")
    with pytest.raises(DecodeError):
        load_memmap(tmp_path / "s", allow_pickle=True)


# classes


def test_unknown_class_is_readable_and_saved_again_under_its_name(tmp_path):
    UnknownTensorClass._wrap(make(), "<class '__main__.Lost'>").save(tmp_path / "s")
    thing = load_memmap(tmp_path / "s")
    assert isinstance(thing, UnknownTensorClass)
    assert thing.label == "hi"
    assert thing.obs.shape == (3, 4)
    assert thing[0].next["reward"].shape == (1,)
    assert thing["next", "reward"].shape == (3, 1)
    assert "label" in thing
    assert repr(thing).startswith("Lost(batch_size=[3]")
    TensorDict(t=thing, batch_size=[3]).save(tmp_path / "t", copy_existing=True)
    assert json.loads((tmp_path / "t/meta.json").read_text())["t"] == {"type": "Lost"}
    assert json.loads((tmp_path / "t/t/meta.json").read_text()) == {"_type": "<class '__main__.Lost'>"}
    with pytest.raises(AttributeError):
        _ = thing.nothing


def test_class_of_the_name_is_taken_for_one_saved_from_main(tmp_path):
    UnknownTensorClass._wrap(TensorDict(a=torch.ones(2)), "<class '__main__.Thing'>").save(tmp_path / "s")

    class Thing(tdview.TensorClass):
        a: torch.Tensor

    assert isinstance(Thing.load_memmap(tmp_path / "s"), Thing)
    assert isinstance(load_memmap(tmp_path / "s"), UnknownTensorClass)
    thing = Thing.load_memmap(tmp_path / "s")
    thing.memmap(tmp_path / "t", copy_existing=True)
    assert json.loads((tmp_path / "t/meta.json").read_text()) == {"_type": "<class '__main__.Thing'>"}


def test_registered_class_is_used(tmp_path):
    class Known(tdview.TensorClass):
        a: torch.Tensor
        b: str = "x"

    Known(a=torch.ones(2), batch_size=[2]).save(tmp_path / "s")
    loaded = load_memmap(tmp_path / "s")
    assert isinstance(loaded, Known)
    assert loaded.b == "x"


def test_fields_of_old_tensorclass_saves_are_found(tmp_path):
    UnknownTensorClass._wrap(TensorDict(a=torch.ones(2)), "<class 'x.Old'>").save(tmp_path / "s")
    meta = {"_type": "<class 'x.Old'>", "label": "from meta"}
    (tmp_path / "s/meta.json").write_text(json.dumps(meta))
    (tmp_path / "s/other.pickle").write_bytes(pickle.dumps({"tags": {1, 2}}))
    loaded = load_memmap(tmp_path / "s")
    assert loaded.label == "from meta"
    assert loaded.tags == {1, 2}


def test_subclass_of_tensordict_keeps_its_name(tmp_path):
    make().save(tmp_path / "s")
    path = tmp_path / "s/next/meta.json"
    meta = json.loads(path.read_text()) | {"_type": "<class 'lost.Sub'>", "_class": "lost:Sub"}
    path.write_text(json.dumps(meta))
    top = json.loads((tmp_path / "s/meta.json").read_text())
    top["next"] = {"type": "Sub"}
    (tmp_path / "s/meta.json").write_text(json.dumps(top))
    load_memmap(tmp_path / "s").memmap(tmp_path / "t", copy_existing=True)
    assert json.loads((tmp_path / "t/next/meta.json").read_text()) == meta
    assert json.loads((tmp_path / "t/meta.json").read_text()) == top


# refresh


def test_refresh_sees_rows_entries_and_values_of_others(tmp_path):
    mapped = make().memmap(tmp_path / "s")
    inner = mapped["next"]
    tdview.append_memmap(tmp_path / "s", make()[:2])
    before = state(tmp_path)
    assert mapped.memmap_refresh_() is mapped
    assert state(tmp_path) == before
    assert mapped.batch_size == (5,)
    assert mapped["next"] is inner
    assert inner["reward"].shape == (5, 1)
    assert mapped.is_memmap()
    assert mapped.is_locked
    for td in (make(), load_memmap(tmp_path / "s"), make().memmap()):
        with pytest.raises(RuntimeError):
            td.memmap_refresh_()


# names of files


def test_raw_file_names_are_found(saved):
    td = TensorDict({"a b": torch.ones(2), "n x": {"cd:e": torch.ones(2)}})
    td.save(saved / "raw", robust_key=False)
    assert list(differences(td, load_memmap(saved / "raw"))) == []
    os.rename(saved / "raw/a b.memmap", saved / "raw/a%20b.memmap")
    for robust in (True, False, None):
        assert list(differences(td, load_memmap(saved / "raw", robust_key=robust))) == []


def test_encoded_name_wins_and_raw_name_wins_with_robust_key_false(tmp_path):
    TensorDict({"a b": torch.ones(2)}).save(tmp_path / "s")
    (tmp_path / "s/a b.memmap").write_bytes(b"\0" * 8)
    assert load_memmap(tmp_path / "s")["a b"].sum() == 2
    assert load_memmap(tmp_path / "s", robust_key=False)["a b"].sum() == 0


def test_file_of_another_key_is_not_taken_for_a_raw_name(tmp_path):
    TensorDict({"": torch.ones(2), "%": torch.zeros(2)}).save(tmp_path / "s")
    assert load_memmap(tmp_path / "s")["%"].sum() == 0
    (tmp_path / "s/%25.memmap").unlink()
    with pytest.raises(DecodeError):
        load_memmap(tmp_path / "s")


def test_key_never_leaves_the_save(tmp_path):
    TensorDict(x=torch.ones(2)).save(tmp_path / "s")
    (tmp_path / "out.memmap").write_bytes(b"\0" * 8)
    meta = json.loads((tmp_path / "s/meta.json").read_text())
    meta["../out"] = meta.pop("x")
    (tmp_path / "s/meta.json").write_text(json.dumps(meta))
    for robust in (True, False):
        with pytest.raises(DecodeError):
            load_memmap(tmp_path / "s", robust_key=robust)


def test_leaf_of_a_save_that_was_replaced_is_not_mixed_with_the_new_one(saved):
    td = load_memmap(saved / "s")
    make().apply(lambda leaf: leaf + 1).save(saved / "s")
    with pytest.raises(DecodeError, match="replaced"):
        td["obs"]
    assert load_memmap(saved / "s")["obs"].sum() == 78


@pytest.mark.parametrize("options", [{"atomic": True, "copy_existing": True}, {}], ids=str)
@pytest.mark.parametrize("mode", [None, "r"])
def test_loaded_tensordict_can_be_saved_over_itself_and_used_on(saved, options, mode):
    td = load_memmap(saved / "s", mode=mode)
    td["new"] = torch.ones(3)
    td.save(saved / "s", **options)
    assert td["obs"].sum() == 66
    assert td["next", "reward"].sum() == 3
    assert list(load_memmap(saved / "s").keys()) == ["obs", "next", "label", "new"]


@pytest.mark.parametrize("form", ["s", "s.tdz"])
def test_shallow_copies_share_leaves_that_are_not_mapped_yet(saved, form):
    td = load_memmap(saved / form, mode="r")
    part = td.select("obs")
    other = td.clone(recurse=False)
    other["obs"].fill_(2)
    assert td["obs"].sum() == part["obs"].sum() == 24
    td["next", "reward"].zero_()
    assert other["next", "reward"].sum() == 0


def test_loaded_tensordicts_can_be_pickled_before_they_are_read(saved):
    for form in ("s", "s.tdz"):
        assert list(differences(make(), pickle.loads(pickle.dumps(load_memmap(saved / form))))) == []
        assert list(differences(make(), copy.deepcopy(load_memmap(saved / form)))) == []


def test_relative_path_means_the_directory_of_the_call(saved, monkeypatch):
    monkeypatch.chdir(saved)
    loaded, mapped, archive = load_memmap("s"), make().memmap("t"), load_memmap("s.tdz")
    (saved / "elsewhere").mkdir()
    monkeypatch.chdir(saved / "elsewhere")
    assert loaded["obs"].filename == str(saved / "s/obs.memmap")
    assert mapped["obs"].sum() == archive["obs"].sum() == 66
    mapped.update_({"label": "new"})
    assert mapped.saved_path == saved / "t"
    assert load_memmap(saved / "t")["label"] == "new"
    assert list((saved / "elsewhere").iterdir()) == []


def test_mapping_survives_that_the_save_is_replaced_or_removed(saved):
    td = load_memmap(saved / "s")
    obs = td["obs"]
    TensorDict(obs=torch.zeros(1), batch_size=[1]).save(saved / "s")
    assert obs.sum() == 66
    with pytest.raises(DecodeError):
        td["next", "reward"]
    shutil.rmtree(saved / "s")
    assert obs.sum() == 66

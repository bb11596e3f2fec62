"""A damaged save raises a tdview error when it is loaded, names the entry, and is not changed by that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tdview
from tdview import DecodeError, TdviewError, TensorDict, load_memmap
from tdview.containers.pending import nested_of
from tdview.containers.tensorclass import UnknownTensorClass
from tdview.containers.views import LazyView, SubTensorDict


def make() -> TensorDict:
    td = TensorDict(
        obs=torch.ones(3, 4),
        next={"reward": torch.ones(3, 1)},
        nested=nested_of(torch.arange(6.0), torch.tensor([[1], [2], [3]])),
        label="hi",
        tags=["a", "b", "c"],
        thing=UnknownTensorClass._wrap(TensorDict(a=torch.ones(3), batch_size=[3]), "<class 'lost.Thing'>"),
        batch_size=[3],
    )
    td["stack"] = tdview.lazy_stack([TensorDict(q=torch.ones(i + 1)) for i in range(3)])
    td["sub"] = SubTensorDict(TensorDict(a=torch.ones(5), batch_size=[5]), slice(0, 3))
    td["view"] = LazyView(TensorDict(a=torch.ones(1, 3), batch_size=[1, 3]), "squeeze", {"dim": 0})
    return td


def edit(root: Path, level: str, change) -> None:
    path = root / level / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))


def entry(key, **values):
    return lambda root: edit(root, ".", lambda meta: meta[key].update(values))


def level(path, **values):
    return lambda root: edit(root, path, lambda meta: meta.update(values))


def without(path, *keys):
    return lambda root: edit(root, path, lambda meta: [meta.pop(key) for key in keys])


def cut(name, by=1):
    def damage(root):
        path = root / name
        path.write_bytes(path.read_bytes()[:-by])

    return damage


def remove(name):
    return lambda root: (root / name).unlink() if (root / name).is_file() else shutil.rmtree(root / name)


def text(name, content):
    return lambda root: (root / name).write_text(content)


DAMAGE = {
    "short leaf": (cut("obs.memmap"), "file_size"),
    "missing leaf": (remove("next/reward.memmap"), "missing_file"),
    "short nested tensor": (cut("nested.memmap"), "file_size"),
    "missing sizes": (remove("nested.shape.memmap"), "missing_file"),
    "short sizes": (cut("nested.shape.memmap"), "file_size"),
    "huge sizes": (lambda r: (r / "nested.shape.memmap").write_bytes((2**60).to_bytes(8, "little") * 3), "shape"),
    "negative sizes": (lambda r: (r / "nested.shape.memmap").write_bytes(b"\xff" * 24), "shape"),
    "missing level": (remove("next"), "missing_level"),
    "missing meta": (remove("next/meta.json"), "missing_meta"),
    "broken json": (text("next/meta.json", "{"), "json"),
    "json list": (text("next/meta.json", "[]"), "json"),
    "deep json": (text("next/meta.json", "[" * 100_000), "json"),
    "newer version": (level("next", _format_version=2), "version"),
    "unknown dtype": (entry("obs", dtype="torch.float7"), "dtype"),
    "dtype that is no string": (entry("obs", dtype=[1]), "dtype"),
    "quantized": (entry("obs", dtype="torch.quint4x2"), "dtype"),
    "negative shape": (entry("obs", shape=[-1, 4]), "shape"),
    "bool shape": (entry("obs", shape=[True, 4]), "shape"),
    "huge shape": (entry("obs", shape=[2**62, 2**62]), "shape"),
    "other leading size": (entry("obs", shape=[2, 4]), "batch_size"),
    "other nested batch": (level("next", shape=[4]), "batch_size"),
    "negative batch": (level("next", shape=[-3]), "shape"),
    "wrong names": (level("next", _names=["a", "b"]), "names"),
    "device that is none": (level("next", device="quantum"), "entry"),
    "value that is nowhere": (without("label", "data"), "missing_value"),
    "stack of values that is none": (level("tags", data="x"), "missing_value"),
    "fewer values than rows": (level("tags", data=["a"]), "batch_size"),
    "tensorclass without tensordict": (remove("thing/_tensordict"), "missing_level"),
    "gap in a stack": (remove("stack/1"), "member_gap"),
    "stack without a dim": (without("stack", "stack_dim"), "entry"),
    "stack dim outside": (level("stack", stack_dim=7), "batch_size"),
    "view without a source": (remove("view/_source"), "missing_level"),
    "view by an unknown operation": (level("view", custom_op="roll"), "index"),
    "view by wrong arguments": (level("view", custom_op_kwargs={"dim": "x"}), "index"),
    "index outside": (level("sub", index=["tuple", [99]]), "index"),
    "index of an unknown kind": (level("sub", index=["what", {}]), "index"),
    "no index": (without("sub", "index"), "index"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "s"
    make().save(folder)
    assert load_memmap(folder)["sub"].batch_size == (3,)
    return folder


@pytest.mark.parametrize("form", ["directory", "archive"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_raises_and_changes_nothing(tmp_path, sound, name, form):
    damage, code = DAMAGE[name]
    root = tmp_path / "s"
    shutil.copytree(sound, root)
    damage(root)
    target = root
    if form == "archive":
        from tdview.testing.corpus import foreign_zip

        target = foreign_zip(root, tmp_path / "s.zip")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()}
    for mode in (None, "r"):
        with pytest.raises(DecodeError) as found:
            load_memmap(target, mode=mode)
        assert isinstance(found.value, RuntimeError)
        assert code in [problem.code for problem in found.value.problems], str(found.value)
        assert len(str(found.value)) < 600
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()} == before


def test_longer_file_is_normal_in_a_directory_and_damage_in_an_archive(tmp_path):
    TensorDict(a=torch.ones(2)).save(tmp_path / "s")
    with (tmp_path / "s/a.memmap").open("ab") as file:
        file.write(b"tail")
    assert load_memmap(tmp_path / "s")["a"].tolist() == [1, 1]
    from tdview.testing.corpus import foreign_zip

    with pytest.raises(DecodeError):
        load_memmap(foreign_zip(tmp_path / "s", tmp_path / "s.zip"))


def test_leaf_that_shrinks_after_the_load_raises_when_it_is_read(tmp_path):
    TensorDict(a=torch.ones(2)).save(tmp_path / "s")
    td = load_memmap(tmp_path / "s")
    cut("a.memmap")(tmp_path / "s")
    with pytest.raises(DecodeError):
        td["a"]
    assert (tmp_path / "s/a.memmap").stat().st_size == 7
    (tmp_path / "s/a.memmap").unlink()
    with pytest.raises(FileNotFoundError):
        td["a"]
    assert not (tmp_path / "s/a.memmap").exists()


def test_unknown_and_extra_entries_are_skipped(tmp_path):
    TensorDict(a=torch.ones(2)).save(tmp_path / "s")
    edit(tmp_path / "s", ".", lambda m: m.update(note="x", more=[1], half={"dtype": "torch.int8"}, gone={"type": None}))
    assert list(load_memmap(tmp_path / "s").keys()) == ["a"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.text(max_size=5) | st.just("torch.float32") | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["shape", "dtype", "type"]), inner),
    max_leaves=5,
)


@settings(max_examples=60)
@given(
    st.sampled_from([".", "next", "label", "tags", "stack", "sub", "view", "thing", "thing/_tensordict"]),
    st.sampled_from(
        ["obs", "shape", "device", "_type", "_class", "_names", "_format_version", "data", "stack_dim", "index",
         "custom_op", "custom_op_kwargs", "_metadata", "nested", "next"]
    ),
    JSON,
)  # fmt: skip
def test_any_json_gives_a_result_or_a_tdview_error(sound, tmp_path_factory, where, key, value):
    root = tmp_path_factory.mktemp("fuzz") / "s"
    shutil.copytree(sound, root)
    edit(root, where, lambda meta: meta.update({key: value}))
    try:
        td = load_memmap(root, mode="r")
        repr(td)
    except TdviewError:
        pass
    shutil.rmtree(root)

"""The tree: lazy levels, nested keys, views, damage that leaves the rest browsable."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from tdview.analysis.verify import verify
from tdview.errors import (
    DecodeError,
    KeyMissingError,
    MissingFileError,
    PickleRefusedError,
    ReadOnlyError,
    UnsupportedVersionError,
)
from tdview.storage.directory import DirectoryStore
from tdview.testing.corpus import Case
from tdview.tree.leaf import Leaf
from tdview.tree.scan import rescan, scan


@pytest.fixture
def save(nested: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(nested, tmp_path / "save"))


def state(root: Path) -> dict[str, tuple[int, int, bytes]]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def edit(root: Path, change: Callable[[dict[str, Any]], object], level: str = ".") -> None:
    path = root / level / "meta.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def leaf(root: Any, *key: str) -> Leaf:
    node = root[key]
    assert isinstance(node, Leaf)
    return node


def test_a_level_is_read_when_it_is_asked_for(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = DirectoryStore.read
    monkeypatch.setattr(
        DirectoryStore, "read", lambda self, name, limit: (read.append(name), plain(self, name, limit))[1]
    )
    root = scan(save)
    assert [node.kind for node in root.children()] == ["leaf", "tensordict"]
    assert read == ["meta.json"]
    assert list(root["next"]) == ["obs", "reward", "deep"]
    assert read == ["meta.json", "next/meta.json"]


def test_nested_keys_reach_entries_and_unknown_keys_name_the_known_ones(save: Path) -> None:
    root = scan(save)
    assert leaf(root, "next", "reward").shape == (3, 1)
    assert ("next", "deep", "x") in root
    assert "nope" not in root
    assert 3 not in root
    with pytest.raises(KeyMissingError, match="next"):
        root["nope"]


def test_raw_and_numpy_are_read_only_views_and_a_tensor_is_private(save: Path) -> None:
    obs = leaf(scan(save), "obs")
    assert obs.raw().readonly
    assert not obs.numpy().flags.writeable
    before = state(save)
    obs.tensor().fill_(7)
    assert state(save) == before
    assert not (obs.numpy() == 7).any()
    assert not (obs.tensor() == 7).all()


def test_an_index_reads_the_same_as_numpy(save: Path) -> None:
    obs = leaf(scan(save), "obs")
    assert np.array_equal(obs.numpy((slice(1, 3), 2)), obs.numpy()[1:3, 2])


def test_a_replaced_file_is_seen(save: Path) -> None:
    obs = leaf(scan(save), "obs")
    first = obs.numpy().copy()
    (save / "obs.memmap").write_bytes(np.zeros(12, "<f4").tobytes())
    assert first.any()
    assert not obs.numpy().any()


def test_a_file_that_shrinks_while_it_is_open_is_an_error_and_no_crash(save: Path) -> None:
    obs = leaf(scan(save), "obs")
    obs.numpy()
    os.truncate(save / "obs.memmap", 8)
    with pytest.raises(DecodeError):
        obs.numpy()


def test_an_archive_that_shrinks_while_it_is_open_is_an_error_and_no_crash(tmp_path: Path) -> None:
    TensorDict({"a": torch.zeros(4096, 4)}).save(tmp_path / "a.tdz")
    a = leaf(scan(tmp_path / "a.tdz"), "a")
    os.truncate(tmp_path / "a.tdz", 4096)
    with pytest.raises(DecodeError):
        a.numpy()


# damage: the code, and that the rest is readable


def _short(r: Path) -> None:
    os.truncate(r / "obs.memmap", 44)


def _missing(r: Path) -> None:
    (r / "next" / "reward.memmap").unlink()


def _lost_level(r: Path) -> None:
    shutil.rmtree(r / "next" / "deep")


def _no_meta(r: Path) -> None:
    (r / "next" / "meta.json").unlink()


def _list(r: Path) -> None:
    (r / "next" / "meta.json").write_text("[1]")


def _orphan(r: Path) -> None:
    (r / "next" / "old.memmap").write_bytes(b"1")


def _orphan_level(r: Path) -> None:
    shutil.copytree(r / "next" / "deep", r / "stale")


def _batch(r: Path) -> None:
    edit(r, lambda m: m.update(shape=[4]), "next")


def _leaf_batch(r: Path) -> None:
    edit(r, lambda m: m["obs"].update(shape=[2, 6]))


def _loop(r: Path) -> None:
    os.symlink("..", r / "next" / "again")
    edit(r, lambda m: m.update(again={"type": "TensorDict"}), "next")


def _link_out(r: Path) -> None:
    (r.parent / "outside").write_bytes((r / "obs.memmap").read_bytes())
    (r / "obs.memmap").unlink()
    os.symlink(r.parent / "outside", r / "obs.memmap")


def _pipe(r: Path) -> None:
    (r / "obs.memmap").unlink()
    os.mkfifo(r / "obs.memmap")


def _append(r: Path) -> None:
    shutil.copy(r / "next" / "meta.json", r / "next" / ".meta.json.append.tmp")


def _collision(r: Path) -> None:
    sizes = {"device": "cpu", "shape": [1, 1], "dtype": "torch.int64", "is_nested": True}
    whole = {"device": "cpu", "shape": [3], "dtype": "torch.int64", "is_nested": False}
    edit(r, lambda m: m.update({"a": sizes, "a.shape": whole}))
    for name in ("a.memmap", "a.shape.memmap"):
        (r / name).write_bytes(np.array([3, 0, 0], "<i8").tobytes())


def _value(r: Path) -> None:
    (r / "v").mkdir()
    type_ = "<class 'tensordict.tensorclass.NonTensorData'>"
    (r / "v" / "meta.json").write_text(json.dumps({"_type": type_, "_metadata": None, "_is_non_tensor": True}))
    edit(r, lambda m: m.update(v={"type": "NonTensorData"}))


DAMAGE = [
    (_short, "file_size", ("obs",)),
    (_missing, "missing_file", ("next", "reward")),
    (_lost_level, "missing_level", ("next", "deep")),
    (_no_meta, "missing_meta", ("next",)),
    (_list, "json", ("next",)),
    (_orphan, "orphan", ("next",)),
    (_orphan_level, "orphan", ()),
    (_batch, "batch_size", ("next",)),
    (_leaf_batch, "batch_size", ("obs",)),
    (_loop, "link", ("next", "again")),
    (_link_out, "escape", ("obs",)),
    (_pipe, "missing_file", ("obs",)),
    (_append, "interrupted_append", ("next",)),
    (_collision, "name_collision", ()),
    (_value, "missing_value", ("v",)),
]


@pytest.mark.leaves_files
@pytest.mark.parametrize(("damage", "code", "key"), DAMAGE, ids=lambda d: getattr(d, "__name__", None))
def test_damage_is_a_problem_of_its_node(
    save: Path, damage: Callable[[Path], None], code: str, key: tuple[str, ...]
) -> None:
    damage(save)
    before = {name: kept[0] for name, kept in state(save).items()}
    root = scan(save)
    report = verify(save)
    assert (code, key) in [(problem.code, problem.key) for problem in report.problems]
    shown = {node.path for node in root.leaves()}
    assert shown & {("obs",), ("next", "obs")}
    assert str(root)
    assert {name: kept[0] for name, kept in state(save).items()} == before


def test_an_overlong_payload_is_a_note(save: Path) -> None:
    with (save / "obs.memmap").open("ab") as file:
        file.write(b"tail")
    report = verify(save)
    assert report.ok
    assert report.codes == ("overlong",)
    assert leaf(scan(save), "obs").numpy().shape == (3, 4)


def test_a_newer_version_and_a_broken_top_are_refused_and_verified(save: Path) -> None:
    edit(save, lambda m: m.update(_format_version=2))
    with pytest.raises(UnsupportedVersionError):
        scan(save)
    assert verify(save).codes == ("version",)
    (save / "meta.json").write_text("{")
    with pytest.raises(DecodeError):
        scan(save)
    assert "json" in verify(save).codes


def test_a_pickle_is_never_executed(save: Path, tmp_path: Path) -> None:
    class Boom:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    _value(save)
    (save / "v" / "other.pickle").write_bytes(pickle.dumps({"data": Boom()}))
    root = scan(save)
    with pytest.raises(PickleRefusedError):
        _ = root["v"].value
    assert "pickle" in str(root)
    assert not (tmp_path / "pwned").exists()
    assert "pickle_present" in verify(save).codes


@pytest.mark.parametrize("name", ["nothing", "empty", "text"])
def test_a_path_without_a_save_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(MissingFileError if name == "nothing" else DecodeError):
        scan(tmp_path / name)


def test_leaves_without_a_meta_json_are_an_interrupted_save(save: Path) -> None:
    (save / "meta.json").unlink()
    shutil.rmtree(save / "next")
    with pytest.raises(DecodeError) as caught:
        scan(save)
    assert [problem.code for problem in caught.value.problems] == ["missing_meta"]


def test_an_interrupted_atomic_save_is_named(save: Path) -> None:
    staged = save.parent / ".tdtmp-abcd"
    staged.mkdir()
    save.rename(staged / "new")
    with pytest.raises(MissingFileError, match="interrupted atomic save"):
        scan(save)


def test_several_saves_are_a_collection(save: Path, tmp_path: Path) -> None:
    shutil.copytree(save, tmp_path / "more" / "deeper" / "b")
    root = scan(tmp_path)
    assert root.kind == "collection"
    assert set(root) == {"save", "more"}
    assert leaf(root, "more", "deeper", "b", "next", "obs").path[:2] == ("more", "deeper")


def test_the_members_behind_a_gap_are_shown(tmp_path: Path) -> None:
    LazyStackedTensorDict(*(TensorDict({"a": torch.zeros(n + 1)}) for n in range(4))).save(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "1")
    root = scan(tmp_path / "s")
    assert list(root) == ["0", "2", "3"]
    assert "member_gap" in [problem.code for problem in root.problems]


def test_a_view_of_a_lazy_stack_shows_the_stacked_leaves(tmp_path: Path) -> None:
    stack = LazyStackedTensorDict(
        TensorDict({"a": torch.arange(6.0).view(3, 2), "b": torch.zeros(3)}, [3]),
        TensorDict({"a": torch.arange(6.0).view(3, 2) + 10}, [3]),
    )
    stack.save(tmp_path / "s" / "_source")
    fields = {
        "shape": [3, 2],
        "_type": "<class 'tensordict._lazy._PermutedTensorDict'>",
        "custom_op": "permute",
        "custom_op_kwargs": {"dims": [1, 0]},
    }
    (tmp_path / "s" / "meta.json").write_text(json.dumps(fields))
    root = scan(tmp_path / "s")
    assert root.batch_size == (3, 2)
    assert list(root) == ["a"]
    want = torch.stack([stack[0]["a"], stack[1]["a"]]).permute(1, 0, 2)
    assert torch.equal(leaf(root, "a").tensor(), want)
    assert np.array_equal(leaf(root, "a").numpy(), want.numpy())


def test_a_leaf_is_written_in_place_only_where_its_bytes_lie(save: Path) -> None:
    assert not leaf(scan(save), "obs").writable
    obs = leaf(scan(save, mode="r+"), "obs")
    assert obs.writable
    assert obs.direct
    obs.store.write_at(obs.file_name, 4, np.float32(5).tobytes())
    assert obs.numpy()[0, 1] == 5
    with pytest.raises(DecodeError):
        obs.store.write_at(obs.file_name, 46, b"abcd")
    with pytest.raises(ReadOnlyError):
        leaf(scan(save), "obs").store.write_at(obs.file_name, 0, b"abcd")


def test_a_hundred_thousand_levels_do_not_recurse(tmp_path: Path) -> None:
    meta = json.dumps({"a": {"type": "TensorDict"}, "shape": [], "_type": "<class 'tensordict._td.TensorDict'>"})
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        for depth in range(400):
            archive.writestr("a/" * depth + "meta.json", meta)
    root = scan(tmp_path / "deep.zip")
    assert "depth" in verify(root).codes
    assert str(root)


def test_a_chain_of_views_does_not_recurse(tmp_path: Path) -> None:
    fields = {
        "shape": [],
        "_type": "<class 'tensordict._lazy._SqueezedTensorDict'>",
        "custom_op": "view",
        "custom_op_kwargs": {"size": [1]},
    }
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        for depth in range(2000):
            archive.writestr("_source/" * depth + "meta.json", json.dumps(fields))
    assert str(scan(tmp_path / "deep.zip"))
    assert not verify(tmp_path / "deep.zip").ok


def test_dumps_are_replay_buffers_with_their_side_files(dumps: Path, corpus: list[Case]) -> None:
    root = scan(dumps / "cartpole_wrapped" / "buffer")
    assert root.kind == "replay_buffer"
    assert leaf(root, "next", "reward").shape == (256, 1)
    assert leaf(root, "storage", "next", "reward").path == ("next", "reward")
    assert {"prefetch.pkl", "writer/metadata.json", "storage/storage_metadata.json"} <= set(root.side_files)
    assert root.fill is not None
    assert root.fill.certain
    tree = scan(dumps / "pytree_dict_storage" / "buffer")
    assert tree.kind == "replay_buffer"
    assert leaf(tree, "extra", "img").shape == (40, 2, 3)


@pytest.mark.parametrize(
    ("name", "word"), [("h5_wrapped/buffer", "HDF5"), ("liststorage_state_dict/rb_state.pt", "torch.save")]
)
def test_other_containers_are_recognised(dumps: Path, name: str, word: str) -> None:
    with pytest.raises(DecodeError, match=word):
        scan(dumps / name)


@pytest.mark.parametrize("form", ["save", "save.tdz"])
def test_a_relative_path_stays_the_same_save_when_the_process_moves(
    form: str, save: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form.endswith(".tdz"):
        TensorDict.load_memmap(save).save(tmp_path / form)
    monkeypatch.chdir(tmp_path)
    root = scan(form)
    expected = leaf(scan(form), "obs").numpy()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert np.array_equal(leaf(root, "obs").numpy(), expected)
    assert (root.store.location, root.where()) == (tmp_path / form, form)
    again = rescan(root)
    assert again is not root
    assert again.store is root.store
    with pytest.raises(MissingFileError):
        scan(form)


def test_what_may_not_be_read_is_said_to_be_so(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answers are made up."""
    plain_open, plain_access = os.open, os.access
    closed = {str(save / "next" / "meta.json"), str(save / "obs.memmap")}

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if str(path) in closed:
            raise PermissionError(13, "Permission denied", str(path))
        return plain_open(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in closed and plain_access(path, mode))
    root = scan(save)
    assert [problem.code for problem in root["obs"].problems] == ["unreadable"]
    assert [problem.code for problem in root["next"].problems] == ["unreadable"]
    report = verify(save)
    assert {problem.code for problem in report.problems} == {"unreadable"}
    assert not report.ok
    shutil.rmtree(save)
    save.mkdir()
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(DecodeError) as caught:
        scan(save)
    assert [problem.code for problem in caught.value.problems] == ["unreadable"]


def test_an_empty_path_is_not_the_working_directory(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(save)
    assert list(scan("."))
    with pytest.raises(MissingFileError):
        scan("")


def test_a_removed_working_directory_is_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for path in (".", "run"):
        with pytest.raises(MissingFileError):
            scan(path)

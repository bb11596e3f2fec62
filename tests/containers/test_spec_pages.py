"""The examples of the specification pages, with nothing but the import replaced."""

from __future__ import annotations

import os
import tempfile

import torch

import tdview as tensordict
from tdview import TensorDict


def test_example_of_memmap():
    td = TensorDict(
        obs=torch.zeros(3, 4),
        next=TensorDict(reward=torch.ones(3, 1), batch_size=[3]),
        batch_size=[3],
    )
    with tempfile.TemporaryDirectory() as path:
        mm = td.memmap(path)
        assert (type(mm["obs"]).__name__, mm.is_locked) == ("MemoryMappedTensor", True)
        assert sorted(os.listdir(path)) == ["meta.json", "next", "obs.memmap"]


def test_example_of_append_memmap():
    td = TensorDict(a=torch.zeros(3, 2), batch_size=[3])
    with tempfile.TemporaryDirectory() as tmpdir:
        _ = tensordict.save(td, tmpdir)
        tensordict.append_memmap(tmpdir, TensorDict(a=torch.ones(2, 2), batch_size=[2]))
        assert tensordict.load_memmap(tmpdir)["a"].sum(-1).tolist() == [0.0, 0.0, 0.0, 2.0, 2.0]


def test_tree_and_meta_of_the_format_page(tmp_path):
    td = TensorDict(obs=torch.zeros(3, 4), next=TensorDict(obs=torch.zeros(3, 4), batch_size=[3]), batch_size=[3])
    td.save(tmp_path)
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert found == ["meta.json", "next", "next/meta.json", "next/obs.memmap", "obs.memmap"]
    assert (tmp_path / "meta.json").read_text() == (
        '{"obs": {"device": "cpu", "shape": [3, 4], "dtype": "torch.float32", "is_nested": false}, '
        '"next": {"type": "TensorDict"}, "shape": [3], "device": "cpu", '
        '"_type": "<class \'tensordict._td.TensorDict\'>", "_format_version": 1, "_class": "tensordict:TensorDict"}'
    )


def test_non_tensor_of_the_format_page(tmp_path):
    TensorDict(x="hello").save(tmp_path)
    assert (tmp_path / "x/meta.json").read_text() == (
        '{"_type": "<class \'tensordict.tensorclass.NonTensorData\'>", "data": "hello", "_metadata": null, '
        '"_is_non_tensor": true}'
    )


def test_function_and_method_names_of_the_pages_exist():
    functions = ("save", "load_memmap", "append_memmap", "pack_memmap", "unpack_memmap", "is_memmap_archive")
    for name in (*functions, "refresh_archive_checksums"):
        assert callable(getattr(tensordict, name))
    methods = ("memmap", "memmap_", "memmap_like", "save", "dumps", "load_memmap", "load_memmap_", "memmap_refresh_")
    for kind in (TensorDict, tensordict.LazyStackedTensorDict, tensordict.NonTensorData, tensordict.TensorClass):
        for name in methods:
            assert callable(getattr(kind, name))

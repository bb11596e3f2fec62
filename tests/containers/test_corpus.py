"""Saves that many versions of tensordict wrote: all of them load, with the values that they were written with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tdview
from tdview.containers.base import TensorDictBase, is_level
from tdview.containers.collection import Collection
from tdview.testing.corpus import unpack
from tdview.testing.same import differences, octets
from tdview.tree.scan import scan

CORPUS = Path(__file__).parent.parent / "corpus"


def _leaves(value: Any, path: tuple[str, ...] = ()):
    if isinstance(value, tdview.LazyStackedTensorDict):
        for number, member in enumerate(value.tensordicts):
            yield from _leaves(member, (*path, str(number)))
        return
    td = value if isinstance(value, TensorDictBase) else value._tensordict
    for key in td._keys():
        item = td._get(key)
        if is_level(item):
            yield from _leaves(item, (*path, key))
        elif isinstance(item, Collection):
            yield (*path, key), item._plain()
        else:
            yield (*path, key), item


def _described(leaf: torch.Tensor) -> dict[str, Any]:
    def one(part):
        return {"shape": list(part.shape), "sha256": hashlib.sha256(octets(part)).hexdigest()}

    if leaf.is_nested:
        return {"dtype": str(leaf.dtype), "nested": [one(part) for part in leaf.unbind(0)]}
    return {"dtype": str(leaf.dtype), **one(leaf)}


@pytest.mark.filterwarnings("ignore")
def test_every_save_of_every_version_loads_with_its_values(corpus):
    faults = []
    for case in corpus:
        if "recovery" in case.expected:
            continue
        for path in (case.saved, *case.archives):
            try:
                td = tdview.load_memmap(path, mode="r", allow_pickle=True)
            except Exception as error:
                faults.append(f"{case.name}/{path.name}: {type(error).__name__}: {error}")
                continue
            if isinstance(td, tdview.NonTensorData):
                continue
            found = dict(_leaves(td))
            want = {tuple(json.loads(key)): value for key, value in case.expected["leaves"].items()}
            want = {key: {k: v for k, v in leaf.items() if k != "values"} for key, leaf in want.items()}
            if case.name.endswith("reserved_shape_key"):
                want.pop(("shape",), None)
            got = {key: _described(leaf) for key, leaf in found.items() if isinstance(leaf, torch.Tensor)}
            if got != want:
                differing = [key for key in got.keys() | want.keys() if got.get(key) != want.get(key)]
                faults.append(f"{case.name}/{path.name}: {differing[:3]}")
            if list(td.batch_size) != case.expected["batch_size"]:
                faults.append(f"{case.name}/{path.name}: batch size {list(td.batch_size)}")
    assert len(corpus) > 200
    assert faults == []


@pytest.mark.filterwarnings("ignore")
def test_values_load_without_executing_a_pickle_where_they_are_plain(corpus):
    refused = []
    for case in corpus:
        if "recovery" in case.expected:
            continue
        try:
            td = tdview.load_memmap(case.saved, mode="r")
        except tdview.PickleRefusedError:
            refused.append(case.name.split("/")[1])
            continue
        for key, value in case.expected["non_tensors"].items():
            if value is None:  # a field that is None is not stored
                continue
            node = scan(case.saved)[tuple(json.loads(key))]
            if isinstance(value, dict) and set(value) == {"repr"}:
                assert repr(node.value) == value["repr"]
        del td
    assert set(refused) <= {"nontensor_pickled", "nontensor_stack_pickled"}


def test_saving_again_gives_a_save_of_the_same_values(corpus, tmp_path):
    for number, case in enumerate(corpus):
        if "recovery" in case.expected or case.name.endswith("reserved_shape_key"):
            continue
        td = tdview.load_memmap(case.saved, mode="r", allow_pickle=True)
        td.memmap(tmp_path / str(number), copy_existing=True)
        again = tdview.load_memmap(tmp_path / str(number), mode="r", allow_pickle=True)
        assert list(differences(td, again)) == [], case.name


def test_storage_of_a_replay_buffer_loads(dumps):
    checked = 0
    for path in sorted(dumps.glob("*/expected.json")):
        expected = json.loads(path.read_text())
        storage = expected.get("storage")
        if not isinstance(storage, str) or path.parent.name == "bad_storage_files":
            continue
        if "h5" in path.parent.name or not (path.parent / storage).is_dir():
            continue
        if not isinstance(expected.get("leaves"), dict):
            continue
        td = tdview.load_memmap(path.parent / storage, mode="r")
        found = {"/".join(key): leaf for key, leaf in _leaves(td) if isinstance(leaf, torch.Tensor)}
        for key, leaf in expected["leaves"].items():
            if key in found and not found[key].is_nested:
                assert list(found[key].shape) == leaf["shape"], (path, key)
                assert hashlib.sha256(octets(found[key])).hexdigest() == leaf["sha256"], (path, key)
                checked += 1
    assert checked > 100


def test_fixture_of_version_0_has_longer_files(tmp_path):
    folder = unpack(CORPUS / "fixture-mmap_example.tar.gz", tmp_path)
    td = tdview.load_memmap(min(folder.rglob("meta.json"), key=lambda path: len(path.parts)).parent, mode="r")
    assert td.batch_size == (2, 1)
    assert td["nested", "string"] == ["a string!"]

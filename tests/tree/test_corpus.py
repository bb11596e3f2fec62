"""Every save of the corpus is read in five forms: directory, archive, deflated, foreign zip, memory."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tdview.analysis.verify import verify
from tdview.storage.memory import MemoryStore
from tdview.testing.corpus import Case, foreign_zip, memory_files
from tdview.tree.leaf import Leaf
from tdview.tree.node import Node
from tdview.tree.scan import root_of, scan

VERSIONS = ("0.6.2", "0.9.1", "0.12.4", "0.14.3", "0.15.3", "2026.10.26")
PATHS_AS_KEYS = ("0.6.2", "0.9.1", "0.12.4")  # a level ".." lies beside the save, so no other form holds it


def test_the_corpus_is_there(corpus: list[Case]) -> None:
    assert {case.name.split("/")[0] for case in corpus} == set(VERSIONS)
    assert len(corpus) > 300


def digest(tensor: torch.Tensor) -> str:
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return hashlib.sha256(data).hexdigest()


def forms(case: Case, target: Path) -> Iterator[tuple[str, Node]]:
    yield "directory", scan(case.saved)
    for archive in case.archives:
        yield archive.name, scan(archive)
    if case.name.split("/")[0] in PATHS_AS_KEYS and case.name.endswith("odd_nested_keys"):
        return
    yield "deflated", scan(foreign_zip(case.saved, target / "deflated.zip", compression=zipfile.ZIP_DEFLATED))
    yield "foreign", scan(foreign_zip(case.saved, target / "foreign.zip"))
    yield "memory", root_of(MemoryStore(memory_files(case.saved)))


def check_leaf(leaf: Leaf, want: dict[str, Any]) -> None:
    assert leaf.dtype == want["dtype"]
    tensor = leaf.tensor()
    if "nested" in want:
        got = [{"shape": list(part.shape), "sha256": digest(part)} for part in tensor.unbind()]
        assert got == want["nested"]
        return
    assert list(leaf.shape) == list(tensor.shape) == want["shape"]
    assert digest(tensor) == want["sha256"]
    array = leaf.numpy()
    assert array.shape == leaf.shape
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        assert torch.equal(torch.from_numpy(array.copy()).nan_to_num(), tensor.float().nan_to_num())


def check_tree(root: Node, want: dict[str, Any]) -> None:
    leaves = {leaf.path: leaf for leaf in root.leaves()}
    expected = {tuple(json.loads(key)): leaf for key, leaf in want["leaves"].items()}
    if expected.keys() - leaves.keys() == {("shape",)}:
        del expected["shape",]
        assert "reserved_key" in [problem.code for problem in root.problems]
    assert leaves.keys() == expected.keys()
    for path, leaf in leaves.items():
        check_leaf(leaf, expected[path])
    assert root.batch_size is None or list(root.batch_size) == want["batch_size"]
    if root.format_version == 1 or root.names is not None:  # version 0 loses the dim names
        assert (list(root.names) if root.names else None) == want["names"]
    for key, value in want["non_tensors"].items():
        if value is not None:
            got = root[tuple(json.loads(key))].value
            is_text = isinstance(value, dict) and set(value) == {"repr"}
            assert repr(got) == value["repr"] if is_text else json.loads(json.dumps(got)) == value


@pytest.mark.parametrize("version", VERSIONS)
def test_every_save_is_read_in_every_form(corpus: list[Case], version: str, tmp_path: Path) -> None:
    read = 0
    for case in corpus:
        if case.name.startswith(f"{version}/") and "recovery" not in case.expected:
            folder = tmp_path / case.folder.name
            folder.mkdir()
            for form, root in forms(case, folder):
                try:
                    check_tree(root, case.expected)
                except AssertionError as error:
                    raise AssertionError(f"{case.name} as {form}: {error}") from error
                read += 1
    assert read > 150


def test_a_sound_save_has_no_error(corpus: list[Case]) -> None:
    allowed = {"reserved_shape_key": {"reserved_key"}, "odd_nested_keys": {"escape", "orphan"}}
    for case in corpus:
        if "recovery" not in case.expected:
            report = verify(case.saved)
            bad = {problem.code for problem in report.at_least("warning")}
            assert bad <= allowed.get(case.folder.name, set()), f"{case.name}: {report.problems}"


def test_text_html_and_repr_are_the_same_in_every_form(corpus: list[Case]) -> None:
    from tdview.tree.html import to_html

    for case in corpus:
        root = scan(case.saved)
        assert str(root) == str(scan(case.saved))
        assert repr(root) == repr(scan(case.saved))
        page = to_html(root)
        assert page == to_html(scan(case.saved))
        assert "<script" not in page
        assert "onerror" not in page

"""Edits are made again in another copy: by a script, or by a patch that tests first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from tdview.errors import ArgumentError, ConcurrentWriteError, EditRefusedError, KeyMissingError
from tdview.operations.edit import Editor

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64")


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    source = {name: torch.zeros(3, 2).to(getattr(torch, name)) for name in DTYPES}
    source |= {"a/b~c": torch.zeros(3), "next": TensorDict({"r": torch.zeros(3)}, [3])}
    source |= {"note": NonTensorData("x", batch_size=[3]), "names": NonTensorStack("a", "b", "c")}
    TensorDict(source, batch_size=[3]).save(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    return tmp_path / "one", tmp_path / "two"


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def edited(path: Path) -> Editor:
    editor = Editor(path)
    editor.edit("float32", (0, 1), 0.1)
    editor.edit("float32", (slice(0, 3, 2), 0), [float("nan"), float("-inf")])
    editor.edit("float64", 0, [1e-300, -0.0])
    editor.edit("bfloat16", ..., 3.140625)
    editor.edit("float16", 2, 65504)
    editor.edit("int64", (1, 1), 2**63 - 1)
    editor.edit("uint8", [0, 2], [[1, 2], [3, 4]])
    editor.edit("bool", (0, 0), True)
    editor.edit("complex64", (0, 0), 1.5 - 2j)
    editor.edit("a/b~c", 0, 5)
    editor.edit(("next", "r"), -1, 5)
    editor.edit("note", (), {"k": [1, None]})
    editor.edit("names", slice(0, 2), ["list", 1])
    editor.edit("float32", (0, 1), 0.2)
    return editor


def test_a_patch_makes_the_same_files(copies: tuple[Path, Path]) -> None:
    one, two = copies
    before = files(two)
    patch = json.loads(json.dumps(edited(one).patch()))
    other = Editor(two)
    assert other.apply_patch(patch) == 14
    assert files(two) == files(one)
    assert [edit.new for edit in other.edits][-1] == pytest.approx(0.2)
    while other.edits:
        other.undo()
    assert files(two) == before


def test_a_patch_has_the_form_of_rfc_6902(copies: tuple[Path, Path]) -> None:
    patch = edited(copies[0]).patch()
    assert [step["op"] for step in patch[:4]] == ["test", "replace", "test", "replace"]
    assert patch[0]["path"] == "/float32/0/1"
    assert (patch[0]["value"], patch[1]["value"]) == (0.0, 0.1)
    assert any(step["path"] == "/a~1b~0c/0" for step in patch)
    assert patch[3]["value"] == ["nan", "-inf"]


def test_a_script_makes_the_same_files(copies: tuple[Path, Path]) -> None:
    one, two = copies
    script = one.parent / "edits.py"
    script.write_text(edited(one).script())
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, str(script), str(two)], check=True, env=environment)
    assert files(two) == files(one)


def test_a_patch_is_made_as_a_whole_or_not(copies: tuple[Path, Path]) -> None:
    one, two = copies
    patch = edited(one).patch()
    other = Editor(two, journal=False)
    other.edit("names", 1, "different")
    before = files(two)
    with pytest.raises(ConcurrentWriteError):
        other.apply_patch(patch)
    assert files(two) == before
    assert len(other.edits) == 1


def test_a_patch_for_another_dtype_is_refused(copies: tuple[Path, Path]) -> None:
    one, two = copies
    patch = edited(one).patch()[:2]
    for step in patch:
        step["key"] = ["float64"]
    with pytest.raises(ConcurrentWriteError):
        Editor(two).apply_patch(patch)


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        (3, ArgumentError),
        ([3], ArgumentError),
        ([{"op": "move"}], ArgumentError),
        ([{"op": "test", "value": 0}], ArgumentError),
        ([{"op": "replace", "key": ["float32"], "index": [9], "value": 0}], EditRefusedError),
        ([{"op": "replace", "key": ["no"], "index": [0], "value": 0}], KeyMissingError),
        ([{"op": "replace", "key": ["float32"], "index": [[]], "value": 0}], EditRefusedError),
        (
            [{"op": "test", "key": ["float32"], "index": [0, 0], "dtype": "torch.float32", "value": [0, 0]}],
            EditRefusedError,
        ),
    ],
)
def test_what_is_no_patch_is_refused(copies: tuple[Path, Path], patch: object, error: type[Exception]) -> None:
    before = files(copies[1])
    with pytest.raises(error):
        Editor(copies[1]).apply_patch(patch)
    assert files(copies[1]) == before


def test_nan_is_equal_to_nan_in_a_test(copies: tuple[Path, Path]) -> None:
    editor = Editor(copies[0])
    editor.edit("float32", (0, 0), torch.tensor([0x7FC12345], dtype=torch.int32).view(torch.float32)[0])
    editor.edit("float32", (0, 0), 1)
    patch = editor.patch()[2:]
    other = Editor(copies[1])
    other.edit("float32", (0, 0), "nan")
    assert other.apply_patch(patch) == 1

"""Layouts that no corpus case shows: tensordict 0.3 named no nested levels, 0.4 kept empty levels beside values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import tdview
from tdview.tree.scan import scan

TYPE = {"shape": [3], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
LEAF = {"device": "cpu", "shape": [3], "dtype": "torch.float32"}


def write(folder: Path, fields: dict[str, Any], *leaves: str) -> None:
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(fields))
    for name in leaves:
        (folder / f"{name}.memmap").write_bytes(np.arange(3, dtype="<f4").tobytes())


def test_nested_levels_without_an_entry_are_read_where_no_entry_names_its_layout(tmp_path: Path) -> None:
    write(tmp_path / "s", {"a": LEAF} | TYPE, "a")
    write(tmp_path / "s" / "n", {"b": LEAF} | TYPE, "b")
    root = scan(tmp_path / "s")
    assert [leaf.path for leaf in root.leaves()] == [("a",), ("n", "b")]
    assert tdview.verify(root).problems == ()
    assert tdview.load_memmap(tmp_path / "s", mode="r")["n", "b"].tolist() == [0, 1, 2]


def test_a_level_without_an_entry_is_an_orphan_in_later_layouts(tmp_path: Path) -> None:
    write(tmp_path / "s", {"a": LEAF | {"is_nested": False}} | TYPE, "a")
    write(tmp_path / "s" / "n", {"b": LEAF} | TYPE, "b")
    root = scan(tmp_path / "s")
    assert list(root) == ["a"]
    assert tdview.verify(root).codes == ("orphan",)


def test_an_empty_level_beside_a_value_is_no_orphan(tmp_path: Path) -> None:
    write(tmp_path / "s", {"v": {"type": "NonTensorData"}} | TYPE)
    value = {"_type": "<class 'tensordict.tensorclass.NonTensorData'>", "data": "x", "_metadata": None}
    write(tmp_path / "s" / "v", value)
    write(tmp_path / "s" / "v" / "_tensordict", TYPE)
    root = scan(tmp_path / "s")
    assert root["v"].value == "x"
    assert tdview.verify(root).problems == ()

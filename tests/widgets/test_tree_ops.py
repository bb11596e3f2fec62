from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdview
from tdview.widgets.tree_ops import SIDE_FILES
from tests.widgets.conftest import View
from tests.widgets.saves import write_save

HOSTILE = "<b>&\"'\0\ud800"


@pytest.fixture
def view(tmp_path: Path, view_of: Callable[[Any], View]) -> View:
    entries = {
        "obs": ("float32", [6, 2]),
        "act": ("bool", [6]),
        "next": {"reward": ("bfloat16", [6, 1]), "obs": ("float32", [6, 2])},
        "deep": {"next": {"reward": ("float64", [6])}},
    }
    return view_of(tdview.open(write_save(tmp_path / "run", entries, batch_size=[6])))


def test_a_row_says_what_the_views_need(view: View) -> None:
    rows = view.ask("tree.children", {"path": []})["rows"]
    by_key = {row["key"]: row for row in rows}
    obs = by_key["obs"]
    assert (obs["kind"], obs["dtype"], obs["shape"], obs["batchDims"], obs["nbytes"]) == (
        "leaf", "torch.float32", [6, 2], 1, 48,
    )  # fmt: skip
    assert obs["children"] is None
    assert not obs["writable"]
    assert (by_key["next"]["children"], by_key["next"]["note"]) == (2, "2 leaves")
    assert by_key["deep"]["note"] == "1 entry"


def test_damage_is_a_badge_and_the_rest_stays_browsable(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    path = write_save(tmp_path / "run", {"a": ("float32", [6]), "b": ("float32", [6]), "c": {}}, batch_size=[6])
    (path / "a.memmap").write_bytes(b"short")
    (path / "c" / "meta.json").write_text("{")
    view = view_of(tdview.open(path))
    rows = {row["key"]: row for row in view.ask("tree.children", {"path": []})["rows"]}
    assert rows["a"]["badges"] == [{"severity": "error", "text": "file size"}]
    assert rows["b"]["badges"] == []
    assert rows["c"]["badges"][0]["severity"] == "error"
    info = view.ask("node.info", {"path": ["a"]})
    assert [problem["code"] for problem in info["problems"]] == ["file_size"]


def test_locate_gives_the_page_of_each_level_in_one_reply(view: View) -> None:
    reply = view.ask("tree.locate", {"path": ["deep", "next", "reward"], "count": 2})
    assert [(page["path"], page["start"]) for page in reply["pages"]] == [([], 2), (["deep"], 0), (["deep", "next"], 0)]
    assert reply["row"]["dtype"] == "torch.float64"
    assert view.ask("tree.locate", {"path": []})["row"]["key"] == "run"
    assert view.refused("tree.locate", {"path": ["deep", "absent"]}) == "KeyMissingError"


def test_search_finds_keys_in_the_whole_tree(view: View) -> None:
    found = view.ask("tree.search", {"query": "REWARD"})
    assert [row["path"] for row in found["rows"]] == [["next", "reward"], ["deep", "next", "reward"]]
    assert (found["total"], found["complete"]) == (2, True)
    assert [row["path"] for row in view.ask("tree.search", {"query": "next obs"})["rows"]] == [["next", "obs"]]
    assert [row["path"] for row in view.ask("tree.search", {"query": "next.obs"})["rows"]] == [["next", "obs"]]
    assert view.ask("tree.search", {"query": "nothing"})["rows"] == []


def test_search_says_when_it_shows_only_a_part(view: View) -> None:
    found = view.ask("tree.search", {"query": "e", "limit": 1})
    assert len(found["rows"]) == 1
    assert (found["total"] > 1, found["complete"]) == (True, False)


def test_a_key_that_utf8_cannot_hold_is_found_by_its_escaped_form(
    tmp_path: Path, view_of: Callable[[Any], View]
) -> None:
    path = write_save(tmp_path / "run", {"ok": ("float32", [2])}, batch_size=[2])
    meta = json.loads((path / "meta.json").read_text())
    meta[HOSTILE] = {"device": "cpu", "shape": [2, 0], "dtype": "torch.float32"}
    (path / "meta.json").write_text(json.dumps(meta))
    view = view_of(tdview.open(path))
    rows = view.ask("tree.children", {"path": []})["rows"]
    (key,) = (row["key"] for row in rows if row["key"] != "ok")
    key.encode()
    assert view.ask("node.info", {"path": [key]})["facts"]
    view.browser.set_state({"selected": [key]})
    assert view.browser.selected == (HOSTILE,)
    assert view.browser.get_state("selected")["selected"] == [key]


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        ("<script>x</script>", "text", "<script>x</script>"),
        ({"lr": 0.1}, "json", '{\n  "lr": 0.1\n}'),
        (3, "json", "3"),
        (None, "json", "null"),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_text_or_json(
    tmp_path: Path, view_of: Callable[[Any], View], data: Any, form: str, text: str
) -> None:
    path = write_save(tmp_path / "run", {}, batch_size=[2])
    (path / "note").mkdir()
    value = {"_type": "<class 'tensordict.tensorclass.NonTensorData'>", "_is_non_tensor": True, "data": data}
    (path / "note" / "meta.json").write_text(json.dumps(value))
    meta = json.loads((path / "meta.json").read_text()) | {"note": {"type": "NonTensorData"}}
    (path / "meta.json").write_text(json.dumps(meta))
    view = view_of(tdview.open(path))
    assert view.ask("node.info", {"path": ["note"]})["value"] == {"text": text, "form": form, "cut": False}
    (row,) = view.ask("tree.children", {"path": []})["rows"]
    assert (row["kind"], row["children"]) == ("non_tensor", None)


def test_info_of_a_leaf_in_an_archive_says_where_it_lies(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    path = write_save(tmp_path / "run", {"obs": ("float32", [6, 2])}, batch_size=[6])
    tdview.pack_memmap(path, tmp_path / "run.tdz")
    facts = dict(view_of(tdview.open(tmp_path / "run.tdz")).ask("node.info", {"path": ["obs"]})["facts"])
    assert facts["file"] == "obs.memmap"
    assert facts["compression"] == "stored"
    assert int(facts["offset"].replace(",", "")) % 64 == 0
    assert len(facts["CRC-32"]) == 8


def test_info_of_a_nested_tensor_lists_the_shapes(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    path = write_save(tmp_path / "run", {"tok": ("float32", [3, 2], bytes(4 * 11))}, batch_size=[3])
    meta = json.loads((path / "meta.json").read_text())
    meta["tok"]["is_nested"] = True
    (path / "meta.json").write_text(json.dumps(meta))
    view = view_of(tdview.open(path))
    assert dict(view.ask("node.info", {"path": ["tok"]})["facts"])["shapes"]  # that of the damage: there are no sizes
    (path / "tok.shape.memmap").write_bytes(struct.pack("<6q", 3, 1, 2, 2, 1, 4))
    view.ask("reload")
    assert dict(view.ask("node.info", {"path": ["tok"]})["facts"])["shapes"] == "[3, 1], [2, 2], [1, 4]"


def test_the_side_files_of_a_dump_are_listed_and_not_opened(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    storage = tmp_path / "dump" / "storage"
    write_save(storage, {"obs": ("float32", [6, 2])}, batch_size=[6])
    (storage / "storage_metadata.json").write_text(json.dumps({"is_full": True, "len": 6, "_last_cursor": 0}))
    (tmp_path / "dump" / "buffer_metadata.json").write_text("{}")
    (tmp_path / "dump" / "sampler").mkdir()
    (tmp_path / "dump" / "sampler" / "state.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    browser = tdview.open(tmp_path / "dump")
    view = view_of(browser)
    assert browser.root.kind == "replay_buffer"
    last = view.ask("tree.children", {"path": []})["rows"][-1]
    assert (last["kind"], last["key"], last["children"]) == ("side_files", SIDE_FILES, None)
    info = view.ask("node.info", {"path": [SIDE_FILES]})
    assert info["value"]["form"] == "refused"
    assert any("state.pkl" in name for name, _ in info["facts"])
    assert view.ask("tree.locate", {"path": [SIDE_FILES]})["row"]["kind"] == "side_files"

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdview
from tdview.errors import DecodeError, KeyMissingError, MissingFileError
from tests.widgets.conftest import View
from tests.widgets.saves import write_save

HOSTILE = "<img src=x onerror=pwned()>"


@pytest.fixture
def save(tmp_path: Path) -> Path:
    return write_save(
        tmp_path / "run",
        {"obs": ("float32", [6, 2]), HOSTILE: ("int64", [6]), "next": {"reward": ("float32", [6, 1])}},
        batch_size=[6],
    )


def test_the_first_paint_needs_no_request(save: Path) -> None:
    browser = tdview.open(save)
    head = browser._head
    assert head["name"] == "run"
    assert head["mode"] == "r"
    assert (head["leaves"], head["nbytes"], head["counted"]) == (3, 48 + 48 + 24, True)
    assert [row["key"] for row in head["page"]["rows"]] == ["obs", HOSTILE, "next"]
    assert head["root"]["children"] == 3
    json.dumps(head, allow_nan=False)


def test_names_that_utf8_cannot_hold_travel_escaped(tmp_path: Path) -> None:
    path = write_save(tmp_path / os.fsdecode(b"run\xff"), {"x": ("bool", [2])}, batch_size=[2])
    meta = json.loads((path / "meta.json").read_text()) | {"names": ["t\ud800"]}
    (path / "meta.json").write_text(json.dumps(meta))
    browser = tdview.open(path, mode="r+")
    for state in (browser._head, browser._edits):
        json.dumps(state, ensure_ascii=False, allow_nan=False).encode()
    repr(browser).encode()
    browser._html().encode()


def test_an_unknown_keyword_is_a_type_error(save: Path) -> None:
    from tdview.widgets.browser import Browser

    with pytest.raises(TypeError, match="colour"):
        Browser(save, colour="red")


def test_what_cannot_be_opened_raises(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        tdview.open(tmp_path / "absent")
    with pytest.raises(DecodeError):
        tdview.open(tmp_path)


def test_repr_is_one_line_that_is_the_same_for_every_opening(save: Path) -> None:
    first, second = repr(tdview.open(save)), repr(tdview.open(save))
    assert first == second == "<tdview.Browser run: tensordict, 3 leaves, 120 B, read-only>"


def test_the_bundle_holds_escaped_static_html(save: Path) -> None:
    bundles = [tdview.open(save)._repr_mimebundle_() for _ in range(2)]
    data = [bundle[0] for bundle in bundles if bundle is not None]
    assert data[0]["text/html"] == data[1]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data[0]
    assert "<img" not in data[0]["text/html"]
    assert "reward" in data[0]["text/html"]


def test_select_opens_the_way_and_shows_in_python(save: Path) -> None:
    browser = tdview.open(save)
    seen: list[Any] = []
    browser.observe(lambda change: seen.append(change["new"]), "selected")
    node = browser.select(("next", "reward"))
    assert node is not None
    assert node.dtype == "torch.float32"
    assert browser.selected == ("next", "reward")
    browser.select("obs")
    browser.select(())
    browser.select(None)
    assert seen == [("next", "reward"), ("obs",), (), None]
    with pytest.raises(KeyMissingError):
        browser.select("absent")


def test_a_selection_of_a_view_arrives_as_a_tuple(save: Path) -> None:
    browser = tdview.open(save)
    browser.set_state({"selected": ["next", "reward"]})
    assert browser.selected == ("next", "reward")
    assert browser.get_state("selected")["selected"] == ["next", "reward"]


def test_every_message_is_answered_once(save: Path, view_of: Callable[[Any], View]) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    bad = [None, 3, [], "x", {}, {"id": 5, "op": "x"}, {"id": "m", "op": "absent"}, {"id": "n", "op": 4}]
    for content in bad:
        view.say(content)
    assert len(view.heard) == len(bad)
    assert {message["kind"] for message in view.heard} == {"error"}
    for op in browser._router.ops:
        for args in ({}, {"path": 3}, {"path": ["absent"]}, {"path": [], "start": "x", "query": 3, "view": 7}):
            view.exchange(op, args)
    assert browser._router.running == 0


def test_children_come_in_pages(save: Path, view_of: Callable[[Any], View]) -> None:
    view = view_of(tdview.open(save))
    page = view.ask("tree.children", {"path": [], "start": 1, "count": 1})
    assert (page["start"], page["total"], [row["key"] for row in page["rows"]]) == (1, 3, [HOSTILE])
    assert view.ask("tree.children", {"path": [], "start": 9, "count": 5})["rows"] == []
    assert view.refused("tree.children", {"path": ["absent"]}) == "KeyMissingError"


def test_reload_sees_what_another_process_wrote(save: Path, view_of: Callable[[Any], View]) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    shutil.rmtree(save / "next")
    write_save(save, {"obs": ("float32", [6, 2]), "new": ("bool", [6])}, batch_size=[6])
    view.ask("reload")
    assert [row["key"] for row in browser._head["page"]["rows"]] == ["obs", "new"]
    assert browser._head["generation"] == 1
    assert len(view.events("reloaded")) == 1
    assert list(browser.root) == ["obs", "new"]


def test_a_reload_of_a_vanished_save_is_an_error_and_keeps_the_tree(
    save: Path, tmp_path: Path, view_of: Callable[[Any], View]
) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    save.rename(tmp_path / "elsewhere")
    assert view.refused("reload") == "MissingFileError"
    assert browser._head["generation"] == 0
    assert view.ask("tree.children", {"path": [], "start": 0, "count": 5})["total"] == 3


def test_a_browser_of_a_relative_path_stays_with_its_save(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(save.parent)
    browser = tdview.open(save.name)
    elsewhere = save.parent / "elsewhere"
    write_save(elsewhere / save.name, {"other": ("bool", [2])}, batch_size=[2])
    monkeypatch.chdir(elsewhere)
    browser.reload()
    assert list(browser.root) == ["obs", HOSTILE, "next"]
    assert browser._head["location"] == save.name
    assert set(browser.selection.tensors) == {("obs",), (HOSTILE,), ("next", "reward")}


def test_a_wide_save_is_counted_behind_the_first_paint(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    entries = {f"level{i:03d}": {f"leaf{j}": ("float32", [2]) for j in range(30)} for i in range(100)}
    browser = tdview.open(write_save(tmp_path / "wide", entries, batch_size=[2]))
    view = view_of(browser)
    assert not browser._head["counted"]
    assert "+ leaves" in repr(browser)
    assert len(browser._head["page"]["rows"]) == 100
    view.ask("summary")
    assert (browser._head["leaves"], browser._head["counted"]) == (3000, True)


def test_two_browsers_of_one_save_share_its_store(save: Path) -> None:
    assert tdview.open(save).root.store is tdview.open(save).root.store


def test_a_quick_request_waits_for_the_lock_of_the_store(save: Path, view_of: Callable[[Any], View]) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    message = {"id": "held", "op": "tree.children", "args": {"path": []}}
    asking = threading.Thread(target=lambda: view.say(message))
    with browser.root.store.lock:
        asking.start()
        asking.join(0.1)
        assert not view.answers("held")
    asking.join(5)
    view.wait("held")


def test_closing_ends_the_comm_and_answers_nobody(save: Path, view_of: Callable[[Any], View]) -> None:
    browser = tdview.open(save)
    view = view_of(browser)
    browser.close()
    assert browser.comm is None
    browser._router.handle({"id": "late", "op": "summary"})
    assert view.answers("late") == []


def test_importing_tdview_loads_no_widgets() -> None:
    code = "import sys, tdview; print([m for m in ('ipywidgets', 'anywidget', 'numpy', 'torch') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"

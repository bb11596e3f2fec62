from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdview
from tdview.errors import AlreadyExistsError, ArgumentError, Cancelled, NotSupportedError, ReadOnlyError
from tests.widgets.conftest import View
from tests.widgets.saves import write_save


def make(prefix: Path, rows: int = 6, fill: int = 1) -> Path:
    entries = {
        "obs": ("uint8", [rows, 4], bytes([fill]) * (4 * rows)),
        "next": {"reward": ("uint8", [rows, 1], bytes([fill]) * rows)},
    }
    return write_save(prefix, entries, batch_size=[rows])


@pytest.fixture
def save(tmp_path: Path) -> Path:
    return make(tmp_path / "run")


@pytest.fixture
def archive(save: Path, tmp_path: Path) -> Path:
    return tdview.pack_memmap(save, tmp_path / "run.tdz")


def test_pack_writes_an_archive_with_the_compression_that_was_chosen(
    save: Path, tmp_path: Path, view_of: Callable[[Any], View]
) -> None:
    view = view_of(tdview.open(save))
    args = {"path": str(tmp_path / "new.tdz"), "compression": "deflate", "existsok": False}
    reply = view.ask("pack", args)
    assert reply["path"] == args["path"]
    with zipfile.ZipFile(args["path"]) as packed:
        assert packed.getinfo("obs.memmap").compress_type == zipfile.ZIP_DEFLATED
    assert view.refused("pack", args) == "AlreadyExistsError"
    assert view.ask("pack", args | {"existsok": True})


def test_an_archive_is_packed_again_and_leaves_nothing_else(archive: Path, tmp_path: Path) -> None:
    before = archive.read_bytes()
    tdview.open(archive).pack(tmp_path / "again.tdz", compression="lzma")
    assert archive.read_bytes() == before
    assert bytes(tdview.scan(tmp_path / "again.tdz")["obs"].raw()) == bytes([1]) * 24
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.tdz", "again.tdz"}


def test_unpack_gives_the_directory_back(archive: Path, tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    view = view_of(tdview.open(archive))
    view.ask("unpack", {"path": str(tmp_path / "out")})
    assert list(tdview.scan(tmp_path / "out")) == ["obs", "next"]
    assert view.refused("unpack", {"path": str(tmp_path / "out")}) == "AlreadyExistsError"
    with pytest.raises(NotSupportedError):
        tdview.open(tmp_path / "out").unpack(tmp_path / "out2")


@pytest.mark.parametrize("args", [{}, {"path": ""}, {"path": 3}, {"path": "/absent/folder/x.tdz"}], ids=repr)
def test_a_path_that_cannot_be_written_is_refused(archive: Path, args: Any, view_of: Callable[[Any], View]) -> None:
    assert view_of(tdview.open(archive)).refused("pack", args) in ("ArgumentError", "MissingFileError")


def test_append_to_a_directory_shows_the_new_rows(save: Path, tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    make(tmp_path / "more", rows=2, fill=9)
    browser = tdview.open(save, mode="r+")
    view = view_of(browser)
    args = {"source": "path", "value": str(tmp_path / "more")}
    assert "2 rows behind 6" in view.ask("append.forecast", args)["message"]
    view.ask("append", args)
    assert browser.root["obs"].shape == (8, 4)
    assert browser._head["generation"] == 1
    assert len(view.events("reloaded")) == 1
    assert bytes(browser.root["next", "reward"].raw()) == bytes([1] * 6 + [9] * 2)


def test_append_to_an_archive_writes_a_new_one(archive: Path, tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    make(tmp_path / "more", rows=2)
    before = archive.read_bytes()
    view = view_of(tdview.open(archive))
    args = {"source": "path", "value": str(tmp_path / "more")}
    assert "new archive" in view.ask("append.forecast", args)["message"]
    assert view.refused("append", args) == "ArgumentError"
    view.ask("append", args | {"path": str(tmp_path / "longer.tdz")})
    assert tdview.scan(tmp_path / "longer.tdz").batch_size == (8,)
    assert archive.read_bytes() == before


def test_append_needs_a_writable_directory_and_rows(save: Path, view_of: Callable[[Any], View]) -> None:
    view = view_of(tdview.open(save))
    assert view.refused("append", {"source": "path", "value": str(save)}) == "ReadOnlyError"
    assert view.refused("append", {"source": "path", "value": " "}) == "ArgumentError"
    assert view.refused("append", {"source": "elsewhere", "value": "x"}) == "ArgumentError"
    assert view.refused("append", {"source": "variable", "value": "x"}) == "ArgumentError"
    assert view.ask("append.forecast", {"source": "path", "value": ""})["message"] == ""


def test_python_gets_the_errors_of_the_operations(save: Path, archive: Path, tmp_path: Path) -> None:
    browser = tdview.open(save)
    with pytest.raises(AlreadyExistsError):
        browser.pack(archive)
    with pytest.raises(ReadOnlyError):
        browser.append(tdview.load_memmap(save))
    with pytest.raises(ArgumentError):
        tdview.open(save, mode="r+").append(tdview.load_memmap(save), path=tmp_path / "x.tdz")


def test_a_stopped_pack_leaves_nothing_behind(archive: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        tdview.open(archive).pack(tmp_path / "again.tdz", progress=stop)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.tdz"}


def test_browsing_goes_on_while_a_save_is_packed(
    archive: Path, tmp_path: Path, view_of: Callable[[Any], View], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tdview.widgets import actions

    running, go_on = threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Path:
        running.set()
        go_on.wait(10)
        kwargs["progress"](1, 1)
        return archive

    monkeypatch.setattr(actions, "pack", slow)
    view = view_of(tdview.open(archive))
    view.say({"id": "long", "op": "pack", "args": {"path": str(tmp_path / "x.tdz")}})
    assert running.wait(5)
    assert view.ask("tree.children", {"path": []})["total"] == 2
    view.say({"id": "long", "op": "cancel"})
    go_on.set()
    assert view.wait("long")[0]["error"]["code"] == "cancelled"

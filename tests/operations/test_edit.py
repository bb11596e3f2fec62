"""Edits reach the file, can be taken back, are refused with a reason, and leave nothing else changed."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict

from tdview.analysis.verify import verify
from tdview.errors import (
    ConcurrentWriteError,
    DecodeError,
    EditRefusedError,
    KeyMissingError,
    NotSupportedError,
    ReadOnlyError,
)
from tdview.operations import edit as edit_module
from tdview.operations.edit import Editor, editor_of
from tdview.operations.unfinished import unfinished_edit
from tdview.storage.lock import writer_lock
from tdview.tree.scan import scan

gc.freeze()  # the leak check collects after each test: not torch's million objects, please

FORMS = ["run", "run.tdz"]


def source() -> TensorDict:
    return TensorDict(
        {
            "f": torch.arange(24.0).view(4, 3, 2),
            "i": torch.arange(4),
            "h": torch.zeros(4, dtype=torch.bfloat16),
            "note": NonTensorData("hello", batch_size=[4]),
            "next": TensorDict({"reward": torch.zeros(4, 1)}, batch_size=[4]),
        },
        batch_size=[4],
    )


@pytest.fixture(params=FORMS)
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    source().save(path)
    return path


def contents(path: Path) -> dict[str, bytes]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def test_an_edit_is_seen_by_tensordict_at_once(save: Path) -> None:
    editor = Editor(save)
    editor.edit("i", 2, 2**53 + 1)
    editor.edit(("next", "reward"), (1, 0), "7.5")
    editor.edit("f", (slice(None), 1), [[1, 2]])
    editor.edit("h", -1, np.float32(1.5))
    loaded = TensorDict.load_memmap(save)
    assert loaded["i"].tolist() == [0, 1, 2**53 + 1, 3]
    assert loaded["next", "reward"].flatten().tolist() == [0, 7.5, 0, 0]
    assert loaded["f"][:, 1].tolist() == [[1, 2]] * 4
    assert loaded["h"].tolist() == [0, 0, 0, 1.5]
    assert [edit.path for edit in editor.edits] == [("i",), ("next", "reward"), ("f",), ("h",)]
    assert (editor.edits[0].old, editor.edits[0].new, editor.edits[0].index) == (2, 2**53 + 1, (2,))
    assert editor.edits[2].old == [[2 + 6 * i, 3 + 6 * i] for i in range(4)]


def test_undo_gives_the_same_files_back(save: Path) -> None:
    before = contents(save)
    editor = Editor(save)
    for value in range(5):
        editor.edit("i", slice(1, 3), value)
    editor.refresh_checksums()
    for _ in range(5):
        editor.undo()
    with pytest.raises(EditRefusedError):
        editor.undo()
    editor.refresh_checksums()
    assert contents(save) == before
    for _ in range(5):
        editor.redo()
    with pytest.raises(EditRefusedError):
        editor.redo()
    assert TensorDict.load_memmap(save)["i"].tolist() == [0, 4, 4, 3]


def test_an_edit_after_undo_forgets_what_was_undone(save: Path) -> None:
    editor = Editor(save)
    editor.edit("i", 0, 5)
    editor.undo()
    editor.edit("i", 0, 6)
    assert editor.undone == ()
    assert [edit.new for edit in editor.edits] == [6]


@pytest.mark.parametrize(
    ("path", "index", "value", "error"),
    [
        ("i", 4, 1, EditRefusedError),
        ("i", (0, 0), 1, EditRefusedError),
        ("i", 0, 2**63, EditRefusedError),
        ("i", slice(0, 0), 1, EditRefusedError),
        ("f", 0, [1, 2, 3], EditRefusedError),
        ("next", 0, 1, EditRefusedError),
        ("no", 0, 1, KeyMissingError),
        ("note", 0, "x", (EditRefusedError, NotSupportedError)),
        ((), 0, "x", EditRefusedError),
    ],
)
def test_a_refused_edit_touches_nothing(save: Path, path: str, index: object, value: object, error: type) -> None:
    before = contents(save.parent)
    editor = Editor(save)
    with pytest.raises(error):
        editor.edit(path, index, value)
    assert contents(save.parent) == before


def test_read_only_is_read_only(save: Path) -> None:
    before = contents(save.parent)
    with pytest.raises(ReadOnlyError):
        Editor(scan(save))
    assert contents(save.parent) == before


def test_too_large_an_edit_is_refused(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_module, "LARGEST_EDIT", 8)
    with pytest.raises(EditRefusedError):
        Editor(save).edit("i", ..., 0)


# -- the journal ----------------------------------------------------------------------------------------------------


def test_a_later_process_can_undo(save: Path) -> None:
    before = contents(save)
    editor = Editor(save)
    editor.edit("i", 0, 9)
    editor.edit("f", 0, 1)
    editor.undo()
    later = Editor(save)
    assert [edit.new for edit in later.edits] == [9]
    assert later.redo().path == ("f",)
    later.undo()
    later.undo()
    assert contents(save) == before


def test_without_a_journal_nothing_is_written_beside(save: Path) -> None:
    editor = Editor(save, journal=False)
    editor.edit("i", 0, 9)
    assert [path.name for path in save.parent.iterdir()] == [save.name]
    editor.reload()
    editor.undo()
    assert TensorDict.load_memmap(save)["i"][0] == 0


def test_forget_makes_edits_final(save: Path) -> None:
    editor = Editor(save)
    editor.edit("i", 0, 9)
    editor.forget()
    assert editor.edits == ()
    assert [path.name for path in save.parent.iterdir()] == [save.name]
    editor.edit("i", 0, 8)
    assert editor.edits[0].old == 9


def test_two_editors_of_one_save_share_the_history(save: Path) -> None:
    one, two = Editor(save), Editor(save)
    one.edit("i", 0, 1)
    two.edit("i", 0, 2)
    assert [edit.new for edit in two.edits] == [1, 2]
    assert one.undo().new == 2
    assert one.undo().new == 1
    with pytest.raises(EditRefusedError):
        two.undo()
    assert two.redo().new == 1


def test_an_edit_waits_for_an_append_or_pack(save: Path) -> None:
    before = contents(save.parent)
    editor = Editor(save)
    with writer_lock(save, shared=True):
        with pytest.raises(ConcurrentWriteError):
            editor.edit("i", 0, 1)
        assert contents(save.parent) == before
    editor.edit("i", 0, 1)


def test_browsers_of_one_save_share_the_editor(save: Path) -> None:
    root, other = scan(save, "r+"), scan(save, "r+")
    assert editor_of(root) is editor_of(other)


def test_undo_leaves_alone_what_somebody_else_changed(save: Path) -> None:
    editor = Editor(save)
    editor.edit("i", 0, 1)
    editor.edit("i", 1, 5)
    other = Editor(save, journal=False)
    other.edit("i", 1, 6)
    with pytest.raises(ConcurrentWriteError):
        editor.undo()
    assert TensorDict.load_memmap(save)["i"].tolist()[:2] == [1, 6]
    other.edit("i", 1, 5)
    editor.undo()
    editor.undo()
    assert TensorDict.load_memmap(save)["i"].tolist()[:2] == [0, 1]


def test_a_damaged_journal_stops_edits_until_it_is_moved_away(save: Path) -> None:
    editor = Editor(save)
    editor.edit("i", 0, 1)
    journal = editor.journal
    assert journal is not None
    data = journal.read_bytes()
    journal.write_bytes(data[:60] + b"\0\0\0" + data[63:])
    later = Editor(save)
    assert isinstance(later.problem, DecodeError)
    with pytest.raises(DecodeError):
        later.edit("i", 0, 2)
    with pytest.raises(DecodeError):
        later.undo()
    journal.rename(save.parent / "aside")
    later.edit("i", 0, 2)
    assert TensorDict.load_memmap(save)["i"][0] == 2


def journal_of(save: Path, **head: object) -> None:
    """A journal with one finished edit of which some facts are false."""
    editor = Editor(save)
    editor.edit("i", 0, 1)
    record = editor._history.applied[0]
    contents = editor._journal.contents(record)
    editor.forget()
    journal = editor._journal
    with journal.locked():
        journal.sync()
        journal.append("edit", 1, {**record.head, **head}, *contents)
        journal.append("done", 1, {})


@pytest.mark.parametrize(
    "head",
    [
        {"name": "../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"name": 5},
        {"name": "no.memmap"},
        {"region": {"shape": [], "base": 1 << 40, "axes": [], "run": 8}},
        {"region": {"shape": [], "base": 0, "axes": [[0, 1, 1 << 60]], "run": 8}},
        {"region": {}},
        {"nbytes": 1 << 62},
        {"nbytes": "x"},
        {"path": 3},
        {"index": "x"},
        {"index": [{"slice": [0]}]},
        {"dtype": "torch.float7"},
        {"dtype": 5},
        {"shape": [7]},
        {"shape": [-1, -1]},
        {"time": 1e300},
        {"time": None},
    ],
)
def test_a_hostile_journal_reaches_nothing(save: Path, head: dict[str, object]) -> None:
    journal_of(save, **head)
    before = contents(save)
    editor = Editor(save)
    repr(editor.edits)
    with pytest.raises((DecodeError, ConcurrentWriteError, ReadOnlyError)):
        editor.undo()
    assert contents(save) == before


def test_a_journal_cannot_replace_a_file_that_holds_no_value(save: Path) -> None:
    editor = Editor(save)
    with editor._journal.locked():
        editor._journal.append("edit", 1, {"path": [], "index": [], "name": "i.memmap"}, b"", b"x")
        editor._journal.append("done", 1, {})
    with pytest.raises(DecodeError):
        Editor(save).undo()


# -- checksums ------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "run.tdz"
    source().save(path)
    return path


def test_checksums_follow_edits(archive: Path) -> None:
    editor = Editor(archive)
    assert editor.stale_checksums == ()
    editor.edit("f", (slice(None), slice(None), 1), [[-1, -2, -3]])
    editor.edit("i", 0, 1)
    assert editor.stale_checksums == ("f.memmap", "i.memmap")
    assert zipfile.ZipFile(archive).testzip() is not None
    editor.undo()
    assert editor.stale_checksums == ("f.memmap",)
    assert Editor(archive).stale_checksums == ("f.memmap",)
    assert editor.refresh_checksums() == ("f.memmap",)
    assert editor.stale_checksums == () == editor.refresh_checksums()
    assert zipfile.ZipFile(archive).testzip() is None
    editor.undo()
    assert editor.stale_checksums == ("f.memmap",)
    assert Editor(archive).refresh_checksums() == ("f.memmap",)
    assert zipfile.ZipFile(archive).testzip() is None


def test_local_headers_are_refreshed_as_well(archive: Path) -> None:
    editor = Editor(archive)
    editor.edit("i", 0, 1)
    editor.refresh_checksums()
    if shutil.which("unzip"):
        assert subprocess.run(["unzip", "-tqq", str(archive)], check=False).returncode == 0
    data = archive.read_bytes()
    for info in zipfile.ZipFile(archive).infolist():
        assert data[info.header_offset + 14 : info.header_offset + 18] == info.CRC.to_bytes(4, "little")


class Stream:
    """A file that cannot seek."""

    def __init__(self, raw: object) -> None:
        self.write, self.flush = raw.write, raw.flush  # type: ignore[attr-defined]


def test_checksums_behind_the_content_are_refreshed(tmp_path: Path) -> None:
    """Archives that a tool wrote as a stream keep the checksum in a data descriptor."""
    source().save(tmp_path / "run")
    path = tmp_path / "streamed.tdz"
    with path.open("wb") as raw, zipfile.ZipFile(Stream(raw), "w") as out:  # type: ignore[arg-type]
        for file in sorted((tmp_path / "run").rglob("*")):
            if file.is_file():
                out.write(file, file.relative_to(tmp_path / "run"))
    editor = Editor(path)
    editor.edit("i", 0, 3)
    assert editor.refresh_checksums() == ("i.memmap",)
    assert zipfile.ZipFile(path).testzip() is None
    info = zipfile.ZipFile(path).getinfo("i.memmap")
    assert info.flag_bits & 8
    assert info.CRC.to_bytes(4, "little") in path.read_bytes()[info.header_offset + 30 : info.header_offset + 120]


def test_a_refresh_by_another_program_is_believed(archive: Path) -> None:
    import tensordict

    editor = Editor(archive)
    editor.edit("i", 0, 1)
    loaded = TensorDict.load_memmap(archive, mode="r+")
    loaded["i"][3] = 77
    del loaded
    tensordict.refresh_archive_checksums(archive)
    assert editor.stale_checksums == ()
    editor.edit("i", 1, 2)
    editor.refresh_checksums()
    assert zipfile.ZipFile(archive).testzip() is None


def test_two_editors_refresh_each_others_edits(archive: Path) -> None:
    one, two = Editor(archive), Editor(archive, journal=True)
    one.edit("i", 0, 1)
    two.edit("i", 1, 2)
    one.refresh_checksums()
    assert zipfile.ZipFile(archive).testzip() is None
    two.edit("i", 2, 3)
    two.refresh_checksums()
    assert zipfile.ZipFile(archive).testzip() is None
    assert one.stale_checksums == () == two.stale_checksums


def test_a_replaced_archive_is_not_written(archive: Path) -> None:
    editor = Editor(archive)
    editor.edit("i", 0, 1)
    other = archive.parent / "other.tdz"
    TensorDict({"x": torch.zeros(9), "i": torch.zeros(4)}, batch_size=[]).save(other)
    os.replace(other, archive)
    before = archive.read_bytes()
    for act in (lambda: editor.edit("i", 0, 1), editor.undo, editor.refresh_checksums):
        with pytest.raises(ConcurrentWriteError):
            act()
    assert archive.read_bytes() == before
    editor.reload()
    editor.edit("i", 0, 1.5)
    assert TensorDict.load_memmap(archive)["i"][0] == 1.5


def test_a_compressed_payload_is_refused(tmp_path: Path) -> None:
    TensorDict({"a": torch.zeros(1000)}, batch_size=[]).memmap(tmp_path / "c.tdz", compression="deflate")
    before = contents(tmp_path)
    with pytest.raises(NotSupportedError):
        Editor(tmp_path / "c.tdz").edit("a", 0, 1)
    assert contents(tmp_path) == before


# -- what is not a plain leaf ------------------------------------------------------------------------------------------


def test_values_are_replaced_in_a_directory(tmp_path: Path) -> None:
    td = source()
    td["stack"] = NonTensorStack("a", "b", "c", "d")
    td.save(tmp_path / "run")
    before = contents(tmp_path / "run")
    editor = Editor(tmp_path / "run")
    editor.edit("note", (), {"a": [1, None, 2.5]})
    editor.edit("stack", 2, "ü")
    editor.edit("stack", slice(0, 2), 5)
    loaded = TensorDict.load_memmap(tmp_path / "run")
    assert loaded["note"] == {"a": [1, None, 2.5]}
    assert loaded["stack"].tolist() == [5, 5, "ü", "d"]
    assert [(edit.old, edit.new) for edit in editor.edits] == [
        ("hello", {"a": [1, None, 2.5]}),
        ("c", "ü"),
        (["a", "b"], [5, 5]),
    ]
    for value in ({1: 2}, {"a": {3}}, b"x", object(), [1j]):
        with pytest.raises(EditRefusedError):
            editor.edit("note", (), value)
    for _ in range(3):
        editor.undo()
    assert contents(tmp_path / "run") == before


def test_values_keep_the_style_of_their_file(tmp_path: Path) -> None:
    source().save(tmp_path / "run")
    meta = tmp_path / "run" / "note" / "meta.json"
    for separators, ascii_only in ((None, True), ((",", ":"), True), ((",", ":"), False)):
        fields = {**json.loads(meta.read_text()), "data": "é"}
        meta.write_text(json.dumps(fields, separators=separators, ensure_ascii=ascii_only))
        Editor(tmp_path / "run", journal=False).edit("note", (), "ö")
        expected = json.dumps({**fields, "data": "ö"}, separators=separators, ensure_ascii=ascii_only)
        assert meta.read_text() == expected


def test_a_pickled_value_is_never_rewritten(tmp_path: Path) -> None:
    TensorDict({"s": NonTensorData({1, 2})}, batch_size=[]).save(tmp_path / "run")
    with pytest.raises(EditRefusedError):
        Editor(tmp_path / "run").edit("s", (), "x")


def test_members_of_a_lazy_stack_are_edited(tmp_path: Path) -> None:
    parts = [TensorDict({"a": torch.zeros(2 + i)}, batch_size=[]) for i in range(2)]
    LazyStackedTensorDict(*parts, stack_dim=0).save(tmp_path / "run")
    Editor(tmp_path / "run").edit(("1", "a"), 2, 5)
    assert TensorDict.load_memmap(tmp_path / "run")[1]["a"].tolist() == [0, 0, 5]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_components_of_a_nested_tensor_are_edited(tmp_path: Path) -> None:
    parts = [torch.zeros(2, 3), torch.zeros(1, 3)]
    td = TensorDict({"n": torch.nested.nested_tensor(parts, layout=torch.strided)}, batch_size=[2])
    td.save(tmp_path / "run")
    editor = Editor(tmp_path / "run")
    editor.edit("n", (1, 0, 2), 5)
    editor.edit("n", (0, slice(None), 1), [1, 2])
    loaded = [part.tolist() for part in TensorDict.load_memmap(tmp_path / "run")["n"].unbind(0)]
    assert loaded == [[[0, 1, 0], [0, 2, 0]], [[0, 0, 5]]]
    for index in (slice(None), 2, (1, 1, 0)):
        with pytest.raises(EditRefusedError):
            editor.edit("n", index, 0)
    editor.undo()
    assert [edit.index for edit in editor.edits] == [(1, 0, 2)]


# -- a kill between journal and data -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from tdview.operations import target
from tdview.operations.edit import Editor
from tdview.operations.journal import FileJournal

save, moment, action = sys.argv[1:]
editor = Editor(save)
die = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
if moment == "before":
    target.PayloadTarget.write = die
elif moment == "amid":
    write = target.PayloadTarget.write
    def half(self, store, data):
        store.write_at(self.name, self.region.base, data[: self.region.run // 2 or 1])
        die()
    target.PayloadTarget.write = half
else:
    append = FileJournal.append
    FileJournal.append = lambda self, kind, *rest: die() if kind == "done" else append(self, kind, *rest)
if action == "edit":
    editor.edit("f", (slice(0, 3), 1), 1234.5)
else:
    getattr(editor, action)()
"""


@pytest.mark.parametrize("action", ["edit", "undo", "redo"])
@pytest.mark.parametrize(("moment", "happened"), [("before", False), ("amid", False), ("after", True)])
def test_a_killed_edit_happened_or_not(save: Path, action: str, moment: str, happened: bool) -> None:
    editor = Editor(save)
    editor.edit("i", 0, 1)
    if action != "edit":
        editor.edit("f", (slice(0, 3), 1), 77.25)
    if action == "redo":
        editor.undo()
    before = TensorDict.load_memmap(save)["f"].clone()
    count = len(editor.edits)
    del editor
    result = subprocess.run([sys.executable, "-c", KILLED, str(save), moment, action], check=False)
    assert result.returncode == -9
    before_open = contents(save.parent)
    found = [problem.key for problem in verify(save, checksums=False).problems if problem.code == "interrupted_edit"]
    assert found == ([("f",)] if moment == "amid" else [])
    assert contents(save.parent) == before_open
    later = Editor(save)
    assert unfinished_edit(later.root) is None
    step = {"edit": 1, "undo": -1, "redo": 1}[action] if happened else 0
    assert later.problem is None
    assert len(later.edits) == count + step
    assert torch.equal(TensorDict.load_memmap(save)["f"], before) is not happened
    later.refresh_checksums()
    if save.is_file():
        assert zipfile.ZipFile(save).testzip() is None
    while later.edits:
        later.undo()
    later.refresh_checksums()
    assert torch.equal(TensorDict.load_memmap(save)["f"], source()["f"])
    if save.is_file():
        assert zipfile.ZipFile(save).testzip() is None


def test_a_failed_write_is_taken_back(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Editor(save)
    write = edit_module.PayloadTarget.write

    def fail_once(self: edit_module.PayloadTarget, store: object, data: bytes) -> None:
        monkeypatch.setattr(edit_module.PayloadTarget, "write", write)
        store.write_at(self.name, self.region.base, data[:1])  # type: ignore[attr-defined]
        raise OSError("the disk is gone")

    monkeypatch.setattr(edit_module.PayloadTarget, "write", fail_once)
    with pytest.raises(OSError, match="gone"):
        editor.edit("i", 0, 2**40 + 255)
    assert editor.edits == ()
    assert TensorDict.load_memmap(save)["i"][0] == 0
    assert editor.edit("i", 0, 1).id == 2


def test_listeners_are_told_and_not_kept(save: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.told: list[object] = []

        def tell(self, edit: object) -> None:
            self.told.append(edit)

    editor = Editor(save)
    listener = Listener()
    editor.subscribe(listener.tell)
    edit = editor.edit("i", 0, 1)
    editor.undo()
    assert [told.id for told in listener.told] == [edit.id, edit.id]  # type: ignore[attr-defined]
    del listener
    editor.redo()
    assert editor._listeners == []


def test_an_editor_of_a_relative_path_stays_with_its_save(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(save.parent)
    editor = Editor(save.name)
    elsewhere = save.parent / "elsewhere"
    elsewhere.mkdir()
    source().save(elsewhere / save.name)
    untouched = contents(elsewhere)
    monkeypatch.chdir(elsewhere)
    editor.edit("i", 0, 7)
    editor.reload()
    editor.edit("i", 1, 8)
    assert scan(save)["i"].numpy()[:2].tolist() == [7, 8]
    assert editor.journal == save.parent / f"{save.name}.tdview-journal"
    assert contents(elsewhere) == untouched

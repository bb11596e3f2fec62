"""A journal gives back what was put in, survives a kill at any byte, and tells a damaged or foreign file apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tdview.errors import ConcurrentWriteError, DecodeError, EditRefusedError, ReadOnlyError
from tdview.operations.history import History
from tdview.operations.journal import FileJournal, MemoryJournal, Record, journal_path
from tdview.storage.lock import lock_writer


def filled(path: Path) -> list[Record]:
    journal = FileJournal(path)
    with journal.locked():
        journal.sync()
        return [
            journal.append("edit", 1, {"name": "a"}, b"old", b"new"),
            journal.append("done", 1, {}),
            journal.append("undo", 1, {"name": "a"}),
        ]


def test_records_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.tdview-journal"
    records = filled(path)
    journal = FileJournal(path)
    assert journal.sync() == (False, records)
    assert journal.sync() == (False, [])
    assert journal.contents(records[0]) == (b"old", b"new")
    with journal.locked():
        records.append(journal.append("done", 1, {}))
    assert journal.sync() == (False, [])
    assert FileJournal(path).sync() == (False, records)


def test_no_file_before_the_first_record(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "a.tdview-journal")
    assert journal.sync() == (False, [])
    with journal.locked():
        journal.sync()
    assert list(tmp_path.iterdir()) == []


def test_a_cut_at_any_byte_leaves_the_records_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tdview-journal"
    records = filled(path)
    data = path.read_bytes()
    ends = [record.place + record.old_nbytes + record.new_nbytes for record in records]
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        journal = FileJournal(path)
        with journal.locked():
            found = journal.sync()[1]
            assert found == records[: sum(end <= cut for end in ends)]
            added = journal.append("void", 7, {}, b"x" * 9)
        assert FileJournal(path).sync()[1] == [*found, added]


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tdview-journal"
    records = filled(path)
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        journal = FileJournal(path)
        try:
            found = journal.sync()[1]
            contents = [journal.contents(record) for record in found]
        except DecodeError:
            continue
        # A size that grew reads like a record that was not finished, and everything before it is whole.
        assert found == records[: len(found)]
        assert len(found) < len(records)
        assert contents == [(b"old", b"new"), (b"", b"")][: len(found)]


@pytest.mark.parametrize("data", [b"something else", b"\0" * 100, b"tdview-journal 2\n"])
def test_a_foreign_file_is_refused_and_kept(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.tdview-journal"
    path.write_bytes(data)
    journal = FileJournal(path)
    with pytest.raises(DecodeError), journal.locked():
        journal.sync()
    assert path.read_bytes() == data


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "a.tdview-journal").symlink_to("target")
    with pytest.raises(ReadOnlyError), FileJournal(tmp_path / "a.tdview-journal").locked():
        pass


def test_a_removed_or_replaced_journal_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tdview-journal"
    records = filled(path)
    journal = FileJournal(path)
    journal.sync()
    data = path.read_bytes()
    path.unlink()
    assert journal.sync() == (True, [])
    path.write_bytes(data)
    assert journal.sync() == (False, records)
    other = tmp_path / "other"
    other.write_bytes(data)
    os.replace(other, path)
    assert journal.sync() == (True, records)


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdview.operations.journal._LOCK_SECONDS", 0.05)
    path = tmp_path / "a.tdview-journal"
    filled(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        lock_writer(fd, path)
        with pytest.raises(ConcurrentWriteError), FileJournal(path).locked():
            pass
    finally:
        os.close(fd)


def test_an_index_that_fills_the_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdview.operations.journal._HEAD_LIMIT", 100)
    journal = FileJournal(tmp_path / "a.tdview-journal")
    with pytest.raises(EditRefusedError), journal.locked():
        journal.append("edit", 1, {"index": list(range(100))})
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReadOnlyError), FileJournal(tmp_path / "no" / "a.tdview-journal").locked():
        pass


def test_memory_keeps_contents() -> None:
    journal = MemoryJournal()
    with journal.locked():
        record = journal.append("edit", 1, {}, b"a", b"b")
    assert journal.contents(record) == (b"a", b"b")


def test_the_journal_lies_beside_the_outermost_save(tmp_path: Path) -> None:
    inner = tmp_path / "run" / "next" / "deep"
    inner.mkdir(parents=True)
    for level, child in ((inner, ""), (inner.parent, "deep"), (inner.parent.parent, "next")):
        (level / "meta.json").write_text(json.dumps({child: {"type": "TensorDict"}, "shape": []}))
    (tmp_path / "meta.json").write_text("{}")  # a stray file, or of another save: it names no run
    assert journal_path(tmp_path / "run") == tmp_path / "run.tdview-journal"
    assert journal_path(inner) == tmp_path / "run.next.deep.tdview-journal"
    storage = tmp_path / "dump" / "storage"
    storage.mkdir(parents=True)
    (storage / "storage_metadata.json").write_text("{}")
    assert journal_path(storage) == tmp_path / "dump.storage.tdview-journal"
    (tmp_path / "link.tdz").symlink_to("real.tdz")
    assert journal_path(tmp_path / "link.tdz") == tmp_path / "real.tdz.tdview-journal"


@pytest.mark.parametrize(
    "actions",
    [
        [("done", 1)],
        [("undo", 1)],
        [("edit", 1), ("edit", 2)],
        [("edit", 1), ("done", 2)],
        [("edit", 1), ("done", 1), ("redo", 1)],
        [("edit", 1), ("done", 1), ("edit", 1)],
        [("edit", 1), ("done", 1), ("undo", 2)],
    ],
)
def test_records_out_of_order_are_damage(actions: list[tuple[str, int]]) -> None:
    history = History()
    records = [Record(action, ident, {}) for action, ident in actions]  # type: ignore[arg-type]
    for record in records[:-1]:
        history.apply(record)
    with pytest.raises(DecodeError):
        history.apply(records[-1])


def test_history_follows_edits_and_their_undo() -> None:
    history = History()
    for action, ident in [("edit", 1), ("done", 1), ("edit", 2), ("void", 2), ("edit", 3), ("done", 3), ("undo", 3)]:
        history.apply(Record(action, ident, {}))  # type: ignore[arg-type]
    assert [record.id for record in history.applied] == [1, 3]
    history.apply(Record("done", 3, {}))
    assert ([r.id for r in history.applied], [r.id for r in history.undone]) == ([1], [3])
    history.apply(Record("edit", 4, {}))
    history.apply(Record("done", 4, {}))
    assert ([r.id for r in history.applied], history.undone) == ([1, 4], [])

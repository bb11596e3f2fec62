"""What an interrupted save leaves is told apart by who left it, and ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

import tdview
from tdview.errors import ConcurrentWriteError
from tdview.operations.recover import recover_save
from tdview.operations.write import write_directory
from tdview.storage.lock import is_locked, writer_lock
from tdview.storage.staging import Stage, find_stages, new_file, stage_outcome
from tests.operations.sources import contents, on_disk, source

OLD = source({"a": b"old"}, 3)
NEW = source({"a": b"new", "n": {"b": b"xyz"}}, 3)


def codes(path: Path) -> list[str]:
    return [problem.code for problem in tdview.verify(path).problems]


def test_a_stage_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    with Stage(tmp_path, tmp_path / "s") as stage:
        assert find_stages(tmp_path / "s") == []
        assert codes(tmp_path / "s") == []
        assert recover_save(tmp_path / "s") is None
    assert find_stages(tmp_path / "s") == [stage.path]
    assert codes(tmp_path / "s") == ["interrupted_save"]
    assert recover_save(tmp_path / "s") == "discarded"
    assert os.listdir(tmp_path) == ["s"]


def test_stages_of_other_saves_are_left_alone(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    with Stage(tmp_path, tmp_path / "other") as stage:
        pass
    assert recover_save(tmp_path / "s") is None
    assert codes(tmp_path / "s") == []
    assert recover_save(tmp_path / "other") == "discarded"
    assert not stage.path.exists()


def test_a_save_that_was_killed_between_its_renames_is_completed(tmp_path: Path) -> None:
    target = tmp_path / "s"
    write_directory(OLD, target)
    with Stage(tmp_path, target) as stage:
        os.rmdir(stage.new)
        write_directory(NEW, stage.new)
        os.rename(target, stage.path / "old")
    assert stage_outcome(stage.path, target) == "completed"
    assert recover_save(target) == "completed"
    assert on_disk(target) == contents(NEW)
    assert os.listdir(tmp_path) == ["s"]


def test_the_old_save_comes_back_when_the_new_one_is_incomplete(tmp_path: Path) -> None:
    target = tmp_path / "s"
    write_directory(OLD, target)
    with Stage(tmp_path, target) as stage:
        os.rename(target, stage.path / "old")
    assert recover_save(target) == "restored"
    assert on_disk(target) == contents(OLD)


def test_a_stage_of_tensordict_counts_only_while_the_target_is_missing(tmp_path: Path) -> None:
    target, stage = tmp_path / "s", tmp_path / ".tdtmp-ab12"
    write_directory(NEW, stage / "new")
    write_directory(OLD, stage / "old")
    write_directory(OLD, target)
    assert recover_save(target) is None
    assert codes(target) == ["interrupted_save"]
    os.rename(target, tmp_path / "elsewhere")
    assert recover_save(target) == "completed"
    assert on_disk(target) == contents(NEW)


def fail_halfway(path: Path) -> list[str]:
    """What lies beside a new file while it is written, in a write that fails then."""
    seen: list[str] = []
    with suppress(KeyError), new_file(path) as fd:
        os.write(fd, b"half")
        seen += os.listdir(path.parent)
        raise KeyError
    assert os.listdir(path.parent) == []
    return seen


def test_a_file_without_a_name_leaves_nothing(tmp_path: Path) -> None:
    assert fail_halfway(tmp_path / "a.tdz") == []


def test_file_systems_without_unnamed_files_get_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    assert len(fail_halfway(tmp_path / "a.tdz")) == 1
    for text in (b"one", b"two"):
        with new_file(tmp_path / "a.tdz") as fd:
            os.write(fd, text)
        assert (tmp_path / "a.tdz").read_bytes() == text
    assert os.listdir(tmp_path) == ["a.tdz"]


def test_a_lock_ends_with_its_holder_and_leaves_no_file(tmp_path: Path) -> None:
    with writer_lock(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(ConcurrentWriteError), writer_lock(tmp_path, shared=True):
            pass
    with writer_lock(tmp_path, shared=True), writer_lock(tmp_path, shared=True):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    assert os.listdir(tmp_path) == []

"""Saving into a directory and into an archive: what is written, what is refused, and what a fault leaves."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tdview.errors import AlreadyExistsError, ArgumentError, ConcurrentWriteError, EncodeError, NotDirectoryError
from tdview.operations.recover import recover_save
from tdview.operations.source import SourceFile, SourceLevel
from tdview.operations.write import write_archive, write_directory
from tdview.storage.lock import writer_lock
from tdview.testing.faults import Crash, FaultKind, inject
from tests.operations.sources import contents, on_disk, source

OLD = source({"a": b"old", "gone": b"abc", "sub": {"b": b"x" * 30, "lost": {"z": b"123"}}}, 3)
NEW = source({"a": b"n" * 6000, "sub": {"b": b"y" * 9}, "more": {"c d": b"z" * 3}}, 3)


def names_left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- directory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
def test_a_new_directory_holds_every_file_of_the_source(tmp_path: Path, threads: int) -> None:
    told: list[tuple[int, int]] = []
    write_directory(NEW, tmp_path / "x" / "s", num_threads=threads, progress=lambda *now: told.append(now))
    assert on_disk(tmp_path / "x" / "s") == contents(NEW)
    assert told[-1] == (6012, 6012)


@pytest.mark.parametrize(("threads", "told"), [(0, False), (0, True), (1, False)])
def test_only_large_files_are_written_by_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, told: bool
) -> None:
    monkeypatch.setattr("tdview.operations.write._LARGE", 1000)
    monkeypatch.setattr("tdview.operations.write.worker_count", lambda _asked: 2)
    here: dict[str, bool] = {}

    def file(name: str, nbytes: int) -> SourceFile:
        def blocks() -> Iterator[bytes]:
            here[name] = threading.current_thread() is threading.main_thread()
            yield bytes(nbytes)

        return SourceFile(name=name, nbytes=nbytes, blocks=blocks)

    level = SourceLevel(name="", meta=b"{}", files=(file("a", 1000), file("b", 10), file("c", 1000)))
    write_directory(level, tmp_path / "s", num_threads=threads, progress=(lambda *_: None) if told else None)
    seen = dict(here)
    assert on_disk(tmp_path / "s") == contents(level)
    apart = threads == 0 and not told
    assert seen == {"a": not apart, "b": True, "c": not apart}


@pytest.mark.parametrize("atomic", [False, True])
def test_a_new_save_leaves_nothing_of_the_old_one(tmp_path: Path, atomic: bool) -> None:
    write_directory(OLD, tmp_path / "s")
    write_directory(NEW, tmp_path / "s", atomic=atomic)
    assert on_disk(tmp_path / "s") == contents(NEW)
    assert not (tmp_path / "s" / "sub" / "lost").exists()
    assert names_left(tmp_path) == ["s"]


def test_files_of_others_stay_when_a_save_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_directory(OLD, root)
    write_directory(OLD, root / "another")
    (root / "notes.txt").write_text("mine")
    (root / "sub" / "lost" / "plot.png").write_text("mine")
    write_directory(NEW, root)
    kept = {f"another/{name}": data for name, data in contents(OLD).items()}
    assert on_disk(root) == {**contents(NEW), **kept, "notes.txt": b"mine", "sub/lost/plot.png": b"mine"}


def test_stale_side_files_and_temporaries_go_away(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_directory(OLD, root)
    for name in ("other.pickle", "json_types.json", "sub/pickle.pkl", "sub/.meta.json.append.tmp"):
        (root / name).write_bytes(b"stale")
    write_directory(NEW, root)
    assert on_disk(root) == contents(NEW)


def test_members_of_a_longer_lazy_stack_go_away(tmp_path: Path) -> None:
    def stack(count: int) -> SourceLevel:
        members = tuple(source({"a": b"x"}, 1, str(i)) for i in range(count))
        meta = b'{"_type": "<class \'tensordict._lazy.LazyStackedTensorDict\'>", "stack_dim": 0}'
        return SourceLevel(name="", meta=meta, levels=members)

    write_directory(stack(12), tmp_path / "s")
    write_directory(stack(2), tmp_path / "s")
    assert on_disk(tmp_path / "s") == contents(stack(2))


def test_a_reader_that_mapped_the_old_files_keeps_the_old_values(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    with open(tmp_path / "s" / "a.memmap", "rb") as file:
        write_directory(NEW, tmp_path / "s")
        assert file.read() == b"old"


def test_a_leaf_that_lies_at_its_place_is_not_written_again(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_directory(OLD, root)
    before = os.stat(root / "a.memmap").st_ino

    def refuse() -> Iterator[bytes]:
        raise AssertionError("the bytes were asked for")
        yield b""

    file = SourceFile(name="a.memmap", nbytes=3, blocks=refuse, mapped_at=root / "a.memmap")
    write_directory(SourceLevel(name="", meta=OLD.meta, files=(file,)), root)
    assert os.stat(root / "a.memmap").st_ino == before
    assert (root / "a.memmap").read_bytes() == b"old"


def test_zeros_are_written_as_a_hole(tmp_path: Path) -> None:
    level = SourceLevel(name="", meta=b"{}", files=(SourceFile(name="a.memmap", nbytes=1 << 26, blocks=None),))
    write_directory(level, tmp_path / "s")
    status = os.stat(tmp_path / "s" / "a.memmap")
    assert status.st_size == 1 << 26
    assert status.st_blocks * 512 < 1 << 20


def test_existing_files_are_refused_before_the_first_write(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    with pytest.raises(AlreadyExistsError):
        write_directory(NEW, tmp_path / "s", existsok=False)
    with pytest.raises(AlreadyExistsError):
        write_directory(NEW, tmp_path / "s", existsok=False, atomic=True)
    assert on_disk(tmp_path / "s") == contents(OLD)
    (tmp_path / "empty").mkdir()
    write_directory(NEW, tmp_path / "empty", existsok=False)
    assert on_disk(tmp_path / "empty") == contents(NEW)


def test_an_atomic_save_replaces_nothing_but_saves(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.tex").write_text("mine")
    with pytest.raises(AlreadyExistsError):
        write_directory(NEW, tmp_path / "d", atomic=True)
    for atomic in (False, True):
        with pytest.raises(NotDirectoryError):
            write_directory(NEW, tmp_path / "d" / "thesis.tex", atomic=atomic)
    assert on_disk(tmp_path / "d") == {"thesis.tex": b"mine"}


def test_symlinks_in_the_way_are_refused(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "s" / "more").symlink_to(outside)
    with pytest.raises(EncodeError) as raised:
        write_directory(NEW, tmp_path / "s")
    assert raised.value.problems[0].code == "link"
    (tmp_path / "s" / "more").unlink()
    (tmp_path / "s" / "a.memmap").unlink()
    (tmp_path / "s" / "a.memmap").symlink_to(outside / "a")
    with pytest.raises(EncodeError):
        write_directory(NEW, tmp_path / "s")
    assert names_left(outside) == []


def test_entries_that_ask_for_one_file_are_refused(tmp_path: Path) -> None:
    leaf = SourceFile.of("x.memmap", b"1", payload=True)
    nested = SourceLevel(name="x.memmap", meta=b"{}")
    for level in (
        SourceLevel(name="", meta=b"{}", files=(leaf,), levels=(nested,)),
        SourceLevel(name="", meta=b"{}", files=(leaf, leaf)),
        SourceLevel(name="", meta=b"{}", levels=(SourceLevel(name="meta.json", meta=b"{}"),)),
    ):
        with pytest.raises(EncodeError) as raised:
            write_directory(level, tmp_path / "s")
        assert raised.value.problems[0].code == "name_collision"
        with pytest.raises(EncodeError):
            write_archive(level, tmp_path / "s.tdz")
    assert names_left(tmp_path) == []


@pytest.mark.parametrize("name", ["../x.memmap", "a/b.memmap", "", "..", "x\0", "é" * 130, "\ud800.memmap", "a" * 256])
def test_names_that_leave_the_save_are_refused(tmp_path: Path, name: str) -> None:
    level = SourceLevel(name="", meta=b"{}", files=(SourceFile.of(name, b"1"),))
    with pytest.raises(EncodeError) as raised:
        write_directory(level, tmp_path / "s")
    assert raised.value.problems[0].code == "escape"
    assert names_left(tmp_path) == []


def test_a_source_that_fails_or_lies_about_its_size_leaves_no_trace(tmp_path: Path) -> None:
    def fail() -> Iterator[bytes]:
        yield b"1"
        raise KeyError("the source")

    for blocks, size, error in ((fail, 2, KeyError), (lambda: [b"123"], 2, EncodeError), (list, 2, EncodeError)):
        bad = SourceFile(name="b.memmap", nbytes=size, blocks=blocks)  # type: ignore[arg-type]
        level = SourceLevel(name="", meta=b"{}", files=(SourceFile.of("a.memmap", b"1", payload=True), bad))
        with pytest.raises(error):
            write_directory(level, tmp_path / "deep" / "s")
        with pytest.raises(error):
            write_archive(level, tmp_path / "s.tdz")
        assert names_left(tmp_path) == []


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    write_directory(OLD, tmp_path / "s")
    with writer_lock(tmp_path / "s"), pytest.raises(ConcurrentWriteError):
        write_directory(NEW, tmp_path / "s")
    assert on_disk(tmp_path / "s") == contents(OLD)


def test_what_progress_raises_stops_the_write_without_a_trace(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise InterruptedError

    for write in (lambda: write_directory(NEW, tmp_path / "s", progress=stop), _archive(tmp_path, stop)):
        with pytest.raises(InterruptedError):
            write()
    assert names_left(tmp_path) == []


def _archive(folder: Path, stop: Callable[[int, int], None]) -> Callable[[], None]:
    return lambda: write_archive(NEW, folder / "s.tdz", progress=stop)


# -- archive --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "stored", "deflate", "bzip2", "lzma", 8])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_archive_holds_every_file_and_zipfile_reads_it(
    tmp_path: Path, compression: str | int | None, threads: int
) -> None:
    big = source({"a": os.urandom(50) * 30_000, "n": {"é": b"x" * 70_000}, "empty": b""}, 1)
    write_archive(big, tmp_path / "s.tdz", compression=compression, num_threads=threads)
    with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == contents(big)
        assert archive.namelist() == ["meta.json", "a.memmap", "n/meta.json", "n/é.memmap"]


def test_stored_payloads_are_aligned(tmp_path: Path) -> None:
    write_archive(source({"k" * i: b"x" * (i * 7) for i in range(1, 70)}, 1), tmp_path / "s.tdz")
    data = (tmp_path / "s.tdz").read_bytes()
    with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + int.from_bytes(data[info.header_offset + 28 :][:2], "little")
            start += len(info.filename)
            assert not info.filename.endswith(".memmap") or start % 64 == 0
            assert data[start : start + info.file_size] == archive.read(info)


def test_source_date_epoch_makes_archives_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    write_archive(NEW, tmp_path / "a.tdz")
    write_archive(NEW, tmp_path / "b.tdz")
    assert (tmp_path / "a.tdz").read_bytes() == (tmp_path / "b.tdz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.tdz") as archive:
        assert archive.infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)


def test_more_entries_than_a_plain_zip_can_count(tmp_path: Path) -> None:
    many = SourceLevel(name="", meta=b"{}", files=tuple(SourceFile.of(f"{i}.memmap", b"") for i in range(65_536)))
    write_archive(many, tmp_path / "s.tdz")
    with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
        assert len(archive.namelist()) == 65_537


@pytest.mark.slow
def test_archives_of_more_than_four_gigabytes_are_those_of_zipfile(tmp_path: Path) -> None:
    block = memoryview(bytes(1 << 24))
    files = tuple(SourceFile(name=f"{n}.memmap", nbytes=5 << 30, blocks=lambda: [block] * 320) for n in "a")
    level = SourceLevel(name="", meta=b"{}", files=(*files, SourceFile.of("b.memmap", b"end", payload=True)))
    write_archive(level, tmp_path / "s.tdz")
    with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
        assert [info.file_size for info in archive.infolist()] == [2, 5 << 30, 3]
        assert archive.read("b.memmap") == b"end"
        archive.fp.seek(archive.start_dir)  # type: ignore[union-attr]
        ours = archive.fp.read()  # type: ignore[union-attr]
        archive._didModify = True  # type: ignore[attr-defined]
        archive.mode = "a"
        archive.fp.close()  # type: ignore[union-attr]
        with open(tmp_path / "end", "w+b") as end:
            archive.fp = end
            end.seek(archive.start_dir)
            archive._write_end_record()  # type: ignore[attr-defined]
            end.seek(archive.start_dir)
            assert end.read() == ours
            archive._didModify = False  # type: ignore[attr-defined]
            archive.fp = None


def test_an_archive_is_replaced_by_a_new_file_that_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "s.tdz"
    link = tmp_path / "link.tdz"
    link.symlink_to(target)
    write_archive(OLD, link)
    os.chmod(target, 0o640)
    with open(target, "rb") as reader:
        write_archive(NEW, link)
        old = reader.read()
    assert link.is_symlink()
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o640
    assert old != target.read_bytes()
    assert names_left(target.parent) == ["s.tdz"]


def test_directories_above_an_archive_are_made_and_taken_back(tmp_path: Path) -> None:
    write_archive(NEW, tmp_path / "x" / "y" / "s.tdz")
    assert _state(tmp_path / "x" / "y" / "s.tdz") == contents(NEW)

    def stop(done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        write_archive(NEW, tmp_path / "z" / "y" / "s.tdz", progress=stop)
    assert names_left(tmp_path) == ["x"]


def test_bad_arguments_of_archives(tmp_path: Path) -> None:
    write_archive(OLD, tmp_path / "s.tdz")
    before = (tmp_path / "s.tdz").read_bytes()
    with pytest.raises(AlreadyExistsError):
        write_archive(NEW, tmp_path / "s.tdz", existsok=False)
    with pytest.raises(ArgumentError):
        write_archive(NEW, tmp_path, existsok=True)
    with pytest.raises(ArgumentError):
        write_archive(NEW, tmp_path / "s.tdz", compression="zip")
    with pytest.raises(NotImplementedError):
        write_archive(NEW, tmp_path / "s.tdz", compression=99)
    with pytest.raises(ArgumentError):
        write_archive(NEW, tmp_path / "s.tdz", compression="bzip2", compresslevel=0)
    assert (tmp_path / "s.tdz").read_bytes() == before


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["error", "disk_full", "short_write", "crash"])
@pytest.mark.parametrize("how", ["new", "over", "atomic", "archive"])
def test_a_fault_at_any_call_leaves_the_old_save_or_the_new_one(tmp_path: Path, how: str, kind: FaultKind) -> None:
    for at in range(1, 200):
        folder = tmp_path / str(at)
        folder.mkdir()
        target = folder / "s"
        write = _writer(how, target)
        before = _state(target)
        error: BaseException | None = None
        with inject(at, kind) as faults:
            try:
                write()
            except (OSError, Crash) as raised:
                error = raised
        if error is not None:
            _check_after_fault(how, kind, target, before)
        else:
            assert _state(target) == _whole(NEW, how)
            assert names_left(folder) == ["s"]
        shutil.rmtree(folder)
        if not faults.fired:
            return
    pytest.fail("the write never gets through")


def _writer(how: str, target: Path) -> Callable[[], None]:
    if how == "archive":
        write_archive(OLD, target)
        return lambda: write_archive(NEW, target, num_threads=0)
    if how != "new":
        write_directory(OLD, target)
    return lambda: write_directory(NEW, target, atomic=how == "atomic")


def _state(target: Path) -> dict[str, bytes]:
    if target.is_file():
        with zipfile.ZipFile(target) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    return on_disk(target)


def _whole(level: SourceLevel, how: str) -> dict[str, bytes]:
    return contents(level)


def _check_after_fault(how: str, kind: FaultKind, target: Path, before: dict[str, bytes]) -> None:
    """Right after the fault, or after recovery where the fault hit the move into place."""
    after = _state(target)
    if how == "new" and kind == "crash":
        assert "meta.json" not in after or after == contents(NEW)
        return
    if how == "archive" or (after == before and kind != "crash"):
        assert after in (before, contents(NEW))
        assert kind == "crash" or names_left(target.parent) == (["s"] if before else [])
        return
    recover_save(target)
    assert _state(target) in (before, contents(NEW))
    assert names_left(target.parent) == ["s"]

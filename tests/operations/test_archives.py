"""Packing, unpacking and refreshing archives: what is kept, what is refused, and what a fault leaves."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import tensordict

import tdview
from tdview.errors import (
    AlreadyExistsError,
    ArgumentError,
    Cancelled,
    ConcurrentWriteError,
    DecodeError,
    EncodeError,
    InterruptedAppendError,
    KeyMissingError,
    NotDirectoryError,
)
from tdview.operations.checksums import refresh_archive_checksums
from tdview.operations.pack import pack_memmap
from tdview.operations.recognise import is_memmap_archive
from tdview.operations.recover import recover_save
from tdview.operations.unpack import unpack_memmap
from tdview.operations.write import write_archive, write_directory
from tdview.storage.lock import writer_lock
from tdview.testing.faults import Crash, FaultKind, inject
from tests.operations.sources import contents, on_disk, source

TREE = source({"a": b"abc", "n": {"b": random.Random(0).randbytes(9000), "é": b"x" * 30}, "zz": {}}, 3)
META = TREE.meta
KINDS: list[FaultKind] = ["error", "disk_full", "short_write", "crash"]


@pytest.fixture
def save(tmp_path: Path) -> Path:
    write_directory(TREE, tmp_path / "save")
    return tmp_path / "save"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(TREE, tmp_path / "s.tdz")
    return tmp_path / "s.tdz"


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- pack -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["stored", "deflate", "bzip2", "lzma"])
def test_unpacking_gives_back_what_was_packed(save: Path, tmp_path: Path, compression: str) -> None:
    assert pack_memmap(save, tmp_path / "p.tdz", compression=compression) == tmp_path / "p.tdz"
    assert unpack_memmap(tmp_path / "p.tdz", tmp_path / "out") == tmp_path / "out"
    assert on_disk(tmp_path / "out") == contents(TREE)
    tensordict.unpack_memmap(tmp_path / "p.tdz", tmp_path / "peer")
    assert on_disk(tmp_path / "peer") == contents(TREE)


def test_packing_and_saving_give_the_bytes_of_tensordict(
    save: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensordict.pack_memmap(save, tmp_path / "peer.tdz")
    with zipfile.ZipFile(tmp_path / "peer.tdz") as peer:
        year, month, day, hour, minute, second = peer.infolist()[0].date_time
    monkeypatch.setattr(
        "tdview.operations.pack.stamp",
        lambda **_: (hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day),
    )
    monkeypatch.setattr("tdview.operations.write.stamp", tdview.operations.pack.stamp)
    pack_memmap(save, tmp_path / "packed.tdz")
    write_archive(TREE, tmp_path / "saved.tdz")
    expected = (tmp_path / "peer.tdz").read_bytes()
    assert (tmp_path / "packed.tdz").read_bytes() == expected
    assert (tmp_path / "saved.tdz").read_bytes() == expected


@pytest.mark.parametrize("compression", ["stored", "deflate"])
def test_unzip_finds_no_error(save: Path, tmp_path: Path, compression: str) -> None:
    pack_memmap(save, tmp_path / "p.tdz", compression=compression)
    tool = ["unzip", "-tqq"] if shutil.which("unzip") else ["python3", "-m", "zipfile", "-t"]
    subprocess.run([*tool, tmp_path / "p.tdz"], check=True, capture_output=True)


def test_a_level_chooses_how_small_the_archive_gets(tmp_path: Path) -> None:
    write_directory(source({"a": b"".join(bytes([i % 7, i % 5]) for i in range(300_000))}, 1), tmp_path / "s")
    sizes = []
    for level in (1, 9):
        pack_memmap(tmp_path / "s", tmp_path / "p.tdz", compression="deflate", compresslevel=level)
        sizes.append(os.path.getsize(tmp_path / "p.tdz"))
        with zipfile.ZipFile(tmp_path / "p.tdz") as packed:
            assert packed.testzip() is None
    assert sizes[1] < sizes[0]


def test_files_of_others_travel_along_and_stages_do_not(save: Path, tmp_path: Path) -> None:
    (save / "storage_metadata.json").write_text("{}")
    (save / ".tdtmp-00000000-1").mkdir()
    (save / ".tdtmp-00000000-1" / "x").write_text("half")
    pack_memmap(save, tmp_path / "p.tdz")
    with zipfile.ZipFile(tmp_path / "p.tdz") as packed:
        assert packed.namelist()[:3] == ["meta.json", "a.memmap", "storage_metadata.json"]
        assert not any(name.startswith(".tdtmp") for name in packed.namelist())


def test_payloads_are_cut_to_what_their_entries_say(save: Path, tmp_path: Path) -> None:
    with open(save / "n" / "é.memmap", "ab") as file:
        file.write(b"behind the end")
    pack_memmap(save, tmp_path / "p.tdz")
    unpack_memmap(tmp_path / "p.tdz", tmp_path / "out")
    assert on_disk(tmp_path / "out") == contents(TREE)


def test_links_are_packed_as_what_they_point_to_and_loops_are_refused(save: Path, tmp_path: Path) -> None:
    (save / "a.memmap").rename(tmp_path / "elsewhere")
    (save / "a.memmap").symlink_to(tmp_path / "elsewhere")
    pack_memmap(save, tmp_path / "p.tdz")
    with zipfile.ZipFile(tmp_path / "p.tdz") as packed:
        assert packed.read("a.memmap") == b"abc"
    (save / "n" / "again").symlink_to(save)
    with pytest.raises(DecodeError) as raised:
        pack_memmap(save, tmp_path / "q.tdz")
    assert raised.value.problems[0].code == "link"
    (save / "n" / "again").unlink()
    os.mkfifo(save / "n" / "pipe")
    with pytest.raises(DecodeError):
        pack_memmap(save, tmp_path / "q.tdz")
    assert not (tmp_path / "q.tdz").exists()


def test_what_cannot_be_packed_is_refused(save: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        pack_memmap(tmp_path, tmp_path / "p.tdz")
    with pytest.raises(FileNotFoundError):
        pack_memmap(save, tmp_path / "nowhere" / "p.tdz")
    with pytest.raises(ArgumentError):
        pack_memmap(save, save / "p.tdz")
    with pytest.raises(ArgumentError):
        pack_memmap(save, save / "n" / "b.memmap")
    pack_memmap(save, tmp_path / "p.tdz")
    with pytest.raises(AlreadyExistsError):
        pack_memmap(save, tmp_path / "p.tdz", existsok=False)
    with writer_lock(save), pytest.raises(ConcurrentWriteError):
        pack_memmap(save, tmp_path / "p.tdz")
    (save / "n" / ".meta.json.append.tmp").write_bytes(META)
    with pytest.raises(InterruptedAppendError):
        pack_memmap(save, tmp_path / "p.tdz")
    (save / "n" / ".meta.json.append.tmp").unlink()


def test_cancelled_work_leaves_nothing(save: Path, archive: Path, tmp_path: Path) -> None:
    def cancel(done: int, total: int) -> None:
        raise Cancelled("enough")

    before = archive.read_bytes()
    with pytest.raises(Cancelled):
        pack_memmap(save, archive, progress=cancel)
    with pytest.raises(Cancelled):
        unpack_memmap(archive, tmp_path / "out", progress=cancel)
    with pytest.raises(Cancelled):
        refresh_archive_checksums(archive, progress=cancel)
    assert archive.read_bytes() == before
    assert left(tmp_path) == ["s.tdz", "save"]


def test_progress_counts_every_byte(save: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    size = sum(map(len, contents(TREE).values()))
    for work in (
        lambda: pack_memmap(save, tmp_path / "p.tdz", progress=lambda *now: told.append(now)),
        lambda: unpack_memmap(tmp_path / "p.tdz", tmp_path / "out", progress=lambda *now: told.append(now)),
        lambda: refresh_archive_checksums(tmp_path / "p.tdz", progress=lambda *now: told.append(now)),
    ):
        told.clear()
        work()
        assert told[-1] == (size, size)


# -- unpack ---------------------------------------------------------------------------------------------------------


def test_unpacking_over_a_save_replaces_it_and_keeps_other_files(archive: Path, tmp_path: Path) -> None:
    write_directory(source({"old": b"123", "n": {"b": b"123", "old": {"x": b"123"}}}, 3), tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError):
        unpack_memmap(archive, tmp_path / "out", existsok=False)
    unpack_memmap(archive, tmp_path / "out")
    assert on_disk(tmp_path / "out") == {**contents(TREE), "notes.txt": b"mine"}
    assert not (tmp_path / "out" / "n" / "old").exists()
    with pytest.raises(NotDirectoryError):
        unpack_memmap(archive, tmp_path / "out" / "notes.txt")


def test_unpacking_does_not_write_through_a_link(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "n").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EncodeError):
        unpack_memmap(archive, tmp_path / "out")
    assert left(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../x", "escape"),
        ("/abs", "escape"),
        ("n/../../x", "escape"),
        ("C:\\x", "escape"),
        ("C:x", "escape"),
        ("./meta.json", "escape"),
        ("n//x", "escape"),
        ("a\\b", "escape"),
        ("meta.json/x", "name_collision"),
        ("meta.json", "duplicate_entry"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_a_save_cannot_have_are_refused(tmp_path: Path, name: str, code: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.tdz", "w") as made:
        made.writestr("meta.json", META)
        made.writestr(name, b"x")
    with pytest.raises(DecodeError) as raised:
        unpack_memmap(tmp_path / "a.tdz", tmp_path / "deep" / "out")
    assert raised.value.problems[0].code == code
    assert left(tmp_path) == ["a.tdz"]


def test_links_and_encrypted_entries_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("n")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.tdz", "w") as made:
        made.writestr("meta.json", META)
        made.writestr(link, "/etc")
    with pytest.raises(DecodeError) as raised:
        unpack_memmap(tmp_path / "a.tdz", tmp_path / "out")
    assert raised.value.problems[0].code == "link"
    data = bytearray((tmp_path / "a.tdz").read_bytes().replace(b"\x20\x01", b"\x20\x01"))
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    data[at + 40] = data[at + 41] = 0
    (tmp_path / "a.tdz").write_bytes(data)
    with pytest.raises(DecodeError) as raised:
        unpack_memmap(tmp_path / "a.tdz", tmp_path / "out")
    assert raised.value.problems[0].code in ("encrypted", "link")
    assert left(tmp_path) == ["a.tdz"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_content_is_noticed(tmp_path: Path, method: int) -> None:
    payload = random.Random(1).randbytes(5000)
    with zipfile.ZipFile(tmp_path / "a.tdz", "w", method) as made:
        made.writestr("meta.json", META)
        made.writestr("a.memmap", payload)
        start = made.getinfo("a.memmap").header_offset + 38
    unpack_memmap(tmp_path / "a.tdz", tmp_path / "out")
    data = bytearray((tmp_path / "a.tdz").read_bytes())
    for at in (start + 100, start + 2000):
        data[at] ^= 0x55
    (tmp_path / "a.tdz").write_bytes(data)
    with pytest.raises(DecodeError) as raised:
        unpack_memmap(tmp_path / "a.tdz", tmp_path / "out")
    assert raised.value.problems[0].code in ("crc", "archive", "bomb")
    assert on_disk(tmp_path / "out") == {"meta.json": META, "a.memmap": payload}


def test_an_entry_that_is_larger_than_stated_is_a_bomb(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.tdz", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("meta.json", META)
        made.writestr("a.memmap", bytes(1 << 24))
    data = (tmp_path / "a.tdz").read_bytes()
    (tmp_path / "a.tdz").write_bytes(data.replace(struct.pack("<I", 1 << 24), struct.pack("<I", 16)))
    with pytest.raises(DecodeError) as raised:
        unpack_memmap(tmp_path / "a.tdz", tmp_path / "out")
    assert raised.value.problems[0].code == "bomb"
    assert left(tmp_path) == ["a.tdz"]


def test_every_flipped_byte_of_the_structure_gives_a_result_or_an_error(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    central = whole.index(b"PK\x01\x02")
    rng = random.Random(3)
    for _ in range(150):
        data = bytearray(whole)
        data[rng.choice([rng.randrange(central, len(whole)), rng.randrange(200)])] ^= 1 << rng.randrange(8)
        archive.write_bytes(data)
        with suppress(tdview.TdviewError, FileNotFoundError):
            unpack_memmap(archive, tmp_path / "out", num_threads=1)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert left(tmp_path) == ["s.tdz"]


def test_only_archives_of_saves_are_archives(archive: Path, save: Path, tmp_path: Path) -> None:
    assert is_memmap_archive(archive)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("n/meta.json", META)
    (tmp_path / "cut.tdz").write_bytes(archive.read_bytes()[:-30])
    (tmp_path / "empty.tdz").write_bytes(b"")
    for path in (save, tmp_path / "nothing", tmp_path / "other.zip", tmp_path / "cut.tdz", tmp_path / "empty.tdz"):
        assert not is_memmap_archive(path)
        assert not is_memmap_archive(str(path))
        for work in (
            lambda path=path: unpack_memmap(path, tmp_path / "o"),
            lambda p=path: refresh_archive_checksums(p),
        ):
            with pytest.raises(ArgumentError):
                work()


# -- checksums ------------------------------------------------------------------------------------------------------


def edit(archive: Path, name: str, content: bytes) -> None:
    """Writes the start of a stored entry in place, as a mapped leaf does."""
    with zipfile.ZipFile(archive) as opened:
        offset = opened.getinfo(name).header_offset
    data = archive.read_bytes()
    start = offset + 30 + sum(struct.unpack_from("<HH", data, offset + 26))
    with open(archive, "r+b") as file:
        file.seek(start)
        file.write(content)


def bad_entry(archive: Path) -> str | None:
    with zipfile.ZipFile(archive) as opened:
        return opened.testzip()


@pytest.mark.parametrize("threads", [0, 2])
def test_a_refresh_makes_every_checksum_fit(archive: Path, threads: int) -> None:
    for name in ("a.memmap", "n/b.memmap"):
        edit(archive, name, b"new")
    assert bad_entry(archive) == "a.memmap"
    assert refresh_archive_checksums(archive, num_threads=threads) == archive
    assert bad_entry(archive) is None
    with zipfile.ZipFile(archive) as opened:
        info = opened.getinfo("n/b.memmap")
        local = struct.unpack_from("<I", archive.read_bytes(), info.header_offset + 14)[0]
        assert local == info.CRC == zlib.crc32(opened.read("n/b.memmap"))


def test_only_the_entries_that_are_named_are_refreshed(archive: Path) -> None:
    edit(archive, "a.memmap", b"new")
    edit(archive, "n/b.memmap", b"new")
    refresh_archive_checksums(archive, ["a.memmap"])
    assert bad_entry(archive) == "n/b.memmap"
    with pytest.raises(KeyMissingError):
        refresh_archive_checksums(archive, ["a.memmap", "nope"])
    with pytest.raises(ArgumentError):
        refresh_archive_checksums(archive, "a.memmap")
    refresh_archive_checksums(archive, iter(["n/b.memmap"]))
    assert bad_entry(archive) is None


def test_an_archive_that_is_right_is_not_written(archive: Path) -> None:
    os.utime(archive, ns=(1, 1))
    refresh_archive_checksums(archive)
    assert os.stat(archive).st_mtime_ns == 1


def test_large_and_small_entries_are_read_in_any_mix(tmp_path: Path) -> None:
    rng = random.Random(5)
    sizes = [0, 1, 100, 2_500_000, 5, 1 << 20, (1 << 20) + 1, 70_000_000, 3]
    tree = {f"k{i}": rng.randbytes(min(n, 1000)) * -(-n // 1000) for i, n in enumerate(sizes)}
    write_archive(source(tree, 1), tmp_path / "s.tdz")
    for name in ("k2.memmap", "k5.memmap", "k7.memmap", "k8.memmap"):
        edit(tmp_path / "s.tdz", name, b"xy")
    refresh_archive_checksums(tmp_path / "s.tdz")
    assert bad_entry(tmp_path / "s.tdz") is None


def test_archives_of_other_tools_are_refreshed(tmp_path: Path) -> None:
    with open(tmp_path / "a.tdz", "wb") as file:
        file.write(b"#!/bin/sh\n")
        with zipfile.ZipFile(_Unseekable(file), "w") as made:
            made.writestr("meta.json", META)
            made.writestr("a.memmap", b"abc")
    data = (tmp_path / "a.tdz").read_bytes()
    (tmp_path / "a.tdz").write_bytes(data.replace(b"abc", b"xyz"))
    assert bad_entry(tmp_path / "a.tdz") == "a.memmap"
    refresh_archive_checksums(tmp_path / "a.tdz")
    assert bad_entry(tmp_path / "a.tdz") is None


class _Unseekable:
    """Makes zipfile write data descriptors."""

    def __init__(self, file: object) -> None:
        self.write = file.write  # type: ignore[attr-defined]
        self.flush = file.flush  # type: ignore[attr-defined]


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_of_pack_leaves_the_old_archive_or_the_new(tmp_path: Path, kind: FaultKind) -> None:
    write_directory(TREE, tmp_path / "save")
    write_archive(source({"old": b"123"}, 3), tmp_path / "s.tdz")
    old = (tmp_path / "s.tdz").read_bytes()

    def check(failed: bool) -> None:
        assert is_memmap_archive(tmp_path / "s.tdz")
        assert bad_entry(tmp_path / "s.tdz") is None
        if failed and kind != "crash":
            assert (tmp_path / "s.tdz").read_bytes() == old
        for name in set(left(tmp_path)) - {"s.tdz", "save"}:
            assert kind == "crash"  # between giving the new file a name and renaming it
            assert name.startswith(".tdtmp-")
            (tmp_path / name).unlink()
        (tmp_path / "s.tdz").write_bytes(old)

    every_fault(kind, lambda: pack_memmap(tmp_path / "save", tmp_path / "s.tdz", num_threads=1), check)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("over", [False, True])
def test_a_fault_at_any_call_of_unpack_leaves_the_old_save_or_the_new(
    tmp_path: Path, kind: FaultKind, over: bool
) -> None:
    write_archive(TREE, tmp_path / "s.tdz")
    out = tmp_path / "out"
    old_tree = source({"a": b"old", "old": {"x": b"123"}}, 3)

    def prepare() -> dict[str, bytes]:
        shutil.rmtree(out, ignore_errors=True)
        if over:
            write_directory(old_tree, out)
        return on_disk(out)

    before = prepare()

    def check(failed: bool) -> None:
        if (failed and on_disk(out) != before) or (failed and kind == "crash"):
            recover_save(out)
        assert on_disk(out) in ((before, contents(TREE)) if failed else (contents(TREE),))
        assert set(left(tmp_path)) <= {"s.tdz", "out"}
        prepare()

    every_fault(kind, lambda: unpack_memmap(tmp_path / "s.tdz", out, num_threads=1), check)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_of_refresh_leaves_an_archive_that_can_be_refreshed(archive: Path, kind: FaultKind) -> None:
    edit(archive, "a.memmap", b"new")
    edit(archive, "n/b.memmap", b"new")
    stale = archive.read_bytes()

    def check(failed: bool) -> None:
        with zipfile.ZipFile(archive) as opened:
            assert opened.namelist() == [
                "meta.json",
                "a.memmap",
                "n/meta.json",
                "n/b.memmap",
                "n/é.memmap",
                "zz/meta.json",
            ]
        refresh_archive_checksums(archive)
        assert bad_entry(archive) is None
        archive.write_bytes(stale)

    every_fault(kind, lambda: refresh_archive_checksums(archive, num_threads=1), check)


def every_fault(kind: FaultKind, work: Callable[[], object], check: Callable[[bool], None]) -> None:
    """Runs `work` with the fault at call 1, 2, …, until it is not reached any more."""
    for at in range(1, 300):
        failed = False
        with inject(at, kind) as faults:
            try:
                work()
            except (OSError, Crash, tdview.TdviewError):
                failed = True
        check(failed)
        if not faults.fired:
            return
    pytest.fail("the work never gets through")

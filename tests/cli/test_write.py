"""pack, unpack, refresh, append, recover; and stopping long work."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest


@pytest.fixture
def plain(buffer: Path, tmp_path: Path) -> Path:
    """A tensordict that is no replay buffer, so that it can grow."""
    target = tmp_path / "plain"
    shutil.copytree(buffer / "storage", target)
    (target / "storage_metadata.json").unlink()
    return target


def test_pack_and_unpack_give_the_same_save(tdview, buffer: Path, tmp_path: Path) -> None:
    archive, again = tmp_path / "run.tdz", tmp_path / "again"
    ran = tdview("pack", buffer / "storage", archive)
    assert (ran.code, ran.out) == (0, f"{archive}\n")
    assert zipfile.ZipFile(archive).testzip() is None
    assert tdview("unpack", archive, again).code == 0
    assert tdview("diff", buffer / "storage", again).code == 0


def test_pack_compresses_when_asked(tdview, buffer: Path, tmp_path: Path) -> None:
    assert tdview("pack", buffer / "storage", tmp_path / "a.tdz").code == 0
    ran = tdview("pack", buffer / "storage", tmp_path / "b.tdz", "--compression", "deflate", "--level", "1", "--json")
    assert ran.code == 0
    assert (tmp_path / "b.tdz").stat().st_size < (tmp_path / "a.tdz").stat().st_size / 2


def test_what_is_there_is_replaced_only_when_asked(tdview, buffer: Path, tmp_path: Path) -> None:
    archive = tmp_path / "run.tdz"
    archive.write_bytes(b"mine")
    assert tdview("pack", buffer / "storage", archive).code == 2
    assert archive.read_bytes() == b"mine"
    assert tdview("pack", buffer / "storage", archive, "--replace").code == 0
    assert zipfile.is_zipfile(archive)


def test_refresh_makes_the_checksums_right(tdview, buffer: Path, tmp_path: Path) -> None:
    archive = tmp_path / "run.tdz"
    tdview("pack", buffer / "storage", archive)
    offset = tdview("info", archive, "next", "reward", "--json").json["offset"]
    with archive.open("r+b") as file:
        file.seek(offset)
        file.write(b"\x01\x02\x03\x04")
    assert tdview("verify", archive).code == 1
    assert tdview("refresh", archive).code == 0
    assert tdview("verify", archive).code == 0


def test_append_adds_the_rows_of_another_save(tdview, plain: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    shutil.copytree(plain, more)
    ran = tdview("append", plain, more, "--json")
    assert ran.code == 0
    assert ran.json["batch_size"] == [128]
    assert tdview("recover", plain).code == 0
    assert tdview("recover", plain, "--json").json["recovered"] is None


def test_append_inside_a_dumped_buffer_is_refused(tdview, buffer: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(buffer, copy)
    assert tdview("append", copy / "storage", buffer / "storage").code == 2
    assert tdview("info", copy, "--json").json["capacity"] == 64


def test_ctrl_c_stops_long_work_without_a_traceback(tmp_path: Path) -> None:
    entry = {"device": "cpu", "shape": [1 << 30], "dtype": "torch.float32", "is_nested": False}
    meta = {"zeros": entry, "shape": [1 << 30], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with (tmp_path / "zeros.memmap").open("wb") as file:
        file.truncate(4 << 30)  # a hole: no byte of it is on the disk
    work = subprocess.Popen(
        [sys.executable, "-m", "tdview", "stats", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.0)
    assert work.poll() is None
    work.send_signal(signal.SIGINT)
    out, err = work.communicate(timeout=30)
    assert (work.returncode, out, err) == (130, "", "tdview: stopped\n")


@pytest.mark.parametrize("compression", ["stored", "lzma"])
def test_a_level_goes_with_a_compression_that_has_levels(
    tdview, buffer: Path, tmp_path: Path, compression: str
) -> None:
    ran = tdview("pack", buffer / "storage", tmp_path / "x.tdz", "--level", 9, "--compression", compression)
    assert (ran.code, "--level" in ran.err, list(tmp_path.iterdir())) == (2, True, [])


def test_a_path_that_is_not_there_is_said_to_be_missing(tdview, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for words in (
        ("pack", gone, tmp_path / "x.tdz"),
        ("unpack", gone, tmp_path / "x"),
        ("refresh", gone),
        ("append", gone, gone),
        ("recover", gone),
        ("ls", gone),
    ):
        ran = tdview(*words)
        assert (ran.code, "there is no such" in ran.err) == (2, True), words
        assert not list(tmp_path.iterdir())
    assert "there is no such" not in tdview("unpack", tmp_path, tmp_path / "x").err

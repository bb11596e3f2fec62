"""Writers that are killed with SIGKILL at some moment: nothing is lost, and what is left is recognised and ended."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import tdview
from tdview.operations.checksums import refresh_archive_checksums
from tdview.operations.recover import recover_append, recover_save
from tdview.operations.write import write_archive, write_directory
from tests.operations.sources import contents, on_disk, source

pytestmark = [pytest.mark.slow, pytest.mark.leaves_files]

KILLS = 12
SMALL = source({f"k{i}": bytes([i]) * 300 for i in range(40)} | {"n": {f"m{i}": b"x" * 300 for i in range(40)}}, 3)
LARGE = source({f"k{i}": bytes([i]) * 300_000 for i in range(20)} | {"n": {"m": b"x" * 3}}, 3)

PRELUDE = """
import sys
from pathlib import Path
from tests.operations.sources import source
from tdview.operations.write import write_archive, write_directory
root = Path(sys.argv[1])
SMALL = source({f"k{i}": bytes([i]) * 300 for i in range(40)} | {"n": {f"m{i}": b"x" * 300 for i in range(40)}}, 3)
LARGE = source({f"k{i}": bytes([i]) * 300_000 for i in range(20)} | {"n": {"m": b"x" * 3}}, 3)
"""


def kill_while(work: str, folder: Path, seed: int) -> None:
    """Runs `work` again and again in a process of its own, and kills it after a random time."""
    rng = random.Random(seed)
    script = (
        f"{PRELUDE}{work.split('LOOP')[0]}\nprint('go', flush=True)\nwhile True:\n    {work.split('LOOP')[1].strip()}"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(tdview.__file__).parent.parent)}
    worker = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, env=environment)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"go\n"
    time.sleep(rng.uniform(0.0, 0.05))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()


def rows_of(root: Path) -> int:
    """The rows of a save, after a look at every payload of it."""
    node = tdview.scan(root)
    report = tdview.verify(root)
    assert report.ok, report
    leaves = list(node.leaves())
    assert len(leaves) == 80
    for leaf in leaves:
        assert leaf.shape[0] == node.batch_size[0]
        assert len(set(bytes(leaf.raw()))) == 1
    return int(node.batch_size[0])


APPEND = """
from tdview.operations.append import RowWriter
from tdview.operations.growth import read_growing
rows = [bytes([i]) * 300 for i in range(40)] + [b"x" * 300] * 40
{setup}
LOOP {loop}
"""


@pytest.mark.parametrize(
    ("setup", "loop"),
    [
        ("", "RowWriter(read_growing(root / 's')).append(rows, 3)"),
        ("writer = RowWriter(read_growing(root / 's'), keep_open=1000)", "writer.append(rows, 3)"),
    ],
)
def test_an_append_that_is_killed_loses_nothing(tmp_path: Path, setup: str, loop: str) -> None:
    write_directory(SMALL, tmp_path / "s")
    before, grown = 3, 0
    for seed in range(KILLS):
        kill_while(APPEND.format(setup=setup, loop=loop), tmp_path, seed)
        recover_append(tmp_path / "s")
        rows = rows_of(tmp_path / "s")
        assert rows % 3 == 0
        assert rows >= before
        grown, before = grown + (rows > before), rows
        assert not list(tmp_path.rglob("*.tmp"))
    assert grown


def test_an_atomic_save_that_is_killed_leaves_the_old_save_or_the_new(tmp_path: Path) -> None:
    write_directory(SMALL, tmp_path / "s")
    for seed in range(KILLS):
        kill_while("LOOP write_directory(LARGE, root / 's', atomic=True)", tmp_path, seed)
        recover_save(tmp_path / "s")
        assert on_disk(tmp_path / "s") in (contents(SMALL), contents(LARGE))
        assert os.listdir(tmp_path) == ["s"]


def test_a_save_over_an_old_one_that_is_killed_can_be_ended(tmp_path: Path) -> None:
    write_directory(SMALL, tmp_path / "s")
    work = "LOOP write_directory(LARGE, root / 's'); write_directory(SMALL, root / 's')"
    for seed in range(KILLS):
        kill_while(work, tmp_path, seed)
        recover_save(tmp_path / "s")
        assert on_disk(tmp_path / "s") in (contents(SMALL), contents(LARGE))


@pytest.mark.parametrize("empty", [False, True])
def test_a_first_save_that_is_killed_is_not_taken_for_a_whole_one(tmp_path: Path, empty: bool) -> None:
    for seed in range(KILLS):
        make = "(root / f's{k}').mkdir();" if empty else ""
        work = f"LOOP k = next(n); {make} write_directory(LARGE, root / f's{{k}}')"
        kill_while(f"import itertools; n = itertools.count()\n{work}", tmp_path, seed)
        for save in tmp_path.glob("s*"):
            assert (save / "meta.json").exists() <= (on_disk(save) == contents(LARGE))
            assert empty or (save / "meta.json").exists()
            recover_save(save)
            shutil.rmtree(save)
        for number in range(10_000):
            if not list(tmp_path.iterdir()):
                break
            recover_save(tmp_path / f"s{number}")
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("compression", ["stored", "deflate"])
def test_packing_that_is_killed_leaves_a_whole_archive(tmp_path: Path, compression: str) -> None:
    write_directory(LARGE, tmp_path / "s")
    write_archive(SMALL, tmp_path / "s.tdz")
    work = f"from tdview import pack_memmap\nLOOP pack_memmap(root / 's', root / 's.tdz', compression={compression!r})"
    for seed in range(KILLS):
        kill_while(work, tmp_path, seed)
        with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
            assert archive.testzip() is None
            assert {n: archive.read(n) for n in archive.namelist()} in (contents(SMALL), contents(LARGE))
        # A kill between the two system calls that give the new archive its name leaves it under the first one.
        for name in set(os.listdir(tmp_path)) - {"s", "s.tdz"}:
            assert name.startswith(".tdtmp-")
            with zipfile.ZipFile(tmp_path / name) as archive:
                assert {n: archive.read(n) for n in archive.namelist()} == contents(LARGE)
            (tmp_path / name).unlink()


def test_unpacking_that_is_killed_leaves_all_or_nothing(tmp_path: Path) -> None:
    write_archive(LARGE, tmp_path / "s.tdz")
    work = """
from tdview import unpack_memmap
import itertools; n = itertools.count()
LOOP unpack_memmap(root / 's.tdz', root / f'out{next(n)}')
"""
    for seed in range(KILLS):
        kill_while(work, tmp_path, seed)
        for number in range(100_000):
            out = tmp_path / f"out{number}"
            recover_save(out)
            if not out.exists():
                break
            assert on_disk(out) == contents(LARGE)
            shutil.rmtree(out)
        assert os.listdir(tmp_path) == ["s.tdz"]


def test_a_refresh_that_is_killed_can_be_done_again(tmp_path: Path) -> None:
    write_archive(LARGE, tmp_path / "s.tdz")
    work = """
from tdview import refresh_archive_checksums
def stale():
    data = (root / 's.tdz').read_bytes()
    with open(root / 's.tdz', 'r+b') as file:
        for i in range(20):
            file.seek(data.index(bytes([i]) * 1000) + 5); file.write(b'edit')
stale()
LOOP refresh_archive_checksums(root / 's.tdz')
"""
    for seed in range(KILLS):
        kill_while(work, tmp_path, seed)
        refresh_archive_checksums(tmp_path / "s.tdz")
        with zipfile.ZipFile(tmp_path / "s.tdz") as archive:
            assert archive.testzip() is None
        write_archive(LARGE, tmp_path / "s.tdz")

"""Whole buffers reach the file, in calls of limited size, and whole files a reader, whatever part the system does."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tdview.storage import fileio
from tdview.storage.fileio import CALL, read_ahead, write_all, write_at

OFFSET = 5
CONTENT = np.random.default_rng(0).integers(0, 256, 2 * CALL + 12345, np.uint8)


def at_once(fd: int, data: fileio.Buffer) -> None:
    os.lseek(fd, OFFSET, os.SEEK_SET)
    write_all(fd, data)


def at_an_offset(fd: int, data: fileio.Buffer) -> None:
    write_at(fd, data, OFFSET)


@pytest.fixture(params=(at_once, at_an_offset))
def write(request: pytest.FixtureRequest) -> Callable[[int, fileio.Buffer], None]:
    return request.param


@pytest.fixture(params=(1 << 30, 100_000, CALL - 1), ids=("whole", "parts", "nearly"))
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each call was asked to write; the system takes at most so much of it."""
    asked: list[int] = []
    plain, positioned = os.write, os.pwrite

    def some(fd: int, data: fileio.Buffer) -> int:
        asked.append(memoryview(data).nbytes)
        return plain(fd, fileio.octets(data)[: request.param])

    def some_at(fd: int, data: fileio.Buffer, offset: int) -> int:
        asked.append(memoryview(data).nbytes)
        return positioned(fd, fileio.octets(data)[: request.param], offset)

    monkeypatch.setattr(os, "write", some)
    monkeypatch.setattr(os, "pwrite", some_at)
    return asked


@pytest.mark.parametrize("nbytes", [0, 1, CALL, CALL + 1, len(CONTENT)])
def test_all_bytes_are_written_by_calls_of_limited_size(
    tmp_path: Path, write: Callable[[int, fileio.Buffer], None], sizes: list[int], nbytes: int
) -> None:
    content = CONTENT[:nbytes].tobytes()
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        write(fd, content)
    finally:
        os.close(fd)
    assert (tmp_path / "file").read_bytes() == (bytes(OFFSET) + content if content else b"")
    assert max(sizes) <= CALL


@pytest.mark.parametrize("dtype", ["complex128", "float32", "bool"])
def test_arrays_are_written_as_their_bytes(
    tmp_path: Path, write: Callable[[int, fileio.Buffer], None], sizes: list[int], dtype: str
) -> None:
    array = np.resize(np.arange(7), (CALL // 8, 2)).astype(dtype)
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        write(fd, memoryview(array))
    finally:
        os.close(fd)
    assert (tmp_path / "file").read_bytes()[OFFSET:] == array.tobytes()
    assert max(sizes) <= CALL


class AtOnce(Executor):
    """Reads before it is waited for, as a thread may."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args, **kwargs))
        return done


@pytest.mark.parametrize("most", [1 << 30, 700], ids=("whole", "parts"))
@pytest.mark.parametrize("first", [1, 1000, 4096])
@pytest.mark.parametrize("nbytes", [1, 1000, 4096, 50_000, 60_000])
def test_blocks_that_are_read_ahead_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, first: int, most: int
) -> None:
    content = CONTENT[:50_007].tobytes()
    (tmp_path / "file").write_bytes(content)
    plain = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, to, offset: plain(fd, [to[0][:most]], offset))
    buffers = [memoryview(bytearray(4096)) for _ in range(2)]
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        blocks = [bytes(block) for block in read_ahead(fd, 7, nbytes, AtOnce(), buffers, first=first)]
    finally:
        os.close(fd)
    assert b"".join(blocks) == content[7 : 7 + nbytes]
    assert len(blocks[0]) == min(first, most, nbytes)

"""Opening and listing a save of a million leaves: a thousand levels of a thousand, in both forms, and one flat level.

``python benchmarks/bench_million.py [leaves of a level]``. The saves are written by plain code, each leaf a payload of
64 zero bytes. tensordict maps every leaf of a directory, of which the system allows about 65 000 to a process: beside
the directory it loads as many levels as that, and its time is told for those. One round is all that the time allows.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.bench_load import open_and_list
from benchmarks.harness import Suite

LEVELS = 1000
MAPPED = 50_000
"""Leaves of the directory that tensordict loads."""
PAYLOAD = bytes(64)
OWN = {
    "shape": [4],
    "device": "cpu",
    "_type": "<class 'tensordict._td.TensorDict'>",
    "_format_version": 1,
    "_class": "tensordict:TensorDict",
}


def root_meta(levels: int) -> bytes:
    """The ``meta.json`` above so many levels."""
    return json.dumps({f"n{i:03d}": {"type": "TensorDict"} for i in range(levels)} | OWN).encode()


def level_meta(leaves: int) -> bytes:
    """The ``meta.json`` of a level of so many leaves."""
    entry = {"device": "cpu", "shape": [4, 4], "dtype": "torch.float32", "is_nested": False}
    return json.dumps({name[:-7]: entry for name in leaf_files(leaves)} | OWN).encode()


def leaf_files(leaves: int) -> Iterator[str]:
    """File names of equal length."""
    return (f"l{i:06d}.memmap" for i in range(leaves))


def write_level(folder: Path, leaves: int) -> None:
    """A level as a directory."""
    folder.mkdir()
    (folder / "meta.json").write_bytes(level_meta(leaves))
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for name in leaf_files(leaves):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=at)
        os.write(fd, PAYLOAD)
        os.close(fd)
    os.close(at)


def write_directory(folder: Path, levels: int, leaves: int) -> None:
    """Levels as directories."""
    folder.mkdir()
    (folder / "meta.json").write_bytes(root_meta(levels))
    for number in range(levels):
        write_level(folder / f"n{number:03d}", leaves)


def write_archive(path: Path, levels: int, leaves: int) -> None:
    """The same as an archive; the entries of the leaves are one array of records, 128 bytes each."""
    metas = [("meta.json", root_meta(levels))] + [(f"n{i:03d}/meta.json", level_meta(leaves)) for i in range(levels)]
    central = []
    with open(path, "wb") as file:
        for name, content in metas:
            sizes = struct.pack("<3L2H", zlib.crc32(content), len(content), len(content), len(name), 0)
            stamp = struct.pack("<5H", 20, 0, 0, 0, 33)
            central.append(b"PK\1\2\x14\0" + stamp + sizes + struct.pack("<3H2L", 0, 0, 0, 0, file.tell()))
            central[-1] += name.encode()
            file.write(b"PK\3\4" + stamp + sizes + name.encode() + content)
        file.write(bytes(-file.tell() % 64))
        names = np.array([f"n{i:03d}/{name}".encode() for i in range(levels) for name in leaf_files(leaves)])
        central += _leaf_records(file, names)
        start, count = file.tell(), len(metas) + len(names)
        for record in central:
            file.write(record)
        size, end = file.tell() - start, file.tell()
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
        file.write(struct.pack("<4sLQL", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def _leaf_records(file: object, names: np.ndarray) -> list[bytes]:
    """Writes the leaves and gives their records of the central directory."""
    length = names.dtype.itemsize
    shared = [("version", "<u2"), ("flags", "<u2"), ("method", "<u2"), ("stamp", "<u4"), ("crc", "<u4")]
    shared += [("stored", "<u4"), ("nbytes", "<u4"), ("name_length", "<u2"), ("extra_length", "<u2")]
    pad = 64 - 30 - length
    local = np.zeros(len(names), [("mark", "S4"), *shared, ("name", f"S{length}"), ("pad", f"V{pad}"), ("data", "V64")])
    last = [("rest", "V10"), ("offset", "<u4"), ("name", f"S{length}")]
    central = np.zeros(len(names), [("mark", "S4"), ("made_by", "<u2"), *shared, *last])
    for record, mark in ((local, b"PK\3\4"), (central, b"PK\1\2")):
        record["mark"], record["version"], record["stamp"] = mark, 20, 33 << 16
        record["crc"], record["name_length"], record["name"] = zlib.crc32(PAYLOAD), length, names
        record["stored"] = record["nbytes"] = len(PAYLOAD)
    local["extra_length"] = pad
    extra = struct.pack("<2H", 0xFFFE, pad - 4) + bytes(pad - 4)
    local["pad"] = np.frombuffer(extra, f"V{pad}")[0]
    central["offset"] = file.tell() + np.arange(len(names)) * local.itemsize  # type: ignore[attr-defined]
    file.write(local.tobytes())  # type: ignore[attr-defined]
    return [central.tobytes()]


def directories(suite: Suite, levels: int, leaves: int) -> None:
    """A directory of levels; tensordict loads as much as it can map."""
    folder, part = suite.fresh(), suite.fresh()
    write_directory(folder, levels, leaves)
    count = min(levels, max(1, MAPPED // leaves))
    part.mkdir()
    (part / "meta.json").write_bytes(root_meta(count))
    for number in range(count):
        (part / f"n{number:03d}").symlink_to(folder / f"n{number:03d}")
    told = f"tensordict of {_size(count * leaves)}"
    assert len(open_and_list(folder)) == levels
    suite.pair(
        "open and list, directory",
        _size(levels * leaves),
        lambda: Peer.load_memmap(part),
        lambda: open_and_list(folder),
        against=told if count < levels else "tensordict",
        work=levels * leaves,
        promised=20,
        rounds=1,
    )


def archives(suite: Suite, levels: int, leaves: int) -> None:
    """An archive of levels."""
    path = suite.fresh(".tdz")
    write_archive(path, levels, leaves)
    root = tdview.scan(path)
    assert len(root.children()) == levels
    assert len(root["n000"].children()) == leaves
    del root
    suite.pair(
        "open and list, archive",
        _size(levels * leaves),
        lambda: Peer.load_memmap(path),
        lambda: open_and_list(path),
        work=levels * leaves,
        promised=20,
        warm=False,
    )


def flat(suite: Suite, leaves: int) -> None:
    """One level: all of it is listed, so the cost cannot be flat."""
    folder = suite.fresh()
    can_load = leaves <= MAPPED
    if can_load:
        write_level(folder, leaves)
        assert len(open_and_list(folder)) == leaves
    else:
        folder.mkdir()
        (folder / "meta.json").write_bytes(level_meta(leaves))  # a listing does not look at the payloads
    suite.pair(
        "open and list, one level, directory",
        _size(leaves),
        (lambda: Peer.load_memmap(folder)) if can_load else (lambda: json.loads((folder / "meta.json").read_bytes())),
        lambda: open_and_list(folder),
        against="tensordict" if can_load else "json.loads of its meta.json",
        work=leaves,
        warm=can_load,
        rounds=3,
    )


def _size(leaves: int) -> str:
    return f"{leaves:,} leaves".replace(",", " ")


def main(leaves: int = 1000) -> int:
    suite = Suite("million")
    for count in (leaves // 10, leaves):
        archives(suite, LEVELS, count)
    directories(suite, LEVELS, leaves)
    for count in (leaves, leaves * MAPPED // 1000, leaves * LEVELS):
        flat(suite, count)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

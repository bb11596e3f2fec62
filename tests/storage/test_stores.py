"""The three stores give the same answers, and hostile archives give an error instead of a crash or a bomb."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdview.analysis.verify import verify
from tdview.errors import DecodeError, MissingFileError, NotSupportedError, ReadOnlyError, TdviewError
from tdview.storage.archive import ArchiveStore
from tdview.storage.directory import DirectoryStore
from tdview.storage.memory import MemoryStore
from tdview.storage.opening import open_store
from tdview.storage.store import Store
from tdview.tree.scan import scan

FILES = {
    "meta.json": b"{}",
    "a.memmap": bytes(range(64)),
    "n/meta.json": b"{}",
    "n/b.memmap": b"12345678",
    "n/m/x": b"",
}
META = {
    "a": {"device": "cpu", "shape": [4], "dtype": "torch.float32", "is_nested": False},
    "shape": [4],
    "device": "cpu",
    "_type": "<class 'tensordict._td.TensorDict'>",
    "_format_version": 1,
    "_class": "tensordict:TensorDict",
}


def made(form: str, folder: Path, *, writable: bool = False) -> Store:
    if form == "memory":
        return MemoryStore(FILES, writable=writable)
    if form == "directory":
        for name, content in FILES.items():
            (folder / "d" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "d" / name).write_bytes(content)
        return DirectoryStore(folder / "d", writable=writable)
    methods = {
        "archive": zipfile.ZIP_STORED,
        "deflate": zipfile.ZIP_DEFLATED,
        "lzma": zipfile.ZIP_LZMA,
        "bzip2": zipfile.ZIP_BZIP2,
    }
    with zipfile.ZipFile(folder / "a.zip", "w", methods[form]) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return ArchiveStore(folder / "a.zip", writable=writable)


FORMS = ["memory", "directory", "archive", "deflate", "lzma", "bzip2"]


@pytest.mark.parametrize("form", FORMS)
def test_every_store_gives_the_same_answers(form: str, tmp_path: Path) -> None:
    store = made(form, tmp_path)
    assert store.listing() == (("a.memmap", "meta.json"), ("n",))
    assert store.listing("n") == (
        ("b.memmap", "meta.json"),
        ("m",),
    )
    assert store.listing("nope") == ((), ())
    assert store.is_level("")
    assert store.is_level("n/m")
    assert not store.is_level("a.memmap")
    assert not store.is_level("x")
    assert {info.name: info.nbytes for info in store.walk()} == {name: len(content) for name, content in FILES.items()}
    assert store.info("n") is None
    assert store.info("nope") is None
    assert store.read("n/b.memmap", 8) == b"12345678"
    assert bytes(store.view("a.memmap", 10)) == bytes(range(10))
    assert store.view("a.memmap", 10).readonly
    assert bytes(store.view("n/m/x", 0)) == b""


@pytest.mark.parametrize("form", FORMS)
def test_every_store_refuses_the_same(form: str, tmp_path: Path) -> None:
    store = made(form, tmp_path)
    with pytest.raises(MissingFileError):
        store.read("nope", 10)
    with pytest.raises(MissingFileError):
        store.view("nope", 1)
    with pytest.raises(DecodeError):
        store.read("a.memmap", 63)
    with pytest.raises(DecodeError):
        store.view("a.memmap", 65)
    with pytest.raises((ReadOnlyError, NotSupportedError)):
        store.write_at("a.memmap", 0, b"x")
    with pytest.raises((ReadOnlyError, NotSupportedError)):
        store.view("a.memmap", 4, "write")


@pytest.mark.parametrize("form", ["memory", "directory", "archive"])
def test_a_write_in_place_is_seen_by_views_and_stays_inside(form: str, tmp_path: Path) -> None:
    store = made(form, tmp_path, writable=True)
    view = store.view("a.memmap", 64)
    private = store.view("a.memmap", 64, "copy")
    private[0] = 99
    store.write_at("a.memmap", 2, b"XY")
    store.view("a.memmap", 64, "write")[4:6] = b"ZZ"
    assert bytes(view[:6]) == b"\x00\x01XYZZ"
    for offset in (-1, 63, 10**9):
        with pytest.raises(DecodeError):
            store.write_at("a.memmap", offset, b"XY")


@pytest.mark.parametrize("form", ["deflate", "lzma", "bzip2"])
def test_a_compressed_entry_cannot_be_written(form: str, tmp_path: Path) -> None:
    store = made(form, tmp_path, writable=True)
    with pytest.raises(NotSupportedError):
        store.write_at("a.memmap", 0, b"x")


def test_two_openers_share_a_store_and_a_replaced_archive_gets_its_own(tmp_path: Path) -> None:
    made("archive", tmp_path)
    first = open_store(tmp_path / "a.zip")
    assert open_store(tmp_path / "a.zip") is first
    (tmp_path / "b.zip").write_bytes((tmp_path / "a.zip").read_bytes())
    os.replace(tmp_path / "b.zip", tmp_path / "a.zip")
    assert open_store(tmp_path / "a.zip") is not first
    assert bytes(first.view("a.memmap", 4)) == bytes(range(4))


def test_links_are_followed_for_reading_and_refused_for_writing(tmp_path: Path) -> None:
    store = made("directory", tmp_path, writable=True)
    (tmp_path / "outside").write_bytes(b"abcd")
    os.symlink(tmp_path / "outside", tmp_path / "d" / "l.memmap")
    os.symlink(tmp_path / "d" / "n", tmp_path / "d" / "k")
    assert bytes(store.view("l.memmap", 4)) == b"abcd"
    for name in ("l.memmap", "k/b.memmap"):
        with pytest.raises(ReadOnlyError):
            store.write_at(name, 0, b"x")


# hostile archives


def archive(build: Callable[[zipfile.ZipFile], Any], path: Path, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made_archive:
        made_archive.writestr("meta.json", json.dumps(META))
        build(made_archive)
    return path


def test_a_bomb_inflates_no_more_than_its_leaf_needs(tmp_path: Path) -> None:
    path = archive(lambda z: z.writestr("a.memmap", bytes(1 << 28)), tmp_path / "b.zip", zipfile.ZIP_DEFLATED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scan(path)["a"].numpy()
    assert "bomb" in verify(path).codes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda z: z.writestr("../../slip.txt", "x"), "escape"),
        (lambda z: z.writestr("/etc/x", "x"), "escape"),
        (lambda z: z.writestr("C:/x", "x"), "escape"),
        (lambda z: z.writestr("..\\x", "x"), "escape"),
        (lambda z: z.writestr("a.memmap", bytes(16)), "duplicate_entry"),
        (lambda z: z.writestr("b.memmap", bytes(16)), "orphan"),
    ],
)
def test_hostile_entries_are_problems_and_the_leaf_is_read(build: Any, code: str, tmp_path: Path) -> None:
    path = archive(lambda z: (z.writestr("a.memmap", bytes(16)), build(z)), tmp_path / "h.zip")
    assert code in verify(path).codes
    assert scan(path)["a"].numpy().tolist() == [0, 0, 0, 0]


def test_an_encrypted_entry_is_a_problem(tmp_path: Path) -> None:
    path = archive(lambda z: z.writestr("a.memmap", bytes(16)), tmp_path / "e.zip")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in verify(path).codes
    with pytest.raises(DecodeError):
        scan(path)["a"].numpy()


def test_a_changed_payload_fails_its_checksum(tmp_path: Path) -> None:
    path = archive(lambda z: z.writestr("a.memmap", bytes(16)), tmp_path / "c.zip")
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes(16), b"x" + bytes(15), 1))
    assert verify(path).codes == ("alignment", "crc")
    assert verify(path, checksums=False).ok


def test_entries_that_share_bytes_are_a_problem(tmp_path: Path) -> None:
    path = archive(lambda z: (z.writestr("a.memmap", bytes(16)), z.writestr("b.memmap", bytes(16))), tmp_path / "o.zip")
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 46 : second + 54] = b"a.memmap"
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    path.write_bytes(data)
    assert {"archive", "duplicate_entry"} & set(verify(path).codes)


def test_progress_can_stop_the_check(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stop(f"{done} of {total}")

    path = archive(lambda z: z.writestr("a.memmap", bytes(16)), tmp_path / "p.zip")
    with pytest.raises(Stop):
        verify(path, progress=stop)


def looks(path: Path) -> None:
    """Whatever the bytes are: a result, or a tdview error."""
    try:
        root = scan(path)
        str(root)
        for leaf in root.leaves():
            with contextlib.suppress(TdviewError):
                leaf.numpy()
    except TdviewError:
        pass
    with contextlib.suppress(TdviewError):
        verify(path)


BASE = io.BytesIO()
with zipfile.ZipFile(BASE, "w", zipfile.ZIP_DEFLATED) as _zip:
    _zip.writestr("meta.json", json.dumps(META | {"n": {"type": "TensorDict"}}))
    _zip.writestr("a.memmap", struct.pack("<4f", 1, 2, 3, 4))
    _zip.writestr("n/meta.json", json.dumps(META))
    _zip.writestr(zipfile.ZipInfo("n/a.memmap"), bytes(16))
GOOD = BASE.getvalue()


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
@settings(max_examples=300)
def test_flipped_bytes_of_an_archive_never_crash(flips: list[tuple[int, int]], tail: bool) -> None:
    data = bytearray(GOOD)
    directory = GOOD.index(b"PK\x01\x02")
    for at, value in flips:
        data[directory + at % (len(GOOD) - directory) if tail else at] = value
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tdview-fuzz-{os.getpid()}.zip"
    try:
        path.write_bytes(data)
        looks(path)
    finally:
        path.unlink(missing_ok=True)


@given(st.integers(0, len(GOOD)))
@settings(max_examples=100)
def test_a_truncated_archive_never_crashes(length: int) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tdview-fuzz-{os.getpid()}.zip"
    try:
        path.write_bytes(GOOD[:length])
        looks(path)
    finally:
        path.unlink(missing_ok=True)


VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**63,
        2.5,
        "",
        "x",
        "torch.int8",
        [],
        [3],
        [-1],
        [2**62, 2**62],
        {},
        {"type": "TensorDict"},
        [[1]],
    ]
)


ENTRIES = st.sampled_from([*META, "n", "stack_dim", "data", "index", "custom_op", "custom_op_kwargs"])
PARTS = st.sampled_from(["dtype", "shape", "device", "is_nested", "type"])
CLASSES = st.sampled_from(
    [
        "TensorDict",
        "LazyStackedTensorDict",
        "NonTensorData",
        "NonTensorStack",
        "_SubTensorDict",
        "_ViewedTensorDict",
        "X",
    ]
)


@given(st.dictionaries(ENTRIES, VALUES), st.dictionaries(PARTS, VALUES), st.integers(0, 40), CLASSES)
@settings(max_examples=300)
def test_any_meta_json_gives_a_result_or_an_error(
    fields: dict[str, Any], entry: dict[str, Any], payload: int, name: str
) -> None:
    from tdview.tree.scan import root_of

    meta = META | {"_class": f"tensordict:{name}", "a": META["a"] | entry} | fields
    inner = META | {"a": META["a"] | entry}
    files = {
        "meta.json": json.dumps(meta).encode(),
        "a.memmap": bytes(payload),
        "a.shape.memmap": bytes(payload),
        **{f"{level}/meta.json": json.dumps(inner).encode() for level in ("n", "0", "1", "_source", "_tensordict")},
        "_source/a.memmap": bytes(16),
    }
    try:
        root = root_of(MemoryStore(files))
        assert isinstance(str(root), str)
        for node in root.walk():
            _ = node.problems, node.batch_size, node.names, node.nbytes, node.device
            with contextlib.suppress(TdviewError):
                _ = node.value
    except TdviewError:
        pass

"""Appending rows: what is written, what is refused, and what a fault or a kill leaves."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import tensordict
import torch
from tensordict import TensorDict as Peer
from tensordict import append_memmap as peer_append

import tdview
from tdview import Appender, TensorDict, append_memmap, load_memmap, recover_append
from tdview.errors import (
    ArgumentError,
    ConcurrentWriteError,
    DecodeError,
    InterruptedAppendError,
    MissingFileError,
    PickleRefusedError,
    UnsupportedVersionError,
)
from tdview.storage.leftovers import inspect_append
from tdview.testing import corpus
from tdview.testing.faults import Crash, FaultKind, inject
from tests.operations.sources import on_disk

CORPUS = Path(__file__).parent.parent / "corpus"
TMP = ".meta.json.append.tmp"


def example(rows: int, start: int = 0) -> TensorDict:
    """Rows `start`, `start + 1`, … of a save with several dtypes, levels and empty leaves."""
    index = torch.arange(start, start + rows)
    return TensorDict(
        index=index,
        half=index.to(torch.bfloat16)[:, None].expand(rows, 3),
        done=index % 2 == 0,
        wave=torch.complex(index.double(), -index.double()),
        void=torch.zeros(rows, 0),
        next=TensorDict(
            obs=index[:, None] * torch.ones(4), deep=TensorDict(x=-index, batch_size=[rows, 1][:1]), batch_size=[rows]
        ),
        batch_size=[rows],
    )


def uneven() -> Any:
    """A lazy stack that has no dense form."""
    return tdview.LazyStackedTensorDict(TensorDict(a=torch.zeros(2)), TensorDict(a=torch.zeros(3)))


def same(left: Any, right: Any) -> bool:
    """Whether two tensordicts have the same keys, dtypes and values."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    keys = list(left.keys())
    return keys == list(right.keys()) and all(same(left.get(key), right.get(key)) for key in keys)


@pytest.fixture
def save(tmp_path: Path) -> Path:
    example(3).memmap(tmp_path / "s")
    return tmp_path / "s"


# -- what is written ------------------------------------------------------------------------------------------------


def test_rows_are_added_and_tensordict_reads_them(save: Path) -> None:
    append_memmap(save, example(2, 3))
    append_memmap(save, example(0, 5))
    append_memmap(save, example(1, 5))
    assert same(load_memmap(save), example(6))
    peer = Peer.load_memmap(save, mode="r")
    assert peer.batch_size == torch.Size([6])
    assert peer["next", "deep", "x"].tolist() == [0, -1, -2, -3, -4, -5]
    assert tdview.verify(save).ok


def test_the_files_are_those_of_tensordict(tmp_path: Path) -> None:
    def td(kind: Any, start: int, rows: int) -> Any:
        x = torch.arange(start, start + rows)
        return kind({"a": x, "n": kind({"b": x[:, None].float()}, batch_size=[rows])}, batch_size=[rows])

    for name, append, kind in (("peer", peer_append, Peer), ("mine", append_memmap, TensorDict)):
        td(Peer, 0, 3).memmap(tmp_path / name)
        meta = json.loads((tmp_path / name / "meta.json").read_text())
        (tmp_path / name / "meta.json").write_text(json.dumps(meta, indent=1))
        append(tmp_path / name, td(kind, 3, 2))
    assert on_disk(tmp_path / "mine") == on_disk(tmp_path / "peer")


@pytest.mark.parametrize("kind", [TensorDict, Peer])
def test_rows_of_either_package_do(save: Path, kind: Any) -> None:
    rows = example(2, 3)
    append_memmap(save, rows if kind is TensorDict else tdview.to_tensordict(rows))
    with Appender(save) as appender:
        appender.append(rows if kind is TensorDict else tdview.to_tensordict(rows))
    assert load_memmap(save)["index"].tolist() == [0, 1, 2, 3, 4, 3, 4]


def test_rows_of_any_layout_are_written_in_c_order(tmp_path: Path) -> None:
    def rows() -> TensorDict:
        x = torch.arange(12.0).reshape(3, 2, 2)
        return TensorDict(
            t=x.transpose(1, 2), e=torch.ones(1, 2).expand(3, 2), g=x.clone().requires_grad_(),
            c=x.to(torch.cfloat).conj(), s=x[::2].repeat(2, 1, 1)[:3], batch_size=[3],
        )  # fmt: skip

    rows().memmap(tmp_path / "s")
    append_memmap(tmp_path / "s", rows())
    loaded = load_memmap(tmp_path / "s")
    assert all(torch.equal(loaded[key], torch.cat([rows()[key]] * 2)) for key in list(rows().keys()))


def test_a_save_without_rows_grows(tmp_path: Path) -> None:
    example(0).memmap(tmp_path / "s")
    append_memmap(tmp_path / "s", example(2))
    append_memmap(tmp_path / "s", example(1, 2))
    assert same(load_memmap(tmp_path / "s"), example(3))


def test_a_reader_that_mapped_the_save_keeps_the_old_rows(save: Path) -> None:
    before = load_memmap(save)
    append_memmap(save, example(5, 3))
    assert same(before, example(3))


def test_rows_go_to_the_declared_end_of_a_longer_payload(save: Path) -> None:
    with open(save / "index.memmap", "ab") as file:
        file.write(b"\xff" * 100)
    append_memmap(save, example(2, 3))
    assert same(load_memmap(save), example(5))
    assert os.stat(save / "index.memmap").st_size == 3 * 8 + 100


def test_a_tensorclass_grows(tmp_path: Path) -> None:
    @tdview.tensorclass
    class Point:
        xy: torch.Tensor
        label: str

    Point(torch.zeros(2, 2), label="p", batch_size=[2]).memmap(tmp_path / "s")
    append_memmap(tmp_path / "s", Point(torch.ones(1, 2), label="p", batch_size=[1]))
    assert load_memmap(tmp_path / "s").xy.sum(-1).tolist() == [0, 0, 2]
    with pytest.raises(ArgumentError):
        append_memmap(tmp_path / "s", Point(torch.ones(1, 2), label="q", batch_size=[1]))
    with pytest.raises(ArgumentError):
        append_memmap(tmp_path / "s", TensorDict(xy=torch.ones(1, 2), label="p", batch_size=[1]))
    assert load_memmap(tmp_path / "s").batch_size == (3,)


def test_a_lazy_stack_of_rows_becomes_dense(save: Path) -> None:
    append_memmap(save, tdview.LazyStackedTensorDict(*example(2, 3).unbind(0)))
    assert same(load_memmap(save), example(5))


def test_a_second_batch_dim_stays(tmp_path: Path) -> None:
    TensorDict(a=torch.zeros(2, 4), batch_size=[2, 4]).memmap(tmp_path / "s")
    append_memmap(tmp_path / "s", TensorDict(a=torch.ones(1, 4), batch_size=[1, 4]))
    for size in ([4], [1, 3]):
        with pytest.raises(ArgumentError):
            append_memmap(tmp_path / "s", TensorDict(a=torch.ones(size), batch_size=size))
    assert tdview.scan(tmp_path / "s").batch_size == (3, 4)


# -- values that are no tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["text", 3, None, float("nan"), [1, (2, 3)], {"a": [1.5]}, 2**70])
def test_a_non_tensor_value_must_be_the_saved_one(tmp_path: Path, value: Any) -> None:
    def rows(count: int, item: Any) -> TensorDict:
        return TensorDict(a=torch.zeros(count), v=tdview.NonTensorData(item, batch_size=[count]), batch_size=[count])

    rows(2, value).memmap(tmp_path / "s")
    append_memmap(tmp_path / "s", rows(1, value))
    stack = tdview.NonTensorStack.from_list([value, value]) if not isinstance(value, list | dict) else None
    if stack is not None:
        append_memmap(tmp_path / "s", TensorDict(a=torch.zeros(2), v=stack, batch_size=[2]))
    with pytest.raises(ArgumentError):
        append_memmap(tmp_path / "s", rows(1, "something else"))
    with pytest.raises(ArgumentError):
        append_memmap(tmp_path / "s", TensorDict(a=torch.zeros(1), v=torch.zeros(1), batch_size=[1]))
    assert tdview.scan(tmp_path / "s").batch_size == (5 if stack is not None else 3,)


def test_a_pickled_value_is_executed_only_if_that_is_allowed(tmp_path: Path) -> None:
    def refused(count: int) -> TensorDict:
        odd = tdview.NonTensorData(Fraction(1, 3), batch_size=[count])
        return TensorDict(a=torch.zeros(count), v=odd, batch_size=[count])

    refused(2).memmap(tmp_path / "s")
    for choice in (False, None):
        with pytest.raises(PickleRefusedError):
            append_memmap(tmp_path / "s", refused(1), allow_pickle=choice)
    append_memmap(tmp_path / "s", refused(1), allow_pickle=True)
    with pytest.raises(TypeError):
        append_memmap(tmp_path / "s", refused(1), allow_pickle="yes")  # type: ignore[arg-type]
    assert tdview.scan(tmp_path / "s").batch_size == (3,)


# -- what is refused ------------------------------------------------------------------------------------------------


def _with(change: Callable[[TensorDict], Any]) -> TensorDict:
    rows = example(2, 3)
    out = change(rows)
    return rows if out is None else out


@pytest.mark.parametrize(
    "rows",
    [
        lambda: _with(lambda td: td.set("extra", torch.zeros(2))),
        lambda: _with(lambda td: td.del_("done")),
        lambda: _with(lambda td: td.set("index", td["index"].int())),
        lambda: _with(lambda td: td.set("half", td["half"].half())),
        lambda: _with(lambda td: td.set("half", td["half"][:, :2])),
        lambda: _with(lambda td: td.set(("next", "deep", "x"), torch.zeros(2))),
        lambda: _with(lambda td: td["next"].set("y", torch.zeros(2))),
        lambda: _with(lambda td: td.set("next", torch.zeros(2))),
        lambda: _with(lambda td: td.set("index", TensorDict(a=torch.zeros(2), batch_size=[2]))),
        lambda: TensorDict(index=torch.tensor(1), batch_size=[]),
        lambda: example(4).view(2, 2),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_the_first_byte(save: Path, rows: Callable[[], TensorDict]) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in save.rglob("*")}
    with pytest.raises(ArgumentError):
        append_memmap(save, rows())
    with Appender(save) as appender:
        with pytest.raises(ArgumentError):
            appender.append(rows())
        assert appender.rows == 3
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in save.rglob("*")} == before


def test_what_is_no_tensordict_is_a_type_error(save: Path) -> None:
    for rows in ({"index": torch.zeros(1)}, torch.zeros(2), None):
        with pytest.raises(TypeError):
            append_memmap(save, rows)


@pytest.mark.parametrize(
    "build",
    [
        lambda: TensorDict(a=torch.zeros(3), batch_size=[]),
        lambda: uneven(),
        lambda: TensorDict(l=uneven(), batch_size=[2]),
        lambda: TensorDict(a=torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), batch_size=[2]),
        lambda: TensorDict(v=tdview.NonTensorStack.from_list(["a", "b"]), batch_size=[2]),
        lambda: tdview.NonTensorData("x"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_saves_that_cannot_grow_are_refused(tmp_path: Path, build: Callable[[], Any]) -> None:
    value = build()
    value.memmap(tmp_path / "s")
    before = on_disk(tmp_path / "s")
    with pytest.raises(ArgumentError):
        append_memmap(tmp_path / "s", value if isinstance(value, TensorDict) else example(1))
    assert on_disk(tmp_path / "s") == before


def test_places_without_a_save_are_refused(save: Path, tmp_path: Path) -> None:
    example(3).save(tmp_path / "a.tdz")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "a.tdz", tmp_path / "nothing"):
        with pytest.raises(ValueError):
            append_memmap(path, example(1))
    with pytest.raises(MissingFileError):
        append_memmap(tmp_path / "empty", example(1))
    (save / "storage_metadata.json").write_text("{}")
    with pytest.raises(ArgumentError, match="capacity"):
        append_memmap(save, example(1))


def test_a_level_of_a_save_with_rows_does_not_grow_alone(save: Path, tmp_path: Path) -> None:
    level = load_memmap(save)["next"]
    with pytest.raises(ArgumentError):
        append_memmap(save / "next", level)
    with pytest.raises(ArgumentError):
        append_memmap(save / "next" / "deep", level["deep"])
    two = TensorDict(train=example(3), test=example(2), batch_size=[])
    two.memmap(tmp_path / "two")
    append_memmap(tmp_path / "two" / "train", example(1, 3))
    loaded = load_memmap(tmp_path / "two")
    assert same(loaded["train"], example(4))
    assert same(loaded["test"], example(2))


def test_nothing_in_a_replay_buffer_grows_behind_its_capacity(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    example(3).memmap(dump / "storage")
    (dump / "storage" / "storage_metadata.json").write_text("{}")
    for place, rows in (("", example(1)), ("storage", example(1)), ("storage/next", example(1)["next"])):
        with pytest.raises(ArgumentError, match="capacity"):
            append_memmap(dump / place, rows)
    assert same(load_memmap(dump / "storage"), example(3))


def test_damage_is_noticed_and_left_as_it_is(save: Path) -> None:
    def check(error: type[Exception]) -> None:
        before = on_disk(save)
        with pytest.raises(error):
            append_memmap(save, example(1, 3))
        assert on_disk(save) == before

    whole = on_disk(save)
    opened = len(os.listdir("/proc/self/fd"))
    os.truncate(save / "index.memmap", 20)
    check(DecodeError)
    (save / "index.memmap").unlink()
    check(MissingFileError)
    os.mkfifo(save / "index.memmap")
    with pytest.raises(DecodeError, match="no regular file"):
        append_memmap(save, example(1, 3))
    (save / "index.memmap").unlink()
    (save / "index.memmap").write_bytes(whole["index.memmap"])
    meta = json.loads(whole["next/meta.json"])
    for change in (
        {"shape": [2]},
        {"shape": "three"},
        {"_format_version": 2},
        {"obs": {**meta["obs"], "dtype": "torch.float7"}},
    ):
        (save / "next" / "meta.json").write_text(json.dumps({**meta, **change}))
        check(UnsupportedVersionError if "_format_version" in change else DecodeError)
    (save / "next" / "meta.json").write_text("{")
    check(DecodeError)
    shutil.rmtree(save / "next")
    check(DecodeError)
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize(("saved", "dtype"), [("quint8", torch.uint8), ("qint32", torch.int32), ("uint3", torch.uint8)])
def test_a_dtype_of_the_same_bytes_is_another_dtype(tmp_path: Path, saved: str, dtype: torch.dtype) -> None:
    place = tmp_path / "save"
    TensorDict(a=torch.zeros(3, dtype=dtype), batch_size=[3]).memmap(place)
    meta = (place / "meta.json").read_text()
    (place / "meta.json").write_text(meta.replace(str(dtype), f"torch.{saved}"))
    before = on_disk(place)
    with pytest.raises(ArgumentError, match=saved):
        append_memmap(place, TensorDict(a=torch.zeros(1, dtype=dtype), batch_size=[1]))
    assert on_disk(place) == before


def test_links_are_not_written_through(save: Path, tmp_path: Path) -> None:
    (save / "index.memmap").rename(tmp_path / "elsewhere")
    (save / "index.memmap").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError):
        append_memmap(save, example(1, 3))
    assert (tmp_path / "elsewhere").stat().st_size == 24


def test_a_second_writer_is_kept_out_and_readers_are_not(save: Path) -> None:
    with Appender(save) as appender:
        for work in (lambda: append_memmap(save, example(1)), lambda: Appender(save), lambda: recover_append(save)):
            with pytest.raises(ConcurrentWriteError):
                work()
        appender.append(example(1, 3))
        assert same(load_memmap(save), example(4))
    append_memmap(save, example(1, 4))
    assert sorted(path.name for path in save.iterdir() if not path.suffix) == ["next"]


# -- Appender -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"flush": 3}, {"flush": None}, {"fsync": True}])
def test_many_appends_are_one_save(save: Path, options: dict[str, Any]) -> None:
    with Appender(save, **options) as appender:
        for row in range(3, 20):
            appender.append(example(1 + row % 2, row))
        assert appender.rows == 3 + 17 + 9
    expected = torch.cat([example(3)["index"], *(example(1 + row % 2, row)["index"] for row in range(3, 20))])
    assert torch.equal(load_memmap(save)["index"], expected)
    assert Peer.load_memmap(save, mode="r")["next", "obs"].shape == (29, 4)


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_few_descriptors_are_enough(save: Path, monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
    monkeypatch.setattr("tdview.containers.appending._spare_descriptors", lambda: spare)
    append_memmap(save, example(2, 3))
    with Appender(save) as appender:
        appender.append(example(1, 5))
        appender.append(example(2, 6))
    assert load_memmap(save)["index"].tolist() == list(range(8))
    (save / "next" / "obs.memmap").write_bytes(b"")
    for work in (lambda: append_memmap(save, example(1)), lambda: Appender(save)):
        with pytest.raises(DecodeError, match="0 bytes"):
            work()


def test_rows_that_wait_are_copies(save: Path) -> None:
    rows = example(1, 3)
    with Appender(save, flush=None) as appender:
        appender.append(rows)
        rows["index"].fill_(99)
        assert tdview.scan(save).batch_size == (3,)
        appender.flush()
        assert tdview.scan(save).batch_size == (4,)
    assert load_memmap(save)["index"].tolist() == [0, 1, 2, 3]


def test_an_appender_flushes_when_the_number_of_appends_is_reached(save: Path) -> None:
    with Appender(save, flush=2) as appender:
        appender.append(example(1, 3))
        assert tdview.scan(save).batch_size == (3,)
        appender.append(example(1, 4))
        assert tdview.scan(save).batch_size == (5,)
    for bad in (0, -1, True):
        with pytest.raises(ArgumentError):
            Appender(save, flush=bad)


def test_a_large_append_is_written_through_after_what_waits(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Appender(save, flush=None) as appender:
        monkeypatch.setattr("tdview.containers.appending._LARGE", 2 * appender._row_nbytes)
        appender.append(example(1, 3))
        assert tdview.scan(save).batch_size == (3,)
        appender.append(example(2, 4))
        assert tdview.scan(save).batch_size == (6,)
        appender.append(example(1, 6))
        assert appender.rows == 7
    assert load_memmap(save)["index"].tolist() == list(range(7))


def test_a_closed_appender_says_so(save: Path) -> None:
    appender = Appender(save)
    assert str(save) in repr(appender)
    appender.close()
    appender.close()
    assert repr(appender) == "Appender(closed)"
    for work in (lambda: appender.append(example(1)), appender.flush, lambda: appender.rows):
        with pytest.raises(ArgumentError):
            work()


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.leaves_files
@pytest.mark.parametrize("kind", ["error", "disk_full", "short_write", "crash"])
@pytest.mark.parametrize("start", [0, 3])
def test_a_fault_at_any_call_leaves_the_old_rows_or_the_new_ones(tmp_path: Path, start: int, kind: FaultKind) -> None:
    root = tmp_path / "s"
    for at in range(1, 300):
        shutil.rmtree(root, ignore_errors=True)
        example(start).memmap(root)
        before, failed = on_disk(root), False
        with inject(at, kind) as faults:
            try:
                append_memmap(root, example(2, start))
            except (OSError, Crash):
                failed = True
        if failed and kind != "crash":
            assert on_disk(root) == before
        outcome = recover_append(root)
        rows = start + 2 if outcome == "completed" or (outcome is None and not _is_old(root, start)) else start
        assert same(load_memmap(root), example(rows))
        assert not list(root.rglob("*.tmp"))
        assert failed or rows == start + 2
        append_memmap(root, example(1, rows))
        assert same(load_memmap(root), example(rows + 1))
        if not faults.fired:
            return
    pytest.fail("the append never gets through")


def _is_old(root: Path, rows: int) -> bool:
    return bool(tdview.scan(root).batch_size == (rows,))


@pytest.mark.leaves_files
@pytest.mark.slow
def test_a_crash_while_an_append_is_taken_back_is_recovered_too(tmp_path: Path) -> None:
    """Two faults: a rename fails, and the process is killed at any call of the restoration."""

    def td(rows: int) -> TensorDict:
        x = torch.arange(rows)
        return TensorDict(a=x, n={"b": x, "m": {"c": x}}, batch_size=[rows])

    root = tmp_path / "s"
    reached = 0
    for first in range(1, 60):
        for second in range(1, 60):
            shutil.rmtree(root, ignore_errors=True)
            td(3).memmap(root)
            with inject(first, "error") as error, inject(first + second, "crash") as crash, suppress(OSError, Crash):
                append_memmap(root, td(2))
            recover_append(root)
            rows = tdview.scan(root).batch_size[0]
            assert rows in (3, 5)
            assert load_memmap(root)["n", "m", "c"].tolist() == [0, 1, 2, 0, 1][:rows]
            if not (error.fired and crash.fired):
                break
            reached += 1
        if not error.fired:
            assert reached > 50
            return
    pytest.fail("the append never gets through")


# -- recovery -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[corpus.Case]:
    """The interrupted appends of the corpus."""
    folder = tmp_path_factory.mktemp("killed")
    for archive in sorted(CORPUS.glob("tensordict-*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, [member for member in tar if "/killed_append_" in member.name], filter="data")
    return corpus.cases(folder)


def test_killed_appends_of_every_version_are_recovered(killed: list[corpus.Case]) -> None:
    assert len(killed) >= 6
    for case in killed:
        root = case.saved
        before = on_disk(root)
        state = inspect_append(root)
        assert state is not None
        assert state.action == case.expected["recovery"]
        assert "interrupted_append" in {p.code for node in tdview.scan(root).walk() for p in node.problems}
        with pytest.raises(InterruptedAppendError):
            append_memmap(root, example(1))
        assert on_disk(root) == before
        assert recover_append(root) == {"complete": "completed", "discard": "discarded"}[state.action]
        assert list(tdview.scan(root).batch_size) == case.expected["batch_size"]
        assert tdview.verify(root).ok
        assert recover_append(root) is None


@pytest.mark.leaves_files
def test_stray_temporaries_of_another_save_are_not_believed(tmp_path: Path) -> None:
    """A killed append, then a save of other dtypes at the same place that left the temporary file: it has the rows
    of the new save, and must not be renamed over its meta.json."""
    root = tmp_path / "s"

    def td(rows: int, dtype: torch.dtype) -> Peer:
        return Peer(
            a=torch.arange(rows), n=Peer(b=torch.arange(rows, dtype=dtype), batch_size=[rows]), batch_size=[rows]
        )

    td(3, torch.int64).memmap(root)
    stray = json.loads((root / "n" / "meta.json").read_text().replace("[3]", "[5]"))
    td(5, torch.int32).memmap(root)
    for change in (
        {},
        {"b": {**stray["b"], "dtype": "torch.int32", "shape": [5, 2]}},
        {"c": stray["b"]},
        {"shape": [4]},
    ):
        (root / "n" / TMP).write_text(json.dumps({**stray, **change}))
        before = (root / "n" / "meta.json").read_bytes()
        assert recover_append(root) == "discarded"
        assert (root / "n" / "meta.json").read_bytes() == before
    for text in ("", "[1]", "{", '{"shape": 3}'):
        (root / "n" / TMP).write_text(text)
        assert recover_append(root) == "discarded"
    assert Peer.load_memmap(root, mode="r")["n", "b"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.leaves_files
def test_an_append_is_not_completed_when_a_payload_is_too_short(tmp_path: Path) -> None:
    root = tmp_path / "s"
    example(3).memmap(root)
    for path in (root / "meta.json", root / "next" / "meta.json"):
        goal = path if path.parent == root else path.with_name(TMP)
        goal.write_text(path.read_text().replace("[3", "[5"))
    assert recover_append(root) == "discarded"
    assert recover_append(root) is None


def test_recovery_looks_at_no_other_save_below(save: Path) -> None:
    example(3).memmap(save / "mine")
    (save / "mine" / TMP).write_text("{}")
    assert recover_append(save) is None
    assert (save / "mine" / TMP).exists()
    (save / "mine" / TMP).unlink()
    with pytest.raises(NotADirectoryError):
        recover_append(save / "index.memmap")


def test_tensordict_appends_to_what_tdview_appended(save: Path) -> None:
    append_memmap(save, example(2, 3))
    tensordict.append_memmap(save, tdview.to_tensordict(example(1, 5)))
    append_memmap(save, example(1, 6))
    assert same(load_memmap(save), example(7))


def test_an_appender_of_a_relative_path_stays_with_its_save(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(save.parent)
    with Appender(save.name) as appender:
        (save.parent / "elsewhere").mkdir()
        monkeypatch.chdir(save.parent / "elsewhere")
        before = appender.rows
        appender.append(example(2))
    assert tdview.scan(save).batch_size == (before + 2,)
    assert not list(Path().iterdir())

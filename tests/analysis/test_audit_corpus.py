"""The audit over buffers and data sets that torchrl itself wrote: faults found at their rows, no false alarm."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from made import ARCHIVE

import tdview

UNREADABLE = {"liststorage_state_dict", "h5_wrapped"}
FAULTY = {"minari_layout_allzero_bug": "all_zero"}
STALE = {"inplace_scratch_dump"}

with tarfile.open(ARCHIVE) as _archive:
    CASES = sorted(name.split("/")[0] for name in _archive.getnames() if name.endswith("/expected.json"))


def expected(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "expected.json").read_text())
    return found


def target(case: Path) -> Path:
    storage = expected(case).get("storage")
    if storage:
        return case / storage.split("/")[0]
    return next(p for p in sorted(case.iterdir()) if p.name not in ("expected.json", f"{case.name}.txt"))


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNREADABLE])
def test_findings_are_those_that_were_planted(dumps: Path, name: str) -> None:
    case = dumps / name
    planted = expected(case).get("findings", [])
    leaky = any(fault["check"] == "train_test_leak" for fault in planted)
    report = tdview.audit(target(case), against=dumps / "pair_train" / "buffer" if leaky else None)
    for fault in planted:
        hits = [p for p in report.problems if p.code == fault["check"]]
        rows = {row for p in hits for a, b in p.rows for row in range(a, b)}
        assert hits, fault["check"]
        assert "rows" not in fault or set(fault["rows"]) & rows
    if name in FAULTY:
        assert FAULTY[name] in report.codes
    elif not planted and name not in STALE:
        assert [p for p in report.problems if p.severity == "error"] == []


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNREADABLE])
def test_rows_and_time_order_are_those_of_torchrl(dumps: Path, name: str) -> None:
    case = dumps / name
    want = expected(case)
    order = (want.get("valid") or {}).get("chronological")
    if order is None or want["kind"] != "rb.dumps" or want.get("findings"):
        return
    fill = tdview.scan(target(case)).fill
    assert fill is not None
    assert [list(span) for span in fill.chronological] == order
    assert fill.certain


@pytest.mark.parametrize("name", sorted(UNREADABLE & set(CASES)))
def test_other_containers_are_refused_with_a_word(dumps: Path, name: str) -> None:
    with pytest.raises(tdview.TdviewError):
        tdview.audit(target(dumps / name))


def test_pickles_are_listed_and_never_opened(dumps: Path) -> None:
    canary = Path("/tmp/tdview_pickle_canary")
    before = canary.exists()
    report = tdview.audit(dumps / "pickle_canary" / "buffer")
    assert "pickle_present" in report.codes
    assert canary.exists() == before


def test_an_audit_changes_no_byte_and_no_time(dumps: Path) -> None:
    folder = dumps / "bad_storage_files"
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}
    tdview.audit(folder / "buffer")
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")} == before


def test_a_missing_file_of_a_checkpoint_manifest_is_found(dumps: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "ckpt"
    shutil.copytree(dumps / "torchrl_checkpoint_directory" / "ckpt", copy)
    (copy / "components" / "0000-replay_buffer" / "prefetch.pkl").unlink()
    assert "missing_file" in tdview.audit(copy).codes


def test_two_audits_give_the_same_text(dumps: Path) -> None:
    folder = dumps / "bad_nan_inf" / "buffer"
    assert tdview.audit(folder).to_json() == tdview.audit(folder).to_json()

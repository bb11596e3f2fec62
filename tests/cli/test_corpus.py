"""Every reading verb over real saves: a result or one line, never an internal error, never a changed byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tdview.testing.corpus import unpack

CORPUS = Path(__file__).parents[1] / "corpus"
VERBS = ("ls", "info", "show", "stats", "verify", "audit", "episodes")


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("corpus")
    found = []
    for name in ("tensordict-0.15.3", "torchrl"):
        unpack(CORPUS / f"{name}.tar.gz", folder / name)
        for expected in sorted((folder / name).rglob("expected.json")):
            storage = json.loads(expected.read_text()).get("storage")
            saved = expected.with_name("saved")
            found.append(
                expected.parent / storage.split("/")[0] if storage else saved if saved.exists() else saved.parent
            )
    return found


def _state(saves: list[Path]) -> dict[str, tuple[int, int]]:
    files = (path for save in saves for path in ([save] if save.is_file() else save.rglob("*")))
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}


def test_there_are_saves_of_both_kinds(saves: list[Path]) -> None:
    assert len(saves) > 90


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_every_save(tdview, saves: list[Path], verb: str, form: str) -> None:
    before = _state(saves)
    wrong = []
    for save in saves:
        ran = tdview(verb, save, *(["--json"] if form == "json" else []))
        if ran.code not in (0, 1, 2) or "TDVIEW_TRACEBACK" in ran.err:
            wrong.append((save.parent.name, ran.err))
        elif ran.code == 2:
            assert (ran.out, len(ran.err.splitlines())) == ("", 1)
        elif form == "json":
            json.loads(ran.out)
    assert not wrong
    assert _state(saves) == before

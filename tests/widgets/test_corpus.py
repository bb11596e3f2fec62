"""Every save of the corpus is browsed over the wire: an answer or a tdview error, never an internal one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tdview
from tdview.errors import TdviewError
from tdview.testing.corpus import unpack
from tests.widgets.conftest import View

CORPUS = Path(__file__).parents[1] / "corpus"
LEAVES_PER_LEVEL = 40


def saves(folder: Path) -> Iterator[Path]:
    cases = {expected.parent for expected in folder.rglob("expected.json")} or {folder}
    for case in sorted(cases):
        yield from (path for path in sorted(case.iterdir()) if path.suffix not in (".json", ".txt"))


def walk(view: View, check: Callable[[str, dict[str, Any]], Any]) -> None:
    """What a curious person would click."""
    levels: list[list[str]] = [[]]
    while levels:
        path = levels.pop()
        check("node.info", {"path": path})
        page = check("tree.children", {"path": path})
        for row in (page or {"rows": []})["rows"][:LEAVES_PER_LEVEL]:
            below = [*path, row["key"]]
            if row["children"]:
                levels.append(below)
            check("node.info", {"path": below})
            if row["dtype"] is not None:
                check("table.page", {"path": below, "blocks": [[0, 16, 0, 16]], "describe": True})
    check("tree.search", {"query": "a"})
    check("tree.locate", {"path": []})
    check("episodes", {})


@pytest.mark.leaves_files  # some cases hold what an interrupted write left behind
@pytest.mark.parametrize("archive", sorted(CORPUS.glob("*.tar.gz")), ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_every_save_of_the_corpus_can_be_browsed(archive: Path, tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    faults: list[tuple[str, ...]] = []
    opened = 0
    for path in saves(unpack(archive, tmp_path)):
        try:
            browser = tdview.open(path)
        except TdviewError:
            continue
        opened += 1
        view = view_of(browser)

        def check(op: str, args: dict[str, Any], view: View = view, path: Path = path) -> Any:
            answer, _ = view.exchange(op, args)
            if answer["kind"] == "reply":
                return answer["value"]
            if answer["error"]["code"] == "internal":
                faults.append((path.parent.name, op, str(args)[:120], answer["error"]["message"]))
            return None

        walk(view, check)
        assert "<tdview.Browser" in repr(browser)
        browser.close()
    assert opened
    assert faults == []

"""The harness itself: a plain notebook runs, and what goes wrong in it is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from .lab import Lab, find_chromium


def test_plain_cells_run_in_the_folder_of_the_test(lab: Lab, page: Page) -> None:
    (lab.folder / "data.txt").write_text("42")
    notebook = lab.open(page, ["print(open('data.txt').read())", "6 * 7"])
    notebook.run_all()
    assert (notebook.text(0), notebook.text(1)) == ("42", "42")


def test_an_exception_in_a_cell_fails_the_run(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, ["1 / 0"], theme="dark")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        notebook.run_all()


def test_a_named_browser_is_taken_and_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TDVIEW_CHROMIUM", "/opt/chrome")
    assert find_chromium(tmp_path / "none") == "/opt/chrome"
    monkeypatch.delenv("TDVIEW_CHROMIUM")
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="Chromium"):
        find_chromium(tmp_path / "none")

"""Cells are edited, undone and handed on in a real JupyterLab."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from playwright.sync_api import Locator, Page, expect
from tensordict import TensorDict

from .lab import Lab

OPEN = "import tdview\nb = tdview.open({!r}, mode='r+')\nb"


def make_save(path: Path) -> Path:
    source = {"obs": torch.arange(12.0).view(6, 2), "i": torch.arange(6)}
    source["next"] = TensorDict({"reward": torch.linspace(0, 5, 6).unsqueeze(-1)}, batch_size=[6])
    TensorDict(source, batch_size=[6]).save(path)
    return path


def show(browser: Locator, key: str) -> None:
    """Selects a leaf and its table."""
    tree = browser.get_by_role("tree")
    if key == "reward":
        tree.get_by_role("treeitem", name="next").first.click()
    if not tree.get_by_role("treeitem", name=key).count():
        browser.page.keyboard.press("ArrowRight")
    tree.get_by_role("treeitem", name=key).first.click()
    browser.get_by_role("tab", name="Table").click()


def type_into(cell: Locator, text: str) -> None:
    """Edits a cell as a person does."""
    cell.dblclick()
    page = cell.page
    page.keyboard.press("Control+A")
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def first_cell(browser: Locator) -> Locator:
    return browser.get_by_role("grid").locator('[role="gridcell"]:visible').first


def reward(path: Path) -> list[float]:
    return TensorDict.load_memmap(path)["next", "reward"].flatten().tolist()


def test_a_cell_is_edited_refreshed_and_undone(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run.tdz")
    notebook = lab.open(page, [OPEN.format("run.tdz"), "[edit.new for edit in b.edits]"])
    notebook.run_all()
    browser = notebook.cell(0)
    show(browser, "reward")
    expect(first_cell(browser)).to_have_text("0.0000")
    type_into(first_cell(browser), "7.5")
    expect(first_cell(browser)).to_have_text("7.5000")
    assert reward(path) == [7.5, 1, 2, 3, 4, 5]
    browser.get_by_role("button", name="Refresh checksums").click()
    expect(browser.get_by_text("1 entry is stale")).to_be_hidden()
    assert zipfile.ZipFile(path).testzip() is None
    notebook.run(1)
    assert notebook.text(1) == "[[[7.5]]]"
    browser.get_by_role("button", name="Undo").click()
    expect(first_cell(browser)).to_have_text("0.0000")
    assert reward(path) == [0, 1, 2, 3, 4, 5]
    browser.get_by_role("button", name="Redo").click()
    expect(first_cell(browser)).to_have_text("7.5000")

"""The first notebook in JupyterLab, as `make demo` opens it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from .lab import Lab

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_the_first_notebook_runs_and_shows_the_browser(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, NOTEBOOKS / "01_open.ipynb")
    notebook.run_all()
    index = next(i for i, source in enumerate(notebook.sources()) if source.startswith("browser = tdview.open"))
    tree = notebook.cell(index).get_by_role("tree")
    expect(tree.get_by_role("treeitem", name="observation").first).to_be_visible()
    expect(notebook.cell(index).get_by_text("256 of 256 rows").first).to_be_visible()

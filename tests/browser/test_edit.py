"""Cells are edited, undone and handed on in a real JupyterLab."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import torch
from playwright.sync_api import Locator, Page, expect
from tensordict import NonTensorData, TensorDict

from .lab import Lab

SLOW_MS = 20_000
"""For work that imports torch first."""

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
    expect(browser.get_by_role("grid").get_by_role("columnheader").last).to_contain_text(key)


def type_into(cell: Locator, text: str) -> None:
    """Edits a cell as a person does. Types into its editor, wherever the notebook puts the focus meanwhile."""
    cell.dblclick()
    editor = cell.page.get_by_role("grid").get_by_role("textbox")
    editor.fill(text)
    editor.press("Enter")


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
    assert notebook.text(1) == "[7.5]"
    browser.get_by_role("button", name="Undo").click()
    expect(first_cell(browser)).to_have_text("0.0000")
    assert reward(path) == [0, 1, 2, 3, 4, 5]
    browser.get_by_role("button", name="Redo").click()
    expect(first_cell(browser)).to_have_text("7.5000")


def test_a_refusal_stays_in_the_cell(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run.tdz")
    notebook = lab.open(page, [OPEN.format("run.tdz")])
    notebook.run_all()
    browser = notebook.cell(0)
    show(browser, "i")
    expect(first_cell(browser)).to_have_text("0")
    type_into(first_cell(browser), "1.5")
    expect(browser.get_by_text("is not an integer")).to_be_visible()
    page.keyboard.press("Control+A")
    page.keyboard.type("9007199254740993")
    page.keyboard.press("Enter")
    expect(first_cell(browser)).to_have_text("9007199254740993")
    assert TensorDict.load_memmap(path)["i"].tolist() == [9007199254740993, 1, 2, 3, 4, 5]
    page.keyboard.press("Control+z")
    expect(first_cell(browser)).to_have_text("0")
    page.keyboard.press("Control+y")
    expect(first_cell(browser)).to_have_text("9007199254740993")
    assert notebook.cell_count() == 1


def test_a_click_elsewhere_keeps_what_was_typed(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    notebook = lab.open(page, [OPEN.format("run")])
    notebook.run_all()
    browser = notebook.cell(0)
    show(browser, "reward")
    cells = browser.get_by_role("grid").locator('[role="gridcell"]:visible')
    expect(cells.nth(1)).to_have_text("1.0000")
    cells.nth(1).click()
    page.keyboard.type("7.5")
    cells.nth(3).click()
    expect(cells.nth(1)).to_have_text("7.5000")
    expect(cells.nth(3)).to_have_class(re.compile("tdv-active"))
    assert reward(path) == [0, 7.5, 2, 3, 4, 5]

    page.keyboard.type("much")
    cells.nth(0).click()
    expect(browser.get_by_text("is no number")).to_be_visible()
    typed = browser.get_by_label("Row 3, column 0")
    expect(typed).to_be_focused()
    expect(typed).to_have_value("much")
    page.keyboard.press("Escape")
    expect(cells.nth(3)).to_have_text("3.0000")

    page.keyboard.type("more")
    browser.get_by_role("treeitem", name="obs").first.click()
    expect(browser.get_by_text("Not written: ")).to_contain_text("more")
    assert reward(path) == [0, 7.5, 2, 3, 4, 5]
    expect(browser.get_by_text("1 edit", exact=True)).to_be_visible()


def test_a_range_is_pasted_and_selected_in_python(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    notebook = lab.open(page, [OPEN.format("run"), "b.selection.tensors", "print(b.selection.frame())"])
    notebook.run_all()
    browser = notebook.cell(0)
    browser.get_by_role("treeitem", name="obs").first.click()
    browser.get_by_role("tab", name="Table").click()
    grid = browser.get_by_role("grid")
    expect(first_cell(browser)).to_contain_text("0")
    first_cell(browser).click()
    grid.evaluate(
        """element => {
            const data = new DataTransfer();
            data.setData("text/plain", "10\\t11\\n12\\tnan");
            element.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
        }"""
    )
    expect(browser.get_by_text("Pasted 2 × 2 cells")).to_be_visible()
    loaded = TensorDict.load_memmap(path)["obs"]
    assert loaded[0].tolist() == [10, 11]
    assert loaded[1, 0] == 12
    assert loaded[1, 1].isnan()
    page.wait_for_timeout(600)  # the selection is told when it rests
    notebook.run(1)
    assert "[10., 11.]" in notebook.text(1)
    assert "nan" in notebook.text(1)
    notebook.run(2)
    assert "obs[1]" in notebook.text(2)


def test_a_whole_leaf_of_a_million_rows_is_filled_and_undone(lab: Lab, page: Page) -> None:
    path = lab.folder / "run"
    TensorDict({"x": torch.ones(1_000_000, 8)}, batch_size=[1_000_000]).save(path)
    notebook = lab.open(page, [OPEN.format("run")])
    notebook.run_all()
    browser = notebook.cell(0)
    browser.get_by_role("treeitem", name="x").first.click()
    browser.get_by_role("tab", name="Table").click()
    expect(first_cell(browser)).to_have_text("1.0000")
    first_cell(browser).click()
    page.keyboard.press("Control+A")
    expect(browser.get_by_text("1,000,000 × 8 cells selected")).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.type("3")
    page.keyboard.press("Control+Enter")
    expect(first_cell(browser)).to_have_text("3.0000", timeout=SLOW_MS)
    assert bool((TensorDict.load_memmap(path)["x"] == 3).all())
    browser.get_by_role("button", name="Undo").click()
    expect(first_cell(browser)).to_have_text("1.0000", timeout=SLOW_MS)
    assert bool((TensorDict.load_memmap(path)["x"] == 1).all())


def test_a_fill_over_several_leaves_is_whole_or_absent(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    notebook = lab.open(page, [OPEN.format("run")])
    notebook.run_all()
    browser = notebook.cell(0)
    expect(first_cell(browser)).to_have_text("0.0000")
    first_cell(browser).click()
    page.keyboard.press("Control+A")
    page.keyboard.type("1.5")
    page.keyboard.press("Control+Enter")
    expect(browser.get_by_text("is not an integer")).to_be_visible()
    expect(browser.get_by_text("no edits")).to_be_visible()
    assert reward(path) == [0, 1, 2, 3, 4, 5]
    page.keyboard.press("Control+A")
    page.keyboard.type("7")
    page.keyboard.press("Control+Enter")
    expect(browser.get_by_text("3 edits")).to_be_visible()
    assert reward(path) == [7] * 6
    assert TensorDict.load_memmap(path)["i"].tolist() == [7] * 6


def test_two_browsers_of_one_save_show_the_same(lab: Lab, page: Page) -> None:
    make_save(lab.folder / "run.tdz")
    notebook = lab.open(page, [OPEN.format("run.tdz"), "c = tdview.open('run.tdz', mode='r+')\nc", "b"])
    notebook.run_all()
    one, two, again = notebook.cell(0), notebook.cell(1), notebook.cell(2)
    for browser in (one, two, again):
        browser.scroll_into_view_if_needed()
        show(browser, "i")
        expect(first_cell(browser)).to_have_text("0")
    page.wait_for_timeout(500)  # the notebook has put its cells in place after scrolling
    type_into(first_cell(again), "5")
    for browser in (again, two, one):
        browser.scroll_into_view_if_needed()
        expect(first_cell(browser)).to_have_text("5")
        expect(browser.get_by_text("1 entry is stale")).to_be_visible()
    one.get_by_role("button", name="Undo").click()
    expect(first_cell(one)).to_have_text("0")
    two.scroll_into_view_if_needed()
    expect(first_cell(two)).to_have_text("0")
    expect(two.get_by_role("button", name="Undo")).to_be_disabled()


def test_edits_of_an_earlier_kernel_are_undone(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    notebook = lab.open(page, [OPEN.format("run"), "b.edit('i', 0, 77)"])
    notebook.run_all()
    assert TensorDict.load_memmap(path)["i"][0] == 77
    lab.close()
    later = lab.open(page, [OPEN.format("run")], name="later.ipynb")
    later.run_all()
    browser = later.cell(0)
    expect(browser.get_by_text("1 edit", exact=True)).to_be_visible()
    expect(browser.get_by_title("Kept in run.tdview-journal beside the save")).to_be_visible()
    browser.get_by_role("button", name="Undo").click()
    expect(browser.get_by_text("no edits")).to_be_visible()
    assert TensorDict.load_memmap(path)["i"][0] == 0


def test_a_running_cell_and_the_widget_share_the_kernel(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    busy = "import time\nfor n in range(30):\n    b.edit('i', 1, n)\n    time.sleep(0.1)\n"
    notebook = lab.open(page, [OPEN.format("run"), busy])
    notebook.run(0)
    browser = notebook.cell(0)
    show(browser, "i")
    expect(first_cell(browser)).to_have_text("0")
    notebook.start(1)
    type_into(first_cell(browser), "8")
    expect(first_cell(browser)).to_have_text("8", timeout=15_000)
    expect(browser.get_by_text("31 edits")).to_be_visible(timeout=15_000)
    assert TensorDict.load_memmap(path)["i"].tolist()[:2] == [8, 29]


def test_values_are_edited_in_the_info_panel(lab: Lab, page: Page) -> None:
    path = lab.folder / "run"
    TensorDict({"note": NonTensorData("hi"), "x": torch.zeros(2)}, batch_size=[]).save(path)
    notebook = lab.open(page, [OPEN.format("run")])
    notebook.run_all()
    browser = notebook.cell(0)
    browser.get_by_role("treeitem", name="note").first.click()
    browser.get_by_role("tab", name="Info").click()
    browser.get_by_role("button", name="edit value").click()
    browser.get_by_label("New value as text").fill("<b>bye</b>")
    browser.get_by_role("button", name="Save value").click()
    expect(browser.get_by_label("Value", exact=True)).to_contain_text("<b>bye</b>")
    assert TensorDict.load_memmap(path)["note"] == "<b>bye</b>"
    browser.get_by_role("button", name="edit value").click()
    browser.get_by_label("New value as text").fill("")
    browser.get_by_role("button", name="Save value").click()
    value = browser.get_by_label("Value", exact=True).locator("pre")
    expect(value).to_have_text("")
    assert "empty text" in value.evaluate("e => getComputedStyle(e, '::before').content")


def test_rows_are_appended_packed_and_unpacked(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    more = make_save(lab.folder / "more")
    rows = "rows = tdview.load_memmap('more')[:2]"
    notebook = lab.open(page, [OPEN.format("run"), rows, "d = tdview.open('run.tdz')\nd"])
    notebook.run(0)
    notebook.run(1)
    browser = notebook.cell(0)

    browser.get_by_role("button", name="Append").click()
    dialog = page.get_by_role("dialog", name="Append rows")
    dialog.get_by_label("Rows from").select_option("variable")
    dialog.get_by_label("Path or name").fill("rows")
    dialog.get_by_role("button", name="Append").click()
    expect(dialog.get_by_text("Appended 2 rows")).to_be_visible(timeout=SLOW_MS)
    dialog.get_by_role("button", name="Close").click()
    assert TensorDict.load_memmap(path).batch_size == torch.Size([8])
    expect(browser.get_by_text("8 rows").first).to_be_visible()

    browser.get_by_role("button", name="Append").click()
    dialog = page.get_by_role("dialog", name="Append rows")
    dialog.get_by_label("Path or name").fill(str(more))
    dialog.get_by_role("button", name="Append").click()
    expect(dialog.get_by_text("Appended 6 rows")).to_be_visible(timeout=SLOW_MS)
    dialog.get_by_role("button", name="Close").click()
    assert TensorDict.load_memmap(path)["i"].tolist() == [*range(6), 0, 1, *range(6)]

    browser.get_by_role("button", name="Pack").click()
    dialog = page.get_by_role("dialog", name="Pack into an archive")
    dialog.get_by_role("button", name="Pack").click()
    expect(dialog.get_by_text("Packed")).to_be_visible(timeout=SLOW_MS)
    dialog.get_by_role("button", name="Close").click()
    assert TensorDict.load_memmap(lab.folder / "run.tdz").batch_size == torch.Size([14])

    notebook.run(2)
    archive = notebook.cell(2)
    archive.scroll_into_view_if_needed()
    archive.get_by_role("button", name="Unpack").click()
    dialog = page.get_by_role("dialog", name="Unpack into a directory")
    dialog.get_by_role("button", name="Unpack").click()
    expect(dialog.get_by_text("Unpacked into")).to_be_visible(timeout=SLOW_MS)
    assert TensorDict.load_memmap(lab.folder / "run-unpacked").batch_size == torch.Size([14])


def test_an_archive_with_more_rows_is_written_from_a_selection(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run.tdz")
    before = path.read_bytes()
    notebook = lab.open(page, [OPEN.format("run.tdz")])
    notebook.run_all()
    browser = notebook.cell(0)
    show(browser, "i")
    expect(first_cell(browser)).to_have_text("0")
    first_cell(browser).click()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    page.wait_for_timeout(600)  # the selection is told when it rests
    browser.get_by_role("button", name="Append").click()
    dialog = page.get_by_role("dialog", name="Append rows")
    dialog.get_by_label("Rows from").select_option("selection")
    expect(dialog.get_by_text("3 rows behind 6")).to_be_visible()
    dialog.get_by_role("button", name="Append").click()
    expect(dialog.get_by_text("Appended 3 rows")).to_be_visible(timeout=SLOW_MS)
    assert path.read_bytes() == before
    appended = TensorDict.load_memmap(lab.folder / "run-appended.tdz")
    assert appended["i"].tolist() == [*range(6), 0, 1, 2]
    assert zipfile.ZipFile(lab.folder / "run-appended.tdz").testzip() is None

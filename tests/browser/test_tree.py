"""The lazy tree, its keyboard, its themes and its panels in a real JupyterLab."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.widgets.saves import write_save

from .lab import Lab, Notebook

HOSTILE = "<img src=x onerror=window.pwned=1>"
AXE = Path(__file__).parents[2] / "js" / "node_modules" / "axe-core" / "axe.min.js"
OPEN = "import tdview\nb = tdview.open({!r})\nb"


def make_save(path: Path) -> Path:
    entries = {
        "obs": ("float32", [6, 2]),
        HOSTILE: ("int64", [6]),
        "next": {"reward": ("float32", [6, 1]), "done": ("bool", [6, 1]), "pixels": ("uint8", [6, 3, 8, 8])},
    }
    return write_save(path, entries, batch_size=[6])


def opened(lab: Lab, page: Page, *more: str, **options: Any) -> tuple[Notebook, Locator]:
    make_save(lab.folder / "run")
    notebook = lab.open(page, [OPEN.format("run"), *more], **options)
    notebook.run_all()
    widget = notebook.cell(0)
    expect(widget.get_by_role("tree")).to_be_visible()
    return notebook, widget


def row(widget: Locator, name: str) -> Locator:
    return widget.get_by_role("treeitem", name=name)


def test_a_level_is_read_when_it_is_opened(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    expect(row(widget, "obs")).to_contain_text("float32 [6, 2]")
    expect(row(widget, "reward")).to_have_count(0)
    row(widget, "next").click()
    expect(row(widget, "reward")).to_be_visible()
    expect(row(widget, "next")).to_have_attribute("aria-expanded", "true")
    row(widget, "reward").click()
    expect(widget.get_by_role("treeitem", selected=True)).to_have_count(1)
    expect(widget.locator(".tdv-title")).to_contain_text("next › reward")


def test_names_from_the_file_are_shown_as_text(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    expect(row(widget, HOSTILE)).to_have_count(1)
    row(widget, HOSTILE).click()
    for tab in ("Plot", "Stats", "Info", "Audit"):
        widget.get_by_role("tab", name=tab).click()
    expect(widget.locator(".tdv-report")).to_contain_text("Findings")
    assert page.evaluate("() => window.pwned === undefined")


def test_keys_stay_in_the_tree(lab: Lab, page: Page) -> None:
    notebook, widget = opened(lab, page, "1 + 1")
    row(widget, "obs").click()
    for key in ("b", "d", "d", "a", "x", "ArrowDown", "ArrowDown", "Enter", "j", "k"):
        page.keyboard.press(key)
    assert notebook.cell_count() == 2
    expect(row(widget, "reward")).to_be_visible()  # Enter opened the level
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("p")
    active = widget.get_by_role("tree").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_contain_text("pixels")


def test_a_wide_level_has_few_rows_in_the_page(lab: Lab, page: Page) -> None:
    write_save(lab.folder / "wide", {f"leaf_{i:05d}": ("uint8", [1]) for i in range(10_000)}, batch_size=[1])
    notebook = lab.open(page, [OPEN.format("wide")])
    notebook.run_all()
    tree = notebook.cell(0).get_by_role("tree")
    tree.get_by_role("treeitem").nth(1).click()
    page.keyboard.press("End")
    expect(tree.get_by_role("treeitem", name="leaf_09999")).to_be_visible()
    assert tree.get_by_role("treeitem").count() < 300
    last = tree.get_by_role("treeitem", name="leaf_09999")
    expect(last).to_have_attribute("aria-posinset", "10000")
    expect(last).to_have_attribute("aria-setsize", "10000")


def test_the_filter_finds_keys_that_were_never_opened(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    widget.get_by_label("Filter keys").fill("rew")
    expect(row(widget, "reward")).to_contain_text("next › ")
    row(widget, "reward").click()
    widget.get_by_label("Filter keys").press("Escape")
    expect(row(widget, "obs")).to_be_visible()
    expect(row(widget, "reward")).to_have_attribute("aria-selected", "true")


def test_a_selection_goes_to_python_and_comes_from_it(lab: Lab, page: Page) -> None:
    notebook, widget = opened(lab, page, "b.selected", "b.select(('next', 'pixels')).shape")
    row(widget, "obs").click()
    page.wait_for_timeout(500)  # the selection is told to Python when it rests
    notebook.run(1)
    assert notebook.text(1) == "('obs',)"
    notebook.run(2)
    expect(row(widget, "pixels")).to_have_attribute("aria-selected", "true")


def test_two_views_of_one_widget_share_the_selection(lab: Lab, page: Page) -> None:
    notebook, first = opened(lab, page, "b")
    second = notebook.cell(1)
    row(first, "next").click()
    row(first, "reward").click()
    expect(row(second, "reward")).to_have_attribute("aria-selected", "true")
    row(second, "obs").click()
    expect(row(first, "obs")).to_have_attribute("aria-selected", "true")
    expect(row(first, "reward")).to_be_visible()  # what is open belongs to the view


def test_two_browsers_of_one_save_do_not_disturb_each_other(lab: Lab, page: Page) -> None:
    notebook, first = opened(lab, page, "c = tdview.open('run')\nc")
    second = notebook.cell(1)
    row(first, "obs").click()
    row(second, "next").click()
    expect(row(second, "done")).to_be_visible()
    expect(row(first, "done")).to_have_count(0)
    expect(row(first, "obs")).to_have_attribute("aria-selected", "true")


def test_reload_shows_what_another_process_wrote(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    row(widget, "next").click()
    expect(row(widget, "reward")).to_be_visible()
    shutil.rmtree(lab.folder / "run")
    write_save(lab.folder / "run", {"next": {"fresh": ("bool", [6])}, "more": ("bool", [6])}, batch_size=[6])
    widget.get_by_role("button", name="Reload").click()
    expect(row(widget, "more")).to_be_visible()
    expect(row(widget, "fresh")).to_be_visible()
    expect(row(widget, "obs")).to_have_count(0)


def test_damage_is_marked_and_the_rest_is_shown(lab: Lab, page: Page) -> None:
    path = make_save(lab.folder / "run")
    (path / "next" / "reward.memmap").write_bytes(b"short")
    notebook = lab.open(page, [OPEN.format("run")])
    notebook.run_all()
    widget = notebook.cell(0)
    row(widget, "next").click()
    expect(row(widget, "reward")).to_contain_text("file size")
    widget.get_by_role("button", name="Verify").click()
    findings = widget.get_by_role("region", name="Findings")
    expect(findings).to_contain_text("file_size")
    findings.get_by_role("button", name="show").first.click()
    expect(widget.get_by_role("tab", name="Info")).to_have_attribute("aria-selected", "true")
    expect(widget.locator(".tdv-title")).to_contain_text("reward")


def test_a_pack_is_made_by_the_dialog(lab: Lab, page: Page) -> None:
    notebook, widget = opened(
        lab, page, "import os; sorted(tdview.scan('run.tdz')) if os.path.exists('run.tdz') else None"
    )
    widget.get_by_role("button", name="Pack").click()
    dialog = widget.get_by_role("dialog", name="Pack into an archive")
    expect(dialog.get_by_label("Path")).to_have_value("run.tdz")
    dialog.get_by_label("Compression").select_option("deflate")
    dialog.get_by_role("button", name="Pack").click()
    expect(dialog.get_by_role("status")).to_contain_text("Packed run.tdz")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    notebook.run(1)
    assert HOSTILE in notebook.text(1)
    assert notebook.cell_count() == 2


def test_a_dialog_says_what_went_wrong_and_stays(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    widget.get_by_role("button", name="Pack").click()
    dialog = widget.get_by_role("dialog")
    dialog.get_by_label("Path").fill("/absent/folder/x.tdz")
    dialog.get_by_role("button", name="Pack").click()
    expect(dialog.get_by_role("group", name="Progress")).to_contain_text("/absent/folder")
    expect(dialog.get_by_role("button", name="Pack")).to_be_enabled()


def test_an_output_that_was_taken_out_of_the_page_comes_back_as_it_was(lab: Lab, page: Page) -> None:
    write_save(lab.folder / "wide", {f"leaf_{i:03d}": ("uint8", [1]) for i in range(300)}, batch_size=[1])
    notebook = lab.open(page, [OPEN.format("wide"), *(f"print({i}, '\\n' * 60)" for i in range(12))])
    content = "window.jupyterapp.shell.currentWidget.content"
    page.evaluate(f"() => {{ {content}.notebookConfig = {{...{content}.notebookConfig, windowingMode: 'full'}} }}")
    notebook.run_all()
    page.evaluate(f"() => {content}.scrollToItem(0)")
    widget = page.locator(".tdview")
    expect(widget).to_be_visible()
    widget.get_by_role("treeitem").nth(1).click()
    page.keyboard.press("End")
    expect(row(widget, "leaf_299")).to_have_attribute("aria-selected", "true")
    page.evaluate(f"() => {{ {content}.activeCellIndex = 12; return {content}.scrollToItem(12) }}")
    expect(widget).to_be_hidden()
    page.evaluate(f"() => {content}.scrollToItem(0)")
    expect(row(widget, "leaf_299")).to_be_visible()
    row(widget, "leaf_295").click()
    expect(widget.locator(".tdv-title")).to_contain_text("leaf_295")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_followed_and_nothing_is_hard_to_reach(lab: Lab, page: Page, theme: Any) -> None:
    _, widget = opened(lab, page, theme=theme)
    background = widget.locator(".tdview").evaluate("e => getComputedStyle(e).backgroundColor")
    parts = [int(float(part)) for part in background[background.index("(") + 1 : -1].split(",")[:3]]
    assert (sum(parts) < 200) == (theme == "dark"), background
    page.evaluate(AXE.read_text())
    row(widget, "next").click()
    row(widget, "pixels").click()
    for tab in ("Table", "Plot", "Frames", "Stats", "Episodes", "Audit", "Info"):
        widget.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(400)
        assert not serious(page), tab
    widget.get_by_role("button", name="Pack").click()
    expect(widget.get_by_role("dialog")).to_be_visible()
    assert not serious(page)


def serious(page: Page) -> list[tuple[str, list[str]]]:
    """What axe-core calls a serious or critical fault of the widget."""
    found = page.evaluate("async () => (await axe.run(document.querySelector('.tdview'))).violations")
    grave = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    return [(rule["id"], [node["html"][:160] for node in rule["nodes"]]) for rule in grave]


def test_a_dead_kernel_is_said(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page, "import os, signal")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.shutdown()")
    expect(widget.locator(".tdv-status")).to_contain_text("The kernel has stopped", timeout=30_000)
    row(widget, "next").click()
    expect(widget.locator(".tdv-status")).to_contain_text("The kernel has stopped")


def test_a_restarted_kernel_is_said_too(lab: Lab, page: Page) -> None:
    _, widget = opened(lab, page)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    expect(widget.locator(".tdv-status")).to_contain_text("The kernel has stopped", timeout=30_000)


def test_the_widget_answers_while_a_cell_runs_or_says_that_it_waits(lab: Lab, page: Page) -> None:
    notebook, widget = opened(lab, page, "import time; time.sleep(4)")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1 }")
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-cell') }")
    page.wait_for_timeout(300)
    row(widget, "next").click()
    waits = widget.locator(".tdv-status", has_text="kernel is busy")
    expect(row(widget, "reward").or_(waits).first).to_be_visible(timeout=3500)
    expect(row(widget, "reward")).to_be_visible()
    expect(widget.locator(".tdv-status")).not_to_contain_text("busy")
    notebook.wait_idle()


def test_the_title_keeps_the_last_key_in_sight(lab: Lab, page: Page) -> None:
    deep: dict[str, Any] = {"last": ("float32", [6, 1])}
    for level in range(30):
        deep = {f"level{level}": deep}
    path = ("level29", *(f"level{level}" for level in reversed(range(29))), "last")
    write_save(lab.folder / "deep", {**deep, "n" * 200: ("float32", [6])}, batch_size=[6])
    notebook = lab.open(page, [f"import tdview\nb = tdview.open('deep')\nb.select({path!r})\nb", "b.select('n' * 200)"])
    notebook.run(0)
    title = notebook.cell(0).locator(".tdv-title")
    last = title.locator("strong")
    places = "e => [...e.children].map(part => part.getBoundingClientRect().toJSON())"
    for width in (1400, 1150, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        expect(last).to_have_text("last")
        assert last.evaluate("e => e.scrollWidth <= e.clientWidth")
        assert inside(title.evaluate(places))
    page.set_viewport_size({"width": 1400, "height": 1000})
    notebook.cell(0).locator(".tdv-side").evaluate("e => { e.style.width = '70%' }")
    assert last.evaluate("e => e.scrollWidth <= e.clientWidth")
    notebook.run(1)
    expect(last).to_have_text("n" * 200)
    assert inside(title.evaluate(places))


def inside(boxes: list[dict[str, float]]) -> bool:
    """Whether the parts of a line stand one behind the other."""
    return all(left["right"] <= right["left"] + 0.5 for left, right in itertools.pairwise(boxes))

"""Audit, episodes and copied code in a real JupyterLab."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tdview.testing.sample import write_replay_buffer
from tests.widgets.saves import write_save

from .lab import Lab, Notebook


def opened(lab: Lab, page: Page, source: str, *more: str) -> tuple[Notebook, Locator]:
    notebook = lab.open(page, [f"import tdview\nb = {source}\nb", *more])
    notebook.run_all()
    widget = notebook.cell(0)
    expect(widget.get_by_role("tree")).to_be_visible()
    return notebook, widget


def rows_of(path: Path, count: int, value: int) -> Path:
    entries = {"obs": ("uint8", [count, 2], bytes([value]) * (2 * count)), "act": ("uint8", [count])}
    return write_save(path, entries, batch_size=[count])


def test_a_finding_leads_to_its_row(lab: Lab, page: Page) -> None:
    write_replay_buffer(lab.folder / "faulty", faults=("nan_reward", "boundary_leak"))
    _, widget = opened(lab, page, "tdview.open('faulty')")
    widget.get_by_role("tab", name="Audit").click()
    finding = widget.get_by_role("listitem").filter(has_text="non_finite")
    expect(finding).to_contain_text("error", timeout=60_000)
    expect(widget.locator(".tdv-summary")).to_contain_text("episodes, return")
    link = finding.get_by_role("button", name="show row")
    number = link.inner_text().removeprefix("show row ")
    link.click()
    expect(widget.get_by_role("tab", name="Table")).to_have_attribute("aria-selected", "true")
    expect(widget.locator(".tdv-title")).to_contain_text("next › reward")
    grid = widget.get_by_role("grid")
    expect(grid.get_by_role("rowheader", name=number, exact=True).first).to_be_visible()
    expect(grid.get_by_text("NaN").first).to_be_visible()
    expect(widget.get_by_role("treeitem", name="reward").filter(has_text="non finite")).to_be_visible()


def test_an_episode_leads_to_its_rows(lab: Lab, page: Page) -> None:
    write_replay_buffer(lab.folder / "run")
    _, widget = opened(lab, page, "tdview.open('run')")
    widget.get_by_role("tab", name="Episodes").click()
    strip = widget.get_by_role("group", name="Episodes")
    expect(strip).to_be_visible(timeout=60_000)
    box = strip.get_by_role("button").nth(3)
    label = box.get_attribute("aria-label") or ""
    first = label.split("from row ")[1].split(",")[0]
    box.click()
    expect(widget.get_by_role("tab", name="Table")).to_have_attribute("aria-selected", "true")
    expect(widget.get_by_role("grid").get_by_role("rowheader", name=first, exact=True).first).to_be_visible()


def test_each_save_of_a_collection_has_its_episodes(lab: Lab, page: Page) -> None:
    write_replay_buffer(lab.folder / "runs" / "long")
    write_replay_buffer(lab.folder / "runs" / "short", steps=100)
    _, widget = opened(lab, page, "tdview.open('runs')")
    widget.get_by_role("tab", name="Episodes").click()
    expect(widget.get_by_role("tabpanel", name="Episodes").get_by_text("This holds several saves")).to_be_visible()
    counts = []
    for name in ("long", "short"):
        widget.get_by_role("treeitem", name=name).click()
        lines = widget.get_by_role("region", name="List of episodes").get_by_role("row")
        if counts:
            expect(lines).not_to_have_count(counts[-1])
        expect(lines.nth(1)).to_be_visible(timeout=60_000)
        counts.append(lines.count())
    assert counts[0] > counts[1]
    widget.get_by_role("button", name="show rows").nth(1).click()
    expect(widget.locator(".tdv-title")).to_contain_text("short")


def test_code_and_key_are_copied(lab: Lab, page: Page) -> None:
    rows_of(lab.folder / "run", 6, 1)
    _, widget = opened(lab, page, "tdview.open('run')")
    page.evaluate(
        "() => { navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() } }"
    )
    widget.get_by_role("treeitem", name="obs").click()
    widget.get_by_role("tab", name="Info").click()
    widget.get_by_role("button", name="copy path").click()
    expect(widget.locator(".tdv-status")).to_contain_text("Copied")
    assert page.evaluate("window.copied") == '"obs"'
    widget.get_by_role("button", name="copy code").click()
    assert page.evaluate("window.copied") == 'import tdview\ntdview.scan("run")["obs"]'


def test_a_narrow_window_scrolls_its_panels(lab: Lab, page: Page) -> None:
    write_replay_buffer(lab.folder / "run")
    page.set_viewport_size({"width": 560, "height": 900})
    _, widget = opened(lab, page, "tdview.open('run')")
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    widget.get_by_role("treeitem", name="action").first.click()
    footer = widget.locator(".tdv-footer")
    for tab in ("Info", "Audit", "Stats"):
        widget.get_by_role("tab", name=tab).click()
        panel = widget.get_by_role("tabpanel", name=tab)
        expect(panel.get_by_role("region").or_(panel.locator(".tdv-report")).first).to_be_visible()
        ends = [part.evaluate("e => e.getBoundingClientRect()") for part in (panel, footer)]
        assert ends[0]["bottom"] <= ends[1]["top"] + 1
    findings = widget.locator(".tdv-finding")
    expect(findings.first).to_be_attached()
    assert not any(findings.evaluate_all("items => items.map(item => item.scrollWidth - item.clientWidth)"))
    widget.get_by_role("button", name="Pack").click()
    expect(page.get_by_role("dialog", name="Pack into an archive")).to_be_visible()

"""Table, plot, frames and statistics in a real JupyterLab."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import tdview
from tdview.testing.sample import write_replay_buffer
from tests.widgets.saves import write_save

from .lab import Lab, Notebook

PAINTED = "root => ![...root.querySelectorAll('.tdv-grid-row:not([hidden]) .tdv-loading')].length"


def open_save(
    lab: Lab, page: Page, entries: dict[str, Any], batch: list[int], key: object, mode: str = "r"
) -> Notebook:
    """A notebook whose first cell shows the save with `key` selected."""
    write_save(lab.folder / "run", entries, batch_size=batch)
    notebook = lab.open(page, [f"import tdview; b = tdview.open('run', mode={mode!r}); b.select({key!r}); b"])
    notebook.run_all()
    expect(notebook.cell(0).get_by_role("tree")).to_be_visible()
    return notebook


def grid_of(notebook: Notebook) -> Locator:
    grid = notebook.cell(0).get_by_role("grid")
    expect(grid.get_by_role("gridcell").first).to_be_visible()
    return grid


def active(grid: Locator) -> Locator:
    return grid.locator(".tdv-active")


def numbers(rows: int, columns: int) -> Any:
    return np.arange(rows, dtype="<f4")[:, None] + np.arange(columns, dtype="<f4") / 64


@pytest.fixture
def million(lab: Lab, page: Page) -> Notebook:
    """A leaf of a million rows and 64 columns; its values tell where they stand."""
    payload = np.empty((1_000_000, 64), "<f4")
    payload[:] = np.arange(1_000_000, dtype="<f4")[:, None]
    payload[:, 63] += 0.5
    return open_save(lab, page, {"x": ("float32", [1_000_000, 64], payload.data)}, [1_000_000], "x")


def test_a_million_rows_are_walked_without_empty_cells(million: Notebook, page: Page) -> None:
    cell, grid = million.cell(0), grid_of(million)
    expect(grid).to_have_attribute("aria-rowcount", "1000001")
    box = cell.get_by_label("Go to row")
    box.fill("765432")
    box.press("Enter")
    expect(active(grid)).to_have_text("765432.0000")
    expect(grid).to_be_focused()
    page.keyboard.press("End")
    expect(active(grid)).to_have_text("765432.5000")
    page.keyboard.press("Control+End")
    expect(active(grid)).to_have_text("999999.5000")
    page.keyboard.press("Control+Home")
    expect(active(grid)).to_have_text("0.0000")

    page.wait_for_timeout(500)
    empty = 0
    for _ in range(20):
        page.keyboard.press("PageDown")
        page.wait_for_timeout(100)
        empty += not grid.evaluate(PAINTED)
    assert empty == 0
    assert grid.locator('[role="gridcell"]').count() < 1000

    grid.hover()
    before = float(active(grid).inner_text())
    page.mouse.wheel(0, 240)  # the scrollbar is scaled: a notch is ten rows all the same
    first = grid.locator(".tdv-grid-row:not([hidden]) [role=rowheader]")
    page.wait_for_timeout(300)
    places = sorted(int(text) for text in first.all_inner_texts())
    assert places[0] <= before + 10
    assert places == list(range(places[0], places[0] + len(places)))


def test_a_range_is_copied_and_pasted(lab: Lab, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    entries = {"x": ("float32", [50, 3], numbers(50, 3).tobytes())}
    notebook = open_save(lab, page, entries, [50], "x", "r+")
    grid = grid_of(notebook)
    grid.get_by_role("gridcell").first.click()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Control+c")
    expect(notebook.cell(0).get_by_text("Copied the 2 × 2 cells")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "0.0\t0.015625\n1.0\t1.015625"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Control+v")
    expect(notebook.cell(0).get_by_text("Pasted 2 × 2 cells")).to_be_visible()
    stored = np.fromfile(lab.folder / "run" / "x.memmap", "<f4").reshape(50, 3)
    assert stored[2:4, :2].tolist() == [[0, 0.015625], [1, 1.015625]]
    expect(grid.locator(".tdv-edited")).to_have_count(4)
    assert notebook.cell_count() == 1


def test_the_mouse_selects_and_a_double_click_edits(lab: Lab, page: Page) -> None:
    entries = {"x": ("int64", [30], np.arange(30, dtype="<i8").tobytes())}
    notebook = open_save(lab, page, entries, [30], "x", "r+")
    grid = grid_of(notebook)
    cells = grid.get_by_role("gridcell")
    cells.nth(1).hover()
    page.mouse.down()
    cells.nth(4).hover()
    page.mouse.up()
    expect(grid.locator('[role="gridcell"][aria-selected]')).to_have_count(4)
    expect(notebook.cell(0).get_by_text("4 × 1 cells selected")).to_be_visible()
    cells.nth(2).dblclick()
    page.keyboard.press("Control+A")
    page.keyboard.type("1.5")
    page.keyboard.press("Enter")
    box = grid.get_by_role("textbox")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(grid.get_by_role("alert")).to_contain_text("1.5")
    page.keyboard.press("Control+A")
    page.keyboard.type("9007199254740993")
    page.keyboard.press("Enter")
    expect(box).to_have_count(0)
    expect(cells.nth(2)).to_have_text("9007199254740993")
    assert np.fromfile(lab.folder / "run" / "x.memmap", "<i8")[2] == 9007199254740993


def test_dimensions_are_mapped(lab: Lab, page: Page) -> None:
    data = np.arange(4 * 3 * 5, dtype="<i8").reshape(4, 3, 5)
    notebook = open_save(lab, page, {"x": ("int64", [4, 3, 5], data.tobytes())}, [4], "x")
    cell, grid = notebook.cell(0), grid_of(notebook)

    def texts() -> list[list[str]]:
        return [row.split() for row in grid.locator(".tdv-grid-row:not([hidden])").all_inner_texts()]

    slider = cell.get_by_label("dim 1: index")
    slider.press("ArrowRight")
    expect(grid.get_by_role("gridcell").first).to_have_text("5")
    assert [row[1:] for row in texts()] == [[str(x) for x in row] for row in data[:, 1].tolist()]
    cell.get_by_label("dim 1: shown as").select_option("row")
    expect(grid).to_have_attribute("aria-rowcount", "4")
    expect(grid.get_by_role("gridcell").first).to_have_text("0")
    assert [row[1:] for row in texts()] == [[str(x) for x in row] for row in data[0].tolist()]


def test_number_formats(lab: Lab, page: Page) -> None:
    entries = {"x": ("float32", [3], np.array([0.1, np.nan, -np.inf], "<f4").tobytes())}
    notebook = open_save(lab, page, entries, [3], "x")
    grid, choice = grid_of(notebook), notebook.cell(0).get_by_label("Number format")
    cells = grid.get_by_role("gridcell")
    expect(cells).to_have_text(["0.1000", "NaN", "-Infinity"])
    expect(cells.nth(1)).to_have_class(re.compile("tdv-nan"))
    expect(cells.nth(2)).to_have_class(re.compile("tdv-inf"))
    for name, text in {"exact": "0.1", "scientific": "1.000000e-1", "hex": "0x3dcccccd"}.items():
        choice.select_option(name)
        expect(cells.first).to_have_text(text)


def test_a_level_is_a_table_and_exports(lab: Lab, page: Page) -> None:
    entries = {
        "obs": ("float32", [6, 2], numbers(6, 2).tobytes()),
        "next": {"done": ("bool", [6, 1], bytes([0, 0, 0, 0, 0, 1]))},
    }
    notebook = open_save(lab, page, entries, [6], ())
    cell, grid = notebook.cell(0), grid_of(notebook)
    titles = grid.get_by_role("columnheader")
    expect(titles).to_have_text(["row", "obs[0]", "obs[1]", "next.done"])
    expect(grid.get_by_role("row").last).to_contain_text("True")
    with page.expect_download() as download:
        cell.get_by_label("Export the table").select_option("csv")
    lines = Path(download.value.path()).read_text().splitlines()
    assert download.value.suggested_filename == "root.csv"
    assert lines[0] == "row,obs[0],obs[1],next.done"
    assert lines[-1] == "5,5.0,5.015625,True"


def test_a_nested_tensor_is_a_table_to_be_read(lab: Lab, page: Page) -> None:
    path = write_save(lab.folder / "run", {"tok": ("float32", [2, 2], numbers(3, 2).tobytes())}, batch_size=[2])
    np.array([[1, 2], [2, 2]], "<i8").tofile(path / "tok.shape.memmap")
    meta = json.loads((path / "meta.json").read_text())
    meta["tok"]["is_nested"] = True
    (path / "meta.json").write_text(json.dumps(meta))
    notebook = lab.open(page, ["import tdview; b = tdview.open('run', mode='r+'); b.select('tok'); b"])
    notebook.run_all()
    cell, grid = notebook.cell(0), grid_of(notebook)
    expect(grid.get_by_role("columnheader")).to_have_text(["row", "tensor", "position", "tok[0]", "tok[1]"])
    expect(grid.get_by_role("row").last).to_contain_text("2.0156")
    grid.focus()
    page.keyboard.press("Enter")
    expect(cell.get_by_text("it is nested")).to_be_visible()


def test_a_long_export_says_how_far_it_is_and_stops(lab: Lab, page: Page) -> None:
    notebook = open_save(lab, page, {"x": ("float32", [1_000_000, 4])}, [1_000_000], "x")
    cell, grid = notebook.cell(0), grid_of(notebook)
    cell.get_by_label("Export the table").select_option("csv")
    progress = cell.get_by_role("group", name="Progress")
    expect(progress).to_contain_text("%")
    progress.get_by_role("button", name="Cancel").click()
    expect(cell.get_by_text("Export stopped.")).to_be_visible()
    expect(progress).to_be_hidden()
    grid.focus()
    page.keyboard.press("Control+End")
    expect(active(grid)).to_have_text("0.0000")


def test_plots_zoom_and_change_kind(lab: Lab, page: Page) -> None:
    entries = {
        "x": ("float32", [100_000, 2], np.random.default_rng(0).standard_normal((100_000, 2)).astype("<f4").tobytes())
    }
    notebook = open_save(lab, page, entries, [100_000], "x")
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Plot").click()
    canvas = cell.locator("canvas")
    expect(cell.get_by_text("rows 0–99999 of 100,000")).to_be_visible()
    drawn = "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return new Set(d).size; }"
    assert canvas.evaluate(drawn) > 20
    canvas.hover()
    page.mouse.wheel(0, -300)
    expect(cell.get_by_text("rows 0–99999 of 100,000")).to_have_count(0)
    cell.get_by_role("button", name="all rows").click()
    expect(cell.get_by_text("rows 0–99999 of 100,000")).to_be_visible()
    for kind, text in {"heat": "averaged", "histogram": "all 200,000 elements"}.items():
        cell.get_by_label("Kind of plot").select_option(kind)
        expect(cell.get_by_text(text)).to_be_visible()
        assert canvas.evaluate(drawn) > 20
    with page.expect_download() as download:
        cell.get_by_label("Export the plot").select_option("figure")
    assert Path(download.value.path()).read_bytes()[:4] == b"\x89PNG"


def test_frames_play_at_the_chosen_speed(lab: Lab, page: Page) -> None:
    frames = np.zeros((200, 3, 64, 64), np.uint8)
    frames[:, 0] = np.arange(200, dtype=np.uint8)[:, None, None]
    notebook = open_save(lab, page, {"pixels": ("uint8", [200, 3, 64, 64], frames.tobytes())}, [200], "pixels")
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Frames").click()
    expect(cell.get_by_text("200 frames, 64 × 64")).to_be_visible()
    canvas = cell.locator("canvas")
    red = "c => c.getContext('2d').getImageData(5, 5, 1, 1).data[0]"
    assert canvas.evaluate(red) == 0
    cell.get_by_label("Next frame").click()
    assert canvas.evaluate(red) == 1
    cell.get_by_role("button", name="Play").click()
    page.wait_for_timeout(1500)
    cell.get_by_role("button", name="Pause").click()
    assert 20 < canvas.evaluate(red) <= 60
    canvas.focus()
    page.keyboard.press("End")
    expect(cell.get_by_text("row 199")).to_be_visible()
    assert canvas.evaluate(red) == 199
    assert notebook.cell_count() == 1


def test_statistics_of_a_leaf_lead_from_those_of_a_level(lab: Lab, page: Page) -> None:
    values = np.array([1, 2, 3, np.nan], "<f4")
    notebook = open_save(lab, page, {"next": {"reward": ("float32", [4], values.tobytes())}}, [4], "next")
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Stats").click()
    row = cell.get_by_role("row", name="reward")
    expect(row).to_contain_text("float32")
    row.get_by_role("button", name="reward").click()
    expect(cell.get_by_text("all 4 elements")).to_be_visible()
    facts = cell.locator(".tdv-facts-list").first
    expect(facts).to_contain_text("NaN1")
    expect(facts).to_contain_text("mean2")


def test_a_view_in_the_dark_theme(lab: Lab, page: Page) -> None:
    write_save(lab.folder / "run", {"x": ("float32", [20, 2], numbers(20, 2).tobytes())}, batch_size=[20])
    notebook = lab.open(page, ["import tdview; b = tdview.open('run'); b.select('x'); b"], theme="dark")
    notebook.run_all()
    cell = grid_of(notebook).get_by_role("gridcell").first
    bright = "e => getComputedStyle(e).color.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)"
    assert cell.evaluate(bright) > 450


def test_damage_is_said_where_the_values_would_be(lab: Lab, page: Page) -> None:
    notebook = open_save(lab, page, {"x": ("float32", [10], b"short"), "y": ("int64", [10])}, [10], "x")
    cell = notebook.cell(0)
    expect(cell.get_by_role("alert").filter(has_text="x.memmap")).to_be_visible()
    cell.get_by_role("treeitem", name="y").click()
    expect(grid_of(notebook).get_by_role("gridcell").first).to_have_text("0")
    json.dumps(notebook.outputs())


def test_a_damaged_column_says_why_it_is_not_edited(lab: Lab, page: Page) -> None:
    notebook = open_save(lab, page, {"x": ("float32", [10], b"short"), "y": ("int64", [10])}, [10], (), "r+")
    cell, grid = notebook.cell(0), grid_of(notebook)
    expect(active(grid)).to_have_text("damaged")
    grid.focus()
    page.keyboard.press("Enter")
    expect(cell.locator(".tdv-status")).to_contain_text("the payload is 5 bytes")
    expect(grid.get_by_role("textbox")).to_have_count(0)


def test_the_controls_of_a_buffer_stand_in_one_row_and_wrap_where_they_must(lab: Lab, page: Page) -> None:
    write_replay_buffer(lab.folder / "run", capacity=20_000, steps=25_000)
    notebook = lab.open(page, ["import tdview; b = tdview.open('run', mode='r+'); b.select(('next', 'reward')); b"])
    notebook.run_all()
    cell = notebook.cell(0)
    tools = cell.get_by_role("tabpanel", name="Table").locator(".tdv-tools")
    expect(tools.get_by_role("button", name="age, priority")).to_be_visible()
    expect(cell.get_by_text("of 20,000").last).to_be_visible()
    controls = tools.locator("button:visible, input:visible, select:visible")
    places = "items => items.map(item => item.getBoundingClientRect().toJSON())"
    cell.get_by_label("Show another leaf").select_option(label="done")
    expect(controls).to_have_count(7)
    boxes = controls.evaluate_all(places)
    assert max(box["top"] for box in boxes) < min(box["bottom"] for box in boxes)
    for width in (1200, 1000, 760):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        frame = tools.evaluate("e => e.getBoundingClientRect().toJSON()")
        boxes = controls.evaluate_all(places)
        assert all(frame["left"] <= box["left"] and box["right"] <= frame["right"] + 0.5 for box in boxes)
        assert all(frame["top"] <= box["top"] and box["bottom"] <= frame["bottom"] + 0.5 for box in boxes)


def test_ages_and_priorities_stand_beside_the_rows(lab: Lab, page: Page) -> None:
    path = write_replay_buffer(lab.folder / "run", capacity=64, steps=20)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook = lab.open(page, ["import tdview; b = tdview.open('run', mode='r+'); b.select(('next', 'reward')); b"])
    notebook.run_all()
    cell, grid = notebook.cell(0), grid_of(notebook)
    switch = cell.get_by_role("button", name="age, priority")
    expect(switch).to_have_attribute("aria-pressed", "false")
    before = grid.inner_text()
    order = cell.get_by_role("button", name="time order")
    for button in (switch, order) * 4:  # faster than an answer
        button.click()
    page.wait_for_timeout(500)
    for button, wanted in ((switch, "true"), (order, "false")):
        if button.get_attribute("aria-pressed") != wanted:
            button.click()
        expect(button).to_have_attribute("aria-pressed", wanted)
    expect(grid).to_have_attribute("aria-rowcount", "65")
    expect(grid.get_by_role("columnheader")).to_have_text(["row", "t", "age", "priority", "probability", "next.reward"])
    grid.focus()
    page.keyboard.press("Control+A")
    page.keyboard.press("Control+C")
    expect(cell.get_by_text("Copied the 64 × 4 cells.")).to_be_visible()
    lines = [line.split("\t") for line in page.evaluate("navigator.clipboard.readText()").split("\n")]
    frame = tdview.side_columns(path)
    assert [int(line[0]) for line in lines[:20]] == frame["age"][:20].tolist()
    assert {line[0] + line[1] for line in lines[20:]} == {""}
    assert [float(line[1]) for line in lines[:20]] == frame["priority"][:20].tolist()
    assert [float(line[2]) for line in lines] == frame["probability"].tolist()

    page.keyboard.press("Control+Home")
    expect(active(grid)).to_have_text("19")
    page.keyboard.type("nonsense 7")
    page.keyboard.press("Enter")
    expect(cell.get_by_text("it is not edited")).to_be_visible()
    expect(cell.get_by_text("no edits")).to_be_visible()
    for button in (switch, order):
        button.click()
        page.wait_for_timeout(200)
    expect(grid.get_by_role("columnheader")).to_have_text(["row", "t", "next.reward"])
    assert grid.inner_text() == before


def test_a_plot_does_not_keep_what_belongs_to_another_leaf(lab: Lab, page: Page) -> None:
    entries = {
        "x": ("float32", [10, 2], numbers(10, 2).tobytes()),
        "short": ("float32", [10], b"short"),
        "sub": {"pixels": ("uint8", [10, 3, 8, 8])},
    }
    notebook = open_save(lab, page, entries, [10], "x")
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Plot").click()
    panel = cell.get_by_role("tabpanel", name="Plot")
    lines = panel.get_by_role("group", name="Lines")
    expect(lines.get_by_role("button")).to_have_text(["x[0]", "x[1]"])
    panel.locator("canvas").hover()
    expect(panel.locator(".tdv-cellbar")).to_contain_text("x[0]")
    cell.get_by_label("Kind of plot").select_option("heat")
    expect(panel.get_by_role("img", name="Heat map")).to_be_visible()
    expect(panel.locator(".tdv-cellbar")).to_have_text("")
    cell.get_by_label("Kind of plot").select_option("lines")
    expect(lines).to_be_visible()
    panel.locator("canvas").hover(position={"x": 150, "y": 90})
    expect(panel.locator(".tdv-cellbar")).to_contain_text("x[0]")
    cell.get_by_role("treeitem", name="short").click()
    expect(panel.get_by_text("the payload is 5 bytes")).to_be_visible()
    expect(lines).to_be_hidden()
    expect(panel.locator(".tdv-cellbar")).to_have_text("")
    cell.get_by_role("treeitem", name="sub").click()
    expect(panel.get_by_text("No leaf here can be drawn as lines")).to_be_visible()


def test_the_last_tick_of_a_plot_is_not_cut(lab: Lab, page: Page) -> None:
    notebook = open_save(lab, page, {"x": ("float32", [10_001], numbers(10_001, 1).tobytes())}, [10_001], "x")
    page.evaluate(
        """() => {
            const write = CanvasRenderingContext2D.prototype.fillText;
            window.ends = {};
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                if (this.textAlign === "center") window.ends[text] = x + this.measureText(text).width / 2;
                return write.call(this, text, x, y);
            };
        }"""
    )
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Plot").click()
    expect(cell.get_by_text("rows 0–10000 of 10,001")).to_be_visible()
    ends = page.evaluate("window.ends")
    assert len(ends) > 2
    assert max(ends.values()) <= cell.locator("canvas").evaluate("e => e.clientWidth")


def test_plots_of_nothing_say_so(lab: Lab, page: Page) -> None:
    write_save(lab.folder / "runs" / "none", {"x": ("float32", [0, 3])}, batch_size=[0])
    write_save(lab.folder / "runs" / "nan", {"x": ("float32", [1], b"\0\0\xc0\x7f")}, batch_size=[1])
    notebook = lab.open(page, ["import tdview; b = tdview.open('runs'); b"])
    notebook.run_all()
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Plot").click()
    panel = cell.get_by_role("tabpanel", name="Plot")
    expect(panel.get_by_text("This holds several saves.")).to_be_visible()
    cell.get_by_role("treeitem", name="none").click()
    expect(panel.get_by_text("no rows", exact=True)).to_be_visible()
    cell.get_by_role("treeitem", name="nan").click()
    expect(panel.get_by_text("rows 0–0 of 1, 1 gap without numbers")).to_be_visible()


def test_statistics_of_a_level_are_exact_and_say_what_is_damaged(lab: Lab, page: Page) -> None:
    entries = {
        "i": ("int64", [2], np.array([2**53 + 1, -(2**63)], "<i8").tobytes()),
        "short": ("float32", [10], b"short"),
    }
    notebook = open_save(lab, page, entries, [2], ())
    cell = notebook.cell(0)
    cell.get_by_role("tab", name="Stats").click()
    expect(cell.get_by_role("row", name="i int64")).to_contain_text("9007199254740993")
    expect(cell.get_by_role("row", name="i int64")).to_contain_text("-9223372036854775808")
    region = cell.get_by_role("region", name="Statistics")
    message = region.get_by_text("the payload is 5 bytes")
    expect(message).to_be_visible()
    box, frame = (part.evaluate("e => e.getBoundingClientRect().toJSON()") for part in (message, region))
    assert frame["left"] <= box["left"]
    assert message.evaluate("e => e.scrollWidth <= e.clientWidth")

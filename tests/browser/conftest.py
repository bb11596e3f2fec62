"""A real JupyterLab in a real Chromium, for the tests of the widget.

How to write a test::

    def test_tree_shows_the_first_level(lab, page, tmp_path):
        make_a_save(lab.folder / "run.tdz")
        notebook = lab.open(page, ["import tdview; b = tdview.open('run.tdz'); b", "b.selected"])
        notebook.run_all()
        tree = notebook.cell(0).get_by_role("tree")       # a Playwright locator: web-first assertions wait
        expect(tree.get_by_role("treeitem", name="obs")).to_be_visible()
        notebook.run(1)                                    # one cell again
        assert notebook.text(1) == "('obs',)"

`lab` is one server for the whole session; `lab.folder` is a fresh folder a test and the working directory of its
kernel. `page` is a fresh browser page; a JavaScript error that nobody caught on it fails the test at its end. A
failed test leaves a screenshot in ``test-results/``. ``lab.open(page, cells, theme="dark")`` opens in the dark theme.

The browser is the first of $TDVIEW_CHROMIUM, $CHROMIUM, chromium or chrome on the PATH, and Playwright's own; without
one the tests fail with a sentence and are never skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from .lab import CHROMIUM_FLAGS, Lab, LabServer, find_chromium

RESULTS = Path(__file__).parents[2] / "test-results"
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder and puts them last: Playwright keeps an event loop in the main thread."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker("browser")
    items[:] = [item for item in items if item not in set(ours)] + ours


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.stash[_failed] = report.failed  # type: ignore[attr-defined]
    return report


_failed = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    executable = find_chromium(Path(playwright.chromium.executable_path))
    sandbox = ["--no-sandbox"] if sys.platform == "linux" and os.geteuid() == 0 else []
    browser = playwright.chromium.launch(executable_path=executable, args=[*CHROMIUM_FLAGS, *sandbox])
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    server = LabServer(tmp_path_factory.mktemp("lab"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def lab(lab_server: LabServer) -> Iterator[Lab]:
    folder = lab_server.root / f"test_{next(_numbers)}"
    folder.mkdir()
    opened = Lab(lab_server, folder)
    yield opened
    opened.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(15_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    if request.node.stash.get(_failed, False):
        RESULTS.mkdir(exist_ok=True)
        page.screenshot(path=RESULTS / f"{request.node.name}.png")
    page.close()
    assert not errors, f"uncaught JavaScript errors: {errors}"

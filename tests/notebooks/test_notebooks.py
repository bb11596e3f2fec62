"""The notebooks as files: no outputs, stable cell names, readable without a kernel. Their cells are run by nbval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


def test_the_tour_is_complete() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_committed_and_cells_have_fixed_ids(path: Path) -> None:
    cells = _cells(path)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    prefix = {"markdown": "text", "code": "code"}
    assert [cell["id"] for cell in cells] == [f"{prefix[cell['cell_type']]}-{n:02d}" for n, cell in enumerate(cells)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_title_and_asserts_what_it_shows(path: Path) -> None:
    cells = _cells(path)
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    assert any(line.lstrip().startswith("assert ") for cell in cells for line in cell["source"])

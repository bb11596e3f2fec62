"""An executed notebook on a host without JavaScript, such as a mail or a repository's web page."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest
from nbconvert import HTMLExporter

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_open.ipynb"


@pytest.mark.slow
def test_the_tree_and_the_frames_are_readable_without_a_kernel(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, resources={"metadata": {"path": str(tmp_path)}}, store_widget_state=False
    )
    client.execute()
    # What such a host takes: HTML, pictures and text, and no widget.
    shown = ["text/html", "text/markdown", "image/svg+xml", "image/png", "text/plain"]
    page, _ = HTMLExporter(config={"NbConvertBase": {"display_data_priority": shown}}).from_notebook_node(notebook)
    assert "tdview-static" in page
    assert "256 of 256 rows" in page
    assert 'src="data:image/png' in page
    assert "Traceback" not in page

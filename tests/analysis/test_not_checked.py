"""What an audit leaves out: the report says so."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import pytest

from tdview.analysis.audit import audit
from tdview.analysis.rules import filling


def test_a_search_behind_the_valid_rows_that_stops_early_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.ring_dump(tmp_path / "run", made.stream(20), 100)
    file = run / "storage" / "observation.memmap"
    rows = np.fromfile(file, np.float32).reshape(100, -1)
    rows[-1] = 1
    rows.tofile(file)  # a file with data up to its end has no hole to stop at
    monkeypatch.setattr(filling, "_BEHIND_LIMIT", 160)
    notes = [p for p in audit(run).problems if p.code == "not_checked"]
    assert ("observation",) in {p.key for p in notes}
    assert {p.severity for p in notes} == {"note"}
    monkeypatch.undo()
    assert "not_checked" not in audit(run).codes

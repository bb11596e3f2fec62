"""A save for the tests of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tdview.testing.corpus import Case


@pytest.fixture(scope="session")
def nested(corpus: list[Case]) -> Path:
    """A small nested save; copy it before you change it."""
    return next(case.saved for case in corpus if case.name == "0.15.3/nested")

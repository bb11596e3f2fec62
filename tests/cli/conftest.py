"""The command line called in-process, and one sample buffer that no test changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tdview.cli.main import main
from tdview.testing.sample import FAULTS, write_replay_buffer


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def tdview(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``tdview("ls", path)`` runs the command line and returns its code and what it printed."""

    def run(*args: object) -> Ran:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def buffer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound wrapped ring of 64 rows, to be read only."""
    return write_replay_buffer(tmp_path_factory.mktemp("cli") / "run", capacity=64, steps=100)


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with every planted fault, to be read only."""
    return write_replay_buffer(tmp_path_factory.mktemp("cli") / "faulty", faults=FAULTS)

"""demo: samples, notebooks, JupyterLab."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tdview.cli import demo


def test_demo_makes_notebooks_and_samples(tdview, tmp_path: Path) -> None:
    ran = tdview("demo", tmp_path / "d", "--no-lab", "--json")
    assert ran.code == 0
    assert Path(ran.json["notebook"]).is_file()
    for sample in ran.json["samples"]:
        assert tdview("ls", tmp_path / "d" / sample).code == 0


def test_demo_keeps_what_is_there(tdview, tmp_path: Path) -> None:
    (tmp_path / demo.FIRST).write_text("mine")
    (tmp_path / "sample" / "run").mkdir(parents=True)
    assert tdview("demo", tmp_path, "--no-lab").code == 0
    assert (tmp_path / demo.FIRST).read_text() == "mine"
    assert list((tmp_path / "sample" / "run").iterdir()) == []


def test_demo_starts_jupyterlab_on_the_first_notebook(tdview, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(subprocess, "call", lambda command: started.append(command) or 0)
    assert tdview("demo", tmp_path).code == 0
    assert started[0][1:4] == ["-m", "jupyterlab", str(tmp_path / demo.FIRST)]

"""What binder/ asks for fits the package: mybinder.org builds it without looking at pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"


def _requirements() -> list[str]:
    return (BINDER / "requirements.txt").read_text().split("\n")


def test_the_python_of_binder_is_one_that_the_package_takes() -> None:
    wanted = (BINDER / "runtime.txt").read_text().strip()
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == f"python-{lowest.removeprefix('>=')}"


def test_binder_installs_the_tested_torch_from_the_index_of_cpu_builds() -> None:
    pinned = [line for line in (ROOT / "constraints.txt").read_text().split("\n") if line.startswith("torch==")]
    assert set(pinned) <= set(_requirements())
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in _requirements()
    assert "." in _requirements()


def test_pip_understands_the_requirements(tmp_path: Path) -> None:
    """Everything that they name is installed here in the asked version, so pip has nothing to fetch."""
    lines = [line for line in _requirements() if not line.startswith("--extra-index-url") and line != "."]
    (tmp_path / "binder").mkdir()
    (tmp_path / "binder" / "requirements.txt").write_text("\n".join(lines))
    shutil.copyfile(ROOT / "constraints.txt", tmp_path / "constraints.txt")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", "-q"]
    command += ["-r", "binder/requirements.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_repo2docker_plans_the_image_from_these_files() -> None:
    """The plan is made without a container engine: it is what mybinder.org would build."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "repo2docker", "--no-build", "--debug", str(ROOT)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "python=3.11" in done.stdout
    assert 'pip install --no-cache-dir -r "binder/requirements.txt"' in done.stdout
    assert "RUN ./binder/postBuild" in done.stdout


def test_post_build_makes_the_samples_beside_the_notebooks(tmp_path: Path) -> None:
    script = BINDER / "postBuild"
    assert os.access(script, os.X_OK)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([str(script)], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "notebooks" / "01_open.ipynb").is_file()
    assert (tmp_path / "notebooks" / "sample" / "faulty" / "storage" / "meta.json").is_file()

"""This module knows how a new user gets to see something: sample replay buffers, the notebooks, JupyterLab.

It does not know what the notebooks show.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tdview.cli.arguments import Verbs, add_verb
from tdview.cli.output import say, say_json
from tdview.errors import MissingFileError, NotSupportedError

__all__ = ["add_verbs", "prepare"]

FIRST = "01_open.ipynb"


def add_verbs(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(
        verbs,
        "demo",
        _demo,
        "make a sample replay buffer and open JupyterLab on a notebook about it",
        detail="Files that are there already are kept.",
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default="tdview-demo", help="default: %(default)s")
    parser.add_argument("--no-lab", action="store_true", help="make the files and do not start JupyterLab")


def prepare(folder: Path) -> Path:
    """Writes the notebooks and two sample buffers into `folder`, and returns the first notebook.

    ``sample/run`` is sound, ``sample/faulty`` has planted faults. Notebooks that are there are not overwritten.
    """
    from tdview.testing.sample import FAULTS, write_replay_buffer

    source = _notebooks()
    folder.mkdir(parents=True, exist_ok=True)
    if source.resolve() != folder.resolve():
        for notebook in sorted(source.glob("*.ipynb")):
            if not (folder / notebook.name).exists():
                shutil.copyfile(notebook, folder / notebook.name)
    for name, faults in (("run", ()), ("faulty", FAULTS)):
        if not (folder / "sample" / name).exists():
            write_replay_buffer(folder / "sample" / name, faults=faults)
    return folder / FIRST


def _notebooks() -> Path:
    packed = Path(__file__).with_name("notebooks")
    checkout = Path(__file__).parents[2] / "notebooks"
    for place in (packed, checkout):
        if (place / FIRST).is_file():
            return place
    raise MissingFileError(f"{packed}: the notebooks are not there; expected {FIRST}; install tdview again")


def _demo(args: argparse.Namespace) -> int:
    first = prepare(Path(args.folder))
    if args.json:
        say_json({"folder": args.folder, "notebook": str(first), "samples": ["sample/run", "sample/faulty"]})
    else:
        say(f"{first}: the notebook; {first.parent / 'sample'}: the replay buffers")
    if args.no_lab:
        return 0
    if importlib.util.find_spec("jupyterlab") is None:
        raise NotSupportedError("demo: JupyterLab is not installed; pip install jupyterlab, or pass --no-lab")
    command = [sys.executable, "-m", "jupyterlab", str(first)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:  # Ctrl-C reached JupyterLab as well, which has asked and ended
        return 0

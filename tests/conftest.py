"""Settings of every test run: Hypothesis profiles, a guard against leaked descriptors and files, and the corpus."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tdview.testing.corpus import Case, cases, unpack

# "default" gives every machine the same examples; "explore" looks for new ones: HYPOTHESIS_PROFILE=explore.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

FD_FOLDER = Path("/proc/self/fd")
CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """The saves of every version, unpacked once; copy one before you change it."""
    folder = tmp_path_factory.mktemp("corpus")
    for archive in sorted(CORPUS.glob("tensordict-*.tar.gz")):
        unpack(archive, folder)
    return cases(folder)


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder for each saved replay buffer or data set, unpacked once; copy before you change."""
    return unpack(CORPUS / "torchrl.tar.gz", tmp_path_factory.mktemp("torchrl"))


def _open_files_below(folder: Path) -> set[str]:
    found = set()
    for entry in FD_FOLDER.iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith(f"{folder}/"):
            found.add(f"{entry.name} -> {target}")
    return found


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves descriptors of its own files open, or temporary files of an operation behind.

    Only tests with a `tmp_path` are looked at: their files are their own. A test that plants leftovers on purpose
    says so with ``@pytest.mark.leaves_files``.
    """
    if "tmp_path" not in request.fixturenames:
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    yield
    if FD_FOLDER.is_dir() and _open_files_below(folder):
        gc.collect()  # a store is closed with its last tree; cycles keep it until the collector runs
        leaked = _open_files_below(folder)
        assert not leaked, f"file descriptors are still open: {sorted(leaked)}"
    if request.node.get_closest_marker("leaves_files") is None:
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.tmp"))
        assert not left, f"temporary files were left behind: {left}"

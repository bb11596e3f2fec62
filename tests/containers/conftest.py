"""The corpus, unpacked once for all tests of the containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tdview.testing.corpus import Case, cases, unpack

CORPUS = Path(__file__).parent.parent / "corpus"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("corpus")
    for archive in sorted(CORPUS.glob("tensordict-*.tar.gz")):
        unpack(archive, folder)
    return cases(folder)


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saved replay buffers."""
    return unpack(CORPUS / "torchrl.tar.gz", tmp_path_factory.mktemp("torchrl"))

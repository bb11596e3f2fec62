"""Makes the modules beside the tests importable by their own names, and unpacks the saved replay buffers once."""

import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder for each saved replay buffer or data set of the corpus; read only by agreement."""
    from made import ARCHIVE

    folder = tmp_path_factory.mktemp("torchrl")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder

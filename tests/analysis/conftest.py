"""Makes the modules beside the tests importable by their own names, and a cluster for those that need one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def two_workers() -> Iterator[None]:
    """A dask cluster of two workers on this machine is the current client."""
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        yield

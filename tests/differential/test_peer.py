"""tdview and the real tensordict write the same files and read each other's, over generated trees."""

from __future__ import annotations

import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings

import tdview
from tdview.testing.same import differences, file_differences
from tdview.testing.strategies import stacks, tensordicts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensordict

pytestmark = pytest.mark.filterwarnings("ignore")

TREES = tensordicts(loadable=True)
STACKS = stacks(loadable=True)


def _written(td, peer, folder):
    """Both saves of one tree, as directories; the archives are unzipped beside them."""
    td.memmap(folder / "mine")
    td.save(folder / "mine.tdz")
    peer.memmap(folder / "peers")
    peer.save(folder / "peers.tdz")
    for name in ("mine", "peers"):
        with zipfile.ZipFile(folder / f"{name}.tdz") as archive:
            archive.extractall(folder / f"{name}_unzipped")
    return folder


def _zip_facts(path):
    with zipfile.ZipFile(path) as archive:
        return [
            (e.filename, e.file_size, e.CRC, e.compress_type, e.extra, e.external_attr, e.create_system, e.flag_bits)
            for e in archive.infolist()
        ]


def _check_same_files(td):
    peer = tdview.to_tensordict(td)
    with tempfile.TemporaryDirectory() as name:
        folder = _written(td, peer, Path(name))
        assert list(file_differences(folder / "mine", folder / "peers")) == []
        assert list(file_differences(folder / "mine_unzipped", folder / "peers_unzipped")) == []
        assert _zip_facts(folder / "mine.tdz") == _zip_facts(folder / "peers.tdz")


@given(TREES)
@settings(max_examples=25)
def test_tensordict_is_written_to_the_same_bytes(td):
    _check_same_files(td)


@given(STACKS)
@settings(max_examples=25)
def test_lazy_stack_is_written_to_the_same_bytes(td):
    _check_same_files(td)


@given(TREES)
@settings(max_examples=25)
def test_each_reads_what_the_other_wrote(td):
    peer = tdview.to_tensordict(td)
    with tempfile.TemporaryDirectory() as name:
        folder = _written(td, peer, Path(name))
        for form in ("", ".tdz"):
            read_by_peer = tensordict.load_memmap(folder / f"mine{form}", mode="r", allow_pickle=True)
            read_by_me = tdview.load_memmap(folder / f"peers{form}", mode="r", allow_pickle=True)
            # tensordict puts leaves before levels when it loads
            assert list(differences(read_by_me, read_by_peer, order=False)) == []


@given(TREES)
@settings(max_examples=25)
def test_conversion_there_and_back_keeps_everything(td):
    assert list(differences(td, tdview.from_tensordict(tdview.to_tensordict(td)))) == []


@given(TREES)
@settings(max_examples=25)
def test_objects_of_tensordict_are_saved_as_they_are(td):
    peer = tdview.to_tensordict(td)
    with tempfile.TemporaryDirectory() as name:
        tdview.save(peer, f"{name}/mine")
        peer.save(f"{name}/peers")
        assert list(file_differences(Path(name, "mine"), Path(name, "peers"))) == []

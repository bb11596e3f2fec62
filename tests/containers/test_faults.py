"""A save that fails at its n-th call, for every n: the old save, the new one, or a state that recovery ends."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import torch

import tdview
from tdview import TensorDict, load_memmap
from tdview.testing.faults import Crash, inject
from tdview.testing.same import differences

OLD = TensorDict(a=torch.ones(3), gone=torch.ones(3), n={"b": torch.ones(3)}, s={1}, batch_size=[3])
NEW = TensorDict(a=torch.zeros(5), n={"b": torch.zeros(5, 2), "c": torch.ones(5)}, s="text", batch_size=[5])


def _is(path: Path, td: TensorDict) -> bool:
    try:
        return list(differences(load_memmap(path, mode="r"), td, order=False)) == []
    except tdview.TdviewError:
        return False


@pytest.mark.leaves_files
@pytest.mark.parametrize("kind", ["error", "disk_full", "short_write", "crash"])
@pytest.mark.parametrize(("form", "options"), [("s", {}), ("s", {"atomic": True}), ("s.tdz", {})], ids=str)
def test_save_over_an_old_one_is_whole_or_absent(kind, form, options):
    for number in range(1, 200):
        folder = Path(tempfile.mkdtemp())
        path = folder / form
        OLD.save(path)
        try:
            with inject(number, kind) as faults:
                NEW.save(path, **options)
        except (OSError, Crash, tdview.TdviewError):
            tdview.recover_save(path)
            assert _is(path, OLD) or _is(path, NEW), (number, kind)
        else:
            assert _is(path, NEW)
        leftovers = [p.name for p in folder.rglob(".*")] if kind != "crash" else []
        assert leftovers == []
        shutil.rmtree(folder)
        if not faults.fired:
            break
    assert not faults.fired
    assert number > 5


@pytest.mark.parametrize("kind", ["error", "disk_full"])
@pytest.mark.parametrize("form", ["s", "s.tdz"])
def test_failed_first_save_leaves_no_trace(tmp_path, kind, form):
    path = tmp_path / form
    for number in range(1, 100):
        try:
            with inject(number, kind) as faults:
                NEW.save(tmp_path / form)
        except (OSError, tdview.TdviewError):
            # An archive is whole before it is opened to be given back.
            assert list(tmp_path.iterdir()) == [] or (form == "s.tdz" and _is(path, NEW)), number
        else:  # some calls may fail: there is another way
            assert _is(path, NEW)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if not faults.fired:
            break
    assert not faults.fired


@pytest.mark.parametrize("kind", ["error", "disk_full"])
def test_failed_new_leaf_leaves_the_save_loadable(tmp_path, kind):
    for number in range(1, 60):
        path = tmp_path / str(number)
        mapped = OLD.memmap(path)
        try:
            with inject(number, kind) as faults:
                mapped.make_memmap_from_tensor(("x", "y"), torch.ones(3))
        except (OSError, tdview.TdviewError):
            loaded = load_memmap(path)
            assert loaded["a"].sum() == 3
            assert ("x", "y") not in loaded
        if not faults.fired:
            break
    assert load_memmap(path)["x", "y"].sum() == 3

"""What is saved loads again, to the last bit, from a directory and from an archive."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings

import tdview
from tdview.containers.source import dense_of
from tdview.testing.same import differences, file_differences
from tdview.testing.strategies import stacks, tensorclasses, tensordicts, views


def _both_ways(td, *, dense=None):
    with tempfile.TemporaryDirectory() as folder:
        td.memmap(f"{folder}/d")
        td.save(f"{folder}/a.tdz")
        yield td, tdview.load_memmap(f"{folder}/d"), Path(folder)
        yield dense if dense is not None else td, tdview.load_memmap(f"{folder}/a.tdz"), Path(folder)


@settings(max_examples=30)
@given(tensordicts())
def test_tensordict_comes_back_from_both_forms(td):
    for saved, loaded, _ in _both_ways(td):
        assert list(differences(saved, loaded)) == []


@settings(max_examples=30)
@given(stacks(depth=1))
def test_lazy_stack_comes_back_from_both_forms(td):
    for saved, loaded, _ in _both_ways(td):
        assert list(differences(saved, loaded)) == []


@settings(max_examples=30)
@given(tensorclasses())
def test_unknown_tensorclass_comes_back_with_its_name(td):
    for saved, loaded, _ in _both_ways(td):
        assert list(differences(saved, loaded)) == []
        assert loaded._saved_type == "<class 'lost_module.Thing'>"


@settings(max_examples=30)
@given(views())
def test_view_comes_back_as_view_and_from_an_archive_dense(view):
    for saved, loaded, _ in _both_ways(view, dense=dense_of(view)):
        assert list(differences(saved, loaded)) == []


@settings(max_examples=30)
@given(tensordicts(kinds=frozenset({"leaf", "nested", "td", "value", "values", "stack"})))
def test_loaded_and_saved_again_gives_the_same_files(td):
    with tempfile.TemporaryDirectory() as folder:
        td.memmap(f"{folder}/one")
        tdview.load_memmap(f"{folder}/one").memmap(f"{folder}/two", copy_existing=True)
        tdview.load_memmap(f"{folder}/two", mode="r").memmap(f"{folder}/three", copy_existing=True)
        assert list(file_differences(Path(folder, "two"), Path(folder, "three"))) == []


@settings(max_examples=30)
@given(tensordicts(kinds=frozenset({"leaf", "nested"})))
def test_result_of_memmap_equals_what_was_saved(td):
    with tempfile.TemporaryDirectory() as folder:
        mapped = td.memmap(folder)
        assert mapped.is_memmap()
        assert mapped.is_locked
        assert list(differences(td, mapped)) == []
    assert list(differences(td, td.memmap())) == []


def test_every_dtype_comes_back():
    from tdview.testing.strategies import _torch_dtypes

    for dtype in _torch_dtypes(False):
        octets = torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2
        td = tdview.TensorDict(a=octets.view(dtype).view(2, 3), batch_size=[2])
        for saved, loaded, _ in _both_ways(td):
            assert list(differences(saved, loaded)) == [], dtype

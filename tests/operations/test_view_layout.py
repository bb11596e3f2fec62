"""An element that is seen through a lazy view or sub-tensordict is edited where it lies, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict, set_lazy_legacy

from tdview.errors import EditRefusedError
from tdview.operations.edit import Editor
from tdview.operations.view_layout import has_places
from tdview.tree.scan import scan

pytestmark = pytest.mark.filterwarnings("ignore:The legacy lazy mode")


def source() -> TensorDict:
    return TensorDict(
        {"a": torch.arange(24.0).view(4, 3, 2), "n": TensorDict({"b": torch.arange(12).view(4, 3)}, [4, 3])}, [4, 3]
    )


VIEWS: dict[str, Callable[[TensorDict], Any]] = {
    "permute": lambda td: td.permute(1, 0),
    "transpose": lambda td: td.transpose(0, 1),
    "view": lambda td: td.view(12),
    "view3": lambda td: td.view(2, 2, 3),
    "unsqueeze": lambda td: td.unsqueeze(1),
    "squeeze": lambda td: td[:1].squeeze(0),
    "slice": lambda td: td._get_sub_tensordict((slice(1, 3), 2)),
    "int": lambda td: td._get_sub_tensordict(2),
    "ellipsis": lambda td: td._get_sub_tensordict((..., slice(0, 3, 2))),
    "list": lambda td: td._get_sub_tensordict(torch.tensor([3, 1])),
    "mask": lambda td: td._get_sub_tensordict(torch.tensor([True, False, True, False])),
}


def saved(name: str, folder: Path) -> Path:
    with set_lazy_legacy(True):
        view = VIEWS[name](source())
        view.memmap(folder / "run")
    return folder / "run"


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_each_element_is_edited_in_its_place(name: str, tmp_path: Path) -> None:
    path = saved(name, tmp_path)
    root = scan(path)
    editor = Editor(path)
    assert all(has_places(leaf) for leaf in editor.root.leaves())
    assert not any(has_places(leaf) for leaf in root.leaves())
    for key in (("a",), ("n", "b")):
        model = np.array(root[key].numpy())
        for number, place in enumerate(np.ndindex(model.shape)):
            edit = editor.edit(key, place, 100 + number)
            assert edit.old == model[place]
            model[place] = 100 + number
            assert np.array_equal(scan(path)[key].numpy(), model)
        model[..., 0] = -1
        editor.edit(key, (..., 0), -1)
        assert np.array_equal(scan(path)[key].numpy(), model)
    while editor.edits:
        editor.undo()
    assert all(np.array_equal(scan(path)[key].numpy(), root[key].numpy()) for key in (("a",), ("n", "b")))


def test_views_of_views_are_followed(tmp_path: Path) -> None:
    with set_lazy_legacy(True):
        source().permute(1, 0).unsqueeze(0).memmap(tmp_path / "run")
    editor = Editor(tmp_path / "run")
    edit = editor.edit("a", (0, 2, 3, 1), -5)
    assert edit.old == 23.0
    assert scan(tmp_path / "run")["a"].numpy()[0, 2, 3, 1] == -5


@pytest.mark.parametrize(
    "index",
    [
        torch.tensor([1, 1]),
        (torch.tensor([0, 1]), torch.tensor([2, 0])),
        torch.tensor([[0, 1], [2, 3]]),
        torch.ones(4, 3, dtype=torch.bool),
    ],
    ids=["a row twice", "two lists", "a table of rows", "a mask of two axes"],
)
def test_elements_without_a_place_of_their_own_are_refused(index: Any, tmp_path: Path) -> None:
    source()._get_sub_tensordict(index).memmap(tmp_path / "run")
    editor = Editor(tmp_path / "run")
    assert not any(has_places(leaf) for leaf in editor.root.leaves())
    with pytest.raises(EditRefusedError):
        editor.edit("a", 0, 1)


def test_a_reordered_view_is_refused(tmp_path: Path) -> None:
    with set_lazy_legacy(True):
        source().permute(1, 0).view(12).memmap(tmp_path / "run")
    with pytest.raises(EditRefusedError):
        Editor(tmp_path / "run").edit("a", 0, 1)


def test_a_view_of_a_stack_of_members_is_refused(tmp_path: Path) -> None:
    members = [TensorDict({"a": torch.arange(6.0).view(3, 2) + 10 * i}, batch_size=[3]) for i in range(2)]
    stack = LazyStackedTensorDict(*members, stack_dim=1)
    with set_lazy_legacy(True):
        stack.permute(1, 0).memmap(tmp_path / "run")
    root = scan(tmp_path / "run")
    if root.kind != "lazy_view":
        pytest.fail("the save was to hold a view of a stack")
    editor = Editor(tmp_path / "run")
    with pytest.raises(EditRefusedError):
        editor.edit("a", (0, 0, 0), 1)

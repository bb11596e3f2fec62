"""Any sequence of edit, undo, redo, refresh and reload gives what a plain numpy model gives."""

from __future__ import annotations

import copy
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tensordict import TensorDict

from tdview.errors import EditRefusedError
from tdview.operations.edit import Editor

SHAPES = {"a": (5, 3), "b": (5,), "c": (5, 2, 2)}
DTYPES = {"a": torch.float32, "b": torch.int64, "c": torch.bool}


def first() -> dict[str, np.ndarray]:
    return {
        key: torch.zeros(shape, dtype=DTYPES[key]).numpy() if key != "b" else np.arange(5)
        for key, shape in SHAPES.items()
    }


class EditMachine(RuleBasedStateMachine):
    """The save on disk against dicts of arrays; two editors stand for two processes."""

    name: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / self.name
        self.model = first()
        TensorDict({key: torch.from_numpy(value) for key, value in self.model.items()}, batch_size=[5]).save(self.path)
        self.undone: list[dict[str, np.ndarray]] = []
        self.before: list[dict[str, np.ndarray]] = []
        self.editors = [Editor(self.path), Editor(self.path)]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def model_step(self) -> None:
        self.before.append(self.model)
        self.model = copy.deepcopy(self.model)
        self.undone.clear()

    @rule(data=st.data(), who=st.integers(0, 1), key=st.sampled_from(sorted(SHAPES)))
    def edit(self, data: st.DataObject, who: int, key: str) -> None:
        shape = SHAPES[key]
        index = tuple(
            data.draw(st.one_of(st.integers(-size, size - 1), st.slices(size)))
            for size in shape[: data.draw(st.integers(0, len(shape)))]
        )
        array = self.model[key]
        target = array[index]
        if key == "a":
            numbers = st.floats(width=32)
        elif key == "b":
            numbers = st.integers(-(2**63), 2**63 - 1)
        else:
            numbers = st.booleans()
        if data.draw(st.booleans()):
            value = data.draw(numbers)
        else:
            flat = [data.draw(numbers) for _ in range(target.size)]
            value = np.array(flat, dtype=array.dtype).reshape(target.shape)
        if target.size == 0:
            try:
                self.editors[who].edit(key, index, value)
            except EditRefusedError:
                return
            raise AssertionError("an empty selection was edited")
        self.editors[who].edit(key, index, value)
        self.model_step()
        self.model[key][index] = value

    @rule(who=st.integers(0, 1), key=st.sampled_from(sorted(SHAPES)))
    def refused(self, who: int, key: str) -> None:
        for index, value in (((9,), 0), ((0, 0, 0, 0), 0), ((), "x")):
            try:
                self.editors[who].edit(key, index, value)
            except EditRefusedError:
                continue
            raise AssertionError(f"{key}[{index}] = {value!r} was accepted")

    @precondition(lambda self: self.before)
    @rule(who=st.integers(0, 1))
    def undo(self, who: int) -> None:
        self.editors[who].undo()
        self.undone.append(self.model)
        self.model = self.before.pop()

    @precondition(lambda self: self.undone)
    @rule(who=st.integers(0, 1))
    def redo(self, who: int) -> None:
        self.editors[who].redo()
        self.before.append(self.model)
        self.model = self.undone.pop()

    @rule(who=st.integers(0, 1))
    def refresh(self, who: int) -> None:
        self.editors[who].refresh_checksums()
        if self.path.is_file():
            assert zipfile.ZipFile(self.path).testzip() is None

    @rule(who=st.integers(0, 1))
    def reload(self, who: int) -> None:
        self.editors[who].reload()
        assert len(self.editors[who].edits) == len(self.before)
        assert len(self.editors[who].undone) == len(self.undone)

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.editors[who] = Editor(self.path)
        assert len(self.editors[who].edits) == len(self.before)

    @rule()
    def somebody_else_edits_and_undoes(self) -> None:
        other = Editor(self.path, journal=False)
        other.edit("b", 0, 1)
        other.undo()

    @invariant()
    def the_save_holds_the_model(self) -> None:
        loaded = TensorDict.load_memmap(self.path)
        for key, value in self.model.items():
            assert loaded[key].numpy().tobytes() == value.tobytes()

    @invariant()
    def stale_entries_are_those_that_do_not_fit(self) -> None:
        if not self.path.is_file():
            return
        with zipfile.ZipFile(self.path) as archive:
            wrong = {info.filename for info in archive.infolist() if not fits(archive, info)}
        fresh = Editor(self.path)
        assert set(fresh.stale_checksums) == wrong


def fits(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    try:
        archive.read(info)
    except zipfile.BadZipFile:
        return False
    return True


class DirectoryMachine(EditMachine):
    name = "run"


class ArchiveMachine(EditMachine):
    name = "run.tdz"


def test_edits_of_a_directory_follow_the_model() -> None:
    run_state_machine_as_test(DirectoryMachine, settings=settings(max_examples=12, stateful_step_count=15))


def test_edits_of_an_archive_follow_the_model() -> None:
    run_state_machine_as_test(ArchiveMachine, settings=settings(max_examples=12, stateful_step_count=15))

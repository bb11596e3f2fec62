"""Saving, loading, editing and saving again in any order: a fresh load always equals the model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import tdview
from tdview import TensorDict, load_memmap
from tdview.testing.same import differences
from tdview.testing.strategies import json_values, keys, leaves, tensordicts

BATCH = torch.Size([3])
LEAF = leaves(BATCH).map(lambda leaf: TensorDict(leaf=leaf, batch_size=BATCH))  # torch cannot print all dtypes
KINDS = frozenset({"leaf", "td", "value", "values"})


class SaveMachine(RuleBasedStateMachine):
    """The save at one path, a container that is mapped to it or not, and what the save must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "s"
        self.model: TensorDict | None = None
        self.mapped = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(td=tensordicts(BATCH, depth=1, kinds=KINDS), atomic=st.booleans(), threads=st.sampled_from([0, 3]))
    def save_new(self, td, atomic, threads):
        self.mapped = td.memmap(self.path, atomic=atomic, num_threads=0 if atomic else threads)
        self.model = td.clone()

    @precondition(lambda self: self.model is not None)
    @rule(mode=st.sampled_from([None, "r"]), key=keys(), value=st.one_of(LEAF, json_values()))
    def load_change_and_save_again(self, mode, key, value):
        td = load_memmap(self.path, mode=mode)
        before = list(td.keys())
        try:
            td.set(key, value["leaf"]) if isinstance(value, TensorDict) else td.set_non_tensor(key, value)
            td.memmap(self.path)
        except tdview.EncodeError:  # two keys ask for one file: nothing was written
            assert list(load_memmap(self.path).keys()) == before
            return
        self.model = td.clone()
        self.mapped = None

    @precondition(lambda self: self.model is not None)
    @rule(data=st.data())
    def delete_an_entry_and_save_again(self, data):
        if not list(self.model.keys()):
            return
        key = data.draw(st.sampled_from(list(self.model.keys())))
        td = load_memmap(self.path)
        del td[key]
        td.save(self.path)
        self.model = td.clone()
        self.mapped = None

    @precondition(lambda self: self.mapped is not None)
    @rule()
    def write_in_place(self):
        for td in (self.mapped, self.model):
            for key in td.keys():  # noqa: SIM118
                leaf = td.get(key)
                if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.dtype == torch.float32:
                    leaf.fill_(7)

    @precondition(lambda self: self.mapped is not None)
    @rule(value=json_values(), data=st.data())
    def change_a_value(self, value, data):
        values = [key for key, item in self.mapped.items() if isinstance(item, tdview.NonTensorData)]
        if values:
            key = data.draw(st.sampled_from(values))
            new = tdview.NonTensorData(value, batch_size=BATCH)
            self.mapped.set_(key, new)
            self.model.set_(key, tdview.NonTensorData(value, batch_size=BATCH))

    @precondition(lambda self: self.mapped is not None)
    @rule(key=keys(), leaf=LEAF)
    def make_a_leaf(self, key, leaf):
        names = {f"{tdview.format.keys.encode_key(k)}{ending}" for k in self.model.keys() for ending in ("", ".memmap")}  # noqa: SIM118
        mine = tdview.format.keys.encode_key(key)
        if key in self.model or {mine, f"{mine}.memmap"} & names:
            return
        self.mapped.make_memmap_from_tensor(key, leaf["leaf"])
        self.model[key] = leaf["leaf"]

    @precondition(lambda self: self.model is not None)
    @rule()
    def pack_and_unpack(self):
        tdview.pack_memmap(self.path, self.folder / "s.tdz")
        assert list(differences(self.model, load_memmap(self.folder / "s.tdz"), order=False)) == []
        shutil.rmtree(self.path)
        tdview.unpack_memmap(self.folder / "s.tdz", self.path)
        self.mapped = None

    @precondition(lambda self: self.model is not None)
    @rule()
    def refresh(self):
        if self.mapped is not None:
            assert list(differences(self.model, self.mapped.memmap_refresh_(), order=False)) == []

    @invariant()
    def a_fresh_load_equals_the_model(self):
        if self.model is not None:
            assert list(differences(self.model, load_memmap(self.path, mode="r"), order=False)) == []
            assert not list(self.folder.rglob(".td*"))
            report = tdview.verify(self.path)
            assert [p for p in report.problems if p.severity == "error"] == []


TestSaveMachine = SaveMachine.TestCase
TestSaveMachine.settings = settings(max_examples=15, stateful_step_count=10)

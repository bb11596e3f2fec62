"""Pickles are decoded by an allow-list and never executed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import pickle
import subprocess
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tdview.errors import DecodeError, PickleRefusedError, TdviewError
from tdview.format.pickles import json_types, safe_loads

VALUES = [
    None, True, 0, -(2**70), 2.5, float("inf"), "é", b"\x00\xff", bytearray(b"ab"), (), (1,), (1, 2, 3, 4), [],
    [1, [2]],
    {}, {"a": {1: 2}}, {1, 2}, frozenset({1}), 1 + 2j, range(3), slice(1, None, 2), OrderedDict(a=1),
    dict, list, type(None),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_safe_values_of_every_protocol_are_decoded(value: Any, protocol: int) -> None:
    got = safe_loads(pickle.dumps({"data": value}, protocol), "x")["data"]
    assert got == value
    assert type(got) is type(value)


def test_paths_and_sizes_become_plain_values() -> None:
    got = safe_loads(pickle.dumps({"p": pathlib.PurePosixPath("/a/b"), "s": torch.Size([2, 3])}), "x")
    assert got == {"p": pathlib.PurePosixPath("/a/b"), "s": (2, 3)}


def test_shared_values_stay_shared() -> None:
    inner = [1]
    got = safe_loads(pickle.dumps([inner, inner]), "x")
    assert got[0] is got[1]


class Gadget:
    def __init__(self, function: Any, *args: Any) -> None:
        self.made = (function, args)

    def __reduce__(self) -> Any:
        return self.made


GADGETS = [
    Gadget(os.system, "true"),
    Gadget(os.mkdir, "pwned"),
    Gadget(eval, "1"),
    Gadget(exec, "1"),
    Gadget(getattr, dict, "fromkeys"),
    Gadget(__import__, "os"),
    Gadget(open, "pwned", "w"),
    Gadget(subprocess.getoutput, "true"),
    Gadget(torch.load, "x"),
    Gadget(torch.tensor, [1]),
    Gadget(np.zeros, 3),
    Gadget(bytearray, 10**12),
    Gadget(list, range(10**12)),
    Gadget(Path),
    Gadget(type, "X", (), {}),
    Gadget(print),
    Gadget(str, 3),
    Gadget(int, "9" * 10),
]


@pytest.mark.parametrize("wrap", [lambda g: g, lambda g: {"data": g}, lambda g: [[g]], lambda g: {"a": (g, 1)}])
@pytest.mark.parametrize("gadget", GADGETS, ids=lambda g: f"{g.made[0].__module__}.{g.made[0].__name__}")
def test_a_gadget_is_refused_and_does_nothing(
    gadget: Gadget, wrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if gadget.made[0] is Path:  # a path without parts is a plain value
        assert isinstance(safe_loads(pickle.dumps(gadget), "x"), pathlib.PurePath)
        return
    with pytest.raises(PickleRefusedError):
        safe_loads(pickle.dumps(wrap(gadget)), "x")
    assert list(tmp_path.iterdir()) == []


def test_nested_reduce_reaches_no_callable() -> None:
    inner = Gadget(getattr, Gadget(__import__, "builtins"), "eval")
    with pytest.raises(PickleRefusedError):
        safe_loads(pickle.dumps(inner), "x")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cos\nsystem\n.",  # a name alone
        b"\x80\x04ctorch\nload\n.",
        b"\x80\x04)\x81.",  # an object of nothing
        b"\x80\x04}b.",  # a state for a dict
        b"\x80\x02\x82\x01.",  # an extension registry
        b"Pid\n.",  # a persistent id
        b"\x80\x04)c__main__\nX\nR.",
    ],
)
def test_operations_outside_the_allow_list_are_refused(data: bytes) -> None:
    with pytest.raises(TdviewError):
        safe_loads(data, "x")


def test_a_huge_memo_index_allocates_nothing() -> None:
    assert safe_loads(b"\x80\x02Nr\xff\xff\xff\xff.", "x") is None


def test_a_value_that_unfolds_without_bound_is_refused() -> None:
    value: list[Any] = [0] * 10
    for _ in range(30):
        value = [value] * 10
    with pytest.raises(PickleRefusedError):
        safe_loads(pickle.dumps(value), "x")


def test_a_circle_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(PickleRefusedError):
        safe_loads(pickle.dumps(value), "x")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_tdview_error(data: bytes) -> None:
    message = ""
    try:
        safe_loads(data, "x")
    except (DecodeError, PickleRefusedError) as error:
        message = str(error)
    assert len(message) < 400


@given(st.data())
def test_flipped_bytes_give_a_value_or_a_tdview_error(data: st.DataObject) -> None:
    good = bytearray(pickle.dumps({"data": [{1, 2}, (1 + 2j), {"k": b"v"}, OrderedDict(a=1)], "m": None}))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError, PickleRefusedError):
        safe_loads(bytes(good), "x")


def test_json_types_count_only_for_their_own_pickle() -> None:
    blob = io.BytesIO(pickle.dumps({"data": dict})).getvalue()
    record = {"types": {"data": "dict"}, "pickle_sha256": sha256(blob).hexdigest()}
    assert json_types(json.dumps(record).encode(), blob) == {"data": "dict"}
    assert json_types(json.dumps(record).encode(), blob + b"x") is None
    for bad in (b"", b"[]", b"{}", b'{"pickle_sha256": 3, "types": []}'):
        assert json_types(bad, blob) is None

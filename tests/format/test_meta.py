"""meta.json: what a level says, and that damage becomes a problem with a code instead of an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdview.errors import DecodeError, UnsupportedVersionError
from tdview.format.meta import LeafEntry, NestedEntry, dump_json, leaf_json, parse_level, tensordict_json

LEAF = leaf_json("torch.float32", [3, 4])


def level(**fields: Any) -> Any:
    return parse_level(json.dumps(tensordict_json({"obs": LEAF}, [3]) | fields).encode(), "x")


def test_a_level_says_its_entries_batch_size_names_and_version() -> None:
    meta = parse_level(dump_json(tensordict_json({"obs": LEAF, "n": {"type": "TensorDict"}}, [3], names=["t"])), "x")
    assert meta.kind == "tensordict"
    assert meta.batch_size == (3,)
    assert meta.names == ("t",)
    assert meta.version == 1
    assert meta.entries == {"obs": LeafEntry("torch.float32", (3, 4)), "n": NestedEntry("TensorDict")}
    assert meta.problems == ()


def test_written_bytes_are_those_of_version_1() -> None:
    assert dump_json(tensordict_json({"é": LEAF}, [3])) == (
        b'{"\\u00e9": {"device": "cpu", "shape": [3, 4], "dtype": "torch.float32", "is_nested": false}, "shape": [3],'
        b' "device": "cpu", "_type": "<class \'tensordict._td.TensorDict\'>", "_format_version": 1,'
        b' "_class": "tensordict:TensorDict"}'
    )


@pytest.mark.parametrize("key", ["_format_version", "_class", "_names"])
def test_a_key_with_a_shadowable_name_keeps_its_entry(key: str) -> None:
    fields = tensordict_json({key: LEAF}, [3], names=["t"])
    assert fields[key] == LEAF
    meta = parse_level(dump_json(fields), "x")
    assert key in meta.entries
    assert meta.problems == ()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"_format_version": 2}, "version"),
        ({"_format_version": "2"}, "version"),
        ({"_format_version": True}, "version"),
        ({"_format_version": -1}, "version"),
        ({"shape": [-3]}, "shape"),
        ({"shape": "x"}, "shape"),
        ({"shape": [2**62, 2**62]}, "shape"),
        ({"_names": ["a", "b"]}, "names"),
        ({"_names": [3]}, "names"),
        ({"_class": "nope:Nope"}, "unknown_class"),
        ({"_class": None, "_type": None}, "unknown_class"),
        ({"x": {"dtype": "torch.float32"}}, "entry"),
        ({"x": {"type": None}}, "entry"),
    ],
)
def test_damage_is_a_problem_and_the_rest_is_read(fields: dict[str, Any], code: str) -> None:
    meta = level(**fields)
    assert code in [problem.code for problem in meta.problems]
    assert "obs" in meta.entries


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"dtype": "torch.float7"}, "dtype"),
        ({"dtype": 3}, "dtype"),
        ({"dtype": ["torch.int8"]}, "dtype"),
        ({"shape": [-3, 4]}, "shape"),
        ({"shape": [3.0]}, "shape"),
        ({"shape": [True]}, "shape"),
        ({"shape": {}}, "shape"),
        ({"shape": [2**62, 2**62]}, "shape"),
        ({"shape": [1] * 65}, "shape"),
        ({"shape": [3], "is_nested": True}, "shape"),
    ],
)
def test_a_damaged_entry_keeps_its_key_and_says_what_is_wrong(entry: dict[str, Any], code: str) -> None:
    found = level(obs=LEAF | entry).entries["obs"]
    assert found.problem is not None
    assert found.problem[0] == code


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b'"\\ud800']
)
def test_what_is_no_json_object_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_level(data, "x")
    assert [problem.code for problem in caught.value.problems] == ["json"]
    assert len(str(caught.value)) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["shape", "device", "_type", "_class", "_format_version", "_names", "obs", "stack_dim", "data"])


@given(st.dictionaries(NAMES | st.text(max_size=5), JSON | st.just(LEAF), max_size=8))
def test_any_json_object_is_read_or_refused_by_a_decode_error(fields: dict[str, Any]) -> None:
    try:
        meta = parse_level(json.dumps(fields).encode(), "x")
    except (DecodeError, UnsupportedVersionError):
        return
    assert isinstance(meta.entries, dict)
    assert all(len(problem.message) < 600 for problem in meta.problems)

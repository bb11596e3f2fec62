from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tdview.errors import ArgumentError, Cancelled, KeyMissingError
from tdview.widgets.messages import (
    Request,
    bool_arg,
    clean,
    error_message,
    int_arg,
    parse_request,
    path_arg,
    str_arg,
    wire_text,
)


def test_a_request_is_read_with_and_without_arguments() -> None:
    assert parse_request({"id": "a.1", "op": "x"}) == Request("a.1", "x", {})
    assert parse_request({"id": "a.1", "op": "x", "args": {"n": 1}}).args == {"n": 1}


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        "text",
        [],
        {},
        {"op": "x"},
        {"id": 1, "op": "x"},
        {"id": "", "op": "x"},
        {"id": "a" * 101, "op": "x"},
        {"id": "a", "op": ""},
        {"id": "a", "op": None},
        {"id": "a", "op": "x", "args": []},
    ],
    ids=repr,
)
def test_a_malformed_request_is_refused(content: Any) -> None:
    with pytest.raises(ArgumentError):
        parse_request(content)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (None, None),
        (True, True),
        (2**53, 2**53),
        (2**53 + 1, "9007199254740993"),
        (-(2**63), "-9223372036854775808"),
        (1.5, 1.5),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ("a\ud800b", "a\\ud800b"),
        ((1, (2,)), [1, [2]]),
        ({"k": (math.nan,)}, {"k": ["NaN"]}),
        (np.float32(2), 2.0),
        (np.int64(7), 7),
        (np.bool_(True), True),
    ],
    ids=repr,
)
def test_values_are_made_fit_for_json(value: Any, wire: Any) -> None:
    assert clean(value) == wire
    json.dumps(clean(value), allow_nan=False).encode()


def test_text_without_lone_surrogates_is_unchanged() -> None:
    assert wire_text("é🚀<b>\0") == "é🚀<b>\0"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyMissingError("k"), "KeyMissingError"),
        (Cancelled("x"), "cancelled"),
        (ValueError("v"), "internal"),
        (PermissionError(13, "Permission denied", "run/a"), "system"),
        (KeyboardInterrupt(), "internal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_travel_as_code_and_text(error: BaseException, code: str) -> None:
    message = error_message("a.1", error)
    assert (message["id"], message["error"]["code"]) == ("a.1", code)
    assert message["error"]["message"]
    assert "Errno" not in message["error"]["message"]


@pytest.mark.parametrize("ident", [None, 3, [], "x" * 1000], ids=repr)
def test_an_error_without_a_usable_id_has_none(ident: Any) -> None:
    assert error_message(ident, ValueError("v"))["id"] is None


def test_a_long_error_text_is_cut() -> None:
    assert len(error_message("a", ValueError("x" * 10**6))["error"]["message"]) <= 4000


def test_arguments_are_read_and_clamped() -> None:
    args = {"path": ["a", "b"], "n": 7, "f": 3.0, "text": "t", "flag": True}
    assert path_arg(args) == ("a", "b")
    assert int_arg(args, "n", low=0, high=5) == 5
    assert int_arg(args, "f") == 3
    assert int_arg(args, "absent", 4) == 4
    assert str_arg(args, "text") == "t"
    assert bool_arg(args, "flag")
    assert not bool_arg(args, "absent")


@pytest.mark.parametrize("value", [None, "a", [1], [["a"]]], ids=repr)
def test_a_malformed_path_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError):
        path_arg({"path": value})


@pytest.mark.parametrize("value", [None, "1", True, 1.5, math.nan], ids=repr)
def test_a_malformed_integer_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError):
        int_arg({"n": value}, "n")


def test_malformed_text_and_flags_are_refused() -> None:
    with pytest.raises(ArgumentError):
        str_arg({"t": 1}, "t")
    with pytest.raises(ArgumentError):
        bool_arg({"b": 1}, "b")

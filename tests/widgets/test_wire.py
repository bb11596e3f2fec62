"""The same messages that js/test/wire.test.ts checks with TypeScript."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdview
from tdview.errors import ArgumentError
from tdview.widgets.messages import parse_request
from tests.widgets.conftest import View
from tests.widgets.saves import write_save

WIRE: dict[str, Any] = json.loads(Path(__file__).with_name("wire.json").read_text())


@pytest.mark.parametrize("message", WIRE["requests"]["valid"], ids=json.dumps)
def test_a_valid_request_is_read(message: Any) -> None:
    request = parse_request(message)
    assert (request.id, request.op, request.args) == (message["id"], message["op"], message.get("args", {}))


@pytest.mark.parametrize("message", WIRE["requests"]["invalid"], ids=json.dumps)
def test_an_invalid_request_is_refused(message: Any) -> None:
    with pytest.raises(ArgumentError):
        parse_request(message)


def test_the_head_has_the_form_that_the_view_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_save(tmp_path / "run", {"obs": ("float32", [2, 3])}, batch_size=[2])
    monkeypatch.chdir(tmp_path)
    assert tdview.open("run")._head == WIRE["head"]


def test_answers_and_events_have_the_form_that_the_view_knows(tmp_path: Path, view_of: Callable[[Any], View]) -> None:
    browser = tdview.open(write_save(tmp_path / "run", {"obs": ("float32", [2, 3])}, batch_size=[2]))
    view = view_of(browser)
    view.say(3)
    view.ask("reload")
    shapes = {frozenset(message) for message in view.heard}
    known = WIRE["answers"]["valid"] + WIRE["events"]["valid"]
    assert shapes <= {frozenset(message) for message in known}
    assert view.heard[0] == WIRE["answers"]["valid"][-1]

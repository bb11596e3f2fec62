"""What reaches a terminal: printable text, valid JSON, progress that can stop the work."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tdview.cli.output import Progress, one_line, printable, progress, say_json
from tdview.errors import Cancelled


def test_text_of_a_save_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\n") == "a\\x1b[2Jb\\r\n"
    assert one_line("one\ntwo\x07 three") == "one two\\x07 three"
    assert len(one_line("x" * 5000)) < 1100


def test_json_has_no_nan_and_takes_what_saves_hold(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    say_json({"a": float("nan"), "b": (1, np.float32(0.5)), "c": np.array([[1, 2]]), "d": b"\x01", "e": {3: None}})
    assert json.loads(capsys.readouterr().out) == {
        "a": "nan",
        "b": [1, 0.5],
        "c": [[1, 2]],
        "d": "01",
        "e": {"3": None},
    }


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work") as shown:
        for done in range(3):
            shown(done, 3)
    assert capsys.readouterr().err == ""


def test_progress_line_is_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = Progress("work")
    shown._next = 0.0
    shown(1, 4)
    shown.clear()
    assert capsys.readouterr().err == "\rwork  25% \r\x1b[K"


@pytest.fixture
def interrupts() -> Iterator[Callable[[Any], object]]:
    """Sets who handles SIGINT, whatever the tests were started with, until the test is over."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def test_first_interrupt_stops_at_the_next_block_and_second_at_once(interrupts: Callable[[Any], object]) -> None:
    interrupts(signal.default_int_handler)
    with progress("work") as shown:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Cancelled):
            shown(1, 2)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_ignored_stays_ignored(interrupts: Callable[[Any], object]) -> None:
    interrupts(signal.SIG_IGN)
    with progress("work") as shown:
        os.kill(os.getpid(), signal.SIGINT)
        shown(1, 2)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

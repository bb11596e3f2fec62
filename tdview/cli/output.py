"""This module knows how text, JSON and progress get to a terminal.

It does not know what they say.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tdview.errors import Cancelled

__all__ = ["Progress", "one_line", "printable", "progress", "say", "say_json"]


def printable(text: str) -> str:
    """`text` without what would steer a terminal: only line ends and printable characters stay as they are."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str, limit: int = 1000) -> str:
    """`text` as a single printable line of bounded length."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[:limit]}…"


def say(text: object) -> None:
    """Prints text that may hold keys or values of a save."""
    print(printable(str(text)))


def say_json(value: Any) -> None:
    """Prints one JSON document. NaN and infinities, which JSON has not, become the strings that Python prints."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, complex):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return str(value)


class Progress:
    """Shows how far the work is, and stops it between two blocks once it was asked to stop."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._shown = sys.stderr.isatty()
        self._next = time.monotonic() + 0.3  # short work shows nothing
        self._drawn = False
        self.stop_asked = False

    def __call__(self, done: int, total: int) -> None:
        if self.stop_asked:
            raise Cancelled(f"{self._verb}: stopped as asked")
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + 0.1
            self._drawn = True
            share = done / total if total else 1.0
            sys.stderr.write(f"\r{self._verb} {share:4.0%} ")
            sys.stderr.flush()

    def clear(self) -> None:
        """Removes the line from the terminal."""
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


@contextlib.contextmanager
def progress(verb: str) -> Iterator[Progress]:
    """Progress on stderr where that is a terminal. The first Ctrl-C stops the work at its next block, so that it
    leaves nothing half done behind; a second one interrupts at once."""
    shown = Progress(verb)

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if shown.stop_asked:
            raise KeyboardInterrupt
        shown.stop_asked = True

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: whoever calls there has a way of stopping of their own
        before = None
    if before is signal.SIG_IGN:  # a job that a shell runs in the background: Ctrl-C is not meant for it
        signal.signal(signal.SIGINT, before)
    try:
        yield shown
    finally:
        shown.clear()
        if before is not None:
            signal.signal(signal.SIGINT, before)

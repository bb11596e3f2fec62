"""A comm that only records, so that widgets are tested without Jupyter."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from ipywidgets.widgets.widget import _instances


class RecordingComm(BaseComm):
    """Keeps what was sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sent: list[tuple[dict[str, Any], list[Any]]] = []
        super().__init__(*args, **kwargs)

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any) -> None:
        if msg_type == "comm_msg":
            self.sent.append((data or {}, list(buffers or [])))


@pytest.fixture(autouse=True)
def recording_comms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Widgets get recording comms; at the end they are closed, and no thread of a request is left."""
    monkeypatch.setattr(comm, "create_comm", RecordingComm)
    yield
    for widget in list(_instances.values()):  # what a notebook would still show keeps its files open
        widget.close()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _threads():
        time.sleep(0.01)
    assert not _threads(), "a request is still running"


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tdview-")]


_ids = itertools.count()


class View:
    """What a view does: it sends requests and hears answers and events."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.comm: RecordingComm = browser.comm
        self.comm.sent.clear()

    def say(self, content: Any, buffers: list[bytes] | None = None) -> None:
        """Delivers a custom message as the kernel would."""
        message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": buffers or []}
        self.comm.handle_msg(message)

    @property
    def heard(self) -> list[dict[str, Any]]:
        """Custom messages so far."""
        return [data["content"] for data, _ in list(self.comm.sent) if data.get("method") == "custom"]

    def answers(self, ident: Any) -> list[tuple[dict[str, Any], list[Any]]]:
        """Final answers to a request."""
        found = [(data["content"], buffers) for data, buffers in list(self.comm.sent) if data.get("method") == "custom"]
        return [(m, b) for m, b in found if m.get("id") == ident and m.get("kind") in ("reply", "error")]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of a kind so far."""
        return [message for message in self.heard if message.get("event") == name]

    def wait(self, ident: Any, timeout: float = 10) -> tuple[dict[str, Any], list[Any]]:
        """The answer to a request, which may come from another thread."""
        deadline = time.monotonic() + timeout
        while not (found := self.answers(ident)):
            assert time.monotonic() < deadline, f"request {ident!r} was not answered"
            time.sleep(0.002)
        assert len(found) == 1, f"request {ident!r} was answered {len(found)} times"
        return found[0]

    def ask(self, op: str, args: dict[str, Any] | None = None, buffers: list[bytes] | None = None) -> Any:
        """The value of the reply; an error answer fails the test."""
        answer, _ = self.exchange(op, args, buffers)
        assert answer["kind"] == "reply", answer
        return answer["value"]

    def refused(self, op: str, args: dict[str, Any] | None = None) -> str:
        """The code of the error answer."""
        answer, _ = self.exchange(op, args)
        assert answer["kind"] == "error", answer
        return str(answer["error"]["code"])

    def exchange(
        self, op: str, args: dict[str, Any] | None = None, buffers: list[bytes] | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """One request and its answer with buffers."""
        ident = f"test.{next(_ids)}"
        self.say({"id": ident, "op": op, "args": args or {}}, buffers)
        return self.wait(ident)


@pytest.fixture
def view_of() -> Iterator[Callable[[Any], View]]:
    """Makes a view of a browser."""
    views: list[View] = []

    def make(browser: Any) -> View:
        views.append(View(browser))
        return views[-1]

    yield make
    for view in views:  # pytest keeps fixtures longer than the test: let go of the save
        vars(view).clear()

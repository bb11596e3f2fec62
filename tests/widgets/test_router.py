from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tdview.errors import ArgumentError, KeyMissingError
from tdview.widgets.messages import Reply
from tdview.widgets.router import Call, Router


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[Any]]] = []
        self.lock = threading.RLock()
        self.router = Router(lambda message, buffers: self.sent.append((message, buffers)), lambda: self.lock)

    def ask(self, op: str, args: Any = None, ident: str = "v.1") -> None:
        self.router.handle({"id": ident, "op": op, "args": args or {}})

    def wait(self, count: int = 1) -> None:
        deadline = time.monotonic() + 5
        while len(self.final) < count:
            assert time.monotonic() < deadline, self.sent
            time.sleep(0.002)

    @property
    def final(self) -> list[dict[str, Any]]:
        return [message for message, _ in self.sent if message["kind"] != "progress"]

    @property
    def codes(self) -> list[str]:
        return [message["error"]["code"] for message in self.final if message["kind"] == "error"]


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_a_handler_answers_with_value_and_buffers(wire: Wire) -> None:
    wire.router.register("page", lambda args, buffers, call: Reply({"n": args["n"]}, [b"abc"]))
    wire.ask("page", {"n": 3})
    assert wire.sent == [({"id": "v.1", "kind": "reply", "value": {"n": 3}}, [b"abc"])]


def test_a_handler_may_answer_with_a_dict_or_nothing(wire: Wire) -> None:
    wire.router.register("dict", lambda args, buffers, call: {"x": float("nan")})
    wire.router.register("none", lambda args, buffers, call: None)
    wire.ask("dict")
    wire.ask("none", ident="v.2")
    assert [message["value"] for message in wire.final] == [{"x": "NaN"}, {}]


def test_what_a_handler_raises_is_answered(wire: Wire) -> None:
    def fail(args: Any, buffers: Any, call: Call) -> None:
        raise {"key": KeyMissingError("k"), "bug": ZeroDivisionError("z"), "stop": KeyboardInterrupt()}[args["what"]]

    wire.router.register("fail", fail)
    for what in ("key", "bug", "stop"):
        wire.ask("fail", {"what": what}, what)
    assert wire.codes == ["KeyMissingError", "internal", "internal"]


@pytest.mark.parametrize("content", [None, 3, [], {"id": "v"}, {"id": "v", "op": "nope"}, {"op": "nope"}], ids=repr)
def test_every_malformed_message_is_answered_once(wire: Wire, content: Any) -> None:
    wire.router.handle(content)
    assert wire.codes == ["ArgumentError"]


def test_an_answer_that_cannot_travel_becomes_an_error(wire: Wire) -> None:
    sent: list[Any] = []

    def send(message: dict[str, Any], buffers: list[Any]) -> None:
        if buffers:
            raise TypeError("not contiguous")
        sent.append(message)

    router = Router(send, lambda: wire.lock)
    router.register("page", lambda args, buffers, call: Reply({}, [b"x"]))
    router.handle({"id": "v.1", "op": "page"})
    assert [message["kind"] for message in sent] == ["error"]


def test_nothing_is_raised_when_nobody_listens_any_more(wire: Wire) -> None:
    def send(message: dict[str, Any], buffers: list[Any]) -> None:
        raise RuntimeError("comm closed")

    router = Router(send, lambda: wire.lock)
    router.register("x", lambda args, buffers, call: {})
    router.handle({"id": "v.1", "op": "x"})
    router.handle(None)
    assert router.running == 0


def test_a_quick_handler_holds_the_lock_and_a_slow_one_does_not(wire: Wire) -> None:
    held: dict[str, bool] = {}

    def look(args: Any, buffers: Any, call: Call) -> None:
        def try_lock() -> None:
            held[call.op] = not wire.lock.acquire(blocking=False)
            if not held[call.op]:
                wire.lock.release()

        other = threading.Thread(target=try_lock)
        other.start()
        other.join()

    wire.router.register("quick", look)
    wire.router.register("slow", look, slow=True)
    wire.ask("quick")
    wire.ask("slow", ident="v.2")
    wire.wait(2)
    assert held == {"quick": True, "slow": False}


def test_progress_is_told_and_throttled(wire: Wire) -> None:
    def work(args: Any, buffers: Any, call: Call) -> None:
        for done in range(1001):
            call.progress(done, 1000)

    wire.router.register("work", work, slow=True)
    wire.ask("work")
    wire.wait()
    progress = [message for message, _ in wire.sent if message["kind"] == "progress"]
    assert progress[-1] == {"id": "v.1", "kind": "progress", "done": 1000, "total": 1000}
    assert len(progress) < 20


def test_a_cancel_stops_slow_work_and_is_answered_by_it(wire: Wire) -> None:
    started = threading.Event()

    def work(args: Any, buffers: Any, call: Call) -> None:
        started.set()
        for done in range(10**6):
            call.progress(done, 10**6)
            time.sleep(0.001)

    wire.router.register("work", work, slow=True)
    wire.ask("work")
    assert started.wait(5)
    wire.router.handle({"id": "v.1", "op": "cancel"})
    wire.wait()
    assert wire.codes == ["cancelled"]
    assert wire.router.running == 0


def test_a_cancel_of_nothing_is_answered(wire: Wire) -> None:
    wire.router.handle({"id": "v.9", "op": "cancel"})
    assert wire.final == [{"id": "v.9", "kind": "reply", "value": {"cancelled": False}}]


def test_an_id_that_is_running_is_refused(wire: Wire) -> None:
    stop = threading.Event()
    wire.router.register("work", lambda args, buffers, call: {} if stop.wait(5) else None, slow=True)
    wire.ask("work")
    wire.ask("work")
    assert wire.codes == ["ArgumentError"]
    stop.set()
    wire.wait(2)


def test_closing_stops_what_runs_and_refuses_what_comes(wire: Wire) -> None:
    started = threading.Event()

    def work(args: Any, buffers: Any, call: Call) -> None:
        started.set()
        while True:
            call.check()
            time.sleep(0.001)

    wire.router.register("work", work, slow=True)
    wire.ask("work")
    assert started.wait(5)
    wire.router.close()
    wire.wait()
    wire.ask("work", ident="v.2")
    assert wire.codes == ["cancelled", "ArgumentError"]


def test_without_threads_slow_work_runs_at_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_threads)
    wire.router.register("work", lambda args, buffers, call: {"done": True}, slow=True)
    wire.ask("work")
    assert wire.final[0]["value"] == {"done": True}


def test_a_name_can_be_taken_once(wire: Wire) -> None:
    wire.router.register("x", lambda args, buffers, call: {})
    with pytest.raises(ArgumentError):
        wire.router.register("x", lambda args, buffers, call: {})
    with pytest.raises(ArgumentError):
        wire.router.register("cancel", lambda args, buffers, call: {})

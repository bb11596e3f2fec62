"""This module knows how a request finds its handler, its thread and its lock, and that each one is answered.

It does not know any operation, and nothing of Jupyter beyond a function that sends.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tdview.errors import ArgumentError, Cancelled, shown
from tdview.widgets.messages import Reply, Request, clean, error_message, parse_request

__all__ = ["Call", "Handler", "Router", "Send"]

Send = Callable[[dict[str, Any], list[Any]], None]
Handler = Callable[[dict[str, Any], Sequence[memoryview], "Call"], "Reply | Mapping[str, Any] | None"]

PROGRESS_SECONDS = 0.1
"""Progress is told at most this often: each message costs the browser a wake-up."""


class Call:
    """One running request: tells its progress and learns that nobody waits for it any more."""

    __slots__ = ("_last", "_send", "_stopped", "id", "op")

    def __init__(self, request: Request, send: Send) -> None:
        self.id = request.id
        self.op = request.op
        self._send = send
        self._stopped = threading.Event()
        self._last = 0.0

    @property
    def cancelled(self) -> bool:
        """Whether the view or the widget asked to stop."""
        return self._stopped.is_set()

    def cancel(self) -> None:
        """Makes the next `progress` or `check` raise."""
        self._stopped.set()

    def check(self) -> None:
        """Raises `Cancelled` when the call was cancelled."""
        if self._stopped.is_set():
            raise Cancelled(f"{self.op}: stopped as asked")

    def progress(self, done: int, total: int) -> None:
        """Tells the view how far the work is; pass it as ``progress=`` to an operation.

        Raises:
            Cancelled: the view asked to stop.
        """
        self.check()
        now = time.monotonic()
        if now - self._last < PROGRESS_SECONDS and done != total:
            return
        self._last = now
        self._send({"id": self.id, "kind": "progress", "done": int(done), "total": int(total)}, [])


@dataclass(frozen=True, slots=True)
class _Entry:
    handler: Handler
    slow: bool


class Router:
    """Answers every message of every view exactly once.

    A quick handler runs in the thread of the message, under the lock of the store, so handlers, the user's cell and
    other widgets of the same file never interleave. A slow one runs in a thread of its own *without* the lock, so that
    browsing and its own cancel get through; it takes the lock for its short critical sections.
    """

    def __init__(self, send: Send, lock: Callable[[], AbstractContextManager[Any]]) -> None:
        self._send = send
        self._lock = lock
        self._entries: dict[str, _Entry] = {}
        self._calls: dict[str, Call] = {}
        self._guard = threading.Lock()
        self._closed = False

    def register(self, op: str, handler: Handler, *, slow: bool = False) -> None:
        """Adds the operation `op`.

        Args:
            op: its name on the wire.
            handler: called with the arguments, the buffers and the `Call`; what it raises becomes an error answer.
            slow: it reads or writes whole payloads: run it in a thread of its own, without the lock.

        Raises:
            ArgumentError: the name is taken.
        """
        if op in self._entries or op == "cancel":
            raise ArgumentError(f"op {op!r} is registered already")
        self._entries[op] = _Entry(handler, slow)

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the registered operations."""
        return tuple(self._entries)

    @property
    def running(self) -> int:
        """Number of calls that are not answered yet."""
        return len(self._calls)

    def handle(self, content: object, buffers: Sequence[Any] = ()) -> None:
        """Answers one custom message; never raises.

        A message that is no request is answered with an error and the id it has, or null. A cancel is answered by the
        call that it stops, or, where there is no such call, by itself.
        """
        try:
            request = parse_request(content)
        except ArgumentError as error:
            self._tell(error_message(content.get("id") if isinstance(content, dict) else None, error))
            return
        if request.op == "cancel":
            self._cancel(request)
            return
        entry = self._entries.get(request.op)
        call = Call(request, self._send)
        refusal = self._admit(request, entry, call)
        if refusal is not None or entry is None:
            self._tell(error_message(request.id, refusal or ArgumentError("no such operation")))
            return
        views = [memoryview(buffer) for buffer in buffers]
        if not entry.slow or not self._in_thread(entry, request, views, call):
            self._run(entry, request, views, call)

    def close(self) -> None:
        """Stops all running calls; later messages are answered with an error."""
        with self._guard:
            self._closed = True
            calls = list(self._calls.values())
        for call in calls:
            call.cancel()

    def _admit(self, request: Request, entry: _Entry | None, call: Call) -> ArgumentError | None:
        with self._guard:
            if self._closed:
                return ArgumentError(f"op {shown(request.op)}: the widget is closed")
            if entry is None:
                return ArgumentError(f"op {shown(request.op)}: no such operation")
            if request.id in self._calls:
                return ArgumentError(f"message id {shown(request.id)}: a request with this id is running")
            self._calls[request.id] = call
        return None

    def _cancel(self, request: Request) -> None:
        with self._guard:
            call = self._calls.get(request.id)
        if call is None:
            self._tell({"id": request.id, "kind": "reply", "value": {"cancelled": False}})
        else:
            call.cancel()

    def _in_thread(self, entry: _Entry, request: Request, views: list[memoryview], call: Call) -> bool:
        # The context carries the kernel's parent header, so that the answer belongs to the message that asked.
        context = contextvars.copy_context()
        run = lambda: context.run(self._run, entry, request, views, call)  # noqa: E731
        try:
            threading.Thread(target=run, name=f"tdview-{request.op}", daemon=True).start()
        except RuntimeError:  # no threads on this platform
            return False
        return True

    def _run(self, entry: _Entry, request: Request, views: list[memoryview], call: Call) -> None:
        try:
            if entry.slow:
                value = entry.handler(request.args, views, call)
            else:
                with self._lock():
                    value = entry.handler(request.args, views, call)
            reply = value if isinstance(value, Reply) else Reply(value or {})
            answer, data = {"id": request.id, "kind": "reply", "value": clean(reply.value)}, list(reply.buffers)
        except BaseException as error:  # an interrupt of the user's cell must not leave the view waiting
            answer, data = error_message(request.id, error), []
        with self._guard:
            self._calls.pop(request.id, None)
        try:
            self._send(answer, data)
        except Exception as error:
            # A buffer or value that cannot travel must not leave the view waiting.
            self._tell(error_message(request.id, error))

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the comm was closed meanwhile: nobody listens
            self._send(message, [])

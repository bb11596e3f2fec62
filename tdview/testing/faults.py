"""This module knows how to make the n-th system call of a write fail: by an error, a full disk, a short write, a crash.

It does not know what is written; a test asks it for every n until the write gets through without a fault.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal

__all__ = ["Crash", "FaultKind", "Faults", "inject"]

FaultKind = Literal["error", "disk_full", "short_write", "crash"]

_LAYERS = ("tdview.storage.", "tdview.operations.", "tdview.containers.")
_WRITES = frozenset({"write", "writev", "pwrite"})
_CHANGES = frozenset(
    ("fchmod", "fsync", "ftruncate", "link", "mkdir", "open", "posix_fallocate", "rename", "replace", "rmdir",
     "rmtree", "unlink", "copymode")
)  # fmt: skip


class Crash(BaseException):
    """The process is gone: neither this call nor any later one reaches the disk."""


class Faults:
    """What happens to the calls of one run."""

    def __init__(self, at: int, kind: FaultKind) -> None:
        self.at = at
        """Number of the call that fails; the first is 1."""
        self.kind = kind
        self.calls = 0
        """Calls so far that change the disk."""
        self.fired = False
        self._lock = threading.Lock()

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` as it behaves under this fault."""

        def faulty(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.calls += 1
                now = self.calls == self.at
                self.fired |= now
            if self.kind == "crash" and self.calls > self.at:
                raise Crash(f"{name} after the crash")
            return self._fail(name, call, args, kwargs) if now else call(*args, **kwargs)

        return faulty

    def _fail(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        halved = _halved(name, args) if self.kind in ("short_write", "crash") else None
        done = call(*halved, **kwargs) if halved is not None else None
        if self.kind == "crash":
            raise Crash(f"call {self.at}: {name}")
        if self.kind == "short_write":
            return call(*args, **kwargs) if halved is None else done
        number = errno.ENOSPC if self.kind == "disk_full" else errno.EIO
        raise OSError(number, f"{os.strerror(number)} (injected into call {self.at}: {name})")


def _halved(name: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a call that writes only the first half, None if it writes nothing."""
    if name == "writev":
        data = b"".join(bytes(part) for part in args[1])
        return args[0], [data[: (len(data) + 1) // 2]]
    if name in _WRITES:
        data = bytes(args[1])
        return args[0], data[: (len(data) + 1) // 2], *args[2:]
    return None


class _Proxy(ModuleType):
    """A module whose disk-changing functions go through the faults."""

    def __init__(self, module: ModuleType, faults: Faults) -> None:
        super().__init__(module.__name__)
        self._module = module
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in _WRITES or name in _CHANGES:
            return self._faults.wrap(name, value)
        return value


@contextmanager
def inject(at: int, kind: FaultKind) -> Iterator[Faults]:
    """Makes the `at`-th call that tdview's writers make to the disk fail, for the length of the block.

    Counted are the calls through the modules `os` and `shutil` of the storage, operations and containers layers that
    change the disk or open a file. A ``"short_write"`` writes half and says so, which is no error: the write has to
    go on. A ``"crash"`` writes half, raises `Crash`, and keeps every later call from the disk, also those that would
    clean up; closing a file still works, as it does when a process ends. Faults can be nested; each counts all calls.

    Examples:
        >>> import tempfile, pathlib
        >>> from tdview.storage.staging import new_file
        >>> with tempfile.TemporaryDirectory() as path, inject(2, "disk_full") as faults:
        ...     try:
        ...         with new_file(pathlib.Path(path) / "a.tdz"):
        ...             pass
        ...     except OSError as error:
        ...         print(faults.fired, error.errno == errno.ENOSPC)
        True True
    """
    faults = Faults(at, kind)
    replaced: list[tuple[ModuleType, str, ModuleType]] = []
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(_LAYERS):
            for name, original in (("os", os), ("shutil", shutil)):
                found = vars(module).get(name)
                if found is original or isinstance(found, _Proxy):
                    replaced.append((module, name, found))
                    setattr(module, name, _Proxy(found, faults))
    try:
        yield faults
    finally:
        for module, name, found in replaced:
            setattr(module, name, found)

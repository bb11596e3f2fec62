"""The peak of the memory that work takes, watched from another process so that the work is not disturbed.

Counted is the resident memory that no file backs: a mapping of the payload costs page cache, which the system takes
back whenever it needs it. What the allocator keeps of earlier work is given back first, so that it cannot hide what the
work asks for. Work too short to be met by some samples is done several times. The counters of the system are exact
to about a quarter of a megabyte.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

SHORT = 0.3
"""Seconds for which work is repeated."""
REPEATS = 10

_WATCH = """
import os, re, select, sys
status = os.open(f"/proc/{sys.argv[1]}/status", os.O_RDONLY)
kinds = re.compile(rb"Rss(?:Anon|Shmem):\\s*(\\d+)")
def now():
    return sum(map(int, kinds.findall(os.pread(status, 4096, 0))))
while os.read(0, 1):
    top = now()
    os.write(1, b"%d\\n" % top)
    while not select.select([0], [], [], 0.0002)[0]:
        top = max(top, now())
    os.read(0, 1)
    os.write(1, b"%d\\n" % top)
"""


class Watcher:
    """Another process that reads the size of this one every fifth of a millisecond, while it is asked to."""

    def __init__(self) -> None:
        self._watch = subprocess.Popen(
            [sys.executable, "-S", "-c", _WATCH, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's

    def close(self) -> None:
        """Ends the other process."""
        if self._watch.stdin is not None:
            self._watch.stdin.close()
        self._watch.wait()
        if self._watch.stdout is not None:
            self._watch.stdout.close()

    def peak_mb(self, work: Callable[[], object], before: Callable[[], object], after: Callable[[], object]) -> float:
        """The greatest growth of this process while it works, in megabytes; of several times if the work is short.

        Args:
            work: what is watched; its result is kept until it is over.
            before: called before each time, not watched.
            after: called after each time, not watched.
        """
        top, start = 0.0, time.perf_counter()
        for _ in range(REPEATS):
            before()
            self._give_back()
            low = self._ask()
            work()
            top = max(top, (self._ask() - low) / 1024)
            after()
            if time.perf_counter() - start > SHORT:
                break
        return top

    def _give_back(self) -> None:
        gc.collect()
        if self._trim is not None:
            with suppress(OSError):
                self._trim(0)

    def _ask(self) -> int:
        assert self._watch.stdin is not None
        assert self._watch.stdout is not None
        self._watch.stdin.write(b".")
        self._watch.stdin.flush()
        return int(self._watch.stdout.readline() or 0)  # nothing where there is no /proc

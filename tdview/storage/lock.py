"""This module knows how one writer keeps others out: an advisory lock that the system drops when the process ends.

It does not know what is written; readers need no lock.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tdview.errors import ConcurrentWriteError

if sys.platform != "win32":  # Windows has no such locks: the second writer is not noticed
    import fcntl

__all__ = ["is_locked", "lock_writer", "writer_lock"]


def lock_writer(fd: int, where: object, *, shared: bool = False) -> None:
    """Takes the writer's lock of the file or directory that is open as `fd`; closing `fd` gives it back.

    The lock is on the directory itself, so that no lock file is left behind, and a killed writer's lock is gone at
    once. Two writers in one process exclude each other as well. Network file systems without locks take none.

    Args:
        shared: keep writers out, but not others that ask for the same: for reading all of a save.

    Raises:
        ConcurrentWriteError: another writer holds it.
    """
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            message = f"{where}: another writer is at work on this save; wait until it has ended, then try again"
            raise ConcurrentWriteError(message) from None
        if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise


@contextmanager
def writer_lock(path: Path | str, *, shared: bool = False) -> Iterator[int]:
    """Holds the writer's lock of a directory, or of an archive, and gives its file descriptor (read-only).

    Raises:
        ConcurrentWriteError: another writer holds it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock_writer(fd, path, shared=shared)
        yield fd
    finally:
        os.close(fd)


def is_locked(path: Path | str) -> bool:
    """Whether a writer holds the lock of `path` at this moment."""
    try:
        with writer_lock(path):
            return False
    except ConcurrentWriteError:
        return True

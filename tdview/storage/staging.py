"""This module knows how a write becomes visible as a whole: beside its target first, then renamed.

It does not know what is written. What a kill can leave behind is described here, and ended by `recover_stage`.
"""

from __future__ import annotations

import array
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from tdview.errors import AlreadyExistsError, ArgumentError, MissingFileError, ReadOnlyError
from tdview.storage.crc import crc32
from tdview.storage.fileio import write_all
from tdview.storage.lock import is_locked, lock_writer

if sys.platform == "linux":
    import fcntl

__all__ = [
    "OWN_STAGE",
    "STAGE_PREFIX",
    "Stage",
    "find_stages",
    "fresh_name",
    "new_file",
    "recover_stage",
    "stage_outcome",
]

STAGE_PREFIX = ".tdtmp-"
"""Directories (and, where the system has no unnamed files, files) that a writer works in start with it."""
OWN_STAGE = re.compile(re.escape(STAGE_PREFIX) + "[0-9a-f]{8}-")
"""How the name of a directory begins in which tdview works; see `Stage`."""
_STALE = "stale"
_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHY = 0x80086601, 0x40086602, 0x00020000  # FS_IOC_*FLAGS, FS_TOPDIR_FL

Outcome = Literal["completed", "restored", "discarded"]


# a file -----------------------------------------------------------------------------------------------------------


@contextmanager
def new_file(path: Path, *, existsok: bool = True) -> Iterator[int]:
    """Gives a file descriptor for a new file that takes the place of `path` when the block ends without an error.

    The file has no name until then, so neither a failure nor a kill leaves anything behind (but for a kill between
    two system calls, or where the file system has no unnamed files: then a file named ``.tdtmp-…``). Readers see the
    old file or the new one. A symlink at `path` is followed; an old file's permissions are kept, a new one's follow
    the umask. Other hard links keep the old content. The content is not synced to the disk.

    Raises:
        AlreadyExistsError: there is a file, and `existsok` is False.
        ArgumentError: there is a directory.
        MissingFileError: there is no directory to write it into.
        ReadOnlyError: the old file may not be written.
    """
    target = Path(os.path.realpath(path))
    mode = _replaceable_mode(target, path, existsok)
    fd, name = _unnamed(target.parent)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        yield fd
        name = name or _give_name(fd, target, existsok)
        if name is not None:
            os.replace(target.parent / name, target)
            name = None
    finally:
        os.close(fd)
        if name is not None:
            with suppress(FileNotFoundError):
                os.unlink(target.parent / name)


def _replaceable_mode(target: Path, path: Path, existsok: bool) -> int | None:
    """Permissions of the file that is to be replaced, None if there is none."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise MissingFileError(f"{path}: there is no directory {target.parent} to write it into") from None
        return None
    if not existsok:
        raise AlreadyExistsError(f"{path}: a file already exists there; pass existsok=True to replace it")
    if os.path.isdir(target):
        raise ArgumentError(f"{path}: expected the path of a file, got a directory")
    if not os.access(target, os.W_OK):
        raise ReadOnlyError(f"{path}: the file there may not be written, so it is not replaced")
    return status.st_mode & 0o7777


def _unnamed(directory: Path) -> tuple[int, str | None]:
    """A new file in `directory`: without a name if the file system can do that, else with a temporary one."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), None
    name = fresh_name()
    return os.open(directory / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), name


def _give_name(fd: int, target: Path, existsok: bool) -> str | None:
    """Links the unnamed file to its target, or to a temporary name if there is a file at the target."""
    here = f"/proc/self/fd/{fd}"
    # src_dir_fd makes Python call linkat(2), which follows the link in /proc; the path is absolute, so it is not used.
    try:
        os.link(here, target, src_dir_fd=fd)
    except FileExistsError:
        if not existsok:
            raise AlreadyExistsError(f"{target}: a file was made there meanwhile") from None
    else:
        return None
    name = fresh_name()
    os.link(here, target.parent / name, src_dir_fd=fd)
    return name


def _spread(fd: int) -> None:
    """Tells ext4 that what is made in a directory has nothing to do with its neighbours (as ``chattr +T`` does).

    It then takes the inodes of a new save from another part of the disk than those of saves that were removed just
    before. Without a journal, ext4 looks at every inode that was freed in the last minutes whenever it makes a file
    near them: a save of 3000 leaves takes ten times as long after a few such saves have been removed.
    """
    if sys.platform != "linux":
        return
    flags = array.array("l", [0])
    with suppress(OSError):  # another file system
        fcntl.ioctl(fd, _GET_FLAGS, flags, True)
        flags[0] |= _TOP_OF_HIERARCHY
        fcntl.ioctl(fd, _SET_FLAGS, flags)


def _stage_name(target: Path) -> str:
    """How the names of the stages for a directory begin."""
    return f"{STAGE_PREFIX}{crc32(os.fsencode(target.name)):08x}-"


def fresh_name() -> str:
    """A name for something temporary, which `find_stages` and checks recognise."""
    return f"{STAGE_PREFIX}{os.urandom(6).hex()}"


# a directory ------------------------------------------------------------------------------------------------------


class Stage:
    """A directory ``.tdtmp-…`` in which a save is written before it takes its place.

    It holds ``new…`` (what is written), ``old`` (what is replaced) and ``stale`` (files of the old save that go away).
    Its name tells which directory it is meant for. The writer holds its lock, so that a stage without a lock is known
    to be left over.

    Args:
        parent: where to make it, on the file system of the target.
        target: the directory that the write is for.
    """

    def __init__(self, parent: Path, target: Path) -> None:
        mark = os.urandom(4).hex()
        self.path = parent / f"{_stage_name(target)}{mark}"
        self.new = self.path / f"new{mark}"
        self.target = target
        self._fd: int | None = None
        os.mkdir(self.path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            lock_writer(self._fd, self.path)
            _spread(self._fd)
            os.mkdir(self.new)
        except BaseException:
            try:
                self.discard()
            finally:
                self.__exit__()
            raise

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def discard(self) -> None:
        """Removes the stage and all that is in it; what cannot be removed is cleared away by `recover_stage`."""
        _clear(self.path)

    def swap(self) -> None:
        """Puts ``new`` in the place of the target directory as a whole.

        Two renames, between which the target is missing. A kill there leaves ``new`` complete and ``old``; an error
        puts the target back and removes the stage.
        """
        old = self.path / "old"
        try:
            if os.path.lexists(self.target):
                shutil.copymode(self.target, self.new)
                os.rename(self.target, old)
            os.rename(self.new, self.target)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, self.target)
            self.discard()
            raise
        self.discard()

    def merge(self, stale: Sequence[str]) -> None:
        """Moves every file of ``new`` into the target directory, and removes the `stale` files of the old save.

        Files of the target that are in neither stay. The top ``meta.json`` goes first and comes last: without it, a
        directory is seen to be incomplete, and ``new`` with its ``meta.json`` says that the move can be ended. So an
        error or a kill while files are moved leaves a state that `recover_stage` completes; an error before that
        removes the stage.
        """
        try:
            _write_small(self.path / _STALE, b"\0".join(map(os.fsencode, stale)))
            os.mkdir(self.path / "old")
            top = self.target / "meta.json"
            if os.path.lexists(top):
                os.rename(top, self.path / "old" / "meta.json")
        except BaseException:
            self.discard()
            raise
        _finish_merge(self.path, self.target)


def _finish_merge(stage: Path, target: Path) -> None:
    stale = os.fsdecode((stage / _STALE).read_bytes())
    _remove(target, [name for name in stale.split("\0") if name])
    _move_tree(str(_new_of(stage)), str(target))
    _clear(stage)


def _move_tree(source: str, target: str) -> None:
    """Moves every file below `source` to its place below `target`, the ``meta.json`` of a level last."""
    last = None
    with os.scandir(source) as found:
        entries = list(found)
    for entry in entries:
        goal = f"{target}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            with suppress(FileExistsError):
                os.mkdir(goal)
            _move_tree(entry.path, goal)
        elif entry.name == "meta.json":
            last = entry.path, goal
        else:
            os.replace(entry.path, goal)
    if last is not None:
        os.replace(*last)


def _remove(target: Path, names: Iterable[str]) -> None:
    """Removes files below `target`, and the directories that this empties."""
    parents: set[str] = set()
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(target / name)
        while name := name.rpartition("/")[0]:
            parents.add(name)
    for parent in sorted(parents, key=len, reverse=True):
        with suppress(OSError):  # not empty: it holds files that are not of the format
            os.rmdir(target / parent)


def _clear(stage: Path) -> None:
    for _ in range(2):  # a passing fault of the system must not leave it behind
        with suppress(OSError):
            shutil.rmtree(stage)
            return


def _write_small(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(fd, content)
    finally:
        os.close(fd)


# what a kill leaves -------------------------------------------------------------------------------------------------


def find_stages(target: Path) -> list[Path]:
    """Stages that an interrupted write to `target` left, beside it and in it; reads only.

    A stage that a living writer holds is none of them. tensordict notes no target in its stages, so one of its counts
    only while `target` is missing and the stage holds the old save and the new one.
    """
    found = []
    for parent in (target.parent, target):
        try:
            names = [name for name in os.listdir(parent) if name.startswith(STAGE_PREFIX)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [parent / name for name in sorted(names) if _is_stage_of(parent / name, target)]
    return found


def _is_stage_of(stage: Path, target: Path) -> bool:
    if stage.is_symlink() or not stage.is_dir():
        return False
    mine = stage.name.startswith(_stage_name(target))
    if not mine:
        mine = _new_of(stage).is_dir() and (stage / "old").is_dir() and not os.path.lexists(target)
    return mine and not is_locked(stage)


def _new_of(stage: Path) -> Path:
    """The directory in a stage that holds the new save; tensordict calls it ``new``."""
    return next(stage.glob("new*"), stage / "new")


def stage_outcome(stage: Path, target: Path) -> Outcome:
    """What `recover_stage` will do, without doing it.

    ``"completed"``: the new save is whole and takes its place. ``"restored"``: the old save is put back.
    ``"discarded"``: the target is as it was, the rest of the new save is removed.
    """
    complete = (_new_of(stage) / "meta.json").is_file()
    if stage.parent == target:
        merging = (stage / _STALE).is_file() and not (target / "meta.json").is_file()
        return "completed" if complete and merging else "discarded"
    if os.path.lexists(target):
        return "discarded"
    old = (stage / "old").is_dir()
    # Without `old` the target was missing from the start, so nobody knows whether `new` had all of its files.
    return "completed" if complete and old else "restored" if old else "discarded"


def recover_stage(stage: Path, target: Path) -> Outcome:
    """Ends the interrupted write that left `stage`, as `stage_outcome` says; can be repeated after a kill."""
    outcome = stage_outcome(stage, target)
    if outcome == "completed" and stage.parent == target:
        _finish_merge(stage, target)
    elif outcome != "discarded":
        os.rename(_new_of(stage) if outcome == "completed" else stage / "old", target)
    _clear(stage)
    return outcome

"""This module knows how a path becomes the root of a tree, and what to say where there is none.

It does not know what is below the root.
"""

from __future__ import annotations

import os
from pathlib import Path

from tdview.errors import DecodeError, MissingFileError, Problem, UnsupportedVersionError
from tdview.format.payload import META
from tdview.storage.opening import open_store
from tdview.storage.staging import find_stages, stage_outcome
from tdview.storage.store import Mode, Store
from tdview.tree.collection import find
from tdview.tree.node import Node

__all__ = ["open_root", "rescan", "root_of", "scan"]


def scan(path: str | os.PathLike[str], mode: Mode = "r") -> Node:
    """Opens a saved tensordict to look at it: a lazy tree that reads a level when it is asked for.

    Nothing on disk changes, nothing is executed, no payload is read, and neither torch nor numpy is imported.
    Opening a directory reads one meta.json; opening an archive reads its central directory.

    Args:
        path: a saved directory, a ``.tdz`` or other zip archive, a torchrl dump, checkpoint or data-set root, or a
            folder of several saves.
        mode: ``"r"``, or ``"r+"`` so that leaves can be edited in place.

    Returns:
        The root `Node`. Damage below it becomes problems of the nodes, see `Node.problems` and `tdview.verify`.

    Raises:
        UnsupportedVersionError: the format version is newer than this reader.
        MissingFileError: there is nothing at `path`.
        DecodeError: there is no saved tensordict at `path`, or its top meta.json cannot be read.
        ReadOnlyError: `mode` is ``"r+"`` and the archive may not be written.
    """
    return _checked(open_root(path, mode))


def rescan(root: Node) -> Node:
    """The save of a tree, read anew by `scan`: the same file, wherever the process is now, under the same name."""
    store = root.store
    mode: Mode = "r+" if store.writable else "r"
    if store.form != "memory":
        store = open_store(store.location, mode, label=store.label)
    return _checked(root_of(store))


def _checked(root: Node) -> Node:
    for problem in (*root._read[1], *(root.meta.head_problems if root.meta is not None else ())):
        if problem.code == "version" and problem.severity == "error":
            raise UnsupportedVersionError(problem.message, [problem])
        if root.meta is None and problem.severity == "error":
            raise DecodeError(problem.message, [problem])
    return root


def open_root(path: str | os.PathLike[str], mode: Mode = "r") -> Node:
    """As `scan`, but a save whose top level is damaged gives a node with problems."""
    if not os.fspath(path):  # an unset variable is not the working directory
        raise MissingFileError(f"{path!r}: expected a path, got nothing")
    location = Path(path)
    if location.name == META and location.is_file():
        location = location.parent
    try:
        os.lstat(location)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(_nothing_at(location)) from None
    except (OSError, ValueError):
        pass  # a name that cannot be, or a folder on the way that may not be entered: opening says it
    return root_of(open_store(location, mode))


def root_of(store: Store) -> Node:
    """The root of the tree over a store.

    Raises:
        DecodeError: there is no saved tensordict in it.
    """
    root = find(store)
    if root is None:
        message, code = _no_save(store), "missing_meta"
        if store.form == "directory" and not os.access(store.location, os.R_OK | os.X_OK):
            message, code = f"{store.label}: the directory may not be read; check its permissions", "unreadable"
        raise DecodeError(message, [Problem(code, message)])
    return root


def _nothing_at(location: Path) -> str:
    message = f"{location}: there is no such file or directory"
    try:
        target = Path(os.path.realpath(location))
    except OSError:  # the process's own directory is gone
        return message
    for stage in find_stages(target):
        will = {"completed": "complete it", "restored": "put the old save back", "discarded": "clear it away"}
        done = will[stage_outcome(stage, target)]
        return f"{message}, but an interrupted save lies in {stage}; tdview.recover_save will {done}"
    try:
        staged = [name for name in os.listdir(location.parent) if name.startswith(".tdtmp-")]
    except OSError:
        staged = []
    for name in sorted(staged):
        for part in ("new", "old"):
            if (location.parent / name / part / META).is_file():
                return (
                    f'{message}, but an interrupted atomic save lies in {location.parent / name}: its "new" is the'
                    ' complete new save and its "old" the one before; rename one of them'
                )
    return message


def _no_save(store: Store) -> str:
    where = store.label
    files, levels = store.listing("")
    if any(name.endswith(".memmap") for name in files):
        return f"{where}: there are leaves but no {META}: the save was interrupted, or its {META} was removed"
    if any(name.endswith(".h5") for level in ("", *levels) for name in store.listing(level).files):
        return f"{where}: this is an HDF5 checkpoint, which holds no memory-mapped tensordict; open it with h5py"
    if any(name.endswith("data.pkl") for level in ("", *levels) for name in store.listing(level).files):
        return f"{where}: this is a torch.save file: a pickle, which is not opened; save the data with memmap() instead"
    return f"{where}: there is no saved tensordict here: no {META} was found in it or below it"

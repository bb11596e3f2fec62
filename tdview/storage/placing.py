"""This module knows whether the files of a save may be put at their places in a directory that is not empty.

It does not know who writes them, and it changes nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from tdview.errors import AlreadyExistsError, EncodeError, Problem

__all__ = ["check_places"]


def check_places(target: Path, files: Iterable[str], owned: Collection[str], *, existsok: bool) -> None:
    """Looks at every place that a move of `files` into `target` will touch, so that it cannot fail halfway.

    Args:
        target: an existing directory.
        files: ``/``-joined paths of the new files.
        owned: paths of the old save's files, which go away before the move; see `leftovers.owned_files`.
        existsok: whether old files may be replaced.

    Raises:
        EncodeError: a place, or a directory on the way to it, is a symlink; or a file stands where a directory is
            needed, or the other way round.
        AlreadyExistsError: a file is there, and `existsok` is False.
    """
    for directory, (names, levels) in _by_directory(files).items():
        try:
            with os.scandir(target / directory) as found:
                there = {entry.name: entry for entry in found}
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names & there.keys():
            entry = there[name]
            if entry.is_symlink():
                raise _through_link(entry.path)
            if not existsok:
                raise AlreadyExistsError(f"{entry.path}: a file already exists there; pass existsok=True to replace it")
            if entry.is_dir() and not _goes_away(_join(directory, name), target, owned):
                raise EncodeError(f"{entry.path}: a file of the save belongs there, and there is a directory")
        for name in levels & there.keys():
            entry = there[name]
            if entry.is_symlink():
                raise _through_link(entry.path)
            if not entry.is_dir() and _join(directory, name) not in owned:
                raise EncodeError(f"{entry.path}: a directory of the save belongs there, and there is a file")


def _by_directory(files: Iterable[str]) -> dict[str, tuple[set[str], set[str]]]:
    """Bare names of the files and of the directories that go into each directory."""
    out: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for file in files:
        directory, _, name = file.rpartition("/")
        out[directory][0].add(name)
    for directory in list(out):
        while directory:
            directory, _, name = directory.rpartition("/")
            out[directory][1].add(name)
    return out


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _goes_away(directory: str, target: Path, owned: Collection[str]) -> bool:
    """Whether a directory holds files of the old save only, so that it is gone before the new file comes."""
    for place, _, names in os.walk(target / directory):
        relative = os.path.relpath(place, target)
        if any(f"{relative}/{name}" not in owned for name in names):
            return False
    return True


def _through_link(path: str) -> EncodeError:
    message = f"{path}: this is a symlink, and a save is not written through one; remove it"
    return EncodeError(message, [Problem("link", message)])

"""This module knows how a whole save is checked for soundness: every level, leaf and archive entry.

It does not know what the rows mean; that is what `audit` adds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tdview.analysis.archive_checks import archive_problems, checksum_problems
from tdview.analysis.report import Report
from tdview.errors import DecodeError, MissingFileError, Problem, TdviewError
from tdview.operations.unfinished import unfinished_edit
from tdview.storage.archive import ArchiveStore
from tdview.storage.directory import DirectoryStore
from tdview.storage.leftovers import inspect_append
from tdview.storage.staging import OWN_STAGE, find_stages, stage_outcome
from tdview.tree.node import Node
from tdview.tree.scan import open_root
from tdview.tree.text import nbytes_text

__all__ = ["verify", "verify_node"]

_CHECKS = ("levels", "entries", "payload sizes", "orphans", "interrupted writes", "pickles")
_ARCHIVE_CHECKS = ("zip structure", "checksums")


def verify(
    path: str | os.PathLike[str] | Node,
    *,
    checksums: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Checks whether a save is sound: sizes, missing files, orphans, checksums, interrupted writes.

    Reads every meta.json and the size of every payload, and of an archive every byte once, for its CRC-32.
    Nothing is changed, repaired or executed; pickles are listed.

    Args:
        path: whatever `tdview.scan` opens, or a node that it gave.
        checksums: whether the CRC-32 of each zip entry is computed; a directory has none.
        progress: called as ``progress(done, total)`` with bytes; what it raises stops the check.

    Returns:
        The report; ``report.ok`` is False if any problem is an error.

    Raises:
        MissingFileError: there is nothing at `path`.

    Spec: "The on-disk format"; the codes are listed in `tdview.errors.CODES`.
    """
    if isinstance(path, Node):
        return verify_node(path, checksums=checksums, progress=progress)
    try:
        root = open_root(path)
    except MissingFileError:
        if not os.path.lexists(path):
            raise
        message = f"{path}: it cannot be opened as a save"
        return Report(where=str(path), problems=(Problem("missing_file", message),), checks=_CHECKS)
    except DecodeError as error:
        problems = error.problems or (Problem("archive", str(error)),)
        return Report(where=str(path), problems=tuple(problems), checks=_CHECKS)
    return verify_node(root, checksums=checksums, progress=progress)


def verify_node(root: Node, *, checksums: bool = True, progress: Callable[[int, int], None] | None = None) -> Report:
    """As `verify`, for a node that is open already."""
    store = root.store
    problems: list[Problem] = []
    nodes = leaves = nbytes = 0
    for node in root.walk():
        nodes += 1
        if node.is_leaf:
            leaves += 1
            nbytes += node.nbytes
        problems += node.problems
    checks: tuple[str, ...] = _CHECKS
    if isinstance(store, ArchiveStore):
        checks += _ARCHIVE_CHECKS if checksums else _ARCHIVE_CHECKS[:1]
        problems += archive_problems(store)
        if checksums:
            problems += checksum_problems(store, _not_worth(root), progress)
    elif isinstance(store, DirectoryStore):
        problems += _interrupted(root, store)
    half_done = unfinished_edit(root)
    problems += [half_done] if half_done is not None else []
    facts = (("nodes", str(nodes)), ("leaves", str(leaves)), ("bytes", nbytes_text(nbytes)))
    return Report(where=store.label, problems=tuple(problems), facts=facts, checks=checks)


def _not_worth(root: Node) -> frozenset[str]:
    """Zip entries that claim far more bytes than their leaf needs: inflating them only costs time."""
    bad = (leaf for leaf in root.leaves() if any(problem.code == "bomb" for problem in leaf.problems))
    return frozenset(leaf.file_name for leaf in bad)


def _interrupted(root: Node, store: DirectoryStore) -> Iterator[Problem]:
    location = store.location
    for node in root.children() if root.kind == "collection" else (root,):
        if node.kind == "collection":
            continue
        try:
            state = inspect_append(location / node.prefix)
        except (OSError, TdviewError):
            continue
        if state is not None:
            will = "complete it" if state.action == "complete" else "take it back"
            message = f"{node.where()}: an append was interrupted; tdview.recover_append will {will}: {state.reason}"
            yield Problem("interrupted_append", message, "error", node.path)
    yield from _staged_beside(location)


def _staged_beside(location: Path) -> Iterator[Problem]:
    """Directories in which a save of this place was prepared when it was killed."""
    resolved = Path(os.path.realpath(location))
    for stage in find_stages(resolved):
        will = "complete it" if stage_outcome(stage, resolved) == "completed" else "clear it away"
        message = f"{stage}: a save of {resolved.name} was interrupted; tdview.recover_save will {will}"
        yield Problem("interrupted_save", message, "note")
    try:
        names = sorted(name for name in os.listdir(resolved.parent) if name.startswith((".tdtmp-", ".tdz-")))
    except OSError:
        return
    for name in names:
        if not OWN_STAGE.match(name):  # of tensordict, which notes no target
            what = f"an atomic save beside {resolved.name} was interrupted; it may be removed"
            yield Problem("interrupted_save", f"{resolved.parent / name}: {what}", "note")

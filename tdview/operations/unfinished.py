"""This module knows whether a killed edit left a save half edited, without changing a byte.

It does not know how such an edit is ended: that is what an `Editor` does when it is opened.
"""

from __future__ import annotations

from tdview.errors import Problem, TdviewError
from tdview.operations.edits import check_edit, sides_of
from tdview.operations.history import History
from tdview.operations.journal import FileJournal, journal_path
from tdview.storage.lock import is_locked
from tdview.tree.node import Node

__all__ = ["unfinished_edit"]


def unfinished_edit(root: Node) -> Problem | None:
    """The problem of an edit of which only some bytes are in the save; None if there is none.

    Reads the journal beside the save and the bytes that its last action touches. An editor that is at work is left
    alone, and a journal that cannot be read tells nothing.

    Args:
        root: of a directory or archive.
    """
    path = journal_path(root.store.location)
    try:
        if not path.is_file() or is_locked(path):
            return None
        journal, history = FileJournal(path), History()
        for record in journal.sync()[1]:
            if record.action == "edit":
                check_edit(record)
            history.apply(record)
        pending = history.pending
        if pending is None:
            return None
        subject = history.subject(pending)
        target, before, after = sides_of(journal, subject, pending.action)
        if target.read(root.store) in (before, after):
            return None
    except (OSError, TdviewError):
        return None
    key = tuple(subject.head["path"])
    what = "an edit was interrupted and is half done; opening the save with mode='r+' takes it back"
    return Problem("interrupted_edit", f"{root.where()}/{target.name}: {what}", "error", key)

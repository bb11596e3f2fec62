"""This module knows the history that the records of a journal tell: what is applied, undone, and left unfinished.

It does not know how records are kept, nor how bytes are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tdview.errors import DecodeError
from tdview.operations.journal import Record

__all__ = ["Checksum", "History"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """What is known of the checksum of a zip entry that was edited."""

    recorded: int
    """CRC-32 that the archive held at the last edit."""
    actual: int
    """CRC-32 of the content after it."""


@dataclass(slots=True)
class History:
    """Edits in order. Without limit: an edit is a record, its bytes stay in the journal."""

    applied: list[Record] = field(default_factory=list)
    """The edits that the save holds now, oldest first."""
    undone: list[Record] = field(default_factory=list)
    """The edits that can be done again; the last one is the next."""
    pending: Record | None = None
    """An action that was announced and not ended."""
    checksums: dict[str, Checksum] = field(default_factory=dict)
    """By name of the zip entry."""
    next_id: int = 1

    def subject(self, action: Record) -> Record:
        """The edit that an action writes or takes back.

        Raises:
            DecodeError: the history has no such edit at this place.
        """
        if action.action == "edit":
            return action
        stack = self.applied if action.action == "undo" else self.undone
        if not stack or stack[-1].id != action.id:
            raise DecodeError(f"edit {action.id}: the journal cannot {action.action} it here; its order is damaged")
        return stack[-1]

    def apply(self, record: Record) -> None:
        """Takes the next record into account.

        Raises:
            DecodeError: it does not follow from those before it.
        """
        if record.action in ("edit", "undo", "redo"):
            if self.pending is not None or (record.action == "edit" and record.id < self.next_id):
                raise DecodeError(f"edit {record.id}: the journal announces it twice; its order is damaged")
            self.subject(record)
            self.pending = record
            return
        pending = self.pending
        if pending is None or pending.id != record.id:
            raise DecodeError(f"edit {record.id}: the journal ends it without a begin; its order is damaged")
        self.pending = None
        if pending.action == "edit":
            self.next_id = pending.id + 1
        if record.action == "done":
            self._end(pending)

    def _end(self, action: Record) -> None:
        if action.action == "edit":
            self.undone.clear()
            self.applied.append(action)
        elif action.action == "undo":
            self.undone.append(self.applied.pop())
        else:
            self.applied.append(self.undone.pop())
        name, crc = action.head.get("name"), action.head.get("crc")
        if isinstance(name, str) and isinstance(crc, list) and [type(value) for value in crc] == [int, int]:
            self.checksums[name] = Checksum(*crc)

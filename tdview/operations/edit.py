"""This module knows how a save is edited in place: values, undo and redo, and checksums that follow.

It does not know how a value becomes bytes, which bytes an index selects, nor how the journal keeps its records.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tdview.errors import ConcurrentWriteError, EditRefusedError, ReadOnlyError, TdviewError
from tdview.operations.edits import Edit, check_edit, index_to_json, sides_of
from tdview.operations.history import History
from tdview.operations.journal import FileJournal, Journal, MemoryJournal, Record, journal_path
from tdview.operations.region import index_text
from tdview.operations.target import PayloadTarget, Target, ValueTarget
from tdview.operations.value_change import change_value, pick
from tdview.operations.values import encode_block
from tdview.operations.view_layout import full_index, locate
from tdview.storage.archive import ArchiveStore
from tdview.storage.entry_crc import recorded_crc, replace_crcs
from tdview.storage.lock import writer_lock
from tdview.storage.store import Store
from tdview.tree.leaf import Leaf
from tdview.tree.node import Node
from tdview.tree.scan import rescan, root_of, scan

__all__ = ["LARGEST_EDIT", "Editor", "editor_of"]

LARGEST_EDIT = 1 << 28
"""Most bytes of one edit: old and new ones are held in memory and kept in the journal."""

_EDITORS: weakref.WeakValueDictionary[tuple[str, bool], Editor] = weakref.WeakValueDictionary()
_GUARD = threading.Lock()


class Editor:
    """Edits of one save, which can all be undone, also by a later process.

    Invariant: at any time, also when the process is killed, an edit is in the file as a whole or not at all for
    whoever opens an editor next: the journal holds the old and the new bytes before the first one is written.
    Every edit reaches the file, and other processes, at once. The archive's checksums follow when `refresh_checksums`
    is called. The journal ``<name>.tdview-journal`` lies beside the save, is made by the first edit, and stays, so
    that undone edits can be done again; `forget` removes it and makes the edits final.

    Args:
        save: path of a directory or archive, or the tree of one that is open with ``mode="r+"``.
        journal: False keeps the history in memory only: nothing is written beside the save, and a killed edit of
            several elements can be half done.

    Raises:
        ReadOnlyError: the tree is open read-only.

    Examples:
        >>> import tempfile, torch
        >>> from tdview import TensorDict
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = TensorDict(reward=torch.zeros(3), batch_size=[3]).memmap(f"{folder}/run.tdz")
        ...     editor = Editor(f"{folder}/run.tdz")
        ...     edit = editor.edit("reward", 1, 0.5)
        ...     print(edit.old, edit.new, editor.stale_checksums, editor.undo().index)
        0.0 0.5 ('reward.memmap',) (1,)
    """

    def __init__(self, save: str | os.PathLike[str] | Node, *, journal: bool = True) -> None:
        self.root = save.root if isinstance(save, Node) else scan(save, "r+")
        if not self.root.store.writable:
            raise ReadOnlyError(f"{self.root.where()}: the save is open read-only; open it with mode='r+'")
        location = self.root.store.location
        in_memory = not journal or self.root.store.form == "memory"
        self._journal: Journal = MemoryJournal() if in_memory else FileJournal(journal_path(location))
        self._history = History()
        self._listeners: list[weakref.WeakMethod[Callable[[Edit | None], None]]] = []
        self.problem: TdviewError | None = None
        """Why nothing can be edited: the journal is damaged. None if all is well."""
        self._open_journal()

    # -- what is known ----------------------------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that the save holds, oldest first; also those of earlier processes that the journal tells of."""
        return tuple(Edit(record, self._journal) for record in self._history.applied)

    @property
    def n_edits(self) -> int:
        """Number of `edits`."""
        return len(self._history.applied)

    @property
    def n_undone(self) -> int:
        """Number of `undone`."""
        return len(self._history.undone)

    @property
    def undone(self) -> tuple[Edit, ...]:
        """The edits that `redo` does again, the last one first of all."""
        return tuple(Edit(record, self._journal) for record in self._history.undone)

    @property
    def journal(self) -> Path | None:
        """Where the journal is, or would be; None without one."""
        return self._journal.path

    @property
    def stale_checksums(self) -> tuple[str, ...]:
        """Names of the zip entries whose recorded checksum the edits have made wrong; empty for a directory.

        Costs nothing: it follows from the edits. What other programs wrote in place is not noticed.
        """
        with self._store.lock:
            return tuple(sorted(self._stale()))

    def read(self, path: str | tuple[str, ...], index: Any) -> tuple[str | None, Any]:
        """What `edit` would replace: the dtype and the bytes in C order; of a non-tensor None and the value.

        Raises:
            EditRefusedError: the index is out of range.
            KeyMissingError: there is no such entry.
        """
        node = self.root[path]
        if not isinstance(node, Leaf):
            items = index if isinstance(index, tuple) else (index,)
            return None, pick(node.value, items)
        leaf, layout, inner = locate(node, index)
        return leaf.dtype, PayloadTarget(leaf.file_name, leaf.stored_nbytes, layout.select(inner)).read(self._store)

    # -- editing ----------------------------------------------------------------------------------------------------

    def edit(self, path: str | tuple[str, ...], index: Any, value: object) -> Edit:
        """Writes one value, or a block of values, in place.

        Args:
            path: nested key of a leaf or non-tensor, seen from the root.
            index: what to replace: ints, slices, Ellipsis, or a tuple of them; also one list of positions.
            value: one value for all selected elements, or a block of their shape. See
                `tdview.operations.values.encode_block`, and `change_value` for non-tensors.

        Returns:
            The edit, which `undo` takes back.

        Raises:
            EditRefusedError: the dtype cannot hold the value, or the index selects nothing.
            KeyMissingError: there is no such entry.
            ReadOnlyError: the file, or the journal beside the save, may not be written.
            NotSupportedError: the payload is compressed, or a non-tensor of an archive.
            ConcurrentWriteError: the archive was replaced, or another process is editing for long.
        """
        path = (path,) if isinstance(path, str) else tuple(path)
        with self._store.lock:
            node = self.root[path] if path else self.root
            where = f"{'.'.join(path) or self.root.where()}[{index_text(index)}]"
            try:
                target, head, new = self._prepare(node, index, value)
            except EditRefusedError as error:
                raise EditRefusedError(f"{where}: {error}") from None
            head.update(target.to_json(), path=path, time=time.time())
            self._check_current()
            target.check_writable(self._store)
            with self._writing():
                self._catch_up()
                old = target.read(self._store)
                record = self._journal.append(
                    "edit", self._history.next_id, head | self._crc_head(target, old, new), old, new
                )
                self._carry_out(record, target, new)
            done = Edit(record, self._journal)
        self._tell(done)
        return done

    def undo(self) -> Edit:
        """Takes the last edit back: puts the old bytes where they were.

        Raises:
            EditRefusedError: there is nothing to undo.
            ConcurrentWriteError: the bytes are no longer those that the edit wrote.
        """
        return self._again("undo")

    def redo(self) -> Edit:
        """Does the last undone edit again.

        Raises:
            EditRefusedError: there is nothing to redo.
            ConcurrentWriteError: the bytes are no longer those that the undo left.
        """
        return self._again("redo")

    def refresh_checksums(self) -> tuple[str, ...]:
        """Writes the checksums of the edited zip entries; returns their names.

        Reads no payload, whatever its size: CRC-32 is linear, so the checksum follows from the old one and the edits.
        A kill in the middle leaves a readable archive, whose entry is stale as before.
        """
        store = self._store
        kept = self._journal.path is not None and self._journal.path.exists()
        if not isinstance(store, ArchiveStore) or not (kept or self._history.checksums):
            return ()
        with store.lock:
            self._check_current()
            with self._writing():
                self._catch_up()
                stale = self._stale()
                replace_crcs(store, stale)
            store.refresh()
        if stale:
            self._tell(None)
        return tuple(sorted(stale))

    def reload(self, root: Node | None = None) -> None:
        """Reads the save and the journal again, as other processes left them.

        Args:
            root: its tree, where that was read again already.
        """
        if root is None:
            self._store.refresh()
            root = rescan(self.root)
        with self._store.lock:
            self.root = root.root
            self._open_journal()

    def forget(self) -> None:
        """Makes all edits final: forgets them and removes the journal."""
        with self._store.lock, suppress(FileNotFoundError):
            self._journal.remove()
            self._history = History()
            self.problem = None
        self._tell(None)

    def script(self) -> str:
        """The edits as a Python script that makes them again; see `tdview.operations.patches.script_of`."""
        from tdview.operations.patches import script_of

        return script_of(self)

    def patch(self) -> list[dict[str, Any]]:
        """The edits as a JSON patch for another copy; see `tdview.operations.patches.patch_of`."""
        from tdview.operations.patches import patch_of

        return patch_of(self)

    def apply_patch(self, patch: Any) -> int:
        """Makes the edits of a patch here, all or none; see `tdview.operations.patches.apply_patch`."""
        from tdview.operations.patches import apply_patch

        return apply_patch(self, patch)

    def subscribe(self, method: Callable[[Edit | None], None]) -> None:
        """Calls a bound method after each change, with the edit or None for all else, while its object lives."""
        self._listeners.append(weakref.WeakMethod(method))

    # -- inside -----------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        return self.root.store

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keeps other editors, appends and packs of the save out, in this process and in others."""
        store = self._store
        if store.form == "memory":
            yield
            return
        with (
            self._journal.locked(),
            writer_lock(store.location / self.root.prefix if store.form == "directory" else store.location),
        ):
            yield

    def _prepare(self, node: Node, index: Any, value: object) -> tuple[Target, dict[str, Any], bytes]:
        if not isinstance(node, Leaf):
            if node.kind not in ("non_tensor", "non_tensor_stack"):
                raise EditRefusedError(
                    f"this is a {node.kind}, which holds no value of its own; edit one of its entries"
                )
            ValueTarget(node.file("meta.json")).check_writable(self._store)
            change = change_value(node, index, value)
            of_value = {"index": index_to_json(change.index), "dtype": None, "shape": [], "field": change.field}
            return ValueTarget(change.name), of_value, change.new
        leaf, layout, inner = locate(node, index)
        region = layout.select(inner)
        if not region.nbytes:
            raise EditRefusedError(f"the index selects no element of the shape {list(node.shape)}")
        if region.nbytes > LARGEST_EDIT:
            raise EditRefusedError(f"{region.nbytes} bytes are too many for one edit, at most {LARGEST_EDIT}")
        new = encode_block(leaf.dtype, value, region.shape)
        items = index_to_json(full_index(node, index))
        head = {"index": items, "dtype": leaf.dtype, "shape": list(region.shape)}
        return PayloadTarget(leaf.file_name, leaf.stored_nbytes, region), head, new

    def _again(self, action: str) -> Edit:
        with self._store.lock:
            self._check_current()
            with self._writing():
                self._catch_up()
                stack = self._history.applied if action == "undo" else self._history.undone
                if not stack:
                    raise EditRefusedError(f"{self.root.where()}: there is nothing to {action}")
                record = stack[-1]
                target, before, after = sides_of(self._journal, record, action)
                target.check_writable(self._store)
                if target.read(self._store) != before:
                    raise ConcurrentWriteError(
                        f"{self.root.where()}/{target.name}: the bytes of edit {record.id} were changed by somebody"
                        f" else meanwhile, so they are left alone; forget the edits, or put those bytes back"
                    )
                head = {"name": target.name, "time": time.time(), **self._crc_head(target, before, after)}
                announced = self._journal.append("undo" if action == "undo" else "redo", record.id, head)
                self._carry_out(announced, target, after)
            done = Edit(record, self._journal)
        self._tell(done)
        return done

    def _carry_out(self, announced: Record, target: Target, after: bytes) -> None:
        self._history.apply(announced)
        try:
            target.write(self._store, after)
        except BaseException:
            self._settle()
            raise
        self._end("done")
        if isinstance(target, ValueTarget):
            self.root = root_of(self._store)  # a tree keeps what it has read of a meta.json

    def _end(self, how: Any) -> None:
        pending = self._history.pending
        if pending is not None:
            self._history.apply(self._journal.append(how, pending.id, {}))

    def _settle(self) -> None:
        """Ends an action that was announced and may be carried out, half carried out, or not at all."""
        pending = self._history.pending
        if pending is None:
            return
        target, before, after = sides_of(self._journal, self._history.subject(pending), pending.action)
        try:
            now = target.read(self._store)
            carried_out = now == after
            if not carried_out and now != before and target.is_between(now, before, after):
                target.write(self._store, before)
        except TdviewError:  # the file is gone or was replaced: nothing of the action is in it
            carried_out = False
        self._end("done" if carried_out else "void")

    def _catch_up(self) -> None:
        """Takes in what the journal holds by now. Needs its lock."""
        try:
            replaced, records = self._journal.sync()
            if replaced:
                self._history = History()
            for record in records:
                if record.action == "edit":
                    check_edit(record)
                self._history.apply(record)
            self._settle()
        except TdviewError as error:
            self.problem = error
            raise

    def _open_journal(self) -> None:
        """Reads the journal of earlier edits, and ends the one during which a process was killed."""
        path = self._journal.path
        if path is None:
            return
        self.problem = None
        self._history = History()
        self._journal = FileJournal(path)
        if not path.exists():
            return
        try:
            with self._store.lock, self._journal.locked():
                self._catch_up()
        except TdviewError as error:
            self.problem = error  # the save can be looked at all the same

    def _check_current(self) -> None:
        if self.problem is not None:
            self._open_journal()
        if self.problem is not None:
            raise self.problem
        is_current = getattr(self._store, "is_current", None)
        if is_current is not None and not is_current():
            raise ConcurrentWriteError(f"{self._store.label}: another program replaced the archive; reload it first")

    def _crc_head(self, target: Target, old: bytes, new: bytes) -> dict[str, Any]:
        """What the journal says of the checksum: as recorded in the archive, and as it should be after the write."""
        recorded = recorded_crc(self._store, target.name) if isinstance(self._store, ArchiveStore) else None
        if recorded is None:
            return {}
        known = self._history.checksums.get(target.name)
        # A recorded checksum that is neither was written by another program, after it had read the whole entry.
        before = known.actual if known is not None and recorded in (known.recorded, known.actual) else recorded
        return {"crc": [recorded, before ^ target.crc_delta(old, new)]}

    def _stale(self) -> dict[str, int]:
        if not isinstance(self._store, ArchiveStore):
            return {}
        changed = {name: known for name, known in self._history.checksums.items() if known.recorded != known.actual}
        return {n: known.actual for n, known in changed.items() if recorded_crc(self._store, n) == known.recorded}

    def _tell(self, edit: Edit | None) -> None:
        for listener in list(self._listeners):
            method = listener()
            if method is None:
                self._listeners.remove(listener)
            else:
                method(edit)


def editor_of(root: Node, *, journal: bool = True) -> Editor:
    """The editor of a tree that is open with ``mode="r+"``: one for all who look at the same save.

    Raises:
        ReadOnlyError: the tree is open read-only.
    """
    key = (os.path.realpath(root.store.location), journal)
    with _GUARD:
        editor = _EDITORS.get(key)
        if editor is None:
            editor = _EDITORS[key] = Editor(root, journal=journal)
        elif editor.root.store is not root.store:
            editor.reload(root)
        return editor

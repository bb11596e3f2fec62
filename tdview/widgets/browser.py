"""This module knows the notebook widget: its traits, its Python interface, and which operations it answers.

It does not know what any operation does, nor how the widget is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anywidget
import traitlets as t

from tdview.errors import KeyMissingError
from tdview.operations.edit import Editor
from tdview.operations.edits import Box, Edit
from tdview.storage.store import Mode
from tdview.tree.html import to_html
from tdview.tree.node import Node
from tdview.tree.scan import rescan, scan
from tdview.widgets import actions, edit_ops, pages, pictures, reports, selection, stats_ops, tree_ops
from tdview.widgets.edit_ops import EditSession
from tdview.widgets.messages import Reply, clean, wire_text
from tdview.widgets.router import Call, Router
from tdview.widgets.selection import Selection
from tdview.widgets.snapshot import EAGER_NODES, Count, count_leaves, head_of, one_line, save_name
from tdview.widgets.tree_ops import node_of

__all__ = ["Browser", "open"]

_STATIC = Path(__file__).parent / "static"
_MODULES = (tree_ops, pages, pictures, stats_ops, edit_ops, actions, reports, selection)


def _asset(name: str) -> Path:
    path = _STATIC / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: the JavaScript of the widget was not built; run `make build` in the checkout, or install tdview"
        )
    return path


def _bundle(name: str) -> Path | str:
    # anywidget watches a path, and then keeps every widget of the class alive; so only where hot reload is asked for.
    return _asset(name) if os.environ.get("ANYWIDGET_HMR") else _asset(name).read_text("utf-8")


def _key_to_json(value: tuple[str, ...] | None, _widget: object) -> list[str] | None:
    return None if value is None else [wire_text(part) for part in value]


def _key_from_json(value: list[str] | None, widget: Browser) -> tuple[str, ...] | None:
    if value is None:
        return None
    with suppress(KeyMissingError):
        return node_of(widget.root, tuple(value)).path
    return tuple(value)


class Browser(anywidget.AnyWidget):
    """A saved tensordict in a notebook: tree, table, plot, frames, statistics, findings, and edits in ``"r+"``.

    Opening reads one level. Read-only, nothing on disk changes. Two browsers of one save share its store; several
    views of one browser share `selected`.

    Args:
        path: a saved directory, a ``.tdz`` archive, a torchrl dump, or a folder of several saves.
        mode: ``"r"``, or ``"r+"`` so that cells can be edited.
        journal: in ``"r+"``, whether the edits are kept in ``<name>.tdview-journal`` beside the save, so that they
            can be undone later.

    Raises:
        MissingFileError: there is nothing at `path`.
        DecodeError: there is no saved tensordict at `path`.
        TypeError: an unknown keyword.
    """

    _esm = _bundle("browser.js")
    _css = _bundle("browser.css")

    _head = t.Dict().tag(sync=True)
    _edits = t.Dict().tag(sync=True)
    selected = t.Any(None, allow_none=True).tag(sync=True, to_json=_key_to_json, from_json=_key_from_json)
    """Nested key of the selected node, ``()`` for the root, None before anything is selected. Observable."""

    def __init__(
        self, path: str | os.PathLike[str], mode: Mode = "r", *, journal: bool = True, **unknown: object
    ) -> None:
        if unknown:
            names = ", ".join(repr(name) for name in unknown)
            raise TypeError(f"Browser() got an unexpected keyword: {names}; it takes path, mode and journal")
        self._root = scan(path, mode)
        self._mode: Mode = mode
        self._count = count_leaves(self._root, limit=EAGER_NODES)
        self._generation = 0
        super().__init__(_head=clean(head_of(self._root, mode, self._count, 0)))
        self.editing = EditSession(self, journal=journal)
        self._chosen: Selection | None = None
        self.update_edits()
        self._router = Router(self._send_message, lambda: self._root.store.lock)
        for module in _MODULES:
            module.register(self._router, self)
        self._router.register("panels", lambda _args, _buffers, _call: Reply({}, [_asset("panels.js").read_bytes()]))
        self._router.register("reload", lambda _args, _buffers, _call: self._reload())
        self._router.register("summary", lambda _args, _buffers, call: self._count_all(call), slow=True)
        self.on_msg(self._on_message)

    # -- the save ---------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Node:
        """The root of the lazy tree, as `tdview.scan` gives it; another object after `reload`."""
        return self._root

    @property
    def mode(self) -> Mode:
        """``"r"`` or ``"r+"``."""
        return self._mode

    @property
    def name(self) -> str:
        """File or directory name of the save."""
        return save_name(self._root)

    @property
    def counted(self) -> Count:
        """Leaves and bytes of the save, as far as they were counted."""
        return self._count

    def select(self, path: str | Sequence[str] | None) -> Node | None:
        """Selects a node in all views, opening the levels above it, and returns it.

        Args:
            path: a key, a nested key, ``()`` for the root, or None for nothing.

        Raises:
            KeyMissingError: there is no such node.
        """
        if path is None:
            self.selected = None
            return None
        parts = (path,) if isinstance(path, str) else tuple(path)
        node = node_of(self._root, parts)
        self.selected = node.path
        return node

    @property
    def selection(self) -> Selection:
        """What is selected, as ``.tensors``, ``.frame()``, ``.rows`` and ``.code``: a range of the table or a node.

        Without a selected node it is the whole save.
        """
        path = self.selected or ()
        chosen = self._chosen
        return chosen if chosen is not None and chosen.path == path else Selection(self._root, path)

    def choose(self, path: tuple[str, ...], boxes: Sequence[tuple[tuple[str, ...], Box]]) -> None:
        """Notes which elements of the table of `path` are selected; none stands for all."""
        self._chosen = Selection(self._root, path, boxes)

    def reload(self) -> None:
        """Reads the save again, as another process may have changed it. The tree keeps what is open."""
        with self._root.store.lock:
            self._reload()

    def _reload(self) -> dict[str, Any]:
        store = self._root.store
        store.refresh()
        self._root = rescan(self._root)
        self._count = count_leaves(self._root, limit=EAGER_NODES)
        self._generation += 1
        self._chosen = None
        self.editing.reload()
        self.update_head()
        self.update_edits()
        self.emit("reloaded")
        return {}

    def _count_all(self, call: Call) -> dict[str, Any]:
        root = self._root
        count = count_leaves(root, check=call.check)
        if root is self._root:
            self._count = count
            self.update_head()
        return {}

    def update_head(self) -> None:
        """Tells the views what the header and the first page of the tree say now."""
        self._head = clean(head_of(self._root, self._mode, self._count, self._generation))

    # -- edits ------------------------------------------------------------------------------------------------------

    @property
    def editor(self) -> Editor:
        """The editor of the save, shared by all its browsers: also its script, its patch, and `Editor.forget`.

        Raises:
            ReadOnlyError: the browser is read-only.
        """
        return self.editing.editor

    def edit(self, path: str | tuple[str, ...], index: Any, value: object) -> Edit:
        """Writes a value, or a block of values, in place; see `tdview.Editor.edit`.

        Raises:
            ReadOnlyError: the browser is read-only.
            EditRefusedError: the dtype cannot hold the value, or the index is out of range.
        """
        return self.editor.edit(path, index, value)

    def undo(self) -> Edit:
        """Takes the last edit back; see `tdview.Editor.undo`."""
        return self.editor.undo()

    def redo(self) -> Edit:
        """Does the last undone edit again; see `tdview.Editor.redo`."""
        return self.editor.redo()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that the save holds, oldest first; also those of earlier sessions that the journal tells of."""
        return self.editing.edits

    @property
    def stale_checksums(self) -> tuple[str, ...]:
        """Names of the archive's entries whose checksum the edits have made wrong."""
        return self.editing.stale_checksums

    def refresh_checksums(self) -> tuple[str, ...]:
        """Writes the checksums of the edited entries, without reading them; see `tdview.Editor.refresh_checksums`."""
        return self.editor.refresh_checksums()

    def edited_boxes(self, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Box]]:
        """Elements below `path` that edits have changed: nested key of the leaf, and a span for each axis."""
        return self.editing.boxes(path)

    def update_edits(self) -> None:
        """Tells the views what can be undone, and what is stale."""
        self._edits = clean(self.editing.state())

    # -- handing on -------------------------------------------------------------------------------------------------

    def append(
        self,
        rows: Any,
        *,
        path: str | os.PathLike[str] | None = None,
        existsok: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Appends rows: in place to a directory, into the new archive `path` where the save is an archive.

        A directory is read again afterwards, so the views show the new rows. What an interrupted append leaves
        behind is ended by `tdview.recover_append`.

        Args:
            rows: path of another save, a tensordict of tdview or of tensordict, a node, or a `selection`.
            path: the new archive; not for a directory.
            existsok: whether an archive at `path` is replaced.
            progress: called between blocks; whatever it raises stops the work and leaves nothing behind.

        Returns:
            Where the rows are now.

        Raises:
            ReadOnlyError: the save is a directory, and the browser is read-only.
            ArgumentError: `path` is missing or too much.
            AlreadyExistsError: there is a file at `path`.
        """
        self.editing.settle()
        target = actions.append_rows(self._root, rows, path=path, existsok=existsok, progress=progress)
        if path is None:
            self.reload()
        return target

    def pack(
        self,
        path: str | os.PathLike[str],
        *,
        compression: str | None = None,
        existsok: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Packs the save into the archive `path`; an archive is packed again. The save is not changed.

        Args:
            path: the new archive.
            compression: None or ``"deflate"``, ``"bzip2"``, ``"lzma"``; compressed payloads cannot be edited in place.
            existsok: whether an archive at `path` is replaced.
            progress: called between blocks; whatever it raises stops the work and leaves nothing behind.
        """
        self.editing.settle()
        return actions.pack(self._root, path, compression=compression, existsok=existsok, progress=progress)

    def unpack(
        self,
        path: str | os.PathLike[str],
        *,
        existsok: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Unpacks the archive into the directory `path`. The archive is not changed.

        Raises:
            NotSupportedError: the save is a directory already.
        """
        self.editing.settle()
        return actions.unpack(self._root, path, existsok=existsok, progress=progress)

    # -- messages ---------------------------------------------------------------------------------------------------

    def emit(self, event: str, **data: Any) -> None:
        """Sends an event to every view."""
        self._send_message({"kind": "event", "event": event, **data}, [])

    def _send_message(self, message: dict[str, Any], buffers: list[Any]) -> None:
        if self.comm is not None:
            self.send(message, buffers)

    def _on_message(self, _widget: object, content: object, buffers: Sequence[Any] | None) -> None:
        self._router.handle(content, buffers or ())

    def close(self) -> None:
        """Closes the views and stops what runs for them. The save stays as it is."""
        if hasattr(self, "_router"):
            self._router.close()
        super().close()

    # -- how it looks without JavaScript ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        if not hasattr(self, "_count"):  # asked for while __init__ runs
            return "<tdview.Browser>"
        return one_line(self._root, self._mode, self._count)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/html": self._html()}, metadata

    def _html(self) -> str:
        """The tree as static HTML, the same in every process; a note instead where the save is very large."""
        with self._root.store.lock:
            return to_html(self._root) if self._count.complete else f"<p>{_escaped(repr(self))}</p>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def open(path: str | os.PathLike[str], mode: Mode = "r", *, journal: bool = True) -> Browser:
    """Opens a saved tensordict in the notebook; see `Browser`.

    Args:
        path: a saved directory, a ``.tdz`` archive, a torchrl dump, or a folder of several saves.
        mode: ``"r"`` changes nothing on disk; ``"r+"`` edits in place.
        journal: whether the edits are kept beside the save, so that they can be undone later.

    Returns:
        The widget: show it as the last expression of a cell.
    """
    return Browser(path, mode, journal=journal)

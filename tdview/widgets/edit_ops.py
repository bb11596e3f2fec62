"""This module knows how a browser edits: one editor that all browsers of a save share, its state, and its requests.

It does not know how an edit is made.

Operations:

- ``edit`` ``{path, index: [[start, stop], …], values}``: one text for all elements of the box, or one text each, in
  C order → ``{message}``.
- ``edit.check`` ``{boxes: [{path, index, values}, …]}``: refuses what ``edit`` would refuse, and writes nothing.
- ``edit.value`` ``{path, text, json}``: a non-tensor value, as text or as JSON → ``{message}``.
- ``undo``, ``redo``, ``refresh_checksums`` ``{}`` → ``{message}``.
- ``edits.export`` ``{format: "script" | "patch"}`` → ``{name, mime}`` and the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tdview.errors import ArgumentError, EditRefusedError, ReadOnlyError, shown
from tdview.operations.edit import Editor, editor_of
from tdview.operations.edits import Box, Edit
from tdview.operations.region import index_text
from tdview.operations.values import encode_block
from tdview.operations.view_layout import has_places
from tdview.widgets.messages import Reply, bool_arg, path_arg, str_arg
from tdview.widgets.pages import leaf_of
from tdview.widgets.tree_ops import node_of, wire_path

if TYPE_CHECKING:
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Router

__all__ = ["EditSession", "register"]

MAX_BOXES = 10_000
"""Boxes that a table marks as changed; older edits than the last ones are not marked."""


def register(router: Router, browser: Browser) -> None:
    """Adds the operations of editing to `router`."""
    session = browser.editing
    router.register("edit", lambda args, _buffers, _call: _edit(browser, session, args))
    router.register("edit.check", lambda args, _buffers, _call: _check(browser, session, args))
    router.register("edit.value", lambda args, _buffers, _call: _edit_value(browser, session, args))
    router.register("undo", lambda _args, _buffers, _call: {"message": f"Undone: {_named(session.editor.undo())}"})
    router.register("redo", lambda _args, _buffers, _call: {"message": f"Done again: {_named(session.editor.redo())}"})
    router.register("refresh_checksums", lambda _args, _buffers, _call: _refresh(session))
    router.register("edits.export", lambda args, _buffers, _call: _export(session, args))


class EditSession:
    """A browser's part in the editor of its save: what it shows of the edits, and what it tells its views."""

    def __init__(self, browser: Browser, *, journal: bool) -> None:
        self._browser = browser
        self._editor: Editor | None = None
        self._boxes: list[tuple[tuple[str, ...], Box]] | None = None
        if browser.mode == "r+":
            self._editor = editor_of(browser.root, journal=journal)
            self._editor.subscribe(self._changed)

    @property
    def editor(self) -> Editor:
        """The editor.

        Raises:
            ReadOnlyError: the browser is read-only.
        """
        if self._editor is None:
            where = self._browser.root.store.label
            raise ReadOnlyError(f"{where}: it is open read-only; open it with tdview.open(..., mode='r+') to edit")
        return self._editor

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that the save holds, oldest first; none in a read-only browser."""
        return () if self._editor is None else self._editor.edits

    @property
    def stale_checksums(self) -> tuple[str, ...]:
        """Zip entries with a stale checksum; none in a read-only browser."""
        return () if self._editor is None else self._editor.stale_checksums

    def settle(self) -> None:
        """Makes the checksums of own edits right, before the archive is read with them as a whole."""
        if self._editor is not None:
            self._editor.refresh_checksums()

    def reload(self) -> None:
        """Follows the browser to the tree that was read again."""
        self._boxes = None
        if self._editor is not None:
            self._editor.reload(self._browser.root)

    def state(self) -> dict[str, Any]:
        """The trait ``_edits``; `js/src/protocol.ts` describes its fields."""
        editor = self._editor
        if editor is None:
            return {"count": 0, "undo": False, "redo": False, "stale": 0, "journal": ""}
        count = editor.n_edits
        kept = editor.journal is not None and count > 0
        return {
            "count": count,
            "undo": count > 0,
            "redo": editor.n_undone > 0,
            "stale": len(editor.stale_checksums),
            "journal": editor.journal.name if kept and editor.journal is not None else "",
        }

    def boxes(self, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Box]]:
        """Elements below `path` that edits have changed: the nested key of the leaf, and a span for each axis."""
        if self._boxes is None:
            self._boxes = []
            for edit in reversed(self.edits):
                if len(self._boxes) > MAX_BOXES:
                    break
                self._boxes += [(edit.path, box) for box in edit.boxes()] if edit.dtype is not None else []
        return [(key, box) for key, box in self._boxes if key[: len(path)] == path]

    def _changed(self, edit: Edit | None) -> None:
        self._boxes = None
        self._browser.update_edits()
        if edit is not None and edit.dtype is None:
            self._browser.reload()  # the tree keeps what it has read of a meta.json
        elif edit is not None:
            box = next(iter(edit.boxes()), ())
            self._browser.emit("changed", path=wire_path(edit.path), rows=list(box[0]) if box else None)


def _edit(browser: Browser, session: EditSession, args: dict[str, Any]) -> dict[str, Any]:
    node, index, block, _ = _box(browser, args)
    edit = session.editor.edit(node.path, index, block)
    return {"message": f"Changed {_named(edit)}"}


def _check(browser: Browser, session: EditSession, args: dict[str, Any]) -> dict[str, Any]:
    boxes = args.get("boxes")
    if not isinstance(boxes, list) or not all(isinstance(box, dict) for box in boxes):
        raise ArgumentError(f"boxes: expected a list of objects, got {shown(boxes)}")
    _ = session.editor  # refuses a read-only browser
    for box in boxes:
        node, index, block, shape = _box(browser, box)
        where = f"{'.'.join(node.path)}[{index_text(index)}]"
        leaf = leaf_of(node)
        if leaf is None or not (leaf.store.writable and has_places(leaf)):
            raise EditRefusedError(f"{where}: this leaf cannot be edited in place; Info says more")
        try:
            encode_block(leaf.dtype, block, shape)
        except EditRefusedError as error:
            raise EditRefusedError(f"{where}: {error}") from None
    return {}


def _box(browser: Browser, args: dict[str, Any]) -> tuple[Node, Any, object, tuple[int, ...]]:
    """The node, the index, the values of a request, and the shape that they have: none for one text."""
    node = node_of(browser.root, path_arg(args))
    spans, values = args.get("index"), args.get("values")
    if not isinstance(spans, list) or not all(_is_span(span) for span in spans):
        raise ArgumentError(f"index: expected a list of [start, stop], got {shown(spans)}")
    index = tuple(start if stop - start == 1 else slice(start, stop) for start, stop in spans)
    if not isinstance(values, list):
        return node, index, values, ()
    shape = tuple(stop - start for start, stop in spans if stop - start != 1)
    if math.prod(shape) != len(values):
        raise ArgumentError(f"values: {len(values)} values do not fill the box {list(shape)}")
    return node, index, _nested(values, shape), shape


def _edit_value(browser: Browser, session: EditSession, args: dict[str, Any]) -> dict[str, Any]:
    node = node_of(browser.root, path_arg(args))
    text = str_arg(args, "text")
    value: object = text
    if bool_arg(args, "json"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EditRefusedError(f"{'.'.join(node.path)}: this is no JSON: {error}") from None
    if node.kind == "non_tensor_stack":
        edit = _edit_stack(session.editor, node.path, node.value, value)
    else:
        edit = session.editor.edit(node.path, (), value)
    return {"message": f"Changed {_named(edit)}" if edit is not None else "Nothing was changed"}


def _edit_stack(editor: Editor, path: tuple[str, ...], old: Any, new: Any) -> Edit | None:
    """Replaces the values of a stack that differ; its length stays."""
    if not isinstance(new, list) or len(new) != len(old):
        raise EditRefusedError(f"{'.'.join(path)}: expected a JSON list of {len(old)} values, as the batch size says")
    edit = None
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            edit = editor.edit(path, place, after)
    return edit


def _refresh(session: EditSession) -> dict[str, Any]:
    names = session.editor.refresh_checksums()
    if not names:
        return {"message": "All checksums are up to date."}
    return {"message": f"Refreshed {len(names)} checksum{'s' if len(names) != 1 else ''}: {', '.join(names[:5])}"}


def _export(session: EditSession, args: dict[str, Any]) -> Reply:
    name = session.editor.root.store.location.name
    match str_arg(args, "format"):
        case "script":
            data, name, mime = session.editor.script(), f"{name}-edits.py", "text/x-python"
        case "patch":
            data, name, mime = json.dumps(session.editor.patch(), indent=1), f"{name}-edits.json", "application/json"
        case other:
            raise ArgumentError(f"format: expected 'script' or 'patch', got {shown(other)}")
    return Reply({"name": name, "mime": mime}, [data.encode()])


def _named(edit: Edit) -> str:
    place = f"[{index_text(edit.index)}]" if edit.index else ""
    return f"{'.'.join(edit.path) or 'the value'}{place}"


def _is_span(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0 for bound in value)
    )


def _nested(values: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return [_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]

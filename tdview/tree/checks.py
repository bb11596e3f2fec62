"""This module knows what can be wrong with one level or one leaf, and turns it into problems.

It looks at names and sizes only: no payload is read, and no checksum is computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tdview.errors import DecodeError, Problem, TdviewError, shown
from tdview.format.keys import decode_key, file_names
from tdview.format.meta import LeafEntry, NestedEntry
from tdview.format.payload import payload_file, shape_file
from tdview.format.pickles import json_types
from tdview.format.versions import RESERVED_KEYS, SHADOWABLE_KEYS
from tdview.storage.leftovers import inspect_append
from tdview.tree.node import Node, link_problem

if TYPE_CHECKING:
    from tdview.tree.leaf import Leaf

__all__ = ["APPEND_TEMPORARY", "leaf_problems", "level_problems"]

APPEND_TEMPORARY = ".meta.json.append.tmp"
"""Name of the new meta.json that an append writes before it replaces the old one."""

_VALUE_FILES = frozenset({"meta.json", "other.pickle", "pickle.pkl", "json_types.json"})


def leaf_problems(leaf: Leaf) -> tuple[Problem, ...]:
    """What is wrong with a leaf: its entry, its file, its size, its batch dims. Two system calls."""
    if leaf.entry.problem is not None:
        code, message = leaf.entry.problem
        return (leaf.problem(code, message),)
    if leaf.shape_problem is not None:
        return (leaf.shape_problem,)
    if leaf.parts:
        return tuple(problem for part in leaf.parts for problem in part.problems)
    found = list(_batch_problems(leaf))
    try:
        found += _nested_problems(leaf) if leaf.is_nested else []
        found += _file_problems(leaf)
    except TdviewError as error:
        found.append(leaf.problem("file_size", str(error)))
    if (linked := link_problem(leaf.store, leaf.file_name)) is not None:
        found.append(leaf.problem(linked[0], linked[1], "warning"))
    return tuple(found)


def _batch_problems(leaf: Leaf) -> Iterator[Problem]:
    batch = leaf.parent.batch_size if leaf.parent is not None and leaf.parent.kind == "tensordict" else None
    if batch is None or leaf.is_nested or leaf.steps:
        return
    if leaf.shape[: len(batch)] != batch:
        message = f"{leaf.where()}: the shape {list(leaf.shape)} does not start with the batch size {list(batch)}"
        yield leaf.problem("batch_size", message)


def _nested_problems(leaf: Leaf) -> list[Problem]:
    if leaf.entry.shape[0] and leaf.store.info(leaf.shape_file_name) is None:
        message = f"{leaf.where()}: {leaf.shape_file_name}, the sizes of the nested tensor, is missing"
        return [leaf.problem("missing_file", message)]
    try:
        leaf.component_shapes()
    except DecodeError as error:
        return [leaf.problem(error.problems[0].code if error.problems else "file_size", str(error))]
    return []


def _file_problems(leaf: Leaf) -> Iterator[Problem]:
    needed, info = leaf.stored_nbytes, leaf.info
    what = f"{leaf.dtype} {list(leaf.entry.shape)}"
    if info is None:
        if needed:
            message = (
                f"{leaf.where()}: the file is missing; {what} needs {needed} bytes: restore it, or remove the entry"
            )
            yield leaf.problem("missing_file", message)
    elif info.encrypted:
        yield leaf.problem("encrypted", f"{leaf.where()}: the zip entry is encrypted, so it cannot be read")
    elif info.compression == "unknown":
        yield leaf.problem("archive", f"{leaf.where()}: the zip entry is compressed by an unknown method")
    elif info.nbytes < needed:
        yield leaf.problem("file_size", f"{leaf.where()}: the payload is {info.nbytes} bytes, {what} needs {needed}")
    elif info.nbytes > needed:
        yield _overlong(leaf, info.nbytes, needed, what)
    elif info.compression == "stored" and info.offset is None:
        yield leaf.problem("archive", f"{leaf.where()}: the local header of the zip entry is damaged")
    if info is not None and leaf.store.form == "directory" and not os.access(_path(leaf), os.R_OK):
        yield leaf.problem("unreadable", f"{leaf.where()}: the file may not be read; check its permissions")


def _path(leaf: Leaf) -> Path:
    return leaf.store.location / leaf.file_name


def _overlong(leaf: Leaf, nbytes: int, needed: int, what: str) -> Problem:
    message = f"{leaf.where()}: the payload is {nbytes} bytes, {what} needs {needed}; the rest is ignored"
    if leaf.store.form != "archive":  # Normal in a directory: what an overwrite or a failed append leaves behind.
        return leaf.problem("overlong", message, "note")
    if nbytes > 64 * needed + (1 << 20):
        return leaf.problem("bomb", f"{leaf.where()}: the entry inflates to {nbytes} bytes, {what} needs {needed}")
    return leaf.problem("file_size", message)


def level_problems(node: Node) -> Iterator[Problem]:
    """What is wrong with a level besides its own meta.json. Lists the level once."""
    meta = node.meta
    if meta is None:
        return
    if meta.kind in ("non_tensor", "non_tensor_stack"):
        yield from _value_problems(node)
    elif meta.kind == "tensorclass":
        yield from _tensorclass_problems(node)
    elif meta.kind == "lazy_stack":
        yield from _stack_problems(node)
    elif meta.kind in ("lazy_view", "sub_tensordict"):
        yield from _view_problems(node)
    yield from _nested_batch_problems(node)
    yield from _lost_reserved(node)
    yield from _unused_files(node)


def _nested_batch_problems(node: Node) -> Iterator[Problem]:
    above = node.parent
    if above is None or above.kind != "tensordict" or node.kind in ("non_tensor", "non_tensor_stack"):
        return
    if node.prefix.rpartition("/")[0] not in (above.prefix, above.file("_tensordict")):
        return  # the source of a view: its batch size is its own
    batch, own = above.batch_size, node.batch_size
    if batch is not None and own is not None and own[: len(batch)] != batch:
        message = (
            f"{node.where()}: the batch size {list(own)} does not start with {list(batch)}, that of the level above"
        )
        yield node.problem("batch_size", message)


def _value_problems(node: Node) -> Iterator[Problem]:
    meta, files = node.meta, node.store.listing(node.prefix).files
    assert meta is not None
    name = "other.pickle" if meta.kind == "non_tensor" else "pickle.pkl"
    uses_pickle = "data" not in meta.fields or (meta.kind == "non_tensor_stack" and meta.fields["data"] == name)
    if name in files and uses_pickle:
        yield _pickle_note(node, name)
        if "json_types.json" in files and not _types_match(node, name):
            message = f"{node.where('json_types.json')}: it does not belong to {name}, so it is ignored"
            yield node.problem("json_types", message, "warning")
    elif uses_pickle and not node.store.is_level(node.file("0")):
        message = f"{node.where()}: the value is neither in meta.json nor in {name}"
        yield node.problem("missing_value", message)


def _pickle_note(node: Node, name: str) -> Problem:
    message = f"{node.where(name)}: a pickle; it is listed and never executed"
    return node.problem("pickle_present", message, "note")


def _types_match(node: Node, name: str) -> bool:
    try:
        pickle = node.store.read(node.file(name), 1 << 26)
        return json_types(node.store.read(node.file("json_types.json"), 1 << 20), pickle) is not None
    except TdviewError:
        return False


def _tensorclass_problems(node: Node) -> Iterator[Problem]:
    if not node.store.is_level(node.file("_tensordict")):
        message = f'{node.where()}: a tensorclass without its "_tensordict" level: its tensors are missing'
        yield node.problem("missing_level", message)
    elif node._tensordict is not None:
        yield from (Problem(p.code, p.message, p.severity, p.key, p.rows) for p in node._tensordict.problems)
    if "other.pickle" in node.store.listing(node.prefix).files:
        yield _pickle_note(node, "other.pickle")


def _stack_problems(node: Node) -> Iterator[Problem]:
    if node.stack_dim is None:
        yield node.problem("entry", f'{node.where("meta.json")}: a lazy stack needs an int in "stack_dim"')
    numbers = node.members
    if numbers and numbers[-1] != len(numbers) - 1:
        missing = sorted(set(range(min(numbers[-1], 1000))) - set(numbers))[:5]
        message = f"{node.where()}: the lazy stack has the members {_short(numbers)}; missing: {_short(missing)}"
        yield node.problem("member_gap", message)
    elif node.stack_dim is not None and node.batch_size is None:
        message = f"{node.where()}: the members of the lazy stack have different batch sizes"
        yield node.problem("batch_size", message)


def _short(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")


def _view_problems(node: Node) -> Iterator[Problem]:
    problem = node._transform_or_problem[1]
    if problem is not None:
        yield problem
    source = node.source
    if source is None or not node.store.is_level(node.file("_source")):
        yield node.problem("missing_level", f'{node.where()}: the "_source" of the view is missing')
    else:
        yield from source.problems


def _lost_reserved(node: Node) -> Iterator[Problem]:
    """A key that equals a reserved name: lost altogether, or hiding an entry of the tensordict."""
    meta = node.meta
    if meta is None or meta.kind != "tensordict":
        return
    files = node.store.listing(node.prefix).files
    for name in sorted(RESERVED_KEYS - SHADOWABLE_KEYS):
        if payload_file(name) in files:
            message = (
                f"{node.where(payload_file(name))}: the entry of the leaf {shown(name)} is lost: it has a reserved name"
            )
            yield Problem("reserved_key", message, "warning", (*node.path, name))
    for name in sorted(SHADOWABLE_KEYS & set(meta.entries)):
        message = f"{node.where('meta.json')}: the key {shown(name)} hides the tensordict's own entry of that name"
        yield Problem("reserved_key", message, "note", (*node.path, name))


def _unused_files(node: Node) -> Iterator[Problem]:
    meta = node.meta
    assert meta is not None
    files, levels = node.store.listing(node.prefix)
    used_files, used_levels = _used(node)
    collisions = sorted(name for name in used_files if used_files[name] > 1)
    for name in collisions:
        message = f"{node.where(name)}: two entries use this file, so one of them holds the other's bytes"
        yield node.problem("name_collision", message)
    for name in files:
        if name == APPEND_TEMPORARY:
            message = f"{node.where(name)}: an append was interrupted; tdview.recover_append {_recovery(node)}"
            yield node.problem("interrupted_append", message, "warning")
        elif name not in used_files and (name.endswith(".memmap") or name in _VALUE_FILES):
            reserved = decode_key(name.removesuffix(".memmap")) in RESERVED_KEYS - SHADOWABLE_KEYS
            if not reserved or meta.kind != "tensordict":
                yield node.problem("orphan", f"{node.where(name)}: no entry uses this file", "warning")
        elif name.endswith(".tmp") or name.startswith(".tdz-"):
            yield node.problem("leftover", f"{node.where(name)}: left over by an interrupted write", "note")
    for name in levels:
        if name in used_levels:
            continue
        if name.startswith((".tdtmp-", ".tdz-")):
            yield node.problem("leftover", f"{node.where(name)}: left over by an interrupted write", "note")
        elif node.store.info(node.file(f"{name}/meta.json")) is not None:
            yield node.problem("orphan", f"{node.where(name)}: no entry uses this level", "warning")


def _recovery(node: Node) -> str:
    """What recovery of an interrupted append will do, found out without touching the save."""
    top = node
    while top.parent is not None and top.parent.kind not in ("replay_buffer", "collection"):
        top = top.parent
    if node.store.form == "directory":
        try:
            state = inspect_append(node.store.location / top.prefix)
        except (OSError, TdviewError):
            state = None
        if state is not None:
            return f"will {'complete it' if state.action == 'complete' else 'take it back'}: {state.reason}"
    return "ends it"


def _used(node: Node) -> tuple[dict[str, int], frozenset[str]]:
    """The files that the entries of a level use, with how many use each, and its levels."""
    meta = node.meta
    assert meta is not None
    files: dict[str, int] = {"meta.json": 1}
    levels: set[str] = set()
    if meta.kind == "tensordict":
        for key, entry in meta.entries.items():
            names = file_names(key, level=isinstance(entry, NestedEntry), paths=node.keys_are_paths)
            if isinstance(entry, NestedEntry):
                levels.update(names)
            elif isinstance(entry, LeafEntry):
                for name in _leaf_files(node, names, entry):
                    files[name] = files.get(name, 0) + 1
        levels.update(node.unnamed_levels)
    elif meta.kind == "lazy_stack":
        levels.update(map(str, node.members))
    elif meta.kind in ("lazy_view", "sub_tensordict"):
        levels.add("_source")
    elif meta.kind == "non_tensor_stack":
        files["pickle.pkl"] = 1 if meta.fields.get("data") == "pickle.pkl" else 0
        levels.update(name for name in node.store.listing(node.prefix).levels if name.isdigit())
    if meta.kind in ("non_tensor", "tensorclass"):
        levels.add("_tensordict")  # tensordict 0.4 kept an empty one beside each value
        files["other.pickle"] = files["json_types.json"] = 1
    return {name: count for name, count in files.items() if count}, frozenset(levels)


def _leaf_files(node: Node, names: tuple[str, ...], entry: LeafEntry) -> list[str]:
    name = names[0]
    if len(names) > 1 and node.store.info(node.file(payload_file(name))) is None:
        name = names[1] if node.store.info(node.file(payload_file(names[1]))) is not None else name
    if entry.is_nested:
        return [payload_file(name), shape_file(name)]
    return [payload_file(name)]

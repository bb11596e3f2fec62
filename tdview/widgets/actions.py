"""This module knows how a browser hands its save on: packed, unpacked, or with rows appended.

It does not know how files are written: see `tdview.operations`.

Operations, all slow:

- ``pack`` ``{path, compression, existsok}``, ``unpack`` ``{path, existsok}`` → ``{message, path}``.
- ``append`` ``{source: "path" | "variable" | "selection", value, path, existsok}`` → ``{message, path}``; `path` names
  the new archive where the save is one.
- ``append.forecast`` ``{source, value}`` → ``{message}``: how large the result will be.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdview.errors import AlreadyExistsError, ArgumentError, NotSupportedError, ReadOnlyError, TdviewError, shown
from tdview.tree.text import nbytes_text
from tdview.widgets.messages import bool_arg, str_arg
from tdview.widgets.selection import Selection
from tdview.widgets.tree_ops import rows_text

if TYPE_CHECKING:
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["append_rows", "pack", "register", "rows_of", "unpack"]

Progress = Callable[[int, int], None]


def register(router: Router, browser: Browser) -> None:
    """Adds the operations that write other files, or more rows, to `router`."""
    router.register("pack", lambda args, _buffers, call: _pack(browser, args, call), slow=True)
    router.register("unpack", lambda args, _buffers, call: _unpack(browser, args, call), slow=True)
    router.register("append", lambda args, _buffers, call: _append(browser, args, call), slow=True)
    router.register("append.forecast", lambda args, _buffers, _call: {"message": _forecast(browser, args)}, slow=True)


# -- pack and unpack ------------------------------------------------------------------------------------------------


def pack(
    root: Node,
    path: str | os.PathLike[str],
    *,
    compression: str | None = None,
    existsok: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Packs the save below `root` into the archive `path`; an archive is packed again. The save is not changed.

    An archive is unpacked into a temporary directory beside `path` first, which is removed in any case.
    """
    from tdview.operations.pack import pack_memmap
    from tdview.operations.unpack import unpack_memmap

    target = Path(path)
    if target.exists() and not existsok:
        raise AlreadyExistsError(f"{target}: it exists already; choose another path, or replace it")
    if root.store.form != "archive":
        return pack_memmap(_level(root), target, compression=compression, existsok=existsok, progress=progress)
    with tempfile.TemporaryDirectory(dir=_parent(target), prefix=".tdview-") as folder:
        unpacked = unpack_memmap(root.store.location, Path(folder) / "save", progress=_part(progress, 0, 2))
        level = unpacked / root.prefix if root.prefix else unpacked
        return pack_memmap(level, target, compression=compression, existsok=existsok, progress=_part(progress, 1, 2))


def unpack(
    root: Node, path: str | os.PathLike[str], *, existsok: bool = False, progress: Progress | None = None
) -> Path:
    """Unpacks the archive below `root` into the directory `path`. The archive is not changed."""
    from tdview.operations.unpack import unpack_memmap

    if root.store.form != "archive":
        raise NotSupportedError(f"{root.store.label}: it is no archive, so there is nothing to unpack")
    return unpack_memmap(root.store.location, Path(path), existsok=existsok, progress=progress)


def _pack(browser: Browser, args: dict[str, Any], call: Call) -> dict[str, Any]:
    compression = str_arg(args, "compression", "") or None
    existsok = bool_arg(args, "existsok")
    target = browser.pack(_path_arg(args), compression=compression, existsok=existsok, progress=call.progress)
    left = " The files that torchrl keeps beside the tensordict are not in it." if browser.root.side_files else ""
    return {"message": f"Packed {target} ({nbytes_text(target.stat().st_size)}).{left}", "path": str(target)}


def _unpack(browser: Browser, args: dict[str, Any], call: Call) -> dict[str, Any]:
    existsok = bool_arg(args, "existsok")
    target = browser.unpack(_path_arg(args), existsok=existsok, progress=call.progress)
    return {"message": f"Unpacked into {target}.", "path": str(target)}


# -- append ---------------------------------------------------------------------------------------------------------


def append_rows(
    root: Node,
    rows: Any,
    *,
    path: str | os.PathLike[str] | None = None,
    existsok: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Appends rows to the save: in place to a directory, into the new archive `path` where the save is an archive.

    An archive is unpacked into a temporary directory beside `path`, appended to and packed; it is not changed.

    Args:
        root: root of the save.
        rows: see `rows_of`.
        path: the new archive; not for a directory.
        existsok: whether an archive at `path` is replaced.
        progress: called between blocks.
    """
    from tdview.containers.appending import append_memmap
    from tdview.operations.pack import pack_memmap
    from tdview.operations.unpack import unpack_memmap

    if root.kind == "replay_buffer":
        where = root.store.label
        raise NotSupportedError(f"{where}: the rows of a replay buffer are a ring, not a list; extend it with torchrl")
    rows = rows_of(rows)
    if root.store.form != "archive":
        if path is not None:
            raise ArgumentError("path: a directory grows in place; only an archive needs a path for the result")
        if not root.store.writable:
            raise ReadOnlyError(f"{root.store.label}: it is open read-only; open it with mode='r+' to append")
        append_memmap(_level(root), rows)
        return root.store.location
    if path is None:
        raise ArgumentError("path: an archive cannot grow in place; give the path of a new archive")
    target = Path(path)
    if target.exists() and not existsok:
        raise AlreadyExistsError(f"{target}: it exists already; choose another path, or replace it")
    with tempfile.TemporaryDirectory(dir=_parent(target), prefix=".tdview-") as folder:
        unpacked = unpack_memmap(root.store.location, Path(folder) / "save", progress=_part(progress, 0, 2))
        append_memmap(unpacked / root.prefix if root.prefix else unpacked, rows)
        return pack_memmap(unpacked, target, existsok=existsok, progress=_part(progress, 1, 2))


def rows_of(rows: Any) -> Any:
    """The container of some rows.

    Args:
        rows: the path of a save, a node of one, the `Selection` of a browser, or a container as it is.

    Raises:
        ArgumentError: it is none of them.
    """
    from tdview.containers.load import load_memmap
    from tdview.tree.node import Node

    if isinstance(rows, Selection):
        return rows.tensordict()
    if isinstance(rows, Node):
        return load_memmap(rows.store.location, mode="r", subpath=rows.path or None)
    if isinstance(rows, (str, os.PathLike)):
        return load_memmap(os.path.expanduser(rows), mode="r")
    if not hasattr(rows, "batch_size"):
        raise ArgumentError(f"rows: expected a path, a tensordict or a selection, got {type(rows).__name__}")
    return rows


def _append(browser: Browser, args: dict[str, Any], call: Call) -> dict[str, Any]:
    path = str_arg(args, "path", "") or None
    rows = _rows(browser, args)
    count = _row_count(rows)
    call.check()
    target = browser.append(rows, path=path, existsok=bool_arg(args, "existsok"), progress=call.progress)
    return {"message": f"Appended {_rows_text(count)}: {target}.", "path": str(target)}


def _rows(browser: Browser, args: dict[str, Any]) -> Any:
    """The rows that the view names: another save, a variable of the notebook, or what is selected."""
    source, value = str_arg(args, "source"), str_arg(args, "value", "").strip()
    if source == "selection":
        return rows_of(browser.selection)
    if not value:
        raise ArgumentError(f"value: expected the {'path of a save' if source == 'path' else 'name of a variable'}")
    if source == "path":
        return rows_of(value)
    if source == "variable":
        return rows_of(_variable(value))
    raise ArgumentError(f"source: expected 'path', 'variable' or 'selection', got {shown(source)}")


def _variable(name: str) -> Any:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or name not in shell.user_ns:
        raise ArgumentError(f"{shown(name)}: there is no variable of this name in the notebook")
    return shell.user_ns[name]


def _row_count(rows: Any) -> int | None:
    batch = getattr(rows, "batch_size", None)
    return int(batch[0]) if batch is not None and len(batch) else None


def _rows_text(count: int | None) -> str:
    return "the rows" if count is None else rows_text(count)


def _forecast(browser: Browser, args: dict[str, Any]) -> str:
    """How many rows and bytes the result will have; counts nothing that was not counted."""
    root, value = browser.root, str_arg(args, "value", "").strip()
    if str_arg(args, "source") != "selection" and not value:
        return ""
    try:
        added = _count_of(browser, args)
    except TdviewError as error:
        return str(error)
    have = root.batch_size[0] if root.batch_size else 0
    text = f"{_rows_text(added)} behind {have:,}" if added is not None else "The number of rows is not known"
    if added is None or not have or not browser.counted.complete:
        return text
    result = browser.counted.nbytes * (have + added) // have
    if root.store.form != "archive":
        return f"{text}; the save grows to about {nbytes_text(result)}."
    return f"{text}; the new archive takes about {nbytes_text(result)}, and as much again while it is made."


def _count_of(browser: Browser, args: dict[str, Any]) -> int | None:
    """How many rows the view names; of another save without loading it, which would import torch."""
    from tdview.tree.scan import scan

    source = str_arg(args, "source")
    if source == "path":
        return _row_count(scan(os.path.expanduser(str_arg(args, "value").strip())))
    if source == "selection":
        return sum(stop - start for start, stop in browser.selection.rows)
    return _row_count(_rows(browser, args))


# -- pieces ---------------------------------------------------------------------------------------------------------


def _level(root: Node) -> Path:
    """The directory of the tensordict: of a torchrl dump the storage inside it."""
    if root.store.form != "directory":
        raise NotSupportedError(f"{root.store.label}: it lies in memory; save it first")
    return root.store.location / root.prefix if root.prefix else root.store.location


def _parent(target: Path) -> Path:
    parent = target.absolute().parent
    if not parent.is_dir():
        raise ArgumentError(f"{target}: the directory {parent} does not exist")
    return parent


def _path_arg(args: dict[str, Any]) -> Path:
    path = str_arg(args, "path").strip()
    if not path:
        raise ArgumentError("path: expected a path, got nothing")
    return Path(path).expanduser()


def _part(progress: Progress | None, part: int, parts: int) -> Progress | None:
    """Progress of one of several equal parts of a whole."""
    if progress is None:
        return None
    return lambda done, total: progress(part * total + done, parts * total) if total else None

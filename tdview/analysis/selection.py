"""This module knows how a save with some rows left out is described to a writer: shapes changed, bytes gathered.

It does not know which rows those are, nor where the new save goes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tdview.analysis.columns import take_forward
from tdview.errors import DecodeError, NotSupportedError, shown
from tdview.format.meta import META_LIMIT
from tdview.format.payload import META
from tdview.operations.source import Block, SourceFile, SourceLevel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.storage.store import Store
    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["Selection", "file_blocks", "gathered", "json_object", "selected_leaf", "selected_level"]

_BLOCK = 4 << 20
_SMALL = 1 << 30  # files that are no payloads are copied as they are, up to this size


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of dim 0 stay."""

    old: int
    """Rows of the save as it is."""
    rows: NDArray[Any]
    """Rows that stay, int64, in the order in which the new save holds them."""
    size: int
    """Rows of the new save; those behind `rows` are zeros."""
    numbered: bool = False
    """The leaf `index` at the root holds row numbers and is counted anew."""


def gathered(octets: Callable[[int, int], Block], nbytes: int, selection: Selection) -> Iterator[Block]:
    """The bytes of the selected rows of a payload, in blocks, zeros behind them.

    Args:
        octets: gives the bytes of the payload from a start to a stop, as `Leaf.octets`.
        nbytes: bytes of the whole payload.
        selection: its `old` rows make up the payload.
    """
    import numpy as np

    size = nbytes // selection.old if selection.old else 0

    def read(start: int, stop: int) -> NDArray[Any]:
        return np.frombuffer(octets(start * size, stop * size), np.uint8).reshape(stop - start, size)

    step = max(1, _BLOCK // max(1, size))
    for start in range(0, len(selection.rows), step):
        yield take_forward(read, selection.rows[start : start + step], size).tobytes()
    left = (selection.size - len(selection.rows)) * size
    while left > 0:
        yield bytes(min(left, _BLOCK))
        left -= min(left, _BLOCK)


def selected_leaf(leaf: Leaf, selection: Selection, *, top: bool = False) -> SourceFile | None:
    """The payload of a leaf with the selected rows; None for one without elements.

    Raises:
        DecodeError: the leaf is damaged.
        NotSupportedError: it is a view, or does not start with the rows.
    """
    name = leaf.file_name.rpartition("/")[2]
    bad = next((p for p in leaf.problems if p.severity == "error"), None)
    if bad is not None:
        raise DecodeError(f"{bad.message}; mend the save before rows are dropped", [bad])
    if not leaf.direct or not leaf.shape or leaf.shape[0] != selection.old:
        raise NotSupportedError(f"{leaf.where()}: rows cannot be dropped from a view or from a leaf without rows")
    size = leaf.nbytes // selection.old if selection.old else 0
    if not size * selection.size:
        return None
    if top and selection.numbered and leaf.key == "index" and leaf.dtype == "torch.int64":
        return SourceFile(name=name, nbytes=size * selection.size, blocks=_numbers(leaf, selection))
    return SourceFile(
        name=name, nbytes=size * selection.size, blocks=lambda: gathered(leaf.octets, leaf.nbytes, selection)
    )


def _numbers(leaf: Leaf, selection: Selection) -> Callable[[], Iterator[Block]]:
    def blocks() -> Iterator[Block]:
        import numpy as np

        inner = int(np.prod(leaf.shape[1:], dtype=np.int64))
        yield np.repeat(np.arange(len(selection.rows), dtype="<i8"), inner).tobytes()
        yield bytes((selection.size - len(selection.rows)) * inner * 8)

    return blocks


def _selected_nested(leaf: Leaf, selection: Selection) -> tuple[SourceFile, ...]:
    """Payload and sizes of a nested leaf, of which whole tensors are left out."""
    import struct

    shapes = leaf.component_shapes()
    if selection.size != len(selection.rows) or len(shapes) != selection.old:
        raise NotSupportedError(f"{leaf.where()}: rows of a nested tensor cannot be dropped here")
    itemsize = leaf.stored_nbytes // max(1, sum(map(math.prod, shapes)))
    ends = list(accumulate(math.prod(shape) * itemsize for shape in shapes))
    kept = [int(row) for row in selection.rows]
    sizes = [size for row in kept for size in shapes[row]]
    payload, sizes_file = leaf.file_name.rpartition("/")[2], leaf.shape_file_name.rpartition("/")[2]
    spans = [(ends[row - 1] if row else 0, ends[row]) for row in kept]

    def blocks() -> Iterator[Block]:
        for start, end in spans:
            yield leaf.octets(start, end)

    nbytes = sum(end - start for start, end in spans)
    content = struct.pack(f"<{len(sizes)}q", *sizes)
    return (
        SourceFile(name=payload, nbytes=nbytes, blocks=blocks),
        SourceFile.of(sizes_file, content, payload=True),
    )


def selected_level(node: Node, selection: Selection, name: str = "", *, top: bool = True) -> SourceLevel:
    """A level of a save with the selected rows, and everything below it. Reads meta.json files and no payload.

    Files that belong to no entry (side files of a data set) are copied as they are.

    Raises:
        DecodeError: something in it is damaged.
        NotSupportedError: a part of it has no rows of its own, as a lazy view.
    """
    kind = str(node.meta.kind if node.meta is not None else node.kind)  # a replay buffer is one of the others too
    if kind == "tensordict":
        return _tensordict_level(node, selection, name, top)
    if kind == "tensorclass":
        return _tensorclass_level(node, selection, name)
    if kind == "lazy_stack":
        return _stack_level(node, selection, name)
    if kind == "non_tensor_stack":
        return _values_level(node, selection, name)
    if kind == "non_tensor":
        return SourceLevel(name=name, meta=_meta(node)[0], files=_other_files(node, set()))
    raise NotSupportedError(f"{node.where()}: rows cannot be dropped from a {kind}; save it as a tensordict first")


def json_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises:
        DecodeError: it holds something else.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{where}: expected a JSON object, got {shown(data[:40])}") from error
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected a JSON object, got {shown(value)}")
    return value


def _meta(node: Node) -> tuple[bytes, dict[str, Any]]:
    bad = next((p for p in node.problems if p.severity == "error"), None)
    if bad is not None:
        raise DecodeError(f"{bad.message}; mend the save before rows are dropped", [bad])
    data = node.store.read(node.file(META), META_LIMIT)
    return data, json_object(data, node.where(META))


def _bare(path: str) -> str:
    return path.rpartition("/")[2]


def _tensordict_level(node: Node, selection: Selection, name: str, top: bool) -> SourceLevel:
    _, meta = _meta(node)
    files: list[SourceFile] = []
    levels: list[SourceLevel] = []
    used: set[str] = set()
    for child in node.children():
        if child.is_leaf:
            leaf: Leaf = child  # type: ignore[assignment]  # sound: is_leaf says so
            used |= {_bare(leaf.file_name), _bare(leaf.shape_file_name)}
            entry = meta[leaf.key]
            if leaf.is_nested:
                files += _selected_nested(leaf, selection)
                entry["shape"] = [selection.size, *entry["shape"][1:]]
                continue
            file = selected_leaf(leaf, selection, top=top)
            files += [file] if file is not None else []
            entry["shape"] = [selection.size, *entry["shape"][1:]]
        else:
            levels.append(selected_level(child, selection, _bare(child.prefix), top=False))
    meta["shape"] = [selection.size, *meta["shape"][1:]]
    files += _other_files(node, used)
    return SourceLevel(name=name, meta=json.dumps(meta).encode(), files=tuple(files), levels=tuple(levels))


def _tensorclass_level(node: Node, selection: Selection, name: str) -> SourceLevel:
    inner = node._tensordict
    if inner is None:
        raise NotSupportedError(f"{node.where()}: a tensorclass without a tensordict has no rows")
    level = _tensordict_level(inner, selection, "_tensordict", False)
    return SourceLevel(
        name=name, meta=_meta(node)[0], files=_other_files(node, set()), levels=(level,)
    )  # fmt: skip


def _stack_level(node: Node, selection: Selection, name: str) -> SourceLevel:
    members = node.children()
    if node.stack_dim == 0:
        if len(members) != selection.old or selection.size != len(selection.rows):
            raise NotSupportedError(f"{node.where()}: rows cannot be dropped from this lazy stack")
        whole = [members[int(row)] for row in selection.rows]
        levels = tuple(_copied(member, str(number)) for number, member in enumerate(whole))
    else:
        levels = tuple(selected_level(member, selection, member.key, top=False) for member in members)
    return SourceLevel(
        name=name, meta=_meta(node)[0], files=_other_files(node, set()), levels=levels
    )  # fmt: skip


def _values_level(node: Node, selection: Selection, name: str) -> SourceLevel:
    _, meta = _meta(node)
    data = meta.get("data")
    if not isinstance(data, list) or len(data) != selection.old:
        raise NotSupportedError(f"{node.where()}: the values of this non-tensor stack are not a list of one per row")
    kept = [data[int(row)] for row in selection.rows]
    # rows that were never written repeat the first value, as torchrl writes them
    meta["data"] = kept + [data[0]] * (selection.size - len(kept)) if data else []
    return SourceLevel(name=name, meta=json.dumps(meta).encode(), files=_other_files(node, set()))


def _copied(node: Node, name: str) -> SourceLevel:
    """A level as it is, under another name."""
    return _copied_level(node, node.prefix, name)


def _copied_level(node: Node, prefix: str, name: str) -> SourceLevel:
    store = node.store
    listing = store.listing(prefix)
    head = f"{prefix}/" if prefix else ""
    files = tuple(_copied_file(node, f"{head}{file}") for file in listing.files if file != META)
    levels = tuple(_copied_level(node, f"{head}{level}", level) for level in listing.levels)
    return SourceLevel(name=name, meta=store.read(f"{head}{META}", META_LIMIT), files=files, levels=levels)


def _copied_file(node: Node, path: str) -> SourceFile:
    store = node.store
    info = store.info(path)
    nbytes = info.nbytes if info is not None else 0

    def blocks() -> Iterator[Block]:
        return file_blocks(store, path, nbytes)

    return SourceFile(name=_bare(path), nbytes=nbytes, blocks=blocks, payload=path.endswith(".memmap"))


def file_blocks(store: Store, path: str, nbytes: int) -> Iterator[Block]:
    """A file of a save as it is, in blocks."""
    for start in range(0, nbytes, _BLOCK):
        yield store.part(path, nbytes, start, min(start + _BLOCK, nbytes))


def _other_files(node: Node, used: set[str]) -> tuple[SourceFile, ...]:
    """Files of a level that belong to no leaf: pickled values, side files of data sets."""
    names = [n for n in node.store.listing(node.prefix).files if n != META and n not in used]
    return tuple(_copied_file(node, node.file(name)) for name in names if not name.startswith(".tdtmp-"))

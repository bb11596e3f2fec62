"""This module knows every file of a torchrl dump from which rows are left out, and what its side files then say.

It does not know which rows are left out, nor where the files go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tdview.analysis.rules.priorities import per_row
from tdview.analysis.selection import Selection, file_blocks, gathered, json_object, selected_leaf, selected_level
from tdview.errors import ArgumentError, DecodeError, TdviewError
from tdview.format import torchrl
from tdview.format.dtypes import dtype_of
from tdview.format.payload import META
from tdview.operations.source import Block, SourceFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer
    from tdview.tree.node import Node

__all__ = ["dump_files"]


def dump_files(node: Node, buffer: Buffer, selection: Selection) -> dict[str, SourceFile]:
    """Every file of the new dump by its path in it."""
    dump = getattr(node, "dump", None)
    if dump is None:
        text = "only the storage of a dump is open, so its cursor could not be rewritten; give the folder of the dump"
        raise ArgumentError(f"{node.where()}: {text}")
    storage = node.prefix[len(dump) + 1 :] if dump else node.prefix
    plan: dict[str, SourceFile] = {}
    rewrite = _Rewrite(buffer, selection)
    for name in node.side_files:
        path = f"{dump}/{name}" if dump else name
        if name == f"{storage}/{torchrl.STORAGE_META}" or name.endswith("prefetch.pkl"):
            continue
        file = rewrite.side_file(name, _reader(node, path))
        plan[name] = file if file is not None else _copy_of(node, path)
    for name, file in _storage_files(node, selection):
        if name != torchrl.STORAGE_META:
            plan[f"{storage}/{name}"] = file
    meta = json_object(_reader(node, node.file(torchrl.STORAGE_META))(), node.where(torchrl.STORAGE_META))
    fill = buffer.fill
    meta["len"] = len(selection.rows) * (1 if fill is None or fill.single else buffer.inner)
    plan[f"{storage}/{torchrl.STORAGE_META}"] = SourceFile.of(torchrl.STORAGE_META, json.dumps(meta).encode())
    return plan


def _reader(node: Node, path: str) -> Callable[[], bytes]:
    return lambda: node.store.read(path, 1 << 31)


def _copy_of(node: Node, path: str) -> SourceFile:
    info = node.store.info(path)
    nbytes = info.nbytes if info is not None else 0

    def blocks() -> Iterator[Block]:
        return file_blocks(node.store, path, nbytes)

    return SourceFile(name=path.rpartition("/")[2], nbytes=nbytes, blocks=blocks, payload=False)


def _storage_files(node: Node, selection: Selection) -> Iterator[tuple[str, SourceFile]]:
    """Files of the storage by their path in it."""
    if node.meta is None:  # a pytree: the files are all there is
        for leaf in node.leaves():
            file = selected_leaf(leaf, selection)
            if file is not None:
                inside = leaf.file_name[len(node.prefix) + 1 :] if node.prefix else leaf.file_name
                yield inside, file
        return
    for prefix, level in selected_level(node, selection).walk():
        head = f"{prefix}/" if prefix else ""
        yield head + META, SourceFile.of(META, level.meta)
        for file in level.files:
            yield head + file.name, file


class _Rewrite:
    """What becomes of torchrl's side files when rows go."""

    def __init__(self, buffer: Buffer, selection: Selection) -> None:
        self.buffer = buffer
        self.selection = selection
        self.kept = len(selection.rows)

    def side_file(self, name: str, read: Callable[[], bytes]) -> SourceFile | None:
        """The new content of a side file, None where it stays as it is."""
        part, _, bare = name.rpartition("/")
        part = part.rpartition("/")[2] if part else ""
        make = {
            ("writer", torchrl.WRITER_META): self._writer,
            ("writer", torchrl.GENERATION): self._generation,
            ("writer", torchrl.TOP_VALUES): self._top_values,
            ("sampler", torchrl.SAMPLER_META): self._sampler,
            ("sampler", torchrl.SUM_TREE): self._sum_tree,
            ("sampler", torchrl.MIN_TREE): self._min_tree,
            ("sampler", "_sample_list.memmap"): self._sample_list,
            ("sampler", "len_storage.memmap"): self._len_storage,
            ("sampler", META): self._sampler_level,
        }.get((part, bare))
        return None if make is None else SourceFile.of(bare, make(read()))

    def _writer(self, data: bytes) -> bytes:
        meta = json_object(data, "a side file")
        capacity = max(1, self.selection.size)
        if "rank_key" not in meta:
            meta["cursor"] = self.kept % capacity
        elif isinstance(meta.get("shape"), list) and meta["shape"]:
            meta["shape"] = [len(self._kept_ranks()), *meta["shape"][1:]]
        if meta.get("write_count") is not None:
            meta["write_count"] = self.kept
        return json.dumps(meta).encode()

    def _elements(self) -> NDArray[Any]:
        """Kept storage elements in their new order."""
        import numpy as np

        inner = per_row(self.buffer)
        return (self.selection.rows[:, None] * inner + np.arange(inner)).ravel()

    def _generation(self, data: bytes) -> bytes:
        side = self.buffer.side
        raw = side.writer.generation if side is not None and side.writer is not None else None
        row = dtype_of(raw.dtype) if raw is not None else None
        if raw is None or row is None or not raw.shape or len(data) % raw.shape[0]:
            return data
        selection = replace(self.selection, old=raw.shape[0])
        return b"".join(gathered(lambda start, stop: data[start:stop], len(data), selection))

    def _kept_ranks(self) -> NDArray[Any]:
        """Pairs (rank value, row) of the rows that stay, rows renumbered."""
        import numpy as np

        side = self.buffer.side
        raw = side.writer.top_values if side is not None and side.writer is not None else None
        if side is None or raw is None:
            return np.empty((0, 2), np.float32)
        values = side.array("writer", torchrl.TOP_VALUES, "<f4", int(np.prod(raw.shape)))
        if values is None:
            return np.empty((0, 2), np.float32)
        pairs = values.reshape(-1, 2).copy()
        number = np.full(self.selection.old, -1, np.int64)
        number[self.selection.rows] = np.arange(self.kept)
        rows = pairs[:, 1].astype(np.int64)
        good = (rows >= 0) & (rows < len(number)) & (number[np.clip(rows, 0, len(number) - 1)] >= 0)
        pairs = pairs[good]
        pairs[:, 1] = number[rows[good]]
        return pairs

    def _top_values(self, data: bytes) -> bytes:
        return self._kept_ranks().tobytes()

    def _tree(self, data: bytes, unset: float) -> bytes:
        import numpy as np

        count = self.selection.old * per_row(self.buffer)
        dtype = {8 * count: "<f8", 4 * count: "<f4"}.get(len(data))
        if dtype is None:
            text = (
                f"a priority tree has {len(data)} bytes, {count} rows need {8 * count}; mend the sampler's files first"
            )
            raise DecodeError(f"{self.buffer.where}: {text}")
        values = np.frombuffer(data, dtype)
        fresh = np.full(count, unset, dtype)
        elements = self._elements()
        fresh[: len(elements)] = values[elements]
        return fresh.tobytes()

    def _sum_tree(self, data: bytes) -> bytes:
        return self._tree(data, 0.0)

    def _min_tree(self, data: bytes) -> bytes:
        return self._tree(data, torchrl.UNSET_MIN)

    def _sampler(self, data: bytes) -> bytes:
        import numpy as np

        meta = json_object(data, "a side file")
        most = meta.get("_max_priority")
        if isinstance(most, list) and len(most) == 2 and isinstance(most[1], int | float):
            where = np.flatnonzero(self._elements() == int(most[1]))
            meta["_max_priority"] = [most[0], float(where[0]) if len(where) else None]
        return json.dumps(meta).encode()

    def _remaining(self, data: bytes) -> NDArray[Any]:
        """The elements that a sampler without replacement has yet to draw, renumbered."""
        import numpy as np

        drawn = np.frombuffer(data[: len(data) // 8 * 8], "<i8")
        number = np.full(self.selection.old * per_row(self.buffer), -1, np.int64)
        elements = self._elements()
        number[elements] = np.arange(len(elements))
        drawn = drawn[(drawn >= 0) & (drawn < len(number))]
        found = number[drawn]
        left: NDArray[Any] = found[found >= 0]
        return left

    def _sample_list(self, data: bytes) -> bytes:
        return self._remaining(data).astype("<i8").tobytes()

    def _len_storage(self, data: bytes) -> bytes:
        if len(data) != 8:
            return data
        return len(self._elements()).to_bytes(8, "little")

    def _sampler_level(self, data: bytes) -> bytes:
        meta = json_object(data, "a side file")
        entry = meta.get("_sample_list")
        side = self.buffer.side
        if isinstance(entry, dict) and side is not None:
            try:
                drawn = side.read("sampler", "_sample_list.memmap")
            except TdviewError:
                drawn = None
            if drawn is not None:
                entry["shape"] = [len(self._remaining(drawn))]
        return json.dumps(meta).encode()

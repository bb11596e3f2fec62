"""Sources of saves without tensors: what a writer is given, made from plain dicts, and what it should leave on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tdview.format.dtypes import DTYPES
from tdview.format.keys import encode_key
from tdview.format.meta import dump_json, leaf_json, tensordict_json
from tdview.format.payload import payload_file
from tdview.operations.source import SourceFile, SourceLevel

Tree = Mapping[str, Any]
"""Keys to bytes (a leaf of uint8 rows) or to a nested tree."""


def source(tree: Tree, rows: int, name: str = "") -> SourceLevel:
    """A tensordict of the batch size ``[rows]``; each leaf is uint8 ``[rows, n]``."""
    files: list[SourceFile] = []
    levels: list[SourceLevel] = []
    entries: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            levels.append(source(value, rows, encode_key(key)))
            entries[key] = {"type": "TensorDict"}
            continue
        entries[key] = leaf_json("torch.uint8", [rows, len(value) // rows if rows else 0])
        if value:
            view = memoryview(value)
            blocks = [view[start : start + 1000] for start in range(0, len(value), 1000)]
            files.append(
                SourceFile(name=payload_file(encode_key(key)), nbytes=len(value), blocks=lambda blocks=blocks: blocks)
            )
    meta = dump_json(tensordict_json(entries, [rows]))
    return SourceLevel(name=name, meta=meta, files=tuple(files), levels=tuple(levels))


def contents(level: SourceLevel, prefix: str = "") -> dict[str, bytes]:
    """Every file that a save of the source has, by its path."""
    out = {f"{prefix}meta.json": level.meta}
    for file in level.files:
        blocks = [bytes(file.nbytes)] if file.blocks is None else file.blocks()
        out[prefix + file.name] = b"".join(bytes(block) for block in blocks)
    for nested in level.levels:
        out |= contents(nested, f"{prefix}{nested.name}/")
    return out


def on_disk(root: Path) -> dict[str, bytes]:
    """Every file below a directory by its path; empty if there is none."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def row_of(dtype: str, count: int, fill: int) -> bytes:
    """`count` rows of one element of a dtype, as raw bytes."""
    return bytes([fill]) * (count * DTYPES[dtype].itemsize)

"""This module knows what torchrl's own files beside a saved tensordict mean.

It does not know where they lie: it is given bytes, and it never sees the pickles among them, only their names.

Layout of `ReplayBuffer.dumps(path)`:

    path/buffer_metadata.json            sampling batch size
    path/storage/                        the rows, a saved tensordict (or pytree files without a meta.json)
    path/storage/storage_metadata.json   how many elements are written; for pytrees also dtypes and shapes
    path/writer/metadata.json            cursor, number of writes, layout of the writer's own arrays
    path/writer/*.memmap                 writes per slot, or the ranks of a max-value writer
    path/sampler/                        priorities as raw arrays, or a saved tensordict
    path/*.pkl, *.t, *.pt                pickles; never needed to see the rows
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tdview.errors import DecodeError, shown

__all__ = [
    "PICKLE_SUFFIXES",
    "Manifest",
    "RawArray",
    "SamplerMeta",
    "StorageMeta",
    "WriterMeta",
    "is_pickle",
    "parse_buffer",
    "parse_manifest",
    "parse_sampler",
    "parse_storage",
    "parse_writer",
    "pytree_file",
]

BUFFER_META = "buffer_metadata.json"
STORAGE_META = "storage_metadata.json"
WRITER_META = "metadata.json"
SAMPLER_META = "sampler_metadata.json"
MANIFEST = "manifest.json"
MANIFEST_FORMAT = "torchrl.checkpoint"
GENERATION = "generation.memmap"
TOP_VALUES = "current_top_values.memmap"
SUM_TREE = "sumtree.memmap"
MIN_TREE = "mintree.memmap"
UNSET_MIN = 3.4028234663852886e38
"""What the min tree holds in slots that were never written: the largest float32."""
PICKLE_SUFFIXES = (".pkl", ".pickle", ".pt", ".pth", ".t")
SINGLE_TENSOR = "_-single-tensor-_"
"""Stem of the file that holds a storage of one bare tensor."""
_LIMIT = 1 << 62  # sizes and counters beyond this are damage, not data


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArray:
    """A file of plain numbers whose dtype and shape stand in a metadata file."""

    dtype: str
    """Name of the dtype, ``"torch.float32"``."""
    shape: tuple[int, ...]
    """Sizes, each >= 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageMeta:
    """`storage_metadata.json`."""

    length: int
    """Written *elements*: rows of dim 0 times the further batch dimensions of a storage with ``ndim > 1``."""
    is_pytree: bool = False
    """The rows are no tensordict: there is no meta.json, `entries` describes the files."""
    entries: tuple[tuple[tuple[str, ...], RawArray], ...] = ()
    """Of a pytree: nested key, dtype and shape of every tensor, in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterMeta:
    """`writer/metadata.json`."""

    cursor: int | None = None
    """Row of dim 0 that is written next; None if the file does not tell."""
    write_count: int | None = None
    """Rows ever written; None in dumps of torchrl before 0.14."""
    rank_key: tuple[str, ...] | None = None
    """Key by which a max-value writer ranks rows; its rows are in no time order."""
    generation: RawArray | None = None
    """Layout of `generation.memmap`: how often each slot was written."""
    top_values: RawArray | None = None
    """Layout of `current_top_values.memmap`: pairs (rank value, storage row)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerMeta:
    """`sampler/sampler_metadata.json` of a prioritized sampler; the trees hold ``(priority + eps) ** alpha``."""

    alpha: float | None = None
    beta: float | None = None
    eps: float | None = None
    max_priority: float | None = None
    max_capacity: int | None = None
    schema_version: int | None = None
    """None before 2026: `max_priority` may then be in the transformed domain of the trees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`manifest.json` of a `torchrl.checkpoint.Checkpoint`."""

    components: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Name, path below the checkpoint and files (relative to the path) of every component."""
    versions: tuple[tuple[str, str], ...] = ()
    """Which libraries wrote it."""


def is_pickle(name: str) -> bool:
    """Whether a side file is a pickle or an archive of `torch.save`, judged by its name alone."""
    return name.endswith(PICKLE_SUFFIXES)


def _load(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise DecodeError(f"{where}: expected a JSON object, got {shown(data[:40])}") from exc
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _count(value: Any, where: str) -> int:
    """A count that may have been written as a float (``80.0``)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -_LIMIT < value < _LIMIT:
        raise DecodeError(f"{where}: expected an integer, got {shown(value)}")
    return value


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise DecodeError(f"{where}: expected a list of sizes, got {shown(value)}")
    sizes = tuple(_count(size, where) for size in value)
    if any(size < 0 for size in sizes):
        raise DecodeError(f"{where}: expected sizes >= 0, got {shown(value)}")
    return sizes


def _raw(dtype: Any, shape: Any, where: str) -> RawArray:
    if not isinstance(dtype, str):
        raise DecodeError(f"{where}: expected the name of a dtype, got {shown(dtype)}")
    return RawArray(dtype=dtype, shape=_shape(shape, where))


def _key(value: Any, where: str) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) for part in parts):
        raise DecodeError(f"{where}: expected a key, got {shown(value)}")
    return tuple(parts)


def parse_storage(data: bytes, where: str = STORAGE_META) -> StorageMeta:
    """Reads `storage_metadata.json`.

    Raises:
        DecodeError: it is no JSON object, or its length or a shape is no size.

    Examples:
        >>> parse_storage(b'{"metadata": {}, "is_pytree": false, "len": 300}').length
        300
    """
    value = _load(data, where)
    length = _count(value.get("len"), f"{where}: len")
    if length < 0:
        raise DecodeError(f"{where}: len: expected >= 0, got {length}")
    if not value.get("is_pytree"):
        return StorageMeta(length=length)
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping):
        raise DecodeError(f"{where}: metadata: expected an object, got {shown(metadata)}")
    entries = []
    for name, entry in metadata.items():
        here = f"{where}: metadata: {shown(name)}"
        if not isinstance(entry, Mapping):
            raise DecodeError(f"{here}: expected an object, got {shown(entry)}")
        entries.append((tuple(name.split(".")), _raw(entry.get("dtype"), entry.get("shape"), here)))
    return StorageMeta(length=length, is_pytree=True, entries=tuple(entries))


def pytree_file(key: tuple[str, ...]) -> str:
    """Name, relative to the storage, of the file that holds an entry of a pytree.

    Examples:
        >>> pytree_file(("extra", "img"))
        'extra/img.memmap'
    """
    return "/".join(key) + ".memmap"


def parse_writer(data: bytes, where: str = f"writer/{WRITER_META}") -> WriterMeta:
    """Reads `writer/metadata.json`; values it does not hold are None.

    Raises:
        DecodeError: it is no JSON object, or a value has the wrong type.

    Examples:
        >>> parse_writer(b'{"cursor": 144, "write_count": 400}').write_count
        400
    """
    value = _load(data, where)

    def count(name: str) -> int | None:
        return None if value.get(name) is None else _count(value[name], f"{where}: {name}")

    rank = value.get("rank_key")
    generation = value.get("generation_shape")
    return WriterMeta(
        cursor=count("cursor"),
        write_count=count("write_count"),
        rank_key=None if rank is None else _key(rank, f"{where}: rank_key"),
        generation=None
        if generation is None
        else _raw(value.get("generation_dtype"), generation, f"{where}: generation"),
        top_values=None
        if rank is None or value.get("shape") is None
        else _raw(value.get("dtype"), value["shape"], f"{where}: shape"),
    )


def parse_sampler(data: bytes, where: str = f"sampler/{SAMPLER_META}") -> SamplerMeta:
    """Reads the metadata of a prioritized sampler; other samplers leave every value None.

    Raises:
        DecodeError: it is no JSON object, or a value is no number.
    """
    value = _load(data, where)

    def number(name: str) -> float | None:
        found = value.get(name)
        if isinstance(found, list):  # [priority, row]
            found = found[0] if found else None
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise DecodeError(f"{where}: {name}: expected a number, got {shown(found)}")
        return float(found)

    def count(name: str) -> int | None:
        return None if value.get(name) is None else _count(value[name], f"{where}: {name}")

    return SamplerMeta(
        alpha=number("_alpha"),
        beta=number("_beta"),
        eps=number("_eps"),
        max_priority=number("_max_priority"),
        max_capacity=count("_max_capacity"),
        schema_version=count("_schema_version"),
    )


def parse_buffer(data: bytes, where: str = BUFFER_META) -> int | None:
    """Reads `buffer_metadata.json`: the size of the batches that the buffer samples, None if it has none.

    Raises:
        DecodeError: it is no JSON object, or the size is no integer.
    """
    size = _load(data, where).get("batch_size")
    return None if size is None else _count(size, f"{where}: batch_size")


def parse_manifest(data: bytes, where: str = MANIFEST) -> Manifest:
    """Reads the manifest of a `torchrl.checkpoint.Checkpoint`.

    Raises:
        DecodeError: it is no JSON object, or a component has no path or no list of files.
    """
    value = _load(data, where)
    components = value.get("components")
    if value.get("format") != MANIFEST_FORMAT or not isinstance(components, Mapping):
        raise DecodeError(f"{where}: expected the manifest of a torchrl checkpoint, got {shown(value.get('format'))}")
    found = []
    for name, entry in components.items():
        path = entry.get("path") if isinstance(entry, Mapping) else None
        files = entry.get("files", []) if isinstance(entry, Mapping) else None
        named = isinstance(files, list) and all(isinstance(file, str) for file in files)
        if not isinstance(path, str) or not named:
            raise DecodeError(f"{where}: components: {shown(name)}: expected a path and a list of files")
        found.append((str(name), path, tuple(files or ())))
    versions = value.get("versions")
    known = versions.items() if isinstance(versions, Mapping) else ()
    return Manifest(components=tuple(found), versions=tuple((str(k), str(v)) for k, v in known))

"""This module knows what is found at a path that holds more than one tensordict, or torchrl's files around one.

It does not know which rows of a replay buffer are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from tdview.errors import DecodeError, Problem, TdviewError
from tdview.format import torchrl
from tdview.format.classes import Kind
from tdview.format.dtypes import DTYPES
from tdview.format.meta import LeafEntry, LevelMeta
from tdview.format.payload import META, check_shape
from tdview.storage.store import Store
from tdview.tree.leaf import Leaf
from tdview.tree.node import Node

__all__ = ["Collection", "PytreeBuffer", "ReplayBuffer", "find"]

_MAX_SEARCH_DEPTH = 12
_MAX_SEARCHED = 20_000
_META_LIMIT = 1 << 26


class ReplayBuffer(Node):
    """The storage of a replay buffer: its entries stand directly under it, torchrl's files beside it."""

    def __init__(
        self, store: Store, prefix: str, dump: str | None, *, path: tuple[str, ...] = (), parent: Node | None = None
    ) -> None:
        super().__init__(store, prefix, path=path, parent=parent)
        self.dump = dump
        """The level of the whole dump, None where only its storage is open."""

    @property
    def kind(self) -> Kind:
        return "replay_buffer"

    @cached_property
    def _side_files(self) -> tuple[str, ...]:
        if self.dump is None:
            return (torchrl.STORAGE_META,)
        return tuple(sorted(_files_below(self.store, self.dump, skip=self.prefix)))

    @property
    def side_files(self) -> tuple[str, ...]:
        return self._side_files

    def __getitem__(self, key: str | tuple[str, ...]) -> Node:
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) > 1 and parts[0] == "storage" and "storage" not in self._by_key:
            parts = parts[1:]  # the path on disk is understood as well
        return super().__getitem__(parts)


class PytreeBuffer(ReplayBuffer):
    """A replay buffer of a dict, tuple or tensor: no meta.json, the entries stand in storage_metadata.json."""

    @cached_property
    def _read(self) -> tuple[LevelMeta | None, tuple[Problem, ...]]:
        return None, self._metadata[1]

    @cached_property
    def _metadata(self) -> tuple[torchrl.StorageMeta | None, tuple[Problem, ...]]:
        where = self.where(torchrl.STORAGE_META)
        try:
            data = self.store.read(self.file(torchrl.STORAGE_META), _META_LIMIT)
            return torchrl.parse_storage(data, where), ()
        except TdviewError as error:
            return None, (self.problem("side_file", str(error)),)

    @cached_property
    def batch_size(self) -> tuple[int, ...] | None:
        sizes = {leaf.shape[:1] for leaf in self.leaves()}
        return sizes.pop() if len(sizes) == 1 else ()

    @property
    def class_name(self) -> str:
        return "pytree"

    def _make_children(self) -> Iterator[Node]:
        metadata = self._metadata[0]
        entries = metadata.entries if metadata is not None else ()
        yield from _pytree_nodes(self, [(key, key, array) for key, array in entries])


_PytreeEntry = tuple[tuple[str, ...], tuple[str, ...], torchrl.RawArray]


class _PytreeLevel(Node):
    """A dict or tuple inside a pytree."""

    def __init__(self, above: Node, key: str, entries: list[_PytreeEntry]) -> None:
        super().__init__(above.store, above.file(key), path=(*above.path, key), parent=above)
        self._below = entries

    @cached_property
    def _read(self) -> tuple[LevelMeta | None, tuple[Problem, ...]]:
        return None, ()

    @property
    def class_name(self) -> str:
        return "pytree"

    def _make_children(self) -> Iterator[Node]:
        yield from _pytree_nodes(self, self._below)


def _pytree_nodes(above: Node, entries: list[_PytreeEntry]) -> Iterator[Node]:
    levels: dict[str, list[_PytreeEntry]] = {}
    for rest, key, array in entries:
        if len(rest) > 1:
            levels.setdefault(rest[0], []).append((rest[1:], key, array))
            continue
        row = DTYPES.get(array.dtype)
        shape = check_shape(array.shape, row.itemsize if row is not None else 1)
        problem = None
        if row is None or shape is None:
            code = "dtype" if row is None else "shape"
            problem = (code, f"{above.where(torchrl.STORAGE_META)}: the entry {'.'.join(key)} has no known {code}")
        entry = LeafEntry(array.dtype, shape or (), problem=problem)
        name = rest[0] if rest else torchrl.SINGLE_TENSOR
        yield Leaf(above.store, above.prefix, path=(*above.path, name), parent=above, entry=entry)
    for name, below in levels.items():
        yield _PytreeLevel(above, name, below)


class Collection(Node):
    """Several saves below one directory or archive, by the names of their directories."""

    def __init__(self, store: Store, prefix: str, *, path: tuple[str, ...] = (), parent: Node | None = None) -> None:
        super().__init__(store, prefix, path=path, parent=parent)
        self.found: tuple[Node, ...] = ()

    @cached_property
    def _read(self) -> tuple[LevelMeta | None, tuple[Problem, ...]]:
        return None, ()

    @property
    def kind(self) -> Kind:
        return "collection"

    @property
    def class_name(self) -> str:
        return "collection"

    def _make_children(self) -> Iterator[Node]:
        return iter(self.found)

    @property
    def side_files(self) -> tuple[str, ...]:
        return self.store.listing(self.prefix).files


def _files_below(store: Store, prefix: str, skip: str) -> Iterable[str]:
    """Names of the files below `prefix`, relative to it, without those of the level `skip`."""
    stack = [prefix]
    while stack:
        level = stack.pop()
        files, levels = store.listing(level)
        head = f"{level}/" if level else ""
        below = len(prefix) + 1 if prefix else 0
        if level == skip:
            yield from (f"{head}{name}"[below:] for name in files if name == torchrl.STORAGE_META)
            continue
        yield from (f"{head}{name}"[below:] for name in files)
        if head.count("/") < _MAX_SEARCH_DEPTH + prefix.count("/"):
            stack += [head + name for name in levels]


def find(store: Store, prefix: str = "") -> Node | None:
    """The node at a level: a saved tensordict, a replay buffer, a collection of them, or None.

    Looks for meta.json and torchrl's files, at most 20 000 levels and 12 deep, and does not search inside a save.
    """
    budget = [_MAX_SEARCHED]
    return _find(store, prefix, (), None, budget)


def _find(store: Store, prefix: str, path: tuple[str, ...], parent: Node | None, budget: list[int]) -> Node | None:
    budget[0] -= 1
    if budget[0] < 0 or len(path) > _MAX_SEARCH_DEPTH:
        return None
    head = f"{prefix}/" if prefix else ""
    storage = _storage(store, prefix, None, path, parent) or _storage(store, f"{head}storage", prefix, path, parent)
    if storage is not None:
        return storage
    if store.info(f"{head}{META}") is not None:
        return Node(store, prefix, path=path, parent=parent)
    collection = Collection(store, prefix, path=path, parent=parent)
    below = [
        _find(store, head + name, (*path, name), collection, budget)
        for name in store.listing(prefix).levels
        if not name.startswith(".") and not _loops(store, head + name)
    ]
    collection.found = tuple(node for node in below if node is not None)
    return collection if collection.found else None


def _loops(store: Store, name: str) -> bool:
    check = getattr(store, "link_problem", None)
    found = check(name) if check is not None else None
    return found is not None and found[0] == "link"


def _storage(
    store: Store, prefix: str, dump: str | None, path: tuple[str, ...], parent: Node | None
) -> ReplayBuffer | None:
    """The replay buffer whose storage is at `prefix`."""
    head = f"{prefix}/" if prefix else ""
    has_metadata = store.info(head + torchrl.STORAGE_META) is not None
    if store.info(head + META) is not None:
        beside = f"{dump}/" if dump else ""
        if has_metadata or (dump is not None and store.info(f"{beside}buffer_metadata.json") is not None):
            return ReplayBuffer(store, prefix, dump, path=path, parent=parent)
        return None
    if not has_metadata:
        return None
    try:
        metadata = torchrl.parse_storage(store.read(head + torchrl.STORAGE_META, _META_LIMIT), prefix)
    except DecodeError:
        return None
    return PytreeBuffer(store, prefix, dump, path=path, parent=parent) if metadata.is_pytree else None

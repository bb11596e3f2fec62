"""This module knows a node of the tree: what a level of a save is and which nodes stand below it.

It reads a level when it is asked for, never earlier, and it does not know how values are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tdview.errors import DecodeError, KeyMissingError, Problem, ReadOnlyError, TdviewError, shown
from tdview.format.classes import Kind
from tdview.format.keys import file_names
from tdview.format.meta import META_LIMIT, LeafEntry, LevelMeta, parse_level
from tdview.format.payload import META
from tdview.format.view_index import parse_index
from tdview.storage.store import Store
from tdview.tree.transform import Indexed, Transform, Viewed, stacked_shape

if TYPE_CHECKING:
    import pandas

    from tdview.tree.fill import Fill
    from tdview.tree.leaf import Leaf

__all__ = ["MAX_DEPTH", "NON_TENSOR", "Node", "failing", "link_problem"]

MAX_DEPTH = 100
"""Levels are followed this deep; the deepest real saves have a few dozen."""

_MAX_VIEWS = 16
"""Views of views are followed this deep; each costs a few calls on the stack."""

_KIND_OF_ENTRY: dict[str, Kind] = {
    "NonTensorData": "non_tensor",
    "NonTensorStack": "non_tensor_stack",
    "LazyStackedTensorDict": "lazy_stack",
    "TensorDict": "tensordict",
    "TensorDictParams": "tensordict",
    "MetaData": "non_tensor",
}
"""The kind of a level that was not read, by what the level above calls it."""

NON_TENSOR: frozenset[Kind] = frozenset({"non_tensor", "non_tensor_stack"})


class Node:
    """A level of a saved tensordict, or a value in it. Its attributes never raise for damage: they carry problems.

    ``node[key]``, ``iter(node)``, ``len(node)`` and ``key in node`` work on the entries; a nested key is a tuple.
    A tensorclass's fields and a view's logical entries stand directly under it; the members of a lazy stack have
    the keys ``"0"``, ``"1"``, ….
    """

    is_leaf = False

    def __init__(
        self, store: Store, prefix: str, *, path: tuple[str, ...] = (), parent: Node | None = None, type_name: str = ""
    ) -> None:
        self.store = store
        self.prefix = prefix
        """The level inside the store, ``""`` for its top."""
        self.path = path
        """Nested key from the root of the tree, ``()`` for the root."""
        self.parent = parent
        self.type_name = type_name
        """What the entry in the level above calls it."""

    # -- what the level says ------------------------------------------------------------------------------------

    @cached_property
    def _read(self) -> tuple[LevelMeta | None, tuple[Problem, ...]]:
        """The meta.json of the level, and the problems of reading it."""
        name = self.file(META)
        where = self.where(META)
        if len(self.path) > MAX_DEPTH or self.prefix.count("/") > 2 * MAX_DEPTH:
            return None, (self.problem("depth", f"{where}: levels are nested more than {MAX_DEPTH} deep"),)
        if (linked := link_problem(self.store, self.prefix)) is not None:
            code, message = linked
            if code == "link":
                return None, (self.problem(code, message),)
        try:
            data = self.store.read(name, META_LIMIT)
            meta = parse_level(data, where, has_tensordict=self.store.is_level(self.file("_tensordict")))
        except TdviewError as error:
            return None, self._unreadable(error)
        return meta, (self.problem(linked[0], linked[1], "warning"),) if linked is not None else ()

    def _unreadable(self, error: TdviewError) -> tuple[Problem, ...]:
        if isinstance(error, DecodeError) and error.problems:
            return tuple(failing(self.path, p) for p in error.problems)
        if isinstance(error, ReadOnlyError):
            return (self.problem("unreadable", f"{self.where(META)}: it may not be read; check its permissions"),)
        if not self.store.is_level(self.prefix):
            message = f"{self.where()}: the level {shown(self.key)} is missing; restore it, or remove its entry"
            return (self.problem("missing_level", message),)
        message = f"{self.where(META)}: no meta.json, so the entries are not known; was the save interrupted?"
        return (self.problem("missing_meta", message),)

    @property
    def meta(self) -> LevelMeta | None:
        """What the meta.json says, None where it cannot be read. One small file is read at the first call."""
        return self._read[0]

    @property
    def key(self) -> str:
        """Last part of the nested key, ``""`` for the root."""
        return self.path[-1] if self.path else ""

    @property
    def root(self) -> Node:
        """The node that `scan` gave."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def kind(self) -> Kind:
        """What it is; see `tdview.format.classes.Kind`.

        Until the level itself is read, the entry in the level above tells: listing a level reads no other.
        """
        if "_read" not in self.__dict__ and self.type_name in _KIND_OF_ENTRY:
            return _KIND_OF_ENTRY[self.type_name]
        return self._stored_kind

    @property
    def _stored_kind(self) -> Kind:
        """What its meta.json says it is; a replay buffer's storage is one of these too."""
        if self.meta is not None:
            return self.meta.kind
        return _KIND_OF_ENTRY.get(self.type_name, "tensordict")

    @property
    def class_name(self) -> str:
        """Name of the saved class without its module; of a tensordict that was saved as parameters, that name."""
        if self.meta is not None and self.meta.class_parts is not None:
            name = self.meta.class_parts[1]
            return self.type_name if name == "TensorDict" and self.type_name.endswith("Params") else name
        return self.type_name

    @property
    def format_version(self) -> int | None:
        """Version of the format in which the level was written; of a tensorclass that of its tensordict."""
        if self._stored_kind == "tensorclass" and self._tensordict is not None:
            return self._tensordict.format_version
        return self.meta.version if self.meta is not None else None

    @cached_property
    def batch_size(self) -> tuple[int, ...] | None:
        """The batch size; None where it cannot be known. Of a lazy stack or view it is computed from its members."""
        meta = self.meta
        if meta is None:
            return None
        if meta.kind == "tensordict":
            return meta.batch_size
        if meta.kind == "tensorclass":
            return self._tensordict.batch_size if self._tensordict is not None else None
        if meta.kind == "lazy_stack":
            return self._stacked_batch()
        if meta.kind in ("lazy_view", "sub_tensordict"):
            return self._derived_batch()
        above = self.parent.batch_size if self.parent is not None else ()
        if meta.kind == "non_tensor_stack":
            return _list_shape(meta.fields.get("data"), above)
        return above

    @property
    def names(self) -> tuple[str | None, ...] | None:
        """Names of the batch dims, None where there are none."""
        meta = self.meta
        if meta is None:
            return None
        if meta.kind == "tensorclass":
            return self._tensordict.names if self._tensordict is not None else None
        if meta.kind == "lazy_stack":
            return self._stacked_names()
        if meta.names is None and isinstance(meta.entries.get("_names"), LeafEntry):
            return self._names_from_below()
        return meta.names

    @property
    def device(self) -> str | None:
        """Device that the save names; None where it names none."""
        if self._stored_kind == "tensorclass":
            return self._tensordict.device if self._tensordict is not None else None
        return self.meta.device if self.meta is not None else None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with this level itself, not with what stands below. Lists the level's files once."""
        return self._problems

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        from tdview.tree.checks import level_problems

        meta, reading = self._read
        own = (failing(self.path, problem) for problem in meta.problems) if meta is not None else ()
        return (*reading, *own, *level_problems(self))

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves below. Walks the whole tree below at the first call."""
        return self._nbytes

    @cached_property
    def _nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.leaves())

    @cached_property
    def fill(self) -> Fill | None:
        """Which rows of a replay buffer were written, and their time order; None for anything else."""
        from tdview.tree.fill import fill_of

        return fill_of(self)

    @property
    def side_files(self) -> tuple[str, ...]:
        """Names of torchrl's files beside the tensordict of a replay buffer; listed, never opened as pickles."""
        return ()

    # -- values -------------------------------------------------------------------------------------------------

    @property
    def value(self) -> Any:
        """The value of a non-tensor. A pickle is never executed: see `tdview.format.pickles`.

        Raises:
            PickleRefusedError: the value is pickled and not on the allow-list.
            DecodeError: the value is missing or damaged.
            KeyMissingError: this is no non-tensor.
        """
        from tdview.tree.non_tensor import value_of

        return value_of(self)

    @property
    def has_pickle(self) -> bool:
        """Whether the value, or a field of the tensorclass, is stored as a pickle."""
        files = self.store.listing(self.prefix).files
        return "other.pickle" in files or "pickle.pkl" in files

    def frame(
        self, rows: slice | Sequence[int] | None = None, keys: Sequence[str | tuple[str, ...]] | None = None
    ) -> pandas.DataFrame:
        """One row per transition, one column per key and element.

        Args:
            rows: rows of the first batch dim; None for all.
            keys: nested keys of the leaves to show; None for all.
        """
        from tdview.tree.frame import frame_of_node

        return frame_of_node(self, rows, keys)

    # -- below --------------------------------------------------------------------------------------------------

    def children(self) -> tuple[Node, ...]:
        """The nodes directly below. Reads this level's meta.json and nothing else."""
        return self._children

    @cached_property
    def _children(self) -> tuple[Node, ...]:
        return tuple(self._by_key.values())

    @cached_property
    def _by_key(self) -> dict[str, Node]:
        return {node.key: node for node in self._make_children()}

    def _make_children(self) -> Iterator[Node]:
        kind = self._stored_kind
        if self.meta is None or kind in NON_TENSOR:
            return
        if kind == "tensordict":
            yield from self._entries(self.meta)
        elif kind == "lazy_stack":
            for number in self.members:
                yield Node(self.store, self.file(str(number)), path=(*self.path, str(number)), parent=self)
        elif kind == "tensorclass":
            yield from self._fields()
        elif (source := self.source) is not None and self._transform is not None:
            from tdview.tree.derived import derived_children

            yield from derived_children(source, self._transform, self)

    def _entries(self, meta: LevelMeta) -> Iterator[Node]:
        from tdview.tree.leaf import Leaf

        for key, entry in meta.entries.items():
            path = (*self.path, key)
            if isinstance(entry, LeafEntry):
                yield Leaf(self.store, self.prefix, path=path, parent=self, entry=entry)
            else:
                yield Node(self.store, self._level_name(key), path=path, parent=self, type_name=entry.type_name)
        for name in self.unnamed_levels:
            yield Node(self.store, self.file(name), path=(*self.path, name), parent=self)

    @cached_property
    def unnamed_levels(self) -> tuple[str, ...]:
        """Nested levels that have no entry, as tensordict before 0.4 saved them under their unencoded keys."""
        if self.meta is None or not self.meta.names_no_levels:
            return ()
        levels = self.store.listing(self.prefix).levels
        return tuple(name for name in levels if self.store.info(self.file(f"{name}/{META}")) is not None)

    def _level_name(self, key: str) -> str:
        names = file_names(key, level=True, paths=self.keys_are_paths)
        for name in names[1:]:
            if not self.store.is_level(self.file(names[0])) and self.store.is_level(self.file(name)):
                return self.file(name)
        return self.file(names[0])

    def _fields(self) -> Iterator[Node]:
        from tdview.tree.non_tensor import field_nodes

        seen = set()
        if self._tensordict is not None:
            for node in self._tensordict._make_children():
                seen.add(node.key)
                node.parent = self
                yield node
        for node in field_nodes(self):
            if node.key not in seen:
                yield node

    @property
    def keys_are_paths(self) -> bool:
        """Whether the level may be of a tensordict that used keys as paths: those before 0.13 wrote version 0."""
        return self.store.form == "directory" and self.meta is not None and self.meta.version in (0, None)

    @cached_property
    def _tensordict(self) -> Node | None:
        """The tensordict inside a tensorclass; its entries are shown as the tensorclass's own."""
        name = self.file("_tensordict")
        return Node(self.store, name, path=self.path, parent=self.parent) if self.store.is_level(name) else None

    @cached_property
    def members(self) -> tuple[int, ...]:
        """Numbers of the members of a lazy stack, ascending; also those behind a gap."""
        levels = (name for name in self.store.listing(self.prefix).levels if name.isascii() and name.isdigit())
        return tuple(sorted(int(name) for name in levels if len(name) < 10 and str(int(name)) == name))

    @property
    def stack_dim(self) -> int | None:
        """The stack dim of a lazy stack, counted from the first batch dim; None elsewhere or where it is damaged."""
        dim = self.meta.fields.get("stack_dim") if self.meta is not None else None
        if type(dim) is not int or self._stored_kind not in ("lazy_stack", "non_tensor_stack"):
            return None
        if dim < 0 and self._stored_kind == "lazy_stack" and self.children():
            dim += len(self.children()[0].batch_size or ()) + 1
        return dim

    def _stacked_batch(self) -> tuple[int, ...] | None:
        dim = self.stack_dim
        sizes = [node.batch_size for node in self.children()]
        if dim is None or any(size is None for size in sizes):
            return None
        return stacked_shape([size or () for size in sizes], dim) if sizes else (0,)

    def _stacked_names(self) -> tuple[str | None, ...] | None:
        dim, size = self.stack_dim, self.batch_size
        if dim is None or size is None or self.meta is None:
            return None
        below = self.children()[0].names if self.children() else None
        names: list[str | None] = list(below) if below is not None else [None] * (len(size) - 1)
        own = self.meta.fields.get("stack_dim_name")
        names.insert(dim, own if isinstance(own, str) else None)
        return tuple(names) if any(name is not None for name in names) else None

    def _names_from_below(self) -> tuple[str | None, ...] | None:
        """A key ``_names`` hides the names of a tensordict; a named nested tensordict still has them."""
        for node in self.children():
            if not node.is_leaf and node.kind == "tensordict" and node.names and self.batch_size is not None:
                return node.names[: len(self.batch_size)]
        return None

    # -- views --------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Node | None:
        """The tensordict that a lazy view or sub-tensordict was made of; None elsewhere."""
        if self._stored_kind not in ("lazy_view", "sub_tensordict") or self.prefix.count("_source") >= _MAX_VIEWS:
            return None
        return Node(self.store, self.file("_source"), path=self.path, parent=self.parent)

    @property
    def _transform(self) -> Transform | None:
        return self._transform_or_problem[0]

    @cached_property
    def _transform_or_problem(self) -> tuple[Transform | None, Problem | None]:
        source, meta, where = self.source, self.meta, self.where(META)
        if source is None or meta is None or source.batch_size is None:
            return None, None
        try:
            transform: Transform
            if meta.kind == "sub_tensordict":
                if "index" not in meta.fields:
                    raise DecodeError(f'{where}: a sub-tensordict needs an "index"')
                transform = Indexed(parse_index(meta.fields["index"], where), where)
            else:
                op, kwargs = meta.fields.get("custom_op"), meta.fields.get("custom_op_kwargs")
                if not isinstance(op, str) or not isinstance(kwargs, dict):
                    raise DecodeError(f'{where}: a lazy view needs "custom_op" and "custom_op_kwargs"')
                transform = Viewed(op, kwargs, len(source.batch_size), where)
            transform.shape(source.batch_size)
        except DecodeError as error:
            return None, self.problem("index", str(error))
        return transform, None

    def _derived_batch(self) -> tuple[int, ...] | None:
        source = self.source
        if source is None or source.batch_size is None or self._transform is None:
            return None
        return self._transform.shape(source.batch_size)

    # -- the container protocol ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]  # sound: whatever is no key is refused by it
        except (KeyMissingError, TypeError):
            return False
        return True

    def __getitem__(self, key: str | tuple[str, ...]) -> Node:
        node: Node = self
        for part in key if isinstance(key, tuple) else (key,):
            found = node._by_key.get(part)
            if found is None:
                raise KeyMissingError(self._no_such_key(node, part))
            node = found
        return node

    def _no_such_key(self, node: Node, part: object) -> str:
        known = ", ".join(shown(key, 30) for key in list(node)[:8])
        more = ", …" if len(node) > 8 else ""
        return f"{node.where()}: there is no entry {shown(part)}; the entries are {known or 'none'}{more}"

    def walk(self) -> Iterator[Node]:
        """This node and every node below, depth first in the order of the save. Reads each level once."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            if not node.is_leaf:
                stack.extend(reversed(node.children()))

    def leaves(self) -> Iterator[Leaf]:
        """Every tensor below, depth first in the order of the save. Reads each level once, and no payload."""
        for node in self.walk():
            if node.is_leaf:
                yield node  # type: ignore[misc]  # sound: only a Leaf says is_leaf

    # -- text ---------------------------------------------------------------------------------------------------

    def file(self, name: str) -> str:
        """A file of this level by its name inside the store."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def where(self, name: str = "") -> str:
        """This level, or a file in it, for messages; bounded and without control characters."""
        inside = self.file(name) if name else self.prefix
        text = f"{self.store.label}/{inside}" if inside else self.store.label
        text = text if text.isprintable() else text.encode("unicode_escape").decode()
        return text if len(text) <= 200 else f"{text[:80]}…{text[-119:]}"

    def problem(self, code: str, message: str, severity: Any = "error") -> Problem:
        """A problem of this node."""
        return Problem(code, message, severity, self.path)

    def __repr__(self) -> str:
        from tdview.tree.text import one_line

        return f"<{one_line(self)}>"

    def __str__(self) -> str:
        from tdview.tree.text import text_tree

        return text_tree(self)


def failing(path: tuple[str, ...], problem: Problem) -> Problem:
    """`problem` with its key seen from the root of the tree."""
    return Problem(problem.code, problem.message, problem.severity, (*path, *problem.key), problem.rows)


def link_problem(store: Store, name: str) -> tuple[str, str] | None:
    check = getattr(store, "link_problem", None)
    return check(name) if check is not None else None


def _list_shape(data: Any, batch: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The batch size of a non-tensor stack: as deep as the batch of its parent, at least one dim."""
    shape: list[int] = []
    limit = max(1, len(batch or ()))
    while isinstance(data, list) and len(shape) < limit:
        shape.append(len(data))
        data = data[0] if data else None
    return tuple(shape) if shape else batch

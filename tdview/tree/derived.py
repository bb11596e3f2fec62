"""This module knows the nodes that a lazy view or sub-tensordict shows: stored levels with other shapes.

It does not know how a stored level is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tdview.errors import Problem
from tdview.format.classes import Kind
from tdview.format.meta import LevelMeta
from tdview.tree.leaf import Leaf
from tdview.tree.node import NON_TENSOR, Node
from tdview.tree.transform import Transform, stacked_shape

__all__ = ["DerivedNode", "StackedNode", "derived_children", "stacked_children"]


class DerivedNode(Node):
    """A level seen through a lazy view or sub-tensordict: its entries have the logical shapes."""

    def __init__(self, source: Node, transform: Transform, *, path: tuple[str, ...], parent: Node) -> None:
        super().__init__(source.store, source.prefix, path=path, parent=parent, type_name=source.type_name)
        self._behind = source
        self._step = transform

    @property
    def meta(self) -> LevelMeta | None:
        return self._behind.meta

    @property
    def kind(self) -> Kind:
        return self._behind.kind

    @cached_property
    def batch_size(self) -> tuple[int, ...] | None:
        size = self._behind.batch_size
        return self._step.shape(size) if size is not None else None

    @property
    def names(self) -> tuple[str | None, ...] | None:
        return None

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        return tuple(Problem(p.code, p.message, p.severity, self.path, p.rows) for p in self._behind.problems)

    def _make_children(self) -> Iterator[Node]:
        if self.kind not in NON_TENSOR:
            yield from derived_children(self._behind, self._step, self)

    @property
    def value(self) -> Any:
        return self._behind.value


class StackedNode(Node):
    """The stack of the same entry of every member of a lazy stack, as a view of the stack shows it."""

    def __init__(self, parts: Sequence[Node], dim: int, *, path: tuple[str, ...], parent: Node) -> None:
        super().__init__(parts[0].store, parts[0].prefix, path=path, parent=parent, type_name=parts[0].type_name)
        self._parts = tuple(parts)
        self._dim = dim

    @property
    def meta(self) -> LevelMeta | None:
        return self._parts[0].meta

    @cached_property
    def batch_size(self) -> tuple[int, ...] | None:
        return stacked_shape([part.batch_size or () for part in self._parts], self._dim)

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        return tuple(problem for part in self._parts for problem in part.problems)

    def _make_children(self) -> Iterator[Node]:
        if self.kind not in NON_TENSOR:
            yield from stacked_children(self._parts, self._dim, self)

    @property
    def value(self) -> Any:
        return [part.value for part in self._parts]


def stacked_children(parts: Sequence[Node], dim: int, parent: Node) -> Iterator[Node]:
    """The entries that all members have, each as the stack of the members' entries."""
    for key in parts[0] if parts else ():
        same = [part._by_key[key] for part in parts if key in part._by_key]
        path = (*parent.path, key)
        if len(same) != len(parts):
            continue
        if all(node.is_leaf for node in same):
            yield Leaf.stacked([n for n in same if isinstance(n, Leaf)], dim, path=path, parent=parent)
        elif not any(node.is_leaf for node in same):
            yield StackedNode(same, dim, path=path, parent=parent)


def derived_children(source: Node, transform: Transform, parent: Node) -> Iterator[Node]:
    """The entries of `source` as seen through `transform`."""
    below: Iterator[Node] = iter(source.children())
    if source.kind == "lazy_stack":
        below = stacked_children(source.children(), source.stack_dim or 0, source)
    for node in below:
        path = (*parent.path, node.key)
        if isinstance(node, Leaf):
            yield node.through(transform, path=path, parent=parent)
        else:
            yield DerivedNode(node, transform, path=path, parent=parent)

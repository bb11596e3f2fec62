"""This module knows how to generate what a save can hold: odd keys, all dtypes, empty shapes, every kind of node.

It does not know what is tested with it. Needs hypothesis and torch.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tdview.containers.lazy_stack import LazyStackedTensorDict
from tdview.containers.memory import empty
from tdview.containers.non_tensor import NonTensorData, NonTensorStack
from tdview.containers.pending import nested_of
from tdview.containers.tensorclass import UnknownTensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.views import LazyView, SubTensorDict
from tdview.format.dtypes import DTYPES
from tdview.format.keys import encode_key
from tdview.format.versions import RESERVED_KEYS

__all__ = [
    "batch_sizes",
    "dtypes",
    "json_values",
    "keys",
    "leaves",
    "nested_leaves",
    "pickled_values",
    "stacks",
    "tensorclasses",
    "tensordicts",
    "views",
]

_ODD_KEYS = (
    "", ".", "..", "a", "b", "obs", "a.b", "a b", "a/b", "a\\b", "../x", "%", "%41", "a%2Fb", "x:y|*?<>\"",
    "\x01\x7f\n", "é", "日本", "\U0001f600", "meta.json", "other.pickle", "0", "1", "_source", "_tensordict", "data",
    "stack_dim", "CON", "a.", " ", "-", "__class__", "keys", "_metadata",
)  # fmt: skip


_TEXT = st.characters(exclude_categories=["Cs"])
"""Characters that UTF-8 can hold: all but lone surrogates."""


def keys() -> SearchStrategy[str]:
    """Keys of one level, biased to those that a file name cannot hold."""
    text = st.text(_TEXT, max_size=8)
    return st.one_of(st.sampled_from(_ODD_KEYS), text).filter(lambda key: key not in RESERVED_KEYS)


@functools.cache
def _torch_dtypes(loadable: bool) -> tuple[torch.dtype, ...]:
    rows = (row for row in DTYPES.values() if row.kind != "quantized" and (row.loadable or not loadable))
    found = (getattr(torch, row.short, None) for row in rows)
    return tuple(dtype for dtype in found if isinstance(dtype, torch.dtype))


def dtypes(*, loadable: bool = False) -> SearchStrategy[torch.dtype]:
    """Dtypes that can be saved; with `loadable`, those that tensordict itself can read back."""
    return st.sampled_from(_torch_dtypes(loadable))


def batch_sizes(max_dims: int = 2) -> SearchStrategy[torch.Size]:
    """Batch sizes, ``()`` and sizes of 0 and 1 included."""
    sizes = st.lists(st.sampled_from((0, 1, 2, 3)), max_size=max_dims)
    return st.one_of(st.just([3]), sizes).map(torch.Size)


@st.composite
def leaves(draw: DrawFn, batch: torch.Size = torch.Size(), *, loadable: bool = False) -> torch.Tensor:  # noqa: B008
    """Tensors ``[*batch, …]`` of any bits, some of them not contiguous."""
    shape = [*batch, *draw(st.lists(st.sampled_from((0, 1, 2, 3)), max_size=2))]
    dtype = draw(dtypes(loadable=loadable))
    count = math.prod(shape)
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    octets = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        octets &= 1
    if count == 0:
        return empty(torch.Size(shape), dtype)
    tensor = octets.view(dtype).view(shape)
    if len(shape) > len(batch) + 1 and dtype.itemsize > 1 and draw(st.booleans()):
        order = [*range(len(batch)), *reversed(range(len(batch), len(shape)))]
        tensor = tensor.permute(order)
    return tensor


@st.composite
def nested_leaves(draw: DrawFn, rows: int) -> torch.Tensor:
    """Strided nested tensors of `rows` parts, none of them without elements."""
    ndim = draw(st.integers(1, 2))
    row = st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim)
    sizes = torch.tensor(draw(st.lists(row, min_size=rows, max_size=rows)))
    count = int(sizes.prod(1).sum())
    dtype = draw(st.sampled_from((torch.float32, torch.int64, torch.uint8)))
    return nested_of(torch.arange(count).to(dtype), sizes)


def json_values() -> SearchStrategy[Any]:
    """Values that JSON holds and gives back as they are."""
    numbers = st.one_of(st.booleans(), st.integers(-(2**80), 2**80), st.floats())
    scalars = st.one_of(st.none(), numbers, st.text(_TEXT, max_size=6))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
        max_leaves=6,
    )


def pickled_values() -> SearchStrategy[Any]:
    """Values that need a pickle, of the kinds that tdview decodes without executing it."""
    return st.sampled_from(
        [{1, 2}, b"\x00\xff", 1 + 2j, frozenset({"a"}), range(3), dict, list, tuple, OrderedDict, {1: "x"}, {"k": {3}},
         PurePosixPath("a/b"), bytearray(b"x"), slice(1, 2)]
    )  # fmt: skip


def _names(batch: torch.Size) -> SearchStrategy[list[str | None] | None]:
    some = st.lists(st.sampled_from(("time", "env", "x", None)), min_size=len(batch), max_size=len(batch))
    valid = some.filter(lambda names: len({n for n in names if n}) == len([n for n in names if n]))
    return st.one_of(st.none(), st.none(), valid)


def _confusable(key: str, others: Iterable[str]) -> bool:
    """Whether the file of one key is the unencoded name of another: tensordict then reads the wrong one."""
    return any(encode_key(other) == key or encode_key(key) == other for other in others if other != key)


def _collide(names: list[tuple[str, str]]) -> bool:
    """Whether entries of these keys and kinds would ask for the same file."""
    files: list[str] = ["meta.json"]
    for key, kind in names:
        name = encode_key(key)
        files += {"level": [name], "leaf": [f"{name}.memmap"]}.get(kind, [f"{name}.memmap", f"{name}.shape.memmap"])
    return len(set(files)) < len(files) or any(len(name.encode()) > 240 for name in files)


@st.composite
def tensordicts(
    draw: DrawFn,
    batch: torch.Size | None = None,
    *,
    depth: int = 2,
    loadable: bool = False,
    pickles: bool = True,
    kinds: frozenset[str] = frozenset({"leaf", "nested", "td", "stack", "value", "values"}),
    named: bool = True,
) -> TensorDict:
    """Tensordicts with entries of the given kinds: leaves, nested tensors, levels, lazy stacks, non-tensor data.

    Args:
        batch: batch size; drawn if None.
        depth: levels below this one at most.
        loadable: only what tensordict can read back: not every dtype, and no two keys that it confuses.
        pickles: also values that JSON cannot hold.
        kinds: which kinds of entries there may be.
        named: whether there may be dim names. Nested levels take those of the top one, as in a save.
    """
    size = draw(batch_sizes()) if batch is None else batch
    td = TensorDict(batch_size=size)
    used: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 4))):
        key = draw(keys())
        kind = draw(st.sampled_from(sorted(kinds)))
        if kind in ("td", "stack") and depth == 0:
            kind = "leaf"
        if (kind == "nested" and (len(size) != 1 or not size[0])) or (kind == "values" and (not size or 0 in size)):
            kind = "leaf"
        place = {"leaf": "leaf", "nested": "nested"}.get(kind, "level")
        if key in td.keys() or _collide([*used, (key, place)]):  # noqa: SIM118
            continue
        if loadable and _confusable(key, [name for name, _ in used]):
            continue
        used.append((key, place))
        td._set(key, draw(_entry(kind, size, depth, loadable, pickles, kinds)))
    if named:
        td.names = draw(_names(size))
    return td


@st.composite
def _entry(
    draw: DrawFn, kind: str, size: torch.Size, depth: int, loadable: bool, pickles: bool, kinds: frozenset[str]
) -> Any:
    if kind == "leaf":
        return draw(leaves(size, loadable=loadable))
    if kind == "nested":
        return draw(nested_leaves(size[0]))
    if kind == "td":
        inner = torch.Size([*size, *draw(st.lists(st.sampled_from((1, 2)), max_size=1))])
        return draw(tensordicts(inner, depth=depth - 1, loadable=loadable, pickles=pickles, kinds=kinds, named=False))
    if kind == "stack":
        return draw(stacks(size, depth=depth - 1, loadable=loadable, pickles=pickles, kinds=kinds, named=False))
    values = st.one_of(json_values(), pickled_values()) if pickles else json_values()
    if kind == "value":
        return NonTensorData(draw(values), batch_size=size)
    item, count = st.one_of(st.text("ab", max_size=2), st.integers(0, 3)), size.numel()
    return NonTensorStack.from_list(_shaped(draw(st.lists(item, min_size=count, max_size=count)), list(size)))


def _shaped(values: list[Any], shape: list[int]) -> list[Any]:
    if len(shape) == 1:
        return values
    step = len(values) // shape[0]
    return [_shaped(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


@st.composite
def stacks(
    draw: DrawFn,
    batch: torch.Size | None = None,
    *,
    depth: int = 1,
    loadable: bool = False,
    pickles: bool = True,
    kinds: frozenset[str] = frozenset({"leaf", "value"}),
    named: bool = True,
) -> LazyStackedTensorDict:
    """Lazy stacks whose members may have different keys and shapes; see `tensordicts` for the options."""
    size = draw(batch_sizes()) if batch is None else batch
    if not size or 0 in size:  # the level above has no dimension to stack along, or no members
        size = torch.Size([*size, 2])
        dim = len(size) - 1
    else:
        dim = draw(st.integers(0, len(size) - 1))
    inner = torch.Size([n for place, n in enumerate(size) if place != dim])
    member = tensordicts(inner, depth=depth, loadable=loadable, pickles=pickles, kinds=kinds, named=False)
    members = [draw(member) for _ in range(size[dim])]
    name = draw(st.sampled_from((None, "stack"))) if named else None
    return LazyStackedTensorDict(*members, stack_dim=dim, stack_dim_name=name)


@st.composite
def tensorclasses(draw: DrawFn, batch: torch.Size | None = None) -> UnknownTensorClass:
    """Tensorclasses of a class that is nowhere imported."""
    td = draw(tensordicts(batch, depth=1))
    return UnknownTensorClass._wrap(td, "<class 'lost_module.Thing'>")


@st.composite
def views(draw: DrawFn) -> SubTensorDict | LazyView:
    """Sub-tensordicts and lazy views of dense tensordicts."""
    source = draw(tensordicts(torch.Size([3, 2]), depth=1, kinds=frozenset({"leaf", "td"})))
    tensors = (torch.tensor([2, 0]), torch.tensor([True, False, True]))
    indices = (0, -1, slice(1, 3), (slice(None), 1), (..., 0), None, *tensors)
    ops: tuple[tuple[str, dict[str, Any]], ...] = (
        ("permute", {"dims": [1, 0]}), ("transpose", {"dim0": 0, "dim1": 1}), ("view", {"size": [6]}),
        ("unsqueeze", {"dim": 1}), ("unsqueeze", {"dim": 0}), ("unsqueeze", {"dim": 2}),
    )  # fmt: skip
    if draw(st.booleans()):
        return SubTensorDict(source, draw(st.sampled_from(indices)))
    op, kwargs = draw(st.sampled_from(ops))
    if op == "view" and not all(leaf.is_contiguous() for leaf in source.values(True, True)):
        op, kwargs = "unsqueeze", {"dim": 0}
    return LazyView(source, op, kwargs)

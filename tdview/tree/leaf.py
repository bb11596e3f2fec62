"""This module knows a leaf: a tensor of a save, its payload and its logical value.

It does not know how a level is read, nor how the bits of a dtype become numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tdview.errors import DecodeError, Problem
from tdview.format.classes import Kind
from tdview.format.dtypes import DTYPES, Dtype
from tdview.format.keys import file_names
from tdview.format.meta import LeafEntry, LevelMeta
from tdview.format.payload import payload_file, payload_nbytes, shape_file
from tdview.storage.store import FileInfo, Store
from tdview.tree.node import Node
from tdview.tree.transform import Transform, stacked_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pandas
    import torch
    from matplotlib.axes import Axes

    from tdview.tree.plot import PlotKind

__all__ = ["Leaf"]

_MAX_COMPONENTS = 10_000_000
_VIEWED = 64 << 20


class Leaf(Node):
    """A tensor. Nothing of its payload is read until a value is asked for."""

    is_leaf = True

    def __init__(
        self, store: Store, prefix: str, *, path: tuple[str, ...], parent: Node, entry: LeafEntry, file_key: str = ""
    ) -> None:
        super().__init__(store, prefix, path=path, parent=parent)
        self.entry = entry
        """What the meta.json says of it: the stored shape, before any view."""
        self._file_key = file_key or path[-1]
        self._steps: tuple[Transform, ...] = ()
        self._parts: tuple[Leaf, ...] = ()
        self._dim = 0

    @classmethod
    def stacked(cls, parts: Sequence[Leaf], dim: int, *, path: tuple[str, ...], parent: Node) -> Leaf:
        """The leaf that stacks `parts` along `dim`, as a view of a lazy stack shows it."""
        first = parts[0]
        leaf = cls(first.store, first.prefix, path=path, parent=parent, entry=first.entry)
        leaf._parts, leaf._dim = tuple(parts), dim
        return leaf

    def through(self, step: Transform, *, path: tuple[str, ...], parent: Node) -> Leaf:
        """This leaf seen through one more lazy view."""
        leaf = Leaf(self.store, self.prefix, path=path, parent=parent, entry=self.entry, file_key=self._file_key)
        leaf._steps, leaf._parts, leaf._dim = (*self._steps, step), self._parts, self._dim
        return leaf

    # -- what is known without reading the payload ----------------------------------------------------------------

    @property
    def meta(self) -> LevelMeta | None:
        return None

    @property
    def kind(self) -> Kind:
        return "leaf"

    @property
    def class_name(self) -> str:
        return "Tensor"

    @property
    def dtype(self) -> str:
        """As in the file: ``"torch.float32"``."""
        return self.entry.dtype

    @property
    def dtype_row(self) -> Dtype | None:
        """The row of the dtype table, None for an unknown dtype."""
        return DTYPES.get(self.entry.dtype)

    @property
    def device(self) -> str | None:
        return self.entry.device

    @property
    def is_nested(self) -> bool:
        """Whether it is a strided nested tensor: n tensors of different shapes."""
        return self.entry.is_nested

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The logical shape, after any view; of a nested tensor ``(n, …)`` with -1 where the sizes differ."""
        if self.is_nested:
            return self._nested_shape()
        return self._logical_shape()[0]

    def _logical_shape(self) -> tuple[tuple[int, ...], Problem | None]:
        shape: tuple[int, ...] | None = self.entry.shape
        if self._parts:
            shape = stacked_shape([part.shape for part in self._parts], self._dim)
            if shape is None:
                message = f"{self.where()}: the members of the stack have different shapes, so they cannot be stacked"
                return (), self.problem("shape", message)
        try:
            for step in self._steps:
                shape = step.shape(shape or ())
        except DecodeError as error:
            return (), self.problem("index", str(error))
        return shape or (), None

    @property
    def batch_size(self) -> tuple[int, ...] | None:
        return self.parent.batch_size if self.parent is not None else None

    @property
    def names(self) -> tuple[str | None, ...] | None:
        return self.parent.names if self.parent is not None else None

    @property
    def format_version(self) -> int | None:
        return self.parent.format_version if self.parent is not None else None

    @property
    def nbytes(self) -> int:
        """Bytes of the logical value."""
        if self.is_nested:
            return sum(self._component_sizes())
        row = self.dtype_row
        return payload_nbytes(row.itemsize, self.shape) if row is not None else 0

    @cached_property
    def file_name(self) -> str:
        """The payload's file inside the store; the encoded name where there is no file at all."""
        paths = self.parent is not None and self.parent.keys_are_paths
        names = [self.file(payload_file(name)) for name in file_names(self._file_key, paths=paths)]
        if len(names) > 1 and self.store.info(names[0]) is None and self.store.info(names[1]) is not None:
            return names[1]
        return names[0]

    @property
    def shape_file_name(self) -> str:
        """The file of the sizes of a nested tensor."""
        return self.file_name.removesuffix(payload_file("")) + shape_file("")

    @property
    def info(self) -> FileInfo | None:
        """What the store knows of the payload's file; None if there is none."""
        return self.store.info(self.file_name)

    @property
    def stored_nbytes(self) -> int:
        """Bytes that the payload's file must hold, before any view."""
        if self.is_nested:
            return sum(self._component_sizes())
        row = self.dtype_row
        return payload_nbytes(row.itemsize, self.entry.shape) if row is not None else 0

    @property
    def direct(self) -> bool:
        """Whether the file holds the logical value in C order: element i lies at ``i * itemsize``."""
        return not (self._steps or self._parts or self.is_nested or self.entry.problem)

    @property
    def writable(self) -> bool:
        """Whether elements can be written in place."""
        info = self.info
        return self.direct and self.store.writable and info is not None and info.compression == "stored"

    @property
    def compressed(self) -> bool:
        """Whether the payload, or that of a leaf that this one stacks, has to be inflated."""
        if self._parts:
            return any(part.compressed for part in self._parts)
        info = self.info
        return info is not None and info.compression != "stored"

    @property
    def streamed(self) -> bool:
        """Whether the payload is compressed and so large that it is inflated forwards, as far as it is asked for."""
        return not self._parts and self.store.streams(self.file_name, self.stored_nbytes)

    @property
    def bounded(self) -> bool:
        """Whether a few rows cost no more memory than these rows.

        False where all of it is made for every row: a view of a compressed payload, or of a stack of members.
        """
        return self.direct or self.is_nested or self.nbytes <= _VIEWED or not (self._parts or self.compressed)

    @property
    def steps(self) -> tuple[Transform, ...]:
        """The views between the stored tensor and the logical value, innermost first."""
        return self._steps

    @property
    def parts(self) -> tuple[Leaf, ...]:
        """The leaves that this one stacks; empty for a stored leaf."""
        return self._parts

    @property
    def stack_dim(self) -> int | None:
        return self._dim if self._parts else None

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        from tdview.tree.checks import leaf_problems

        return leaf_problems(self)

    @property
    def shape_problem(self) -> Problem | None:
        """What is wrong with the logical shape, None if it can be computed."""
        return None if self.is_nested else self._logical_shape()[1]

    # -- nested tensors -------------------------------------------------------------------------------------------

    def component_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors of a nested tensor. Reads the shape file.

        Raises:
            DecodeError: the shape file is missing, short, or holds sizes that cannot be.

        Spec: "Nested tensors".
        """
        return self._components

    @cached_property
    def _components(self) -> tuple[tuple[int, ...], ...]:
        rows, dims = self.entry.shape
        self._check_entry()
        if rows * max(dims, 1) > _MAX_COMPONENTS:
            raise self._damaged("shape", f"{rows} components of {dims} dims are more than are read")
        data = bytes(self.store.view(self.shape_file_name, rows * dims * 8)) if rows * dims else b""
        sizes = struct.unpack(f"<{rows * dims}q", data)
        shapes = tuple(sizes[i * dims : (i + 1) * dims] for i in range(rows))
        row = self.dtype_row
        if any(size < 0 for size in sizes) or (row and sum(map(math.prod, shapes)) * row.itemsize >= 2**62):
            raise self._damaged("shape", f"{self.shape_file_name} holds sizes that cannot be")
        return shapes

    def _component_sizes(self) -> list[int]:
        row = self.dtype_row
        try:
            return [math.prod(shape) * row.itemsize for shape in self._components] if row is not None else []
        except (DecodeError, ValueError):
            return []

    def _nested_shape(self) -> tuple[int, ...]:
        rows, dims = self.entry.shape if len(self.entry.shape) == 2 else (0, 0)
        try:
            shapes = self._components
        except (DecodeError, ValueError):
            return (rows, *(-1,) * dims)
        columns = zip(*shapes, strict=True)
        return (rows, *(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in columns))

    # -- values ---------------------------------------------------------------------------------------------------

    def raw(self) -> memoryview:
        """The payload as stored: C-order bytes, before any view. A read-only view of the mapped file.

        Raises:
            DecodeError: the entry is damaged, or the file is missing or short.
        """
        self._check_entry()
        if self._parts:
            raise self._damaged("index", "a stack of members has no payload of its own; use numpy() or tensor()")
        nbytes = self.stored_nbytes
        return self.store.view(self.file_name, nbytes) if nbytes else memoryview(b"")

    def octets(self, start: int, stop: int) -> memoryview:
        """Bytes `start` to `stop` of `raw`; of a compressed payload no more is inflated than the way there.

        Raises:
            DecodeError: as `raw`; damage of a compressed payload behind `stop` is not seen.
        """
        self._check_entry()
        nbytes = self.stored_nbytes
        return self.store.part(self.file_name, nbytes, start, stop) if start < stop else memoryview(b"")

    def rows(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows `start` to `stop` of the first dim as `numpy` gives them; a compressed payload is read by `octets`."""
        from tdview.tree.arrays import widened

        index = slice(start, stop)
        return widened(self._forward(index), self._row()) if self.direct and self.compressed else self.numpy(index)

    def flat_blocks(self, nbytes: int) -> Iterator[np.ndarray[Any, Any]]:
        """All values in the order of the payload, one-dimensional, in blocks of about `nbytes` of it.

        Of a nested tensor those of every component behind one another; a view is made as a whole first.
        """
        from tdview.tree.arrays import carrier_array, widened

        if not (self.direct or self.is_nested):
            yield self.numpy().reshape(-1)
            return
        row, end = self._row(), self.stored_nbytes
        step = max(1, nbytes // row.itemsize) * row.itemsize
        for start in range(0, end, step):
            data = self.octets(start, min(start + step, end))
            yield widened(carrier_array(data, row, (-1,)), row)

    def numpy(self, index: Any = None) -> np.ndarray[Any, Any]:
        """The logical value as numbers.

        bfloat16 and float8 are widened to float32 and complex32 to complex64, exactly; packed dtypes (float4,
        bits) come as the unsigned ints of their bytes. A nested tensor gives an object array of arrays.

        Args:
            index: what to take of it, as numpy indexes; only the pages touched are read from the disk. A large
                compressed payload is inflated as far as the index reaches, from where the last call stopped.

        Returns:
            A read-only view of the mapped file where numpy has the dtype and `index` makes a view, else a copy.

        Raises:
            DecodeError: the entry is damaged, or the file is missing or short.
            IndexError: `index` lies outside.
        """
        from tdview.tree.arrays import widened

        if self.is_nested:
            return self._nested_numpy(index)
        return widened(self.carrier(index), self._row())

    def _forward(self, index: Any) -> np.ndarray[Any, Any]:
        """What `carrier` gives of a direct leaf; no more of the payload is asked for than the index touches."""
        from tdview.tree.arrays import carrier_array, region_of

        row = self._row()
        offset, shape, inside = region_of(self.entry.shape, index)
        start, nbytes = offset * row.itemsize, math.prod(shape) * row.itemsize
        data = self.raw() if nbytes == self.stored_nbytes else self.octets(start, start + nbytes)
        found: np.ndarray[Any, Any] = carrier_array(data, row, shape)[inside]
        return found

    def _nested_numpy(self, index: Any) -> np.ndarray[Any, Any]:
        import numpy as np

        from tdview.tree.arrays import widened

        parts = np.empty(self.entry.shape[0], object)
        for i, part in enumerate(self._component_arrays()):
            parts[i] = widened(part, self._row())
        result: np.ndarray[Any, Any] = parts if index is None else parts[index]
        return result

    def _component_arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        from tdview.tree.arrays import carrier_array

        payload, row, start = self.raw(), self._row(), 0
        for shape in self.component_shapes():
            end = start + math.prod(shape) * row.itemsize
            yield carrier_array(payload[start:end], row, shape)
            start = end

    def carrier(self, index: Any = None) -> np.ndarray[Any, Any]:
        """What `numpy` gives without widening: of numpy's dtype, else of unsigned ints that hold the bits."""
        import numpy as np

        from tdview.tree.arrays import carrier_array

        self._check_value()
        if index is not None and self.direct and self.streamed:
            return self._forward(index)
        if self._parts:
            array = np.stack([part.carrier() for part in self._parts], self._dim)
        else:
            array = carrier_array(self.raw(), self._row(), self.entry.shape)
        for step in self._steps:
            array = step.apply(array, "numpy")
        return array if index is None else array[index]

    def tensor(self) -> torch.Tensor:
        """The logical value as a tensor of the saved dtype, on the CPU.

        Returns:
            A view of a copy-on-write mapping: writing into it never reaches the file; the tensors of one open
            archive share it, so that ten thousand leaves need one descriptor. A copy where the payload
            is compressed, unaligned, or reached through an index with lists. A nested tensor is a copy.

        Raises:
            DecodeError: the entry is damaged, or the file is missing or short.
            NotSupportedError: this torch lacks the dtype.
        """
        import torch

        from tdview.tree.arrays import tensor_of

        self._check_value()
        if self.is_nested:
            return self._nested_tensor()
        if self._parts:
            tensor = torch.stack([part.tensor() for part in self._parts], self._dim)
        else:
            nbytes = self.stored_nbytes
            buffer = self.store.view(self.file_name, nbytes, "copy") if nbytes else bytearray()
            tensor = tensor_of(buffer, self._row(), self.entry.shape)
        for step in self._steps:
            tensor = step.apply(tensor, "torch")
        return tensor

    def _nested_tensor(self) -> torch.Tensor:
        import warnings

        import torch

        from tdview.tree.arrays import tensor_of

        parts = [tensor_of(bytearray(part.tobytes()), self._row(), part.shape) for part in self._component_arrays()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the strided layout a prototype, once a process
            from tdview.tree.arrays import torch_dtype

            return torch.nested.nested_tensor(parts, dtype=torch_dtype(self._row()), layout=torch.strided)

    @property
    def value(self) -> Any:
        return self.numpy()

    def frame(self, rows: Any = None, keys: Any = None) -> pandas.DataFrame:
        """The value as a frame: the batch dims are the index, named by the dim names, trailing dims the columns.

        Args:
            rows: rows of the first batch dim, a slice or positions; None for all.
        """
        from tdview.tree.frame import frame_of_leaf

        return frame_of_leaf(self, rows)

    def plot(self, ax: Axes | None = None, kind: PlotKind | None = None) -> Axes:
        """Draws the value with matplotlib: a line, histogram, heat-map or image, by dtype and shape.

        Args:
            ax: where to draw; a new figure if None.
            kind: ``"line"``, ``"histogram"``, ``"heatmap"`` or ``"image"``; chosen if None.
        """
        from tdview.tree.plot import plot_leaf

        return plot_leaf(self, ax, kind)

    def _row(self) -> Dtype:
        self._check_entry()
        return DTYPES[self.entry.dtype]

    def _check_entry(self) -> None:
        if self.entry.problem is not None:
            code, message = self.entry.problem
            raise DecodeError(message, [self.problem(code, message)])

    def _check_value(self) -> None:
        self._check_entry()
        problem = self.shape_problem
        if problem is not None:
            raise DecodeError(problem.message, [problem])

    def _damaged(self, code: str, what: str) -> DecodeError:
        message = f"{self.where()}: {what}"
        return DecodeError(message, [self.problem(code, message)])

    def where(self, name: str = "") -> str:
        return super().where(name or payload_file(file_names(self._file_key)[0]))

    def _make_children(self) -> Iterator[Node]:
        return iter(())

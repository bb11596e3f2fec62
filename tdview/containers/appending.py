"""This module knows whether rows fit a saved directory, and what their bytes are: appending once, or many times.

It does not know how files grow; `operations.append` does that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from torch import Tensor

from tdview.containers.base import TensorDictBase
from tdview.containers.collection import Collection
from tdview.containers.load import load_memmap
from tdview.containers.non_tensor import NonTensorData, NonTensorStack
from tdview.containers.payload import payload_blocks
from tdview.containers.tensorclass import TensorClass
from tdview.containers.tensordict import TensorDict
from tdview.containers.values import foreign
from tdview.errors import ArgumentError, NotSupportedError, shown
from tdview.format.classes import class_kind, class_parts
from tdview.format.dtypes import DTYPES
from tdview.operations.append import Buffer, RowWriter
from tdview.operations.growth import GrowingLeaf, GrowingLevel, GrowingSave, SavedValue, read_growing
from tdview.operations.progress import Progress
from tdview.storage.lock import writer_lock

__all__ = ["Appender", "append_memmap"]

_PLAIN = ("tensordict", "TensorDict")
_KEPT_OPEN = 4096
_BUFFERED = 64 << 20
_LARGE = 8 << 20
"""An append of so many bytes is written rather than held back."""


def append_memmap(
    prefix: Path | str, rows: Any, *, allow_pickle: bool | None = False, progress: Progress | None = None
) -> None:
    """Adds rows to a saved directory, along its first batch dim. Pickles are not executed by default.

    The cost depends on the rows and on the number of leaves, not on the size of the save: nothing is mapped or read
    but the ``meta.json`` files. Everything is checked before the first byte is written; a failure leaves the old
    rows, a kill the old or the new ones, or a state that `recover_append` ends. Readers that have mapped the files
    keep the old rows. For many small appends use `Appender`.

    Args:
        prefix: the directory that `save` or `memmap` wrote, or `tensordict` did.
        rows: a tensordict or tensorclass of tdview or of tensordict, with the keys, classes, dtypes and trailing
            shapes of the save; its batch size may differ in the first dim. A non-tensor value must equal the saved
            one, which stays: one value, or a `NonTensorStack` of equal ones. A lazy stack becomes dense.
        allow_pickle: whether a saved value that is in a pickle may be unpickled to be compared. None is False.
        progress: called with bytes.

    Raises:
        ArgumentError: the rows do not fit, or the save cannot grow: `prefix` is no directory, it has no batch dims,
            it holds a lazy stack, a nested tensor or a NonTensorStack, or it lies in a torchrl dump. (A ValueError.)
        InterruptedAppendError: an earlier append was killed; `recover_append` ends it. (A ValueError.)
        DecodeError: the save is damaged.
        PickleRefusedError: a saved value is pickled, and `allow_pickle` is not True. (A RuntimeError.)
        ConcurrentWriteError: another writer is at work on the save.
        TypeError: `rows` is no tensordict.

    Spec: `append_memmap`.

    Examples:
        >>> import tempfile, torch
        >>> from tdview import TensorDict, append_memmap, load_memmap
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = TensorDict(a=torch.zeros(3, 2), batch_size=[3]).memmap(path)
        ...     append_memmap(path, TensorDict(a=torch.ones(2, 2), batch_size=[2]))
        ...     print(load_memmap(path)["a"].sum(-1).tolist())
        [0.0, 0.0, 0.0, 2.0, 2.0]
    """
    with Appender(prefix, allow_pickle=allow_pickle, _once=True) as appender:
        before = appender.rows
        appender.append(rows)
        total = (appender.rows - before) * appender._row_nbytes
    if progress is not None:
        progress(total, total)


class Appender:
    """Adds rows to a saved directory many times: the save is read and checked once, then only the rows are.

    A context manager. It holds the writer's lock of the save until it is closed, so that a second writer fails, and
    keeps the payloads open. Each append survives a kill as `append_memmap` does. After an append that failed while
    it wrote, the appender is closed, and the save has the rows that it had before.

    Args:
        prefix: see `append_memmap`.
        flush: the number of appends after which they are written together. 1 writes each one through: when `append`
            returns, every reader sees the rows. A larger number, or None for as late as possible (when 64 MB have
            come together, at `flush` or at `close`), is many times faster; a kill then loses the appends that
            were not written yet, and nothing else. An append of 8 MB or more is never held back: it is written
            through, after what was.
        fsync: whether what is written is synced to the disk, so that it also survives a power failure. Slow.
        allow_pickle: see `append_memmap`.

    Raises:
        What `append_memmap` raises for a save that cannot grow.

    Examples:
        >>> import tempfile, torch
        >>> from tdview import Appender, TensorDict, scan
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = TensorDict(a=torch.zeros(3, 2), batch_size=[3]).memmap(path)
        ...     with Appender(path) as appender:
        ...         for step in range(4):
        ...             appender.append(TensorDict(a=torch.full((1, 2), float(step)), batch_size=[1]))
        ...     print(scan(path).batch_size)
        (7,)
    """

    def __init__(
        self,
        prefix: Path | str,
        *,
        flush: int | None = 1,
        fsync: bool = False,
        allow_pickle: bool | None = False,
        _once: bool = False,
    ) -> None:
        if flush is not None and (isinstance(flush, bool) or flush < 1):
            raise ArgumentError(f"flush: expected a number of appends >= 1, or None, got {shown(flush)}")
        if allow_pickle not in (True, False, None):
            raise TypeError(f"allow_pickle: expected a bool or None, got {type(allow_pickle).__name__}")
        self._flush_every = flush
        self._pending: list[list[Buffer]] = []
        self._pending_rows = self._pending_nbytes = 0
        self._writer: RowWriter | None = None
        self._resources = ExitStack()
        path = Path(prefix)
        if path.is_dir():
            self._resources.enter_context(writer_lock(path))
        try:
            save = read_growing(path)
            self._fit = _Fit(save, allow_pickle is True)
            self._writer = RowWriter(save, fsync=fsync, keep_open=min(_KEPT_OPEN, _spare_descriptors()), once=_once)
        except BaseException:
            self._resources.close()
            raise
        self._row_nbytes = sum(leaf.row_nbytes for leaf in save.leaves)
        self._resources.callback(self._writer.close)

    @property
    def rows(self) -> int:
        """Rows that the save has, those included that are not written yet."""
        return self._open().save.rows + self._pending_rows

    def append(self, rows: Any) -> None:
        """Adds rows. Copies them, or writes them: they may be changed as soon as this returns.

        Raises:
            ArgumentError: the rows do not fit; nothing was written, and the appender goes on.
            ArgumentError: the appender is closed.
            OSError: the disk is full, or another fault of the system; the rows of this append (and those that were
                held back) are not in the save.
        """
        writer = self._open()
        through = self._flush_every == 1 or self._is_large(rows)
        count, payloads = self._fit.payloads(rows, copy=not through)
        if through:
            self.flush()
            self._write(writer, payloads, count)
            return
        self._pending.append(payloads)
        self._pending_rows += count
        self._pending_nbytes += count * self._row_nbytes
        if self._pending_nbytes >= _BUFFERED or len(self._pending) == self._flush_every:
            self.flush()

    def _is_large(self, rows: Any) -> bool:
        """Whether to hold rows back would cost more, a copy of them, than it could save."""
        batch = getattr(rows, "batch_size", None)
        return bool(batch and batch[0] * self._row_nbytes >= _LARGE)

    def flush(self) -> None:
        """Writes what was held back, as one append."""
        writer = self._open()
        pending, count = self._pending, self._pending_rows
        self._pending, self._pending_rows, self._pending_nbytes = [], 0, 0
        if count:
            payloads: list[Buffer] = [b"".join(parts) for parts in zip(*pending, strict=True)]
            self._write(writer, payloads, count)

    def close(self) -> None:
        """Writes what was held back, closes the files and gives the lock back. Can be called again."""
        if self._writer is None:
            return
        try:
            self.flush()
        finally:
            self._writer = None
            self._resources.close()

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._writer is None:
            return "Appender(closed)"
        return f"Appender({str(self._writer.save.prefix)!r}, rows={self.rows})"

    def _open(self) -> RowWriter:
        if self._writer is None:
            raise ArgumentError("the appender is closed; make a new one")
        return self._writer

    def _write(self, writer: RowWriter, payloads: Sequence[Buffer], count: int) -> None:
        try:
            writer.append(payloads, count)
        except BaseException:
            self._writer = None
            self._pending, self._pending_rows = [], 0
            self._resources.close()
            raise


def _spare_descriptors() -> int:
    """How many descriptors this process may well keep open: half of those that it has left."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir("/proc/self/fd"))
    except (ImportError, OSError):
        return 64
    return max(0, (limit - used) // 2)


# rows -------------------------------------------------------------------------------------------------------------


class _Slow(Exception):
    """The rows are not as the quick way through them expects; the careful way decides."""


class _Level:
    """What the quick way expects of one level of the rows."""

    __slots__ = (
        "above", "batch", "dtypes", "is_class", "is_plain", "key", "leaves", "shapes", "size", "trailing", "type_entry",
        "values",
    )  # fmt: skip

    def __init__(self, level: GrowingLevel, above: int, key: str) -> None:
        self.above = above
        """Place of the level above in the list of levels; -1 for the top."""
        self.key = key
        self.is_class = level.inner is not None
        self.type_entry = level.type_entry
        inner = level.inner or level
        self.batch = inner.batch_size[1:]
        self.size = len(inner.entries)
        leaves = {key: entry for key, entry in inner.entries.items() if isinstance(entry, GrowingLeaf)}
        self.leaves = list(leaves)
        self.dtypes = [_numpy_dtype(leaf.dtype) for leaf in leaves.values()]
        self.trailing = [leaf.trailing for leaf in leaves.values()]
        self.shapes: list[tuple[int, ...]] = []
        """The shapes for the number of rows of the last append; most have as many as the one before."""
        self.values = [
            (key, entry, (*inner.key, key)) for key, entry in inner.entries.items() if isinstance(entry, SavedValue)
        ]
        self.is_plain = _is_plain(inner.class_parts or _PLAIN)


def _numpy_dtype(name: str) -> Any:
    """NumPy's dtype of the same name, by which an array tells the dtype of its tensor; None if there is none."""
    import numpy as np

    known = DTYPES[name].numpy
    dtype = None if known is None else np.dtype(known)
    return dtype if dtype is not None and f"torch.{dtype.name}" == name else None  # a quint8 has the bytes of a uint8


class _Fit:
    """Whether rows fit a save, and their bytes for each of its leaves.

    There are two ways through the rows: a quick one, which handles what nearly all rows are, plain tensordicts of
    plain CPU tensors, at about a microsecond a leaf; and a careful one for all the rest, which also says what is
    wrong. Where the quick one is in doubt it gives up.
    """

    def __init__(self, save: GrowingSave, allow_pickle: bool) -> None:
        self._save = save
        self._allow_pickle = allow_pickle
        self._saved_values: dict[Path, Any] = {}
        self._levels: list[_Level] = []
        self._flatten(save.root, -1, "")
        known = all(dtype is not None for level in self._levels for dtype in level.dtypes)
        self._quick = known and all(level.is_plain for level in self._levels)
        self._count = -1

    def _flatten(self, level: GrowingLevel, above: int, key: str) -> None:
        place = len(self._levels)
        self._levels.append(_Level(level, above, key))
        for name, entry in (level.inner or level).entries.items():
            if isinstance(entry, GrowingLevel):
                self._flatten(entry, place, name)

    def payloads(self, rows: Any, *, copy: bool) -> tuple[int, list[Buffer]]:
        """The number of rows, and their bytes for each leaf in the order of the save; copies if asked for."""
        if not isinstance(rows, Collection):
            adapted = foreign(rows)
            if adapted is None:
                raise TypeError(f"rows: expected a tensordict or a tensorclass, got {type(rows).__name__}")
            rows = adapted
        if self._quick:
            try:
                return self._quick_payloads(rows, copy)
            except (_Slow, KeyError, AttributeError, TypeError, RuntimeError):
                pass
        return self._careful_payloads(rows)

    # the quick way --------------------------------------------------------------------------------------------------

    def _quick_payloads(self, rows: Any, copy: bool) -> tuple[int, list[Buffer]]:
        count = rows._tensordict._batch_size[0] if self._levels[0].is_class else rows._batch_size[0]
        if count != self._count:
            self._count = count
            for level in self._levels:
                level.shapes = [(count, *trailing) for trailing in level.trailing]
        found: list[TensorDict] = []
        out: list[Buffer] = []
        for level in self._levels:
            value = rows if level.above < 0 else found[level.above]._entries[level.key]
            if level.is_class:
                if not isinstance(value, TensorClass) or (value._saved_type or str(type(value))) != level.type_entry:
                    raise _Slow
                value = value._tensordict
            if type(value) is not TensorDict or value._saved_as is not None:
                raise _Slow
            entries = value._entries
            if len(entries) != level.size or value._batch_size != (count, *level.batch):
                raise _Slow
            found.append(value)
            for key, saved, path in level.values:
                self._match_value(saved, entries[key], path)
            arrays = [entries[key].numpy() for key in level.leaves]
            if [array.dtype for array in arrays] != level.dtypes or [array.shape for array in arrays] != level.shapes:
                raise _Slow
            if copy:
                out += [array.tobytes() for array in arrays]
            else:
                out += [array if array.flags.c_contiguous else array.tobytes() for array in arrays]
        return count, out

    # the careful way ------------------------------------------------------------------------------------------------

    def _careful_payloads(self, rows: Any) -> tuple[int, list[Buffer]]:
        save = self._save
        top = (save.root.inner or save.root).batch_size
        size = tuple(rows.batch_size)
        if len(size) != len(top) or size[1:] != top[1:]:
            expected = ", ".join(["n", *map(str, top[1:])])
            raise ArgumentError(f"rows: expected the batch size [{expected}], got {list(size)}")
        tensors: dict[int, Tensor] = {}
        self._match(save.root, rows, (), tensors)
        return size[0], [_octets(tensors[id(leaf)]) for leaf in save.leaves]

    def _match(self, level: GrowingLevel, value: Any, path: tuple[str, ...], tensors: dict[int, Tensor]) -> None:
        if level.inner is not None:
            if not isinstance(value, TensorClass):
                self._misfit(path, "class", level.type_entry, type(value).__name__)
            name = value._saved_type or str(type(value))
            if name != level.type_entry:
                self._misfit(path, "class", level.type_entry, name)
            self._match(level.inner, value._tensordict, path, tensors)
            return
        value = self._dense(level, value, path)
        if set(value._keys()) != set(level.entries):
            missing = sorted(set(level.entries) - set(value._keys()))
            extra = sorted(set(value._keys()) - set(level.entries))
            raise ArgumentError(
                f"rows{_at(path)}: the keys are not those of the save: missing {shown(missing)}, extra {shown(extra)}"
            )
        count = value.batch_size[:1]
        if tuple(value.batch_size[1:]) != level.batch_size[1:]:
            self._misfit(path, "batch size after the rows", list(level.batch_size[1:]), list(value.batch_size[1:]))
        for key, entry in level.entries.items():
            item, below = value._get(key), (*path, key)
            if isinstance(entry, SavedValue):
                self._match_value(entry, item, below)
            elif isinstance(entry, GrowingLevel):
                if isinstance(item, Tensor) or not isinstance(item, Collection) or item._is_value:
                    self._misfit(below, "kind of entry", "a nested tensordict", type(item).__name__)
                self._match(entry, item, below, tensors)
            elif not isinstance(item, Tensor):
                self._misfit(below, "kind of entry", "a tensor", type(item).__name__)
            else:
                expected = (entry.dtype, [*count, *entry.trailing])
                got = (str(item.dtype), "nested" if item.is_nested else list(item.shape))
                if got != expected:
                    self._misfit(below, "dtype and shape", expected, got)
                tensors[id(entry)] = item

    def _dense(self, level: GrowingLevel, value: Any, path: tuple[str, ...]) -> Any:
        """The tensordict of rows for a level, of its class; lazy stacks and views are stacked."""
        expected = level.class_parts or _PLAIN
        if not isinstance(value, TensorDictBase):
            self._misfit(path, "class", ":".join(expected), type(value).__name__)
        got = _class_parts(value) if isinstance(value, TensorDict) else _PLAIN
        if got != expected and not (_is_plain(got) and _is_plain(expected)):
            self._misfit(path, "class", ":".join(expected), ":".join(got))
        if isinstance(value, TensorDict):
            return value
        try:
            return value.contiguous()
        except (NotSupportedError, RuntimeError) as error:
            raise ArgumentError(f"rows{_at(path)}: this lazy stack or view cannot be made dense: {error}") from error

    def _match_value(self, entry: SavedValue, item: Any, path: tuple[str, ...]) -> None:
        if isinstance(item, NonTensorStack):
            values = item._array().reshape(-1).tolist() if item.numel() else []
        elif isinstance(item, NonTensorData):
            values = [item.data]
        else:
            self._misfit(path, "kind of entry", "a non-tensor value", type(item).__name__)
        if entry.directory not in self._saved_values:
            loaded = load_memmap(entry.directory, allow_pickle=self._allow_pickle)
            self._saved_values[entry.directory] = loaded.data
        saved = self._saved_values[entry.directory]
        for value in values:
            if not _equal(saved, value):
                self._misfit(path, "value", shown(saved), shown(value))

    def _misfit(self, path: tuple[str, ...], what: str, expected: object, got: object) -> NoReturn:
        raise ArgumentError(f"rows{_at(path)}: another {what} than the save has: expected {expected}, got {got}")


def _class_parts(value: TensorDict) -> tuple[str, str]:
    if value._saved_as is not None:
        return class_parts(value._saved_as[1], value._saved_as[0]) or _PLAIN
    kind = type(value)
    return _PLAIN if kind.__module__.startswith("tdview.") else (kind.__module__, kind.__qualname__)


def _is_plain(parts: tuple[str, str]) -> bool:
    return class_kind(parts) == "tensordict"


def _at(path: tuple[str, ...]) -> str:
    return f", entry {shown(path[-1] if len(path) == 1 else path)}" if path else ""


def _octets(tensor: Tensor) -> Buffer:
    parts = list(payload_blocks(tensor)())
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def _equal(saved: Any, value: Any) -> bool:
    """Whether a value is what was saved: by ``==``, or because JSON stores both as the same text (NaN, a tuple)."""
    try:
        if saved is value or bool(saved == value):
            return True
    except (ValueError, RuntimeError, TypeError):  # arrays compare element by element
        pass
    import json

    try:
        return json.dumps(saved) == json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False

"""This module knows what torchrl's own files say about each row: its age, its priority, how often it was written over.

It does not know the row's values, nor whether the numbers make sense: see the rule `priorities`.
"""

from __future__ import annotations

import os
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tdview.analysis.rules.priorities import tree_of
from tdview.errors import NotSupportedError, TdviewError
from tdview.format import torchrl
from tdview.format.dtypes import dtype_of
from tdview.tree.fill import buffer_above, side_files_of

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from tdview.tree.fill import Fill
    from tdview.tree.node import Node

__all__ = ["MEANINGS", "SideColumns", "side_columns", "side_of"]

MEANINGS = MappingProxyType(
    {
        "age": "Steps behind the newest row, which has age 0",
        "priority": "As it was given to the sampler, a plain number; of several elements in a row their mean",
        "probability": "Of drawing the row next, by the priorities; between 0 and 1",
        "generation": "How many times the row was written over",
    }
)
"""Every column that there can be, in their order, and what it says."""


def side_columns(path: str | os.PathLike[str] | Node) -> pandas.DataFrame:
    """What stands beside a replay buffer about its rows, one line for each storage row; nothing of it is in a leaf.

    Reads the raw arrays of the writer and the sampler, and no payload.

    Args:
        path: a dump or its storage, or its node.

    Returns:
        A frame over the storage rows with those of the columns that the buffer has:

        - ``age``: steps behind the newest row, which has age 0; missing in rows that were never written and in
          buffers without time order;
        - ``priority``: as it was given to the sampler, that is with exponent and epsilon undone; missing in rows that
          were never written. Of a storage with several elements in a row it is their mean;
        - ``probability``: of drawing the row, by the priorities;
        - ``generation``: how often the row was written over, where the writer counts that.

    Raises:
        NotSupportedError: the save is no replay buffer.
    """
    import pandas as pd

    from tdview.analysis.audit import _node

    node = _node(path)
    if str(node.kind) == "collection":
        raise NotSupportedError(f"{node.where()}: this holds several saves; give the path of one of them")
    fill = node.fill
    if fill is None:
        raise NotSupportedError(f"{node.where()}: this is no replay buffer")
    side = SideColumns(node, fill)
    columns: dict[str, Any] = {name: side.values(name) for name in side.names}
    if "age" in columns:
        columns["age"] = pd.array(columns["age"], dtype="Int64")
        columns["age"][columns["age"] < 0] = pd.NA
    return pd.DataFrame(columns, index=pd.RangeIndex(fill.capacity, name="row"))


def side_of(node: Node, rows: int) -> SideColumns | None:
    """What stands beside the `rows` indices of axis 0 of `node`, None where they are no storage rows of a buffer."""
    buffer = buffer_above(node)
    fill = None if buffer is None else buffer.fill
    if buffer is None or fill is None or fill.rotated or rows != fill.capacity:
        return None  # the file of a rotated checkpoint has other rows than its buffer
    return SideColumns(buffer, fill)


class SideColumns:
    """The columns beside the rows of a buffer. Their names come from metadata; an array is read when it is shown."""

    COUNTS = ("age", "generation")
    """Columns of int64, where -1 says that there is no value; in the others NaN does."""

    def __init__(self, node: Node, fill: Fill) -> None:
        self.node = node
        """The buffer."""
        self.fill = fill
        self._side = side_files_of(node)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Which columns there are. Reads two small JSON files and no array."""
        found = {"age": self.fill.ordered, "generation": self._generations is not None}
        found["priority"] = found["probability"] = self._has_priorities
        return tuple(name for name in MEANINGS if found[name])

    def meaning(self, name: str) -> str:
        """What a column says, and where its order of the rows is a guess."""
        guess = self.fill.guessed_from if name == "age" and not self.fill.certain else ""
        return f"{MEANINGS[name]}; the order of the rows is guessed from {guess}" if guess else MEANINGS[name]

    def values(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """One column of the storage rows ``start .. stop``, all of them by default.

        Returns:
            ``[rows]``: age and generation int64 with -1 where they are missing, the others float64 with NaN. May be
            a view of the array that is kept.
        """
        stop = self.fill.capacity if stop is None else stop
        if name == "age":
            return self._age(start, stop)
        if name == "generation":
            return self._generation[start:stop]
        return self._priority(start, stop) if name == "priority" else self._probability(start, stop)

    def _age(self, start: int, stop: int) -> NDArray[Any]:
        import numpy as np

        age = np.full(stop - start, -1, np.int64)
        behind = self.fill.rows
        for low, high in self.fill.chronological:
            left, right = max(start, low), min(stop, high)
            if left < right:
                age[left - start : right - start] = behind - 1 - (np.arange(left, right) - low)
            behind -= high - low
        return age

    # -- priorities ---------------------------------------------------------------------------------------------

    @property
    def _each(self) -> int:
        """Priorities of one row: one, or one for each element of a storage with ``ndim > 1``."""
        return 1 if self.fill.single else self.fill.inner

    @property
    def _has_priorities(self) -> bool:
        meta = self._side.sampler
        if meta is None or meta.alpha is None:
            return False
        count = self.fill.capacity * self._each
        size = self._side.nbytes("sampler", torchrl.SUM_TREE)
        return size > 0 and (size == 4 * count or size >= 8 * count)

    @cached_property
    def _tree(self) -> NDArray[Any]:
        """``[rows, elements]``, transformed as the sampler keeps them; NaN where they cannot be read."""
        import numpy as np

        count = self.fill.capacity * self._each
        sums = tree_of(self._side, torchrl.SUM_TREE, count)
        return (np.full(count, np.nan) if sums is None else sums).reshape(-1, self._each)

    @cached_property
    def _total(self) -> float:
        import numpy as np

        return float(np.nansum(self._tree[: self.fill.rows], dtype=np.float64))

    def _priority(self, start: int, stop: int) -> NDArray[Any]:
        import numpy as np

        meta = self._side.sampler
        alpha, eps = (meta.alpha or 0.0, meta.eps or 0.0) if meta is not None else (0.0, 0.0)
        table = self._tree[start:stop].astype(np.float64)
        with np.errstate(all="ignore"):
            raw = table ** (1 / alpha) - eps if alpha else np.ones_like(table)
        return np.where(np.arange(start, stop) < self.fill.rows, raw.mean(axis=1), np.nan)

    def _probability(self, start: int, stop: int) -> NDArray[Any]:
        import numpy as np

        if not self._total:
            return np.zeros(stop - start)
        share = self._tree[start:stop].astype(np.float64).sum(axis=1) / self._total
        return np.where(np.arange(start, stop) < self.fill.rows, share, 0.0)

    # -- generations --------------------------------------------------------------------------------------------

    @cached_property
    def _generations(self) -> tuple[str, int] | None:
        """Dtype and elements of a row of the writer's counts, None where there are none."""
        raw = self._side.writer.generation if self._side.writer is not None else None
        row = dtype_of(raw.dtype) if raw is not None else None
        if raw is None or row is None or row.numpy is None or row.kind not in ("int", "uint"):
            return None
        count = prod(raw.shape)
        size = self._side.nbytes("writer", torchrl.GENERATION)
        fits = raw.shape[:1] == (self.fill.capacity,) and 0 < count * row.itemsize <= size
        return (row.numpy, count // self.fill.capacity) if fits else None

    @cached_property
    def _generation(self) -> NDArray[Any]:
        import numpy as np

        values = None
        if self._generations is not None:
            dtype, each = self._generations
            try:
                values = self._side.array("writer", torchrl.GENERATION, dtype, self.fill.capacity * each)
            except (TdviewError, OSError):
                values = None
            if values is not None and each > 1:
                values = values.reshape(-1, each).max(axis=1)
        return np.full(self.fill.capacity, -1) if values is None else values.astype(np.int64, copy=False)

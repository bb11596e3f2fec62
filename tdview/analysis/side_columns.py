"""This module knows what torchrl's own files say about each row: its age, its priority, how often it was written over.

It does not know the row's values, nor whether the numbers make sense: see the rule `priorities`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tdview.analysis.buffers import buffer_of
from tdview.analysis.rules.priorities import per_row, trees_of
from tdview.errors import NotSupportedError
from tdview.format import torchrl
from tdview.format.dtypes import dtype_of

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer
    from tdview.tree.node import Node

__all__ = ["side_columns"]


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
    buffer = buffer_of(node)
    if buffer.fill is None:
        raise NotSupportedError(f"{node.where()}: this is no replay buffer")
    columns: dict[str, Any] = {}
    if buffer.ordered:
        columns["age"] = pd.array(_age(buffer), dtype="Int64")
        columns["age"][_age(buffer) < 0] = pd.NA
    columns |= _priorities(buffer)
    generation = _generation(buffer)
    if generation is not None:
        columns["generation"] = generation
    return pd.DataFrame(columns, index=pd.RangeIndex(buffer.fill.capacity, name="row"))


def _age(buffer: Buffer) -> NDArray[Any]:
    """Steps behind the newest row; -1 in rows that were never written."""
    import numpy as np

    fill = buffer.fill
    assert fill is not None
    age = np.full(fill.capacity, -1, np.int64)
    behind = fill.rows
    for start, stop in fill.chronological:
        age[start:stop] = np.arange(behind - 1, behind - 1 - (stop - start), -1)
        behind -= stop - start
    return age


def _priorities(buffer: Buffer) -> dict[str, NDArray[Any]]:
    import numpy as np

    meta = buffer.side.sampler if buffer.side is not None else None
    sums, _ = trees_of(buffer)
    if meta is None or meta.alpha is None or sums is None:
        return {}
    each = per_row(buffer)
    table = sums.reshape(-1, each).astype(np.float64)
    written = np.arange(len(table)) < buffer.rows
    with np.errstate(all="ignore"):
        raw = table ** (1 / meta.alpha) - (meta.eps or 0.0) if meta.alpha else np.ones_like(table)
        total = np.nansum(table[written])
        probability = np.where(written, table.sum(axis=1) / total, 0.0) if total else np.zeros(len(table))
    return {"priority": np.where(written, raw.mean(axis=1), np.nan), "probability": probability}


def _generation(buffer: Buffer) -> NDArray[Any] | None:
    import numpy as np

    side = buffer.side
    raw = side.writer.generation if side is not None and side.writer is not None else None
    row = dtype_of(raw.dtype) if raw is not None else None
    if side is None or raw is None or row is None or row.numpy is None or not raw.shape:
        return None
    if buffer.fill is None or raw.shape[0] != buffer.fill.capacity:
        return None
    values = side.array("writer", torchrl.GENERATION, row.numpy, int(np.prod(raw.shape)))
    return None if values is None else values.reshape(raw.shape[0], -1).max(axis=1)

"""This module knows a leaf over a numpy array, as small as the views and statistics need.

It does not know files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np


@dataclass
class FakeLeaf:
    """A leaf whose value is an array in memory."""

    array: Any
    path: tuple[str, ...] = ("x",)
    dtype: str = ""
    names: tuple[str | None, ...] | None = None
    batch_size: tuple[int, ...] | None = None
    fill: Any = None
    parent: Any = None
    is_nested: bool = False
    is_leaf: bool = True
    problems: tuple[Any, ...] = ()
    kind: str = "leaf"
    streamed: bool = False
    dtype_row: Any = None
    bounded: bool = True
    store: Any = field(default_factory=lambda: SimpleNamespace(location="memory", writable=False))

    def __post_init__(self) -> None:
        self.dtype = self.dtype or f"torch.{self.array.dtype.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    def numpy(self, index: Any = None) -> Any:
        return self.array if index is None else np.asarray(self.array[index])

"""This module knows which leaves hold images, in which layouts, and how any of them becomes 8-bit frames.

It does not know messages nor canvases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tdview.format.dtypes import dtype_of
from tdview.widgets.planes import Order, Ring, Span, ring_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf

__all__ = ["LAYOUTS", "Frames", "Layout", "layouts_of"]

Layout = Literal["CHW", "HWC", "HW"]
LAYOUTS: tuple[Layout, ...] = ("CHW", "HWC", "HW")

SMALLEST = 4
"""Pixels along a side below which a leaf is taken for a table of numbers."""
LARGEST_BYTES = 2 << 20
"""A larger frame is thinned by whole steps."""
SCALE_FRAMES = 16


def layouts_of(dtype: str, shape: Sequence[int]) -> tuple[Layout, ...]:
    """Layouts in which the leaf can be seen as images, the likeliest first; empty if in none.

    Four planes in front are a stack of grey frames, as Atari wrappers make, not a picture with transparency.

    Examples:
        >>> layouts_of("torch.uint8", (100, 3, 64, 64))
        ('CHW', 'HW')
        >>> layouts_of("torch.uint8", (100, 4, 84, 84))
        ('HW',)
        >>> layouts_of("torch.float32", (100, 17))
        ()
    """
    row = dtype_of(dtype)
    if row is None or row.kind not in ("bool", "int", "uint", "float") or len(shape) < 2:
        return ()
    found: list[Layout] = []
    if len(shape) >= 3 and shape[-3] in (1, 3) and min(shape[-2:]) >= SMALLEST:
        found.append("CHW")
    if len(shape) >= 3 and shape[-1] in (1, 3, 4) and min(shape[-3:-1]) >= SMALLEST:
        found.append("HWC")
    if min(shape[-2:]) >= SMALLEST and (len(shape) >= 3 or dtype == "torch.uint8"):
        found.append("HW")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The images of one leaf, numbered in the chosen order."""

    leaf: Leaf
    layout: Layout
    order: Order
    ring: Ring | None
    total: int
    per_row: int
    """Frames that share an index of axis 0."""
    size: tuple[int, int, int]
    """Height, width and channels as they travel."""
    thin: int
    """Every `thin`-th pixel is taken."""
    low: float
    """The value that becomes black."""
    high: float
    """The value that becomes white."""

    @classmethod
    def of(cls, leaf: Leaf, layout: Layout | None, order: Order) -> Frames:
        """The frames of a leaf for which `layouts_of` is not empty; an impossible layout gives the likeliest."""
        offered = layouts_of(leaf.dtype, leaf.shape)
        layout = layout if layout in offered else offered[0]
        shape = tuple(leaf.shape)
        depth = len(shape) - (2 if layout == "HW" else 3)
        height, width = {"CHW": shape[-2:], "HWC": shape[-3:-1], "HW": shape[-2:]}[layout]
        channels = {"CHW": shape[-3] if len(shape) > 2 else 1, "HWC": shape[-1], "HW": 1}[layout]
        thin = 1
        while -(-height // thin) * -(-width // thin) * channels > LARGEST_BYTES:
            thin += 1
        ring = ring_of(leaf, shape[0]) if depth else None
        order = order if ring is not None else "storage"
        per_row = math.prod(shape[1:depth])
        rows = 1 if not depth else ring.rows if ring is not None and order == "time" else shape[0]
        low, high = _range(leaf, depth)
        return cls(
            leaf=leaf, layout=layout, order=order, ring=ring, total=rows * per_row, per_row=per_row,
            size=(-(-height // thin), -(-width // thin), channels), thin=thin, low=low, high=high,
        )  # fmt: skip

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Frames ``start .. stop`` as C-contiguous uint8 ``[count, height, width, channels]``."""
        import numpy as np

        if stop <= start:
            return np.empty((0, *self.size), np.uint8)
        single = len(self.leaf.shape) == (2 if self.layout == "HW" else 3)
        if single:
            return self._pixels(np.asarray(self.leaf.numpy())[None])
        first, last = start // self.per_row, -(-stop // self.per_row)
        found = np.concatenate([self._pixels(self.leaf.numpy((slice(*run),))) for run in self._runs(first, last)])
        return np.ascontiguousarray(found[start - first * self.per_row : stop - first * self.per_row])

    def describe(self) -> dict[str, Any]:
        """JSON for the view."""
        return {
            "total": self.total,
            "height": self.size[0],
            "width": self.size[1],
            "channels": self.size[2],
            "thin": self.thin,
            "layout": self.layout,
            "layouts": list(layouts_of(self.leaf.dtype, self.leaf.shape)),
            "low": self.low,
            "high": self.high,
            "perRow": self.per_row,
            "order": self.order,
            "ring": None if self.ring is None else self.ring.as_dict(),
        }

    def _runs(self, first: int, last: int) -> list[Span]:
        if self.order == "storage" or self.ring is None:
            return [(first, last)]
        found, seen = [], 0
        for low, high in self.ring.spans:
            left, right = max(first, seen), min(last, seen + high - low)
            if left < right:
                found.append((low + left - seen, low + right - seen))
            seen += high - low
        return found

    def _pixels(self, values: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        height, width = values.shape[-2:] if self.layout != "HWC" else values.shape[-3:-1]
        if self.layout == "HW":
            values = values.reshape(-1, height, width, 1)
        elif self.layout == "HWC":
            values = values.reshape(-1, height, width, values.shape[-1])
        else:
            values = np.moveaxis(values.reshape(-1, values.shape[-3], height, width), 1, -1)
        values = values[:, :: self.thin, :: self.thin]
        if values.dtype == np.uint8:
            return values
        scale = 255 / (self.high - self.low) if self.high > self.low else 1.0
        grey = (np.asarray(values, np.float32) - self.low) * scale
        return np.asarray(np.clip(np.nan_to_num(grey, nan=0, posinf=255, neginf=0), 0, 255), np.uint8)


def _range(leaf: Leaf, depth: int) -> tuple[float, float]:
    """Black and white of other dtypes: 0 … 1, 0 … 255, or the range of a few frames spread over the leaf."""
    import numpy as np

    if leaf.dtype == "torch.uint8":
        return 0.0, 255.0
    if leaf.dtype == "torch.bool":
        return 0.0, 1.0
    rows = leaf.shape[0] if depth else 1
    places = sorted({rows * place // SCALE_FRAMES for place in range(SCALE_FRAMES)} if rows else set())
    low, high = math.inf, -math.inf
    for place in places:
        values = np.asarray(leaf.numpy((place,)) if depth else leaf.numpy(), np.float64)
        values = values[np.isfinite(values)]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    if not low <= high:
        return 0.0, 1.0
    if low >= 0 and high <= 1 and leaf.dtype.startswith(("torch.float", "torch.bfloat")):
        return 0.0, 1.0
    return (0.0, 255.0) if low >= 0 and 1 < high <= 255 else (low, high)

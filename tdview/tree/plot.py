"""This module knows which picture suits a leaf and draws it with matplotlib.

It does not know notebooks; it draws into axes that it is given or makes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from tdview.errors import ArgumentError, NotSupportedError, shown
from tdview.format.dtypes import dtype_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf

__all__ = ["KINDS", "PlotKind", "plot_kind", "plot_leaf"]

PlotKind = Literal["line", "histogram", "heatmap", "image"]
KINDS: tuple[PlotKind, ...] = ("line", "histogram", "heatmap", "image")

MAX_LINES = 8
MAX_POINTS = 4000
"""Points of a line; more are drawn as the band between the least and the greatest value of each bin."""
MAX_CELLS = 1024
"""Rows and columns of a heat map; more are averaged."""
MAX_VALUES = 1 << 20
"""Elements of a histogram; a larger leaf is sampled evenly."""


def plot_kind(leaf: Leaf) -> PlotKind:
    """The picture that suits dtype and shape: lines for few columns, a heat map for many, an image for pixels."""
    shape = tuple(leaf.shape)
    if leaf.dtype == "torch.uint8" and len(shape) >= 3 and min(shape[-2:]) >= 3:
        return "image"
    if math.prod(shape[:1]) < 2:
        return "histogram"
    return "line" if math.prod(shape[1:]) <= MAX_LINES else "heatmap"


def plot_leaf(leaf: Leaf, ax: Axes | None = None, kind: PlotKind | None = None) -> Axes:
    """Draws a leaf.

    Args:
        leaf: bool, integer, float or complex (its absolute value); no nested tensor.
        ax: where to draw; None makes a figure.
        kind: one of `KINDS`; None chooses by dtype and shape.

    Returns:
        The axes, with title, labels and, where lines are several, a legend. Reads what it draws, so a line looks at
        every element, a histogram of a large leaf at an even sample, which its title says.

    Raises:
        ArgumentError: `kind` is none of `KINDS`.
        NotSupportedError: the leaf has no numbers to draw.
    """
    if kind is not None and kind not in KINDS:
        raise ArgumentError(f"kind: expected one of {list(KINDS)}, got {shown(kind)}")
    name = ".".join(leaf.path) or "leaf"
    row = dtype_of(leaf.dtype)
    if leaf.is_nested or row is None or row.kind in ("packed", "quantized"):
        raise NotSupportedError(f"{name}: {leaf.dtype} elements of this kind have no plot; use tensor()")
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots()[1]
    kind = kind or plot_kind(leaf)
    ax.set_title(name)
    if math.prod(leaf.shape) == 0:
        ax.text(0.5, 0.5, "no elements", ha="center", transform=ax.transAxes)
        return ax
    {"line": _line, "histogram": _histogram, "heatmap": _heatmap, "image": _image}[kind](leaf, ax)
    return ax


def _line(leaf: Leaf, ax: Axes) -> None:
    import numpy as np

    rows = leaf.shape[0] if leaf.shape else 1
    table = _real(leaf.numpy()).reshape(rows, -1)
    for column in range(min(MAX_LINES, table.shape[1])):
        label = f"[{column}]" if table.shape[1] > 1 else ".".join(leaf.path)
        values = table[:, column]
        if rows <= MAX_POINTS:
            ax.plot(np.arange(rows), values, linewidth=1, label=label)
            continue
        cuts = np.arange(MAX_POINTS) * rows // MAX_POINTS
        values = np.where(np.isfinite(values), values, np.nan)
        ax.fill_between(
            cuts, np.fmin.reduceat(values, cuts), np.fmax.reduceat(values, cuts), label=label, alpha=0.7, linewidth=0.5
        )
    ax.set_xlabel(_dim(leaf, 0))
    if table.shape[1] > 1:
        ax.legend(loc="best", fontsize="small")
    if table.shape[1] > MAX_LINES:
        ax.set_title(f"{ax.get_title()}: {MAX_LINES} of {table.shape[1]} columns")


def _histogram(leaf: Leaf, ax: Axes) -> None:
    import numpy as np

    flat = np.asarray(leaf.numpy()).reshape(-1)
    step = -(-flat.size // MAX_VALUES)
    values = _real(flat[::step])
    values = values[np.isfinite(values)]
    if step > 1:
        ax.set_title(f"{ax.get_title()}: {values.size:,} of {flat.size:,} elements")
    if values.size:
        ax.hist(values, bins=min(64, max(1, int(np.unique(values[:4096]).size))))
    ax.set_xlabel("value")
    ax.set_ylabel("elements")


def _heatmap(leaf: Leaf, ax: Axes) -> None:
    import numpy as np

    rows = leaf.shape[0] if leaf.shape else 1
    table = np.asarray(leaf.numpy()).reshape(rows, -1)
    tall, wide = -(-table.shape[0] // MAX_CELLS), -(-table.shape[1] // MAX_CELLS)
    tops, lefts = np.arange(0, table.shape[0], tall), np.arange(0, table.shape[1], wide)
    means = np.stack([_mean(table[top : top + tall], lefts) for top in tops])
    extent = (-0.5, table.shape[1] - 0.5, table.shape[0] - 0.5, -0.5)
    image = ax.imshow(means, aspect="auto", interpolation="nearest", extent=extent)
    ax.figure.colorbar(image, ax=ax)
    ax.set_ylabel(_dim(leaf, 0))


def _mean(block: NDArray[Any], lefts: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    sums = np.add.reduceat(_real(block).sum(axis=0), lefts)
    widths = np.diff(np.append(lefts, block.shape[1]))
    return np.asarray(sums / (widths * block.shape[0]))


def _image(leaf: Leaf, ax: Axes) -> None:
    import numpy as np

    shape = tuple(leaf.shape)
    planes = len(shape) >= 3 and shape[-3] in (1, 3)
    last = len(shape) >= 3 and not planes and shape[-1] in (1, 3, 4)
    depth = len(shape) - (3 if planes or last else 2)
    picture = np.asarray(leaf.numpy((0,) * depth) if depth else leaf.numpy())
    if planes:
        picture = np.moveaxis(picture, 0, -1)
    if picture.ndim == 3 and picture.shape[-1] == 1:
        picture = picture[..., 0]
    if picture.dtype != np.uint8:
        picture = _real(picture)
    ax.imshow(picture, cmap="gray" if picture.ndim == 2 else None, interpolation="nearest")
    ax.set_axis_off()
    if depth:
        ax.set_title(f"{ax.get_title()}[{', '.join('0' * depth)}]")


def _real(values: Any) -> NDArray[Any]:
    import numpy as np

    values = np.asarray(values)
    return np.asarray(np.abs(values) if values.dtype.kind == "c" else values, np.float64)


def _dim(leaf: Leaf, axis: int) -> str:
    names = leaf.names
    return (names[axis] if names is not None and axis < len(names) else None) or f"dim {axis}"

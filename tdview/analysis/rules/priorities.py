"""This module knows the rule about the priorities of a prioritized sampler.

It does not know the rows: priorities stand in torchrl's own files, one per element of the storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tdview.analysis.order import row_ranges
from tdview.analysis.replay import Buffer
from tdview.analysis.rules.registry import counted, finding
from tdview.errors import Problem, TdviewError
from tdview.format import torchrl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.fill import SideFiles

__all__ = ["priorities", "tree_of", "trees_of"]

_SUM, _MIN = ("sampler", "sumtree"), ("sampler", "mintree")


def trees_of(buffer: Buffer) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """The sum and the min tree, one float for each element of the storage; None where a tree is missing or short."""
    if buffer.side is None:
        return None, None
    count = buffer.capacity * per_row(buffer)
    return tree_of(buffer.side, torchrl.SUM_TREE, count), tree_of(buffer.side, torchrl.MIN_TREE, count)


def tree_of(side: SideFiles, name: str, count: int) -> NDArray[Any] | None:
    """The values of a tree, float64 or float32 as its size tells; None where it is missing, short or unreadable."""
    try:
        dtype = "<f4" if side.nbytes("sampler", name) == 4 * count else "<f8"
        return side.array("sampler", name, dtype, count)
    except (TdviewError, OSError):
        return None


def per_row(buffer: Buffer) -> int:
    """Priorities of one row: one, or one for each element of a storage with ``ndim > 1``."""
    return 1 if buffer.fill is None or buffer.fill.single else buffer.inner


def priorities(buffer: Buffer) -> Iterator[Problem]:
    """Every valid row can be sampled, no other row can, and no single row takes over."""
    import numpy as np

    side = buffer.side
    if side is None or buffer.profile in ("flat", "nested"):
        return
    meta = side.sampler
    if meta is None or meta.alpha is None:
        return
    sums, mins = trees_of(buffer)
    if sums is None or mins is None:
        text = f"sampler/{torchrl.SUM_TREE} or {torchrl.MIN_TREE} is missing or has fewer values than the storage rows"
        yield finding("priority", "error", text, _SUM)
        return
    each = per_row(buffer)
    limit = buffer.rows * each
    valid, behind = sums[:limit], sums[limit:]
    yield from _unusable(buffer, valid, mins[:limit])
    left = np.flatnonzero(behind != 0) + limit
    if len(left):
        text = f"a priority in {counted(len(left), 'row')} that nobody wrote: samples would be drawn from there"
        yield finding("priority", "warning", text, _SUM, row_ranges(left // each))
    good = valid[np.isfinite(valid) & (valid > 0)]
    if len(good) < 20:
        return
    share = good / good.sum()
    most = int(np.nanargmax(np.where(np.isfinite(valid), valid, -1)))
    if share.max() > 0.2:
        text = (
            f"one row is drawn in {share.max():.0%} of the samples; the others weigh as much as "
            f"{1 / float((share**2).sum()):.1f} equal rows"
        )
        yield finding("priority", "warning", text, _SUM, row_ranges(np.array([most // each])))
    if meta.max_priority is not None and meta.schema_version is not None and meta.alpha:
        raw = float(good.max()) ** (1 / meta.alpha) - (meta.eps or 0.0)
        if raw > meta.max_priority * 1.001 + 1e-6:
            text = f"the greatest priority is {raw:g}, the sampler remembers {meta.max_priority:g}"
            yield finding("priority", "note", text, _SUM)


def _unusable(buffer: Buffer, sums: NDArray[Any], mins: NDArray[Any]) -> Iterator[Problem]:
    import numpy as np

    each = per_row(buffer)
    dead = np.flatnonzero(~(np.isfinite(sums) & (sums > 0)))
    if len(dead):
        text = (
            f"no usable priority (zero, negative or NaN) in {counted(len(dead), 'valid row')}: never drawn, or always"
        )
        yield finding("priority", "error", text, _SUM, row_ranges(dead // each))
    unequal = np.flatnonzero((sums != mins) & np.isfinite(sums) & (sums > 0))
    if len(unequal):
        text = f"sum tree and min tree disagree in {counted(len(unequal), 'row')}: importance weights are wrong"
        yield finding("priority", "error", text, _MIN, row_ranges(unequal // each))

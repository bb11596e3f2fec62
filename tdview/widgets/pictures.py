"""This module knows the requests of plot and frames: envelopes, heat maps, figures and images as plain bytes.

It does not know how they are drawn.

Operations (``view`` as for the table; spans are half-open):

- ``plot.lines`` (slow) ``{path, view, cols, rows, bins}`` → ``{rows, total, cols, labels, available, starts, gaps,
  order, ring, mapping}`` and per column a buffer of float64 ``[2, bins]``: least and greatest finite value between
  ``starts[i]`` and ``starts[i + 1]``, NaN where there is none.
- ``plot.heat`` (slow) ``{path, view, rows, cols, height, width}`` → ``{rows, cols, totalRows, totalCols, height, width,
  low, high, mapping}`` and float32 ``[height, width]`` of means.
- ``plot.figure`` (slow) ``{path, kind}`` → ``{name, mime}`` and a PNG drawn by matplotlib.
- ``frames`` ``{path, layout, order, start, count}`` → ``{total, height, width, channels, thin, layout, layouts, low,
  high, perRow, order, ring, start, count}`` and uint8 ``[count, height, width, channels]``; fewer than asked where
  256 kB end.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, cast

from tdview.errors import ArgumentError, NotSupportedError, shown
from tdview.widgets.frames import LAYOUTS, Frames, layouts_of
from tdview.widgets.messages import Reply, int_arg, str_arg
from tdview.widgets.pages import bytes_of, leaf_of, node_at, plane_of, span_arg
from tdview.widgets.planes import LeafPlane, LevelPlane, Plane, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.plot import PlotKind
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["envelope", "heat", "register"]

MAX_BINS = 4096
MAX_SERIES = 8
CHUNK = 1 << 20
"""Elements that are widened at a time: 8 MB of float64."""
FRAMES_BYTES = 256 << 10


def register(router: Router, browser: Browser) -> None:
    """Adds the operations of plot and frames to `router`."""
    router.register("plot.lines", lambda args, _buffers, call: _lines(browser, args, call), slow=True)
    router.register("plot.heat", lambda args, _buffers, call: _heat(browser, args, call), slow=True)
    router.register("plot.figure", lambda args, _buffers, call: _figure(browser, args, call), slow=True)
    router.register("frames", lambda args, _buffers, _call: _frames(browser, args))


def envelope(plane: Plane, col: int, rows: Span, bins: int, call: Call | None = None) -> tuple[NDArray[Any], list[int]]:
    """Least and greatest finite value of each bin of rows.

    Args:
        plane: the table.
        col: its column.
        rows: half-open table rows.
        bins: at most this many; fewer where there are fewer rows.
        call: told the progress.

    Returns:
        float64 ``[2, bins]`` (NaN for a bin without finite values) and the first row of each bin. Every row is looked
        at, in chunks of 8 MB: a single outlier among millions is seen.
    """
    import numpy as np

    count = rows[1] - rows[0]
    bins = max(1, min(bins, count))
    starts = [rows[0] + count * place // bins for place in range(bins)]
    found = np.full((2, bins), np.nan)
    for place in range(bins):
        if count == 0:
            break
        place_stop = starts[place + 1] if place + 1 < bins else rows[1]
        if place_stop - starts[place] > CHUNK // 4:
            _wide_bin(plane, col, (starts[place], place_stop), found, place, call, rows)
    group = 0
    while group < bins and count:
        last = group + 1
        width = (starts[last] if last < bins else rows[1]) - starts[group]
        if width > CHUNK // 4:
            group = last
            continue
        while last < bins and (starts[last + 1] if last + 1 < bins else rows[1]) - starts[group] <= CHUNK:
            last += 1
        stop = starts[last] if last < bins else rows[1]
        values = plane.numbers((starts[group], stop), col)
        _tell(call, stop - rows[0], count)
        if values.size:
            cuts = np.asarray(starts[group:last]) - starts[group]
            values = np.where(np.isfinite(values), values, np.nan)
            found[0, group:last] = np.fmin.reduceat(values, cuts)
            found[1, group:last] = np.fmax.reduceat(values, cuts)
        group = last
    return found, starts


def _wide_bin(
    plane: Plane, col: int, span: Span, found: NDArray[Any], place: int, call: Call | None, rows: Span
) -> None:
    import numpy as np

    for start in range(span[0], span[1], CHUNK):
        values = plane.numbers((start, min(span[1], start + CHUNK)), col)
        _tell(call, start - rows[0], rows[1] - rows[0])
        values = values[np.isfinite(values)]
        if values.size:
            found[0, place] = np.fmin(found[0, place], values.min())
            found[1, place] = np.fmax(found[1, place], values.max())


def heat(plane: LeafPlane, rows: Span, cols: Span, height: int, width: int, call: Call | None = None) -> NDArray[Any]:
    """Means of the finite values of a rectangle, cut into at most ``height x width`` boxes.

    Returns:
        float32 ``[height, width]``, NaN for a box without finite values.
    """
    import numpy as np

    height, width = max(1, min(height, rows[1] - rows[0])), max(1, min(width, cols[1] - cols[0]))
    tops = [rows[0] + (rows[1] - rows[0]) * place // height for place in range(height + 1)]
    lefts = np.array([(cols[1] - cols[0]) * place // width for place in range(width)])
    sums, counts = np.zeros((height, width)), np.zeros((height, width))
    step = max(1, CHUNK // max(1, cols[1] - cols[0]))
    place = 0
    while place < height and rows[1] > rows[0] and cols[1] > cols[0]:
        last = place + 1
        while last < height and tops[last + 1] - tops[place] <= step:
            last += 1
        for start in range(tops[place], tops[last], step):
            stop = min(tops[last], start + step)
            values = plane.read((start, stop), cols)[0].values
            values = np.asarray(np.abs(values) if values.dtype.kind == "c" else values, np.float64)
            downs = np.array([top - start for top in tops[place:last]]) if last - place > 1 else np.array([0])
            with np.errstate(invalid="ignore", over="ignore"):
                down = np.add.reduceat(values, downs, axis=0)
            if np.isfinite(down).all():
                tall, wide = np.diff([*downs, stop - start]), np.diff([*lefts, cols[1] - cols[0]])
                counts[place:last] += np.outer(tall, wide)
            else:
                good = np.isfinite(values)
                down = np.add.reduceat(np.where(good, values, 0), downs, axis=0)
                seen = np.add.reduceat(good.astype(np.float64), downs, axis=0)
                counts[place:last] += np.add.reduceat(seen, lefts, axis=1)
            sums[place:last] += np.add.reduceat(down, lefts, axis=1)
            _tell(call, stop - rows[0], rows[1] - rows[0])
        place = last
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums / counts, np.float32)


def _lines(browser: Browser, args: dict[str, Any], call: Call) -> Reply:
    import numpy as np

    plane = plane_of(node_at(browser, args), args.get("view", {}))
    rows = span_arg(args, "rows", plane.rows)
    bins = int_arg(args, "bins", 1000, low=1, high=MAX_BINS)
    available = _available(plane)
    cols = _cols(args, plane, available)
    buffers, starts, gaps = [], [rows[0]], []
    for place, col in enumerate(cols):
        part, total = place, len(cols)
        found, starts = envelope(plane, col, rows, bins, _Part(call, part, total))  # type: ignore[arg-type]
        gaps.append(int(np.count_nonzero(np.isnan(found[0]))))
        buffers.append(bytes_of(np.asarray(found, "<f8")))
    value = {
        "rows": rows,
        "total": plane.rows,
        "cols": cols,
        "labels": [plane.labels((col, col + 1))[0] for col in cols],
        "available": available,
        "starts": [*starts, rows[1]],
        "gaps": gaps,
        "order": plane.order,
        "ring": None if plane.ring is None else plane.ring.as_dict(),
        "mapping": _mapping(plane),
    }
    return Reply(value, buffers)


class _Part:
    """Progress of one of several equal parts."""

    def __init__(self, call: Call, part: int, parts: int) -> None:
        self.call, self.part, self.parts = call, part, parts

    def progress(self, done: int, total: int) -> None:
        self.call.progress(self.part * total + done, self.parts * total)


def _mapping(plane: Plane) -> dict[str, Any] | None:
    """Which axes are drawn, so that the view can offer others."""
    if not isinstance(plane, LeafPlane):
        return None
    return {"rowAxis": plane.row_axis, "colAxis": plane.col_axis, "index": list(plane.index)}


def _available(plane: Plane) -> list[dict[str, Any]]:
    """What can be drawn: groups of neighbouring columns."""
    if isinstance(plane, LevelPlane):
        return [
            {"label": ".".join(column.key), "start": column.start, "count": column.count}
            for column in plane.columns
            if not column.folded
        ]
    return [{"label": ".".join(plane.node.path) or "value", "start": 0, "count": plane.cols}]


def _cols(args: dict[str, Any], plane: Plane, available: list[dict[str, Any]]) -> list[int]:
    value = args.get("cols")
    if value is None:
        groups = sorted(available, key=lambda group: group["label"].split(".")[-1] != "reward")
        return [group["start"] + place for group in groups[:1] for place in range(min(4, group["count"]))]
    if not isinstance(value, list) or not all(isinstance(col, int) and not isinstance(col, bool) for col in value):
        raise ArgumentError(f"cols: expected a list of integers, got {shown(value)}")
    return [col for col in value if 0 <= col < plane.cols][:MAX_SERIES]


def _heat(browser: Browser, args: dict[str, Any], call: Call) -> Reply:
    import numpy as np

    plane = plane_of(node_at(browser, args), args.get("view", {}))
    if not isinstance(plane, LeafPlane):
        raise NotSupportedError("a heat map needs one leaf, a level has several")
    rows, cols = span_arg(args, "rows", plane.rows), span_arg(args, "cols", plane.cols)
    height, width = (int_arg(args, name, 512, low=1, high=2048) for name in ("height", "width"))
    height = min(height, FRAMES_BYTES // 4 // max(1, min(width, cols[1] - cols[0])))
    found = heat(plane, rows, cols, height, width, call)
    finite = found[np.isfinite(found)]
    value = {
        "rows": rows,
        "cols": cols,
        "totalRows": plane.rows,
        "totalCols": plane.cols,
        "mapping": _mapping(plane),
        "height": found.shape[0],
        "width": found.shape[1],
        "low": float(finite.min()) if finite.size else 0.0,
        "high": float(finite.max()) if finite.size else 0.0,
    }
    return Reply(value, [bytes_of(np.asarray(found, "<f4"))])


def _figure(browser: Browser, args: dict[str, Any], call: Call) -> Reply:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tdview.tree.plot import KINDS, plot_leaf

    leaf, kind = leaf_of(node_at(browser, args)), str_arg(args, "kind", "auto")
    if kind not in ("auto", *KINDS):
        raise ArgumentError(f"kind: expected auto or one of {sorted(KINDS)}, got {shown(kind)}")
    if leaf is None:
        raise NotSupportedError("a figure needs one leaf, a level has several")
    call.progress(0, 1)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    plot_leaf(leaf, figure.add_subplot(), None if kind == "auto" else cast("PlotKind", kind))
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=144)
    return Reply({"name": f"{'.'.join(leaf.path) or 'leaf'}.png", "mime": "image/png"}, [out.getvalue()])


def _frames(browser: Browser, args: dict[str, Any]) -> Reply:

    leaf = leaf_of(node_at(browser, args))
    if leaf is None or leaf.is_nested or not layouts_of(leaf.dtype, leaf.shape):
        raise NotSupportedError("no images here: they are leaves of shape [T, C, H, W], [T, H, W, C] or [T, H, W]")
    layout = args.get("layout")
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"layout: expected one of {list(LAYOUTS)}, got {shown(layout)}")
    frames = Frames.of(leaf, layout, "storage" if args.get("order") == "storage" else "time")
    start = int_arg(args, "start", 0, high=max(0, frames.total - 1))
    fits = max(1, FRAMES_BYTES // max(1, math.prod(frames.size)))
    count = min(int_arg(args, "count", 1, low=0, high=256), fits, frames.total - start)
    images = frames.read(start, start + count)
    return Reply({**frames.describe(), "start": start, "count": count}, [bytes_of(images)])


def _tell(call: Call | None, done: int, total: int) -> None:
    if call is not None:
        call.progress(done, total)

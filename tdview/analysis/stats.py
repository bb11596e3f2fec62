"""This module knows how to describe the values of each leaf: counts, bounds, moments, quantiles and a histogram.

It does not know which values are plausible for a replay buffer, nor how a notebook or terminal shows the numbers.
"""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from tdview.analysis.moments import Partial
from tdview.analysis.summary import Progress, Summarised, summary, work_of
from tdview.errors import ArgumentError, KeyMissingError, TdviewError, shown

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from tdview.tree.leaf import Leaf
    from tdview.tree.node import Node

__all__ = ["Histogram", "LeafStats", "StatsReport", "leaf_stats", "stats", "valid_rows"]

Key: TypeAlias = tuple[str, ...]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many of the finite sampled elements lie in each bin."""

    edges: tuple[float, ...]
    """Ascending, one more than `counts`; a bin holds ``edges[i] <= x < edges[i + 1]``, the last one its end too."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafStats:
    """What the values of one leaf are like. Complex elements are described by their absolute value."""

    key: Key
    dtype: str
    shape: tuple[int, ...]
    rows: tuple[tuple[int, int], ...] | None
    """Half-open ranges of axis 0 that were looked at: the written rows of a replay buffer. None: everything."""
    count: int = 0
    """Elements looked at."""
    nan: int = 0
    inf: int = 0
    """Elements that are plus or minus infinity."""
    min: float | int | None = None
    """Of the finite elements, exact (int for integers); None if there are none."""
    max: float | int | None = None
    mean: float | None = None
    std: float | None = None
    """Population standard deviation of the finite elements."""
    quantiles: tuple[tuple[float, float], ...] = ()
    """Pairs (probability, value), linear between neighbours."""
    distinct: int | None = None
    """Distinct elements of the sample; all NaN are one."""
    histogram: Histogram | None = None
    sampled: int = 0
    """Elements that quantiles, distinct and histogram looked at; equal to `count` when it was all of them."""
    problem: str = ""
    """Why there are no numbers, empty when there are."""

    @property
    def whole(self) -> bool:
        """True when quantiles, distinct and histogram come from every element and not from a sample."""
        return self.sampled == self.count

    @property
    def note(self) -> str:
        """What was looked at, in one line."""
        if self.problem:
            return self.problem
        elements = f"{self.count:,} element{'' if self.count == 1 else 's'}"
        text = f"{elements} of the written rows" if self.rows is not None else f"all {elements}"
        if self.whole:
            return text
        return f"{text}; quantiles, distinct and histogram from {self.sampled:,} of them, evenly spread"

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values; NaN and infinity, which JSON lacks, as their names."""
        return {
            "key": list(self.key),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "rows": None if self.rows is None else [list(pair) for pair in self.rows],
            "count": self.count,
            "nan": self.nan,
            "inf": self.inf,
            "min": _plain(self.min),
            "max": _plain(self.max),
            "mean": _plain(self.mean),
            "std": _plain(self.std),
            "quantiles": [[probability, _plain(value)] for probability, value in self.quantiles],
            "distinct": self.distinct,
            "histogram": self.histogram
            and {"edges": [_plain(edge) for edge in self.histogram.edges], "counts": list(self.histogram.counts)},
            "sampled": self.sampled,
            "note": self.note,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class StatsReport:
    """The statistics of the leaves of a save, in tree order."""

    location: str
    leaves: tuple[LeafStats, ...]

    def __iter__(self) -> Iterator[LeafStats]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)

    def __getitem__(self, key: str | Key) -> LeafStats:
        wanted = (key,) if isinstance(key, str) else tuple(key)
        for leaf in self.leaves:
            if leaf.key == wanted:
                return leaf
        raise KeyMissingError(f"{self.location}: no statistics of {shown(wanted)}; the leaves are those of to_frame()")

    def to_frame(self) -> pandas.DataFrame:
        """One row per leaf, indexed by the nested key joined with dots; quantiles are the columns ``q0.5`` …"""
        import pandas

        records = []
        for leaf in self.leaves:
            record = {name: getattr(leaf, name) for name in _COLUMNS}
            record.update((f"q{probability:g}", value) for probability, value in leaf.quantiles)
            records.append({**record, "sampled": leaf.sampled, "note": leaf.note})
        index = pandas.Index([".".join(leaf.key) for leaf in self.leaves], name="key")
        return pandas.DataFrame.from_records(records, index=index)

    def to_json(self) -> str:
        """The whole report as JSON text."""
        return json.dumps(
            {"location": self.location, "leaves": [leaf.as_dict() for leaf in self.leaves]}, ensure_ascii=False
        )

    def __str__(self) -> str:
        rows = [["key", *_COLUMNS], *([".".join(leaf.key), *_cells(leaf)] for leaf in self.leaves)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            row[0].ljust(widths[0])
            + "".join("  " + text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
            for row in rows
        ]
        notes = sorted({f"{'.'.join(leaf.key)}: {leaf.note}" for leaf in self.leaves if leaf.problem or not leaf.whole})
        return "\n".join([line.rstrip() for line in lines] + notes)

    def __repr__(self) -> str:
        return f"<StatsReport {self.location}: {len(self.leaves)} leaves>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("key", *_COLUMNS, "histogram", "looked at"))
        body = "".join(
            "<tr><td style='text-align:left'>"
            + html.escape(".".join(leaf.key))
            + "</td>"
            + "".join(f"<td>{html.escape(text)}</td>" for text in _cells(leaf))
            + f"<td>{_bars(leaf.histogram)}</td><td style='text-align:left'>{html.escape(leaf.note)}</td></tr>"
            for leaf in self.leaves
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_COLUMNS = ("dtype", "shape", "count", "nan", "inf", "min", "max", "mean", "std", "distinct")


def stats(
    source: str | os.PathLike[str] | Node,
    *,
    keys: Iterable[str | Key] | None = None,
    bins: int = 64,
    quantiles: Sequence[float] = QUANTILES,
    progress: Progress | None = None,
    engine: Literal["serial", "dask"] = "serial",
) -> StatsReport:
    """Statistics of every leaf, streamed.

    Count, NaN, infinities, bounds, mean and standard deviation are those of every element. Quantiles, distinct and
    histogram are those of every element up to 1,048,576 of them, and of 65,536 evenly spread ones in a larger leaf;
    `LeafStats.note` says which. Of a replay buffer only the written rows count. A leaf that cannot be read gets a
    `LeafStats.problem`; the others are still described.

    Reads each payload once, in blocks of 8 MB in two threads, with less than 64 MB above the mapping; never writes.

    Args:
        source: path of a save, or a node of an open one.
        keys: only these leaves (nested keys below `source`); None for all.
        bins: bars of a histogram, 1 to 4096.
        quantiles: probabilities between 0 and 1.
        progress: called as ``progress(done, total)`` in bytes, between blocks; what it raises stops the work.
        engine: ``"dask"`` summarises the blocks on the current `dask.distributed` client, or in dask's threads if there
            is none. Workers open the save by its path. The result is the same.

    Returns:
        A report that can be shown, iterated, and asked by nested key.

    Raises:
        ArgumentError: `bins`, `quantiles` or `engine` out of range, or dask is to read a save in memory.
        KeyMissingError: a key of `keys` is no leaf.
        NotSupportedError: `engine` is ``"dask"``, which is not installed.
        TdviewError: `source` cannot be opened.
    """
    _check(bins, quantiles)
    summarised = _summarised(engine)
    from tdview.tree.node import Node
    from tdview.tree.scan import scan

    node = source if isinstance(source, Node) else scan(source)
    leaves = [cast("Leaf", node)] if node.is_leaf else list(node.leaves())
    if keys is not None:
        leaves = _chosen(leaves, keys, len(node.path), node.store.label)
    total = sum(work_of(leaf) for leaf in leaves)
    done, found = 0, []
    for leaf in leaves:
        step = None if progress is None else _shifted(progress, done, total)
        found.append(leaf_stats(leaf, bins=bins, quantiles=quantiles, progress=step, summarised=summarised))
        done += work_of(leaf)
    if progress is not None:
        progress(total, total)
    return StatsReport(node.store.label, tuple(found))


def leaf_stats(
    leaf: Leaf,
    *,
    bins: int = 64,
    quantiles: Sequence[float] = QUANTILES,
    progress: Progress | None = None,
    summarised: Summarised | None = None,
) -> LeafStats:
    """Statistics of one leaf; see `stats`. `progress` counts the bytes of this leaf; `summarised` as in `summary`."""
    rows = valid_rows(leaf)
    shape = tuple(leaf.shape)
    try:
        found, sample = summary(leaf, rows, progress, summarised)
    except TdviewError as error:
        from tdview.errors import Cancelled

        if isinstance(error, Cancelled):
            raise
        return LeafStats(key=tuple(leaf.path), dtype=leaf.dtype, shape=shape, rows=rows, problem=str(error))
    return _described(leaf, shape, rows, found, sample, bins, quantiles)


def valid_rows(node: Node) -> tuple[tuple[int, int], ...] | None:
    """Written rows of the replay buffer that holds `node`, ascending; None if it is in none or all rows count."""
    above: Node | None = node
    while above is not None and above.fill is None:
        above = above.parent
    fill = None if above is None else above.fill
    shape = getattr(node, "shape", None) or node.batch_size
    if fill is None or not shape or shape[0] != fill.capacity or fill.rotated:
        return None  # a rotated checkpoint counts rows of the buffer, not of the file
    if (fill.rows and not fill.chronological) or fill.chronological == ((0, fill.capacity),):
        return None
    return tuple(sorted((int(start), int(stop)) for start, stop in fill.chronological))


def _summarised(engine: str) -> Summarised | None:
    if engine == "serial":
        return None
    if engine == "dask":
        from tdview.analysis.dask_stats import summarised_on_dask
        from tdview.analysis.workers import current_client

        current_client()  # without dask this raises here, and not once a leaf
        return summarised_on_dask
    raise ArgumentError(f"engine: expected 'serial' or 'dask', got {shown(engine)}")


def _check(bins: int, quantiles: Sequence[float]) -> None:
    if not 1 <= bins <= 4096:
        raise ArgumentError(f"stats: bins: expected 1 to 4096, got {shown(bins)}")
    for probability in quantiles:
        if not 0 <= probability <= 1:
            raise ArgumentError(f"stats: quantiles: expected probabilities from 0 to 1, got {shown(probability)}")


def _chosen(leaves: list[Leaf], keys: Iterable[str | Key], depth: int, where: str) -> list[Leaf]:
    table = {tuple(leaf.path[depth:]): leaf for leaf in leaves}
    chosen = []
    for key in keys:
        wanted = (key,) if isinstance(key, str) else tuple(key)
        if wanted not in table:
            raise KeyMissingError(f"{where}: no leaf {shown(wanted)}")
        chosen.append(table[wanted])
    return chosen


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    return lambda part, _whole: progress(done + part, total)


def _described(
    leaf: Leaf,
    shape: tuple[int, ...],
    rows: tuple[tuple[int, int], ...] | None,
    found: Partial,
    sample: NDArray[Any] | None,
    bins: int,
    quantiles: Sequence[float],
) -> LeafStats:
    import numpy as np

    sampled = 0 if sample is None else int(sample.size)
    values: tuple[tuple[float, float], ...] = ()
    distinct = histogram = None
    if sample is not None and sampled:
        if sample.dtype == np.float16:  # sorted as float32 it takes a tenth of the time
            sample = sample.astype(np.float32)
        sample.sort(kind="stable" if sample.itemsize <= 2 else None)  # a radix sort; NaN go to the end
        good = sample[: sampled - int(np.count_nonzero(np.isnan(sample)))] if sample.dtype.kind == "f" else sample
        distinct = (1 + int(np.count_nonzero(good[1:] != good[:-1])) if good.size else 0) + (good.size < sampled)
        if sample.dtype.kind == "f":
            good = good[np.isfinite(good)]
        values = tuple(zip(quantiles, _at_ranks(good, quantiles), strict=True)) if good.size else ()
        histogram = _histogram(good, found, bins) if good.size else None
    return LeafStats(
        key=tuple(leaf.path),
        dtype=leaf.dtype,
        shape=shape,
        rows=rows,
        count=found.count,
        nan=found.nan,
        inf=found.inf,
        min=found.low,
        max=found.high,
        mean=found.mean if found.finite else None,
        std=math.sqrt(found.spread / found.finite) if found.finite else None,
        quantiles=values,
        distinct=distinct,
        histogram=histogram,
        sampled=sampled,
    )


def _at_ranks(ordered: NDArray[Any], quantiles: Sequence[float]) -> list[float]:
    """Quantiles of a sorted array, linear between the two neighbours."""
    found = []
    for probability in quantiles:
        rank = probability * (ordered.size - 1)
        low = int(rank)
        left, right = float(ordered[low]), float(ordered[min(low + 1, ordered.size - 1)])
        share = rank - low
        found.append(left * (1 - share) + right * share)
    return found


def _histogram(ordered: NDArray[Any], found: Partial, bins: int) -> Histogram:
    import numpy as np

    low, high = float(found.low), float(found.high)
    if ordered.dtype.kind in "biu" and found.high - found.low < bins:  # a bar for each integer
        edges = np.arange(int(found.high) - int(found.low) + 2) + low - 0.5
    elif low == high:
        edges = np.array([low - 0.5, high + 0.5])
    else:
        edges = low + (high / bins - low / bins) * np.arange(bins + 1)
        edges[-1] = high
    keep = np.concatenate(([True], np.diff(edges) > 0))  # a range of a few ulp has fewer bins
    edges = edges[keep]
    if edges.size < 2:
        edges = np.array([low, np.nextafter(high, np.inf)])
    cuts = np.searchsorted(ordered.astype(np.float64), edges[1:-1], side="left")
    counts = np.diff(np.concatenate(([0], cuts, [ordered.size])))
    return Histogram(edges=tuple(edges.tolist()), counts=tuple(counts.tolist()))


def _plain(value: float | int | None) -> float | int | str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _cells(leaf: LeafStats) -> list[str]:
    numbers = [_text(value) for value in (leaf.min, leaf.max, leaf.mean, leaf.std)]
    distinct = "" if leaf.distinct is None else f"{leaf.distinct:,}" if leaf.whole else f">= {leaf.distinct:,}"
    shape = "[" + ", ".join(map(str, leaf.shape)) + "]"
    counts = [f"{count:,}" for count in (leaf.count, leaf.nan, leaf.inf)]
    return [leaf.dtype.removeprefix("torch."), shape, *counts, *numbers, distinct]


def _text(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _bars(histogram: Histogram | None) -> str:
    """The histogram as a small inline picture that needs no script; colours follow the text."""
    if histogram is None or not histogram.counts:
        return ""
    top = max(histogram.counts) or 1
    width = 96 / len(histogram.counts)
    bars = "".join(
        f"<rect x='{place * width:.1f}' y='{20 - tall:.1f}' width='{width:.1f}' height='{tall:.1f}'/>"
        for place, tall in enumerate(20 * count / top for count in histogram.counts)
    )
    return f"<svg width='96' height='20' fill='currentColor' opacity='0.6'>{bars}</svg>"

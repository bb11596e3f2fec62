"""This module knows how rows or episodes are left out of a save, and how the copy appears as a whole.

It does not judge which rows are bad, and it never changes the save it reads.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdview.analysis.buffers import FLAT_KEYS, buffer_of
from tdview.analysis.dump_files import dump_files
from tdview.analysis.order import row_ranges
from tdview.analysis.replay import Progress
from tdview.analysis.report import Report, ranges_text
from tdview.analysis.rules.registry import counted, finding
from tdview.analysis.selection import Selection, selected_level
from tdview.errors import AlreadyExistsError, ArgumentError, NotSupportedError, Problem, shown
from tdview.format import torchrl
from tdview.operations.source import SourceFile, SourceLevel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.analysis.replay import Buffer
    from tdview.tree.node import Node

__all__ = ["drop"]

Rows = int | Sequence[int] | Iterable[int | tuple[int, int] | range | slice]


def drop(
    path: str | os.PathLike[str] | Node,
    *,
    rows: Rows | None = None,
    episodes: Iterable[int] | None = None,
    out: str | os.PathLike[str],
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Writes a copy of a save without some rows or episodes. The save itself never changes.

    The copy appears under its name when it is complete; a failure leaves nothing. A plain save keeps the order of
    its rows and shrinks. A torchrl dump keeps its capacity, so that the same buffer loads it: the rows that stay
    move to its front, oldest first, and length, cursor, counts, row numbers and priorities are written anew.
    Pickles are copied unread, except a prefetch queue, which holds batches of the old rows.

    Args:
        path: the folder of a dump, a saved directory or a ``.tdz``; or its node.
        rows: storage rows to leave out: numbers, half-open pairs, ranges or slices.
        episodes: numbers of episodes to leave out, as `tdview.episodes` counts them.
        out: directory (or ``.tdz``, of a plain save) to write; there must be nothing.
        dry_run: write nothing and only tell what would be written.
        progress: called as ``progress(done, total)`` in bytes; what it raises stops the work and cleans up.

    Returns:
        A `Report`: rows and bytes before and after as facts, and what deserves attention as problems, such as an
        episode that is cut in the middle.

    Raises:
        ArgumentError: a row or episode that does not exist, or neither rows nor episodes.
        AlreadyExistsError: there is something at `out`.
        NotSupportedError: the save is a collection, a flat or nested checkpoint, or an episode shares its rows with
            others.
        DecodeError: a leaf is damaged, so its rows cannot be copied.
    """
    from tdview.analysis.audit import _node

    node = _node(path)
    buffer = _checked(node, rows, episodes)
    gone = _dropped_rows(buffer, rows, episodes)
    target = Path(out)
    if os.path.lexists(target):
        raise AlreadyExistsError(f"{target}: there is something already; drop writes a new save")
    dumped = buffer.side is not None and buffer.side.length is not None
    selection = _selection(buffer, gone, dumped)
    plan = dump_files(node, buffer, selection) if dumped else None
    level = selected_level(node, selection) if plan is None else None
    nbytes = sum(file.nbytes for file in plan.values()) if plan is not None else _level_nbytes(level)
    report = _report(node, buffer, gone, selection, nbytes, dumped)
    if dry_run:
        return replace(report, verdict=("nothing written yet",) * 2)
    if plan is not None:
        _write_dump(plan, target, nbytes, progress)
    elif level is not None:
        _write_plain(level, target, progress)
    return report


def _checked(node: Node, rows: Rows | None, episodes: Iterable[int] | None) -> Buffer:
    where = node.where()
    if (rows is None) == (episodes is None):
        raise ArgumentError("drop: give either rows or episodes")
    if str(node.kind) == "collection":
        raise NotSupportedError(f"{where}: this holds several saves; give the path of one of them")
    if set(node) >= FLAT_KEYS:
        raise NotSupportedError(
            f"{where}: rows of a flat or nested checkpoint are folded together; dump the buffer plainly"
        )
    buffer = buffer_of(node)
    if not buffer.shape:
        raise NotSupportedError(f"{where}: the save has no batch dim, so it has no rows")
    return buffer


# -- which rows ---


def _dropped_rows(buffer: Buffer, rows: Rows | None, episodes: Iterable[int] | None) -> NDArray[Any]:
    import numpy as np

    found = np.unique(
        _row_numbers(rows, buffer.capacity) if rows is not None else _episode_row_numbers(buffer, episodes)
    )
    outside = found[(found < 0) | (found >= buffer.rows)]
    if len(outside):
        raise ArgumentError(f"rows: row {int(outside[0])} is not one of the {buffer.rows} rows that hold data")
    return found


def _row_numbers(rows: Rows, capacity: int) -> NDArray[Any]:
    import numpy as np

    parts: list[NDArray[Any]] = [np.empty(0, np.int64)]
    for item in [rows] if isinstance(rows, int | slice | range) else rows:
        if isinstance(item, slice):
            parts.append(np.arange(*item.indices(capacity)))
        elif isinstance(item, range):
            parts.append(np.array(item, np.int64))
        elif isinstance(item, tuple | list):
            if len(item) != 2:
                raise ArgumentError(f"rows: expected numbers or half-open pairs, got {shown(item)}")
            parts.append(np.arange(int(item[0]), int(item[1])))
        else:
            parts.append(np.array([int(item)], np.int64))
    return np.concatenate(parts)


def _episode_row_numbers(buffer: Buffer, episodes: Iterable[int] | None) -> NDArray[Any]:
    import numpy as np

    from tdview.analysis.episodes import episode_rows, episode_table

    if not (buffer.sequential and buffer.ordered and buffer.columns):
        raise NotSupportedError(f"{buffer.where}: there are no episodes; drop rows instead")
    padded = buffer.time_last and buffer.valid is not None
    if buffer.inner > 1 and not padded:
        raise NotSupportedError(
            f"{buffer.where}: an episode shares its rows with other environments; drop rows instead"
        )
    table = episode_table(buffer)
    spans = episode_rows(buffer, table.first, table.last)
    parts: list[NDArray[Any]] = [np.empty(0, np.int64)]
    for number in episodes or ():
        if not 0 <= int(number) < len(spans):
            raise ArgumentError(f"episodes: there is no episode {int(number)}; they are numbered 0 to {len(spans) - 1}")
        parts += [np.arange(a, b) for a, b in spans[int(number)]]
    return np.concatenate(parts)


def _selection(buffer: Buffer, gone: NDArray[Any], dumped: bool) -> Selection:
    import numpy as np

    if not dumped:
        kept = np.setdiff1d(np.arange(buffer.capacity), gone)
        return Selection(old=buffer.capacity, rows=kept, size=len(kept))
    fill = buffer.fill
    spans = fill.chronological if fill is not None else ()
    order = np.concatenate([np.empty(0, np.int64), *(np.arange(a, b) for a, b in spans)])
    kept = order[~np.isin(order, gone)]
    numbered = fill is not None and fill.ordered
    return Selection(old=buffer.capacity, rows=kept, size=buffer.capacity, numbered=numbered)


def _report(node: Node, buffer: Buffer, gone: NDArray[Any], selection: Selection, nbytes: int, dumped: bool) -> Report:
    before = sum(info.nbytes for info in node.store.walk())
    facts = (
        ("rows dropped", f"{len(gone)}: {ranges_text(row_ranges(gone))}" if len(gone) else "0"),
        ("rows kept", f"{len(selection.rows)} of {buffer.rows}" + (f", capacity {selection.size}" if dumped else "")),
        ("bytes", f"{nbytes} after, {before} before"),
    )
    problems = [*_cuts(buffer, gone), *_left_out(node, dumped)]
    verdict = ("a copy was written",) * 2
    return Report(where=node.where(), problems=tuple(problems), facts=facts, checks=("drop",), verdict=verdict)


def _cuts(buffer: Buffer, gone: NDArray[Any]) -> Iterator[Problem]:
    """Steps that stay while the next step of their episode goes: nothing marks them as an end."""
    import numpy as np

    if not (buffer.sequential and buffer.ordered and buffer.columns and len(gone)) or buffer.time_last:
        return
    away = np.isin(buffer.storage_rows(np.arange(buffer.n)), gone)
    m = buffer.n - buffer.stride
    cut = np.flatnonzero(~away[:m] & away[buffer.stride :] & ~buffer.breaks[:m])
    if len(cut):
        text = (
            f"{counted(len(cut), 'episode')} cut in the middle: no end flag marks the gap. Drop whole episodes instead"
        )
        yield finding("episode_segmentation", "warning", text, (), buffer.ranges(cut))


def _left_out(node: Node, dumped: bool) -> Iterator[Problem]:
    pickles = [name for name in node.side_files if torchrl.is_pickle(name)] if dumped else []
    kept = [name for name in pickles if not name.endswith("prefetch.pkl")]
    if len(kept) < len(pickles):
        text = "prefetch.pkl is left out: its queue holds batches of the old rows"
        yield finding("pickle_present", "note", text, ("prefetch.pkl",))
    if kept:
        text = f"copied unread, so they may speak of old rows: {', '.join(shown(name, 40) for name in kept[:5])}"
        yield finding("pickle_present", "note", text)


# -- writing ---


def _level_nbytes(level: SourceLevel | None) -> int:
    if level is None:
        return 0
    return sum(len(one.meta) + sum(file.nbytes for file in one.files) for _, one in level.walk())


def _write_plain(level: SourceLevel, target: Path, progress: Progress | None) -> None:
    from tdview.operations.write import write_archive, write_directory

    if target.suffix == ".tdz":
        write_archive(level, target, existsok=False, progress=progress)
    else:
        write_directory(level, target, existsok=False, atomic=True, progress=progress)


def _write_dump(plan: dict[str, SourceFile], target: Path, nbytes: int, progress: Progress | None) -> None:
    """Writes every file into a directory beside the target and renames that at the end."""
    if target.suffix == ".tdz":
        raise NotSupportedError(f"{target}: a whole torchrl dump is written as a directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".tdtmp-", dir=target.parent))
    done = 0
    try:
        for name, file in plan.items():
            place = stage / "new" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as handle:
                for block in file.blocks() if file.blocks is not None else ():
                    handle.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(min(done, nbytes), nbytes)
        if os.path.lexists(target):
            raise AlreadyExistsError(f"{target}: there is something now; nothing was written")
        os.rename(stage / "new", target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)

"""This module knows how the audit of a save is put together: storage checks, rules per buffer, comparison.

It does not know any rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tdview.analysis import columns as col
from tdview.analysis.blocks import Engine, SerialEngine
from tdview.analysis.buffers import buffer_of, buffers_below, loose_findings
from tdview.analysis.columns import Key
from tdview.analysis.parts import DEFAULT_SAMPLE, Options
from tdview.analysis.replay import Buffer, Progress
from tdview.analysis.report import Report, ranges_text
from tdview.analysis.rules import DEFAULT, Registry, Rule, finding
from tdview.errors import ArgumentError, DecodeError, Problem, shown
from tdview.format import torchrl
from tdview.tree.text import nbytes_text

if TYPE_CHECKING:
    from tdview.tree.node import Node

__all__ = ["audit"]

Rules = Registry | Iterable[Rule]


def audit(
    path: str | os.PathLike[str] | Node,
    *,
    against: str | os.PathLike[str] | Node | None = None,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    time_dim: int | None = None,
    bounds: Mapping[str | tuple[str, ...], tuple[float, float]] | None = None,
    fps: float | None = None,
    horizon: int | None = None,
    sample: int | None = DEFAULT_SAMPLE,
    rules: Rules | None = None,
    only: Collection[str] | None = None,
    skip: Collection[str] = (),
    engine: Literal["serial", "dask"] | Engine = "serial",
    progress: Progress | None = None,
) -> Report:
    """Checks a saved replay buffer or data set: is it stored soundly, and do its rows make sense?

    Reads the valid rows in blocks (memory stays below 512 MB however large the save is) and changes nothing.
    Pickles of torchrl are listed and never opened. Leaves that are large because of their rows, as images are, are
    read as an evenly spread sample, and the report says so.

    Args:
        path: anything `scan` opens, or its node. Of a collection every member is audited.
        against: another save: both are compared (keys, distributions by permuting whole episodes, shared rows).
        keys: which entry plays which part, where the usual names do not fit: ``{"reward": ("next", "r")}``. Parts:
            done, terminated, truncated, reward, traj, step, action, mask, timestamp, index.
        time_dim: batch dim along which time runs; found out from step counts and ids if it is not given.
        bounds: allowed least and greatest value by key.
        fps: frames per second of time stamps; without it the median distance counts.
        horizon: greatest length of an episode in steps.
        sample: rows that are read of a leaf with large rows; None reads everything.
        rules: the rules to run, see `tdview.rule`; the default ones if it is not given.
        only: names of the rules to run; all if it is not given. ``"storage"`` names the checks of `verify`.
        skip: names of rules not to run.
        engine: ``"dask"`` runs the blocks on the current `dask.distributed` client, or in threads if there is none;
            the result is the same.
        progress: called as ``progress(done, total)`` between blocks; what it raises stops the audit.

    Returns:
        A `Report`. Rows are half-open ranges of storage rows (the first batch dim).

    Raises:
        DecodeError: there is no saved tensordict at `path`.
        ArgumentError: a part, key or rule that does not exist.
    """
    root = _node(path)
    options = Options(
        keys={part: _key(key) for part, key in (keys or {}).items()},
        time_dim=time_dim,
        bounds={_key(key): (float(low), float(high)) for key, (low, high) in (bounds or {}).items()},
        fps=fps,
        horizon=horizon,
        sample=sample,
    )
    chosen = _chosen(rules, only, skip)
    members = list(buffers_below(root))
    ticker = _Ticker(progress, len(members) * (len(chosen) + 2))
    report = Report(where=root.where())
    storage = "storage" not in skip and (only is None or "storage" in only)
    if storage:
        report = report.merge(_storage(root, ticker))
    ticker.next()
    for member in members:
        report = report.merge(_audit_member(member, options, chosen, engine, ticker), under=member.path)
    if against is not None:
        report = report.merge(_compared(members, _node(against), options, ticker, skip, only))
    ticker.finish()
    return report


def _node(path: str | os.PathLike[str] | Node) -> Node:
    from tdview.tree.node import Node
    from tdview.tree.scan import open_root

    return path if isinstance(path, Node) else open_root(path)


def _key(key: str | Sequence[str]) -> Key:
    return (key,) if isinstance(key, str) else tuple(key)


def _chosen(rules: Rules | None, only: Collection[str] | None, skip: Collection[str]) -> Registry:
    registry = DEFAULT.copy() if rules is None else Registry(rules)
    extra = {"storage", "shift", "leakage"}
    for names, word in ((skip, "skip"), (only or (), "only")):
        unknown = sorted(name for name in names if name not in registry and name not in extra)
        if unknown:
            known = ", ".join([*(rule.name for rule in registry), *sorted(extra)])
            raise ArgumentError(f"{word}: there is no rule {shown(unknown[0])}; the rules are {known}")
    kept = [rule for rule in registry if rule.name not in skip and (only is None or rule.name in only)]
    return Registry(kept)


class _Ticker:
    """Calls the caller's progress function between blocks: the unit is a rule of a buffer."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress = progress
        self.total = total
        self.done = 0

    def next(self) -> None:
        self.done += 1
        self()

    def __call__(self) -> None:
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def finish(self) -> None:
        self.done = self.total
        self()


def _engine(engine: str | Engine, node: Node, options: Options) -> Engine:
    if isinstance(engine, Engine):
        return engine
    if engine == "serial":
        return SerialEngine()
    if engine == "dask":
        from tdview.analysis.dask_engine import DaskEngine

        return DaskEngine(node, options)
    raise ArgumentError(f"engine: expected 'serial' or 'dask', got {shown(engine)}")


def _storage(root: Node, tick: Callable[[], None]) -> Report:
    from tdview.analysis.verify import verify

    found = verify(root, progress=lambda _done, _total: tick())
    problems = [*found.problems, *_manifest(root)]
    for node in buffers_below(root):
        problems += _pickles(node)
    return replace(found, problems=tuple(problems), checks=("storage",))


def _pickles(node: Node) -> list[Problem]:
    names = [name for name in node.side_files if torchrl.is_pickle(name)]
    if not names:
        return []
    listed = ", ".join(shown(name, 60) for name in names[:5]) + (" …" if len(names) > 5 else "")
    text = (
        f"pickles lie beside the rows: {listed}; they are not opened, and torchrl executes them when it loads the dump"
    )
    return [finding("pickle_present", "note", text, node.path)]


def _manifest(root: Node) -> list[Problem]:
    """Files that the manifest of a torchrl checkpoint lists and that are not there."""
    store = root.store
    found: list[Problem] = []
    head = f"{root.prefix}/" if root.prefix else ""
    if str(root.kind) != "collection" or store.info(head + torchrl.MANIFEST) is None:
        return found
    try:
        manifest = torchrl.parse_manifest(store.read(head + torchrl.MANIFEST, 64 << 20), head + torchrl.MANIFEST)
    except DecodeError as error:
        return [finding("side_file", "error", str(error))]
    for name, path, files in manifest.components:
        missing = [file for file in files if store.info(f"{head}{path}/{file}") is None]
        if missing:
            text = f"{len(missing)} files of the component {shown(name)} that the manifest lists are missing: "
            found.append(finding("missing_file", "error", text + ", ".join(shown(file) for file in missing[:3])))
    return found


def _audit_member(node: Node, options: Options, rules: Registry, engine: str | Engine, ticker: _Ticker) -> Report:
    """Audits one buffer; where a leaf turns out to be unreadable, once more without such leaves."""
    for careful in (False, True):
        chosen = replace(options, careful=careful)
        run = _engine(engine, node, chosen)
        try:
            return _audit_one(node, chosen, rules, run, ticker)
        except DecodeError:
            if careful:
                raise
        finally:
            run.close()
    raise AssertionError("one of the two turns returns or raises")


def _audit_one(node: Node, options: Options, rules: Registry, engine: Engine, ticker: _Ticker) -> Report:
    buffer = buffer_of(node, options)
    buffer.engine = engine
    buffer.tick = ticker
    problems: list[Problem] = []
    ran: list[str] = []
    for rule in rules:
        if rule.applies(buffer) and (buffer.columns or rule.name == "valid_range"):
            problems += _run(rule, buffer)
            ran.append(rule.name)
            buffer.release()
        ticker.next()
        if rule.name == "valid_range" and any(p.code == "all_zero" and not p.key for p in problems):
            break
    if not buffer.columns:
        problems += loose_findings(node) if "finite" in rules else []
    problems += _sampled(buffer)
    moved = [replace(p, key=buffer.original_key(p.key)) for p in problems]
    label = f"{'.'.join(node.path)}: " if node.path else ""
    facts = tuple((label + name, value) for name, value in _facts(buffer))
    return Report(where=node.where(), problems=tuple(moved), facts=facts, checks=tuple(ran))


def _run(rule: Rule, buffer: Buffer) -> list[Problem]:
    import numpy as np

    with np.errstate(all="ignore"):  # overflows and NaN are findings, not warnings
        return list(rule.check(buffer))


def _sampled(buffer: Buffer) -> list[Problem]:
    text = (
        "its rows cannot be read in the order of time without inflating or stacking all of them for every block: "
        "unpack the save, or save the view as a tensordict, first"
    )
    found = [finding("not_checked", "note", text, key) for key in buffer.unread]
    for key in buffer.columns:
        if buffer.is_heavy(key):
            read = sum(b - a for a, b in buffer.sampled((key,)))
            text = f"{read} of {buffer.n} rows were read, evenly spread; sample=None reads them all"
            found.append(finding("not_checked", "note", text, key))
    return found


def _facts(buffer: Buffer) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = []
    fill = buffer.fill
    if fill is not None:
        plain = not fill.certain and fill.full and fill.seam is None
        text = str(fill.rows) if plain else f"{fill.rows} of {fill.capacity}"
        facts.append(("rows", text + ("" if fill.certain or plain else " (guessed)")))
        if not fill.full and buffer.leaf_keys and not buffer.profile:
            row = sum(col.nbytes(buffer.columns[k]) for k in buffer.leaf_keys if k in buffer.columns) * buffer.inner
            text = f"{nbytes_text((fill.capacity - fill.rows) * row)} of {nbytes_text(fill.capacity * row)}"
            facts.append(("never written", text))
        if fill.seam is not None:
            facts.append(("oldest first", "rows " + ranges_text(fill.chronological)))
    elif buffer.shape:
        facts.append(("rows", str(buffer.rows)))
    if buffer.profile:
        facts.append(("layout", buffer.profile))
    elif not buffer.ordered:
        facts.append(("layout", "no time order (max-value writer)"))
    elif buffer.sequential and buffer.permutation is not None:
        facts.append(("layout", "several environments in turn, sorted by trajectory"))
    elif buffer.sequential and buffer.stretch:
        facts.append(("layout", f"several environments in turn, {buffer.stretch} rows each, without ids"))
    elif len(buffer.shape) > 1:
        facts.append(("layout", f"time runs along batch dim {len(buffer.shape) - 1 if buffer.time_last else 0}"))
    return tuple(facts)


def _compared(
    members: Sequence[Node],
    other: Node,
    options: Options,
    ticker: Callable[[], None],
    skip: Collection[str],
    only: Collection[str] | None,
) -> Report:
    from tdview.analysis.against import compare

    others = list(buffers_below(other))
    if len(members) != 1 or len(others) != 1:
        raise ArgumentError("against: both saves must be single buffers; give the path of one member of each")
    mine, theirs = buffer_of(members[0], options), buffer_of(others[0], options)
    mine.tick = theirs.tick = ticker
    wanted = [name for name in ("shift", "leakage") if name not in skip and (only is None or name in only)]
    return Report(where=mine.where, problems=tuple(compare(mine, theirs, wanted)), checks=tuple(wanted))

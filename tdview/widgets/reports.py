"""This module knows how findings and episodes of a save are asked for and how they travel.

It does not know any check.

Operations, all slow: ``verify`` and ``audit`` → ``{ok, problems, total, summary, episodes}``, ``episodes`` ``{path}`` →
``{path, summary, episodes, total}`` of the save that holds the path, which is the whole one unless several lie below
each other; an episode is ``{number, rows, length, return, end, cut}``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tdview.errors import NotSupportedError
from tdview.widgets.messages import path_arg
from tdview.widgets.tree_ops import MAX_PROBLEMS, node_of, problem_json

if TYPE_CHECKING:
    from tdview.analysis.report import Report
    from tdview.tree.node import Node
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["register"]

MAX_EPISODES = 2000


def register(router: Router, browser: Browser) -> None:
    """Adds the checks of the whole save to `router`."""
    router.register("verify", lambda _args, _buffers, call: _verify(browser, call), slow=True)
    router.register("audit", lambda _args, _buffers, call: _audit(browser, call), slow=True)
    router.register("episodes", lambda args, _buffers, call: _episodes(_save_at(browser, args), call), slow=True)


def _verify(browser: Browser, call: Call) -> dict[str, Any]:
    from tdview.analysis.verify import verify

    return _report(verify(browser.root, progress=call.progress))


def _audit(browser: Browser, call: Call) -> dict[str, Any]:
    from tdview.analysis.audit import audit

    report = _report(audit(browser.root, progress=call.progress))
    if browser.root.kind == "collection":
        return report
    found = _episodes(browser.root, call)
    return report | {"summary": found["summary"], "episodes": found["episodes"]}


def _report(report: Report) -> dict[str, Any]:
    problems = [problem_json(problem) for problem in report.problems[:MAX_PROBLEMS]]
    return {"ok": report.ok, "problems": problems, "total": len(report.problems), "summary": "", "episodes": []}


def _save_at(browser: Browser, args: dict[str, Any]) -> Node:
    """The save that holds a path: what stands first below the collections above it."""
    node = browser.root
    for part in path_arg(args) if "path" in args else ():
        if node.kind != "collection":
            break
        node = node_of(node, (part,))
    while node.kind == "collection" and len(members := node.children()) == 1:
        node = members[0]
    if node.kind == "collection":
        raise NotSupportedError("this holds several saves; select one of them in the tree")
    return node


def _episodes(save: Node, call: Call) -> dict[str, Any]:
    from tdview.analysis.episodes import episodes

    frame = episodes(save, progress=call.progress)
    columns = {name: frame[name].tolist() for name in ("rows", "length", "return", "ending", "cut")}
    shown = [
        {"number": number, "rows": rows, "length": length, "return": value, "end": end, "cut": bool(cut)}
        for number, (rows, length, value, end, cut) in enumerate(zip(*columns.values(), strict=True))
        if number < MAX_EPISODES
    ]
    return {"path": list(save.path), "summary": _summary(columns), "episodes": shown, "total": len(frame)}


def _summary(columns: dict[str, list[Any]]) -> str:
    """``14 episodes, return 22.4 ± 9.1, 11 terminated, 2 truncated, 1 cut by the seam``; empty without episodes."""
    count = len(columns["length"])
    if not count:
        return ""
    parts = ["1 episode" if count == 1 else f"{count} episodes"]
    returns = [float(value) for value in columns["return"] if math.isfinite(value)]
    if returns:
        mean = math.fsum(returns) / len(returns)
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / len(returns))
        parts.append(f"return {mean:.4g} ± {spread:.2g}")
    endings = columns["ending"]
    parts += [f"{endings.count(end)} {end}" for end in ("terminated", "truncated", "done", "open") if end in endings]
    seam = endings.count("seam") + sum(map(bool, columns["cut"]))
    return ", ".join([*parts, *([f"{seam} cut by the seam"] if seam else [])])

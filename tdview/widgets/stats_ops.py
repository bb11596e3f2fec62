"""This module knows the request of the statistics tab.

It does not know how statistics are computed.

Operation: ``stats`` (slow) ``{path, bins}`` → ``{leaves: [LeafStats.as_dict(), …], hidden}``, with progress in bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tdview.widgets.messages import int_arg
from tdview.widgets.pages import node_at

if TYPE_CHECKING:
    from tdview.widgets.browser import Browser
    from tdview.widgets.router import Call, Router

__all__ = ["register"]

MAX_LEAVES = 500
"""Leaves of one answer; more are counted and said, `tdview.stats` gives all."""


def register(router: Router, browser: Browser) -> None:
    """Adds the operation of the statistics tab to `router`."""
    router.register("stats", lambda args, _buffers, call: _stats(browser, args, call), slow=True)


def _stats(browser: Browser, args: dict[str, Any], call: Call) -> dict[str, Any]:
    from tdview.analysis.stats import stats

    node = node_at(browser, args)
    bins = int_arg(args, "bins", 48, low=1, high=512)
    if node.is_leaf:
        keys, hidden = None, 0
    else:
        paths = [tuple(leaf.path)[len(node.path) :] for leaf in node.leaves()]
        keys, hidden = paths[:MAX_LEAVES], max(0, len(paths) - MAX_LEAVES)
    report = stats(node, keys=keys, bins=bins, progress=call.progress)
    return {"leaves": [leaf.as_dict() for leaf in report], "hidden": hidden}

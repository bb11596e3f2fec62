"""This module knows which rules an audit runs, in which order.

It does not know what they check: see the modules beside it, and `tdview.rule` for adding one.
"""

from __future__ import annotations

from tdview.analysis.rules import drift, duplicates, filling, flags, priorities, sequence, transitions, values
from tdview.analysis.rules.registry import Check, Mode, Registry, Rule, finding

__all__ = ["DEFAULT", "Check", "Mode", "Registry", "Rule", "builtin", "finding", "rule"]

_ROWS: tuple[Mode, ...] = ("sequential",)
_TIME: tuple[Mode, ...] = ("sequential", "ordered")
_STEP: tuple[Mode, ...] = ("sequential", "ordered", "one_step")

# The order is that of reading: first what is there at all, then values, then flags, then time, then samplers.
_BUILTIN: tuple[tuple[str, Check, tuple[Mode, ...]], ...] = (
    ("valid_range", filling.valid_range, ()),
    ("finite", values.finite, ()),
    ("done_algebra", flags.done_algebra, _ROWS),
    ("segmentation", flags.segmentation, _TIME),
    ("next_observation", transitions.next_observation, _STEP),
    ("boundary_leak", transitions.boundary_leak, _TIME),
    ("ring_seam", sequence.ring_seam, _TIME),
    ("step_count", sequence.step_count, _TIME),
    ("trajectory_ids", sequence.trajectory_ids, _TIME),
    ("returns", sequence.returns, _ROWS),
    ("actions", values.actions, _ROWS),
    ("constant_features", values.constant_features, _ROWS),
    ("duplicates", duplicates.duplicates, _ROWS),
    ("frozen_observation", transitions.frozen_observation, _ROWS),
    ("pixels", values.pixels, _ROWS),
    ("priorities", priorities.priorities, ()),
    ("timestamps", sequence.timestamps, ("ordered",)),
    ("drift", drift.drift, _TIME),
)


def builtin() -> Registry:
    """A fresh registry of tdview's own rules about one buffer; `audit` adds storage, shift and leak."""
    return Registry(
        Rule(name=name, check=check, needs=frozenset(needs), means=(check.__doc__ or "").strip().splitlines()[0])
        for name, check, needs in _BUILTIN
    )


DEFAULT = builtin()
"""The rules that `audit` uses when it is given none; `rule` adds to them."""

rule = DEFAULT.rule
"""Decorator that adds a rule to every later audit of this process; see `Registry.rule`."""

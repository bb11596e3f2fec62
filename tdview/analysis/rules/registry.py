"""This module knows what a rule of the audit is and how rules are collected, switched and extended.

It does not know what any rule checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from tdview.errors import ArgumentError, Problem, Severity

if TYPE_CHECKING:
    from tdview.analysis.columns import Key
    from tdview.analysis.replay import Buffer

__all__ = ["Check", "Mode", "Registry", "Rule", "counted", "finding"]

MAX_RANGES = 1000
"""Stretches of rows that one finding lists."""

Check = Callable[["Buffer"], Iterable[Problem]]
Mode = Literal["ordered", "sequential", "one_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One check of a replay buffer."""

    name: str
    """How it is switched off: ``audit(path, skip=["duplicates"])``."""
    check: Check
    """Called with a `Buffer`; yields a `Problem` for each finding and changes nothing."""
    needs: frozenset[Mode] = frozenset({"sequential"})
    """Where it applies. ``"sequential"``: rows of transitions. ``"ordered"``: neighbours in time are known (not
    for a max-value writer). ``"one_step"``: not for n-step rewards."""
    means: str = ""
    """What a finding means, one sentence."""

    def applies(self, buffer: Buffer) -> bool:
        """Whether the rule says anything about this buffer."""
        holds = {"ordered": buffer.ordered, "sequential": buffer.sequential, "one_step": not buffer.n_step}
        return all(holds[need] for need in self.needs)


class Registry:
    """An ordered collection of rules. `audit` uses `DEFAULT` unless it is given another one."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules: dict[str, Rule] = {}
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> Rule:
        """Adds a rule behind the others; one of the same name is replaced in its place."""
        self._rules[rule.name] = rule
        return rule

    def copy(self) -> Registry:
        """A registry with the same rules; adding to it leaves this one as it is."""
        return Registry(self)

    def __iter__(self) -> Iterator[Rule]:
        return iter(tuple(self._rules.values()))

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, name: object) -> bool:
        return name in self._rules

    def without(self, names: Iterable[str]) -> Registry:
        """A registry that lacks the named rules.

        Raises:
            ArgumentError: there is no rule of that name.
        """
        dropped = set(names)
        unknown = sorted(dropped - set(self._rules))
        if unknown:
            raise ArgumentError(f"skip: there is no rule {unknown[0]!r}; the rules are {', '.join(self._rules)}")
        return Registry(rule for rule in self if rule.name not in dropped)

    @overload
    def rule(self, check: Check, /) -> Check: ...
    @overload
    def rule(
        self, name: str | None = None, /, *, needs: Iterable[Mode] = ..., means: str = ...
    ) -> Callable[[Check], Check]: ...
    def rule(
        self, check: Any = None, /, *, needs: Iterable[Mode] = ("sequential",), means: str = ""
    ) -> Check | Callable[[Check], Check]:
        """Decorator that adds a function to the registry; the function itself stays as it is.

        Args:
            check: the function, or the name of the rule; the function's own name where it is left out.
            needs: see `Rule.needs`.
            means: what a finding means; the first line of the function's docstring where it is left out.

        Examples:
            >>> registry = Registry()
            >>> @registry.rule("short", needs=())
            ... def short(buffer):
            ...     if buffer.rows < 100:
            ...         yield Problem("short", "fewer than 100 rows", "warning")
            >>> [rule.name for rule in registry]
            ['short']
        """

        def add(function: Check, name: str | None = None) -> Check:
            doc = (function.__doc__ or "").strip().splitlines()
            called = name or str(getattr(function, "__name__", "rule"))
            self.add(Rule(name=called, check=function, needs=frozenset(needs), means=means or (doc[0] if doc else "")))
            return function

        if callable(check):
            return add(check)
        return lambda function: add(function, check)


def counted(number: int, noun: str) -> str:
    """A number and its noun: ``"1 row"``, ``"3 rows"``.

    Examples:
        >>> counted(1, "row"), counted(12, "episode")
        ('1 row', '12 episodes')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def finding(
    code: str, severity: Severity, message: str, key: Key = (), rows: Iterable[tuple[int, int]] = ()
) -> Problem:
    """A `Problem` of a rule, arguments in the order in which a rule thinks of them."""
    spans = tuple(rows)
    if len(spans) >= MAX_RANGES:
        message += f"; only the first {MAX_RANGES} stretches of rows are listed"
    return Problem(code, message, severity, tuple(key), spans)

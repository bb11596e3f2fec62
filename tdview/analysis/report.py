"""This module knows how findings about a save are collected, ordered and shown.

It does not know how a finding is made.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tdview.errors import CODES, Problem

if TYPE_CHECKING:
    import pandas

__all__ = ["Report", "ranges_text"]

_RANK = {"error": 0, "warning": 1, "note": 2}
_MARK = {"error": "✗", "warning": "!", "note": "·"}
_SHOWN = 200  # rows of the HTML form: a notebook cell stays small however damaged the save is
_COLOUR = {
    "error": "var(--jp-error-color1, #b3261e)",
    "warning": "var(--jp-warn-color1, #9a5b00)",
    "note": "var(--jp-ui-font-color2, #666)",
}


def _rank(problem: Problem) -> tuple[object, ...]:
    return (_RANK[problem.severity], problem.code, problem.key, problem.rows, problem.message)


def ranges_text(rows: Iterable[tuple[int, int]], limit: int = 6) -> str:
    """Half-open row ranges as text: ``"5, 17, 40–42"`` (the last row included, as people read it).

    Args:
        rows: half-open ranges of row numbers.
        limit: how many ranges are written out; the rest is counted.

    Examples:
        >>> ranges_text([(5, 6), (40, 43)])
        '5, 40–42'
    """
    spans = list(rows)
    parts = [str(a) if b == a + 1 else f"{a}–{b - 1}" for a, b in spans[:limit]]
    more = len(spans) - limit
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check found, most serious first.

    The order depends on the findings alone, so two runs over the same bytes give the same text, JSON and HTML.
    Truth value and length follow the problems: ``if report:`` asks whether there is anything to read.
    """

    where: str
    """The save that was looked at, as text."""
    problems: tuple[Problem, ...] = ()
    """The findings: errors, then warnings, then notes; each group by code, key and rows."""
    facts: tuple[tuple[str, str], ...] = ()
    """What is worth knowing beside the findings: pairs of name and value, in reading order."""
    checks: tuple[str, ...] = ()
    """Names of the checks that ran, in the order in which they ran."""
    verdict: tuple[str, str] = ("sound", "not sound")
    """What `ok` and the opposite are called."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "problems", tuple(sorted(set(self.problems), key=_rank)))

    @property
    def ok(self) -> bool:
        """No finding is an error. Warnings and notes leave a report ok."""
        return not any(p.severity == "error" for p in self.problems)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, sorted, each once."""
        return tuple(sorted({p.code for p in self.problems}))

    @property
    def counts(self) -> dict[str, int]:
        """How many errors, warnings and notes there are."""
        found = Counter(p.severity for p in self.problems)
        return {name: found[name] for name in ("error", "warning", "note")}

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    def at_least(self, severity: str) -> tuple[Problem, ...]:
        """The findings of this severity or a more serious one."""
        return tuple(p for p in self.problems if _RANK[p.severity] <= _RANK[severity])

    def merge(self, *others: Report, under: tuple[str, ...] = ()) -> Report:
        """One report of several: this report's place, everybody's findings, facts and checks.

        Args:
            others: reports about parts of the same save.
            under: nested key put in front of the keys of the others' findings.
        """
        moved = [replace(p, key=(*under, *p.key)) if under else p for other in others for p in other.problems]
        facts = [*self.facts, *(f for other in others for f in other.facts)]
        checks = [*self.checks, *(c for other in others for c in other.checks)]
        return replace(
            self,
            problems=(*self.problems, *moved),
            facts=tuple(dict.fromkeys(facts)),
            checks=tuple(dict.fromkeys(checks)),
        )

    def to_frame(self) -> pandas.DataFrame:
        """The findings as a `pandas.DataFrame`, one row each.

        Columns: severity, code, key (tuple), rows (tuple of half-open ranges), message.
        """
        import pandas as pd

        names = ("severity", "code", "key", "rows", "message")
        return pd.DataFrame({n: [getattr(p, n) for p in self.problems] for n in names}, columns=list(names))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts, lists, strings and numbers."""
        return {
            "where": self.where,
            "ok": self.ok,
            "counts": self.counts,
            "facts": dict(self.facts),
            "checks": list(self.checks),
            "problems": [
                {
                    "severity": p.severity,
                    "code": p.code,
                    "key": list(p.key),
                    "rows": [list(r) for r in p.rows],
                    "message": p.message,
                }
                for p in self.problems
            ],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON text; equal reports give equal text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def summary(self) -> str:
        """One line: ``"sound"`` or not, and how many errors, warnings and notes there are."""
        parts = [f"{n} {name}{'s' if n > 1 else ''}" for name, n in self.counts.items() if n]
        return self.verdict[0 if self.ok else 1] + (": " + ", ".join(parts) if parts else "")

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.summary()}"]
        lines += [f"  {name}: {value}" for name, value in self.facts]
        for p in self.problems:
            key = ".".join(p.key)
            head = f"{_MARK[p.severity]} {p.severity:<7} {p.code}" + (f" [{key}]" if key else "")
            lines.append(f"  {head}: {p.message}" + (f" (rows {ranges_text(p.rows)})" if p.rows else ""))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Report {self.where!r} {self.summary()}>"

    def _repr_html_(self) -> str:
        """Static HTML: everything taken from files is escaped; no script, no random ids."""
        esc = html.escape
        facts = " · ".join(f"{esc(n)}: {esc(v)}" for n, v in self.facts)
        head = (
            f"<div><b>{esc(self.where)}</b> "
            f'<span style="color:{_COLOUR["error" if not self.ok else "note"]}">{esc(self.summary())}</span></div>'
        )
        if facts:
            head += f'<div style="color:{_COLOUR["note"]}">{facts}</div>'
        rows = "".join(
            f'<tr><td style="color:{_COLOUR[p.severity]};text-align:left">{p.severity}</td>'
            f'<td style="text-align:left" title="{esc(CODES.get(p.code, ""))}">{esc(p.code)}</td>'
            f'<td style="text-align:left"><code>{esc(" › ".join(p.key))}</code></td>'
            f'<td style="text-align:left">{esc(ranges_text(p.rows))}</td>'
            f'<td style="text-align:left;white-space:normal">{esc(p.message)}</td></tr>'
            for p in self.problems[:_SHOWN]
        )
        if not rows:
            return head
        titles = "".join(f'<th style="text-align:left">{t}</th>' for t in ("", "code", "key", "rows", "what it means"))
        table = f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
        left = len(self.problems) - _SHOWN
        return head + table + (f"<div>and {left} more: report.to_frame() has them all</div>" if left > 0 else "")

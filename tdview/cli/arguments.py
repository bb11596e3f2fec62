"""This module knows what the arguments of the verbs have in common: nested keys, rows, `--json`.

It does not know the verbs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tdview.errors import ArgumentError, shown

if TYPE_CHECKING:
    from tdview.tree.node import Node

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a verb is added."""

__all__ = ["Verbs", "above_zero", "add_key", "add_verb", "node_at", "row_numbers", "row_ranges", "rows_text"]


def add_verb(
    verbs: Verbs, name: str, run: Callable[[argparse.Namespace], int], summary: str, *, detail: str = ""
) -> argparse.ArgumentParser:
    """A verb with its help and the option that all verbs have."""
    description = f"{summary[0].upper()}{summary[1:]}. {detail}".strip()
    parser = verbs.add_parser(name, help=summary, description=description)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    return parser


def add_key(parser: argparse.ArgumentParser, what: str) -> None:
    """The nested key of an entry, a word a part."""
    wanted = f"{what}: a nested key as words or joined: next reward, next.reward"
    parser.add_argument("key", nargs="*", default=[], metavar="KEY", help=wanted)


def node_at(root: Node, words: list[str]) -> Node:
    """The entry that the words name; dots and slashes part a key where no entry has them in its name.

    Raises:
        KeyMissingError: there is no such entry.
    """
    if not words:
        return root
    exact = tuple(words)
    if exact in root:
        return root[exact]
    for mark in (".", "/", "›"):
        parts = tuple(part.strip() for word in words for part in word.split(mark))
        if parts != exact and parts in root:
            return root[parts]
    return root[exact]


def row_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Half-open row ranges: ``"3,10:20"``.

    Raises:
        argparse.ArgumentTypeError: the text is no list of rows and ranges ``start:stop``.

    Examples:
        >>> row_ranges("3,10:20")
        ((3, 4), (10, 20))
    """
    ranges = []
    for part in text.split(","):
        start, colon, stop = part.partition(":")
        try:
            first = int(start)
            last = int(stop) if colon else first + 1
        except ValueError:
            first, last = 0, -1
        if first < 0 or last < first:
            raise argparse.ArgumentTypeError(f"expected rows such as 3,10:20, got {shown(text)}")
        ranges.append((first, last))
    return tuple(ranges)


def row_numbers(ranges: tuple[tuple[int, int], ...], limit: int) -> list[int]:
    """The row numbers of the ranges, cut at `limit` rows of the save."""
    if ranges and min(start for start, _ in ranges) >= limit:
        raise ArgumentError(f"rows: expected numbers below {limit}, got {rows_text(ranges)}")
    return [row for start, stop in ranges for row in range(start, min(stop, limit))]


def rows_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """The ranges as they are typed."""
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in ranges)


def above_zero(kind: type[int] | type[float]) -> Callable[[str], int | float]:
    """What reads a finite number above zero.

    Examples:
        >>> above_zero(int)("60")
        60
    """

    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {shown(text)}")
        return value

    return read

"""This module knows the verbs about rows and episodes: diff, episodes, drop.

`drop` writes a new save; the others change nothing.
"""

from __future__ import annotations

import argparse
from typing import Any

from tdview.cli.arguments import Verbs, add_verb, row_ranges
from tdview.cli.output import progress, say, say_json

__all__ = ["add_verbs"]


def add_verbs(verbs: Verbs) -> None:
    """Adds the verbs of this group."""
    parser = add_verb(verbs, "diff", _diff, "compare two saves: keys, dtypes, shapes and values; 1 if they differ")
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--align", choices=("row", "episode"), default="row", help="what is compared with what")

    parser = add_verb(verbs, "episodes", _episodes, "list the episodes of a replay buffer, oldest first")
    parser.add_argument("path", metavar="PATH")

    parser = add_verb(
        verbs, "drop", _drop, "write a new save without some rows or episodes", detail="The save itself is not changed."
    )
    parser.add_argument("path", metavar="PATH")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--rows", type=row_ranges, metavar="ROWS", help="storage rows to leave out, such as 3,10:20")
    what.add_argument(
        "--episodes", type=row_ranges, metavar="N", help="episodes to leave out, by number, such as 0,4:6"
    )
    parser.add_argument("--out", metavar="OUT", required=True, help="where the new save is written")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")


def _diff(args: argparse.Namespace) -> int:
    import tdview

    with progress("diff") as ticking:
        report = tdview.diff(args.a, args.b, align=args.align, progress=ticking)
    if args.json:
        say_json(report.to_dict())
    else:
        say(report)
    return 0 if report.ok else 1


def _episodes(args: argparse.Namespace) -> int:
    import tdview

    with progress("episodes") as ticking:
        frame = tdview.episodes(args.path, progress=ticking)
    if args.json:
        say_json(frame.to_dict(orient="records"))
    else:
        say(frame.to_string() if len(frame) else "no episodes")
    return 0


def _drop(args: argparse.Namespace) -> int:
    import tdview

    chosen: dict[str, Any] = {"rows": args.rows} if args.rows is not None else {"episodes": _numbers(args.episodes)}
    with progress("drop") as ticking:
        plan = tdview.drop(args.path, **chosen, out=args.out, dry_run=args.dry_run, progress=ticking)
    if args.json:
        say_json(plan.to_dict())
    else:
        say(plan)
    return 0


def _numbers(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return [number for start, stop in ranges for number in range(start, stop)]

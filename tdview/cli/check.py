"""This module knows the verbs that ask whether a save is sound: verify and audit.

They read, and change nothing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tdview.cli.arguments import Verbs, above_zero, add_verb
from tdview.cli.output import progress, say, say_json
from tdview.errors import shown

if TYPE_CHECKING:
    from tdview.analysis.report import Report

__all__ = ["add_verbs"]

_SEVERITIES = ("error", "warning", "note")


def add_verbs(verbs: Verbs) -> None:
    """Adds the verbs of this group."""
    parser = add_verb(
        verbs,
        "verify",
        _verify,
        "check the storage: sizes, missing files, checksums, interrupted writes",
        detail="Reads every byte of an archive once, for its checksums.",
    )
    parser.add_argument("path", metavar="PATH")
    _add_fail_on(parser)

    parser = add_verb(
        verbs,
        "audit",
        _audit,
        "verify, and check the values with the rules for replay buffers",
        detail="Reads every payload.",
    )
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--against", metavar="OTHER", help="a second buffer: schema, shift and leaked rows")
    parser.add_argument("--skip", action="append", default=[], metavar="RULE", help="leave a rule out; may be repeated")
    parser.add_argument("--only", action="append", metavar="RULE", help="run this rule only; may be repeated")
    parser.add_argument(
        "--key", action="append", default=[], type=_part, metavar="PART=KEY", help="where a part lies: reward=next.r"
    )
    parser.add_argument(
        "--bounds", action="append", default=[], type=_bounds, metavar="KEY=LOW:HIGH", help="allowed values of an entry"
    )
    parser.add_argument("--horizon", type=above_zero(int), metavar="STEPS", help="longest episode")
    parser.add_argument("--fps", type=above_zero(float), metavar="N", help="frames per second of the time stamps")
    parser.add_argument("--time-dim", type=int, metavar="DIM", help="batch dim along which time runs")
    parser.add_argument("--all-rows", action="store_true", help="read every row of images too, not a sample")
    parser.add_argument("--engine", choices=("serial", "dask"), default="serial")
    _add_fail_on(parser)


def _add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=_SEVERITIES,
        default="error",
        help="exit with 1 from this severity on (default: %(default)s)",
    )


def _verify(args: argparse.Namespace) -> int:
    import tdview

    with progress("verify") as ticking:
        report = tdview.verify(args.path, progress=ticking)
    return _print(report, args)


def _audit(args: argparse.Namespace) -> int:
    import tdview

    options: dict[str, Any] = {"sample": None} if args.all_rows else {}
    with progress("audit") as ticking:
        report = tdview.audit(
            args.path,
            against=args.against,
            keys=dict(args.key),
            bounds=dict(args.bounds),
            time_dim=args.time_dim,
            fps=args.fps,
            horizon=args.horizon,
            only=args.only,
            skip=args.skip,
            engine=args.engine,
            progress=ticking,
            **options,
        )
    return _print(report, args)


def _part(text: str) -> tuple[str, tuple[str, ...]]:
    part, equals, key = text.partition("=")
    if not equals or not part or not key:
        raise argparse.ArgumentTypeError(f"expected PART=KEY such as reward=next.r, got {shown(text)}")
    return part, tuple(key.split("."))


def _bounds(text: str) -> tuple[tuple[str, ...], tuple[float, float]]:
    key, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    try:
        limits = float(low), float(high)
    except ValueError:
        limits = 0.0, -1.0
    if not (key and limits[0] <= limits[1]):
        raise argparse.ArgumentTypeError(f"expected KEY=LOW:HIGH such as action=-1:1, got {shown(text)}")
    return tuple(key.split(".")), limits


def _print(report: Report, args: argparse.Namespace) -> int:
    if args.json:
        say_json(report.to_dict())
    else:
        say(report)
    return 1 if report.at_least(args.fail_on) else 0

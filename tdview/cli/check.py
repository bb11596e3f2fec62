"""This module knows the verbs that ask whether a save is sound: verify and audit.

They read, and change nothing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tdview.cli.arguments import Verbs, add_verb
from tdview.cli.output import progress, say, say_json

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
    parser.add_argument("--off", action="append", default=[], metavar="RULE", help="leave a rule out; may be repeated")
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

    with progress("verify") as shown:
        report = tdview.verify(args.path, progress=shown)
    return _print(report, args)


def _audit(args: argparse.Namespace) -> int:
    import tdview

    options: dict[str, Any] = {"against": args.against} if args.against else {}
    if args.off:
        options["off"] = args.off
    with progress("audit") as shown:
        report = tdview.audit(args.path, progress=shown, **options)
    return _print(report, args)


def _print(report: Report, args: argparse.Namespace) -> int:
    if args.json:
        say_json(report.to_dict())
    else:
        say(report)
    return 1 if report.at_least(args.fail_on) else 0

"""This module knows the verbs that write: pack, unpack, refresh, append, recover.

Each writes all of its result or nothing, also when it is stopped.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from tdview.cli.arguments import Verbs, add_verb
from tdview.cli.output import progress, say, say_json
from tdview.errors import ArgumentError

__all__ = ["add_verbs"]


def add_verbs(verbs: Verbs) -> None:
    """Adds the verbs of this group."""
    parser = add_verb(verbs, "pack", _pack, "write a directory as one .tdz archive")
    parser.add_argument("path", metavar="DIRECTORY")
    parser.add_argument("out", metavar="ARCHIVE")
    parser.add_argument("--compression", choices=("stored", "deflate", "bzip2", "lzma"), default="stored")
    parser.add_argument("--level", type=int, metavar="N", help="compression level, as of zlib or bzip2")
    _add_replace(parser)

    parser = add_verb(verbs, "unpack", _unpack, "write an archive as a directory")
    parser.add_argument("path", metavar="ARCHIVE")
    parser.add_argument("out", metavar="DIRECTORY")
    _add_replace(parser)

    parser = add_verb(
        verbs,
        "refresh",
        _refresh,
        "rewrite the checksums of an archive in place",
        detail="After its payloads were edited by a program that does not do it.",
    )
    parser.add_argument("path", metavar="ARCHIVE")

    parser = add_verb(verbs, "append", _append, "append the rows of another save to a directory, in place")
    parser.add_argument("path", metavar="DIRECTORY")
    parser.add_argument("rows", metavar="ROWS", help="a save with the same keys: a directory or an archive")

    parser = add_verb(verbs, "recover", _recover, "complete or roll back an interrupted append or save, in place")
    parser.add_argument("path", metavar="DIRECTORY")


def _add_replace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replace", action="store_true", help="replace what is there already")


def _pack(args: argparse.Namespace) -> int:
    import tdview

    if args.level is not None and args.compression not in ("deflate", "bzip2"):
        raise ArgumentError(f"--level: {args.compression} has no levels; it goes with --compression deflate or bzip2")
    options: dict[str, Any] = {} if args.level is None else {"compresslevel": args.level}
    if args.compression != "stored":
        options["compression"] = args.compression
    with progress("pack") as ticking:
        out = tdview.pack_memmap(args.path, args.out, existsok=args.replace, progress=ticking, **options)
    return _done(args, out=str(out))


def _unpack(args: argparse.Namespace) -> int:
    import tdview

    with progress("unpack") as ticking:
        tdview.unpack_memmap(args.path, args.out, existsok=args.replace, progress=ticking)
    return _done(args, out=args.out)


def _refresh(args: argparse.Namespace) -> int:
    import tdview

    with progress("refresh") as ticking:
        tdview.refresh_archive_checksums(args.path, progress=ticking)
    return _done(args, out=args.path)


def _append(args: argparse.Namespace) -> int:
    import tdview

    with progress("append") as ticking:
        tdview.append_memmap(args.path, tdview.load_memmap(args.rows), progress=ticking)
    return _done(args, out=args.path, batch_size=tdview.scan(args.path).batch_size)


def _recover(args: argparse.Namespace) -> int:
    import tdview

    # A killed save can have left the directory missing, so it is ended first.
    saved = tdview.recover_save(args.path)
    found = None if saved and not os.path.isdir(args.path) else tdview.recover_append(args.path)
    if args.json:
        say_json({"out": args.path, "recovered": found, "save": saved})
        return 0
    for what, outcome in (("append", found), ("save", saved)):
        if outcome:
            say(f"{args.path}: {what} {outcome}")
    if not (found or saved):
        say(f"{args.path}: no append and no save was interrupted")
    return 0


def _done(args: argparse.Namespace, **facts: Any) -> int:
    """What was written. The text form is the place alone, and what else is worth a word."""
    if args.json:
        say_json(facts)
        return 0
    extra = [
        f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name != "out" and value is not None
    ]
    say(": ".join([facts["out"], ", ".join(extra)]) if extra else facts["out"])
    return 0

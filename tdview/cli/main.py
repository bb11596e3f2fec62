"""This module knows how the command line starts, ends and reports that it could not run.

It does not know what the verbs do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tdview import __version__
from tdview.cli import check, compare, demo, look, write
from tdview.cli.output import one_line
from tdview.errors import Cancelled, TdviewError, system_text

__all__ = ["FOUND", "NOT_RUN", "SOUND", "STOPPED", "main"]

SOUND, FOUND, NOT_RUN, STOPPED = 0, 1, 2, 130

_DESCRIPTION = (
    "Look into, check and mend saved tensordicts and replay buffers. Nothing is changed unless a verb says so."
)
_EPILOG = (
    "PATH is a directory, a .tdz archive, or a dumped replay buffer. "
    "Exit codes: 0 sound or done, 1 problems or differences found, 2 could not run, 130 stopped."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    Args:
        argv: the arguments without the program's name; None for those of the process.
    """
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:  # argparse has printed the help or what is wrong
        return end.code if isinstance(end.code, int) else NOT_RUN
    if sys.stdout is None:  # `tdview ls run >&-`: nobody reads, the exit code still counts
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a key may hold what the terminal's encoding does not
            stream.reconfigure(errors="backslashreplace")
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `tdview ls run.tdz | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SOUND
    except (Cancelled, KeyboardInterrupt):
        print("tdview: stopped", file=sys.stderr)
        return STOPPED
    except TdviewError as error:
        return _failed(str(error).replace("existsok=True", "--replace"))
    except OSError as error:
        return _failed(system_text(error))
    except Exception as error:
        if os.environ.get("TDVIEW_TRACEBACK"):
            raise
        return _failed(f"{type(error).__name__}: {error}; TDVIEW_TRACEBACK=1 shows where")


def _failed(text: str) -> int:
    print(f"tdview: {one_line(text)}", file=sys.stderr)
    return NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tdview", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"tdview {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for group in (look, check, compare, write, demo):
        group.add_verbs(verbs)
    return parser

"""How a command line ends, whatever happens inside."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tdview as package
from tdview.cli.main import main


def _raising(error: BaseException):
    def scan(*_args: object, **_options: object) -> None:
        raise error

    return scan


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (package.DecodeError("run.tdz: entry a:\nbroken"), 2, "tdview: run.tdz: entry a: broken\n"),
        (OSError(28, "No space left on device"), 2, "tdview: [Errno 28] No space left on device\n"),
        (PermissionError(13, "Permission denied", "run/a"), 2, "tdview: run/a: Permission denied\n"),
        (
            package.AlreadyExistsError("x: pass existsok=True to replace it"),
            2,
            "tdview: x: pass --replace to replace it\n",
        ),
        (package.Cancelled("stopped"), 130, "tdview: stopped\n"),
        (KeyboardInterrupt(), 130, "tdview: stopped\n"),
        (ValueError("x"), 2, "tdview: ValueError: x; TDVIEW_TRACEBACK=1 shows where\n"),
        (MemoryError(), 2, "tdview: MemoryError: ; TDVIEW_TRACEBACK=1 shows where\n"),
    ],
)
def test_every_end_is_one_line_and_a_code(
    tdview, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr(package, "scan", _raising(error))
    ran = tdview("ls", "run.tdz")
    assert (ran.code, ran.out, ran.err) == (code, "", said)


def test_the_traceback_of_a_bug_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "scan", _raising(ValueError("x")))
    monkeypatch.setenv("TDVIEW_TRACEBACK", "1")
    with pytest.raises(ValueError, match="x"):
        main(["ls", "run.tdz"])


def test_help_and_version_end_with_0(tdview) -> None:
    assert tdview("--version").out == f"tdview {package.__version__}\n"
    helped = tdview("--help")
    assert helped.code == 0
    for verb in "ls info show stats verify audit diff episodes drop pack unpack refresh append recover demo".split():
        assert f"\n    {verb} " in helped.out
        assert tdview(verb, "--help").code == 0


def test_no_archive_is_a_result_or_one_line(tdview, tmp_path: Path) -> None:
    for content in (b"", b"PK\x05\x06" + bytes(18), b"not a zip", b"PK\x03\x04" * 50):
        (tmp_path / "x.tdz").write_bytes(content)
        for verb in ("ls", "info", "show", "stats", "verify", "audit", "episodes"):
            ran = tdview(verb, tmp_path / "x.tdz")
            assert ran.code in (0, 1, 2), (verb, content)
            assert "Traceback" not in ran.err
            assert "TDVIEW_TRACEBACK" not in ran.err, (verb, content, ran.err)


@pytest.mark.parametrize("verb", ["ls", "info", "show", "stats"])
def test_a_missing_argument_is_named_alone(tdview, verb: str) -> None:
    ran = tdview(verb)
    assert (ran.code, ran.err.splitlines()[-1]) == (
        2,
        f"tdview {verb}: error: the following arguments are required: PATH",
    )


def test_without_a_place_to_print_to_the_exit_code_counts(buffer: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m tdview verify {shlex.quote(str(buffer))} >&-"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

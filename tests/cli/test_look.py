"""ls, info, show, stats."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tdview.analysis.side_columns import side_columns
from tdview.testing.sample import write_replay_buffer
from tests.widgets.saves import write_save


def test_ls_prints_the_tree(tdview, buffer: Path) -> None:
    ran = tdview("ls", buffer)
    assert ran.code == 0
    assert "replay buffer" in ran.out
    assert "reward  float32 [64, 1]" in ran.out
    assert len(ran.out.splitlines()) == 21


def test_ls_json_lists_every_entry_with_its_key(tdview, buffer: Path) -> None:
    entries = {tuple(entry["key"]): entry for entry in tdview("ls", buffer, "--json").json}
    assert len(entries) == 21
    assert entries[()]["kind"] == "replay_buffer"
    assert entries["next", "reward"] == {
        "key": ["next", "reward"],
        "kind": "leaf",
        "dtype": "torch.float32",
        "shape": [64, 1],
        "nbytes": 256,
        "is_nested": False,
        "problems": [],
    }


@pytest.mark.parametrize("words", [["next", "reward"], ["next.reward"], ["next/reward"], ["next › reward"]])
def test_a_nested_key_is_words_or_joined(tdview, buffer: Path, words: list[str]) -> None:
    assert tdview("info", buffer, *words, "--json").json["key"] == ["next", "reward"]


def test_info_of_a_buffer_tells_its_rows_and_time_order(tdview, buffer: Path) -> None:
    facts = tdview("info", buffer, "--json").json
    assert (facts["rows"], facts["capacity"], facts["cursor"], facts["certain"]) == (64, 64, 36, True)
    assert facts["time order"] == [[36, 64], [0, 36]]
    assert "prefetch.pkl" in facts["side files"]
    assert "time order      36:64, then 0:36" in tdview("info", buffer).out


def test_info_of_a_leaf_tells_where_its_bytes_lie(tdview, buffer: Path) -> None:
    facts = tdview("info", buffer, "next", "reward", "--json").json
    assert (facts["file"], facts["offset"], facts["compression"]) == ("storage/next/reward.memmap", 0, "stored")


def test_show_prints_the_asked_rows(tdview, buffer: Path) -> None:
    ran = tdview("show", buffer, "index", "--rows", "3,10:12")
    assert [line.split() for line in ran.out.splitlines() if line[:1].isdigit()][:3] == [
        ["3", "3"],
        ["10", "10"],
        ["11", "11"],
    ]
    values = tdview("show", buffer, "index", "--rows", "3,10:12", "--json").json
    assert (values["rows"], values["values"]) == ([3, 10, 11], [3, 10, 11])


def test_show_of_a_level_has_one_row_per_transition_and_leaves_images_out(tdview, buffer: Path) -> None:
    shown = tdview("show", buffer, "--rows", "0:2", "--json").json
    assert len(shown["records"]) == 2
    assert shown["records"][1]["index"] == 1
    assert shown["left_out"] == ["pixels", "next.pixels"]
    assert "left out: pixels, next.pixels" in tdview("show", buffer, "--rows", "0:2").out


def test_stats_describe_every_leaf(tdview, buffer: Path) -> None:
    leaves = tdview("stats", buffer, "--json").json["leaves"]
    assert len(leaves) == 18
    assert "next.reward" in tdview("stats", buffer, "next").out
    assert tdview("stats", buffer, "--json", "--engine", "dask").json["leaves"] == leaves


@pytest.mark.parametrize(
    "args",
    [
        ["ls", "no/such/save"],
        ["show", "BUFFER", "no_such_key"],
        ["show", "BUFFER", "index", "--rows", "999"],
        ["show", "BUFFER", "index", "--rows", "x"],
        ["no_such_verb"],
        [],
    ],
)
def test_what_cannot_run_says_why_in_one_line_and_ends_with_2(tdview, buffer: Path, args: list[str]) -> None:
    ran = tdview(*(str(buffer) if arg == "BUFFER" else arg for arg in args))
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert ran.err.splitlines()[-1].startswith("tdview")


def test_keys_of_a_save_cannot_steer_the_terminal(tdview, tmp_path: Path) -> None:
    entry = {"device": "cpu", "shape": [0], "dtype": "torch.float32", "is_nested": False}
    meta = {"a\x1b[31mb": entry, "shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    ran = tdview("ls", tmp_path)
    assert ran.code == 0
    assert "\x1b" not in ran.out


def test_ls_needs_no_tensor_library_and_ends_quietly_when_its_reader_does(buffer: Path) -> None:
    code = (
        "import sys; from tdview.cli.main import main; code = main(sys.argv[1:]);"
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'ipywidgets'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, "ls", str(buffer)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    piped = subprocess.run(
        f'"{sys.executable}" -m tdview ls "{buffer}" --json | head -n 1', shell=True, capture_output=True, text=True
    )
    assert (piped.stdout, piped.stderr) == ("[\n", "")


def test_ls_prints_every_entry_of_a_wide_save(tdview, tmp_path: Path) -> None:
    write_save(tmp_path / "wide", {f"x{i:03d}": ("uint8", [1]) for i in range(500)}, batch_size=[1])
    lines = tdview("ls", tmp_path / "wide").out.splitlines()
    assert (len(lines), lines[-1]) == (501, "└─ x499  uint8 [1]")


def test_show_puts_what_the_buffer_says_of_rows_before_their_values(tdview, buffer: Path) -> None:
    frame = side_columns(buffer).iloc[[35, 36]]
    lines = tdview("show", buffer, "index", "--rows", "35:37", "--side").out.splitlines()
    assert lines[0].split()[:3] == ["age", "priority", "probability"]
    words = [line.split() for line in lines if line.split()[0] in ("35", "36")]
    assert [[word[0], word[1], word[-1]] for word in words] == [["35", "0", "35"], ["36", "63", "36"]]
    assert [float(word[2]) for word in words] == pytest.approx(frame["priority"].tolist(), rel=1e-3)
    for key in (["index"], ["next"], []):
        shown = tdview("show", buffer, *key, "--rows", "35:37,35", "--side", "--json").json
        assert shown["rows"] == [35, 36, 35]
        assert shown["side"]["age"] == [0, 63, 0]
        assert shown["side"]["probability"][:2] == frame["probability"].tolist()
    assert "side" not in tdview("show", buffer, "--rows", "1", "--json").json


def test_show_leaves_out_what_is_not_known_of_a_row(tdview, tmp_path: Path) -> None:
    path = write_replay_buffer(tmp_path / "run", capacity=64, steps=20)
    shown = tdview("show", path, "next", "observation", "--rows", "19:21", "--side", "--json").json
    assert (shown["side"]["age"], shown["side"]["priority"][1]) == ([0, None], None)
    last = next(line for line in tdview("show", path, "--rows", "20", "--side").out.splitlines() if line[:2] == "20")
    assert last.split()[1] == "0.000"  # the probability: age and priority are empty


@pytest.mark.parametrize("side", ["rows", "none", "scalar"])
def test_show_refuses_side_columns_where_there_are_no_rows_of_a_buffer(tdview, side: str, tmp_path: Path) -> None:
    write_save(tmp_path / "run", {"x": ("float32", [] if side == "scalar" else [4])}, batch_size=[4][: side == "rows"])
    ran = tdview("show", tmp_path / "run", *["x"][: side != "rows"], "--side")
    assert ran.code == 2
    assert "--side" in ran.err

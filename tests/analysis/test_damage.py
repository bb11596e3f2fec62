"""Any bytes give a report or a tdview error, never another exception."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import made
import numpy as np
import pytest

import tdview

VALUES = ["-1", "0", "1", "7", "1000000", "99999999999", "1.5", "null", '"x"', "true", "[]", "{}"]
WORDS = ["bool", "int64", "float32", "false", "true", '"shape"', "TensorDict"]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(3):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def number(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    found = rng.choice(list(re.finditer(r"-?\d+", text)) or [re.match("", text)])
    assert found is not None
    return (text[: found.start()] + rng.choice(VALUES) + text[found.end() :]).encode()


def word(data: bytes, rng: random.Random) -> bytes:
    other = rng.choice(["uint8", "null", "bfloat16", "complex64", "x", "bool", "float64"])
    return data.replace(rng.choice(WORDS).encode(), other.encode(), rng.choice([1, -1]))


DAMAGE: list[Callable[[bytes, random.Random], bytes]] = [cut, flip, number, word]


@pytest.mark.parametrize("seed", range(24))
def test_damage_gives_a_report_or_a_tdview_error(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    arrays = made.stream(90, seed=seed)
    sound = made.ring_dump(tmp_path / "sound", arrays, 60)
    (sound / "sampler").mkdir()
    (sound / "sampler" / "sampler_metadata.json").write_text('{"_alpha": 0.7, "_eps": 1e-8, "_max_priority": [1, 2]}')
    for name in ("sumtree", "mintree"):
        np.ones(60).tofile(sound / "sampler" / f"{name}.memmap")
    folder = tmp_path / "run"
    shutil.copytree(sound, folder)
    for _ in range(rng.choice([1, 2, 4])):
        file = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size))
        file.write_bytes(rng.choice(DAMAGE if file.suffix == ".json" else DAMAGE[:2])(file.read_bytes(), rng))
    out = tmp_path / "out"
    for work in (
        lambda: tdview.audit(folder),
        lambda: tdview.audit(folder, against=sound),
        lambda: tdview.episodes(folder),
        lambda: tdview.diff(folder, sound),
        lambda: tdview.diff(sound, folder, align="episode"),
        lambda: tdview.side_columns(folder),
        lambda: tdview.drop(folder, rows=[0], out=out),
        lambda: str(tdview.scan(folder).fill),
    ):
        with suppress(tdview.TdviewError):
            work()

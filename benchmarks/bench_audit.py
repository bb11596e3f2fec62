"""A full audit is fast: of a 1M-row state buffer of 16 leaves (98 MB), of 1 GB, and of images read as a sample.

``python benchmarks/bench_audit.py [folder]`` makes the buffers once and keeps them in the folder. The limit of the
machine beside it is reading every byte once.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MEMORY_MB = 512


def level(folder: Path, leaves: dict[str, np.ndarray[Any, Any]], rows: int, levels: tuple[str, ...] = ()) -> None:
    """Writes one level of a saved tensordict (format version 1)."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"float32": "torch.float32", "int64": "torch.int64", "bool": "torch.bool", "uint8": "torch.uint8"}
    meta: dict[str, Any] = {
        key: {"device": "cpu", "shape": list(value.shape), "dtype": names[str(value.dtype)], "is_nested": False}
        for key, value in leaves.items()
    }
    meta |= {name: {"type": "TensorDict"} for name in levels}
    meta |= {"shape": [rows], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
    meta |= {"_format_version": 1, "_class": "tensordict:TensorDict"}
    (folder / "meta.json").write_text(json.dumps(meta))
    for key, value in leaves.items():
        value.tofile(folder / f"{key}.memmap")


def make_buffer(folder: Path, rows: int, width: int = 4, *, length: int = 50, seed: int = 0) -> Path:
    """A sound full ring of `rows` steps in episodes of about `length` steps, with observations of `width` floats."""
    rng = np.random.default_rng(seed)
    cursor = rows // 3
    lengths = rng.integers(length // 2, length * 3 // 2, rows // (length // 2) + 2)
    ends = np.cumsum(lengths)
    ids = np.searchsorted(ends, np.arange(rows), side="right")
    step = np.arange(rows) - np.concatenate([[0], ends])[ids]
    done = (step + 1 == lengths[ids])[:, None]
    obs = rng.standard_normal((rows, width), dtype=np.float32)
    after = np.roll(obs, -1, axis=0)
    after[done[:, 0]] = rng.standard_normal((int(done.sum()), width), dtype=np.float32)
    after[-1] = 1.0
    reward = np.ones((rows, 1), np.float32)
    action = np.eye(2, dtype=np.int64)[rng.integers(0, 2, rows)]
    count = step[:, None].astype(np.int64)
    none = np.zeros((rows, 1), bool)
    storage = folder / "storage"

    def ring(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.roll(value, cursor, axis=0)

    root = {
        "observation": ring(obs), "action": ring(action), "done": none, "terminated": none, "truncated": none,
        "step_count": ring(count), "episode_reward": ring(count.astype(np.float32)),
        "index": np.arange(rows, dtype=np.int64),
    }  # fmt: skip
    next_level = {
        "observation": ring(after), "reward": reward, "done": ring(done), "terminated": ring(done), "truncated": none,
        "step_count": ring(count + 1), "episode_reward": ring((count + 1).astype(np.float32)),
    }  # fmt: skip
    level(storage, root, rows, ("next", "collector"))
    level(storage / "next", next_level, rows)
    level(storage / "collector", {"traj_ids": ring(ids.astype(np.int64))}, rows)
    side_files(folder, rows, rows, cursor)
    return folder


def side_files(folder: Path, rows: int, length: int, cursor: int) -> None:
    """torchrl's JSON files beside the storage."""
    (folder / "writer").mkdir(parents=True, exist_ok=True)
    (folder / "storage" / "storage_metadata.json").write_text(
        json.dumps({"metadata": {}, "is_pytree": False, "len": length})
    )
    (folder / "writer" / "metadata.json").write_text(json.dumps({"cursor": cursor, "write_count": rows + cursor}))
    (folder / "buffer_metadata.json").write_text(json.dumps({"batch_size": 32}))


def make_pixels(folder: Path, rows: int, *, seed: int = 0) -> Path:
    """A sound, exactly full buffer of uint8 frames ``[3, 64, 64]``."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 255, (rows + 1, 3, 64, 64), dtype=np.uint8)
    step = np.arange(rows) % 100
    done = (step == 99)[:, None]
    after = frames[1:].copy()
    after[done[:, 0]] = rng.integers(0, 255, (int(done.sum()), 3, 64, 64), dtype=np.uint8)
    none = np.zeros((rows, 1), bool)
    root = {"pixels": frames[:rows], "action": np.eye(4, dtype=np.int64)[rng.integers(0, 4, rows)], "done": none}
    root["step_count"] = step[:, None].astype(np.int64)
    level(folder / "storage", root, rows, ("next",))
    reward = rng.standard_normal((rows, 1), dtype=np.float32)
    level(folder / "storage" / "next", {"pixels": after, "reward": reward, "done": done}, rows)
    side_files(folder, rows, rows, 0)
    (folder / "writer" / "metadata.json").write_text(json.dumps({"cursor": 0, "write_count": rows}))
    return folder


def read_all(folder: Path) -> float:
    """Seconds to read and add up every payload byte once."""
    started = time.perf_counter()
    for file in folder.rglob("*.memmap"):
        size = file.stat().st_size // 8 * 8
        np.memmap(file, np.uint64, "r", shape=(size // 8,)).sum()
    return time.perf_counter() - started


def peak_memory_mb() -> float:
    """The greatest resident memory of this process so far (`ru_maxrss` would include that of its parent)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(folder: Path) -> None:
    """Audits a buffer and prints seconds, seconds of work, the verdict and the growth of resident memory as JSON."""
    import tdview

    assert tdview.audit  # loads the modules, whose memory is not the audit's
    np.zeros(1).sum()
    before = peak_memory_mb()
    started, cpu = time.perf_counter(), time.process_time()
    report = tdview.audit(folder)
    wall, work = time.perf_counter() - started, time.process_time() - cpu
    peak = peak_memory_mb() - before
    print(json.dumps({"wall": wall, "work": work, "peak": peak, "text": report.summary(), "ok": report.ok}))


def main() -> int:
    """Makes the buffers, audits each in a process of its own, and prints one line for each."""
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
        return 0
    base = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    cases = (
        ("1M rows, 98 MB", base / "state", lambda p: make_buffer(p, 1_000_000), 2.0),
        ("1.1M rows, 1 GB", base / "wide", lambda p: make_buffer(p, 1_100_000, 111, length=800), 15.0),
        ("20k rows of pixels, 492 MB", base / "pixels", lambda p: make_pixels(p, 20_000), 10.0),
    )
    missed = False
    for name, folder, make, limit in cases:
        if not folder.exists():
            make(folder)
        floor = min(read_all(folder) for _ in range(3))
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(folder)], check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        print(
            f"{name}: {found['work']:.2f} s of work in {found['wall']:.2f} s, promised {limit:g}; "
            f"{found['peak']:.0f} MB of memory, promised {MEMORY_MB}; {found['text']}; "
            f"{found['work'] / floor:.0f} times reading every byte"
        )
        missed |= found["work"] > limit or found["peak"] > MEMORY_MB or not found["ok"]
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

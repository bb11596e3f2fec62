"""This module knows how to write a small replay buffer that looks like a real one: a pole balanced on a cart.

It does not know torch or torchrl: the layout is that of a buffer dumped by torchrl, written from numpy arrays.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tdview.errors import AlreadyExistsError, ArgumentError
from tdview.format.keys import encode_key
from tdview.format.meta import dump_json, leaf_json, tensordict_json
from tdview.operations.source import SourceFile, SourceLevel
from tdview.operations.write import write_directory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = dict[str, Any]
    """Arrays ``[steps, ...]`` by key; a dict stands for a nested tensordict."""

__all__ = ["FAULTS", "Fault", "write_replay_buffer"]

Fault = Literal["nan_reward", "lost_done", "boundary_leak", "repeated_rows"]

FAULTS: tuple[Fault, ...] = ("nan_reward", "lost_done", "boundary_leak", "repeated_rows")
"""What can be planted: a NaN in a reward, an end flag that was not set, a terminal observation that is the first one
of the next episode, and eight rows written twice."""

HORIZON = 50
"""Longest episode in steps; a longer one is truncated."""
_X_LIMIT, _ANGLE_LIMIT = 2.4, 0.21
_SIZE = 32  # pixels of an edge
_STEPS_FOR_FAULTS = 400


def write_replay_buffer(
    path: str | os.PathLike[str],
    *,
    capacity: int = 256,
    steps: int = 400,
    seed: int = 0,
    faults: tuple[Fault, ...] = (),
    existsok: bool = False,
) -> Path:
    """Writes a ring buffer with images, priorities and episodes, and returns its path.

    The same arguments write the same bytes. With more steps than rows the ring is wrapped: the newest `capacity`
    steps are kept, row ``steps % capacity`` is the oldest. Takes about 0.2 s and 1.8 MB with the default sizes.

    Args:
        path: directory that is made.
        capacity: rows of the ring.
        steps: transitions that were collected.
        seed: of the policy's and the sensor's noise.
        faults: what to plant, see `FAULTS`.
        existsok: replace the directory if it is there.

    Raises:
        AlreadyExistsError: the directory is there and `existsok` is false.
        ArgumentError: too few steps for the faults to find an episode each.

    Examples:
        >>> import tempfile, tdview
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     root = tdview.scan(write_replay_buffer(folder + "/run", capacity=64, steps=100))
        ...     print(root.kind, root.batch_size, root.fill.chronological)
        replay_buffer (64,) ((36, 64), (0, 36))
    """
    if faults and steps < _STEPS_FOR_FAULTS:
        raise ArgumentError(f"steps: expected at least {_STEPS_FOR_FAULTS} with faults, got {steps}")
    target = Path(path)
    if target.exists():
        if not existsok:
            raise AlreadyExistsError(f"{target}: it is there already; expected a new folder; pass existsok=True")
        shutil.rmtree(target)
    columns = _collect(steps, seed)
    for fault in faults:
        _PLANT[fault](columns)
    written = min(steps, capacity)
    columns = _into_ring(columns, capacity)
    write_directory(_level("", columns, capacity), target / "storage")
    _write_side_files(target, capacity, steps, written, seed)
    return target


def _collect(steps: int, seed: int) -> Columns:
    """Plays episodes until there are `steps` transitions."""
    import numpy as np

    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    episode = 0
    while len(rows) < steps:
        rows += _play(rng, episode)
        episode += 1
    rows = rows[:steps]

    def stacked(name: str) -> NDArray[Any]:
        return np.stack([row[name] for row in rows])

    def column(name: str, dtype: str) -> NDArray[Any]:
        return np.array([row[name] for row in rows], dtype).reshape(-1, 1)

    never = np.zeros((steps, 1), bool)
    return {
        "observation": stacked("observation"),
        "pixels": stacked("pixels"),
        "action": stacked("action"),
        "step_count": column("step_count", "int64"),
        "episode_reward": column("episode_reward", "float32"),
        "done": never,
        "terminated": never.copy(),
        "truncated": never.copy(),
        "next": {
            "observation": stacked("next_observation"),
            "pixels": stacked("next_pixels"),
            "reward": column("reward", "float32"),
            "done": column("terminated", "bool") | column("truncated", "bool"),
            "terminated": column("terminated", "bool"),
            "truncated": column("truncated", "bool"),
            "step_count": column("step_count", "int64") + 1,
            "episode_reward": column("next_episode_reward", "float32"),
        },
        "collector": {"traj_ids": column("episode", "int64")[:, 0]},
    }


def _play(rng: np.random.Generator, episode: int) -> list[dict[str, Any]]:
    """One episode of a cart and a pole under a clumsy controller."""
    import numpy as np

    state = rng.uniform(-0.05, 0.05, 4)
    pixels = _picture(state)
    total = np.float32(0)
    rows = []
    for step in range(HORIZON):
        push = int(state[2] + 0.6 * state[3] + rng.normal(0, 1.2) > 0)
        after = _physics(state, 10.0 if push else -10.0)
        fell = bool(abs(after[0]) > _X_LIMIT or abs(after[2]) > _ANGLE_LIMIT)
        reward = np.float32(0.0 if fell else 1 - abs(after[2]) / _ANGLE_LIMIT / 2 - abs(after[0]) / _X_LIMIT / 2)
        before, total = total, np.float32(total + reward)
        next_pixels = _picture(after)
        rows.append(
            {
                "observation": state.astype("float32"),
                "pixels": pixels,
                "action": np.eye(2, dtype="int64")[push],
                "step_count": step,
                "episode_reward": before,
                "next_observation": after.astype("float32"),
                "next_pixels": next_pixels,
                "reward": reward,
                "next_episode_reward": total,
                "terminated": fell,
                "truncated": not fell and step == HORIZON - 1,
                "episode": episode,
            }
        )
        if fell:
            break
        state, pixels = after, next_pixels
    return rows


def _physics(state: NDArray[Any], force: float) -> NDArray[Any]:
    """One step of 20 ms: position, speed, angle and angular speed ``[4]`` of the cart (1 kg) and the pole (0.1 kg)."""
    import numpy as np

    _, speed, angle, turning = (float(value) for value in state)
    sin, cos = math.sin(angle), math.cos(angle)
    pull = (force + 0.05 * turning**2 * sin) / 1.1
    turning_change = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    speed_change = pull - 0.05 * turning_change * cos / 1.1
    change = np.array([speed, speed_change, turning, turning_change])
    moved: NDArray[Any] = state + 0.02 * change
    return moved


def _picture(state: NDArray[Any]) -> NDArray[np.uint8]:
    """The scene as ``[3, 32, 32]``; soft edges show moves of a fraction of a pixel."""
    import numpy as np

    y, x = np.mgrid[0:_SIZE, 0:_SIZE].astype("float64")
    centre = _SIZE / 2 + float(state[0]) * _SIZE / 6
    lean = 3 * float(state[2])  # exaggerated, or nobody would see it at this size
    along = (x - centre) * math.sin(lean) + (23 - y) * math.cos(lean)
    across = np.abs((x - centre) * math.cos(lean) - (23 - y) * math.sin(lean))
    pole = np.clip(1.8 - across, 0, 1) * np.clip(along + 0.5, 0, 1) * np.clip(18.5 - along, 0, 1)
    cart = np.clip(5.5 - np.abs(x - centre), 0, 1) * np.clip(3 - np.abs(y - 25), 0, 1)
    track = np.clip(1 - np.abs(y - 29), 0, 1)
    picture = np.full((3, _SIZE, _SIZE), 246.0)
    for cover, colour in ((track, (170, 174, 180)), (cart, (48, 92, 170)), (pole, (196, 96, 38))):
        for channel in range(3):
            picture[channel] += cover * (colour[channel] - picture[channel])
    return picture.astype("uint8")


def _ends(columns: Columns) -> list[int]:
    """Last rows of the complete episodes, whatever was planted before."""
    following = columns["next"]
    return [int(row) for row in (following["terminated"] | following["truncated"])[:, 0].nonzero()[0]]


def _plant_nan_reward(columns: Columns) -> None:
    columns["next"]["reward"][-30] = math.nan


def _plant_lost_done(columns: Columns) -> None:
    columns["next"]["done"][_ends(columns)[-2]] = False


def _plant_boundary_leak(columns: Columns) -> None:
    end = _ends(columns)[-3]
    for name in ("observation", "pixels"):
        columns["next"][name][end] = columns[name][end + 1]


def _plant_repeated_rows(columns: Columns) -> None:
    ends = _ends(columns)[:-3]
    start = [first + 1 for first, last in pairwise(ends) if last - first >= 24][-1] + 4

    def repeat(part: Columns) -> None:
        for value in part.values():
            if isinstance(value, dict):
                repeat(value)
            else:
                value[start + 8 : start + 16] = value[start : start + 8]

    repeat(columns)


_PLANT: Mapping[Fault, Any] = {
    "nan_reward": _plant_nan_reward,
    "lost_done": _plant_lost_done,
    "boundary_leak": _plant_boundary_leak,
    "repeated_rows": _plant_repeated_rows,
}


def _into_ring(columns: Columns, capacity: int) -> Columns:
    """The newest rows at their places ``step % capacity``; rows that were never written are zero."""
    import numpy as np

    steps = len(columns["observation"])
    kept = np.arange(max(0, steps - capacity), steps)

    def placed(part: Columns) -> Columns:
        ring: Columns = {}
        for name, value in part.items():
            if isinstance(value, dict):
                ring[name] = placed(value)
            else:
                ring[name] = np.zeros((capacity, *value.shape[1:]), value.dtype)
                ring[name][kept % capacity] = value[kept]
        return ring

    ring = placed(columns)
    ring["index"] = np.zeros(capacity, "int64")
    ring["index"][kept % capacity] = kept % capacity
    return ring


def _level(name: str, columns: Columns, capacity: int) -> SourceLevel:
    entries: dict[str, Any] = {}
    files, levels = [], []
    for key, value in columns.items():
        if isinstance(value, dict):
            entries[key] = {"type": "TensorDict"}
            levels.append(_level(encode_key(key), value, capacity))
        else:
            entries[key] = leaf_json(f"torch.{value.dtype.name}", value.shape)
            files.append(SourceFile.of(f"{encode_key(key)}.memmap", value.tobytes(), payload=True))
    meta = dump_json(tensordict_json(entries, (capacity,)))
    return SourceLevel(name=name, meta=meta, files=tuple(files), levels=tuple(levels))


def _write_side_files(target: Path, capacity: int, steps: int, written: int, seed: int) -> None:
    import numpy as np

    errors = np.random.default_rng(seed + 1).gamma(1.5, 0.4, written)
    sums = np.zeros(capacity)
    sums[:written] = errors**0.7
    lowest = np.full(capacity, np.finfo("float32").max, "float64")
    lowest[:written] = sums[:written]
    largest = int(errors.argmax())
    documents = {
        "buffer_metadata.json": {"batch_size": 32, "consume_after_n_samples": None},
        "storage/storage_metadata.json": {"metadata": {}, "is_pytree": False, "len": written},
        "writer/metadata.json": {"cursor": steps % capacity, "write_count": steps},
        "sampler/sampler_metadata.json": {
            "_alpha": 0.7,
            "_beta": 0.9,
            "_eps": 1e-8,
            "_max_priority": [float(errors[largest]), largest],
            "_max_capacity": float(capacity),
            "_schema_version": 1,
        },
    }
    files = {name: json.dumps(document).encode() for name, document in documents.items()}
    files["sampler/sumtree.memmap"] = sums.tobytes()
    files["sampler/mintree.memmap"] = lowest.tobytes()
    # Every dump has this pickle. It is listed and never executed, so the sample shows that as well.
    files["prefetch.pkl"] = pickle.dumps({"version": 1, "capacity": 0, "queue": []}, protocol=4)
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

"""Sound replay buffers made from numpy arrays, in the layouts that torchrl writes, for rules to be tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ARCHIVE = Path(__file__).parents[1] / "corpus" / "torchrl.tar.gz"
"""Replay buffers and data sets that torchrl itself wrote."""

Arrays = dict[tuple[str, ...], np.ndarray[Any, Any]]

NAMES = {
    "float32": "torch.float32",
    "float64": "torch.float64",
    "int64": "torch.int64",
    "int32": "torch.int32",
    "bool": "torch.bool",
    "uint8": "torch.uint8",
}


def stream(
    steps: int, *, seed: int = 0, first_id: int = 0, id_step: int = 1, width: int = 4, length: int = 12, limit: int = 18
) -> Arrays:
    """Steps of one environment in time order: episodes of random length, ended by failure or by a limit."""
    rng = np.random.default_rng(seed)
    lengths: list[int] = []
    while sum(lengths) < steps:
        lengths.append(int(rng.integers(3, 2 * length)))
    ids, count, terminated, truncated = [], [], [], []
    for number, drawn in enumerate(lengths):
        size = min(drawn, limit)
        ids += [first_id + number * id_step] * size
        count += list(range(size))
        terminated += [False] * (size - 1) + [drawn <= limit]
        truncated += [False] * (size - 1) + [drawn > limit]
    while len(ids) < steps:  # the limit has shortened some episodes
        last = ids[-1] + id_step
        ids += [last] * 5
        count += list(range(5))
        terminated += [False] * 4 + [True]
        truncated += [False] * 5
    n = steps
    end = np.array(terminated[:n]) | np.array(truncated[:n])
    obs = rng.standard_normal((n, width)).astype(np.float32)
    after = np.concatenate([obs[1:], rng.standard_normal((1, width)).astype(np.float32)])
    after[end] = rng.standard_normal((int(end.sum()), width)).astype(np.float32)
    reward = rng.standard_normal((n, 1)).astype(np.float32)
    step = np.array(count[:n], np.int64)[:, None]
    running = np.zeros((n, 1), np.float32)
    total = 0.0
    for i in range(n):
        total = 0.0 if step[i, 0] == 0 else total
        running[i] = total
        total = np.float32(total + reward[i, 0])
    no = np.zeros((n, 1), bool)
    return {
        ("observation",): obs,
        ("action",): np.eye(3, dtype=np.int64)[rng.integers(0, 3, n)],
        ("done",): no,
        ("terminated",): no,
        ("truncated",): no,
        ("step_count",): step,
        ("episode_reward",): running,
        ("collector", "traj_ids"): np.array(ids[:n], np.int64),
        ("next", "observation"): after,
        ("next", "reward"): reward,
        ("next", "done"): end[:, None],
        ("next", "terminated"): np.array(terminated[:n])[:, None],
        ("next", "truncated"): np.array(truncated[:n])[:, None],
        ("next", "step_count"): step + 1,
        ("next", "episode_reward"): running + reward,
    }


def without(arrays: Arrays, *names: str) -> Arrays:
    """The arrays whose last key part is none of `names`."""
    return {key: value for key, value in arrays.items() if key[-1] not in names}


def in_ring(arrays: Arrays, capacity: int) -> Arrays:
    """What is left of a stream in a ring of `capacity` rows; the cursor is the number of steps modulo it."""
    found = {}
    for key, value in arrays.items():
        ring = np.zeros((capacity, *value.shape[1:]), value.dtype)
        for start in range(0, len(value), capacity):
            part = value[start : start + capacity]
            ring[: len(part)] = part
        found[key] = ring
    return found


def save(folder: Path, arrays: Arrays, batch: tuple[int, ...]) -> Path:
    """Writes a tensordict of nested arrays, format version 1."""
    levels: dict[tuple[str, ...], dict[str, Any]] = {(): {}}
    for key, value in arrays.items():
        for depth in range(1, len(key)):
            levels.setdefault(key[:depth], {})
            levels[key[: depth - 1]][key[depth - 1]] = {"type": "TensorDict"}
        name = NAMES[str(value.dtype)]
        entry = {"device": "cpu", "shape": list(value.shape), "dtype": name, "is_nested": False}
        levels[key[:-1]][key[-1]] = entry
        place = folder.joinpath(*key[:-1])
        place.mkdir(parents=True, exist_ok=True)
        value.tofile(place / f"{key[-1]}.memmap")
    for key, meta in levels.items():
        tail = {"shape": list(batch), "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
        tail |= {"_format_version": 1, "_class": "tensordict:TensorDict"}
        place = folder.joinpath(*key)
        place.mkdir(parents=True, exist_ok=True)
        (place / "meta.json").write_text(json.dumps(meta | tail))
    return folder


def dump(
    folder: Path, arrays: Arrays, batch: tuple[int, ...], *, length: int, cursor: int, count: int | None = None
) -> Path:
    """Writes a dump as torchrl does: the storage and the JSON files beside it."""
    save(folder / "storage", arrays, batch)
    (folder / "writer").mkdir()
    meta = {"metadata": {}, "is_pytree": False, "len": length}
    (folder / "storage" / "storage_metadata.json").write_text(json.dumps(meta))
    writer = {"cursor": cursor} | ({} if count is None else {"write_count": count})
    (folder / "writer" / "metadata.json").write_text(json.dumps(writer))
    (folder / "buffer_metadata.json").write_text(json.dumps({"batch_size": 8}))
    return folder


def ring_dump(folder: Path, arrays: Arrays, capacity: int, *, index: bool = True) -> Path:
    """A dump of a one-environment buffer into which all the steps were written one after the other."""
    steps = len(next(iter(arrays.values())))
    rows = in_ring(arrays, capacity)
    length = min(steps, capacity)
    if index:
        rows[("index",)] = np.where(np.arange(capacity) < length, np.arange(capacity), 0).astype(np.int64)
    return dump(folder, rows, (capacity,), length=length, cursor=steps % capacity, count=steps)


def env_arrays(envs: int, steps: int, *, seed: int = 0) -> list[Arrays]:
    """Streams of several environments with ids of their own."""
    return [stream(steps, seed=seed * 100 + env, first_id=env, id_step=envs) for env in range(envs)]


def time_env_dump(folder: Path, envs: int, steps: int, capacity: int, *, seed: int = 0) -> Path:
    """A storage ``[time, env]``."""
    streams = env_arrays(envs, steps, seed=seed)
    rows = {key: np.stack([one[key] for one in streams], axis=1) for key in streams[0]}
    length = min(steps, capacity) * envs
    return dump(folder, in_ring(rows, capacity), (capacity, envs), length=length, cursor=steps % capacity, count=steps)


def chunk_time_dump(folder: Path, envs: int, chunks: int, chunk: int, capacity: int, *, seed: int = 0) -> Path:
    """A storage ``[chunk, time]``: batches of `chunk` steps of each environment, stacked."""
    streams = env_arrays(envs, chunks * chunk, seed=seed)
    rows = {}
    for key in streams[0]:
        parts = [one[key][c * chunk : (c + 1) * chunk] for c in range(chunks) for one in streams]
        rows[key] = np.stack(parts)
    written = chunks * envs
    return dump(
        folder, in_ring(rows, capacity), (capacity, chunk),
        length=min(written, capacity) * chunk, cursor=written % capacity, count=written,
    )  # fmt: skip


def turns_dump(
    folder: Path, envs: int, chunks: int, chunk: int, capacity: int, *, seed: int = 0, drop: tuple[str, ...] = ()
) -> Path:
    """A flat storage into which the environments' batches were written in turn."""
    streams = env_arrays(envs, chunks * chunk, seed=seed)
    rows = {}
    for key in streams[0]:
        rows[key] = np.concatenate([one[key][c * chunk : (c + 1) * chunk] for c in range(chunks) for one in streams])
    return ring_dump(folder, without(rows, *drop), capacity)


def padded_save(folder: Path, steps: int, *, seed: int = 0) -> Path:
    """Trajectories ``[n, longest]`` with a mask, zero where there is no step."""
    arrays = stream(steps, seed=seed)
    ids = arrays[("collector", "traj_ids")]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    stops = np.append(starts[1:], len(ids))
    longest = int((stops - starts).max())
    rows: Arrays = {}
    for key, value in arrays.items():
        table = np.zeros((len(starts), longest, *value.shape[1:]), value.dtype)
        for number, (a, b) in enumerate(zip(starts, stops, strict=True)):
            table[number, : b - a] = value[a:b]
        rows[key] = table
    rows[("collector", "mask")] = np.arange(longest)[None, :] < (stops - starts)[:, None]
    return save(folder, rows, (len(starts), longest))


def n_step(arrays: Arrays, n: int = 3, gamma: float = 0.9) -> Arrays:
    """What torchrl's multi-step transform makes of a stream."""
    ids = arrays[("collector", "traj_ids")]
    steps = len(ids)
    last = np.searchsorted(ids, ids, side="right") - 1
    reach = np.minimum(last - np.arange(steps), n - 1)
    found = dict(arrays)
    ahead = np.arange(steps) + reach
    found[("next", "observation")] = arrays[("next", "observation")][ahead]
    found[("next", "original_reward")] = arrays[("next", "reward")]
    reward = np.zeros((steps, 1), np.float32)
    for i in range(steps):
        for k in range(int(reach[i]) + 1):
            reward[i] += gamma**k * arrays[("next", "reward")][i + k]
    found[("next", "reward")] = reward
    found[("steps_to_next_obs",)] = (reach + 1).astype(np.int64)
    for name in ("done", "terminated", "truncated"):
        found["next", name] = arrays["next", name][ahead]
    return found


def add_values(save: Path, key: tuple[str, ...], values: list[str]) -> None:
    """Adds one text for each row to a written tensordict."""
    above = save.joinpath(*key[:-1], "meta.json")
    meta = json.loads(above.read_text())
    above.write_text(json.dumps({key[-1]: {"type": "NonTensorStack"}} | meta))
    kind = {"_type": "<class 'tensordict.tensorclass.NonTensorStack'>", "_class": "tensordict:NonTensorStack"}
    place = save.joinpath(*key)
    place.mkdir()
    text = json.dumps(kind | {"_format_version": 1, "stack_dim": 0, "device": None, "data": values})
    (place / "meta.json").write_text(text)

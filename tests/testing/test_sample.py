"""The sample replay buffer looks like a dumped one, and its faults are where they are planted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import tdview
from tdview.errors import AlreadyExistsError, ArgumentError
from tdview.testing.sample import FAULTS, write_replay_buffer


def _digest(folder: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content.update(str(path.relative_to(folder)).encode())
        content.update(path.read_bytes() if path.is_file() else b"")
    return content.hexdigest()


def test_the_same_arguments_write_the_same_bytes(tmp_path: Path) -> None:
    one = write_replay_buffer(tmp_path / "one", capacity=32, steps=40)
    two = write_replay_buffer(tmp_path / "two", capacity=32, steps=40)
    other = write_replay_buffer(tmp_path / "other", capacity=32, steps=40, seed=1)
    assert _digest(one) == _digest(two) != _digest(other)


@pytest.mark.parametrize(
    ("steps", "rows", "order"), [(20, 20, ((0, 20),)), (32, 32, ((0, 32),)), (40, 32, ((8, 32), (0, 8)))]
)
def test_the_ring_is_partial_full_or_wrapped(
    tmp_path: Path, steps: int, rows: int, order: tuple[tuple[int, int], ...]
) -> None:
    fill = tdview.scan(write_replay_buffer(tmp_path / "run", capacity=32, steps=steps)).fill
    assert (fill.rows, fill.capacity, fill.write_count, fill.certain) == (rows, 32, steps, True)
    assert fill.chronological == order


def test_next_observation_is_the_observation_of_the_next_row_inside_an_episode(tmp_path: Path) -> None:
    root = tdview.scan(write_replay_buffer(tmp_path / "run", capacity=256, steps=256))
    inner = ~root["next", "done"].numpy()[:-1, 0]
    assert inner.sum() > 200
    for name in ("observation", "pixels"):
        following, now = root["next", name].numpy()[:-1], root[name].numpy()[1:]
        assert np.array_equal(following[inner], now[inner])
        assert not any(np.array_equal(a, b) for a, b in zip(following[~inner], now[~inner], strict=True))


def test_both_ways_of_ending_occur_in_the_default_sample(tmp_path: Path) -> None:
    root = tdview.scan(write_replay_buffer(tmp_path / "run"))
    assert root["next", "terminated"].numpy().any()
    assert root["next", "truncated"].numpy().any()


def test_faults_change_only_what_they_name(tmp_path: Path) -> None:
    sound = tdview.scan(write_replay_buffer(tmp_path / "sound"))
    bad = tdview.scan(write_replay_buffer(tmp_path / "bad", faults=("nan_reward",)))
    changed = [leaf.path for leaf in sound.leaves() if bytes(leaf.raw()) != bytes(bad[leaf.path].raw())]
    assert changed == [("next", "reward")]
    assert FAULTS == ("nan_reward", "lost_done", "boundary_leak", "repeated_rows")


def test_faults_need_enough_episodes(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        write_replay_buffer(tmp_path / "run", steps=100, faults=("lost_done",))
    for seed in range(10):
        write_replay_buffer(tmp_path / f"run{seed}", seed=seed, faults=FAULTS)


def test_a_folder_that_is_there_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    path = write_replay_buffer(tmp_path / "run", capacity=8, steps=8)
    with pytest.raises(AlreadyExistsError):
        write_replay_buffer(path, capacity=8, steps=8)
    write_replay_buffer(path, capacity=8, steps=4, existsok=True)
    assert tdview.scan(path).fill.rows == 4

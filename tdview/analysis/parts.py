"""This module knows which leaf of a buffer plays which part: end flags, ids, counts, rewards, observations, images.

It does not know how rows follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tdview.analysis import columns as col
from tdview.analysis.columns import Column, Key
from tdview.errors import ArgumentError

__all__ = ["DEFAULT_SAMPLE", "FLAGS", "Options", "Parts"]

DEFAULT_SAMPLE = 2000
IDS: tuple[Key, ...] = (("collector", "traj_ids"), ("traj_ids",), ("episode",))
MASKS: tuple[Key, ...] = (("collector", "mask"), ("mask",))
FLAGS = frozenset({"done", "terminated", "truncated"})
NOT_OBSERVED = FLAGS | {"reward", "is_init", "step_count", "episode_reward", "original_reward", "original_observation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user tells an audit beyond the path."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    """Which entry plays which part: ``done terminated truncated reward traj step action mask timestamp index``."""
    time_dim: int | None = None
    """Batch dim along which time runs; None: found out from step counts and ids."""
    bounds: Mapping[Key, tuple[float, float]] = field(default_factory=dict)
    """Allowed least and greatest value by key."""
    fps: float | None = None
    """Frames per second of the time stamps."""
    horizon: int | None = None
    """Greatest number of steps of an episode."""
    sample: int | None = DEFAULT_SAMPLE
    """Rows that are read of a leaf which is large because of its rows (images); None: all."""
    careful: bool = False
    """Try every leaf before it becomes a column, and leave those out that cannot be read."""
    unread: frozenset[Key] = frozenset()
    """Paths of leaves that are left out because they cannot be read in bounded memory."""


PARTS = frozenset({"done", "terminated", "truncated", "reward", "traj", "step", "action", "mask", "timestamp", "index"})


class Parts:
    """The columns of a buffer by nested key, and which of them plays which part."""

    def __init__(self, columns: Mapping[Key, Column], shape: Sequence[int], options: Options | None) -> None:
        self.columns = dict(columns)
        self.shape = tuple(shape)
        """Batch shape of the storage."""
        self.options = options or Options()
        self.prefix: Key = ()
        """Where the columns' keys stand below the save."""
        self.leaf_keys: tuple[Key, ...] = tuple(self.columns)
        """Keys of leaves that are really there: others are made up by an adapter."""
        self.read_values: Callable[[], Mapping[Key, Sequence[Any]]] = dict
        """Reads what is no tensor, such as texts, where root and `next` both have it: a value per storage row."""
        self.cache: dict[Any, Any] = {}
        """What several rules need and one of them computed."""
        unknown = set(self.options.keys) - PARTS
        if unknown:
            raise ArgumentError(f"keys: unknown part {sorted(unknown)[0]!r}; the parts are {', '.join(sorted(PARTS))}")

    def _part(self, part: str, *candidates: Key) -> Key | None:
        chosen = self.options.keys.get(part)
        if chosen is not None:
            if chosen not in self.columns:
                raise ArgumentError(f"keys: {part}: there is no leaf {'.'.join(chosen)!r}")
            return chosen
        return next((key for key in candidates if key in self.columns), None)

    def _number(self, part: str, *candidates: Key) -> Key | None:
        """A part that holds one real number for each step."""
        key = self._part(part, *candidates)
        if key is None or col.width(self.columns[key]) != 1 or col.is_complex(self.columns[key]):
            return None
        return key

    @cached_property
    def has_next(self) -> bool:
        """The save has a `next` entry, so end flags at the root describe the state before the step."""
        return any(key[0] == "next" for key in self.columns)

    @cached_property
    def end_keys(self) -> tuple[Key, ...]:
        """The flags of which each one ends an episode."""
        chosen = [self._part(p) for p in ("done", "terminated", "truncated") if p in self.options.keys]
        if chosen:
            return tuple(key for key in chosen if key is not None)
        known: list[Key] = [("next", name) for name in ("done", "terminated", "truncated")]
        groups = [key for key in self.columns if key[0] == "next" and len(key) > 2 and key[-1] in FLAGS]
        own: list[Key] = [("done",), ("terminated",), ("truncated",)]
        for candidates in (known, groups, own):
            found = tuple(key for key in candidates if key in self.columns and self.columns[key].feature_size)
            if found:
                return found
        return ()

    def original_key(self, key: Key) -> Key:
        """The key of the leaf in the save that a column shows."""
        if key not in self.columns or not self.leaf_keys:
            return key
        if key not in self.leaf_keys and key[0] == "next":
            named = (*key[1:-1], f"next_{key[-1]}")
            key = named if named in self.leaf_keys else key[1:]
        return (*self.prefix, *key)

    def flag_key(self, name: str) -> Key | None:
        """The flag ``"done"``, ``"terminated"`` or ``"truncated"`` of the transition, None if there is none."""
        chosen = self.options.keys.get(name)
        return chosen or next((key for key in self.end_keys if key[-1] == name), None)

    @cached_property
    def id_key(self) -> Key | None:
        """The trajectory id."""
        return self._number("traj", *IDS)

    @cached_property
    def step_key(self) -> Key | None:
        """The step count before the step."""
        return self._number("step", ("step_count",))

    @cached_property
    def mask_key(self) -> Key | None:
        """The mask that tells steps from padding."""
        key = self._part("mask", *MASKS)
        return key if key is not None and len(self.shape) > 1 and col.width(self.columns[key]) == 1 else None

    @cached_property
    def reward_keys(self) -> tuple[Key, ...]:
        """The rewards of the transition, one per group of agents."""
        chosen = self._part("reward")
        if chosen is not None:
            return (chosen,)
        real = [key for key in self.columns if key[-1] == "reward" and not col.is_complex(self.columns[key])]
        return tuple(key for key in real if key[0] == "next") or tuple(real)

    @cached_property
    def action_keys(self) -> tuple[Key, ...]:
        """The actions."""
        chosen = self._part("action")
        if chosen is not None:
            return (chosen,)
        return tuple(key for key in self.columns if key[-1] == "action" and key[0] != "next")

    @cached_property
    def observed_keys(self) -> tuple[Key, ...]:
        """Keys that stand at the root and below `next` with the same shape: what a step changes."""
        return tuple(
            key
            for key, column in self.columns.items()
            if key[0] != "next"
            and key[-1] not in NOT_OBSERVED
            and key not in (self.id_key, self.step_key)
            and (other := self.columns.get(("next", *key))) is not None
            and other.feature == column.feature
            and other.dtype == column.dtype
        )

    @cached_property
    def image_keys(self) -> tuple[Key, ...]:
        """Leaves that hold images: named so, or two last dims of at least 8."""
        names = ("pixels", "image", "rgb", "frame")
        found = []
        for key, column in self.columns.items():
            shape = column.feature
            sized = len(shape) >= 2 and shape[-1] >= 8 and shape[-2] >= 8
            channels_last = len(shape) >= 3 and shape[-1] in (1, 3, 4) and shape[-2] >= 8 and shape[-3] >= 8
            named = len(shape) >= 2 and any(n in part.lower() for part in key for n in names)
            if (sized or channels_last or named) and not column.dtype.endswith(("bool", "int64", "int32")):
                found.append(key)
        return tuple(found)

    @property
    def n_step(self) -> bool:
        """Rewards and next observations reach several steps ahead."""
        return ("steps_to_next_obs",) in self.columns

    @property
    def sequential(self) -> bool:
        """The save holds rows of transitions at all, not just any tensordict."""
        return bool(self.shape) and (self.has_next or bool(self.end_keys) or bool(self.reward_keys))

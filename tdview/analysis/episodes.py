"""This module knows the episodes of a buffer: where they start and stop, how they end, what they add up to.

It does not know whether that is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tdview.analysis.replay import Buffer, episodes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EpisodeTable", "episode_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTable:
    """Episodes as arrays ``[k]``, lane by lane in the order of time."""

    first: NDArray[Any]
    """First positions."""
    last: NDArray[Any]
    """Last positions (included)."""
    lengths: NDArray[Any]
    """Steps."""
    returns: NDArray[Any] | None
    """Sums of the reward (float64, of all agents together); None where there is no reward."""
    complete: NDArray[Any]
    """Episodes that carry an end flag at their last step and are not cut at their first one."""


def episode_table(buffer: Buffer) -> EpisodeTable:
    """The episodes of a buffer; computed once. Reads flags, ids, step counts and rewards, nothing else."""
    known = buffer.cache.get("episodes")
    if known is None:
        known = buffer.cache["episodes"] = _table(buffer)
    return known


def _table(buffer: Buffer) -> EpisodeTable:
    import numpy as np

    lanes = list(episodes_of(buffer))
    none = np.empty(0, np.int64)
    first = np.concatenate([none, *(a for a, _ in lanes)])
    last = np.concatenate([none, *(b for _, b in lanes)])
    lengths = (last - first) // buffer.stride + 1
    returns = episode_sums(buffer, first, last) if buffer.reward_keys else None
    ended = np.zeros(len(last), bool)
    for key in buffer.end_keys:
        ended |= flags_at(buffer, key, last)
    whole = ended.copy()
    if buffer.step_key is not None and len(first):
        whole &= buffer.take(buffer.step_key, first).reshape(len(first), -1)[:, 0] <= 1
    return EpisodeTable(first=first, last=last, lengths=lengths, returns=returns, complete=whole)


def flags_at(buffer: Buffer, key: tuple[str, ...], positions: NDArray[Any]) -> NDArray[Any]:
    """A flag at some positions: bool ``[k]``; of a group of agents it is set when it is set for all."""
    found: NDArray[Any] = (buffer.take(key, positions) != 0).reshape(len(positions), -1).all(axis=1)
    return found


def episode_sums(
    buffer: Buffer, first: NDArray[Any], last: NDArray[Any], keys: tuple[tuple[str, ...], ...] = ()
) -> NDArray[Any]:
    """Sums of leaves over each episode: float64 ``[k]``, all their values together."""
    import numpy as np

    totals = np.zeros(len(first), np.float64)
    number = _episode_numbers(buffer, first, last)
    for key in keys or buffer.reward_keys:
        for start, stop in buffer.spans((key,), extra=16):
            buffer.tick()
            values = buffer.read(key, start, stop).reshape(stop - start, -1)
            added = values.sum(axis=1, dtype=np.float64) if values.shape[1] != 1 else values[:, 0].astype(np.float64)
            mine = number(start, stop)
            inside = mine >= 0
            totals += np.bincount(mine[inside], added[inside], len(first)) if inside.any() else 0.0
    return totals


def _episode_numbers(buffer: Buffer, first: NDArray[Any], last: NDArray[Any]) -> Any:
    """A function from a span of positions to the number of the episode of each (-1 for padding)."""
    import numpy as np

    if buffer.stride == 1:

        def numbers(start: int, stop: int) -> NDArray[Any]:
            here = np.arange(start, stop)
            found = np.searchsorted(first, here, side="right") - 1
            outside = (found < 0) | (here > last[np.maximum(found, 0)]) if len(first) else np.ones(len(here), bool)
            return np.where(outside, -1, found)

        return numbers
    whole = np.full(buffer.n, -1, np.int64)
    for index, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        whole[a : b + 1 : buffer.stride] = index
    return lambda start, stop: whole[start:stop]

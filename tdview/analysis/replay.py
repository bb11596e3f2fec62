"""This module knows how the rows of a saved buffer follow each other: valid rows, time order, lanes, episode breaks.

It does not know what is right or wrong about their values.

Positions count the valid elements in reading order, ``0 .. n - 1``. Position `p` is followed in time by position
``p + stride`` unless `breaks[p]` says that nothing follows. For a ring of one environment the stride is 1 and the
positions start at the oldest row; for ``[time, env]`` storages it is the number of environments; for padded or
``[chunk, time]`` storages each row is a lane of its own; rows of several environments that were written one after
the other are first sorted by trajectory and step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tdview.analysis import columns as col
from tdview.analysis.columns import Column, Key, equal_rows, flat_rows
from tdview.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tdview.tree.fill import Fill, SideFiles

__all__ = [
    "DEFAULT_SAMPLE",
    "Buffer",
    "Chunk",
    "Engine",
    "Options",
    "Progress",
    "SerialEngine",
    "lightest",
    "row_ranges",
]

Progress = Callable[[int, int], None]
T = TypeVar("T")

DEFAULT_SAMPLE = 2000
_CHUNK_BYTES = 4 << 20
_HEAVY_ROW = 1024
_HEAVY_LEAF = 256 << 20
_RELEASE_EVERY = 16  # blocks
_SAMPLE_RUN = 16  # consecutive rows in one piece of a sample, so that pairs of neighbours are seen
_MAX_RANGES = 1000  # as `rules.registry.MAX_RANGES`

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


PARTS = frozenset({"done", "terminated", "truncated", "reward", "traj", "step", "action", "mask", "timestamp", "index"})


class Buffer:
    """The valid rows of a buffer as columns by nested key, in time order.

    ``buffer["next", "reward"]`` gives all valid values in reading order (a private copy where they are not
    contiguous); rules read blocks instead: see `map`.
    """

    def __init__(
        self,
        columns: Mapping[Key, Column],
        shape: Sequence[int],
        *,
        fill: Fill | None = None,
        side: SideFiles | None = None,
        options: Options | None = None,
        where: str = "",
        profile: str = "",
        horizon: int | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.shape = tuple(shape)
        """Batch shape of the storage."""
        self.fill = fill
        self.side = side
        self.options = options or Options()
        self.where = where
        self.profile = profile
        """``"flat"``, ``"nested"``, ``"atari"``, ``"pytree"`` where the file needed an adapter, else empty."""
        self.known_horizon = self.options.horizon or horizon
        self.engine: Engine = SerialEngine()
        self.tick: Callable[[], None] = lambda: None
        self.cache: dict[Any, Any] = {}
        """What several rules need and one of them computed."""
        self.prefix: Key = ()
        """Where the columns' keys stand below the save."""
        self.leaf_keys: tuple[Key, ...] = tuple(self.columns)
        """Keys of leaves that are really there: others are made up by an adapter."""
        unknown = set(self.options.keys) - PARTS
        if unknown:
            raise ArgumentError(f"keys: unknown part {sorted(unknown)[0]!r}; the parts are {', '.join(sorted(PARTS))}")

    # -- which entry plays which part ---------------------------------------------------------------------------

    def _part(self, part: str, *candidates: Key) -> Key | None:
        chosen = self.options.keys.get(part)
        if chosen is not None:
            if chosen not in self.columns:
                raise ArgumentError(f"keys: {part}: there is no leaf {'.'.join(chosen)!r}")
            return chosen
        return next((key for key in candidates if key in self.columns), None)

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
        key = self._part("traj", *IDS)
        return key if key is not None and col.width(self.columns[key]) == 1 else None

    @cached_property
    def step_key(self) -> Key | None:
        """The step count before the step."""
        key = self._part("step", ("step_count",))
        return key if key is not None and col.width(self.columns[key]) == 1 else None

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
        found = tuple(key for key in self.columns if key[0] == "next" and key[-1] == "reward")
        return found or tuple(key for key in self.columns if key[-1] == "reward")

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
    def ordered(self) -> bool:
        """Neighbouring positions are neighbours in time."""
        return self.fill is None or self.fill.ordered

    @property
    def sequential(self) -> bool:
        """The save holds rows of transitions at all, not just any tensordict."""
        return bool(self.shape) and (self.has_next or bool(self.end_keys) or bool(self.reward_keys))

    # -- order --------------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Rows of dim 0 of the storage."""
        return self.shape[0] if self.shape else 0

    @cached_property
    def inner(self) -> int:
        """Elements of one row."""
        return int(col._size(self.shape[1:]))

    @cached_property
    def rows(self) -> int:
        """Valid rows of dim 0."""
        return self.capacity if self.fill is None else min(self.fill.rows, self.capacity)

    @cached_property
    def head(self) -> int:
        """The oldest row where the ring wraps, else 0."""
        if self.fill is None or self.fill.rotated or not self.fill.full:
            return 0
        return self.fill.seam or 0

    @cached_property
    def n(self) -> int:
        """Number of positions."""
        return self.rows * self.inner

    @cached_property
    def time_last(self) -> bool:
        """Each row of dim 0 is a stretch of time; False: time runs along dim 0."""
        if self.inner <= 1 or len(self.shape) < 2:
            return False
        if self.options.time_dim is not None:
            return self.options.time_dim % len(self.shape) != 0
        if self.mask_key is not None:
            return True
        return _time_runs_last(self)

    @cached_property
    def stride(self) -> int:
        """Distance in positions from a step to the next one."""
        return 1 if self.time_last else max(1, self.inner)

    @cached_property
    def permutation(self) -> NDArray[Any] | None:
        """Positions in time order where rows of several environments alternate; None where they do not."""
        return _untangled(self) if self.inner == 1 and self.ordered and self.id_key is not None else None

    @cached_property
    def first_write(self) -> int:
        """How many rows were written before position 0, as far as it is known."""
        if self.fill is None:
            return 0
        count = self.fill.write_count
        return count - self.rows if count is not None and count >= self.rows else self.head

    @cached_property
    def stretch(self) -> int:
        """Rows after which another environment's rows follow, where no ids tell them apart; 0 where there is none.

        Batches of several environments that were flattened break off every so many rows, always the same number.
        """
        if self.inner != 1 or not self.ordered or self.id_key is not None or self.n_step or self.n < 12:
            return 0
        return _stretch(self)

    def elements(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Flat storage elements of positions."""
        if self.permutation is not None:
            positions = self.permutation[positions]
        return self._ring(positions)

    def _ring(self, positions: NDArray[Any]) -> NDArray[Any]:
        if not self.head:
            return positions
        total = self.capacity * self.inner
        moved: NDArray[Any] = (positions + self.head * self.inner) % total
        return moved

    def storage_rows(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Storage rows (dim 0) of positions."""
        found = self.elements(positions)
        return found // self.inner if self.inner > 1 else found

    def ranges(self, positions: Any, width: int = 1) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of storage rows of positions, merged and ascending, at most a thousand.

        Args:
            positions: int array of positions.
            width: how many steps in time each position stands for.
        """
        import numpy as np

        found = np.asarray(positions, np.int64).ravel()
        parts = [found + k * self.stride for k in range(width)]
        whole = np.concatenate(parts)
        return row_ranges(self.storage_rows(whole[whole < self.n]))

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, key: Key, start: int, stop: int) -> NDArray[Any]:
        """Values of positions `start` to `stop`: ``[stop - start, *feature]``."""
        import numpy as np

        column = self.columns[key]
        if self.permutation is not None:
            return column.take(self._ring(self.permutation[start:stop]))
        return self._read_in_ring(column, start, stop, np)

    def _read_in_ring(self, column: Column, start: int, stop: int, np: Any) -> NDArray[Any]:
        first = self.head * self.inner
        total = self.capacity * self.inner
        a, b = start + first, stop + first
        if not first or b <= total:
            return column.read(a, b)
        if a >= total:
            return column.read(a - total, b - total)
        joined: NDArray[Any] = np.concatenate([column.read(a, total), column.read(0, b - total)])
        return joined

    def take(self, key: Key, positions: NDArray[Any]) -> NDArray[Any]:
        """Values of an array of positions."""
        return self.columns[key].take(self.elements(positions))

    def __getitem__(self, key: str | Key) -> NDArray[Any]:
        return self.read((key,) if isinstance(key, str) else tuple(key), 0, self.n)

    def __contains__(self, key: object) -> bool:
        return ((key,) if isinstance(key, str) else key) in self.columns

    def scalar(self, key: Key, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The first value of each position: ``[n]``."""
        values = self.read(key, start, self.n if stop is None else stop)
        return flat_rows(values)[:, 0] if values.ndim > 1 else values

    def flag(self, key: Key, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """A flag as bool ``[n]``; of a group of agents it is set when it is set for all of them."""
        values = self.read(key, start, self.n if stop is None else stop)
        flat = flat_rows(values)
        found: NDArray[Any] = (flat[:, 0] != 0) if flat.shape[1] == 1 else (flat != 0).all(axis=1)
        return found

    def end(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Whether an episode ends with the step: ``[n]`` bool."""
        import numpy as np

        stop = self.n if stop is None else stop
        found = np.zeros(stop - start, bool)
        for key in self.end_keys:
            found |= self.flag(key, start, stop)
        return found

    @cached_property
    def valid(self) -> NDArray[Any] | None:
        """Which positions are steps; None where all are (there is no padding)."""
        return None if self.mask_key is None else self.flag(self.mask_key)

    @cached_property
    def n_valid(self) -> int:
        """Number of steps."""
        return self.n if self.valid is None else int(self.valid.sum())

    @cached_property
    def breaks(self) -> NDArray[Any]:
        """After which positions nothing follows in the same episode: bool ``[n]``, one byte a position."""
        import numpy as np

        found = np.ones(self.n, bool)
        for start, stop in self.spans((), extra=18):
            found[start:stop] = _breaks(self, start, stop)
            self.release()
        return found

    def spans(self, keys: Iterable[Key], extra: int = 0) -> list[tuple[int, int]]:
        """Stretches of positions that fit into one block of bounded memory for these keys."""
        size = extra + sum(max(1, col.nbytes(self.columns[key])) for key in keys)
        step = max(1, _CHUNK_BYTES // max(1, size))
        return [(a, min(a + step, self.n)) for a in range(0, self.n, step)]

    def is_heavy(self, key: Key) -> bool:
        """Whether only a sample of this leaf is read."""
        row = col.nbytes(self.columns[key])
        return (
            self.options.sample is not None
            and row >= _HEAVY_ROW
            and row * self.n > _HEAVY_LEAF
            and self.n > self.options.sample
        )

    def sampled(self, keys: Iterable[Key]) -> list[tuple[int, int]]:
        """`spans` of evenly spread pieces that make up the sample of a heavy leaf; the same for every run."""
        import numpy as np

        step = self.stride
        pieces = max(1, (self.options.sample or 1) // _SAMPLE_RUN)
        run = min(self.n, _SAMPLE_RUN + step)
        starts = np.unique(np.linspace(0, self.n - run, pieces).astype(np.int64))
        size = sum(col.nbytes(self.columns[key]) for key in keys)
        length = max(1, min(run, (64 << 20) // max(1, size)))
        return [(int(a), int(a) + length) for a in starts]

    def release(self) -> None:
        """Lets the system take back the pages of large leaves."""
        for column in self.columns.values():
            if isinstance(column, col.LeafColumn):
                column.release()

    def map(self, function: Callable[..., T], *keys: Key, arguments: tuple[Any, ...] = ()) -> list[T]:
        """``function(chunk, *arguments)`` over blocks that cover all valid positions, results in order.

        Args:
            function: a function of a module, so that it can be sent to another process.
            keys: what the function reads; they decide the size of the blocks. If one of them is heavy, the
                blocks are a sample: see `is_heavy`.
            arguments: further arguments, the same for all blocks.
        """
        heavy = [key for key in keys if self.is_heavy(key)]
        spans = self.sampled(keys) if heavy else self.spans(keys)
        return self.engine.run(self, function, spans, arguments)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions ``start .. stop - 1`` of a buffer, with the step that follows each of them."""

    buffer: Buffer
    start: int
    stop: int

    def get(self, key: Key) -> NDArray[Any]:
        """Values ``[n, *feature]`` of the positions."""
        return self.buffer.read(key, self.start, self.stop)

    def flat(self, key: Key) -> NDArray[Any]:
        """Values as ``[n, width]``."""
        values = self.get(key)
        return flat_rows(values)

    @property
    def followed(self) -> int:
        """How many of the positions have a position `stride` behind them."""
        return max(0, min(self.stop, self.buffer.n - self.buffer.stride) - self.start)

    def after(self, key: Key) -> NDArray[Any]:
        """Values of what follows the first `followed` positions."""
        first = self.start + self.buffer.stride
        return self.buffer.read(key, first, first + self.followed)

    @property
    def inner(self) -> NDArray[Any]:
        """Which of the first `followed` positions are followed by a step of the same episode."""
        return ~self.buffer.breaks[self.start : self.start + self.followed]

    @property
    def valid(self) -> NDArray[Any] | None:
        """Which positions are steps and no padding; None for all."""
        valid = self.buffer.valid
        return None if valid is None else valid[self.start : self.stop]

    def positions(self, mask: NDArray[Any]) -> NDArray[Any]:
        """Positions where a mask over the first elements of the chunk is set, padding left out."""
        import numpy as np

        valid = self.valid
        if valid is not None:
            mask = mask & valid[: len(mask)]
        return np.flatnonzero(mask) + self.start


class Engine:
    """Runs a chunk function over spans of a buffer."""

    def run(
        self, buffer: Buffer, function: Callable[..., T], spans: Sequence[tuple[int, int]], arguments: tuple[Any, ...]
    ) -> list[T]:
        """Results in the order of the spans."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases what other processes hold for this engine."""


def run_chunk(function: Callable[..., T], buffer: Buffer, start: int, stop: int, arguments: tuple[Any, ...]) -> T:
    """One call of a chunk function. Overflows and NaN are data here: numpy is told not to warn of them."""
    import numpy as np

    with np.errstate(all="ignore"):
        return function(Chunk(buffer, start, stop), *arguments)


class SerialEngine(Engine):
    """One block after the other in the calling thread."""

    def run(
        self, buffer: Buffer, function: Callable[..., T], spans: Sequence[tuple[int, int]], arguments: tuple[Any, ...]
    ) -> list[T]:
        results = []
        for number, (start, stop) in enumerate(spans):
            buffer.tick()
            results.append(run_chunk(function, buffer, start, stop, arguments))
            if number % _RELEASE_EVERY == _RELEASE_EVERY - 1:
                buffer.release()
        return results


def row_ranges(rows: NDArray[Any], limit: int = _MAX_RANGES) -> tuple[tuple[int, int], ...]:
    """Row numbers as merged half-open ranges, ascending, at most `limit` of them."""
    import numpy as np

    unique = np.unique(rows)
    if not len(unique):
        return ()
    cuts = np.flatnonzero(np.diff(unique) > 1)
    starts = unique[np.concatenate([[0], cuts + 1])]
    stops = unique[np.concatenate([cuts, [len(unique) - 1]])] + 1
    return tuple(zip(starts[:limit].tolist(), stops[:limit].tolist(), strict=True))


def _breaks(buffer: Buffer, start: int, stop: int) -> NDArray[Any]:
    import numpy as np

    stride, n = buffer.stride, buffer.n
    found = np.zeros(stop - start, bool)
    m = max(0, min(stop, n - stride) - start)
    found[m:] = True
    if not buffer.ordered:
        found[:] = True
        return found
    labelled = False
    ahead = slice(start + stride, start + stride + m)
    if buffer.id_key is not None:
        ids = buffer.scalar(buffer.id_key, start, start + m)
        found[:m] |= ids != buffer.scalar(buffer.id_key, ahead.start, ahead.stop)
        labelled = True
    if buffer.step_key is not None:
        steps = buffer.scalar(buffer.step_key, start, start + m)
        found[:m] |= buffer.scalar(buffer.step_key, ahead.start, ahead.stop) <= steps
        labelled = True
    if not (buffer.n_step and labelled):  # every one of the last n rows of an n-step buffer may carry the end flag
        found |= buffer.end(start, stop)
    if buffer.stretch:
        found |= (np.arange(start, stop) + 1 + buffer.first_write) % buffer.stretch == 0
    if buffer.time_last:
        length = buffer.shape[-1]
        found |= (buffer._ring(np.arange(start, stop)) + 1) % length == 0
    if buffer.valid is not None:
        found[:m] |= ~buffer.valid[ahead]
        found |= ~buffer.valid[start:stop]
    return found


def _broken_off(chunk: Chunk) -> NDArray[Any]:
    """Positions that carry no end flag and are not followed by the next step."""
    import numpy as np

    buffer, m = chunk.buffer, chunk.followed
    start, stop = chunk.start, chunk.start + chunk.followed
    if buffer.step_key is not None:
        rise = buffer.scalar(buffer.step_key, start + 1, stop + 1) - buffer.scalar(buffer.step_key, start, stop)
        broken = rise != 1
    else:
        key = lightest(buffer)
        broken = ~equal_rows(chunk.get(("next", *key))[:m], chunk.after(key))
    return np.flatnonzero(broken & ~buffer.end(start, stop)) + start


def lightest(buffer: Buffer) -> Key:
    """The observation with the fewest bytes; there must be one."""
    return min(buffer.observed_keys, key=lambda key: col.nbytes(buffer.columns[key]))


def _stretch(buffer: Buffer) -> int:
    import numpy as np

    if buffer.step_key is None and not buffer.observed_keys:
        return 0
    read = (buffer.step_key,) if buffer.step_key is not None else (lightest(buffer),)
    spans = buffer.spans((*read, *buffer.end_keys))
    cuts = np.concatenate([_broken_off(Chunk(buffer, a, b)) for a, b in spans]) + 1 + buffer.first_write
    if len(cuts) < 3 or len(cuts) > buffer.n // 4:
        return 0
    common = int(np.gcd.reduce(cuts))
    return common if common >= 4 and len(cuts) >= 0.3 * buffer.n / common else 0


def _time_runs_last(buffer: Buffer) -> bool:
    """Whether steps follow each other along the last batch dim rather than along dim 0."""
    import numpy as np

    rows = min(buffer.rows, 512)
    lead, last = rows, buffer.shape[-1]
    if lead < 2 or last < 2:
        return lead < 2
    scores = [0.0, 0.0]

    def grid(key: Key) -> NDArray[Any]:
        column = buffer.columns[key]
        values = column.read(0, rows * buffer.inner)
        return values.reshape(rows, -1, last, *column.feature)

    if buffer.step_key is not None:
        steps = grid(buffer.step_key).reshape(rows, -1, last).astype(np.int64)
        scores = [float((np.diff(steps, axis=axis) == 1).mean()) for axis in (0, 2)]
    elif buffer.observed_keys:
        key = lightest(buffer)
        now, then = grid(key), grid(("next", *key))
        flat = now.reshape(rows, -1, last, col.width(buffer.columns[key]))
        ahead = then.reshape(flat.shape)
        scores = [float((flat[1:] == ahead[:-1]).mean()), float((flat[:, :, 1:] == ahead[:, :, :-1]).mean())]
    elif buffer.id_key is not None:
        ids = grid(buffer.id_key).reshape(rows, -1, last)
        scores = [float((np.diff(ids, axis=axis) == 0).mean()) for axis in (0, 2)]
    return scores[1] > scores[0]


def _untangled(buffer: Buffer) -> NDArray[Any] | None:
    """Positions sorted by trajectory and step, if the rows of a trajectory lie apart and continue one another."""
    import numpy as np

    if buffer.id_key is None or buffer.n < 3:
        return None
    column = buffer.columns[buffer.id_key]

    def ring_values(one: Column) -> NDArray[Any]:
        values = buffer._read_in_ring(one, 0, buffer.n, np)
        return flat_rows(values)[:, 0]

    ids = ring_values(column)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    if len(np.unique(ids[starts])) == len(starts):
        return None
    order = np.argsort(ids, kind="stable")
    if buffer.step_key is not None:
        steps = ring_values(buffer.columns[buffer.step_key])
        order = np.lexsort((np.arange(buffer.n), steps, ids))
    joined = (ids[order][1:] == ids[order][:-1]) & (np.diff(order) != 1)
    before, behind = order[:-1][joined], order[1:][joined]
    if not len(before):
        return None
    if buffer.step_key is not None:
        continues = steps[behind] == steps[before] + 1
    elif buffer.observed_keys:
        key = lightest(buffer)
        ahead = buffer.columns[("next", *key)].take(buffer._ring(before))
        continues = equal_rows(ahead, buffer.columns[key].take(buffer._ring(behind)))
    else:
        return None
    return order if float(continues.mean()) >= 0.5 else None


def episodes_of(buffer: Buffer) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs (first positions, last positions) of the episodes, lane by lane in the order of time."""
    import numpy as np

    stride = buffer.stride
    if stride == 1 and buffer.valid is None:
        last = np.flatnonzero(buffer.breaks)  # the last position always breaks
        if len(last):
            yield np.concatenate([[0], last[:-1] + 1]), last
        return
    for lane in range(stride):
        steps = np.arange(lane, buffer.n, stride)
        if buffer.valid is not None:
            steps = steps[buffer.valid[steps]]
        if not len(steps):
            continue
        last = np.flatnonzero(buffer.breaks[steps])
        if not len(last) or last[-1] != len(steps) - 1:
            last = np.append(last, len(steps) - 1)
        first = np.concatenate([[0], last[:-1] + 1])
        yield steps[first], steps[last]

"""This module knows every exception and every problem code of tdview.

It does not know how a problem is found or shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NoReturn

__all__ = [
    "CODES",
    "AlreadyExistsError",
    "ArgumentError",
    "BatchSizeError",
    "Cancelled",
    "ConcurrentWriteError",
    "DecodeError",
    "EditRefusedError",
    "EncodeError",
    "FormatError",
    "InterruptedAppendError",
    "KeyMissingError",
    "LockedError",
    "MissingFileError",
    "NotDirectoryError",
    "NotSupportedError",
    "PickleRefusedError",
    "Problem",
    "ReadOnlyError",
    "Severity",
    "TdviewError",
    "UnsupportedVersionError",
    "shown",
    "system_text",
]

Severity = Literal["error", "warning", "note"]

CODES: dict[str, str] = {
    # structure of the save
    "json": "a meta.json is not the JSON object that the format asks for",
    "missing_meta": "a level has no meta.json",
    "missing_file": "an entry has no file, though its shape has elements",
    "missing_level": "an entry names a nested collection that is not there",
    "missing_value": "a non-tensor value is neither in meta.json nor in a pickle",
    "unreadable": "a file or directory may not be read by this user",
    "entry": "an entry of meta.json is malformed",
    "shape": "a shape is not a list of sizes >= 0 that fits into memory addresses",
    "dtype": "a dtype is unknown",
    "file_size": "a payload has another size than its entry says",
    "overlong": "a payload is longer than its entry says; the rest is ignored",
    "batch_size": "a shape does not start with the batch size",
    "names": "the dim names do not fit the batch size",
    "version": "the format version is newer than this reader, or no version at all",
    "unknown_class": "the class of a node is not known; its fields are shown",
    "index": "the index or operation of a lazy view cannot be applied",
    "reserved_key": "a key with a reserved name hides or loses an entry",
    "orphan": "a file belongs to no entry",
    "escape": "a file name or link leaves the save",
    "link": "a link is followed, or leads back to a level above it",
    "depth": "levels are nested deeper than a reader follows",
    "member_gap": "the members of a lazy stack are not numbered without gaps",
    "name_collision": "two entries use the same file",
    # archives
    "archive": "the zip structure is damaged or contradicts itself",
    "crc": "the bytes of a zip entry do not match their checksum",
    "alignment": "a stored payload is not aligned, so it is read into memory",
    "compressed": "a payload is compressed, so it is read into memory",
    "duplicate_entry": "two zip entries have the same name; the last one counts",
    "encrypted": "a zip entry is encrypted and cannot be read",
    "bomb": "a zip entry inflates to more bytes than its leaf needs",
    # interrupted and left over
    "interrupted_append": "an append was interrupted; recover_append ends it",
    "interrupted_edit": "an edit was interrupted and is half done; opening with mode='r+' takes it back",
    "interrupted_save": "an atomic save was interrupted",
    "leftover": "a temporary file of an interrupted write",
    "json_types": "json_types.json does not belong to the pickle beside it",
    "pickle_present": "a pickle is stored; it is listed and never executed",
    # replay buffers
    "non_finite": "a float leaf holds NaN or infinity",
    "boundary_leak": "the observation after an episode's end is the next episode's first one",
    "done_consistency": "done is not terminated or truncated",
    "root_done": "a root done flag is set, though it describes the state before the step",
    "done_off_by_one": "end flags fit the episodes only when shifted by one row",
    "episode_segmentation": "end flags, trajectory ids and step counts disagree",
    "step_count_jump": "step_count does not rise by one inside an episode",
    "horizon": "an episode is longer than the horizon",
    "next_obs_consistency": "the next observation is not the observation of the next row",
    "next_equals_obs": "the next observation equals the observation",
    "frozen_observation": "the observation often does not change",
    "no_terminal_observation": "the observation after an episode's end is not stored",
    "duplicate_rows": "runs of rows occur twice",
    "len_vs_cursor": "the stored length and the writer's cursor contradict each other",
    "cursor_range": "the writer's cursor lies outside the capacity",
    "write_count": "the writer's count contradicts its cursor or the length",
    "index_leaf": "the index leaf is not the row number",
    "unwritten_rows": "rows inside the valid range were never written",
    "stale_rows": "rows behind the valid range hold data",
    "unequal_rows": "leaves have different numbers of rows",
    "all_zero": "a leaf, or every leaf, was never written",
    "seam": "an episode is cut by the place where the ring was written last",
    "reward_outlier": "the return, reward or length of an episode stands out",
    "episode_reward": "the running return is not the sum of the rewards",
    "pixel_range": "image values are scaled in different ways",
    "pixel_dtype": "images are stored as floats",
    "blank_frames": "images are uniform",
    "priority": "the priorities of the sampler are not usable",
    "timestamps": "time stamps or frame numbers do not advance evenly",
    "shift": "two buffers have different distributions",
    "shift_vs_cursor": "the stored shift is not the writer's cursor",
    "traj_id_collision": "one trajectory id is used by several episodes",
    "action_saturation": "an action dimension sits at its bound",
    "action_range": "an action lies outside its bounds or is no one-hot row",
    "out_of_bounds": "a value lies outside the bounds that were given",
    "action_jump": "an action jumps far more than usual",
    "constant_feature": "a feature never changes",
    "train_test_leak": "rows of one buffer are contained in the other",
    "schema": "two saves differ in keys, dtypes or shapes",
    "differs": "two saves hold different values",
    "side_file": "a side file of torchrl is damaged",
    "not_checked": "a check could not be made, or only on a sample",
}
"""The closed list of problem codes, each with what it means. Tests, CLI and widgets use the code, never the prose."""


def shown(value: object, limit: int = 80) -> str:
    """`value` as text that is safe in a message: escaped by `repr` and cut to `limit` characters."""
    if isinstance(value, str) and len(value) > limit:
        value = value[: limit + 1]
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a save.

    Spec: the codes are those of `CODES`; a rule added by a user brings its own.
    """

    code: str
    """What it is: a key of `CODES`."""
    message: str
    """Where, what, expected and got, and what to do; one line of bounded length."""
    severity: Severity = "error"
    """``"error"``: data is lost or wrong. ``"warning"``: suspicious. ``"note"``: worth knowing."""
    key: tuple[str, ...] = ()
    """Nested key of the entry, ``()`` for the save itself."""
    rows: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of storage rows, empty where the problem has no rows."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.code}: {self.message}"


class TdviewError(Exception):
    """Parent of every exception that tdview raises on purpose."""


class FormatError(TdviewError, ValueError):
    """The format is violated: see `DecodeError` (by the files) and `EncodeError` (by the caller)."""

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)
        """What was found, where the error stands for several problems."""


class DecodeError(FormatError, RuntimeError):
    """The bytes on disk break the format."""


class UnsupportedVersionError(DecodeError):
    """The save was written in a newer format version than this reader knows."""


class InterruptedAppendError(DecodeError):
    """An append was killed midway; `recover_append` ends it."""


class MissingFileError(DecodeError, FileNotFoundError):
    """A file that the save must have is not there."""

    def __str__(self) -> str:  # FileNotFoundError would print errno and file name
        return str(self.args[0]) if self.args else ""


class EncodeError(FormatError, RuntimeError):
    """The caller asks to save what the format cannot hold."""


class AlreadyExistsError(TdviewError, RuntimeError, FileExistsError):
    """A file is there already, and `existsok` or `copy_existing` forbids to replace or copy it."""


class NotDirectoryError(TdviewError, NotADirectoryError):
    """A directory was expected, and there is a file."""

    def __str__(self) -> str:  # NotADirectoryError would print errno and file name
        return str(self.args[0]) if self.args else ""


class PickleRefusedError(TdviewError, RuntimeError):
    """A pickle would have to be executed; it is not, unless ``allow_pickle=True`` says so."""


class NotSupportedError(TdviewError, NotImplementedError):
    """Legal, but not done by tdview, or not possible in this form of a save."""


class ReadOnlyError(TdviewError, PermissionError):
    """A write was asked for, and the save is open read-only or its file may not be written."""


class KeyMissingError(TdviewError, KeyError):
    """There is no entry with this key."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class LockedError(TdviewError, RuntimeError):
    """The tensordict is locked: its entries cannot be added, removed or replaced."""


class ArgumentError(TdviewError, ValueError):
    """An argument has the wrong value."""


class BatchSizeError(ArgumentError, RuntimeError):
    """A value does not start with the batch size of its tensordict."""


class EditRefusedError(ArgumentError):
    """A value cannot be stored at this place: out of range, of another type, or outside the shape."""


class ConcurrentWriteError(TdviewError, RuntimeError):
    """Another writer works on the save, or changed it meanwhile."""


class Cancelled(TdviewError):
    """Long work was stopped as asked; what it had begun is undone."""


def fail(error: type[TdviewError], where: object, what: str) -> NoReturn:
    """Raises `error` with the message form that all of tdview uses: where, colon, what."""
    raise error(f"{where}: {what}")


def system_text(error: OSError) -> str:
    """What the system refused, without its number: ``"run/a: Permission denied"``."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)

"""This module knows what an edit writes to: a region of a payload, or a small file as a whole.

It does not know what is written, nor how an edit is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tdview.errors import DecodeError, NotSupportedError, ReadOnlyError
from tdview.format.meta import META_LIMIT
from tdview.operations.region import Region
from tdview.storage.fileio import write_at
from tdview.storage.staging import new_file
from tdview.storage.store import Store

__all__ = ["PayloadTarget", "Target", "ValueTarget", "target_from_json"]

_MANY_RUNS = 16
"""More runs than this are written through a mapping: a system call for each would dominate."""


class Target(Protocol):
    """Bytes of a save that an edit replaces by others of its own."""

    @property
    def name(self) -> str:
        """The file inside the store."""
        ...

    def check_writable(self, store: Store) -> None:
        """Raises what a write would raise, without writing."""
        ...

    def read(self, store: Store) -> bytes:
        """The bytes that lie there now."""
        ...

    def write(self, store: Store, data: bytes) -> None:
        """Puts `data` there; other processes see it at once."""
        ...

    def is_between(self, now: bytes, before: bytes, after: bytes) -> bool:
        """Whether `now` can be what a process left that was killed while it wrote `after` over `before`."""
        ...

    def crc_delta(self, old: bytes, new: bytes) -> int:
        """What the CRC-32 of the file changes by."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The target as JSON for the journal."""
        ...


@dataclass(frozen=True, slots=True)
class PayloadTarget:
    """A region of a payload, written in place. A killed write leaves some bytes old and the others new."""

    name: str
    nbytes: int
    """Size of the payload."""
    region: Region

    def check_writable(self, store: Store) -> None:
        store.write_at(self.name, 0, b"")
        if self.region.end > self.nbytes:
            raise DecodeError(f"{store.label}/{self.name}: byte {self.region.end} lies outside the {self.nbytes} bytes")

    def read(self, store: Store) -> bytes:
        if self.region.end > self.nbytes:
            raise DecodeError(f"{store.label}/{self.name}: byte {self.region.end} lies outside the {self.nbytes} bytes")
        return self.region.gather(store.view(self.name, self.nbytes))

    def write(self, store: Store, data: bytes) -> None:
        region = self.region
        if region.n_runs > _MANY_RUNS:
            region.scatter(store.view(self.name, self.nbytes, "write"), data)
            return
        view = memoryview(data)
        for position, offset in enumerate(region.offsets()):
            store.write_at(self.name, offset, view[position * region.run : (position + 1) * region.run])

    def is_between(self, now: bytes, before: bytes, after: bytes) -> bool:
        return all(byte in (old, new) for byte, old, new in zip(now, before, after, strict=True))

    def crc_delta(self, old: bytes, new: bytes) -> int:
        return self.region.crc_delta(old, new, self.nbytes)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "nbytes": self.nbytes, "region": self.region.to_json()}


@dataclass(frozen=True, slots=True)
class ValueTarget:
    """A small file, a meta.json, that is replaced as a whole: readers see the old one or the new one."""

    name: str

    def check_writable(self, store: Store) -> None:
        if not store.writable:
            raise ReadOnlyError(f"{store.label}: the save is open read-only; open it with mode='r+'")
        if store.form != "directory":
            raise NotSupportedError(
                f"{store.label}: a non-tensor value of an archive cannot be replaced in place, as its size changes;"
                " unpack the archive, edit the directory and pack it again"
            )
        store.write_at(self.name, 0, b"")

    def read(self, store: Store) -> bytes:
        return store.read(self.name, META_LIMIT)

    def write(self, store: Store, data: bytes) -> None:
        with new_file(store.location / self.name) as fd:
            write_at(fd, data, 0)

    def is_between(self, now: bytes, before: bytes, after: bytes) -> bool:
        return now in (before, after)

    def crc_delta(self, old: bytes, new: bytes) -> int:
        return 0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


def target_from_json(head: dict[str, Any], old_nbytes: int, new_nbytes: int) -> Target:
    """The target that a journal record describes.

    Raises:
        DecodeError: it describes none, or one of another size than its bytes.
    """
    name, nbytes = head.get("name"), head.get("nbytes")
    if not isinstance(name, str) or _leaves_save(name):
        raise DecodeError("the journal names no file of the save")
    if "region" not in head:
        if not name.split("/")[-1] == "meta.json":
            raise DecodeError(f"the journal replaces {name!r}, which holds no value")
        return ValueTarget(name)
    try:
        region = Region.from_json(head["region"])
    except ValueError as error:
        raise DecodeError(f"the journal describes {error}") from None
    if type(nbytes) is not int or not region.nbytes == old_nbytes == new_nbytes or region.end > nbytes:
        raise DecodeError(f"the journal's bytes of {name!r} do not fit the place that it names")
    return PayloadTarget(name, nbytes, region)


def _leaves_save(name: str) -> bool:
    return name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))

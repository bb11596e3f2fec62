"""This module knows what a writer asks of a tensordict: its levels, its files and their bytes in blocks.

It does not know where the bytes come from, nor where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "SourceFile", "SourceLevel"]

Block = bytes | memoryview
"""Part of a file's content. A memoryview is C-contiguous; it is read at once and not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a level, ``meta.json`` excepted."""

    name: str
    """Encoded file name in its level, ``"obs.memmap"`` or ``"other.pickle"``; never a path."""
    nbytes: int
    """Size in bytes; the blocks add up to it."""
    blocks: Callable[[], Iterable[Block]] | None
    """Gives the content in C order, from its first byte, each time it is called. May convert lazily: whatever it
    raises stops the write, which then leaves no trace. None: all zero bytes, written as a hole (`memmap_like`)."""
    payload: bool = True
    """Whether it is a ``*.memmap`` file: aligned in an archive, and the only kind that is compressed."""
    mapped_at: Path | None = None
    """The file in which exactly these bytes already lie, if writes to this leaf reach that file; such a file is not
    written again in place. None for everything else, also for a private or read-only mapping that may differ."""

    @classmethod
    def of(cls, name: str, content: bytes, *, payload: bool = False) -> SourceFile:
        """A small file whose content is at hand, such as ``other.pickle``."""
        return cls(name=name, nbytes=len(content), blocks=lambda: (content,), payload=payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLevel:
    """One directory of a save.

    Invariant asked of the maker: no two files or levels share a name, and none is called ``meta.json``; a writer
    checks it before it writes the first byte.
    """

    name: str
    """Encoded directory name in its parent; ``""`` for the save itself."""
    meta: bytes
    """Content of its ``meta.json``."""
    files: tuple[SourceFile, ...] = ()
    """In the order in which they are written. A leaf without elements has none."""
    levels: tuple[SourceLevel, ...] = ()
    """Nested levels in key order."""

    def walk(self, prefix: str = "") -> Iterator[tuple[str, SourceLevel]]:
        """Every level with its ``/``-joined path below the save, parents first."""
        yield prefix, self
        for level in self.levels:
            yield from level.walk(f"{prefix}/{level.name}" if prefix else level.name)

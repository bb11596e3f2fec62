"""This module knows the corpus: saves written by many versions of tensordict, with what they must hold.

It does not know how they are read.
"""

from __future__ import annotations

import json
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Case", "cases", "foreign_zip", "memory_files", "unpack"]


@dataclass(frozen=True, slots=True)
class Case:
    """One save of the corpus."""

    name: str
    """``"<version>/<case>"``."""
    folder: Path
    expected: dict[str, Any]
    """What its expected.json says."""

    @property
    def saved(self) -> Path:
        """The saved directory."""
        return self.folder / "saved"

    @property
    def archives(self) -> tuple[Path, ...]:
        """The same save as archives, where the writing version made any."""
        return tuple(sorted(self.folder.glob("*.tdz")))


def unpack(archive: Path, target: Path) -> Path:
    """Unpacks one archive of the corpus into `target`, which is returned."""
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="fully_trusted")  # our own files; some have names that the filter refuses
    return target


def cases(folder: Path) -> list[Case]:
    """The cases below an unpacked folder, in name order."""
    found = sorted(folder.glob("*/*/expected.json"))
    return [Case(f"{e.parent.parent.name}/{e.parent.name}", e.parent, json.loads(e.read_text())) for e in found]


def memory_files(saved: Path) -> dict[str, bytes]:
    """A saved directory as the files of a `MemoryStore`."""
    files = (path for path in saved.rglob("*") if path.is_file())
    return {path.relative_to(saved).as_posix(): path.read_bytes() for path in files}


def foreign_zip(saved: Path, target: Path, *, compression: int = zipfile.ZIP_STORED) -> Path:
    """A saved directory as an archive by Python's zipfile: unaligned, in reverse order, with directory entries."""
    with zipfile.ZipFile(target, "w", compression) as archive:
        for path in sorted(saved.rglob("*"), reverse=True):
            archive.write(path, path.relative_to(saved))
    return target

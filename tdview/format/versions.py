"""This module knows the versions of the format.

Version 0 has no ``"_format_version"`` and is what tensordict up to 0.15.2 wrote. Version 1 adds
``"_format_version"``, ``"_class"`` and ``"_names"``; the layout is the same, and a reader of version 0 ignores
what version 1 adds. It does not know how an entry is read.
"""

from __future__ import annotations

__all__ = ["FORMAT_VERSION", "RESERVED_KEYS", "SHADOWABLE_KEYS", "version_of"]

FORMAT_VERSION = 1
"""The version that is written, and the newest that is read."""

RESERVED_KEYS = frozenset({"shape", "device", "_type", "_format_version", "_class", "_names"})
"""Entries of a tensordict itself; a key of this name collides with them. Spec: "A saved tensordict"."""

SHADOWABLE_KEYS = frozenset({"_format_version", "_class", "_names"})
"""Reserved names whose key keeps its entry; a key ``shape``, ``device`` or ``_type`` is lost instead."""


def version_of(entry: object) -> int | None:
    """The version that an entry ``"_format_version"`` names, None where it is no version at all.

    An absent entry, and a leaf of that name, is version 0.

    Examples:
        >>> version_of(None), version_of({"dtype": "torch.int8"}), version_of(1), version_of("2"), version_of(True)
        (0, 0, 1, None, None)
    """
    if entry is None or isinstance(entry, dict):
        return 0
    return entry if type(entry) is int and entry >= 0 else None

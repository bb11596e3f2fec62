"""This module knows nested keys: their spellings, and the views that `keys()` gives.

It does not know what an entry holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any, TypeGuard

from tdview.errors import shown

__all__ = ["Key", "NestedKey", "NestedKeys", "is_nested_key", "joined", "unravel"]

NestedKey = str | tuple[Any, ...]
"""``"obs"``, ``("next", "obs")``, or a tuple of such tuples."""

Key = str | tuple[str, ...]
"""What `keys()` yields: a string, or a flat tuple of at least two."""


def is_nested_key(value: object) -> TypeGuard[NestedKey]:
    """Whether `value` is a key or nested key, as opposed to an index along the batch dimensions."""
    if isinstance(value, str):
        return True
    return isinstance(value, tuple) and len(value) > 0 and all(map(is_nested_key, value))


def unravel(key: object) -> tuple[str, ...]:
    """A nested key as a flat tuple.

    Raises:
        KeyError: it is neither a string nor a non-empty, possibly nested tuple of strings.

    Examples:
        >>> unravel("a"), unravel(("a", ("b", "c")))
        (('a',), ('a', 'b', 'c'))
    """
    if isinstance(key, str):
        return (key,)
    if not is_nested_key(key):
        raise KeyError(f"a key is a string or a non-empty, possibly nested tuple of strings, got {shown(key)}")
    return tuple(part for item in key for part in unravel(item))


def joined(prefix: tuple[str, ...], key: str) -> Key:
    """A nested key as `keys()` yields it: a string at the top, a tuple below."""
    return (*prefix, key) if prefix else key


class NestedKeys(Set[Key]):
    """A live view of the keys of a collection; iterates anew over what is there now.

    Nested keys come before the key of their level, as tensordict orders them.
    """

    def __init__(self, walk: Callable[[], Iterator[Key]], *, sort: bool = False) -> None:
        self._walk = walk
        self._sort = sort

    @classmethod
    def _from_iterable(cls, it: Any) -> set[Key]:  # type: ignore[override]
        return set(it)

    def __iter__(self) -> Iterator[Key]:
        if self._sort:
            return iter(sorted(self._walk(), key=lambda key: key if isinstance(key, str) else ".".join(key)))
        return self._walk()

    def __len__(self) -> int:
        return sum(1 for _ in self._walk())

    def __contains__(self, key: object) -> bool:
        parts = unravel(key)
        wanted = parts[0] if len(parts) == 1 else parts
        return any(wanted == found for found in self._walk())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"

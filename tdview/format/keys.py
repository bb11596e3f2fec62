"""This module knows how a key becomes a file name and back.

It does not know which files exist.
"""

from __future__ import annotations

import re

__all__ = ["decode_key", "encode_key", "file_names", "is_single_component"]

_UNSAFE = re.compile(r'[/\\<>:"|?* %\x00-\x1f\x7f]')
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_DRIVE = re.compile(r"^[A-Za-z]:")
_SPECIAL = {"": "%", ".": "%2E", "..": "%2E%2E"}


def encode_key(key: str) -> str:
    """The file name of a key: a single path component that cannot leave its directory.

    Spec: "Keys and file names".

    Examples:
        >>> encode_key("a/b"), encode_key(""), encode_key(".."), encode_key("é")
        ('a%2Fb', '%', '%2E%2E', 'é')
    """
    if key in _SPECIAL:
        return _SPECIAL[key]
    if _UNSAFE.search(key) is None:  # nearly every key
        return key
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", key)


def decode_key(name: str) -> str:
    """The key of an encoded file name; a name that no key encodes to is returned as it is.

    Examples:
        >>> decode_key("a%2Fb"), decode_key("%"), decode_key("100%")
        ('a/b', '', '100%')
    """
    if "%" not in name:
        return name
    key = "" if name == "%" else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)
    return key if encode_key(key) == name else name


def is_single_component(key: str) -> bool:
    """Whether a key may be tried as a file name unchanged: one path component that stays where it is.

    Spec: "Keys and file names", last paragraph. ``""``, ``"."`` and ``".."`` are refused as well: they name
    a directory, never a file.

    Examples:
        >>> is_single_component("a b"), is_single_component("a/b"), is_single_component("C:x")
        (True, False, False)
    """
    return key not in _SPECIAL and "/" not in key and "\\" not in key and "\0" not in key and not _DRIVE.match(key)


def file_names(key: str) -> tuple[str, ...]:
    """The file names under which an entry may lie, the encoded one first.

    Examples:
        >>> file_names("obs"), file_names("a b"), file_names("../x")
        (('obs',), ('a%20b', 'a b'), ('..%2Fx',))
    """
    encoded = encode_key(key)
    if encoded == key or not is_single_component(key):
        return (encoded,)
    return (encoded, key)

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
    """Whether a key is one path component, so that as a file name it stays where it is.

    Spec: "Keys and file names", last paragraph.

    Examples:
        >>> is_single_component("a b"), is_single_component("a/b"), is_single_component("C:x")
        (True, False, False)
    """
    return "/" not in key and "\\" not in key and "\0" not in key and not _DRIVE.match(key)


def file_names(key: str, *, level: bool = False, paths: bool = False) -> tuple[str, ...]:
    """The names under which an entry may lie, the encoded one first; a leaf's without its ending.

    Args:
        level: it is a nested collection: ``""``, ``"."`` and ``".."`` then name no level of their own.
        paths: the save may be of tensordict before 0.13, which used every key as a path as it is: ``"a/b"`` then
            lies in a directory ``a``, and a level ``".."`` beside the save.

    Examples:
        >>> file_names("obs"), file_names("a b"), file_names("../x")
        (('obs',), ('a%20b', 'a b'), ('..%2Fx',))
        >>> file_names("."), file_names(".", level=True), file_names("a/b", paths=True)
        (('%2E', '.'), ('%2E',), ('a%2Fb', 'a/b'))
    """
    encoded = encode_key(key)
    if encoded == key:
        return (encoded,)
    if is_single_component(key):
        names_a_level = not level or key not in _SPECIAL or (paths and key == "..")
        return (encoded, key) if names_a_level else (encoded,)
    as_path = paths and not key.startswith("/") and "\\" not in key and "\0" not in key and not _DRIVE.match(key)
    return (encoded, key) if as_path and not key.endswith("/") else (encoded,)

"""Keys and file names: what is encoded, what stays inside its directory, which legacy names are tried."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdview.format.keys import decode_key, encode_key, file_names, is_single_component

TABLE = [
    ("obs", "obs"),
    ("a/b", "a%2Fb"),
    ("a\\b", "a%5Cb"),
    ("", "%"),
    (".", "%2E"),
    ("..", "%2E%2E"),
    ("...", "..."),
    ("%", "%25"),
    ("100%", "100%25"),
    ('x:y|*?<>"', "x%3Ay%7C%2A%3F%3C%3E%22"),
    ("\x01\x7f\n", "%01%7F%0A"),
    ("a b", "a%20b"),
    ("é日本", "é日本"),
    ("CON", "CON"),
]


@pytest.mark.parametrize(("key", "name"), TABLE)
def test_a_key_and_its_file_name_map_both_ways(key: str, name: str) -> None:
    assert encode_key(key) == name
    assert decode_key(name) == key


@given(st.text())
def test_decoding_undoes_encoding(key: str) -> None:
    assert decode_key(encode_key(key)) == key


@given(st.lists(st.text(alphabet=st.sampled_from(["a", "%", "2", "E", ".", "/", "\\", " "])), min_size=2, unique=True))
def test_distinct_keys_have_distinct_names(keys: list[str]) -> None:
    assert len({encode_key(key) for key in keys}) == len(keys)


@given(st.text())
def test_an_encoded_name_never_leaves_its_directory(key: str) -> None:
    name = encode_key(key)
    assert name not in ("", ".", "..")
    assert is_single_component(name)
    assert not set(name) & set('/\\:\0 \n<>"|?*')


@given(st.text(), st.booleans())
def test_a_raw_name_is_tried_only_where_it_stays_in_its_directory(key: str, level: bool) -> None:
    for name in file_names(key, level=level)[1:]:
        assert "/" not in name
        assert "\\" not in name
        assert not level or name not in ("", ".", "..")


def test_keys_of_old_saves_may_be_paths_but_never_absolute() -> None:
    assert file_names("a/b", level=True, paths=True) == ("a%2Fb", "a/b")
    for key in ("/etc/passwd", "C:/x", "a/b/", "\\x"):
        assert len(file_names(key, level=True, paths=True)) == 1, key

"""torchrl's side files: what they mean, and that damage is told."""

import json

import pytest

from tdview.errors import DecodeError
from tdview.format import torchrl as rl


def test_storage_metadata_tells_the_written_elements() -> None:
    meta = rl.parse_storage(b'{"metadata": {}, "is_pytree": false, "len": 300}')
    assert (meta.length, meta.is_pytree, meta.entries) == (300, False, ())


def test_pytree_metadata_tells_keys_dtypes_and_shapes() -> None:
    text = {"is_pytree": True, "len": 30, "metadata": {"extra.img": {"dtype": "torch.uint8", "shape": [40, 2, 3]}}}
    meta = rl.parse_storage(json.dumps(text).encode())
    assert meta.entries == ((("extra", "img"), rl.RawArray(dtype="torch.uint8", shape=(40, 2, 3))),)
    assert rl.pytree_file(meta.entries[0][0]) == "extra/img.memmap"


def test_writer_metadata_of_old_torchrl_has_no_write_count() -> None:
    meta = rl.parse_writer(b'{"cursor": 80}')
    assert (meta.cursor, meta.write_count, meta.rank_key) == (80, None, None)


def test_max_value_writer_names_its_rank_key() -> None:
    meta = rl.parse_writer(
        b'{"cursor": 0, "write_count": 65, "rank_key": ["next", "reward"], "dtype": "torch.float32", "shape": [20, 2]}'
    )
    assert meta.rank_key == ("next", "reward")
    assert meta.top_values == rl.RawArray(dtype="torch.float32", shape=(20, 2))


def test_generation_layout_is_read() -> None:
    meta = rl.parse_writer(b'{"cursor": 4, "generation_shape": [60], "generation_dtype": "torch.int64"}')
    assert meta.generation == rl.RawArray(dtype="torch.int64", shape=(60,))


def test_sampler_metadata_accepts_a_capacity_written_as_float() -> None:
    meta = rl.parse_sampler(b'{"_alpha": 0.7, "_eps": 1e-8, "_max_priority": [2.9, 45.0], "_max_capacity": 80.0}')
    assert (meta.alpha, meta.max_priority, meta.max_capacity, meta.schema_version) == (0.7, 2.9, 80, None)


def test_manifest_lists_components_and_versions() -> None:
    text = {
        "format": "torchrl.checkpoint",
        "components": {"rb": {"path": "components/0000-rb", "files": ["a.json"]}},
        "versions": {"torchrl": "0.14.1"},
    }
    manifest = rl.parse_manifest(json.dumps(text).encode())
    assert manifest.components == (("rb", "components/0000-rb", ("a.json",)),)
    assert manifest.versions == (("torchrl", "0.14.1"),)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b'{"len": -1}', b'{"len": "3"}', b'{"len": true}', b'{"len": 1e300}', b"[" * 100_000],
)
def test_damaged_storage_metadata_raises_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        rl.parse_storage(data)


@pytest.mark.parametrize(
    "data",
    [b'{"is_pytree": true, "len": 1}', b'{"is_pytree": true, "len": 1, "metadata": {"a": 3}}',
     b'{"is_pytree": true, "len": 1, "metadata": {"a": {"dtype": "torch.int8", "shape": [-1]}}}'],
)  # fmt: skip
def test_damaged_pytree_metadata_raises_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        rl.parse_storage(data)


@pytest.mark.parametrize("data", [b'{"cursor": "x"}', b'{"rank_key": [3]}', b'{"generation_shape": 3}', b"null"])
def test_damaged_writer_metadata_raises_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        rl.parse_writer(data)


@pytest.mark.parametrize("name", ["prefetch.pkl", "transform.t", "0_transform.pt", "consuming_sampler.pt"])
def test_pickles_are_told_by_their_names(name: str) -> None:
    assert rl.is_pickle(name)


def test_payloads_and_json_are_no_pickles() -> None:
    assert not rl.is_pickle("observation.memmap")
    assert not rl.is_pickle("meta.json")

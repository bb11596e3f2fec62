"""The places of bytes in an archive, as the specification and zipfile have them."""

from __future__ import annotations

import struct
import time

from tdview.format.archive_layout import EntryHeader, central_record, entry_order, local_header, stamp


def entry(name: str, **fields: int) -> EntryHeader:
    values = {"nbytes": 3, "stored_nbytes": 3, "crc": 7, "method": 0, "header_offset": 0, **fields}
    return EntryHeader(name=name, **values)


def test_the_padding_block_comes_before_the_zip64_block() -> None:
    for offset in range(200):
        header = local_header(entry("obs.memmap", header_offset=offset), (0, 33))
        assert (offset + len(header)) % 64 == 0
        extra = header[30 + len("obs.memmap") :]
        kind, size = struct.unpack_from("<HH", extra)
        assert kind == 0x6474
        assert extra[4 : 4 + size] == bytes(size)
        assert struct.unpack("<HHQQ", extra[4 + size :]) == (1, 16, 3, 3)


def test_only_stored_payloads_are_padded() -> None:
    assert len(local_header(entry("meta.json"), (0, 33))) == 30 + 9 + 20
    assert len(local_header(entry("obs.memmap", method=8), (0, 33))) == 30 + 10 + 20


def test_sizes_move_to_the_zip64_block_where_they_do_not_fit() -> None:
    plain = central_record(entry("meta.json"), (0, 33))
    assert len(plain) == 46 + 9
    for wide, words in (
        ({"nbytes": 1 << 31}, 2),
        ({"header_offset": 1 << 31}, 1),
        ({"nbytes": 1 << 40, "header_offset": 1 << 41}, 3),
    ):
        record = central_record(entry("meta.json", **wide), (0, 33))
        assert len(record) == 46 + 9 + 4 + 8 * words
        assert struct.unpack_from("<HH", record, 46 + 9) == (1, 8 * words)


def test_names_that_are_not_ascii_say_so() -> None:
    flags = struct.unpack_from("<H", local_header(entry("é.memmap"), (0, 33)), 6)[0]
    assert flags == 0x800


def test_levels_come_after_files_and_meta_json_first() -> None:
    assert entry_order(["b", "meta.json", "B", "a"], ["2", "10", "é"]) == (
        ["meta.json", "B", "a", "b"],
        ["10", "2", "é"],
    )


def test_times_are_local_unless_an_epoch_is_given_and_stay_in_range() -> None:
    at = time.mktime((2024, 5, 6, 7, 8, 10, 0, 0, -1))
    assert stamp(at) == (7 << 11 | 8 << 5 | 5, 44 << 9 | 5 << 5 | 6)
    assert stamp(source_date_epoch="0") == (0, 33)
    assert stamp(source_date_epoch=str(10**12)) == (23 << 11 | 59 << 5 | 29, 127 << 9 | 12 << 5 | 31)
    assert stamp(at, "no number") == stamp(at)

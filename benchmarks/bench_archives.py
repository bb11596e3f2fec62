"""Packing, unpacking and refreshing archives beside tensordict and ``cp``; a refresh after one edit, by size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import tensordict
from tensordict import TensorDict as Peer

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.bench_save import large, small
from benchmarks.harness import Suite


def saved(suite: Suite, content: Any) -> tuple[Path, Path]:
    """Random numbers in the shape of `content`, saved as a directory and as an archive."""
    source, archive = suite.fresh(), suite.fresh(".tdz")
    content.apply_(lambda leaf: leaf.normal_())
    tdview.from_tensordict(content).memmap(source)
    tdview.pack_memmap(source, archive)
    return source, archive


def compare(
    suite: Suite,
    size: str,
    work: float,
    content: Any,
    *,
    pack: float | None = None,
    deflate: float | None = None,
    unpack: float | None = None,
    refresh: float | None = None,
) -> None:
    """All work on the archive of one save; the numbers are the promised ratios."""
    source, archive = saved(suite, content)
    clear = "MB" in size
    suite.pair(
        "pack stored",
        size,
        lambda: tensordict.pack_memmap(source, suite.fresh(".tdz")),
        lambda: tdview.pack_memmap(source, suite.fresh(".tdz")),
        work=work,
        promised=pack,
        writes=True,
        clear=clear,
    )
    for label, level, promised in (
        ("pack deflate", None, deflate),
        ("pack deflate, level 6", 6, deflate and 1),
    ):
        options = {"compression": "deflate", "compresslevel": level}
        suite.pair(
            label,
            size,
            lambda: tensordict.pack_memmap(source, suite.fresh(".tdz"), **options),
            lambda: tdview.pack_memmap(source, suite.fresh(".tdz"), **options),
            work=work,
            promised=promised,
            warm=work < 64 or not clear,  # most of a minute each
            rounds=3,
            writes=True,
            clear=clear,
        )
    suite.pair(
        "unpack",
        size,
        lambda: tensordict.unpack_memmap(archive, suite.fresh()),
        lambda: tdview.unpack_memmap(archive, suite.fresh()),
        work=work,
        promised=unpack,
        writes=True,
        clear=clear,
    )
    suite.pair(
        "refresh all checksums",
        size,
        lambda: tensordict.refresh_archive_checksums(archive),
        lambda: tdview.refresh_archive_checksums(archive),
        work=work,
        promised=refresh,
        writes=True,
    )
    if clear:
        suite.pair(
            "pack stored",
            size,
            lambda: subprocess.run(["cp", archive, suite.fresh(".tdz")], check=True),
            lambda: tdview.pack_memmap(source, suite.fresh(".tdz")),
            against="cp of the result",
            work=work,
            promised=pack and 1,
            writes=True,
            clear=True,
        )


def edited(suite: Suite, megabytes: int, *, promised: float | None) -> None:
    """Makes the checksums right after one value of an archive was changed."""
    archive = suite.fresh(".tdz")
    large(tdview.TensorDict, megabytes).save(archive)
    editor = tdview.Editor(archive)
    values = iter(range(1, 100_000))
    suite.pair(
        "refresh after one edit",
        f"8 × {megabytes} MB",
        lambda: tensordict.refresh_archive_checksums(archive),
        editor.refresh_checksums,
        work=megabytes,
        promised=promised,
        between=lambda: editor.edit(("k3",), (777, 5), float(next(values))),
        writes=True,
    )
    archive.unlink()


def main() -> int:
    suite = Suite("archives")
    compare(suite, "8 × 8 MB", 8, large(Peer, 8))
    compare(suite, "8 × 64 MB", 64, large(Peer, 64), pack=1.8, deflate=1.7, unpack=1.7, refresh=2)
    compare(suite, "1 000 leaves", 1_000, small(Peer, 1_000), pack=1, deflate=1, unpack=1, refresh=1)
    compare(suite, "3 000 leaves", 3_000, small(Peer, 3_000), pack=1, deflate=1, unpack=1, refresh=1)
    edited(suite, 16, promised=None)
    edited(suite, 128, promised=100)
    edited(suite, 256, promised=100)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

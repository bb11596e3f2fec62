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


def compare(
    suite: Suite, size: str, saved: Any, *, pack: float | None, unpack: float | None, refresh: float | None
) -> None:
    """All work on the archive of one save; the numbers are the promised ratios."""
    source, archive, clear = suite.fresh(), suite.fresh(".tdz"), "MB" in size
    saved.apply_(lambda leaf: leaf.normal_())
    tdview.from_tensordict(saved).memmap(source)
    tdview.pack_memmap(source, archive)
    suite.pair(
        "pack stored",
        size,
        lambda: tensordict.pack_memmap(source, suite.fresh()),
        lambda: tdview.pack_memmap(source, suite.fresh()),
        promised=pack,
        clear=clear,
    )
    for label, level, promised in (
        ("pack deflate", None, pack and min(pack, 1.7)),
        ("pack deflate, level 6", 6, pack and 1),
    ):
        options = {"compression": "deflate", "compresslevel": level}
        suite.pair(
            label,
            size,
            lambda options=options: tensordict.pack_memmap(source, suite.fresh(), **options),
            lambda options=options: tdview.pack_memmap(source, suite.fresh(), **options),
            promised=promised,
            rounds=1,
            clear=clear,
        )
    suite.pair(
        "unpack",
        size,
        lambda: tensordict.unpack_memmap(archive, suite.fresh()),
        lambda: tdview.unpack_memmap(archive, suite.fresh()),
        promised=unpack,
        clear=clear,
    )
    suite.pair(
        "refresh all checksums",
        size,
        lambda: tensordict.refresh_archive_checksums(archive),
        lambda: tdview.refresh_archive_checksums(archive),
        promised=refresh,
    )
    if clear:
        _large(suite, size, source, archive, promised=pack is not None)


def _large(suite: Suite, size: str, source: Path, archive: Path, *, promised: bool) -> None:
    suite.pair(
        "pack stored",
        size,
        lambda: subprocess.run(["cp", archive, suite.fresh()], check=True),
        lambda: tdview.pack_memmap(source, suite.fresh()),
        against="cp of the result",
        promised=1 if promised else None,
        clear=True,
    )
    editor = tdview.Editor(archive)
    values = iter(range(1, 1000))
    suite.pair(
        "refresh after one edit",
        size,
        lambda: tensordict.refresh_archive_checksums(archive),
        editor.refresh_checksums,
        promised=100 if promised else None,
        between=lambda: editor.edit(("k3",), (777, 5), float(next(values))),
    )


def main() -> int:
    suite = Suite("archives")
    compare(suite, "8 × 8 MB", large(Peer, 8), pack=None, unpack=None, refresh=None)
    compare(suite, "8 × 64 MB", large(Peer, 64), pack=1.8, unpack=1.7, refresh=2)
    compare(suite, "1 000 leaves", small(Peer, 1_000), pack=1, unpack=1, refresh=1)
    compare(suite, "3 000 leaves", small(Peer, 3_000), pack=1, unpack=1, refresh=1)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

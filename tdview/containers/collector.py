"""This module knows how to keep the garbage collector out of a loop that makes many small objects.

It does not know which loop.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection"]


@contextmanager
def no_collection() -> Iterator[None]:
    """Puts off the garbage collector: it would walk all of torch's objects again and again while leaves are made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

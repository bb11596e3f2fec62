"""This module knows how interrupted writes are ended: appends by the rule of the specification, saves by their stage.

It does not know how they were made; `storage.leftovers` and `storage.staging` say what is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from tdview.errors import NotDirectoryError
from tdview.format.payload import META
from tdview.storage.leftovers import inspect_append
from tdview.storage.lock import writer_lock
from tdview.storage.staging import find_stages, recover_stage

__all__ = ["recover_append", "recover_save"]


def recover_append(prefix: Path | str) -> Literal["completed", "discarded"] | None:
    """Ends an append that was interrupted: completes it or takes it back.

    While the temporary ``meta.json`` of the top level is there, no ``meta.json`` was replaced, and the append is
    taken back: the temporaries are removed, and the save has the old rows. Without it the append is completed: each
    temporary is renamed over the ``meta.json`` beside it. Unlike the rule of the specification, this needs every
    temporary to fit the level it lies in: the same keys, dtypes and trailing shapes, the rows of the top level, and
    payloads that are large enough; what does not fit is a stray file of an older save, and all are removed.
    `storage.leftovers.inspect_append` tells which it will be, without touching anything.

    Payloads that have grown keep the new bytes behind the old end, where no ``meta.json`` tells of them. A kill of
    the recovery is ended by another one.

    Args:
        prefix: a saved directory.

    Returns:
        ``"completed"``, ``"discarded"``, or None if no append was interrupted.

    Raises:
        NotDirectoryError: there is no such directory.
        ConcurrentWriteError: a writer is at work on the save: its append is not interrupted, but under way.

    Spec: `append_memmap`.
    """
    root = _directory(prefix)
    with writer_lock(root):
        state = inspect_append(root)
        if state is None:
            return None
        for name in state.temporaries:
            if state.action == "complete":
                os.replace(root / name, (root / name).with_name(META))
            else:
                os.unlink(root / name)
    return "completed" if state.action == "complete" else "discarded"


def recover_save(prefix: Path | str) -> Literal["completed", "restored", "discarded"] | None:
    """Ends a save or an unpacking that was killed, and clears away what it left in directories ``.tdtmp-…``.

    Args:
        prefix: the directory that was being written. It may be missing: between the two renames of an atomic save,
            and after a first one that was killed, it is.

    Returns:
        ``"completed"``: the new save was whole and has taken its place. ``"restored"``: the old save is back.
        ``"discarded"``: the directory is as it was before. None: nothing was left.

    Spec: `TensorDictBase.memmap`, atomic.
    """
    target = Path(os.path.realpath(prefix))
    outcomes = {recover_stage(stage, target) for stage in find_stages(target)}
    return next((outcome for outcome in ("completed", "restored", "discarded") if outcome in outcomes), None)


def _directory(prefix: Path | str) -> Path:
    root = Path(prefix)
    if not root.is_dir():
        missing = "" if root.exists() else "; there is no such directory"
        raise NotDirectoryError(f"{root}: expected a saved directory{missing}")
    return root

"""This module knows the function form of saving.

It does not know how a save is written; the methods of the containers do.
"""

from __future__ import annotations

import os
from typing import Any

from tdview.containers.collection import Collection
from tdview.containers.convert import from_tensordict

__all__ = ["save"]


def save(
    data: Any,
    prefix: str | os.PathLike[str] | None = None,
    copy_existing: bool = False,
    *,
    num_threads: int = 0,
    return_early: bool = False,
    share_non_tensor: bool = False,
    robust_key: bool | None = True,
    archive: bool | None = None,
    compression: str | int | None = None,
    atomic: bool = False,
) -> Any:
    """Saves a tensordict or tensorclass, also one of the tensordict package; see `TensorDict.memmap`.

    Args:
        data: the container; the rest as for `TensorDict.memmap`.

    Returns:
        The memory-mapped container of tdview.

    Spec: `TensorDictBase.memmap`.

    Examples:
        >>> import os, tempfile, torch
        >>> import tdview
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = tdview.save(tdview.TensorDict(a=torch.ones(2), batch_size=[2]), f"{folder}/a.tdz")
        ...     os.listdir(folder)
        ['a.tdz']
    """
    container: Any = data if isinstance(data, Collection) else from_tensordict(data)
    return container.save(
        prefix,
        copy_existing,
        num_threads=num_threads,
        return_early=return_early,
        share_non_tensor=share_non_tensor,
        robust_key=robust_key,
        archive=archive,
        compression=compression,
        atomic=atomic,
    )

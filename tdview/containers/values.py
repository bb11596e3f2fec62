"""This module knows how a Python value becomes an entry of a tensordict.

It does not know where the entry is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from tdview.containers.collection import Collection
from tdview.errors import BatchSizeError, shown

__all__ = ["check_batch", "foreign", "to_entry"]


def to_entry(value: Any, key: str, batch: torch.Size, device: torch.device | None) -> Any:
    """`value` as an entry under `key`: a tensor, or a collection.

    Tensors are kept as they are, numbers and numeric arrays and lists become tensors, mappings become tensordicts
    of the batch size, a list becomes a `NonTensorStack` if it has a value for each row, everything else becomes
    `NonTensorData`.

    Raises:
        ArgumentError: the value does not start with the batch size. (A RuntimeError as well.)
    """
    if isinstance(value, Tensor):
        return check_batch(value if device is None or value.device == device else value.to(device), key, batch)
    if isinstance(value, Collection):
        return _collection(value, key, batch, device)
    if (adapted := foreign(value)) is not None:
        return _collection(adapted, key, batch, device)
    if isinstance(value, Mapping):
        from tdview.containers.tensordict import TensorDict

        return TensorDict(value, batch_size=batch, device=device)
    if isinstance(value, bool | int | float):
        return check_batch(torch.tensor(value, device=device), key, batch)
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) is not None and value.dtype.kind in "biufc":
        return check_batch(torch.as_tensor(value, device=device), key, batch)
    return _plain_value(value, key, batch, device)


def _collection(value: Collection, key: str, batch: torch.Size, device: torch.device | None) -> Collection:
    if value._is_value and value.batch_size[: len(batch)] != batch:
        if value.batch_size:
            _mismatch(value.batch_size, key, batch)
        return value._with_batch(batch)  # type: ignore[attr-defined, no-any-return]  # sound: it is non-tensor data
    if value.batch_size[: len(batch)] != batch:
        if value.batch_size:
            _mismatch(value.batch_size, key, batch)
        value = value.clone(recurse=False)
        value.batch_size = batch  # type: ignore[misc]  # sound: what can be cloned here can be resized
    if device is not None and value.device != device and not value._is_value:
        value = value.to(device)
    return value


def _plain_value(value: Any, key: str, batch: torch.Size, device: torch.device | None) -> Any:
    from tdview.containers.non_tensor import NonTensorData, NonTensorStack

    if isinstance(value, list | tuple) and (tensor := _as_tensor(value, device)) is not None:
        return check_batch(tensor, key, batch)
    if isinstance(value, list) and value:
        stack = NonTensorStack.from_list(value)
        if stack.batch_size[: len(batch)] == batch:
            return stack
    return NonTensorData(value, batch_size=batch)


def _as_tensor(value: Any, device: torch.device | None) -> Tensor | None:
    """Numbers in nested lists, or tensors of one shape, as a tensor; None if it is something else."""
    try:
        if value and all(isinstance(item, Tensor) for item in value):
            return torch.stack(list(value)).to(device)
        return torch.tensor(value, device=device)
    except (ValueError, TypeError, RuntimeError):
        return None


def check_batch(value: Tensor, key: str, batch: torch.Size) -> Tensor:
    """`value`, which starts with the batch size; a nested tensor with one part for each row."""
    if not batch:
        return value
    if value.is_nested:
        found = torch.Size([value.size(0)])
        batch = batch[:1]
    else:
        found = value.shape
    if found[: len(batch)] != batch:
        _mismatch(found, key, batch)
    return value


def _mismatch(found: torch.Size, key: str, batch: torch.Size) -> NoReturn:
    raise BatchSizeError(
        f"entry {shown(key)}: expected a shape that starts with the batch size {list(batch)}, got {list(found)};"
        " expand the value, or wrap it in NonTensorData"
    )


def foreign(value: Any) -> Collection | None:
    """An object of tensordict itself as a container of tdview, None for anything else. Imports nothing."""
    from tdview.containers.convert import from_tensordict, is_tensordict_object

    return from_tensordict(value) if is_tensordict_object(value) else None

"""This module knows how tensordict's own objects become containers of tdview, and back.

It does not import tensordict unless a container is converted into one of its objects.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from tdview.containers.collection import Collection
from tdview.errors import ArgumentError, NotSupportedError, shown

__all__ = ["from_tensordict", "is_tensordict_object", "to_tensordict"]


def is_tensordict_object(value: Any) -> bool:
    """Whether a value is a tensordict, a stack, non-tensor data or a tensorclass of the tensordict package."""
    package = sys.modules.get("tensordict")
    if package is None:
        return False
    return isinstance(value, package.TensorDictBase) or bool(package.is_tensor_collection(value))


def from_tensordict(value: Any) -> Any:
    """A container of tdview that shares the tensors of an object of the tensordict package.

    A lazy stack stays lazy, a tensorclass becomes the tensorclass of its name that tdview knows, or a generic one
    that is saved under its name. A lazy view becomes dense.

    Args:
        value: tensordict, tensorclass, `NonTensorData` or `NonTensorStack` of tensordict.

    Raises:
        ArgumentError: it is none of these.

    Examples:
        >>> import torch, tensordict
        >>> td = from_tensordict(tensordict.TensorDict(a=torch.ones(2), batch_size=[2]))
        >>> type(td).__module__, td["a"].tolist()
        ('tdview.containers.tensordict', [1.0, 1.0])
    """
    if isinstance(value, Collection):
        return value
    if not is_tensordict_object(value):
        raise ArgumentError(f"expected an object of the tensordict package, got {type(value).__name__}")
    return _converted(value)


def _converted(value: Any) -> Any:
    from tdview.containers.lazy_stack import LazyStackedTensorDict
    from tdview.containers.non_tensor import NonTensorData, NonTensorStack
    from tdview.containers.tensorclass import UnknownTensorClass, class_of
    from tdview.containers.tensordict import TensorDict

    import_ = sys.modules["tensordict"]
    if isinstance(value, import_.NonTensorStack):
        stack = NonTensorStack.from_list(value.tolist(), len(value.batch_size))
        stack.stack_dim = value.stack_dim
        return stack
    if import_.is_non_tensor(value):
        out = NonTensorData(value.data, batch_size=value.batch_size)
        if type(value).__name__ == "MetaData":
            out._class_name = "MetaData"
        return out
    if isinstance(value, import_.LazyStackedTensorDict):
        members = [_converted(member) for member in value.tensordicts]
        name = value.names[value.stack_dim] if value.names else None
        return LazyStackedTensorDict(*members, stack_dim=value.stack_dim, stack_dim_name=name)
    if not isinstance(value, import_.TensorDictBase):
        saved = str(type(value))
        inner = _converted(value._tensordict)
        for key, item in getattr(value, "_non_tensordict", {}).items():
            if item is not None and key not in inner:
                inner.set(key, NonTensorData(item, batch_size=inner.batch_size))
        kind = class_of(saved)
        return UnknownTensorClass._wrap(inner, saved) if kind is None else kind._wrap(inner)
    return _dense(value, TensorDict)


def _dense(value: Any, kind: Any) -> Any:
    entries = {}
    for key in value.keys():  # noqa: SIM118  a tensordict iterates over rows
        item = value._get_str(key, None)
        if isinstance(item, torch.nn.Parameter):
            item = item.detach()
        entries[key] = item if isinstance(item, torch.Tensor) else _converted(item)
    names = list(value.names) if value.names and any(name is not None for name in value.names) else None
    out = kind._made(entries, torch.Size(value.batch_size), value.device, names)
    class_name = type(value).__name__
    if class_name not in ("TensorDict", "_SubTensorDict") and not class_name.startswith("_"):
        from tdview.format.classes import CLASS_NAMES

        type_entry, class_entry = CLASS_NAMES["TensorDict"]
        if not type(value).__module__.startswith("tensordict"):
            type_entry, class_entry = str(type(value)), f"{type(value).__module__}:{type(value).__qualname__}"
        out._saved_as = (type_entry, class_entry, class_name)
    return out


def to_tensordict(value: Any) -> Any:
    """An object of the tensordict package that shares the tensors of a container of tdview.

    Lazy views become dense; a tensorclass becomes its class if that is a tensorclass of tensordict and imported,
    else a plain tensordict of its fields.

    Args:
        value: container of tdview.

    Raises:
        NotSupportedError: tensordict is not installed.
        ArgumentError: `value` is no container.
    """
    try:
        import tensordict
    except ImportError:
        raise NotSupportedError("tensordict is not installed: pip install tensordict") from None
    if is_tensordict_object(value):
        return value
    if not isinstance(value, Collection):
        raise ArgumentError(f"expected a tensordict of tdview, got {type(value).__name__}: {shown(value)}")
    return _back(value, tensordict)


def _back(value: Any, package: Any) -> Any:
    from tdview.containers.lazy_stack import LazyStackedTensorDict
    from tdview.containers.non_tensor import NonTensorData, NonTensorStack
    from tdview.containers.source import dense_of
    from tdview.containers.tensorclass import TensorClass
    from tdview.containers.views import _View

    if isinstance(value, NonTensorData):
        return package.NonTensorData(value.data, batch_size=value.batch_size)
    if isinstance(value, NonTensorStack):
        return package.NonTensorStack.from_list(value.tolist())
    if isinstance(value, LazyStackedTensorDict):
        members = [_back(member, package) for member in value.tensordicts]
        return package.LazyStackedTensorDict(*members, stack_dim=value.stack_dim, stack_dim_name=value._stack_name)
    if isinstance(value, TensorClass):
        inner = _back(value._tensordict, package)
        module, _, name = (value._saved_type or str(type(value)))[8:-2].rpartition(".")
        kind = getattr(sys.modules.get(module), name, None)
        return kind.from_tensordict(inner) if kind is not None and package.is_tensorclass(kind) else inner
    if isinstance(value, _View):
        value = dense_of(value)
    entries = {}
    for key in value._keys():
        item = value._get(key)
        entries[key] = _back(item, package) if isinstance(item, Collection) else item
    names = value.names if any(name is not None for name in value.names) else None
    return package.TensorDict(entries, batch_size=value.batch_size, device=value.device, names=names)

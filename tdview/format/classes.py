"""This module knows which kind of node a class name stands for: one table.

It does not import any class, and needs none to be importable.
"""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["CLASS_NAMES", "Kind", "class_kind", "class_parts", "class_text", "type_text"]

Kind = Literal[
    "tensordict", "lazy_stack", "tensorclass", "sub_tensordict", "lazy_view", "non_tensor", "non_tensor_stack",
    "leaf", "replay_buffer", "collection",
]  # fmt: skip

_TYPE = re.compile(r"^<class '(.+)'>$", re.DOTALL)

_KINDS: dict[str, Kind] = {
    "TensorDict": "tensordict",
    "TensorDictParams": "tensordict",
    "PersistentTensorDict": "tensordict",
    "LazyStackedTensorDict": "lazy_stack",
    "LazyStackedTensorDicts": "lazy_stack",
    "NonTensorData": "non_tensor",
    "MetaData": "non_tensor",
    "NonTensorStack": "non_tensor_stack",
    "_SubTensorDict": "sub_tensordict",
    "SubTensorDict": "sub_tensordict",
    "_PermutedTensorDict": "lazy_view",
    "_TransposedTensorDict": "lazy_view",
    "_ViewedTensorDict": "lazy_view",
    "_UnsqueezedTensorDict": "lazy_view",
    "_SqueezedTensorDict": "lazy_view",
    "_CustomOpTensorDict": "lazy_view",
    "PermutedTensorDict": "lazy_view",
    "TransposedTensorDict": "lazy_view",
    "ViewedTensorDict": "lazy_view",
    "UnsqueezedTensorDict": "lazy_view",
    "SqueezedTensorDict": "lazy_view",
}

CLASS_NAMES: dict[str, tuple[str, str]] = {
    "TensorDict": ("<class 'tensordict._td.TensorDict'>", "tensordict:TensorDict"),
    "LazyStackedTensorDict": ("<class 'tensordict._lazy.LazyStackedTensorDict'>", "tensordict:LazyStackedTensorDict"),
    "NonTensorData": ("<class 'tensordict.tensorclass.NonTensorData'>", "tensordict:NonTensorData"),
    "MetaData": ("<class 'tensordict.tensorclass.MetaData'>", "tensordict:MetaData"),
    "NonTensorStack": ("<class 'tensordict.tensorclass.NonTensorStack'>", "tensordict:NonTensorStack"),
    "_SubTensorDict": ("<class 'tensordict._td._SubTensorDict'>", "tensordict._td:_SubTensorDict"),
    **{
        f"_{name}TensorDict": (
            f"<class 'tensordict._lazy._{name}TensorDict'>",
            f"tensordict._lazy:_{name}TensorDict",
        )
        for name in ("Permuted", "Transposed", "Viewed", "Unsqueezed", "Squeezed")
    },
}
"""``"_type"`` and ``"_class"`` that version 1 writes for each class of the tensordict package."""


def class_parts(class_entry: object, type_entry: object) -> tuple[str, str] | None:
    """Module and qualified name of the class of a level: from ``"_class"``, else from ``"_type"``.

    Spec: "A saved tensordict", ``"_class"``.

    Examples:
        >>> class_parts("tensordict:TensorDict", None)
        ('tensordict', 'TensorDict')
        >>> class_parts(None, "<class '__main__.Point'>")
        ('__main__', 'Point')
        >>> class_parts(3, "Point") is None
        True
    """
    if isinstance(class_entry, str):
        module, colon, name = class_entry.partition(":")
        if colon and module and name:
            return module, name
    if isinstance(type_entry, str) and (found := _TYPE.match(type_entry)):
        module, _, name = found[1].partition(".<locals>")[0].rpartition(".")
        return module, found[1][len(module) + 1 :] if module else found[1]
    return None


def class_kind(parts: tuple[str, str] | None) -> Kind | None:
    """The kind of a class of the tensordict package; None for a class of the user, whose structure decides.

    Examples:
        >>> class_kind(("tensordict._lazy", "LazyStackedTensorDict")), class_kind(("nope", "Nope"))
        ('lazy_stack', None)
    """
    if parts is None or parts[0].split(".")[0] not in ("tensordict", "torchrl"):
        return None
    return _KINDS.get(parts[1])


def type_text(module: str, name: str) -> str:
    """The ``"_type"`` entry of a class: its ``str``."""
    return f"<class '{module}.{name}'>"


def class_text(module: str, name: str) -> str:
    """The ``"_class"`` entry of a class."""
    return f"{module}:{name}"

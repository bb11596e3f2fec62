"""This module knows tensorclasses: classes with typed fields that wrap one tensordict.

It does not know how one is saved; `load` asks it for the class of a name.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import torch
from torch import Tensor

from tdview.containers.base import TensorDictBase
from tdview.containers.collection import Collection
from tdview.containers.compare import compared
from tdview.containers.keys import NestedKeys, is_nested_key, unravel
from tdview.containers.non_tensor import NonTensorData
from tdview.containers.savable import Savable
from tdview.containers.shapes import Names, Op
from tdview.containers.tensordict import TensorDict
from tdview.containers.text import container_text
from tdview.errors import ArgumentError, shown

__all__ = ["TensorClass", "UnknownTensorClass", "class_of", "is_tensorclass", "tensorclass"]

T = TypeVar("T")

_OWN = frozenset(
    ("_tensordict", "_saved_type", "_locked", "_undo", "_held", "_mapped", "_prefix", "batch_size", "names", "device")
)


class TensorClass(Savable, Collection):
    """Base of every tensorclass: fields are attributes, everything else is done by the tensordict inside.

    Subclass it with annotated fields, or decorate a class with `tensorclass`. The constructor takes the fields in
    order or by name, and `batch_size`, `device` and `names`. A field that is None is not stored.

    Spec: "Tensorclasses".

    Examples:
        >>> import torch
        >>> class Point(TensorClass):
        ...     xy: torch.Tensor
        ...     label: str = "p"
        >>> points = Point(torch.zeros(3, 2), batch_size=[3])
        >>> points[0].xy.shape, points.label
        (torch.Size([2]), 'p')
    """

    _fields: ClassVar[dict[str, dataclasses.Field[Any]]] = {}
    _tensordict: Any
    _saved_type: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = dict(cls._fields)
        for name, annotation in inspect.get_annotations(cls).items():
            if not str(annotation).startswith(("ClassVar", "typing.ClassVar")):
                fields[name] = _field(name, annotation, cls.__dict__.get(name, _MISSING))
                if name in cls.__dict__:
                    delattr(cls, name)
        cls._fields = fields
        _CLASSES[str(cls)] = cls

    def __init__(self, *args: Any, batch_size: Any = (), device: Any = None, names: Any = None, **kwargs: Any) -> None:
        given = dict(zip(self._fields, args, strict=False))
        if len(args) > len(self._fields):
            raise TypeError(f"{type(self).__name__} takes {len(self._fields)} fields, got {len(args)}")
        if twice := set(given) & set(kwargs):
            raise TypeError(f"{type(self).__name__} got fields twice: {sorted(twice)}")
        if unknown := set(kwargs) - set(self._fields):
            raise TypeError(f"{type(self).__name__} has no fields {sorted(unknown)}, only {list(self._fields)}")
        given |= kwargs
        object.__setattr__(self, "_tensordict", TensorDict(batch_size=batch_size, device=device, names=names))
        missing = []
        for name, field in self._fields.items():
            if name in given:
                self._store(name, given[name])
            elif field.default_factory is not _MISSING:
                make: Any = field.default_factory
                self._store(name, make())
            elif field.default is not _MISSING:
                self._store(name, field.default)
            else:
                missing.append(name)
        if missing:
            raise TypeError(f"{type(self).__name__} needs the fields {missing}")
        if (after := getattr(self, "__post_init__", None)) is not None:
            after()

    # fields

    def _store(self, name: str, value: Any) -> None:
        if value is None:
            if name in self._tensordict:
                self._tensordict.del_(name)
            return
        annotation = self._fields[name].type if name in self._fields else None
        self._tensordict.set(name, _as_field(value, annotation, self._tensordict.batch_size))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _OWN:
            raise AttributeError(name)
        inner = self._tensordict
        if name in self._field_names():
            return inner[name] if name in inner else None  # noqa: SIM401  get() does not unwrap values
        if name.startswith("_") or not hasattr(TensorDict, name):
            raise AttributeError(self._no_field(name))
        method = getattr(inner, name)
        return self._wrapping(method) if callable(method) else method

    def _wrapping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if result is self._tensordict:
                return self
            return self._with_tensordict(result) if isinstance(result, TensorDictBase) else result

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name.startswith("__"):
            if name in ("batch_size", "names"):
                setattr(self._tensordict, name, value)
            else:
                object.__setattr__(self, name, value)
        elif name in self._field_names():
            self._store(name, value)
        else:
            raise AttributeError(self._no_field(name))

    def _field_names(self) -> list[str]:
        return list(self._fields)

    def _no_field(self, name: str) -> str:
        known = shown(sorted(self._field_names()), 200)
        return f"{type(self).__name__} has no field {shown(name)}; its fields are {known}"

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The fields with their types and defaults, in order, as `dataclasses.fields` gives them."""
        return tuple(cls._fields.values())

    @classmethod
    def from_tensordict(cls, tensordict: Any) -> Self:
        """An instance that wraps a tensordict; its keys are fields."""
        if unknown := sorted(set(tensordict.keys()) - set(cls._fields)):
            raise ArgumentError(f"{cls.__name__} has no fields {shown(unknown, 200)}, only {list(cls._fields)}")
        return cls._wrap(tensordict)

    @classmethod
    def from_dict(cls, input_dict: Mapping[str, Any], batch_size: Any = ()) -> Self:
        """An instance of a dict of fields."""
        return cls.from_tensordict(TensorDict(input_dict, batch_size=batch_size))

    @classmethod
    def _wrap(cls, tensordict: Any, saved_type: str | None = None) -> Self:
        out = object.__new__(cls)
        object.__setattr__(out, "_tensordict", tensordict)
        object.__setattr__(out, "_saved_type", saved_type)
        return out

    def _with_tensordict(self, tensordict: Any) -> Any:
        return type(self)._wrap(tensordict, self._saved_type)

    # what a collection asks for

    @property
    def batch_size(self) -> torch.Size:
        """Sizes of the batch dimensions."""
        return self._tensordict.batch_size  # type: ignore[no-any-return]

    @property
    def names(self) -> Names:
        """Name of each batch dimension, None where it has none."""
        return self._tensordict.names  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device | None:
        """Device of the fields, None if it is not fixed."""
        return self._tensordict.device  # type: ignore[no-any-return]

    def _rearranged(self, op: Op, ndim: int, names: Callable[[Names], Names]) -> Self:
        return self._with_tensordict(self._tensordict._rearranged(op, ndim, names))  # type: ignore[no-any-return]

    def _indexed(self, index: Any) -> Any:
        return self._handed_on(self._with_tensordict(self._tensordict._indexed(index)))

    def _children(self) -> Iterator[Collection]:
        yield self._tensordict

    def clone(self, recurse: bool = True) -> Self:
        """A copy, unlocked and not memory-mapped; ``recurse=False`` shares the tensors."""
        return self._with_tensordict(self._tensordict.clone(recurse))  # type: ignore[no-any-return]

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device or of another dtype."""
        return self._with_tensordict(self._tensordict.to(*args, **kwargs))  # type: ignore[no-any-return]

    def to_tensordict(self) -> TensorDict:
        """A dense `TensorDict` of the fields; copies."""
        return self._tensordict.to_tensordict()  # type: ignore[no-any-return]

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dict, None for those that are not set."""
        out: dict[str, Any] = dict.fromkeys(self._field_names())
        out.update(self._tensordict.to_dict())
        return out

    def keys(self, *args: Any, **kwargs: Any) -> NestedKeys:
        """The fields that are set; see `TensorDict.keys`."""
        return self._tensordict.keys(*args, **kwargs)  # type: ignore[no-any-return]

    def get(self, key: Any, default: Any = None) -> Any:
        """A field, non-tensor values unwrapped; `default` where it is not set."""
        found = self._tensordict.get(key, _MISSING)
        return default if found is _MISSING else found._plain() if isinstance(found, Collection) else found

    def set(self, key: Any, value: Any, **kwargs: Any) -> Self:
        """Sets a field, or an entry below one."""
        parts = unravel(key)
        if parts[0] not in self._field_names():
            setattr(self, parts[0], value)
        elif len(parts) == 1:
            self._store(parts[0], value)
        else:
            self._tensordict.set(parts, value, **kwargs)
        return self

    def is_empty(self) -> bool:
        """Whether no field is set."""
        return bool(self._tensordict.is_empty())

    def _walk(self, *args: Any, **kwargs: Any) -> Any:
        return self._tensordict._walk(*args, **kwargs)

    def _compared(self, other: Any, how: Any) -> Any:
        return self._with_tensordict(compared(self._tensordict, getattr(other, "_tensordict", other), how))

    def __eq__(self, other: object) -> Any:
        """Bool tensors in the fields."""
        return self._with_tensordict(self._tensordict == getattr(other, "_tensordict", other))

    def __ne__(self, other: object) -> Any:
        return self._with_tensordict(self._tensordict != getattr(other, "_tensordict", other))

    __hash__ = object.__hash__

    def all(self, dim: int | None = None) -> Any:
        """Whether every element of every field is true."""
        return self._tensordict.all(dim)

    def any(self, dim: int | None = None) -> Any:
        """Whether some element of some field is true."""
        return self._tensordict.any(dim)

    def __getitem__(self, index: Any) -> Any:
        """Rows along the batch dimensions; fields are attributes."""
        if isinstance(index, str) or (isinstance(index, tuple) and any(isinstance(part, str) for part in index)):
            raise ArgumentError(f"a tensorclass is indexed by rows; read a field with get({shown(index)})")
        return self._indexed(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Writes rows in place."""
        self._tensordict[index] = getattr(value, "_tensordict", value)

    def __repr__(self) -> str:
        text = container_text(self._tensordict)
        return f"{self._shown_name()}{text[text.index('(') :]}"

    def _shown_name(self) -> str:
        return type(self).__name__


_MISSING: Any = dataclasses.MISSING


def _field(name: str, annotation: Any, default: Any) -> dataclasses.Field[Any]:
    """A field as the dataclasses module describes one."""
    if isinstance(default, dataclasses.Field):
        made = default
    else:
        made = dataclasses.field() if default is _MISSING else dataclasses.field(default=default)
    made.name, made.type = name, annotation
    return made


def _as_field(value: Any, annotation: Any, batch: torch.Size) -> Any:
    """A field's value as an entry: what is annotated as a plain type stays one."""
    if isinstance(value, Tensor | Collection):
        return value
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text and not isinstance(value, str):
        return value
    if isinstance(value, list) and batch and len(value) == batch[0]:
        return value if not all(isinstance(item, bool | int | float) for item in value) else NonTensorData(value, batch)
    if isinstance(value, bool | int | float | complex | Mapping | list | tuple) or type(value).__module__ == "numpy":
        return NonTensorData(value, batch_size=batch)
    return value


_CLASSES: dict[str, type[TensorClass]] = {}


@dataclass_transform()
def tensorclass(cls: type[T]) -> type[T]:
    """Makes a class with annotated fields a tensorclass.

    Args:
        cls: a class whose annotations name its fields; a default makes a field optional.

    Returns:
        A subclass of `TensorClass` with the same name, module and methods.

    Spec: "Tensorclasses".

    Examples:
        >>> import torch
        >>> @tensorclass
        ... class Point:
        ...     xy: torch.Tensor
        >>> Point(xy=torch.zeros(3, 2), batch_size=[3]).batch_size
        torch.Size([3])
    """
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    bases = tuple(base for base in cls.__bases__ if base is not object)
    if not any(issubclass(base, TensorClass) for base in bases):
        bases = (*bases, TensorClass)
    return type(cls.__name__, bases, body)


class UnknownTensorClass(TensorClass):
    """A saved tensorclass whose class is not imported: its fields are what the save holds.

    Saved again, it keeps the class name that it was saved with.

    Spec: "Tensorclasses".
    """

    def _field_names(self) -> list[str]:
        return [*self._tensordict._keys()]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._store(name, value)

    @classmethod
    def from_tensordict(cls, tensordict: Any) -> Self:
        """An instance that wraps a tensordict."""
        return cls._wrap(tensordict)

    def set(self, key: Any, value: Any, **kwargs: Any) -> Self:
        """Sets a field, or an entry below one."""
        self._tensordict.set(key, value, **kwargs)
        return self

    def __getitem__(self, index: Any) -> Any:
        """A field by its key, as nobody knows the class; or rows along the batch dimensions."""
        return self._tensordict[index] if is_nested_key(index) else self._indexed(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Sets a field by its key, or writes rows in place."""
        self._tensordict[index] = getattr(value, "_tensordict", value)

    def __contains__(self, key: object) -> bool:
        return key in self._tensordict

    def _shown_name(self) -> str:
        return self.saved_name

    @property
    def saved_name(self) -> str:
        """Name of the class that the save names."""
        return (self._saved_type or "<class '?.TensorClass'>")[8:-2].rpartition(".")[2]


def is_tensorclass(value: Any) -> bool:
    """Whether a class or an instance is a tensorclass."""
    return issubclass(value if isinstance(value, type) else type(value), TensorClass)


def class_of(saved_type: str, caller: type | None = None) -> type[TensorClass] | None:
    """The tensorclass that a ``"_type"`` entry names, without importing anything.

    Args:
        saved_type: ``"<class 'module.Name'>"``.
        caller: the tensorclass on which `load_memmap` was called. It is taken for a class of its name that was
            saved from ``__main__`` or from inside a function.

    Returns:
        The class, None where no imported tensorclass has this name.
    """
    found = _CLASSES.get(saved_type)
    if found is not None:
        return found
    name = saved_type[8:-2] if saved_type.startswith("<class '") else saved_type
    if caller is not None and issubclass(caller, TensorClass) and caller is not TensorClass:
        module, _, short = name.rpartition(".")
        if short == caller.__name__ and (module == "__main__" or "<locals>" in module):
            return caller
    module, _, short = name.rpartition(".")
    there = getattr(sys.modules.get(module), short, None)
    return there if isinstance(there, type) and issubclass(there, TensorClass) else None

"""Look into, check and mend saved tensordicts.

`scan` looks without loading torch, `open` gives a notebook browser, and the names of tensordict's own
on-disk functions (`load_memmap`, `save`, `append_memmap`, …) read and write the format.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Every public name and the module that defines it. Importing tdview imports none of them: `import tdview`
# costs milliseconds, and torch is loaded by the first name that needs it (PEP 562).
_EXPORTS: dict[str, str] = {
    "scan": "tdview.tree.scan",
    "Editor": "tdview.operations.edit",
    "append_memmap": "tdview.containers.appending",
    "Appender": "tdview.containers.appending",
    "recover_append": "tdview.operations.recover",
    "recover_save": "tdview.operations.recover",
    "pack_memmap": "tdview.operations.pack",
    "unpack_memmap": "tdview.operations.unpack",
    "is_memmap_archive": "tdview.operations.recognise",
    "refresh_archive_checksums": "tdview.operations.checksums",
    "stats": "tdview.analysis.stats",
    "verify": "tdview.analysis.verify",
    "open": "tdview.widgets.browser",
    "Report": "tdview.analysis.report",
    "audit": "tdview.analysis.audit",
    "diff": "tdview.analysis.diff",
    "drop": "tdview.analysis.clean",
    "episodes": "tdview.analysis.episodes",
    "side_columns": "tdview.analysis.side_columns",
    **dict.fromkeys(("Registry", "Rule", "rule"), "tdview.analysis.rules"),
    "TensorDict": "tdview.containers.tensordict",
    "LazyStackedTensorDict": "tdview.containers.lazy_stack",
    "NonTensorData": "tdview.containers.non_tensor",
    "NonTensorStack": "tdview.containers.non_tensor",
    "MemoryMappedTensor": "tdview.containers.memory",
    "TensorClass": "tdview.containers.tensorclass",
    "tensorclass": "tdview.containers.tensorclass",
    "is_tensorclass": "tdview.containers.tensorclass",
    "TensorDictFuture": "tdview.containers.saving",
    "load": "tdview.containers.load",
    "load_memmap": "tdview.containers.load",
    "save": "tdview.containers.save",
    "stack": "tdview.containers.stacking",
    "cat": "tdview.containers.stacking",
    "lazy_stack": "tdview.containers.stacking",
    "from_tensordict": "tdview.containers.convert",
    "to_tensordict": "tdview.containers.convert",
    **dict.fromkeys(
        (
            "AlreadyExistsError ArgumentError BatchSizeError Cancelled ConcurrentWriteError DecodeError"
            " EditRefusedError EncodeError FormatError InterruptedAppendError KeyMissingError LockedError"
            " MissingFileError NotDirectoryError NotSupportedError PickleRefusedError Problem ReadOnlyError"
            " TdviewError UnsupportedVersionError"
        ).split(),
        "tdview.errors",
    ),
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tdview' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

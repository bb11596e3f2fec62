"""Small saves written by hand, so that these tests need neither torch nor a writer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ITEMSIZE = {"float32": 4, "float64": 8, "int64": 8, "uint8": 1, "bool": 1, "bfloat16": 2}


def write_save(prefix: Path, entries: Mapping[str, Any], *, batch_size: Sequence[int]) -> Path:
    """A directory save.

    Args:
        prefix: where; it may exist.
        entries: key -> ``(dtype, shape)`` of a leaf, ``(dtype, shape, payload)``, or a mapping for a nested tensordict.
        batch_size: of every level.
    """
    prefix.mkdir(parents=True, exist_ok=True)
    meta: dict[str, Any] = {}
    for key, entry in entries.items():
        name = key.replace("/", "%2F")
        if isinstance(entry, Mapping):
            write_save(prefix / name, entry, batch_size=batch_size)
            meta[key] = {"type": "TensorDict"}
            continue
        dtype, shape, *payload = entry
        data = payload[0] if payload else bytes(math.prod(shape) * ITEMSIZE[dtype])
        (prefix / f"{name}.memmap").write_bytes(data)
        meta[key] = {"device": "cpu", "shape": list(shape), "dtype": f"torch.{dtype}"}
    own = {"shape": list(batch_size), "device": None, "_type": "<class 'tensordict._td.TensorDict'>"}
    (prefix / "meta.json").write_text(json.dumps(meta | own))
    return prefix

"""The same work in the file formats that a user could take instead: HDF5 by h5py, and safetensors.

No ratio is promised: the formats promise other things. HDF5 cannot be mapped leaf by leaf, and safetensors knows no
nested keys and no metadata of a leaf.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import torch
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))
import tdview
from benchmarks.harness import Suite

BATCH = 256


def content(megabytes: int) -> dict[str, torch.Tensor]:
    """Eight float32 leaves of so many megabytes."""
    rows = megabytes * (1 << 20) // 320
    return {f"k{i}": torch.ones(rows, 80).mul_(i) for i in range(8)}


def save_h5(path: Path, leaves: dict[str, torch.Tensor]) -> None:
    with h5py.File(path, "w") as file:
        for key, value in leaves.items():
            file.create_dataset(key, data=value.numpy())


def h5_rows(path: Path, index: list[int]) -> list[Any]:
    """Some rows of every leaf; h5py wants them sorted."""
    with h5py.File(path, "r") as file:
        return [torch.from_numpy(file[key][index]) for key in file]


def safe_rows(path: Path, index: torch.Tensor) -> list[torch.Tensor]:
    with safe_open(path, "pt") as file:
        return [file.get_tensor(key)[index] for key in file.keys()]  # noqa: SIM118


def h5_list(path: Path) -> list[Any]:
    with h5py.File(path, "r") as file:
        return [(key, value.shape, value.dtype) for key, value in file.items()]


def safe_list(path: Path) -> list[Any]:
    with safe_open(path, "pt") as file:
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
        return [(key, part.get_shape(), part.get_dtype()) for key, part in slices.items()]


def own_list(path: Path) -> list[Any]:
    return [(leaf.path, leaf.shape, leaf.dtype) for leaf in tdview.scan(path).leaves()]


def h5_leaf(path: Path) -> float:
    with h5py.File(path, "r") as file:
        return float(file["k3"][:].sum())


def safe_leaf(path: Path) -> float:
    with safe_open(path, "pt") as file:
        return float(file.get_tensor("k3").numpy().sum())


def own_leaf(path: Path) -> float:
    return float(tdview.scan(path)["k3"].numpy().sum())  # type: ignore[attr-defined]


def compare(suite: Suite, megabytes: int) -> None:
    """All work on eight leaves of so many megabytes."""
    leaves = content(megabytes)
    rows = len(leaves["k0"])
    own = tdview.TensorDict(leaves, batch_size=[rows])
    index = torch.randperm(rows)[:BATCH].sort().values
    h5, safe, tdz = (suite.fresh(suffix) for suffix in (".h5", ".safetensors", ".tdz"))
    save_h5(h5, leaves)
    save_file(leaves, safe)
    own.save(tdz)

    def pair(case: str, formats: dict[str, Callable[[], object]], ours: Callable[[], object], **options: Any) -> None:
        for against, other in formats.items():
            suite.pair(case, f"8 × {megabytes} MB", other, ours, against=against, work=megabytes, **options)

    pair(
        "save archive",
        {
            "h5py": lambda: save_h5(suite.fresh(".h5"), leaves),
            "safetensors": lambda: save_file(leaves, suite.fresh(".safetensors")),
        },
        lambda: own.save(suite.fresh(".tdz")),
        writes=True,
        clear=True,
    )
    pair(
        "open and list, archive",
        {"h5py": lambda: h5_list(h5), "safetensors": lambda: safe_list(safe)},
        lambda: own_list(tdz),
    )
    pair(
        "open and read one leaf",
        {"h5py": lambda: h5_leaf(h5), "safetensors": lambda: safe_leaf(safe)},
        lambda: own_leaf(tdz),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # see bench_load.random_rows
    pair(
        f"open and read {BATCH} random rows",
        {"h5py": lambda: h5_rows(h5, index.tolist()), "safetensors": lambda: safe_rows(safe, index)},
        lambda: tdview.load_memmap(tdz)[index],
    )
    torch.set_num_threads(threads)


def main() -> int:
    suite = Suite("formats")
    compare(suite, 8)
    compare(suite, 64)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())

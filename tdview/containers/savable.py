"""This module knows the methods that save a container and read one back, and what they promise.

It does not know how: `saving`, `growing` and `load` do the work.
"""

from __future__ import annotations

import os
from typing import Any, Literal, Self

__all__ = ["Savable"]

_Path = str | os.PathLike[str]


class Savable:
    """Gives every container the methods of the on-disk format."""

    def memmap(
        self,
        prefix: _Path | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        archive: bool | None = None,
        compression: str | int | None = None,
        atomic: bool = False,
    ) -> Any:
        """Writes every leaf to a file and returns a new, memory-mapped container of them.

        This container is not changed. A write that fails leaves the disk as it was: see
        `tdview.operations.write.write_directory`. What an old save in the same place has and the new one has not is
        removed. Key collisions, values that cannot be saved, and leaves that lie elsewhere are refused before
        anything is written.

        Args:
            prefix: directory to write to; an archive if it ends with ``.tdz``. None writes into the directory of
                the container where it is memory-mapped already, else into anonymous shared memory.
            copy_existing: whether a leaf that lies in a file at another path may be copied.
            num_threads: threads that write; 1 writes one file after the other, 0 all but large ones.
            return_early: with ``num_threads > 1``, returns a `TensorDictFuture` at once.
            share_non_tensor: whether processes see each other's writes to non-tensor values: such a value is read
                from its file at each access. Needs a directory.
            existsok: whether existing files are replaced.
            robust_key: whether keys are percent-encoded in file names; None is True. With False, a key that is no
                single path component is refused.
            archive: whether an archive is written; None decides by the suffix.
            compression: of an archive: ``"stored"``, ``"deflate"``, ``"bzip2"``, ``"lzma"`` or a zipfile constant.
            atomic: whether a directory is replaced as a whole by one rename. An archive always is.

        Returns:
            A container of `MemoryMappedTensor` leaves (views of the mapped files, mapped on first use), locked; for
            an archive the result of `load_memmap`, which is not locked; or a `TensorDictFuture`.

        Raises:
            AlreadyExistsError: a leaf lies elsewhere and ``copy_existing=False``, or a file exists and
                ``existsok=False``. (A RuntimeError.)
            EncodeError: the format cannot hold a value, or two keys ask for one file. (A RuntimeError.)
            NotADirectoryError: ``atomic=True`` and `prefix` is a file.
            ArgumentError: compression without an archive, or an archive or ``atomic=True`` without a path.
                (A ValueError.)
            NotSupportedError: ``return_early=True`` for an archive or with ``atomic=True``. (A NotImplementedError.)

        Spec: `TensorDictBase.memmap`.

        Examples:
            >>> import os, tempfile, torch
            >>> from tdview import TensorDict
            >>> td = TensorDict(obs=torch.zeros(3, 4), next=TensorDict(r=torch.ones(3), batch_size=[3]), batch_size=[3])
            >>> with tempfile.TemporaryDirectory() as path:
            ...     mapped = td.memmap(path)
            ...     print(type(mapped["obs"]).__name__, mapped.is_locked, sorted(os.listdir(path)))
            MemoryMappedTensor True ['meta.json', 'next', 'obs.memmap']
        """
        from tdview.containers.saving import memmap

        return memmap(
            self,
            prefix,
            copy_existing,
            num_threads=num_threads,
            return_early=return_early,
            existsok=existsok,
            robust_key=robust_key,
            archive=archive,
            compression=compression,
            atomic=atomic,
            share_non_tensor=share_non_tensor,
        )

    def memmap_(
        self,
        prefix: _Path | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        atomic: bool = False,
    ) -> Any:
        """Writes every leaf to a file and maps this container's own leaves to them; it is locked then.

        As `memmap`, but always a directory, whatever the suffix. Returns itself.

        Spec: `TensorDictBase.memmap`.
        """
        from tdview.containers.saving import memmap_

        return memmap_(
            self,
            prefix,
            copy_existing,
            num_threads=num_threads,
            return_early=return_early,
            existsok=existsok,
            robust_key=robust_key,
            atomic=atomic,
            share_non_tensor=share_non_tensor,
        )

    def memmap_like(
        self,
        prefix: _Path | None = None,
        copy_existing: bool = False,
        *,
        existsok: bool = True,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        robust_key: bool | None = True,
        archive: bool | None = None,
    ) -> Any:
        """Writes files of zeros for every leaf, sparse where the file system can, and maps them; values are kept.

        An old save in the same place is replaced: nothing of its elements shows through. Lazy views become dense.

        Args:
            prefix: as for `memmap`; an archive is opened with ``mode="r+"``, so that it can be filled in place.
            existsok, num_threads, robust_key, archive: as for `memmap`.
            copy_existing: accepted for tensordict's sake: nothing is copied.
            return_early: with ``num_threads > 1``, returns a `TensorDictFuture`.
            share_non_tensor: as for `memmap`.

        Returns:
            A locked container of `MemoryMappedTensor` zeros; of an archive, an unlocked one.

        Spec: "The on-disk format".
        """
        from tdview.containers.saving import TensorDictFuture, memmap_like

        del copy_existing
        result = memmap_like(
            self,
            prefix,
            existsok=existsok,
            num_threads=num_threads,
            robust_key=robust_key,
            archive=archive,
            share_non_tensor=share_non_tensor,
        )
        return TensorDictFuture.of(result) if return_early and num_threads > 1 else result

    def save(
        self,
        prefix: _Path | None = None,
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
        """As `memmap`, replacing what is there. Spec: `TensorDictBase.memmap`."""
        return self.memmap(
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

    dumps = save

    # reading

    @classmethod
    def load_memmap(
        cls,
        prefix: _Path,
        device: Any = None,
        non_blocking: bool = False,
        *,
        out: Any = None,
        robust_key: bool | None = True,
        subpath: Any = None,
        mode: Literal["r", "r+"] | None = None,
        num_threads: int = 0,
        allow_pickle: bool | None = False,
    ) -> Any:
        """Loads a saved container; see `tdview.load_memmap`. The files name its class, not the caller.

        Called on a tensorclass, a class of its name that was saved from ``__main__`` is taken for it.
        """
        from tdview.containers.load import load_memmap

        return load_memmap(
            prefix,
            device,
            non_blocking,
            out=out,
            robust_key=robust_key,
            subpath=subpath,
            mode=mode,
            num_threads=num_threads,
            allow_pickle=allow_pickle,
            caller=cls,
        )

    @classmethod
    def load(cls, prefix: _Path, *args: Any, **kwargs: Any) -> Any:
        """The same as `load_memmap`."""
        return cls.load_memmap(prefix, *args, **kwargs)

    def load_memmap_(
        self,
        prefix: _Path,
        robust_key: bool | None = True,
        *,
        allow_pickle: bool | None = False,
        mode: Literal["r", "r+"] | None = None,
    ) -> Self:
        """Replaces the entries of this container by those of a save of the same batch size.

        Nothing changes if it cannot be loaded.
        """
        self.load_memmap(prefix, out=self, robust_key=robust_key, allow_pickle=allow_pickle, mode=mode)
        return self

    def memmap_refresh_(self, *, allow_pickle: bool | None = False) -> Self:
        """Reads the structure of a memory-mapped container anew: rows, entries and values that others wrote.

        Changes nothing on disk.

        Raises:
            LockedError: it is not memory-mapped in a directory. (A RuntimeError.)
        """
        from tdview.containers.load import refresh

        return refresh(self, allow_pickle=allow_pickle)  # type: ignore[no-any-return]

    # growing

    def make_memmap(self, key: Any, shape: Any, *, dtype: Any = None, robust_key: bool | None = True) -> Any:
        """Adds a leaf of zeros to a memory-mapped container, on disk and here; see `tdview.containers.growing`."""
        from tdview.containers.growing import make_memmap

        return make_memmap(self, key, shape, dtype=dtype, robust_key=robust_key)

    def make_memmap_from_tensor(
        self, key: Any, tensor: Any, *, copy_data: bool = True, existsok: bool = True, robust_key: bool | None = True
    ) -> Any:
        """Adds a leaf with the elements of a tensor; see `tdview.containers.growing`."""
        from tdview.containers.growing import make_memmap_from_tensor

        return make_memmap_from_tensor(self, key, tensor, copy_data=copy_data, existsok=existsok, robust_key=robust_key)

    def make_memmap_from_storage(
        self, key: Any, storage: Any, shape: Any, *, dtype: Any = None, robust_key: bool | None = True
    ) -> Any:
        """Adds a leaf with the elements of a storage; see `tdview.containers.growing`."""
        from tdview.containers.growing import make_memmap_from_storage

        return make_memmap_from_storage(self, key, storage, shape, dtype=dtype, robust_key=robust_key)

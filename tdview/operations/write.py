"""This module knows how a source becomes a saved directory or an archive, whole or not at all.

It does not know tensors or containers; `operations.source` is what it asks of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tdview.errors import AlreadyExistsError, ArgumentError, EncodeError, NotDirectoryError, Problem, shown
from tdview.format.archive_layout import entry_order, stamp
from tdview.format.payload import META
from tdview.operations.progress import Progress, Tally
from tdview.operations.source import Block, SourceFile, SourceLevel
from tdview.storage.archive_write import ArchiveWriter
from tdview.storage.compress import check_level, method_of
from tdview.storage.fileio import reserve, write_all
from tdview.storage.leftovers import owned_files
from tdview.storage.lock import writer_lock
from tdview.storage.placing import check_places
from tdview.storage.staging import Stage, fresh_name, new_file

__all__ = ["HEADERS_NBYTES", "check_names", "worker_count", "write_archive", "write_directory"]

_ZEROS = memoryview(bytes(1 << 20))
_NAME_LIMIT = 255
_LARGE = 8 << 20
"""Files of so many bytes are written by two threads unless their number is given. More would hold more copies."""
HEADERS_NBYTES = 256
"""About how many bytes the headers of a zip entry take."""


# names ------------------------------------------------------------------------------------------------------------


def check_names(level: SourceLevel) -> None:
    """Raises unless every file of the source has a place of its own inside the save.

    The encoding keeps distinct keys apart, but a leaf ``x`` and a nested tensordict ``x.memmap``, or a nested
    tensor ``a`` and a leaf ``a.shape``, ask for the same file.

    Raises:
        EncodeError: ``name_collision``: two entries ask for the same file. ``escape``: a name is no single path
            component, is too long for the file system, or cannot be written in UTF-8.
    """
    problems = [problem for path, level in level.walk() for problem in _name_problems(path, level)]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise EncodeError(problems[0].message + more, problems)


def _name_problems(path: str, level: SourceLevel) -> Iterator[Problem]:
    names = [META, *(file.name for file in level.files), *(nested.name for nested in level.levels)]
    unique = set(names)
    if len(unique) != len(names):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                what = f"two entries ask for the file {shown(name)}; rename one of the keys"
                yield Problem("name_collision", f"{path or 'the save'}: {what}")
            seen.add(name)
    for name in unique:
        fault = None
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            fault = "is no single path component; save it with robust_key=True"
        elif not name.isascii() or len(name) > _NAME_LIMIT:
            fault = _encoding_fault(name)
        if fault is not None:
            yield Problem("escape", f"{path or 'the save'}: the file name {shown(name)} {fault}")


def _encoding_fault(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "holds a lone surrogate, which no file name can"
    return f"has {size} bytes, file systems take {_NAME_LIMIT}" if size > _NAME_LIMIT else None


# directory --------------------------------------------------------------------------------------------------------


def write_directory(
    level: SourceLevel,
    prefix: Path | str,
    *,
    existsok: bool = True,
    num_threads: int = 0,
    atomic: bool = False,
    progress: Progress | None = None,
) -> None:
    """Writes a save into the directory `prefix`.

    A write that fails leaves the disk as it was. A new directory appears as a whole: it is written beside its place
    and then renamed. Into an empty directory the files are written in place, the top ``meta.json`` last: a kill leaves
    a directory without it. Over an old save, everything is written beside it first and then moved into place, so the
    disk holds both for a while; files of the old save that the new one does not have are removed, files that are not
    of the format stay. Old files are replaced, never written over: readers that mapped them keep the old values.
    A file whose bytes already lie at its place (`SourceFile.mapped_at`) is left alone. Nothing is synced to the disk.

    Args:
        existsok: if False, an existing file at the place of a new one is an error.
        num_threads: threads that write; 1 writes in the calling one, and so does 0, but for several large files,
            which two threads write where the process may use two cores, if there is no `progress`.
        atomic: the directory is replaced as a whole by one rename; then every file in it that is not part of the
            new save is gone. Without it, the old files are replaced one by one.
        progress: called with bytes.

    Raises:
        EncodeError: see `check_names`; or a target, or a directory of the save, is a symlink; or a source's blocks do
            not have the size that it states.
        AlreadyExistsError: `existsok` is False and a file is there; or with `atomic` the directory is not empty, or
            holds something else than a save.
        NotDirectoryError: `prefix` is a file.
        ConcurrentWriteError: another writer is at work in `prefix`.

    Spec: `TensorDictBase.memmap`.
    """
    check_names(level)
    prefix = Path(prefix)
    if os.path.lexists(prefix) and not prefix.is_dir():
        raise NotDirectoryError(f"{prefix}: expected a directory, got a file")
    files = _Files(level, progress, num_threads)
    if atomic or not os.path.lexists(prefix):
        _write_swapped(files, prefix, existsok)
    elif not _has_content(prefix):
        files.write(str(prefix))
    else:
        with writer_lock(prefix):
            _write_merged(files, prefix, existsok)


def _has_content(prefix: Path) -> bool:
    try:
        with os.scandir(prefix) as found:
            return next(found, None) is not None
    except FileNotFoundError:
        return False


def _write_swapped(files: _Files, prefix: Path, existsok: bool) -> None:
    if _has_content(prefix):
        if not existsok:
            raise AlreadyExistsError(f"{prefix}: the directory is not empty; pass existsok=True to replace it")
        if not (prefix / META).is_file():
            message = f"{prefix}: the directory holds no save ({META}), so it is not replaced as a whole"
            raise AlreadyExistsError(message)
    target = Path(os.path.realpath(prefix))
    parents: list[str] = []
    try:
        _make_directories(str(target.parent), parents)
        with Stage(target.parent, target) as stage:
            try:
                files.write(str(stage.new))
            except BaseException:
                stage.discard()
                raise
            stage.swap()
    except BaseException:
        _remove_made(parents)
        raise


def _write_merged(files: _Files, prefix: Path, existsok: bool) -> None:
    target = Path(os.path.realpath(prefix))
    stale = set(owned_files(target))
    new = {path for path, _ in files.walk()} | {f"{path}/{META}" if path else META for path, _ in files.level.walk()}
    check_places(target, new, stale, existsok=existsok)
    kept = {path for path, file in files.walk() if _lies_at(file, target / path)}
    with Stage(target, target) as stage:
        try:
            files.write(str(stage.new), kept)
        except BaseException:
            stage.discard()
            raise
        stage.merge(sorted(stale - new))


def _lies_at(file: SourceFile, path: Path) -> bool:
    if file.mapped_at is None:
        return False
    try:
        return os.path.samefile(file.mapped_at, path) and os.stat(path).st_size >= file.nbytes
    except OSError:
        return False


class _Files:
    """The files of a source, and how they are written into a directory that holds nothing at their places."""

    def __init__(self, level: SourceLevel, progress: Progress | None, num_threads: int) -> None:
        self.level = level
        self._num_threads, self._smallest = num_threads, 0
        if not num_threads and progress is None and self._many_large():
            self._num_threads, self._smallest = min(worker_count(None), 2), _LARGE
        self._tally = Tally(progress, _payload_nbytes(level) if progress else 0)

    def walk(self) -> Iterator[tuple[str, SourceFile]]:
        """Every file but ``meta.json`` with its path below the save."""
        for path, level in self.level.walk():
            for file in level.files:
                yield (f"{path}/{file.name}" if path else file.name), file

    def _many_large(self) -> bool:
        return sum(file.nbytes >= _LARGE and file.blocks is not None for _, file in self.walk()) > 1

    def write(self, root: str, kept: set[str] | frozenset[str] = frozenset()) -> None:
        """Writes all files but the `kept` ones below `root`; removes what it made if it fails."""
        made: list[str] = []
        pool = ThreadPoolExecutor(self._num_threads, "tdview-write") if self._num_threads > 1 else None
        try:
            _make_directories(root, made)
            metas: list[tuple[str, bytes]] = []
            jobs = []
            for path, level in self.level.walk():
                directory = f"{root}/{path}" if path else root
                if path:
                    os.mkdir(directory)
                    made.append(directory)
                metas.append((f"{directory}/{META}", level.meta))
                for file in level.files:
                    if kept and (f"{path}/{file.name}" if path else file.name) in kept:
                        continue
                    goal = f"{directory}/{file.name}"
                    if pool is not None and file.nbytes >= self._smallest:
                        jobs.append(pool.submit(self._write_file, goal, file, made))
                    else:
                        self._write_file(goal, file, made)
            for job in jobs:
                job.result()
            for goal, meta in reversed(metas[1:]):
                _write_new(goal, meta, made)
            # The top one is last and appears as a whole: a save that has it is complete.
            (goal, meta), temporary = metas[0], f"{root}/{fresh_name()}"
            _write_new(temporary, meta, made)
            os.rename(temporary, goal)
            made.append(goal)
        except BaseException:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
                pool = None
            _remove_made(made)
            raise
        finally:
            if pool is not None:
                pool.shutdown()

    def _write_file(self, goal: str, file: SourceFile, made: list[str]) -> None:
        fd = _create(goal)
        made.append(goal)
        try:
            if file.blocks is None:
                os.ftruncate(fd, file.nbytes)
                return
            reserve(fd, 0, file.nbytes)
            written = 0
            for block in self._tally.count(file.blocks()):
                write_all(fd, block)
                written += block.nbytes if isinstance(block, memoryview) else len(block)
        finally:
            os.close(fd)
        if written != file.nbytes:
            raise EncodeError(f"{goal}: expected {file.nbytes} bytes of content, got {written}")


def _payload_nbytes(level: SourceLevel) -> int:
    return sum(file.nbytes for _, nested in level.walk() for file in nested.files)


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _write_new(path: str, content: bytes, made: list[str]) -> None:
    fd = _create(path)
    made.append(path)
    try:
        write_all(fd, content)
    finally:
        os.close(fd)


def _make_directories(path: str, made: list[str]) -> None:
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.mkdir(directory)
        made.append(directory)


def _remove_made(made: Sequence[str]) -> None:
    """Removes what a failed write made, the newest first; directories that it found stay."""
    for path in reversed(made):
        with suppress(OSError):
            os.unlink(path) if not os.path.isdir(path) else os.rmdir(path)


# archive ----------------------------------------------------------------------------------------------------------


def write_archive(
    level: SourceLevel,
    path: Path | str,
    *,
    compression: str | int | None = None,
    compresslevel: int | None = None,
    existsok: bool = True,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes a save into the archive `path`, in one pass and without a copy beside it.

    An old file is replaced by a new one once that is complete; a failure or a kill leaves the old one and nothing
    else. See `storage.staging.new_file` for links and permissions.

    Args:
        compression: of the payloads: ``"stored"``, ``"deflate"``, ``"bzip2"``, ``"lzma"`` or a number of `zipfile`.
        compresslevel: deflate 0 to 9, bzip2 1 to 9. None is fast: see `storage.compress`.
        num_threads: threads that compress; None takes as many as the process may use.
        progress: called with bytes.

    Raises:
        EncodeError: see `check_names`.
        AlreadyExistsError: `existsok` is False and there is a file.
        ArgumentError: there is a directory, or the compression or its level does not exist.

    Spec: "Archives".
    """
    check_names(level)
    method = method_of(compression)
    check_level(method, compresslevel)
    tally = Tally(progress, _payload_nbytes(level) if progress else 0)
    workers = worker_count(num_threads)
    now = stamp(source_date_epoch=os.environ.get("SOURCE_DATE_EPOCH"))
    entries = list(_archive_entries(level, ""))
    expected = sum(file.nbytes + HEADERS_NBYTES for _, file in entries) if method == "stored" else 0
    parents: list[str] = []
    try:
        _make_directories(os.path.dirname(os.path.realpath(path)), parents)
        with (
            new_file(Path(path), existsok=existsok) as fd,
            ArchiveWriter(
                fd, method=method, level=compresslevel, stamp=now, workers=workers, expected_nbytes=expected
            ) as archive,
        ):
            for name, file in entries:
                archive.add(name, file.nbytes, tally.count(_content(file)))
            archive.finish()
    except BaseException:
        _remove_made(parents)
        raise


def worker_count(num_threads: int | None) -> int:
    """Number of threads: what is asked for, else what the process may use."""
    if num_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if num_threads < 0:
        raise ArgumentError(f"num_threads: expected a number >= 0, got {num_threads}")
    return num_threads


def _archive_entries(level: SourceLevel, prefix: str) -> Iterator[tuple[str, SourceFile]]:
    files = {file.name: file for file in level.files}
    files[META] = SourceFile.of(META, level.meta)
    levels = {nested.name: nested for nested in level.levels}
    file_order, level_order = entry_order(files, levels)
    for name in file_order:
        yield prefix + name, files[name]
    for name in level_order:
        yield from _archive_entries(levels[name], f"{prefix}{name}/")


def _content(file: SourceFile) -> Iterator[Block]:
    return _zeros(file.nbytes) if file.blocks is None else iter(file.blocks())


def _zeros(nbytes: int) -> Iterator[Block]:
    while nbytes > 0:
        yield _ZEROS[:nbytes]
        nbytes -= len(_ZEROS)

"""A disk under SQLite and under ``os``: it records all requests, and fails where a test wants it to."""

# ruff: noqa: N802 - SQLite names the methods of a file system

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw
import pytest

from tests.proof.faults.platter import DIRECTORY, DirectoryForced, Entry, Forced, ForceFailed, Named, Truncated, Written

EFFORT: Final = int(os.environ.get("LASH_FAULTS", "1"))
"""1 for the short form, which runs with all other tests; the long form tries this many times as many moments."""
_BASE: Final = "unix"
_NAME: Final = "lash-test-disk"

Fault = Callable[[str, str], None]
"""Called with an operation (``read``, ``write``, ``sync``, ``truncate``, ``open``) and the end of the file's name
(empty for the database itself) before it is done; what it raises is what the disk answers."""


class Disk:
    """The log of operations on the files below one directory, and the planned faults."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: list[Entry] = []
        self.fault: Fault | None = None
        self._files: dict[str, int] = {}
        self._count = 0

    def holds(self, path: str) -> bool:
        """Return whether a file lies on this disk: SQLite has temporary ones elsewhere."""
        return Path(path).is_relative_to(self.directory)

    def ask(self, operation: str, path: str) -> None:
        """Let a test raise an error before an operation."""
        if self.fault is not None:
            self.fault(operation, Path(path).suffix.partition("-")[2])

    def file(self, path: str) -> int:
        """Return the number of a file; a new file is logged with its name."""
        if path not in self._files:
            self._count += 1
            self._files[path] = self._count
            self.log.append(Named(str(Path(path).parent), ((path, self._count),)))
        return self._files[path]

    def knows(self, path: str) -> bool:
        """Return whether the file was seen before."""
        return path in self._files

    def made_folder(self, path: str) -> None:
        """Record a new directory."""
        self.log.append(Named(str(Path(path).parent), ((path, DIRECTORY),)))

    def renamed(self, path: str, target: str) -> None:
        """Record a rename."""
        file = self.file(path)
        del self._files[path]
        self._files[target] = file
        self.log.append(Named(str(Path(target).parent), ((path, None), (target, file))))

    def deleted(self, path: str) -> None:
        """Record a removed name."""
        if self._files.pop(path, None) is not None:
            self.log.append(Named(str(Path(path).parent), ((path, None),)))

    def forced(self, path: str) -> None:
        """Record an fsync of a file or directory."""
        self.log.append(DirectoryForced(path) if Path(path).is_dir() else Forced(self.file(path)))


class _DiskVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(_NAME, _BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        return _DiskFile(self._disk, path, name, flags) if self._disk.holds(path) else apsw.VFSFile(_BASE, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001
        super().xDelete(filename, syncdir)
        self._disk.deleted(filename)
        if syncdir:
            self._disk.forced(str(Path(filename).parent))


class _DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._path = path
        disk.ask("open", path)
        # SQLite syncs the directory of a new journal or WAL with its first sync, but not that of a new database.
        is_log = not flags[0] & apsw.SQLITE_OPEN_MAIN_DB
        self._folder_due = is_log and not disk.knows(self._path)
        super().__init__(_BASE, name, flags)
        disk.file(self._path)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.ask("read", self._path)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.ask("write", self._path)
        super().xWrite(data, offset)
        self._disk.log.append(Written(self._disk.file(self._path), offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        self._disk.ask("truncate", self._path)
        super().xTruncate(newsize)
        self._disk.log.append(Truncated(self._disk.file(self._path), newsize))

    def xSync(self, flags: int) -> None:
        try:
            self._disk.ask("sync", self._path)
        except apsw.Error:
            self._disk.log.append(ForceFailed(self._disk.file(self._path)))
            raise
        self._disk.forced(self._path)
        if self._folder_due:
            self._folder_due = False
            self._disk.forced(str(Path(self._path).parent))


@contextmanager
def disk_below(directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Put a disk under every database opened in the context, and under the files that Python writes.

    It does not sync to the real disk: that costs time and shows nothing.
    """
    disk = Disk(directory)
    with patch.context() as local:
        _watch_os(disk, local)
        vfs = _DiskVFS(disk)
        try:
            yield disk
        finally:
            vfs.unregister()
            apsw.set_default_vfs(_BASE)


def _watch_os(disk: Disk, patch: pytest.MonkeyPatch) -> None:
    make, remove, replace, put = os.mkdir, os.unlink, os.replace, os.write
    seen: set[str] = set()

    def fsync(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not disk.holds(path):
            return
        try:
            disk.ask("sync", path)
        except apsw.Error as error:
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from error
        if path not in seen and stat.S_ISREG(os.fstat(descriptor).st_mode):
            # Other writes of Python are only seen here; until now, none of them was durable.
            file = disk.file(path)
            disk.log.append(Truncated(file, 0))
            disk.log.append(Written(file, 0, Path(path).read_bytes()))
        disk.forced(path)

    def write(descriptor: int, content: bytes) -> int:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not path.endswith("-wal") or not disk.holds(path):
            return put(descriptor, content)
        # Python adds space to the log of SQLite, whose own writes are seen one by one.
        seen.add(path)
        offset, written = os.lseek(descriptor, 0, os.SEEK_CUR), put(descriptor, content)
        disk.log.append(Written(disk.file(path), offset, content[:written]))
        return written

    def mkdir(path: str | os.PathLike[str], mode: int = 0o777) -> None:
        make(path, mode)
        if disk.holds(os.fspath(path)):
            disk.made_folder(os.fspath(path))

    def unlink(path: str | os.PathLike[str]) -> None:
        remove(path)
        if disk.holds(os.fspath(path)):
            disk.deleted(os.fspath(path))

    def move(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        replace(source, target)
        if disk.holds(os.fspath(target)):
            disk.renamed(os.fspath(source), os.fspath(target))

    for name, function in (("write", write), ("fsync", fsync), ("mkdir", mkdir), ("unlink", unlink), ("replace", move)):
        patch.setattr(os, name, function)

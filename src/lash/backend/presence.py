"""Presence: a lock that a process holds until it ends, in a file that other processes of its user can find.

A pid says nothing outside its pid namespace, so a container that restarts cannot see by it that its predecessor died.
But it finds the predecessor's file in its directory for temporary files. The kernel releases the lock when the process
ends; a process that gets the lock has the proof. A file that is missing, or is not the one that was locked, proves
nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from lash.base.file_rights import create_file

if sys.platform != "win32":
    import fcntl

_MARK: Final = re.compile(r"(?P<name>[0-9a-f]{32})\.(?P<number>[0-9]{1,20})")
"""The name of the file, and its inode number: a copy of a file system has the name, but not the number."""
_STALE_AFTER_S: Final = 2 * 24 * 60 * 60
"""Files of ended processes are kept for longer than any lease, which is a day at most."""


class _OwnFile(NamedTuple):
    path: Path
    descriptor: int
    mark: str


_guard: Final = threading.Lock()
_own: list[_OwnFile] = []
"""The file of this process, once it has one."""


def own_mark() -> str | None:
    """Return the mark of this process, which holds its lock from the first call on; None where it cannot."""
    with _guard:
        if not _own:
            made = _lock_own_file()
            if made is None:
                return None
            _own.append(made)
        return _own[0].mark


if sys.platform == "win32":

    def is_over(mark: str) -> bool:  # noqa: ARG001
        """Return False: Windows has no ``flock``."""
        return False

    def private_directory() -> Path:
        """Raise OSError: on Windows no rights can be read from a mode."""
        raise OSError("no private directory on Windows")

    def _lock_own_file() -> _OwnFile | None:
        return None

else:

    def is_over(mark: str) -> bool:
        """Return whether the process with this mark has provably ended."""
        match = _MARK.fullmatch(mark)
        if match is None:
            return False
        try:
            descriptor = os.open(private_directory() / match["name"], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return os.fstat(descriptor).st_ino == int(match["number"]) and _is_free(descriptor)
        finally:
            os.close(descriptor)

    def _lock_own_file() -> _OwnFile | None:
        """Create and lock a file that stays open until the process ends."""
        try:
            directory = private_directory()
            _remove_stale(directory)
            path = directory / secrets.token_hex(16)
            descriptor = create_file(path)
        except OSError:
            # No such directory, or a read-only or full file system.
            return None
        try:
            # No other process knows the name yet.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # A file system without locks.
            os.close(descriptor)
            return None
        return _OwnFile(path, descriptor, f"{path.name}.{os.fstat(descriptor).st_ino}")

    def _remove_own_file() -> None:
        # A process that ends in an orderly way has released its leases. The file of a killed one stays.
        for own in _own:
            with contextlib.suppress(OSError):
                own.path.unlink()

    def _forget_in_child() -> None:
        # A forked child is another process. If it kept the descriptor, the lock would outlive its parent.
        while _own:
            with contextlib.suppress(OSError):
                os.close(_own.pop().descriptor)

    atexit.register(_remove_own_file)
    os.register_at_fork(after_in_child=_forget_in_child)

    def private_directory() -> Path:
        """Return the directory of this user's files, which no other user can enter; raise OSError if that is not so."""
        path = Path(tempfile.gettempdir()) / f"lash-{os.geteuid()}"
        path.mkdir(0o700, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{path} is not a private directory of this user")
        return path

    def _is_free(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _remove_stale(directory: Path) -> None:
        """Remove the files of processes that ended long ago; one that still runs keeps its file locked."""
        oldest = time.time() - _STALE_AFTER_S
        for file in directory.iterdir():
            # Another process may remove it at the same moment.
            with contextlib.suppress(OSError):
                status = file.lstat()
                if status.st_mtime < oldest and is_over(f"{file.name}.{status.st_ino}"):
                    file.unlink()

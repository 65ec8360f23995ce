"""The lock files beside a database, which only the users who may write the database can open.

A user who can open a lock file can lock it, even read-only, and keep every writer waiting.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from lash.base.file_rights import FileRights, create_file, give, grant, rights_in, writers_mode
from lash.errors import StorageFailure

_TRIES: Final = 10
"""How often a lock file that other processes create, replace or remove at the same moment is tried."""


def open_lock_file(name: str, database: FileRights | None) -> int:
    """Open a lock file, or create it for its owner; ``database`` is None before the file exists.

    Symbolic links, and anything else but a file, are refused. A file that another user could lock is replaced. A
    process that still has the old one open loses its place in the queue; SQLite's own locks keep its writes safe.
    """
    for _ in range(_TRIES):
        try:
            descriptor = _opened(name)
        except FileExistsError:
            # Created by another process since this one saw that there was none.
            continue
        except OSError as error:
            raise StorageFailure(f"cannot open the lock file {name}: {_reason(error)}") from error
        status = os.fstat(descriptor)
        if is_trusted(rights_in(status), status.st_nlink, database, os.geteuid()):
            return descriptor
        os.close(descriptor)
        _remove(name)
    raise StorageFailure(f"cannot open the lock file {name}: other processes keep replacing it")


def match_rights(descriptor: int, database: FileRights) -> None:
    """Give a lock file of this user the owner and group of the database, and open it to the database's writers."""
    if os.geteuid() in (0, os.fstat(descriptor).st_uid):
        give(descriptor, database.user)
        grant(descriptor, database, writers_mode(database.mode))


def is_trusted(lock: FileRights, links: int, database: FileRights | None, user: int) -> bool:
    """Return whether no user but the database's writers can lock this file, now or once its rights are corrected.

    A file with a second name belongs elsewhere too, so its rights are not changed.
    """
    if links > 1:
        return False
    if user in (0, lock.user):
        return True
    if database is None or lock.mode & ~writers_mode(database.mode):
        return False
    if lock.user in (0, database.user) or database.mode & 0o002:
        return True
    return bool(database.mode & 0o020) and lock.group == database.group


def _opened(name: str) -> int:
    # Reading is enough to lock. Without O_NONBLOCK a pipe of this name would stop the process.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags)
    except FileNotFoundError:
        return create_file(name)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StorageFailure(f"the lock file {name} is not a regular file; remove it")


def _remove(name: str) -> None:
    try:
        os.unlink(name)  # noqa: PTH108 (never follows a link)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailure(
            f"the lock file {name} belongs to another user, who could keep every writer waiting, and cannot be "
            f"replaced: {error.strerror}; remove it"
        ) from error


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link; remove it"
    if error.errno == errno.EACCES:
        return f"{error.strerror}; the users who may write the database need the lock file too: remove it once"
    return error.strerror or str(error)

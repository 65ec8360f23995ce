"""Which users may read and write a file: the rights of files that lash creates from or beside other files.

A copy must not be open to more users than its source. A file is therefore created for its owner only, under a name that
nothing has, and gets its group before it gets the rights of a group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final, NamedTuple

OWNER_ONLY: Final = 0o600
_GROUP: Final = 0o060
_WRITE: Final = 0o222
_ACCESS_LIST: Final = "system.posix_acl_access"
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
"""Windows has no such flag; ``O_EXCL`` does not follow links there either."""


class FileRights(NamedTuple):
    """The owner and the group of a file, and its permission bits without those for execution."""

    user: int
    group: int
    mode: int


def rights_of(path: str | os.PathLike[str]) -> FileRights | None:
    """Return the rights of a file; None if there is none, or it cannot be reached."""
    try:
        return rights_in(Path(path).stat())
    except OSError:
        return None


def rights_in(status: os.stat_result) -> FileRights:
    """Return the rights in the answer of a ``stat`` call."""
    return FileRights(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode) & 0o666)


def writers_mode(mode: int) -> int:
    """Return the permission bits of a file that only the writers of another file may open."""
    write = mode & _WRITE
    return OWNER_ONLY | write | write << 1


def copy_mode(mode: int, umask: int) -> int:
    """Return the permission bits of a copy: those of the source within the umask; its owner may always use it."""
    return OWNER_ONLY | (mode & 0o666 & ~umask)


def create_file(path: str | os.PathLike[str], mode: int = OWNER_ONLY) -> int:
    """Create a file, for its owner only if nothing else is said, and return its descriptor. The umask applies.

    Raises FileExistsError if the name is taken, also by a symbolic link to nothing.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | _NO_FOLLOW, mode & 0o666)


def create_copy(path: str | os.PathLike[str], source: str | os.PathLike[str] | None) -> int:
    """Create an empty file with the group and the permission bits of the source, within the umask.

    Returns its descriptor; raises FileExistsError if the name is taken, also by a symbolic link.
    Only its owner may use a copy of something else than a file, such as a database on a server. The same holds for the
    group of a source with an access control list: its group bits are the mask of the list, not rights of the group.
    """
    descriptor = create_file(path)
    try:
        rights = None if source is None else rights_of(source)
        if source is not None and rights is not None:
            mode = rights.mode & ~_GROUP if _has_access_list(source) else rights.mode
            grant(descriptor, rights, copy_mode(mode, _umask()))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_replacement(path: str | os.PathLike[str], old: FileRights) -> int:
    """Create an empty file with the owner, group and permission bits of the file that it is to replace.

    Returns its descriptor; raises FileExistsError if the name is taken, also by a symbolic link.
    """
    descriptor = create_file(path)
    try:
        give(descriptor, old.user)
        grant(descriptor, old, OWNER_ONLY | old.mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def give(descriptor: int, user: int) -> None:
    """Make a user the owner of an open file, if this process is root; other users cannot give files away."""
    if os.name == "posix" and os.geteuid() == 0 and os.fstat(descriptor).st_uid != user:
        # Refused in a container that does not know the user.
        with contextlib.suppress(OSError):
            os.fchown(descriptor, user, -1)


def grant(descriptor: int, like: FileRights, mode: int) -> None:
    """Give an open file these permission bits and a group; without the bits for the group if it cannot have that."""
    if os.name != "posix":
        return
    found = rights_in(os.fstat(descriptor))
    if mode & _GROUP and found.group != like.group:
        try:
            os.fchown(descriptor, -1, like.group)
        except OSError:
            mode &= ~_GROUP
    if found.mode != mode:
        # Refused by a file system that has no rights of its own.
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)


def partial_name(file: Path) -> Path:
    """Return a name beside a file for its unfinished copy: unique, and without a link in its path."""
    return file.parent.resolve() / f"{file.name}.{secrets.token_hex(4)}.partial"


def name_copy(partial: Path, target: Path) -> None:
    """Give a finished copy its name; raise FileExistsError if that is taken, also by a symbolic link."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links: take the name first.
        os.close(create_file(target))
        partial.replace(target)
        return
    partial.unlink()


def _has_access_list(path: str | os.PathLike[str]) -> bool:
    if not hasattr(os, "listxattr"):
        return False
    try:
        return _ACCESS_LIST in os.listxattr(path)
    except OSError:
        # The file system has none.
        return False


def _umask() -> int:
    """Return the umask. It can only be read by setting it; files that other threads create meanwhile are private."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask

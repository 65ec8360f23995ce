"""Checks of a database's path, before anything is opened, so that the error can name the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw

from lash.errors import ConfigError

_MOUNTS = Path("/proc/mounts")
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smbfs", "smb2", "smb3", "9p", "fuse.sshfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_OLDEST_SQLITE = (3, 51, 3)


def check_sqlite_version(version: str) -> None:
    """Refuse a SQLite that can lose committed pages (the WAL-reset bug, fixed in 3.51.3)."""
    if tuple(int(part) for part in version.split(".")) < _OLDEST_SQLITE:
        raise ConfigError(
            f"expected SQLite 3.51.3 or later, got {version}: older versions can lose committed data. "
            "Upgrade apsw: pip install --upgrade apsw"
        )


def checked_path(path: str) -> str:
    """Return the absolute path of a database file; raise `ConfigError` if there can be none.

    Symbolic links are resolved: every process must find the same lock files beside the same database.
    """
    if not path or "\0" in path:
        raise ConfigError(f"expected a file name, got {path!r}")
    try:
        file = Path(path).resolve()
        is_directory, has_parent = file.is_dir(), file.parent.is_dir()
        links = file.stat().st_nlink if file.exists() else 1
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        # Too long, a cycle of links, an unreadable directory, half a character.
        raise ConfigError(f"invalid file name {path!r:.80}: {getattr(error, 'strerror', None) or error}") from None
    if is_directory:
        raise ConfigError(f"expected a file, got the directory {path}; name a file in it")
    if not has_parent:
        raise ConfigError(f"no such directory: {file.parent}; create it first")
    mounts = _mounts()
    check_file_system(str(file.parent), mounts=mounts)
    check_only_name(str(file), links=links, mounts=mounts)
    return str(file)


def check_file_system(directory: str, *, mounts: str) -> None:
    """Refuse a directory on a network file system; ``mounts`` has the form of /proc/mounts."""
    kind = file_system_of(directory, mounts=mounts)
    if kind in _NETWORK:
        raise ConfigError(
            f"{directory} is on a network file system ({kind}). SQLite's write-ahead log needs memory shared between "
            "all processes that use the file, which only a local file system has; use a local directory, or PostgreSQL"
        )


def check_only_name(file: str, *, links: int, mounts: str) -> None:
    """Refuse a file with a second name: SQLite finds the write-ahead log by the name, so each name would have its own.

    Programs that use different names do not see each other's commits, and overwrite them.
    """
    if links > 1:
        raise ConfigError(
            f"{file} has {links} hard links. Programs that open it by different names would overwrite each other's "
            "commits; delete all names but one"
        )
    if any(point == file for point, _kind in _mount_points(mounts)):
        raise ConfigError(
            f"{file} is mounted as a single file, so its write-ahead log would be in a directory of this container "
            "only; mount the directory that holds the file"
        )


def file_system_of(directory: str, *, mounts: str) -> str | None:
    """Return the type of the file system that holds the directory; None if the table does not list it."""
    found, depth = None, -1
    for point, kind in _mount_points(mounts):
        # A later mount covers an earlier one on the same point, hence not ">".
        if _holds(point, directory) and len(point) >= depth:
            found, depth = kind, len(point)
    return found


def _mount_points(mounts: str) -> Iterator[tuple[str, str]]:
    """Yield each mount point with the type of its file system."""
    for line in mounts.splitlines():
        _device, escaped, kind, *_rest = line.split(" ")
        yield _OCTAL.sub(lambda match: chr(int(match[1], 8)), escaped), kind


def _holds(point: str, directory: str) -> bool:
    return point in {"/", directory} or directory.startswith(point + "/")


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        # Not Linux, or no /proc: skip the check.
        return ""


def bundled_version() -> str:
    """Return the version of the SQLite inside apsw."""
    return apsw.sqlite_lib_version()

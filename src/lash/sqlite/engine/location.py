"""Where a database may live: checked before anything is opened, so that the message can say what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import apsw

from lash.errors import ConfigError

_MOUNTS = Path("/proc/mounts")
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smbfs", "smb2", "smb3", "9p", "fuse.sshfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_OLDEST_SQLITE = (3, 51, 3)


def check_sqlite_version(version: str) -> None:
    """Refuse a SQLite that can lose committed pages (the WAL-reset bug, mended in 3.51.3)."""
    if tuple(int(part) for part in version.split(".")) < _OLDEST_SQLITE:
        raise ConfigError(
            f"this apsw brings SQLite {version}; lash needs 3.51.3 or later, because older ones can lose committed "
            "data: pip install --upgrade apsw"
        )


def checked_path(path: str) -> str:
    """Return the absolute path of a database file, or raise `ConfigError` where none can be.

    Symbolic links are resolved: every process must find the same lock files beside the same database.
    """
    if not path or "\0" in path:
        raise ConfigError(f"{path!r} is no file name")
    try:
        file = Path(path).resolve()
        is_folder, has_folder = file.is_dir(), file.parent.is_dir()
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        # Too long, a circle of links, a folder that may not be read, half a character.
        raise ConfigError(f"{path!r:.80} can be no file: {getattr(error, 'strerror', None) or error}") from None
    if is_folder:
        raise ConfigError(f"{path} is a folder; name a file in it")
    if not has_folder:
        raise ConfigError(f"the folder {file.parent} does not exist; create it first")
    check_file_system(str(file.parent), mounts=_mounts())
    return str(file)


def check_file_system(folder: str, *, mounts: str) -> None:
    """Refuse a folder on a network file system; ``mounts`` is a table in the form of /proc/mounts."""
    kind = file_system_of(folder, mounts=mounts)
    if kind in _NETWORK:
        raise ConfigError(
            f"{folder} lies on a network file system ({kind}). SQLite's write-ahead log needs memory shared between "
            "all processes that use the file, which only a local file system gives; use a local folder, or PostgreSQL"
        )


def file_system_of(folder: str, *, mounts: str) -> str | None:
    """Return the type of the file system that holds the folder, None when the table does not say."""
    found, depth = None, -1
    for line in mounts.splitlines():
        _device, escaped, kind, *_rest = line.split(" ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), escaped)
        # A later mount covers an earlier one on the same point, hence not ">".
        if _holds(point, folder) and len(point) >= depth:
            found, depth = kind, len(point)
    return found


def _holds(point: str, folder: str) -> bool:
    return point in {"/", folder} or folder.startswith(point + "/")


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        # Not Linux, or no /proc: the check is left out.
        return ""


def bundled_version() -> str:
    """Return the version of the SQLite inside apsw."""
    return apsw.sqlite_lib_version()

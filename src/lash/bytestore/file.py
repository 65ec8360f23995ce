"""The bytes of attachments as files in one directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from lash.base.file_rights import create_file
from lash.base.ids import new_id
from lash.base.limits import check_digest
from lash.errors import ConfigError, StorageFailure
from lash.model.session.session import Durability

P = ParamSpec("P")
T = TypeVar("T")

_STALE_AFTER_S: Final = 60 * 60
"""No write takes this long; an older temporary file belongs to a writer that died."""


class FileBytes:
    """Files ``<root>/sha256/<2 digits>/<id>`` below a directory that belongs to one storage.

    A directory that does not exist is created for its owner only. All files and directories in it are open to no more
    users than the directory itself.

    The contract is `lash.stores.attachment.ByteStore`. A file is written to a unique name in
    ``<root>/temporary``, synced with fsync and renamed, and its directories are synced too: a crash leaves the whole
    file or none.
    """

    durability: Final = Durability.DURABLE

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Use the directory, which is created with the first file."""
        path = Path(root)
        if not path.is_absolute():
            raise ConfigError(f"expected an absolute path for attachments, got {os.fspath(root)!r}")
        self._root = path
        self._temporary = path / "temporary"

    async def put(self, attachment_id: str, content: bytes) -> None:
        await _in_thread(self._put, self._path(attachment_id), content)

    async def get(self, attachment_id: str) -> bytes | None:
        return await _in_thread(self._get, self._path(attachment_id))

    async def delete(self, attachment_id: str) -> None:
        await _in_thread(self._delete, self._path(attachment_id))

    async def sweep_stale(self) -> int:
        return await _in_thread(self._sweep_stale)

    def _path(self, attachment_id: str) -> Path:
        # Checked here too, so that no other text can ever become a path.
        digest = check_digest("attachment_id", attachment_id)
        return self._root / "sha256" / digest[:2] / digest

    def _put(self, path: Path, content: bytes) -> None:
        try:
            self._make_directory(path.parent)
            if not _holds(path, content):
                self._write(path, content)
            _sync(path.parent)
        except OSError as error:
            raise _failure("write", path, error) from error

    def _write(self, path: Path, content: bytes) -> None:
        self._make_directory(self._temporary)
        temporary = self._temporary / f"{path.name}.{new_id()}"
        try:
            with os.fdopen(create_file(temporary, self._root.stat().st_mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            # Report the first failure, not this one.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _make_directory(self, path: Path) -> None:
        """Create a directory and its parents, and sync each of them."""
        if path.is_dir():
            return
        if path.parent != path:
            self._make_directory(path.parent)
        path.mkdir(self._mode_of(path), exist_ok=True)
        _sync(path.parent)

    def _mode_of(self, directory: Path) -> int:
        """Return the permission bits of a new directory; the umask applies."""
        if directory == self._root:
            return 0o700
        return self._root.stat().st_mode & 0o777 if directory.is_relative_to(self._root) else 0o777

    def _get(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failure("read", path, error) from error

    def _delete(self, path: Path) -> None:
        try:
            path.unlink()
            _sync(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failure("delete", path, error) from error

    def _sweep_stale(self) -> int:
        oldest = time.time() - _STALE_AFTER_S
        removed = 0
        try:
            for entry in os.scandir(self._temporary):
                # Another sweep may have removed it.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry).unlink()
                        removed += 1
        except FileNotFoundError:
            return removed
        except OSError as error:
            raise _failure("sweep_stale", self._temporary, error) from error
        return removed


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    # Imported here so that `import lash` stays fast.
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)


def _holds(path: Path, content: bytes) -> bool:
    """Return whether the file exists and is whole; sync it in that case, because its writer may have died before."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != len(content) or file.read() != content:
                return False
            os.fsync(file.fileno())
            return True
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    """Sync a file or a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failure(what: str, path: Path, error: OSError) -> StorageFailure:
    return StorageFailure(f"cannot {what} {path}: {error.strerror or error}")

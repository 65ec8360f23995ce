"""Exports, imports, copies and moves with a progress bar."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lash.base.file_rights import create_copy, name_copy, partial_name
from lash.cli import exits
from lash.cli.bar import Bar, drawn
from lash.cli.exits import CommandFailed, OutputClosed
from lash.cli.ids import SESSION
from lash.cli.url import is_postgres, sqlite_path
from lash.connect.open import open_storage
from lash.transfer import (
    CopyReport,
    Exported,
    Imported,
    MoveReport,
    Progress,
    copy_storage,
    export_session,
    import_session,
    move_storage,
)

if TYPE_CHECKING:
    from lash.cli.shell import Shell
    from lash.stores.storage import Storage


async def export_to(shell: Shell, session_id: str, target: str, *, with_queue: bool) -> Exported:
    """Write a session to a file that does not exist yet, whole or not at all, or to standard output."""
    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        try:
            with _new_file(target, _file_of(shell.url)) as stream, drawn() as bar:
                return await export_session(
                    storage, session_id, stream, with_queue=with_queue, progress=partial(_show, bar, "export")
                )
        except BrokenPipeError:
            raise OutputClosed from None


async def import_from(shell: Shell, source: str, session_id: str | None) -> Imported:
    """Import a session from a file or from standard input."""
    async with shell.storage() as storage:
        with _opened(source) as stream, drawn() as bar:
            size = _size_of(stream)

            def show(progress: Progress) -> None:
                if progress.total is None and size is not None:
                    bar.show("read", stream.tell(), size)
                else:
                    _show(bar, "import", progress)

            return await import_session(storage, stream, session_id=session_id, progress=show)


async def copy_to(shell: Shell, target_url: str) -> CopyReport:
    """Copy the storage into another one, which is created if it does not exist."""
    if shell.checked(target_url) == shell.url:
        raise CommandFailed(exits.USAGE, "a storage cannot be copied into itself; name another one")
    async with shell.storage() as storage, await _open_target(shell, target_url) as target:
        with drawn() as bar:
            return await copy_storage(storage, target, progress=partial(_show, bar, "copy"))


async def move_to(shell: Shell, target_url: str) -> MoveReport:
    """Move the storage into an empty one, which is created if it does not exist."""
    if shell.checked(target_url) == shell.url:
        raise CommandFailed(exits.USAGE, "a storage cannot be moved into itself; name another one")
    async with shell.storage() as storage, await _open_target(shell, target_url) as target:
        with drawn() as bar:
            return await move_storage(storage, target, progress=partial(_show, bar, "move"))


async def _open_target(shell: Shell, url: str) -> Storage:
    """Open the storage to copy into. If its file has to be created, it is open to no more users than the source."""
    file = _file_of(url)
    if file is not None:
        # Opening the storage reports what is wrong with the directory.
        with contextlib.suppress(OSError):
            os.close(create_copy(file, _file_of(shell.url)))
    return await open_storage(url, sealer=shell.sealer())


def _file_of(url: str) -> str | None:
    """Return the file of a SQLite storage; None on PostgreSQL."""
    return None if is_postgres(url) else sqlite_path(url)


def _show(bar: Bar, verb: str, progress: Progress) -> None:
    bar.show(f"{verb} {progress.noun}s", progress.done, progress.total)


def _size_of(stream: BinaryIO) -> int | None:
    """Return the size of a file; None if it is not a regular file, such as a pipe."""
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextlib.contextmanager
def _new_file(target: str, source: str | None) -> Iterator[BinaryIO]:
    """Open a temporary file with the rights of the source; it gets its final name once it is complete and synced."""
    if target == "-":
        if sys.stdout.isatty():
            # The file has the stored text as it is.
            raise CommandFailed(exits.USAGE, "standard output is a terminal; redirect it, or name a file")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    file = Path(target)
    taken = CommandFailed(exits.CONFLICT, f"{target} already exists; name another file or remove it")
    if os.path.lexists(file):
        raise taken
    partial = partial_name(file)
    try:
        with os.fdopen(create_copy(partial, source), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        name_copy(partial, file)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise CommandFailed(exits.ERROR, f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as stream:
            yield stream
    except OSError as error:
        raise CommandFailed(exits.ERROR, f"{source} cannot be read: {error.strerror or error}") from error

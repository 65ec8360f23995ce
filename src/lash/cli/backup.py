"""``lash db backup`` and ``restore``: copies a SQLite storage while it is in use, and puts a copy in its place."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from lash.base.file_rights import create_copy, create_replacement, name_copy, partial_name, rights_of
from lash.base.ids import new_id
from lash.cli import exits
from lash.cli.bar import busy
from lash.cli.exits import CommandFailed
from lash.cli.url import is_postgres, sqlite_path, without_password
from lash.errors import StoreError
from lash.sqlite.engine.errors import translate
from lash.sqlite.engine.write_lock import open_write_lock
from lash.sqlite.schema import APPLICATION_ID, MIGRATIONS, read_applied
from lash.sqlkit.migrations import load_migrations, pending
from lash.sqlkit.queries import load_queries

if TYPE_CHECKING:
    from lash.cli.shell import Shell

_PAGES_AT_ONCE: Final = 512
_LOCK_TIMEOUT_MS: Final = 5_000
_EPOCH_TABLE: Final = "lash_process_change_epoch"


async def copy_storage(shell: Shell, target: str) -> int:
    """Copy the storage to a new file, verify the copy, and return its size."""
    path = _path_of(shell, f"pg_dump --format=custom --schema={{schema}} --file={shlex.quote(target)} {{url}}")
    file = _new_file(path, target)
    partial = partial_name(file)
    try:
        os.close(create_copy(partial, path))
        await _copy(shell, "backup", path, partial)
        return _named(partial, file)
    finally:
        _remove(partial)


async def restore_storage(shell: Shell, source: str, *, dry_run: bool, yes: bool) -> str | None:
    """Put a verified copy of a backup in the place of the storage; return where the old file is kept, if there was one.

    The write lock is held meanwhile, so that no worker opens the file that is about to be replaced. The restored file
    has the rights of the replaced one, or those of the backup within the umask if there was none.
    """
    path = _path_of(shell, f"pg_restore --clean --if-exists --dbname={{url}} {shlex.quote(source)}")
    async with busy("verify the backup"):
        problems = await examine(source)
    if problems:
        raise CommandFailed(exits.ERROR, f"cannot restore {source}: {problems[0]}")
    target, kept = _places(path)
    if not dry_run:
        question = "Restore a new storage?" if kept is None else f"Replace {target} by {source}?"
        shell.confirm(question, yes=yes)
        await _replace(shell, source, target, kept)
    return None if kept is None else str(kept)


def _places(path: str) -> tuple[Path, Path | None]:
    """Return the file to restore, and the new name of the present file."""
    target = Path(path).resolve()
    ending = time.strftime("replaced-%Y%m%d-%H%M%S", time.gmtime())
    return target, _beside(target, ending) if target.exists() else None


async def _replace(shell: Shell, source: str, target: Path, kept: Path | None) -> None:
    partial = partial_name(target)
    write_lock = open_write_lock(str(target), timeout_ms=_LOCK_TIMEOUT_MS)
    try:
        write_lock.acquire()
        old = rights_of(target)
        os.close(create_copy(partial, source) if old is None else create_replacement(partial, old))
        await _copy(shell, "restore", source, partial)
        _begin_epoch(partial)
        _swap(partial, target, kept)
        write_lock.match_rights()
    finally:
        write_lock.close()
        _remove(partial)


async def examine(path: str) -> list[str]:
    """Return the problems of a file that should hold a storage; empty if there are none."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        return [str(translate(error, path))]
    try:
        return await _interruptible(connection, lambda: _examined(connection, path))
    except apsw.Error as error:
        return [str(translate(error, path))]
    except StoreError as error:
        return [str(error)]
    finally:
        connection.close()


async def _interruptible(connection: apsw.Connection, work: Callable[[], list[str]]) -> list[str]:
    """Run long work of SQLite in a thread; a cancellation interrupts it."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        connection.interrupt()
        await asyncio.wait({working})
        working.exception()
        raise


def _examined(connection: apsw.Connection, path: str) -> list[str]:
    if connection.pragma("application_id") != APPLICATION_ID:
        return [f"{path} is not a storage of lash"]
    lines = [str(line) for (line,) in connection.execute("PRAGMA integrity_check").fetchall()]
    problems = [line for line in lines if line != "ok"]
    for table, row, parent, _key in connection.execute("PRAGMA foreign_key_check").fetchall():
        problems.append(f"row {row} of {table} refers to a missing row of {parent}")
    # Raises NewerSchema if this version cannot read it.
    pending(read_applied(connection, load_queries("lash.sqlite.sql")), load_migrations(MIGRATIONS))
    return problems


async def _copy(shell: Shell, label: str, source: str, partial: Path) -> None:
    """Copy a snapshot of a database to an empty file, synced when this returns, and verify the copy."""
    try:
        await _copy_pages(shell, label, source, partial)
    except apsw.Error as error:
        raise translate(error, f"copying {source}") from error
    async with busy("verify the copy"):
        problems = await examine(str(partial))
    if problems:
        raise CommandFailed(exits.ERROR, f"the copy of {source} is damaged: {problems[0]}")


async def _copy_pages(shell: Shell, label: str, source: str, partial: Path) -> None:
    origin = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READONLY)
    copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        origin.set_busy_timeout(_LOCK_TIMEOUT_MS)
        # One read transaction: concurrent writes are not in the copy and do not restart it.
        origin.execute("BEGIN")
        pages = origin.pragma("page_count")
        with shell.progress(label, pages) as step, copy.backup("main", origin, "main") as running:
            while not running.done:
                before = running.remaining or pages
                running.step(_PAGES_AT_ONCE)
                step(before - running.remaining)
                # Ctrl-C is noticed here.
                await asyncio.sleep(0)
        origin.execute("ROLLBACK")
        # Without a write-ahead log the copy is a single file.
        copy.pragma("journal_mode", "delete")
    finally:
        copy.close()
        origin.close()
    _sync(partial)


def _begin_epoch(partial: Path) -> None:
    """Let cursors of observers that have seen more than the backup holds, or something else, get a gap."""
    copy = apsw.Connection(str(partial))
    try:
        queries = load_queries("lash.sqlite.sql")
        # A backup of an older version has no epoch; its migration begins one.
        if copy.table_exists(None, _EPOCH_TABLE):
            copy.execute(queries["change_begin_epoch"], {"epoch": new_id()})
    finally:
        copy.close()
    _sync(partial)


def _swap(partial: Path, target: Path, kept: Path | None) -> None:
    """Rename the old file, if there is one, and give its name to the copy."""
    if kept is not None:
        _close_log(target)
        target.rename(kept)
    partial.rename(target)
    _sync(target.parent)


def _close_log(target: Path) -> None:
    """Checkpoint the old file, which works only while no other program has it open."""
    old = apsw.Connection(str(target))
    try:
        mode = old.pragma("journal_mode", "delete")
    except apsw.Error as error:
        if not isinstance(error, apsw.BusyError | apsw.LockedError):
            raise translate(error, f"closing {target}") from error
        mode = None
    finally:
        old.close()
    if mode != "delete":
        raise CommandFailed(exits.CONFLICT, f"{target} is in use; stop the workers and programs that have it open")


def _path_of(shell: Shell, command: str) -> str:
    """Return the file of the storage; for PostgreSQL raise an error with the command to use instead."""
    url = shell.url
    if is_postgres(url):
        from lash.postgres.engine.options import PostgresOptions

        options = PostgresOptions.from_url(url)
        instead = command.format(schema=shlex.quote(options.schema), url=shlex.quote(without_password(options.dsn)))
        raise CommandFailed(
            exits.USAGE,
            f"this is for SQLite; on PostgreSQL run: {instead} (the password comes from PGPASSWORD or ~/.pgpass)",
        )
    path = sqlite_path(url)
    assert path is not None
    return path


def _new_file(path: str, target: str) -> Path:
    """Return the file to copy to; raise if there is no storage or the name is taken."""
    if not Path(path).exists():
        raise CommandFailed(exits.SCHEMA, "no storage at this URL; create it with: lash init")
    file = Path(target)
    if os.path.lexists(file):
        raise CommandFailed(exits.CONFLICT, f"{target} already exists; name a new file")
    return file


def _named(partial: Path, file: Path) -> int:
    """Give a finished copy its name, unless it is taken by now, and return its size."""
    try:
        name_copy(partial, file)
    except FileExistsError:
        raise CommandFailed(exits.CONFLICT, f"{file} already exists; name a new file") from None
    _sync(file.parent)
    return file.stat().st_size


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(f"{file.name}.{ending}")


def _remove(partial: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        partial.with_name(partial.name + ending).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

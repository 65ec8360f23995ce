"""Opens connections, all with the same settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from lash.errors import StorageFailure
from lash.sqlite.engine.options import SQLiteOptions

Prepare = Callable[[apsw.Connection, bool], None]
"""Creates or checks the tables. The second argument is True if the database is empty."""

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05
"""The pause between two tries to switch to WAL doubles up to this; the lock is held for milliseconds."""
_PAGE_BYTES: Final = 1024
"""A turn changes a few bytes in each of some 40 pages, which go to the log whole. A file keeps its page size."""
_CACHED_STATEMENTS: Final = 512
"""More than there are named queries, so that each is compiled once for each connection."""


def open_memory(options: SQLiteOptions, prepare: Prepare) -> apsw.Connection:
    """Open a new database in memory and prepare it."""
    connection = apsw.Connection(":memory:", statementcachesize=_CACHED_STATEMENTS)
    try:
        _configure(connection, options)
        _configure_sync(connection, options)
        prepare(connection, True)
    except BaseException:
        connection.close()
        raise
    return connection


def open_writer(path: str, options: SQLiteOptions, prepare: Prepare) -> apsw.Connection:
    """Open the file for writing, create it if needed, prepare it and switch it to the write-ahead log.

    A file that already holds tables is switched only after ``prepare`` has accepted it, so that the
    database of another program stays unchanged.
    """
    connection = apsw.Connection(path, statementcachesize=_CACHED_STATEMENTS)
    try:
        _configure(connection, options)
        _configure_sync(connection, options)
        _check_writable(connection, path)
        new = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
        if new:
            connection.pragma("page_size", _PAGE_BYTES)
            switch_to_wal(connection, path, options.busy_timeout_ms)
            _sync_directory(path)
        prepare(connection, new)
        if not new:
            switch_to_wal(connection, path, options.busy_timeout_ms)
        # Checkpoints run after the callers have their outcomes (`wal`), not in the middle of a commit.
        connection.wal_autocheckpoint(0)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str, options: SQLiteOptions) -> apsw.Connection:
    """Open the file for reading only; the writer has created and prepared it."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, statementcachesize=_CACHED_STATEMENTS)
    try:
        _configure(connection, options)
        connection.pragma("query_only", 1)
    except BaseException:
        connection.close()
        raise
    return connection


def switch_to_wal(connection: apsw.Connection, path: str, timeout_ms: int) -> None:
    """Turn the write-ahead log on. SQLite's busy timeout does not cover this step, so it is retried here."""
    deadline = time.monotonic() + timeout_ms / 1000
    pause = _FIRST_PAUSE_S
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            continue
        if mode != "wal":
            raise StorageFailure(f"{path} cannot use a write-ahead log on this file system (mode {mode})")
        return


def _configure(connection: apsw.Connection, options: SQLiteOptions) -> None:
    connection.set_busy_timeout(options.busy_timeout_ms)
    # Strings in double quotes would hide a misspelt column; a hostile file must not run code through its schema.
    for setting in (apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL, apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA):
        connection.config(setting, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # Without this guarantee SQLite compiles a query again whenever an argument that bounds a range changes.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    connection.pragma("cell_size_check", 1)


def _configure_sync(connection: apsw.Connection, options: SQLiteOptions) -> None:
    """Choose when a connection that writes waits for the disk."""
    connection.pragma("synchronous", options.synchronous)
    if options.synchronous == "full":
        # macOS needs a stronger call than fsync to reach the disk; elsewhere these change nothing.
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)


def _check_writable(connection: apsw.Connection, path: str) -> None:
    # SQLite silently opens a file without write permission for reading.
    if connection.readonly("main"):
        raise StorageFailure(f"{path} is read-only")


def _sync_directory(path: str) -> None:
    """Make the name of a new file survive a power loss; SQLite does this for its log, not for the database."""
    if os.name != "posix":
        return
    directory = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    except OSError as error:
        raise StorageFailure(f"cannot make {path} durable: {error.strerror}") from error
    finally:
        os.close(directory)

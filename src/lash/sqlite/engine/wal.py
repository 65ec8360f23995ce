"""Keeping the write-ahead log short by checkpoints, and long enough for the next commits."""

from __future__ import annotations

import logging
from typing import Final

import apsw

from lash.sqlite.engine.log_space import LogSpace
from lash.sqlite.engine.options import SQLiteOptions
from lash.sqlite.engine.statements import Statements

_LOG = logging.getLogger(__name__)

_TOO_LONG: Final = 4
"""At how many times the usual length the log is emptied by force: readers that always overlap keep it in use."""
_PATIENCE_MS: Final = 100
"""How long that waits for readers; writers wait as long, so it is short."""


class WalCheckpointer:
    """Copies the log into the database when it has grown, on the writer's thread.

    SQLite restarts the log only at a moment when no reader uses it. With readers that always overlap that moment never
    comes. A log of more than four times the usual length is therefore emptied by force: new readers use the database
    file, and the writer waits a little for the readers that are left.
    """

    def __init__(self, connection: apsw.Connection, path: str, statements: Statements, options: SQLiteOptions) -> None:
        self._connection = connection
        self._space = LogSpace(connection, path, options)
        self._statements = statements
        self._step = options.checkpoint_pages
        self._busy_timeout_ms = options.busy_timeout_ms
        self._pages = 0
        self._due_at = self._step
        # Set after "wal_autocheckpoint", which uses the same hook.
        connection.set_wal_hook(self._note_length)

    @property
    def is_due(self) -> bool:
        """Whether the log has grown enough, or needs space."""
        return self._pages >= self._due_at or self._space.is_due

    def run_if_due(self) -> None:
        """Checkpoint if the log has grown enough, and make space in it if little is left.

        A failure is logged; the next checkpoint makes up for it.
        """
        if self._pages >= self._due_at:
            self._checkpoint()
        if self._space.is_due:
            self._space.make()

    def _checkpoint(self) -> None:
        self._due_at = self._pages + self._step
        try:
            self._statements.announce("checkpoint")
            if self._pages > _TOO_LONG * self._step:
                self._empty()
            else:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            _LOG.debug("the write-ahead log holds %d pages still in use by readers", self._pages)
        except Exception:  # noqa: BLE001
            _LOG.exception("the write-ahead log holds %d pages and could not be checkpointed", self._pages)

    def _empty(self) -> None:
        self._connection.set_busy_timeout(min(_PATIENCE_MS, self._busy_timeout_ms))
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._connection.set_busy_timeout(self._busy_timeout_ms)

    def _note_length(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        if pages < self._pages:
            self._due_at = self._step
        self._pages = pages
        self._space.note(pages)
        return apsw.SQLITE_OK

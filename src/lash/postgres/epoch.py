"""Ties the change feed to its server.

The positions of the feed are transaction ids. They mean nothing on another server, and a table that was restored or
copied on the same server holds only a part of the changes that its readers saw. So the storage records where its feed
was begun, and opening compares that with where it is now. If they differ, the feed is rebased: every stored change is
put before all transactions of this server, and a new epoch begins, so that every older cursor gets a gap.

A physical standby has the identifier, the tables and the transaction ids of its primary, so that its promotion changes
nothing. A cursor that names a change which the promotion lost gets a gap when it is read.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from lash.base.ids import new_id
from lash.errors import StorageFailure
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Number

_LOG: Final = logging.getLogger("lash.postgres")
_REBASED_AT_ONCE: Final = 10_000
"""How many entries one statement rebases: a fraction of a second, far below the time limit of a statement."""


class _Epoch(msgspec.Struct, frozen=True, array_like=True):
    """Where the feed was begun and where the storage is now; ``system_id`` is None where it could not be read."""

    epoch: str
    system_id: str | None
    place: str
    current_system_id: str | None
    current_place: str
    has_unknown_transactions: bool
    """A change has a transaction id that this server has not given out yet."""

    @property
    def is_over(self) -> bool:
        is_another_server = None not in {self.system_id, self.current_system_id} and (
            self.system_id != self.current_system_id
        )
        return is_another_server or self.place != self.current_place or self.has_unknown_transactions

    @property
    def is_complete(self) -> bool:
        return self.system_id is not None or self.current_system_id is None


async def check_epoch(database: Database) -> None:
    """Rebase the change feed if the storage is not where the feed was begun; one read if it is.

    Of several processes that find it so, one rebases. A role that may not write leaves the feed as it is, and says so.
    """
    found = await database.read_one(_Epoch, "change_epoch")
    if found is not None and not found.is_over and found.is_complete:
        return
    try:
        rebased = await _renew_epoch(database)
    except StorageFailure as failure:
        _LOG.warning(
            "the change feed of schema %r was begun on another server and could not be rebased (%s); "
            "observers may miss changes until a role that may write opens the storage",
            database.options.schema,
            failure,
        )
        return
    if rebased:
        _LOG.warning(
            "the storage in schema %r was restored or copied; its change feed begins a new epoch, "
            "and observers with an older cursor get a gap",
            database.options.schema,
        )


async def _renew_epoch(database: Database) -> bool:
    """Rebase the feed, or complete the record of where it was begun; return whether it was rebased."""
    schema = database.options.schema
    async with database.transaction() as transaction:
        await transaction.run("schema_lock", schema)
        # Read again under the lock: another process may have done it.
        found = await transaction.one(_Epoch, "change_epoch")
        is_over = found is None or found.is_over
        if is_over:
            await _rebase(transaction)
        if found is None or is_over or not found.is_complete:
            epoch = new_id() if found is None or is_over else found.epoch
            await transaction.run("change_begin_epoch", epoch, schema)
        return is_over


_REBASES: Final = (
    "change_rebase_events",
    "change_rebase_starts",
    "change_rebase_ends",
    "change_rebase_registrations",
    "change_rebase_others",
)
"""One for each place that has entries of the feed."""


async def _rebase(transaction: Transaction) -> None:
    earlier = await transaction.one(Number, "change_rebased")
    for query in _REBASES:
        while (moved := await transaction.one(Number, query, _REBASED_AT_ONCE)) is not None and moved.number:
            pass
    await transaction.run("change_rebase_floor", 0 if earlier is None else earlier.number)
    last: int | None = 0
    while last is not None:
        page = await transaction.one(_LastRebased, "change_rebase_sessions", last, _REBASED_AT_ONCE)
        last = None if page is None else page.key
    while await transaction.run("change_forget_deletions", _REBASED_AT_ONCE):
        pass


class _LastRebased(msgspec.Struct, frozen=True, array_like=True):
    key: int | None

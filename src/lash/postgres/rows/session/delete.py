"""Deleting sessions on PostgreSQL.

Most sessions have no ties: no schedules, subscriptions, processes, queued wakes or forks. Up to 16 of them are deleted
by one statement in one round trip. Any other one is deleted in steps, in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from lash.errors import StorageFailure, StoreError, StoreUnavailable
from lash.plan.session.delete import Deletion, DeletionFacts, choose_deletion
from lash.postgres.cache import HeadCache
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.fork import drop_runs, reclaim_graphs
from lash.postgres.rows.trigger.trigger import delete_subscriptions
from lash.sqlkit.rows import Text

_MAX_TOGETHER: Final = 16
"""How many sessions one statement deletes at most: with more, one locked session would hold up too many others."""


class LockAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A session that is locked for its deletion, and its last fencing number."""

    session_key: int
    fencing: int


class TiesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Which rows of other nouns must be deleted or detached before a session is deleted."""

    has_declarations: bool
    has_processes: bool


class BuriedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Whether forks inherit the graph of a deleted session, and the last run that it inherited."""

    has_heirs: bool
    run_key: int | None


class _Refused(Exception):
    """Rolls back the deletion of a session that is not expired any more, or whose lease is live."""


class PostgresDeletions:
    """Deletes the sessions of one PostgreSQL storage."""

    def __init__(self, database: Database, heads: HeadCache) -> None:
        self._database = database
        self._heads = heads

    async def delete(self, session_id: str) -> bool:
        return await self._delete_some([session_id], only_expired=False) != []

    async def delete_many(self, session_ids: Sequence[str], *, only_expired: bool = False) -> list[str]:
        deleted: list[str] = []
        for start in range(0, len(session_ids), _MAX_TOGETHER):
            deleted += await self._delete_some(session_ids[start : start + _MAX_TOGETHER], only_expired=only_expired)
        return deleted

    async def delete_expired(self, limit: int) -> list[str]:
        found = await self._database.read_all(Text, "session_expired", limit)
        return await self.delete_many([row.text for row in found], only_expired=True)

    async def _delete_some(self, session_ids: Sequence[str], *, only_expired: bool) -> list[str]:
        """Delete sessions together; one by one if that fails, so that only the one that fails is left."""
        try:
            return await self._delete_together(session_ids, only_expired=only_expired)
        except StoreError as error:
            is_unknown = isinstance(error, StoreUnavailable | StorageFailure) and error.outcome_unknown
            if len(session_ids) == 1 or is_unknown:
                raise
        alone = [await self._delete_together([each], only_expired=only_expired) for each in session_ids]
        return [session_id for deleted in alone for session_id in deleted]

    async def _delete_together(self, session_ids: Sequence[str], *, only_expired: bool) -> list[str]:
        for session_id in session_ids:
            self._heads.forget(session_id)
        # A repetition could delete a session that was created with the same id in between.
        facts = await self._database.write_under_locks(
            DeletionFacts, "session_delete_untied", list(session_ids), only_expired, repeatable=False
        )
        return [each.session_id for each in facts if await self._is_deleted(each, only_expired=only_expired)]

    async def _is_deleted(self, facts: DeletionFacts, *, only_expired: bool) -> bool:
        """Return whether the session is deleted, after what is left to do for it."""
        match choose_deletion(facts):
            case Deletion.DONE:
                return True
            case Deletion.NOTHING:
                return False
            case Deletion.STEPWISE:
                return await self._delete_stepwise(facts.session_id, only_expired=only_expired)

    async def _delete_stepwise(self, session_id: str, *, only_expired: bool) -> bool:
        with suppress(_Refused):
            async with self._database.transaction() as transaction:
                if await _delete(transaction, self._database.options.schema, session_id, only_expired=only_expired):
                    return True
                if only_expired:
                    raise _Refused
        return False


async def _delete(transaction: Transaction, schema: str, session_id: str, *, only_expired: bool) -> bool:
    # The order of all nouns. From here on no schedule or subscription of the session can be created. A separate
    # statement, so that the next ones see what others committed while this one waited.
    await transaction.run("trigger_hold_session", session_id)
    await _untie(transaction, session_id)
    # Processes before the session, as an append that wakes it takes its locks; its wakes after it, as a commit.
    held = await transaction.one(LockAnswer, "session_lock", session_id, only_expired)
    await transaction.run("event_lose_session", session_id)
    if held is None:
        return False
    buried = await transaction.one(BuriedAnswer, "session_bury", held.session_key, held.fencing)
    if buried is None:
        return False
    owners = await drop_runs(transaction, schema, buried.run_key)
    keys = [held.session_key, *owners] if buried.has_heirs else owners
    await reclaim_graphs(transaction, schema, keys)
    return True


async def _untie(transaction: Transaction, session_id: str) -> None:
    """Delete the session's schedules and subscriptions and detach its processes, if it has any."""
    ties = await transaction.one(TiesAnswer, "session_ties", session_id)
    if ties is None or ties.has_declarations:
        # Schedules before subscriptions, as firing a schedule locks it and then the subscriptions.
        await transaction.run("schedule_delete_session", session_id)
        # Subscriptions before processes: an emission locks them, so the processes that it starts are visible below.
        await delete_subscriptions(transaction, session_id)
    if ties is None or ties.has_declarations or ties.has_processes:
        await transaction.run("grant_detach", session_id)

"""Dead letters on PostgreSQL, each change in one guarded statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lash.plan.queue.dead_letter import Burial, DeadLetterRow
from lash.plan.queue.queue import BatchRow
from lash.plan.sealed import DEAD_LETTER
from lash.plan.session.page import IdRange
from lash.postgres.engine.database import Database
from lash.postgres.rows.queue.queue import BatchesAnswer
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Text


class _ClaimedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The ids of the batches that a claim held."""

    held: list[str]


class _LettersAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some dead letters of a session that exists."""

    session_key: int
    letters: list[DeadLetterRow]


class PostgresDeadLetterRows:
    """The dead letters of one PostgreSQL storage; the contract is `lash.stores.queue.DeadLetterRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def bury(self, burial: Burial, decide: Callable[[Sequence[str], Sequence[str]], bool]) -> None:
        session_id, token, batch_ids = burial.claim.session_id, burial.claim.token, burial.batch_ids
        seals = self._database.seals
        # A retry after a lost connection is harmless: it finds that the batches died under this claim.
        answer = await self._database.write_one(
            _ClaimedAnswer,
            "dead_letter_bury",
            *(session_id, token, burial.claim.claim_id, batch_ids),
            *(seals.text(DEAD_LETTER, burial.reason), seals.text(DEAD_LETTER, burial.error)),
            repeatable=True,
        )
        if answer is None:
            raise await missing(self._database, session_id)
        if set(answer.held) != set(batch_ids):
            # A separate read: the statement above may have waited for the one that buried them, and does not see it.
            buried = await self._database.read_all(Text, "dead_letter_of_claim", session_id, batch_ids, token)
            decide(answer.held, [row.text for row in buried])

    async def page(
        self, session_id: str | None, ids: IdRange | None, limit: int, after: int
    ) -> Sequence[DeadLetterRow]:
        if ids is not None:
            return await self._database.read_all(DeadLetterRow, "dead_letter_page_prefix", after, limit, *ids)
        if session_id is None:
            return await self._database.read_all(DeadLetterRow, "dead_letter_page", after, limit)
        arguments = (session_id, after, limit)
        answer = await self._database.read_one(_LettersAnswer, "dead_letter_page_of_session", *arguments)
        if answer is None:
            raise await missing(self._database, session_id)
        return answer.letters

    async def revive(self, session_id: str, batch_id: str) -> BatchRow | None:
        arguments = (session_id, batch_id)
        answer = await self._database.write_one(BatchesAnswer, "dead_letter_revive", *arguments, repeatable=False)
        if answer is None:
            raise await missing(self._database, session_id)
        return answer.batches[0] if answer.batches else None

    async def remove(self, session_id: str, batch_id: str) -> bool:
        removed = await self._database.write_one(Flag, "dead_letter_remove", session_id, batch_id, repeatable=False)
        if removed is None:
            raise await missing(self._database, session_id)
        return removed.value

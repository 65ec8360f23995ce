"""Dead letters on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lash.errors import CorruptData
from lash.plan.queue.claim import HeldBatch
from lash.plan.queue.dead_letter import Burial, DeadLetterRow, RemovedRow
from lash.plan.queue.queue import BatchRow
from lash.plan.sealed import DEAD_LETTER
from lash.plan.session.page import IdRange
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.queue.queue import mark_cancelled
from lash.sqlite.rows.session.lookup import find_head
from lash.sqlkit.rows import Text


class SQLiteDeadLetterRows:
    """The dead letters of one SQLite storage; the contract is `lash.stores.queue.DeadLetterRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def bury(self, burial: Burial, decide: Callable[[Sequence[str], Sequence[str]], bool]) -> None:
        claim, batch_ids = burial.claim, json_array(burial.batch_ids)

        def body(transaction: Transaction) -> None:
            key = find_head(transaction, claim.session_id).session_key
            claims = json_array([(claim.token, claim.claim_id)])
            held = transaction.all(HeldBatch, "commit_held", session_key=key, claims=claims)
            buried = transaction.all(
                Text, "dead_letter_of_claim", session_key=key, claim_token=claim.token, batch_ids=batch_ids
            )
            if not decide([row.batch_id for row in held], [row.text for row in buried]):
                return
            transaction.run(
                "dead_letter_bury",
                session_key=key,
                claim_token=claim.token,
                reason=transaction.seals.text(DEAD_LETTER, burial.reason),
                error=transaction.seals.text(DEAD_LETTER, burial.error),
                now_ms=transaction.now_ms,
            )
            transaction.run("commit_consume", session_key=key, tokens=json_array([claim.token]))

        await self._database.write_briefly(body)

    async def page(
        self, session_id: str | None, ids: IdRange | None, limit: int, after: int
    ) -> Sequence[DeadLetterRow]:
        def body(reader: Reader) -> Sequence[DeadLetterRow]:
            if ids is not None:
                return reader.all(
                    DeadLetterRow, "dead_letter_page_prefix", first=ids.first, end=ids.end, limit=limit, after=after
                )
            if session_id is None:
                return reader.all(DeadLetterRow, "dead_letter_page", limit=limit, after=after)
            key = find_head(reader, session_id).session_key
            return reader.all(DeadLetterRow, "dead_letter_page_of_session", session_key=key, limit=limit, after=after)

        return await self._database.read_in_thread(body)

    async def revive(self, session_id: str, batch_id: str) -> BatchRow | None:
        def body(transaction: Transaction) -> BatchRow | None:
            key = find_head(transaction, session_id).session_key
            row = transaction.one(BatchRow, "dead_letter_revive", session_key=key, batch_id=batch_id)
            if row is not None and _remove(transaction, key, batch_id) is None:
                raise CorruptData(f"dead letter {batch_id!r} was read and cannot be deleted")
            return row

        return await self._database.write_briefly(body)

    async def remove(self, session_id: str, batch_id: str) -> bool:
        def body(transaction: Transaction) -> bool:
            key = find_head(transaction, session_id).session_key
            removed = _remove(transaction, key, batch_id)
            if removed is None:
                return False
            mark_cancelled(transaction, key, batch_id, removed.source_key)
            return True

        return await self._database.write_briefly(body)


def _remove(transaction: Transaction, session_key: int, batch_id: str) -> RemovedRow | None:
    return transaction.one(RemovedRow, "dead_letter_remove", session_key=session_key, batch_id=batch_id)

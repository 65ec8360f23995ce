"""The acts of operators on SQLite."""

from __future__ import annotations

import msgspec

from lash.errors import CorruptData
from lash.plan.act import ActDraft, ActRow
from lash.sqlite.engine.database import Database, SQLiteValue, Transaction


class SQLiteActRows:
    """The acts of one SQLite storage; the contract is `lash.stores.act.ActRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def insert(self, draft: ActDraft) -> ActRow:
        def body(transaction: Transaction) -> ActRow:
            row = transaction.one(ActRow, "act_insert", **msgspec.structs.asdict(draft), now_ms=transaction.now_ms)
            if row is None:
                raise CorruptData("query act_insert returned no row")
            return row

        return await self._database.write_briefly(body)

    async def settle(self, act_id: str, outcome: str, error: str | None) -> bool:
        return await self._database.write_briefly(
            lambda transaction: transaction.run("act_settle", act_id=act_id, outcome=outcome, error=error) > 0
        )

    async def page(self, before: int, limit: int) -> list[ActRow]:
        return await self._read("act_page", before=before, limit=limit)

    async def page_by_operator(self, operator: str, before: int, limit: int) -> list[ActRow]:
        return await self._read("act_page_by_operator", operator=operator, before=before, limit=limit)

    async def page_of_session(self, session_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]:
        return await self._read(
            "act_page_of_session", session_id=session_id, operator=operator, before=before, limit=limit
        )

    async def page_of_process(self, process_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]:
        return await self._read(
            "act_page_of_process", process_id=process_id, operator=operator, before=before, limit=limit
        )

    async def _read(self, query: str, **parameters: SQLiteValue) -> list[ActRow]:
        return await self._database.read_in_thread(lambda reader: reader.all(ActRow, query, **parameters))

    async def prune(self, before_ms: int, limit: int) -> int:
        return await self._database.write(
            lambda transaction: transaction.run("act_prune", before_ms=before_ms, limit=limit)
        )

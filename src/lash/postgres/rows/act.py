"""The acts of operators on PostgreSQL; the server's clock decides."""

from __future__ import annotations

import msgspec

from lash.errors import CorruptData
from lash.plan.act import ActDraft, ActRow
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag, Number


class PostgresActRows:
    """The acts of one PostgreSQL storage; the contract is `lash.stores.act.ActRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def insert(self, draft: ActDraft) -> ActRow:
        arguments = msgspec.structs.astuple(draft)
        row = await self._database.write_one(ActRow, "act_insert", *arguments, repeatable=True)
        if row is None:
            raise CorruptData("query act_insert returned no row")
        return row

    async def settle(self, act_id: str, outcome: str, error: str | None) -> bool:
        settled = await self._database.write_one(Flag, "act_settle", act_id, outcome, error, repeatable=True)
        return settled is not None

    async def page(self, before: int, limit: int) -> list[ActRow]:
        return await self._database.read_all(ActRow, "act_page", before, limit)

    async def page_by_operator(self, operator: str, before: int, limit: int) -> list[ActRow]:
        return await self._database.read_all(ActRow, "act_page_by_operator", operator, before, limit)

    async def page_of_session(self, session_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]:
        return await self._database.read_all(ActRow, "act_page_of_session", session_id, operator, before, limit)

    async def page_of_process(self, process_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]:
        return await self._database.read_all(ActRow, "act_page_of_process", process_id, operator, before, limit)

    async def prune(self, before_ms: int, limit: int) -> int:
        pruned = await self._database.write_one(Number, "act_prune", before_ms, limit, repeatable=True)
        return 0 if pruned is None else pruned.number

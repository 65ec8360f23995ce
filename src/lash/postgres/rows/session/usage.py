"""Sums of usage on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from lash.backend.usage import SUMS
from lash.plan.session.usage_sum import NO_DAY, PreparedSums, SumKey, UsageSumRow
from lash.postgres.engine.database import Database


class PostgresUsageRows:
    """The ledgers of one PostgreSQL storage; the contract is `lash.stores.usage.UsageRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sums(self, wanted: PreparedSums) -> Sequence[UsageSumRow]:
        chosen, after = wanted.chosen, wanted.after or SumKey(day=NO_DAY - 1)
        return await self._database.read_all(
            UsageSumRow,
            SUMS[wanted.way],
            *(sorted(wanted.by), wanted.is_timed, wanted.since_ms, wanted.until_ms, wanted.floor_ms),
            *(chosen.session_id, chosen.agent, chosen.model),
            *(after.day, after.model, after.agent, after.session_id, after.source, wanted.limit),
        )

"""A process that sends a write with an answer of 200 MB, and stops itself before it has read that.

``python -m tests.proof.faults.postgres.frozen_reader URL``
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import quote_identifier
from tests.engine.postgres.kit import Text, opened, raw_connection

# The pause before the answer: while it lasts, the statement is being executed and not merely prepared.
_RUNNING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reader' AND wait_event = 'PgSleep'"


async def read(url: str) -> None:
    """Send the statement, and stop as soon as the server runs it."""
    schema = quote_identifier(PostgresOptions.from_url(url).schema)
    async with opened(url) as database, raw_connection(url) as watcher:
        database.add_queries(
            {
                "long": f"WITH written AS (UPDATE {schema}.items SET n = n + 1 RETURNING 1) "
                "SELECT 1::bigint, repeat('x', 1000000) "
                "FROM written, (SELECT pg_sleep(2)) AS pause, generate_series(1, 200)"
            }
        )
        reading = asyncio.create_task(database.write_all(Text, "long", repeatable=False))
        while not await watcher.fetchval(_RUNNING):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        await reading


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))

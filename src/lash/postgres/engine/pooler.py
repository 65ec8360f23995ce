"""Finds the mode of a pooler that refuses session settings in the startup message."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.password import driver_password

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PlainConnection

_SERVER_LIMIT_S: Final = 3.0
"""How long a pooler may take to find a server connection for the second client."""
_ROUNDS: Final = 3
"""How often the server connections of two clients are compared."""
_BACKEND: Final = "SELECT pg_backend_pid()"


async def switches_backends(options: PostgresOptions) -> bool:
    """Return whether a client of the pooler gets another server connection for each transaction.

    A pooler in transaction mode gives the connection that one client has just used to the next one, and while that one
    is in a transaction, the first client gets another. In session mode each client keeps its own. Other clients can
    hide the difference once, and hardly several times.
    """
    async with AsyncExitStack() as stack:
        first = await _client(stack, options)
        before: int = await first.fetchval(_BACKEND)
        try:
            async with asyncio.timeout(_SERVER_LIMIT_S):
                second = await _client(stack, options)
                await second.execute("BEGIN")
        except TimeoutError:
            # The first client keeps the only server connection.
            return False
        for _ in range(_ROUNDS):
            if await second.fetchval(_BACKEND) == before or await first.fetchval(_BACKEND) != before:
                return True
            await second.execute("COMMIT")
            await second.execute("BEGIN")
        return False


async def _client(stack: AsyncExitStack, options: PostgresOptions) -> PlainConnection:
    connection = await asyncpg.connect(
        options.dsn,
        timeout=options.connect_timeout_s,
        server_settings={"application_name": options.application_name},
        password=driver_password(options),
        statement_cache_size=0,
        command_timeout=options.connect_timeout_s,
    )
    stack.callback(connection.terminate)
    return connection

"""Statements and transactions counted by the server, from its log.

The counters of `pg_stat_database` come up to ten seconds late from connections that are idle. The log has each
statement when it begins, with the virtual id of its transaction, so it can be counted at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg

from lash.testing.postgres_server import PostgresServer

PREFIX = "counted|%d|%v|"
_ON = (
    f"ALTER SYSTEM SET log_line_prefix = '{PREFIX}'",
    "ALTER SYSTEM SET log_parameter_max_length = 0",
    "SELECT pg_reload_conf()",
)
_OFF = (
    "ALTER SYSTEM RESET log_line_prefix",
    "ALTER SYSTEM RESET log_parameter_max_length",
    "SELECT pg_reload_conf()",
)


class Count(NamedTuple):
    """How many statements were run, in how many transactions. A statement that is only prepared is not counted."""

    statements: float
    transactions: float


class ServerLog:
    """The statements of one database since :meth:`mark`."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._line = re.compile(
            rf"^counted\|{re.escape(database)}\|(\d+/\d+)\|LOG:  (?:statement|execute [^:]*): ", re.MULTILINE
        )
        self._from = 0

    def mark(self) -> None:
        """Count from here."""
        self._from = len(self._server.log)

    def count(self) -> Count:
        """Return what was run since the mark."""
        ids = self._line.findall(self._server.log, self._from)
        return Count(len(ids), len(set(ids)))


@contextlib.contextmanager
def counted(server: PostgresServer, url: str) -> Iterator[ServerLog]:
    """Let the server log each statement of the connections that are made to a database from now on."""
    database = urlsplit(url).path.removeprefix("/")
    asyncio.run(_run(server.url, *_ON, f"ALTER DATABASE \"{database}\" SET log_statement = 'all'"))
    try:
        yield ServerLog(server, database)
    finally:
        asyncio.run(_run(server.url, *_OFF))


async def _run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()

"""Statements run past lash, to see or to damage what is really stored."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import apsw
import asyncpg

Row = tuple[Any, ...]


async def raw(url: str, statement: str, *, before: str | None = None) -> list[Row]:
    """Run one statement on a connection of its own; ``lash_…`` names are found in the storage's schema.

    ``before`` is a statement that prepares the connection.
    """
    if url.startswith("sqlite"):
        connection = apsw.Connection(urlsplit(url).path.removeprefix("/"))
        try:
            connection.set_busy_timeout(15_000)
            if before is not None:
                connection.execute(before)
            return [tuple(row) for row in connection.execute(statement)]
        finally:
            connection.close()
    parts = urlsplit(url)
    schema = dict(parse_qsl(parts.query))["schema"]
    server = await asyncpg.connect(parts._replace(query="").geturl(), server_settings={"search_path": schema})
    try:
        if before is not None:
            await server.execute(before)
        return [tuple(row) for row in await server.fetch(statement)]
    finally:
        await server.close()

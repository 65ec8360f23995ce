"""What a query costs: the instructions of SQLite, and the rows that PostgreSQL reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import apsw
import asyncpg

from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import PLANNING
from lash.sqlkit.queries import load_queries


async def cost(url: str, name: str, named: Mapping[str, apsw.SQLiteValue], placed: str) -> float:
    """Return the cost of a query, with its arguments on SQLite and those on PostgreSQL; roll it back."""
    return _steps(url, name, named) if url.startswith("sqlite") else await _most_rows(url, name, placed)


def _steps(url: str, name: str, arguments: Mapping[str, apsw.SQLiteValue]) -> int:
    """Return how many instructions SQLite runs."""
    text = load_queries("lash.sqlite.sql")[name]
    connection = apsw.Connection(urlsplit(url).path.removeprefix("/"))
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    try:
        connection.execute("BEGIN")
        # The first run is not counted: it reads the schema and compiles the query.
        for handler in (None, step):
            connection.set_progress_handler(handler, 1)
            connection.execute(text, dict(arguments)).fetchall()
    finally:
        connection.close()
    return count


async def _most_rows(url: str, name: str, arguments: str) -> float:
    """Return the most rows that a step of a prepared statement reads on PostgreSQL, planned as lash plans it."""
    options = PostgresOptions.from_url(url)
    text = load_queries("lash.postgres.sql", schema=options.schema)[name]
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema, **PLANNING})
    try:
        async with connection.transaction():
            await connection.execute(f"PREPARE asked AS {text}")
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({arguments})")
    finally:
        await connection.close()
    return _most(json.loads(explained)[0]["Plan"])


def _most(plan: dict[str, Any]) -> float:
    own: float = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return max([own, *(_most(child) for child in plan.get("Plans", ()))])

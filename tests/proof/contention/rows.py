"""Every row of a storage, read past lash."""

from __future__ import annotations

from tests.raw import Row, raw

_TABLES = {
    "sqlite": r"SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'lash\_%' ESCAPE '\'",
    "postgresql": "SELECT tablename::text FROM pg_tables"
    r" WHERE schemaname = current_schema() AND tablename LIKE 'lash\_%'",
}


async def tables(url: str) -> list[str]:
    """Return the names of all tables."""
    return sorted(name for (name,) in await raw(url, _TABLES[url.partition(":")[0]]))


async def all_rows(url: str) -> dict[str, list[Row]]:
    """Return all rows, sorted, but those of the registry: a worker that wakes up is a running worker again."""
    names = [name for name in await tables(url) if name != "lash_workers"]
    return {name: sorted(await raw(url, f'SELECT * FROM "{name}"'), key=repr) for name in names}

"""How many rows a process writes from its registration to its end."""

from __future__ import annotations

from collections import Counter

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions

_COUNT = """
CREATE TABLE written (name text NOT NULL, act text NOT NULL);
CREATE FUNCTION count_row() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN INSERT INTO written VALUES (TG_TABLE_NAME, lower(TG_OP)); RETURN NULL; END $$;
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'lash\\_%' LOOP
        EXECUTE format(
            'CREATE TRIGGER count_row AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION count_row()',
            name
        );
    END LOOP;
END $$;
"""
_WORKERS = "lash_workers"
"""The rows of running workers, which are renewed as time passes."""


async def _steps(ctx: lash.Context, count: int) -> int:
    for number in range(count):
        await ctx.step(f"step-{number}", _number)
    return count


async def _number() -> int:
    return 1


async def _written(url: str, steps: int) -> Counter[str]:
    """Run one process with a worker of its own application, and return the rows that it wrote, by table and act."""
    options = PostgresOptions.from_url(url)
    await (await lash.open(url)).close()
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute(_COUNT)
        async with lash.App(url) as app:
            program = app.process(_steps)
            assert await (await app.start(program, 0)).result() == 0
            await connection.execute("TRUNCATE written")
            assert await (await app.start(program, steps)).result() == steps
        rows = await connection.fetch("SELECT name, act FROM written WHERE name <> $1", _WORKERS)
    finally:
        await connection.close()
    return Counter(f"{act} {name}" for name, act in rows)


@pytest.mark.parametrize(("steps", "most"), [(0, 4), (10, 14)])
async def test_a_process_writes_few_rows(postgres_schema_url: str, steps: int, most: int) -> None:
    """A process writes its row and its lease twice, and one row for each step."""
    written = await _written(postgres_schema_url, steps)
    assert written.total() <= most, written

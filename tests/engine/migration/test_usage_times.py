"""The migration to times of usage keeps old entries, which have no day."""

from __future__ import annotations

import pytest

import lash
from lash.model.session.usage import TokenUsage, UsageSum
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms, agent)
    VALUES ('s', 'old', 1, '', '{"relation":{"kind":"root"}}', 2, 5, 'helper')
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    "INSERT INTO lash_usage SELECT session_key, 1, 0, 'turn', 'm', 3, 2, 1, 0 FROM lash_sessions",
    "INSERT INTO lash_usage_totals SELECT session_key, 'turn', 'm', 1, 0, 3, 2, 1, 0 FROM lash_sessions",
)


async def test_old_entries_have_no_day(backend_url: str, backend_name: str) -> None:
    """Their tokens count for their model and the agent of their session, and are left out where a time is given."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("usage_times")]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in before]
    stamp = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend_name == "sqlite" else []
    await execute(backend_url, [*(step.statement for step in before), *notes, *_OLD, *stamp])
    async with await lash.open(backend_url) as storage:
        old = TokenUsage(input_tokens=3, output_tokens=2, cached_input_tokens=1)
        found = await storage.usage.sum(["day", "model", "agent"])
        assert found.sums == (UsageSum(model="m", agent="helper", usage=old),)
        assert (await storage.usage.sum(["day"], since_ms=0)).sums == ()
        assert (await storage.usage.sum([], until_ms=2**60)).sums == ()
        assert await storage.maintenance.find_damage() == ()

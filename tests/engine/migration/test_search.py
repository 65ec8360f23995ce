"""The migration to text search indexes the sessions that are there."""

from __future__ import annotations

import pytest

import lash
from lash.model.session.session import SessionFilter
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, updated_at_ms, first_user_message, labels
    )
    VALUES
        ('s', 'old', 1, '', '{"relation":{"kind":"root"}}', 2, 5, 'Where is my money?', '{"team":"billing"}'),
        ('t', 'sealed', 1, '', '{"relation":{"kind":"root"}}', 2, 5, '~lash1~where', '{}'),
        ('u', 'new', 1, '', '{"relation":{"kind":"root"}}', 0, 5, '', '{}')
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s'), ('t'), ('u')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
)


async def test_old_sessions_are_found(backend_url: str, backend_name: str) -> None:
    """They have the words of their messages and labels; sealed messages have none."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("search")]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in before]
    stamp = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend_name == "sqlite" else []
    await execute(backend_url, [*(step.statement for step in before), *notes, *_OLD, *stamp])
    async with await lash.open(backend_url) as storage:
        for text in ("where", "billing money"):
            found = await storage.sessions.list(SessionFilter(text=text))
            assert [each.meta.session_id for each in found.sessions] == ["s"]
        await storage.sessions.delete("s")
        assert (await storage.sessions.list(SessionFilter(text="money"))).sessions == ()

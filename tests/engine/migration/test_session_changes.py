"""The migration to the feed of sessions: sessions from before are in it, deletions from before are not."""

from __future__ import annotations

import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.factories.session import node

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    VALUES ('{id}', 'old', 1, '', '{{"relation":{{"kind":"root"}}}}', 0, 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('{id}')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id = '{id}'",
)


async def test_old_sessions_come_first(backend_url: str, backend_name: str) -> None:
    """They are read in pages, by id, before every later change; each of them moves when it changes."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("session_changes")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    old = [statement.format(id=name) for name in ("c", "a", "b") for statement in _OLD]
    old.append("INSERT INTO lash_session_ids (session_id, deleted_at_ms) VALUES ('gone', 1)")
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        end = await storage.sessions.changes_cursor()
        assert (await storage.sessions.changes(end)).changes == ()
        first = await storage.sessions.changes(limit=1)
        await storage.session("b").append((node("n"),))
        rest = await storage.sessions.changes(first.cursor)
        shown = [*first.changes, *rest.changes]
        assert [(each.session_id, each.revision) for each in shown] == [("a", 0), ("c", 0), ("b", 1)]
        assert [each.session_id for each in (await storage.sessions.changes(end)).changes] == ["b"]

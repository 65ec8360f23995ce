"""The migration to owners and labels keeps the sessions that a storage already holds."""

from __future__ import annotations

import pytest

import lash
from lash.model.session.session import SessionFilter, SessionOrder
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref, updated_at_ms
    )
    VALUES ('{id}', 'old', 1, '', '{{"relation":{{"kind":"root"}}}}', 1, '{{}}', 'c', {at})
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('{id}')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id = '{id}'",
    """
    INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state)
    SELECT session_key, 1, 'c', '{state}' FROM lash_sessions WHERE session_id = '{id}'
    """,
)
_STATES = {
    "named": (5_000, '{"turn_index":1,"protocol_turn_options":{"agent":"helper"}}'),
    "number": (9_000, '{"protocol_turn_options":{"agent":7}}'),
    "plain": (1_000, "{}"),
}


async def test_old_sessions_are_kept_and_listed(backend_url: str, backend_name: str) -> None:
    """A session has no owner and no labels, the agent of its checkpoint, and its place in the order of activity."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("session_labels")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    old = [statement.format(id=name, at=at, state=state) for name, (at, state) in _STATES.items() for statement in _OLD]
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        page = await storage.sessions.list(order=SessionOrder.ACTIVE)
        assert [(each.meta.session_id, each.agent) for each in page.sessions] == [
            ("number", None),
            ("named", "helper"),
            ("plain", None),
        ]
        assert {(each.meta.owner, len(each.meta.labels), each.meta.expires_at_ms) for each in page.sessions} == {
            (None, 0, None)
        }
        await storage.session("plain").edit(owner="ada", labels={"a": "b"})
        found = await storage.sessions.list(SessionFilter(owner="ada", labels={"a": "b"}))
        assert [each.meta.session_id for each in found.sessions] == ["plain"]

"""The migration to agents of input: what is queued is for the agent of its session."""

from __future__ import annotations

import pytest

import lash
from lash.model.lease import LeaseOwner
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms, agent)
    VALUES ('{id}', 'old', 1, '', '{{"relation":{{"kind":"root"}}}}', 0, 1, {agent})
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('{id}')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id = '{id}'",
    """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, claim_count, payloads
    )
    SELECT
        session_key, 'b', 'late', 'after_current_turn_commit', 'exclusive', 0, 1, 0,
        '{{"payloads":[{{"kind":"turn_input","items":[]}}]}}'
    FROM lash_sessions WHERE session_id = '{id}'
    """,
)


async def test_queued_input_has_the_agent_of_its_session(backend_url: str, backend_name: str) -> None:
    """A worker for this agent finds it; input of a session without a turn is found by workers that take all."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("agents_of_input")]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in before]
    stamp = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend_name == "sqlite" else []
    sessions = {"known": "'clerk'", "new": "NULL"}
    old = [statement.format(id=name, agent=agent) for name, agent in sessions.items() for statement in _OLD]
    await execute(backend_url, [*(step.statement for step in before), *notes, *old, *stamp])
    async with await lash.open(backend_url) as storage:
        owner = LeaseOwner(owner_id="o", incarnation_id="1")
        work = await storage.work.poll(sessions=9, processes=0, owner=owner, agents=("clerk",))
        assert work.session_ids == ("known",)
        work = await storage.work.poll(sessions=9, processes=0, owner=owner)
        assert sorted(work.session_ids) == ["known", "new"]
        assert await storage.queue.ready_agents() == ("clerk", None)

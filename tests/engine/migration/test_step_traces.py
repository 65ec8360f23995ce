"""The migration to traces keeps recorded steps and turns, which have no measurement."""

from __future__ import annotations

import pytest

import lash
from lash.model.effect import TurnScope
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_ENVELOPE = (
    '{"command":{"kind":"step","name":"n"},"replay_key":"k","scope":{"session_id":"s","turn_id":"t","type":"turn"}}'
)
_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref, updated_at_ms
    )
    VALUES ('s', 'old', 1, '', '{"relation":{"kind":"root"}}', 0, '{}', '', 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    """
    INSERT INTO lash_turns (session_key, turn_id, commit_hash, result, committed_at_ms)
    SELECT session_key, 'u', 'h', '{"revision":1,"parent_node_id":null}', 7 FROM lash_sessions
    """,
    f"""
    INSERT INTO lash_effects (
        scope_id, replay_key, session_key, envelope, envelope_hash, status, outcome, once, fencing, created_at_ms,
        updated_at_ms
    )
    SELECT 'turn:1:s:t', 'k', session_key, '{_ENVELOPE}', 'h', 'completed', '{{"outcome":1}}', FALSE, 0, 5, 6
    FROM lash_sessions
    """,
)


async def test_old_steps_and_turns_have_no_measurement(backend_url: str, backend_name: str) -> None:
    """What an earlier version recorded is read as before, without a start, an attempt, a worker and a trace."""
    is_sqlite = backend_name == "sqlite"
    schema = None if is_sqlite else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("step_traces")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    old = [each.replace("FALSE", "0") if is_sqlite else each for each in _OLD]
    if is_sqlite:
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        (record,) = await storage.effects.list(TurnScope(session_id="s", turn_id="t"))
        assert (record.outcome, record.created_at_ms, record.updated_at_ms) == (1, 5, 6)
        assert (record.began_at_ms, record.attempt, record.tries, record.worker) == (None, None, None, None)
        (turn,) = (await storage.session("s").turns(["u"])).values()
        assert (turn.revision, turn.committed_at_ms, turn.trace) == (1, 7, None)

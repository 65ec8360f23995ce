"""The migration that drops the check of node segments keeps the sessions that a storage already holds."""

from __future__ import annotations

import pytest

import lash
from lash.model.session.commit import ReplaceFull
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.factories.session import chain, commit, node
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)

_BODY = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"old"}}'
_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref,
        leaf_node_id, leaf_segment, leaf_depth, segment_count, node_seq, node_count, updated_at_ms
    )
    SELECT id, 'old', 1, '', '{"kind":"root"}', 1, '{}', 'c', 'a', 1, 0, 1, 1, 1, 1
    FROM unnest('{deleted,replaced,kept}'::text[]) AS id
    """,
    "INSERT INTO lash_session_ids (session_id) SELECT session_id FROM lash_sessions",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    "INSERT INTO lash_segments (session_key, segment) SELECT session_key, 1 FROM lash_sessions",
    f"""
    INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, user_message, body)
    SELECT session_key, 1, 0, 1, 'a', false, '{_BODY}' FROM lash_sessions
    """,
    """
    INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state)
    SELECT session_key, 1, 'c', '{"turn_index":1}' FROM lash_sessions
    """,
)
_LEFT = """
SELECT s.session_id, n.node_id, g.segment
FROM lash_nodes AS n
LEFT JOIN lash_sessions AS s USING (session_key)
LEFT JOIN lash_segments AS g USING (session_key, segment)
ORDER BY 1, 2
"""


async def test_old_nodes_are_kept_and_go_with_their_segments(backend_url: str) -> None:
    """Existing nodes stay; they are removed with a deleted session and with a replaced graph."""
    schema = PostgresOptions.from_url(backend_url).schema
    steps = load_migrations("lash.postgres.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("cheaper_commits")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *_OLD])
    async with await lash.open(backend_url) as storage:
        await storage.session("kept").commit(commit(1, node("b", "a"), session_id="kept"))
        graph = ReplaceFull(nodes=chain("new"), replaced_node_count=1, leaf_node_id="new")
        await storage.session("replaced").commit(commit(1, graph=graph, session_id="replaced"))
        assert await storage.sessions.delete("deleted")
    assert await raw(backend_url, _LEFT) == [("kept", "a", 1), ("kept", "b", 1), ("replaced", "new", 2)]

"""The migration to shared runs keeps what forks inherit."""

from __future__ import annotations

import hashlib

import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.factories.session import node
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_REF = hashlib.sha256(b"lash.checkpoint.v1\0{}").hexdigest()
_BODY = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"old"}}'
_SESSION = f"""
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref,
        leaf_node_id, leaf_segment, leaf_depth, segment_count, node_seq, node_count, updated_at_ms
    )
    VALUES ('%s', 'old', 1, '', '{{"relation":{{"kind":"root"}}}}', 1, '{{}}', '{_REF}', %s, 1)
    """
_NODE = f"""
    INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, kind)
    VALUES (%s, %s, '{_BODY}', 'plugin:note')
    """
# Session 1 has a and b. Session 2, a fork of it with c, is deleted. Session 3, a fork of that, has d.
_OLD = (
    _SESSION % ("s", "'b', 1, 1, 1, 2, 2"),
    _SESSION % ("t", "'c', 0, 2, 0, 1, 3"),
    _SESSION % ("u", "'d', 0, 3, 0, 1, 4"),
    "INSERT INTO lash_session_ids (session_id) SELECT session_id FROM lash_sessions",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    f"INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state) VALUES (1, 1, '{_REF}', '{{}}')",
    f"INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state) VALUES (3, 1, '{_REF}', '{{}}')",
    "INSERT INTO lash_segments (session_key, segment) VALUES (1, 1), (2, 0), (3, 0)",
    "INSERT INTO lash_inherited VALUES (2, 1, 1, -1, 1), (3, 2, 0, 1, 2), (3, 1, 1, -1, 1)",
    "DELETE FROM lash_inherited WHERE session_key = 2",
    "DELETE FROM lash_session_leases WHERE session_key = 2",
    "DELETE FROM lash_sessions WHERE session_id = 't'",
    "UPDATE lash_session_ids SET deleted_at_ms = 1, revision = 1 WHERE session_id = 't'",
)


async def test_forks_keep_what_they_inherit(backend_url: str, backend_name: str) -> None:
    """Paths across a deleted fork are whole, new forks share them, and the last deletion leaves nothing."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("shared_runs")
    no = {"sqlite": "0", "postgres": "false"}[backend_name]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    rows = ("1, 1, 0, 1, 'a', NULL", "1, 1, 1, 2, 'b', 'a'", "2, 0, 2, 1, 'c', 'b'", "3, 0, 3, 1, 'd', 'c'")
    old = [*_OLD, *(_NODE % (row, no) for row in rows)]
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        assert await storage.maintenance.find_damage() == ()
        await storage.sessions.fork("u", "v")
        await storage.session("v").append([node("e")])
        read = await storage.session("v").load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == ["a", "b", "c", "d", "e"]
        assert await raw(backend_url, "SELECT count(*) FROM lash_runs") == [(3,)]
        for session_id in ("s", "u", "v"):
            await storage.sessions.delete(session_id)
        for table in ("lash_runs", "lash_inherited", "lash_segments", "lash_nodes"):
            assert await raw(backend_url, f"SELECT count(*) FROM {table}") == [(0,)]

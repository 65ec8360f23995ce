"""The migration to compressed nodes keeps the sessions that a storage already holds."""

from __future__ import annotations

import pytest

import lash
from lash.model.session.checkpoint import CheckpointManifest, TurnState
from lash.model.session.commit import CommitResult
from lash.plan.session.checkpoint import manifest_ref
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.factories.session import commit, node
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_BODY = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"old"}}'
_RESULT = '{"revision":1,"checkpoint_ref":"c","manifest":{"turn_state":{"turn_index":1}}}'
_REF = manifest_ref(CheckpointManifest(turn_state=TurnState(turn_index=1)))
_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref,
        leaf_node_id, leaf_segment, leaf_depth, segment_count, node_seq, node_count, updated_at_ms
    )
    VALUES ('s', 'old', 1, '', '{{"kind":"root"}}', 1, '{{}}', '{ref}', 'a', 1, 0, 1, 1, 1, 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    "INSERT INTO lash_segments (session_key, segment) SELECT session_key, 1 FROM lash_sessions",
    """
    INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, user_message, body)
    SELECT session_key, 1, 0, 1, 'a', {no}, '{body}' FROM lash_sessions
    """,
    """
    INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state)
    SELECT session_key, 1, '{ref}', '{{"turn_index":1}}' FROM lash_sessions
    """,
    """
    INSERT INTO lash_turns (session_key, turn_id, commit_hash, result, committed_at_ms)
    SELECT session_key, 't', 'h', '{result}', 1 FROM lash_sessions
    """,
)


async def test_an_old_session_is_kept(backend_url: str, backend_name: str) -> None:
    """The session keeps its nodes, checkpoint and turns, and accepts further long nodes."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("packed_nodes")
    no = {"sqlite": "0", "postgres": "false"}[backend_name]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    old = [statement.format(no=no, body=_BODY, result=_RESULT, ref=_REF) for statement in _OLD]
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        session = storage.session("s")
        read = await session.load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == ["a"]
        assert read.checkpoint is not None
        assert read.checkpoint.manifest.turn_state.turn_index == 1
        assert isinstance(await session.commit(commit(1, node("b", "a", "word " * 500), turn_id="u")), CommitResult)
        read = await session.load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == ["a", "b"]
    assert await raw(backend_url, "SELECT turn_id FROM lash_turns ORDER BY turn_id") == [("t",), ("u",)]

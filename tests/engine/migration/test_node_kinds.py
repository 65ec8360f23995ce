"""The migration to kinds of nodes gives stored nodes their kinds, and finds their branches."""

from __future__ import annotations

import pytest

import lash
from lash.base.compression import Compression, pack_text
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_NOTE = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"%s"}}'
_MESSAGE = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"message","message":{"id":"m","role":"user"}}}'
_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref,
        leaf_node_id, leaf_segment, leaf_depth, segment_count, node_seq, node_count, updated_at_ms
    )
    VALUES ('s', 'old', 1, '', '{{"kind":"root"}}', 1, '{{}}', 'r', 'b', 1, 1, 2, 4, 4, 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    "INSERT INTO lash_segments (session_key, segment) SELECT session_key, 1 FROM lash_sessions",
    """
    INSERT INTO lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT session_key, 2, 1, 0 FROM lash_sessions
    """,
)
_NODE = """
    INSERT INTO lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed
    )
    SELECT session_key, {place}, {parent}, {no}, '{body}', {packed} FROM lash_sessions
    """


async def test_stored_nodes_get_their_kinds(backend_url: str, backend_name: str) -> None:
    """Nodes with plain and with compressed bodies are listed by kind, and found by their parent."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("node_kinds")
    no = {"sqlite": "0", "postgres": "false"}[backend_name]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    packed = pack_text((_NOTE % ("word " * 500)).encode(), Compression.BALANCED)
    assert packed is not None
    hexed = {"sqlite": f"x'{packed.hex()}'", "postgres": f"'\\x{packed.hex()}'::bytea"}[backend_name]
    nodes = [
        _NODE.format(place=place, parent=parent, no=no, body=body, packed=form)
        for place, parent, body, form in (
            ("1, 0, 1, 'a'", "NULL", _MESSAGE, "NULL"),
            ("1, 1, 2, 'b'", "'a'", "", hexed),
            ("2, 1, 3, 'c'", "'a'", _NOTE % "short", "NULL"),
            ("2, 2, 4, 'd'", "'c'", _MESSAGE, "NULL"),
        )
    ]
    old = [*(statement.format() for statement in _OLD), *nodes]
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        session = storage.session("s")
        assert [each.node_id for each in await session.list_nodes("plugin:note")] == ["b", "c"]
        assert [each.node_id for each in await session.list_nodes("message")] == ["a", "d"]
        assert [each.node_id for each in await session.children("a")] == ["b", "c"]
        assert [each.node_id for each in await session.children("c")] == ["d"]
    kinds = await raw(backend_url, "SELECT node_id, kind FROM lash_nodes ORDER BY node_id")
    assert kinds == [("a", "message"), ("b", "plugin:note"), ("c", "plugin:note"), ("d", "message")]

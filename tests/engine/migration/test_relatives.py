"""The migration that indexes the relation of sessions: a damaged one is named."""

from __future__ import annotations

import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, updated_at_ms, first_user_message, labels
    )
    VALUES
        ('fine', '', 1, '', '{"relation":{"kind":"root"}}', 2, 5, '', '{}'),
        ('dam''aged', '', 1, '', '{"relation":{"kind":', 2, 5, '', '{}')
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('fine'), ('dam''aged')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
)


async def test_an_upgrade_names_the_damaged_session(backend_url: str, backend_name: str) -> None:
    """Nothing is migrated, and the error names the row and the remedy; once it is repaired, the upgrade succeeds."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("relatives")]
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in before]
    stamp = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend_name == "sqlite" else []
    await execute(backend_url, [*(step.statement for step in before), *notes, *_OLD, *stamp])
    named = '0032_relatives: the relation of session "dam\'aged" is not JSON; repair or delete its row in lash_sessions'
    with pytest.raises(lash.CorruptData, match=named) as found:
        await lash.open(backend_url)
    assert found.value.__cause__ is not None
    assert await raw(backend_url, "SELECT max(number) FROM lash_migrations") == [(31,)]
    await raw(backend_url, """UPDATE lash_sessions SET relation = '{"relation":{"kind":"root"}}'""")
    async with await lash.open(backend_url) as storage:
        assert len((await storage.sessions.list()).sessions) == 2

"""The migration to separate counts of failures and crashes keeps queued work, dead letters and processes."""

from __future__ import annotations

import pytest

import lash
from lash.model.process.process import ProcessAcquired
from lash.model.queue import ClaimedTurn
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute
from tests.factories.session import owner

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_PAYLOADS = '{"payloads":[{"kind":"turn_input","items":[{"type":"text","text":"hello"}]}]}'
_REGISTRATION = '{"process_id":"p","input":{"type":"engine","kind":"python"}}'
_OLD = (
    """
    INSERT INTO lash_sessions (
        session_id, name, created_at_ms, model, relation, revision, config, checkpoint_ref, updated_at_ms
    )
    VALUES ('s', 'old', 1, '', '{"relation":{"kind":"root"}}', 0, '{}', '', 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('s')",
    "INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions",
    f"""
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, claim_count, payloads
    )
    SELECT session_key, 'queued', 'late', 'after_current_turn_commit', 'exclusive', 0, 5, 2, '{_PAYLOADS}'
    FROM lash_sessions
    """,
    f"""
    INSERT INTO lash_dead_letters (
        session_key, batch_id, seq, lane, delivery, slot, enqueued_at_ms, claim_count, payloads, claim_token, reason,
        error, died_at_ms
    )
    SELECT
        session_key, 'dead', 1, 'late', 'after_current_turn_commit', 'exclusive', 5, 4, '{_PAYLOADS}', 't', 'why',
        '{{"error":null}}', 6
    FROM lash_sessions
    """,
    f"""
    INSERT INTO lash_processes (
        process_id, registration_hash, registration, recovery, kind, status, waiting, projection, last_sequence,
        created_at_ms, updated_at_ms
    )
    VALUES (
        'p', 'h', '{_REGISTRATION}', 'rerunnable', 'engine', 'running', FALSE, '{{}}', 0, 1, 1
    )
    """,
    "INSERT INTO lash_process_leases (process_key, ready_at_ms) SELECT process_key, 1 FROM lash_processes",
)


async def test_old_attempts_are_neither_failures_nor_lost(backend_url: str, backend_name: str) -> None:
    """Earlier claims stay attempts, none of them has failed, and no process has crashed."""
    is_sqlite = backend_name == "sqlite"
    schema = None if is_sqlite else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("failure_counts")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    *before, process, lease = _OLD
    old = [*before, process.replace("FALSE", "0" if is_sqlite else "false"), lease]
    if is_sqlite:
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        (letter,) = await storage.queue.dead()
        assert (letter.attempts, letter.batch.failures, letter.batch.priority) == (4, 0, 0)
        turn = await storage.queue.claim_turn("s", owner("w"), ttl_ms=1_000)
        assert isinstance(turn, ClaimedTurn)
        assert [(batch.attempts, batch.failures, batch.priority) for batch in turn.claim.batches] == [(3, 0, 0)]
        run = await storage.process_leases.claim("p", owner("w"), ttl_ms=1_000)
        assert isinstance(run, ProcessAcquired)
        assert run.crashes == 0

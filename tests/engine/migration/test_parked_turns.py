"""The migration to parked turns keeps queues, leases and pauses as they are."""

from __future__ import annotations

import pytest

import lash
from lash.model.lease import LeaseOwner
from lash.model.queue import ClaimedTurn, EmptyReason, NothingClaimed
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.engine.migration.test_work import execute

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    VALUES ('{id}', 'old', 1, '', '{{"relation":{{"kind":"root"}}}}', 0, 1)
    """,
    "INSERT INTO lash_session_ids (session_id) VALUES ('{id}')",
    """
    INSERT INTO lash_session_leases (session_key, fencing, paused_until_ms)
    SELECT session_key, 3, {paused} FROM lash_sessions WHERE session_id = '{id}'
    """,
    """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, claim_count, payloads
    )
    SELECT
        session_key, 'b', 'late', 'after_current_turn_commit', 'exclusive', 0, 1, 1,
        '{{"payloads":[{{"kind":"turn_input","items":[]}}]}}'
    FROM lash_sessions WHERE session_id = '{id}'
    """,
)


async def test_old_queues_and_pauses_are_kept(backend_url: str, backend_name: str) -> None:
    """A queued batch is claimed as its next attempt; a paused session still pauses, and is not shown as waiting."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("parked_turns")
    notes = [f"INSERT INTO lash_migrations VALUES ({step.number}, '{step.name}', 1)" for step in steps[:place]]
    sessions = {"free": "NULL", "paused": str(2**61)}
    old = [statement.format(id=name, paused=paused) for name, paused in sessions.items() for statement in _OLD]
    if backend_name == "sqlite":
        old.append(f"PRAGMA application_id = {APPLICATION_ID}")
    await execute(backend_url, [*(step.statement for step in steps[:place]), *notes, *old])
    async with await lash.open(backend_url) as storage:
        owner = LeaseOwner(owner_id="o", incarnation_id="1")
        turn = await storage.queue.claim_turn("free", owner, ttl_ms=1_000)
        assert isinstance(turn, ClaimedTurn)
        assert (turn.lease.fencing, turn.claim.batches[0].attempts, turn.wake_seq) == (4, 2, 0)
        paused = await storage.queue.claim_turn("paused", owner, ttl_ms=1_000)
        assert paused == NothingClaimed(reason=EmptyReason.PAUSED, next_available_at_ms=2**61)
        assert await storage.leases.parked("paused") is None
        shown = (await storage.sessions.list(with_state=True, oldest_first=True)).sessions
        assert [(each.state, each.waiting_for) for each in shown] == [("running", None), ("queued", None)]

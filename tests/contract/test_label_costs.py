"""Costs of polls by labels: work of other sessions, however much, hides none."""

from __future__ import annotations

import pytest

import lash
from tests.contract.test_input_agents import said
from tests.contract.test_input_labels import EU, OWNER, labelled
from tests.raw import raw

_OTHERS = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'o' || n, 'n', n, '', t.relation, 0, n FROM {numbers} CROSS JOIN lash_sessions AS t WHERE t.session_id = 'eu'
    """,
    """
    INSERT INTO lash_session_leases (session_key)
    SELECT s.session_key FROM lash_sessions AS s WHERE s.session_id LIKE 'o%'
    """,
    """
    INSERT INTO lash_session_labels (session_key, key, value)
    SELECT s.session_key, 'region', 'us' FROM lash_sessions AS s WHERE s.session_id LIKE 'o%'
    """,
    """
    INSERT INTO lash_batches (session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads)
    SELECT s.session_key, 'o', 'late', 'after_current_turn_commit', 'exclusive', s.session_key % 2, 0, '{{}}'
    FROM lash_sessions AS s WHERE s.session_id LIKE 'o%'
    """,
)
"""Sessions with ready and with due input and another label."""
_NUMBERS = {
    "sqlite": """(
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 6000)
        SELECT n FROM numbers
    ) AS numbers""",
    "postgres": "generate_series(1, 6000) AS n",
}


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_label_is_found_behind_many_sessions(backend_url: str, backend_name: str) -> None:
    """Polls find ready and due input of a label before 6,000 inputs of another one, and behind them."""
    async with await lash.open(backend_url) as storage:
        for session_id in ("eu", "eu-due"):
            await labelled(storage, session_id, EU)
        for statement in _OTHERS:
            await raw(backend_url, statement.format(numbers=_NUMBERS[backend_name]))
        await labelled(storage, "eu-last", EU)
        for session_id, at_ms in (("eu", 0), ("eu-due", 2), ("eu-last", 0)):
            await storage.queue.enqueue(said(session_id, at_ms=at_ms))
        found: set[str] = set()
        for _ in range(200):
            work = await storage.work.poll(sessions=4, processes=0, owner=OWNER, labels=EU)
            found |= set(work.session_ids)
            if len(found) == 3:
                break
        assert found == {"eu", "eu-due", "eu-last"}

"""The trace that a turn commits."""

from __future__ import annotations

from lash.model.queue import ClaimedTurn
from lash.model.session.trace import TurnTrace
from lash.runtime.steps.journal import Journal


def trace_of_turn(claimed: ClaimedTurn, journal: Journal | None) -> TurnTrace:
    """Return how a turn ran up to now. Each claim of its input is an attempt; one without an error crashed."""
    head, lease = claimed.claim.batches[0], claimed.lease
    attempts = max(1, head.attempts)
    failures = min(head.failures, attempts - 1)
    return TurnTrace(
        began_at_ms=lease.claimed_at_ms,
        attempts=attempts,
        failures=failures,
        crashes=attempts - 1 - failures,
        worker=lease.owner.owner_id,
        steps=() if journal is None else journal.trace(),
    )

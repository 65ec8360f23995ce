"""Claims on SQLite: read the head of the queue, decide, write, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lash.base.limits import saturating_add
from lash.model.lease import Busy, LeaseFence
from lash.model.queue import Claim, NothingClaimed
from lash.plan.lease import LeaseRow
from lash.plan.park import is_ready
from lash.plan.queue.claim import (
    CandidateRow,
    ClaimedRows,
    DecideClaim,
    HeadRequest,
    NewClaim,
    QueueFacts,
    QueueHead,
)
from lash.plan.queue.claim_turn import BegunTurn, ClaimedTurnRows, NewLease, TurnClaim, TurnClaimDecision
from lash.plan.queue.queue import COMMAND_LANE, EARLY_LANE, LATE_LANE, BatchRow, EncodedBatch, KnownKey
from lash.sqlite.engine.database import Database, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.lease import take_lease, unpark
from lash.sqlite.rows.queue.queue import Stamp, insert_batch
from lash.sqlite.rows.session.lookup import find_head, missing
from lash.sqlkit.rows import Number


class SQLiteClaimRows:
    """The claims of one SQLite storage; the contract is `lash.stores.queue.ClaimRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, request: HeadRequest, decide: DecideClaim, claim: NewClaim, fence: LeaseFence
    ) -> ClaimedRows | NothingClaimed:
        def body(transaction: Transaction) -> ClaimedRows | NothingClaimed:
            seqs = decide(_find(transaction, request)[1])
            if isinstance(seqs, NothingClaimed):
                return seqs
            return ClaimedRows(transaction.now_ms, [*_stamp(transaction, seqs, claim, fence.fencing)])

        return await self._database.write_briefly(body)

    async def claim_turn(
        self,
        request: HeadRequest,
        decide: Callable[[QueueHead], TurnClaimDecision],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
        def body(transaction: Transaction) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
            session, queue = _find(transaction, request)
            decision = decide(queue)
            if not isinstance(decision, TurnClaim):
                return decision
            take_lease(transaction, decision.fencing, request.session_id, lease.owner, claim.ttl_ms, token=lease.token)
            batches = _stamp(transaction, decision.seqs, claim, decision.fencing, decision.scope_id)
            is_recorded = any(each.recorded for each in batches)
            head = session.revision, session.leaf_node_id
            return decision, ClaimedTurnRows(transaction.now_ms, [*batches], *head, is_recorded, session.wake_seq)

        return await self._database.write_briefly(body)

    async def enqueue_turn(
        self,
        batch: EncodedBatch,
        batch_id: str,
        request: HeadRequest,
        decide: Callable[[QueueHead], int | None],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[BatchRow | KnownKey, BegunTurn | None]:
        def body(transaction: Transaction) -> tuple[BatchRow | KnownKey, BegunTurn | None]:
            rows, now_ms = _read(transaction, request), transaction.now_ms
            session, fencing = rows[0], decide(_queue_head(rows, now_ms))
            if fencing is None:
                return insert_batch(transaction, session.session_key, batch, batch_id), None
            stamp = Stamp(claim.claim_id, claim.token, fencing, saturating_add(now_ms, claim.ttl_ms))
            row = insert_batch(transaction, session.session_key, batch, batch_id, stamp)
            if isinstance(row, KnownKey):
                return row, None
            take_lease(transaction, fencing, request.session_id, lease.owner, claim.ttl_ms, token=lease.token)
            # No turn of a new batch has recorded anything.
            head = ClaimedTurnRows(now_ms, [row], session.revision, session.leaf_node_id, False, session.wake_seq)
            return row, BegunTurn(fencing=fencing, rows=head)

        return await self._database.write_briefly(body)

    async def extend(self, claim: Claim, ttl_ms: int) -> int | None:
        def body(transaction: Transaction) -> int | None:
            key = find_head(transaction, claim.session_id).session_key
            extended = transaction.all(
                Number,
                "queue_extend",
                session_key=key,
                claim_token=claim.token,
                count=len(claim.batches),
                expires_at_ms=saturating_add(transaction.now_ms, ttl_ms),
            )
            return min((row.number for row in extended), default=None)

        return await self._database.write_briefly(body)

    async def release(self, claim: Claim, uncounted: int) -> int:
        def body(transaction: Transaction) -> int:
            key = find_head(transaction, claim.session_id).session_key
            return transaction.run("queue_abandon", session_key=key, claim_token=claim.token, uncounted=uncounted)

        return await self._database.write_briefly(body)


class _QueueRow(msgspec.Struct, frozen=True, array_like=True):
    """A session, its queue in short, and the columns of its lease; then a batch that could be claimed, if any."""

    session_key: int
    revision: int
    leaf_node_id: str | None
    any_late: bool
    any_claimed: bool
    next_available_at_ms: int | None
    fencing: int
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int
    expires_at_ms: int
    paused_until_ms: int | None
    wake_seq: int
    waiting_for: str | None
    seq: int | None
    batch_id: str | None
    lane: str | None
    slot: str | None
    merge_key: str | None

    @property
    def lease(self) -> LeaseRow:
        return LeaseRow(
            self.fencing,
            self.owner_id,
            self.incarnation_id,
            self.process,
            self.token,
            self.claimed_at_ms,
            self.expires_at_ms,
            self.paused_until_ms,
            self.wake_seq,
            self.waiting_for,
        )

    @property
    def candidate(self) -> CandidateRow | None:
        if self.seq is None or self.batch_id is None or self.lane is None or self.slot is None:
            return None
        return CandidateRow(self.seq, self.batch_id, self.lane, self.slot, self.merge_key)


class _StampedRow(BatchRow, frozen=True, array_like=True):
    """A batch that was claimed, and whether the scope of its turn has effects."""

    recorded: bool


def _find(transaction: Transaction, request: HeadRequest) -> tuple[_QueueRow, QueueHead]:
    """Return a session and the facts of a claim, once due work is ready."""
    rows, now_ms = _read(transaction, request), transaction.now_ms
    first = rows[0]
    is_parked = is_ready(first.lease, now_ms)
    is_due = first.next_available_at_ms is not None and first.next_available_at_ms <= now_ms
    if is_parked:
        unpark(transaction, first.session_key)
    if is_due:
        transaction.run("queue_promote", session_key=first.session_key, now_ms=now_ms)
    if is_parked or is_due:
        rows = _read(transaction, request)
    return rows[0], _queue_head(rows, now_ms)


def _read(transaction: Transaction, request: HeadRequest) -> list[_QueueRow]:
    rows = transaction.all(
        _QueueRow,
        "queue_head",
        session_id=request.session_id,
        early=request.limit if EARLY_LANE in request.lanes else 0,
        late=request.limit if LATE_LANE in request.lanes else 0,
        lease_fencing=request.fencing,
        now_ms=transaction.now_ms,
    )
    if not rows:
        raise missing(transaction, request.session_id)
    return rows


def _queue_head(rows: Sequence[_QueueRow], now_ms: int) -> QueueHead:
    """Return the facts of a claim."""
    session = rows[0]
    found = [each for row in rows if (each := row.candidate) is not None]
    facts = QueueFacts(
        candidates=[each for each in found if each.lane != COMMAND_LANE],
        command_seq=next((each.seq for each in found if each.lane == COMMAND_LANE), None),
        any_late=session.any_late,
        any_claimed=session.any_claimed,
        next_available_at_ms=session.next_available_at_ms,
    )
    return QueueHead(now_ms=now_ms, lease=session.lease, facts=facts)


def _stamp(
    transaction: Transaction, seqs: Sequence[int], claim: NewClaim, fencing: int, scope_id: str | None = None
) -> list[_StampedRow]:
    """Write the claim into these batches, under the lease with this fencing number, and return them in order."""
    rows = transaction.all(
        _StampedRow,
        "queue_stamp",
        seqs=json_array(seqs),
        claim_id=claim.claim_id,
        claim_token=claim.token,
        lease_fencing=fencing,
        expires_at_ms=saturating_add(transaction.now_ms, claim.ttl_ms),
        scope_id=scope_id,
    )
    return sorted(rows, key=lambda row: row.seq)

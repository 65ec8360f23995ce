"""Rules of claims: which batches a claim takes, and whether it still holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from lash.base.limits import are_plain_identifiers, check_identifier, check_integer, saturating_add
from lash.errors import ClaimLost, InvalidInput
from lash.model.lease import LeaseFence
from lash.model.queue import (
    Boundary,
    Claim,
    ClaimCompletion,
    EmptyReason,
    NothingClaimed,
    Slot,
)
from lash.plan.lease import LeaseRow, require_fence
from lash.plan.queue.queue import EARLY_LANE, LATE_LANE, BatchRow, decode_batch

MAX_BATCHES: Final = 1_000
"""The most batches of one claim: all of them are decoded on the event loop."""


class CandidateRow(msgspec.Struct, frozen=True, array_like=True):
    """A batch that could be claimed now."""

    seq: int
    batch_id: str
    lane: str
    slot: str
    merge_key: str | None


class HeldBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch and the token of the claim that holds it."""

    token: str
    batch_id: str


class QueueFacts(msgspec.Struct, frozen=True, array_like=True):
    """The head of a session's queue, and a summary of the rest.

    ``candidates`` are the first batches of each lane that are ready and not held by a live claim. ``command_seq`` is
    the first such command. ``any_late`` is true if work for after the current turn is ready.
    """

    candidates: list[CandidateRow]
    command_seq: int | None
    any_late: bool
    any_claimed: bool
    next_available_at_ms: int | None


class HeadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a queue a claim must read: so many batches of each of these lanes.

    A claim made under the lease with this fencing number counts as live; no other does.
    """

    session_id: str
    fencing: int
    lanes: tuple[str, ...]
    limit: int


class QueueHead(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a claim, from one moment: the time, the lease of the session and the head of its queue."""

    now_ms: int
    lease: LeaseRow
    facts: QueueFacts


class NewClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of a claim to make, and how long it lasts."""

    claim_id: str
    token: str
    ttl_ms: int


class ClaimedRows(msgspec.Struct, frozen=True, array_like=True):
    """A claim that was written: when, and the batches that it holds, in the order of the queue."""

    now_ms: int
    batches: list[BatchRow]


Choose: TypeAlias = Callable[[QueueFacts], list[int] | NothingClaimed]
"""Decides which batches a claim takes, by ``seq``."""

DecideClaim: TypeAlias = Callable[[QueueHead], list[int] | NothingClaimed]
"""Decides which batches a claim takes, by ``seq``; raises LeaseLost if the caller's lease does not hold."""


def new_claim(session_id: str, fencing: int, claim: NewClaim, written: ClaimedRows) -> Claim:
    """Return the claim that was written under the lease with this fencing number."""
    return Claim(
        session_id=session_id,
        claim_id=claim.claim_id,
        token=claim.token,
        lease_fencing=fencing,
        claimed_at_ms=written.now_ms,
        expires_at_ms=saturating_add(written.now_ms, claim.ttl_ms),
        batches=tuple([decode_batch(row, session_id) for row in written.batches]),
    )


def renewed_claim(claim: Claim, expires_at_ms: int | None) -> Claim:
    """Return the claim with the expiry that is stored now; raise ClaimLost if it does not hold all its batches.

    The batches are the caller's: a claim keeps others from changing what it holds, so they need not be read again.
    """
    if expires_at_ms is None:
        raise ClaimLost(claim.session_id, claim.claim_id)
    return msgspec.structs.replace(claim, expires_at_ms=expires_at_ms)


def decide_claim(head: QueueHead, *, fence: LeaseFence, choose: Choose) -> list[int] | NothingClaimed:
    """Choose batches under a live lease; raise LeaseLost if the fence does not hold it."""
    require_fence(head.lease, fence, head.now_ms)
    return choose(head.facts)


def nothing_asked_for() -> NothingClaimed:
    """Return the answer to a claim of no batches, which needs no read."""
    return NothingClaimed(reason=EmptyReason.NOTHING_ASKED_FOR)


def lanes_at(boundary: Boundary) -> tuple[str, ...]:
    """Return the lanes from which turn work may be claimed at a boundary."""
    return (EARLY_LANE, LATE_LANE) if boundary is Boundary.IDLE else (EARLY_LANE,)


def choose_turn_work(facts: QueueFacts, *, boundary: Boundary, limit: int) -> list[int] | NothingClaimed:
    """Choose the next group of turn work: the first batch, and the batches directly behind it that may join it.

    ``facts.candidates`` are those of the boundary: at a checkpoint of a running turn only early ones, which do not
    wait behind later work. Nothing overtakes an earlier command.
    """
    group = _next_group(facts, limit)
    if group:
        return [each.seq for each in group]
    return NothingClaimed(reason=_why_nothing(facts, boundary), next_available_at_ms=facts.next_available_at_ms)


def _next_group(facts: QueueFacts, limit: int) -> list[CandidateRow]:
    in_order = sorted(facts.candidates, key=lambda each: each.seq)
    ready = [each for each in in_order if facts.command_seq is None or each.seq < facts.command_seq]
    group = ready[:1]
    for each in ready[1:limit]:
        if not _may_join(group[0], each):
            break
        group.append(each)
    return group


def choose_command(facts: QueueFacts) -> list[int] | NothingClaimed:
    """Choose the command that comes before all turn work."""
    first = min((each.seq for each in facts.candidates), default=None)
    if facts.command_seq is not None and (first is None or facts.command_seq < first):
        return [facts.command_seq]
    reason = EmptyReason.TURN_WORK_AT_HEAD if first is not None else _why_nothing(facts, Boundary.IDLE)
    return NothingClaimed(reason=reason, next_available_at_ms=facts.next_available_at_ms)


def choose_exactly(facts: QueueFacts, *, batch_ids: Sequence[str]) -> list[int] | NothingClaimed:
    """Choose these batches if an idle claim of as many would get them, in this order."""
    group = _next_group(facts, len(batch_ids))
    if [each.batch_id for each in group] == list(batch_ids):
        return [each.seq for each in group]
    reason = EmptyReason.NOT_AT_HEAD if group else _why_nothing(facts, Boundary.IDLE)
    return NothingClaimed(reason=reason, next_available_at_ms=facts.next_available_at_ms)


def held_by_token(rows: Iterable[HeldBatch]) -> dict[str, frozenset[str]]:
    """Return the batches that each token holds."""
    held: dict[str, set[str]] = {}
    for row in rows:
        held.setdefault(row.token, set()).add(row.batch_id)
    return {token: frozenset(batch_ids) for token, batch_ids in held.items()}


def require_completion(session_id: str, completion: ClaimCompletion, held: Collection[str]) -> None:
    """Raise ClaimLost unless the claim holds exactly the batches that the completion lists."""
    if set(held) != set(completion.batch_ids):
        raise ClaimLost(session_id, completion.claim_id)


def check_claim_size(limit: object) -> int:
    """Return the most batches that a claim may take; zero is allowed and gets nothing."""
    size = check_integer("max_batches", limit, at_least=0)
    if size > MAX_BATCHES:
        raise InvalidInput(f"max_batches must be at most {MAX_BATCHES:,}")
    return size


def check_boundary(boundary: object) -> Boundary:
    """Return the boundary; raise InvalidInput if it is not one."""
    if not isinstance(boundary, Boundary):
        raise InvalidInput(f"boundary must be a Boundary, not {boundary!r:.80}")
    return boundary


def check_batch_ids(batch_ids: object) -> tuple[str, ...]:
    """Return the ids; raise InvalidInput unless they are a list of different ids."""
    if not isinstance(batch_ids, list | tuple):
        raise InvalidInput(f"batch_ids must be a list, not {type(batch_ids).__name__}")
    ids = tuple([check_identifier("batch_id", each) for each in batch_ids])
    if len(ids) > 1 and len(set(ids)) != len(ids):
        raise InvalidInput("batch_ids names a batch twice")
    if len(ids) > MAX_BATCHES:
        raise InvalidInput(f"batch_ids must name at most {MAX_BATCHES:,} batches")
    return ids


def check_work_claim(claim: object) -> Claim:
    """Return the claim; raise InvalidInput if it is not one."""
    if not isinstance(claim, Claim):
        raise InvalidInput(f"expected a Claim, got {type(claim).__name__}")
    check_identifier("claim.session_id", claim.session_id)
    check_completion("claim", claim.completion)
    return claim


def check_count_attempt(count_attempt: object) -> bool:
    """Return whether an attempt counts; raise InvalidInput unless it is a bool."""
    if not isinstance(count_attempt, bool):
        raise InvalidInput(f"count_attempt must be True or False, not {count_attempt!r:.80}")
    return count_attempt


def check_completion(what: str, completion: object) -> ClaimCompletion:
    """Return the completion; raise InvalidInput if a field is not valid."""
    if not isinstance(completion, ClaimCompletion):
        raise InvalidInput(f"{what} must be a ClaimCompletion, not {type(completion).__name__}")
    if not are_plain_identifiers(completion.claim_id, completion.token):
        check_identifier(f"{what}.claim_id", completion.claim_id)
        check_identifier(f"{what}.token", completion.token)
    if not check_batch_ids(completion.batch_ids):
        raise InvalidInput(f"{what} names no batch")
    return completion


def check_completions(completions: Sequence[object]) -> None:
    """Raise InvalidInput unless all are completions of different claims."""
    tokens = [check_completion(f"completions[{index}]", each).token for index, each in enumerate(completions)]
    if len(tokens) > 1 and len(set(tokens)) != len(tokens):
        raise InvalidInput("completions names a claim twice")


def _may_join(head: CandidateRow, other: CandidateRow) -> bool:
    return (
        head.slot == other.slot == Slot.JOIN
        and head.merge_key is not None
        and (head.lane, head.merge_key) == (other.lane, other.merge_key)
    )


def _why_nothing(facts: QueueFacts, boundary: Boundary) -> EmptyReason:
    if facts.command_seq is not None:
        return EmptyReason.COMMAND_AT_HEAD
    if boundary is Boundary.ACTIVE_TURN_CHECKPOINT and facts.any_late:
        return EmptyReason.AFTER_TURN
    if facts.any_claimed:
        return EmptyReason.CLAIMED
    return EmptyReason.EMPTY if facts.next_available_at_ms is None else EmptyReason.NOT_YET_AVAILABLE

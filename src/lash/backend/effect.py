"""The effects of a storage, over the rows of either database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from lash.base.backoff import MAX_PLANS
from lash.base.ids import new_id
from lash.base.limits import MAX_PAGE, check_identifier, check_integer, check_limit
from lash.errors import InvalidInput, StoreUnavailable
from lash.model.effect import (
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectRun,
    Envelope,
    ExecutionScope,
)
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.scope import scope_id
from lash.model.value import JSON
from lash.plan.effect.claim import (
    Claimant,
    WrittenClaim,
    check_attempt,
    check_run,
    check_scope_fence,
    check_traceparent,
    decide_effect_claim,
    decide_take_over,
    decode_group,
    decode_record,
    explain_outcome,
    explain_record,
    guard_of,
    name_claim,
    new_claim,
    new_record,
    plan_replay,
    renewed,
    require_same_size,
)
from lash.plan.effect.effect import StoredOutcome, check_key, encode_envelope, encode_error, encode_outcome
from lash.plan.effect.row import RecordedRow
from lash.plan.lease import check_claim, check_ttl
from lash.stores.effect import EffectRows
from lash.stores.hints import Hints

_UNMEASURED: Final = EffectRun()


class Effects:
    """The effects of one storage; the contract is `lash.stores.effect.EffectStore`."""

    def __init__(self, rows: EffectRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def claim(
        self,
        envelope: Envelope,
        owner: LeaseOwner,
        *,
        ttl_ms: int,
        once: bool = False,
        strict: bool = False,
        token: str | None = None,
        attempt: int | None = None,
        traceparent: str | None = None,
    ) -> EffectDecision:
        check_claim(owner, ttl_ms)
        own_token = new_id() if token is None else check_identifier("token", token)
        check_attempt("attempt", attempt)
        check_traceparent("traceparent", traceparent)
        encoded = encode_envelope(envelope)
        claimant = Claimant(owner=owner, token=own_token, ttl_ms=ttl_ms, attempt=attempt, traceparent=traceparent)
        if strict:
            return plan_replay(encoded, (await self._rows.facts(encoded)).row)
        decide = partial(decide_effect_claim, encoded=encoded, token=claimant.token, once=once)
        claimed = await self._rows.claim(encoded, claimant, once=once, decide=decide)
        if not isinstance(claimed, WrittenClaim):
            return claimed
        return EffectClaimed(
            claim=new_claim(encoded, owner, claimant.token, claimed.row), taken_over=claimed.taken_over
        )

    async def record(
        self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError, *, ran: EffectRun = _UNMEASURED
    ) -> EffectRecord:
        encoded = encode_envelope(envelope)
        check_run(ran)
        check_scope_fence(envelope.scope, fence)
        stored = encode_outcome(f"effect {encoded.replay_key!r} of {encoded.scope_id}", outcome)
        recorded = await self._rows.record(encoded, fence, stored, ran, partial(explain_record, encoded, fence))
        if isinstance(recorded, RecordedRow):
            return new_record(encoded, stored, recorded, ran, fence.owner_id)
        return recorded

    async def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        return renewed(claim, await self._rows.renew(guard_of(claim), check_ttl(ttl_ms)))

    async def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        return await self._finish(claim, encode_outcome(name_claim(claim), outcome))

    async def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        return await self._finish(claim, encode_error(name_claim(claim), error))

    async def release(self, claim: EffectClaim) -> bool:
        released = await self._rows.release(guard_of(claim))
        self._hints.notify()
        return released

    async def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        check_claim(owner, ttl_ms)
        encoded, claimant = encode_envelope(envelope), Claimant(owner=owner, token=new_id(), ttl_ms=ttl_ms)
        decide = partial(decide_take_over, encoded=encoded, token=claimant.token)
        taken = await self._rows.take_over(encoded, claimant, decide)
        return taken.claim if isinstance(taken, EffectClaimed) else new_claim(encoded, owner, claimant.token, taken.row)

    async def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        row = await self._rows.row(check_key(scope, replay_key), replay_key)
        if row is None:
            await self._rows.require_owner(scope)
            return None
        return decode_record(row, scope)

    async def get_many(self, names: Sequence[tuple[ExecutionScope, str]]) -> tuple[EffectRecord | None, ...]:
        given: object = names
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidInput(f"names must be a list of scopes and replay keys, not {type(names).__name__}")
        if len(names) > MAX_PAGE:
            raise InvalidInput(f"one call reads at most {MAX_PAGE:,} effects, got {len(names):,}")
        found: list[EffectRecord | None] = [None] * len(names)
        for row in await self._rows.rows([(check_key(scope, key), key) for scope, key in names]):
            found[row.place] = decode_record(row, names[row.place][0])
        return tuple(found)

    async def list(
        self, scope: ExecutionScope, *, limit: int = 1_000, after: str | None = None
    ) -> tuple[EffectRecord, ...]:
        scope_id(scope) if after is None else check_key(scope, after, "after")
        rows = await self._rows.page(scope, after or "", check_limit(limit))
        return tuple(decode_record(row, scope) for row in rows)

    async def recent(self, scope: ExecutionScope, count: int) -> tuple[EffectRecord, ...]:
        scope_id(scope)
        return tuple(decode_record(row, scope) for row in await self._rows.recent(scope, check_limit(count)))

    async def retire(self, scope: ExecutionScope) -> int:
        return await self._rows.retire(scope_id(scope))

    async def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        name = check_key(scope, group_key, "group_key")
        check_integer("size", size, at_least=1)
        for _ in range(MAX_PLANS):
            if await self._rows.open_group(scope, group_key, size):
                return EffectGroup(scope=scope, group_key=group_key, size=size)
            known = await self.group(scope, group_key)
            if known is not None:
                require_same_size(scope, group_key, known.size, size)
                return known
        raise StoreUnavailable(f"group {group_key!r} of {name} changed {MAX_PLANS} times while it was opened")

    async def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        state = await self._rows.group(check_key(scope, group_key, "group_key"), group_key)
        if state is None:
            await self._rows.require_owner(scope)
            return None
        return decode_group(scope, group_key, state.group, state.finished)

    async def _finish(self, claim: EffectClaim, stored: StoredOutcome) -> EffectRecord:
        guard = guard_of(claim)
        row = await self._rows.finish(guard, stored)
        if row is None:
            record = explain_outcome(claim, stored, await self._rows.row(guard.scope_id, guard.replay_key))
        else:
            record = decode_record(row, claim.scope)
        # Also for a repeat: the caller may repeat because the first hint was lost with the answer.
        self._hints.notify()
        return record

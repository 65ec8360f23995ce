"""Effects on PostgreSQL: try in one guarded statement, look at the facts when it was refused."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import check_integer
from lash.errors import StoreUnavailable
from lash.model.effect import (
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    Envelope,
    ExecutionScope,
)
from lash.model.lease import LeaseFence, LeaseOwner, LocalProcess, ResourceKind
from lash.model.value import JSON
from lash.plan.effect.claim import (
    ClaimRow,
    EffectFacts,
    EffectRow,
    GroupRow,
    Insert,
    RecordedRow,
    Take,
    check_effect_claim,
    check_scope_fence,
    claim_lost,
    decode_group,
    decode_record,
    explain_record,
    explain_settle,
    name_claim,
    new_claim,
    new_record,
    plan_begin,
    plan_take_over,
    require_room,
    require_same_size,
)
from lash.plan.effect.effect import EncodedEffect, Settlement, check_key, encode_envelope, encode_error, encode_outcome
from lash.plan.effect.scope import scope_id, scope_process_id, scope_session_id
from lash.plan.lease import LeaseRow, check_claim, check_ttl
from lash.plan.session.session import check_limit
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.batcher import Group
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import missing_record
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10
MAX_TOGETHER: Final = 32
"""How many effects of processes one statement takes; the statement says the same number."""


class _PageRow(msgspec.Struct, frozen=True, array_like=True):
    """An effect of a scope, if it has any, and whether the session or process of the scope is there."""

    has_owner: bool
    effect: EffectRow | None


class _FactsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What a plan must know about an effect, and whether its session or process is there."""

    now_ms: int
    has_owner: bool
    lease: LeaseRow | None
    group: GroupRow | None
    row: EffectRow | None


class _RecordedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Which effect of a process was recorded, when, and until when it sleeps."""

    scope_id: str
    replay_key: str
    created_at_ms: int
    due_at_ms: int | None


class _GroupAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A group, and those of its effects that have settled."""

    group: GroupRow
    settled: list[str]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be recorded, and under whose lease."""

    fence: LeaseFence
    encoded: EncodedEffect
    settlement: Settlement


class _Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for an effect, under which token and for how long."""

    owner: LeaseOwner
    token: str
    ttl_ms: int

    @property
    def arguments(self) -> tuple[object, ...]:
        process = self.owner.process
        known = None if process is None else encode(process, LocalProcess, "owner.process")
        return (self.owner.owner_id, self.owner.incarnation_id, known, self.token, self.ttl_ms)


class PostgresEffectStore:
    """The effects of one PostgreSQL storage; the contract is `lash.stores.effect.EffectStore`."""

    def __init__(self, database: Database, seen: ProcessCache, hints: Hints) -> None:
        self._database = database
        self._seen = seen
        self._hints = hints
        self._group: Group[_Record, RecordedRow] = Group(self._record_all, limit=MAX_TOGETHER)

    async def begin(
        self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int, once: bool = False, strict: bool = False
    ) -> EffectDecision:
        check_claim(owner, ttl_ms)
        encoded, claimant = encode_envelope(envelope), _Claimant(owner=owner, token=new_id(), ttl_ms=ttl_ms)
        for _ in range(_MAX_PLANS):
            if not strict:
                begun = await self._begin(encoded, claimant, once=once)
                if begun is not None:
                    return EffectClaimed(claim=new_claim(encoded, owner, claimant.token, begun))
            facts = await self._facts(encoded)
            plan = plan_begin(encoded, facts.row, token=claimant.token, once=once, strict=strict, now_ms=facts.now_ms)
            if isinstance(plan, Insert):
                require_room(encoded, facts.group)
                continue
            if not isinstance(plan, Take):
                return plan
            taken = await self._take(encoded, plan, claimant)
            if taken is not None:
                return EffectClaimed(claim=taken, taken_over=plan.taken_over)
        raise _kept_changing(encoded)

    async def record(self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError) -> EffectRecord:
        encoded = encode_envelope(envelope)
        check_scope_fence(envelope.scope, fence)
        settlement = encode_outcome(f"effect {encoded.replay_key!r} of {encoded.scope_id}", outcome)
        record = _Record(fence=fence, encoded=encoded, settlement=settlement)
        for _ in range(_MAX_PLANS):
            written = await self._record(record)
            if written is not None:
                return new_record(encoded, settlement, written)
            known = explain_record(encoded, fence, await self._facts(encoded))
            if known is not None:
                return known
        raise _kept_changing(encoded)

    async def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        guard = _guard(claim)
        renewed = await self._database.write_one(ClaimRow, "effect_renew", *guard, check_ttl(ttl_ms), repeatable=True)
        if renewed is None:
            raise claim_lost(claim)
        return msgspec.structs.replace(claim, expires_at_ms=renewed.expires_at_ms, due_at_ms=renewed.due_at_ms)

    async def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        return await self._settle(claim, encode_outcome(name_claim(claim), outcome))

    async def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        return await self._settle(claim, encode_error(name_claim(claim), error))

    async def release(self, claim: EffectClaim) -> bool:
        released = await self._database.write_one(Flag, "effect_release", *_guard(claim), repeatable=True)
        self._hints.notify()
        return released is not None

    async def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        check_claim(owner, ttl_ms)
        encoded, claimant = encode_envelope(envelope), _Claimant(owner=owner, token=new_id(), ttl_ms=ttl_ms)
        for _ in range(_MAX_PLANS):
            facts = await self._facts(encoded)
            plan = plan_take_over(encoded, facts.row, token=claimant.token, now_ms=facts.now_ms)
            taken = plan.claim if isinstance(plan, EffectClaimed) else await self._take(encoded, plan, claimant)
            if taken is not None:
                return taken
        raise _kept_changing(encoded)

    async def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        row = await self._database.read_one(EffectRow, "effect_row", check_key(scope, replay_key), replay_key)
        if row is None:
            await self._require_owner(scope)
            return None
        return decode_record(row, scope)

    async def list(
        self, scope: ExecutionScope, *, limit: int = 1_000, after: str | None = None
    ) -> tuple[EffectRecord, ...]:
        name = scope_id(scope) if after is None else check_key(scope, after, "after")
        owner = (scope_session_id(scope), scope_process_id(scope))
        rows = await self._database.read_all(_PageRow, "effect_page", name, after or "", *owner, check_limit(limit))
        if not all(row.has_owner for row in rows):
            raise await self._missing(scope)
        return tuple(decode_record(row.effect, scope) for row in rows if row.effect is not None)

    async def retire(self, scope: ExecutionScope) -> int:
        retired = await self._database.write_one(Number, "effect_retire", scope_id(scope), repeatable=True)
        return 0 if retired is None else retired.number

    async def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        name = check_key(scope, group_key, "group_key")
        check_integer("size", size, at_least=1)
        arguments = (name, group_key, scope_session_id(scope), scope_process_id(scope), size)
        for _ in range(_MAX_PLANS):
            if await self._database.write_one(Flag, "effect_open_group", *arguments, repeatable=True) is not None:
                return EffectGroup(scope=scope, group_key=group_key, size=size)
            known = await self.group(scope, group_key)
            if known is not None:
                require_same_size(scope, group_key, known.size, size)
                return known
        raise StoreUnavailable(f"group {group_key!r} of {name} changed {_MAX_PLANS} times while it was opened")

    async def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        name = check_key(scope, group_key, "group_key")
        answer = await self._database.read_one(_GroupAnswer, "effect_group", name, group_key)
        if answer is None:
            await self._require_owner(scope)
            return None
        return decode_group(scope, group_key, answer.group, answer.settled)

    async def _begin(self, encoded: EncodedEffect, claimant: _Claimant, *, once: bool) -> ClaimRow | None:
        # A repeat after a lost connection is refused, and the plan then finds the token.
        return await self._database.write_one(
            ClaimRow,
            "effect_begin",
            *_place(encoded),
            *(encoded.text, encoded.hash, once),
            *claimant.arguments,
            *(encoded.duration_ms, encoded.until_ms),
            repeatable=True,
        )

    async def _take(self, encoded: EncodedEffect, plan: Take, claimant: _Claimant) -> EffectClaim | None:
        taken = await self._database.write_one(
            ClaimRow,
            "effect_take",
            *(encoded.scope_id, encoded.replay_key, encoded.hash),
            *(plan.row.token, plan.row.fencing, plan.once),
            *claimant.arguments,
            repeatable=True,
        )
        return None if taken is None else new_claim(encoded, claimant.owner, claimant.token, taken)

    async def _record(self, record: _Record) -> RecordedRow | None:
        encoded = record.encoded
        if record.fence.resource.kind is ResourceKind.SESSION or encoded.group_key is not None:
            return await self._record_alone(record)
        return await self._group.ask((encoded.scope_id, encoded.replay_key), record)

    async def _record_alone(self, record: _Record) -> RecordedRow | None:
        fence, encoded, settlement = record.fence, record.encoded, record.settlement
        seen = self._seen.get(fence.resource.id) if fence.resource.kind is ResourceKind.PROCESS else None
        holder = (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)
        if seen is not None and encoded.group_key is None:
            # The key of another process of the same id, which was pruned, has no such lease.
            statement = "effect_record_by_key"
            place: tuple[object, ...] = (seen.process_key, *holder, encoded.scope_id, encoded.replay_key)
        else:
            statement, place = "effect_record", (*_place(encoded), *holder)
        # A repeat after a lost connection is refused, and the facts then hold the record.
        return await self._database.write_one(
            RecordedRow,
            statement,
            *place,
            *(encoded.text, encoded.hash),
            *(settlement.status.value, settlement.outcome, settlement.error),
            *(encoded.duration_ms, encoded.until_ms),
            repeatable=True,
        )

    async def _record_all(self, records: Mapping[Hashable, _Record]) -> Mapping[Hashable, RecordedRow]:
        """Record what several processes did at the same moment."""
        if len(records) == 1:
            alone = {key: await self._record_alone(record) for key, record in records.items()}
            return {key: row for key, row in alone.items() if row is not None}
        columns = [list(column) for column in zip(*map(_arguments, records.values()), strict=True)]
        # A repeat after a lost connection is refused, and the facts then hold the record.
        answers = await self._database.write_all(_RecordedAnswer, "effect_record_in_process", *columns, repeatable=True)
        return {
            (answer.scope_id, answer.replay_key): RecordedRow(answer.created_at_ms, answer.due_at_ms, None)
            for answer in answers
        }

    async def _settle(self, claim: EffectClaim, settlement: Settlement) -> EffectRecord:
        guard = _guard(claim)
        values = (settlement.status.value, settlement.outcome, settlement.error)
        # A repeat after a lost connection is refused, and the row then carries the token.
        row = await self._database.write_one(EffectRow, "effect_settle", *guard, *values, repeatable=True)
        if row is None:
            known = await self._database.read_one(EffectRow, "effect_row", guard[0], claim.replay_key)
            return explain_settle(claim, settlement, known)
        self._hints.notify()
        return decode_record(row, claim.scope)

    async def _facts(self, encoded: EncodedEffect) -> EffectFacts:
        answer = await self._database.read_one(_FactsAnswer, "effect_facts", *_place(encoded))
        if answer is None or not answer.has_owner:
            raise await self._missing(encoded.envelope.scope)
        return EffectFacts(now_ms=answer.now_ms, lease=answer.lease, group=answer.group, row=answer.row)

    async def _require_owner(self, scope: ExecutionScope) -> None:
        arguments = (scope_id(scope), None, scope_session_id(scope), scope_process_id(scope), None)
        answer = await self._database.read_one(_FactsAnswer, "effect_facts", *arguments)
        if answer is None or not answer.has_owner:
            raise await self._missing(scope)

    async def _missing(self, scope: ExecutionScope) -> Exception:
        process_id = scope_process_id(scope)
        if process_id is not None:
            return await missing_record(self._database, self._seen, process_id)
        return await missing(self._database, scope_session_id(scope) or "")


def _place(encoded: EncodedEffect) -> tuple[str | None, ...]:
    scope = encoded.envelope.scope
    return (encoded.scope_id, encoded.replay_key, scope_session_id(scope), scope_process_id(scope), encoded.group_key)


def _arguments(record: _Record) -> tuple[object, ...]:
    """Return what ``effect_record_in_process`` takes of one effect, in its order."""
    fence, encoded, settlement = record.fence, record.encoded, record.settlement
    return (
        *(encoded.scope_id, encoded.replay_key, scope_process_id(encoded.envelope.scope)),
        *(fence.owner_id, fence.incarnation_id, fence.token, fence.fencing),
        *(encoded.text, encoded.hash),
        *(settlement.status.value, settlement.outcome, settlement.error),
        *(encoded.duration_ms, encoded.until_ms),
    )


def _guard(claim: EffectClaim) -> tuple[object, ...]:
    return (check_effect_claim(claim), claim.replay_key, claim.envelope_hash, claim.token, claim.fencing)


def _kept_changing(encoded: EncodedEffect) -> StoreUnavailable:
    what = f"effect {encoded.replay_key!r} of {encoded.scope_id}"
    return StoreUnavailable(f"{what}, its group or its lease changed {_MAX_PLANS} times while it was asked for")

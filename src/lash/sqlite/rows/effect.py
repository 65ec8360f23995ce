"""Effects on SQLite."""

from __future__ import annotations

import msgspec

from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import check_integer, saturating_add
from lash.errors import CorruptData
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
    EffectRow,
    Insert,
    RecordedRow,
    Take,
    check_effect_claim,
    check_scope_fence,
    claim_lost,
    decode_record,
    due_at,
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
from lash.plan.effect.scope import scope_id
from lash.plan.lease import check_claim, check_ttl
from lash.plan.session.session import check_limit
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.effect_rows import effect_row, group_row, load_facts, load_group, owner_keys
from lash.stores.hints import Hints


class SQLiteEffectStore:
    """The effects of one SQLite storage; the contract is `lash.stores.effect.EffectStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def begin(
        self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int, once: bool = False, strict: bool = False
    ) -> EffectDecision:
        check_claim(owner, ttl_ms)
        encoded, token = encode_envelope(envelope), new_id()

        def body(transaction: Transaction) -> EffectDecision:
            keys = owner_keys(transaction, envelope.scope)
            row, now_ms = effect_row(transaction, encoded.scope_id, encoded.replay_key), transaction.now_ms
            plan = plan_begin(encoded, row, token=token, once=once, strict=strict, now_ms=now_ms)
            if isinstance(plan, Insert):
                written = _begin(transaction, encoded, keys, _claimant(owner, token), ttl_ms, once=once)
                return EffectClaimed(claim=new_claim(encoded, owner, token, written))
            if isinstance(plan, Take):
                written = _take(transaction, encoded, plan, _claimant(owner, token), ttl_ms)
                return EffectClaimed(claim=new_claim(encoded, owner, token, written), taken_over=plan.taken_over)
            return plan

        return await self._database.write_briefly(body)

    async def record(self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError) -> EffectRecord:
        encoded = encode_envelope(envelope)
        check_scope_fence(envelope.scope, fence)
        settlement = encode_outcome(f"effect {encoded.replay_key!r} of {encoded.scope_id}", outcome)
        return await self._database.write_briefly(lambda transaction: _record(transaction, fence, encoded, settlement))

    async def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        guard = _guard(claim)
        check_ttl(ttl_ms)

        def body(transaction: Transaction) -> ClaimRow | None:
            now_ms = transaction.now_ms
            expires_at_ms = saturating_add(now_ms, ttl_ms)
            return transaction.one(ClaimRow, "effect_renew", **guard, now_ms=now_ms, expires_at_ms=expires_at_ms)

        renewed = await self._database.write_briefly(body)
        if renewed is None:
            raise claim_lost(claim)
        return msgspec.structs.replace(claim, expires_at_ms=renewed.expires_at_ms, due_at_ms=renewed.due_at_ms)

    async def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        return await self._settle(claim, encode_outcome(name_claim(claim), outcome))

    async def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        return await self._settle(claim, encode_error(name_claim(claim), error))

    async def release(self, claim: EffectClaim) -> bool:
        guard = _guard(claim)

        def body(transaction: Transaction) -> bool:
            return transaction.run("effect_release", **guard, now_ms=transaction.now_ms) > 0

        released = await self._database.write_briefly(body)
        self._hints.notify()
        return released

    async def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        check_claim(owner, ttl_ms)
        encoded, token = encode_envelope(envelope), new_id()

        def body(transaction: Transaction) -> EffectClaim:
            owner_keys(transaction, envelope.scope)
            row = effect_row(transaction, encoded.scope_id, encoded.replay_key)
            plan = plan_take_over(encoded, row, token=token, now_ms=transaction.now_ms)
            if isinstance(plan, EffectClaimed):
                return plan.claim
            return new_claim(encoded, owner, token, _take(transaction, encoded, plan, _claimant(owner, token), ttl_ms))

        return await self._database.write_briefly(body)

    async def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        name = check_key(scope, replay_key)

        def body(reader: Reader) -> EffectRow | None:
            owner_keys(reader, scope)
            return effect_row(reader, name, replay_key)

        row = self._database.read(body)
        return None if row is None else decode_record(row, scope)

    async def list(
        self, scope: ExecutionScope, *, limit: int = 1_000, after: str | None = None
    ) -> tuple[EffectRecord, ...]:
        name, size = scope_id(scope) if after is None else check_key(scope, after, "after"), check_limit(limit)

        def body(reader: Reader) -> list[EffectRow]:
            owner_keys(reader, scope)
            return reader.all(EffectRow, "effect_page", scope_id=name, after=after or "", limit=size)

        return tuple(decode_record(row, scope) for row in await self._database.read_in_thread(body))

    async def retire(self, scope: ExecutionScope) -> int:
        name = scope_id(scope)
        return await self._database.write(lambda transaction: retire_effects(transaction, name))

    async def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        name = check_key(scope, group_key, "group_key")
        check_integer("size", size, at_least=1)

        def body(transaction: Transaction) -> EffectGroup:
            keys, now_ms = owner_keys(transaction, scope), transaction.now_ms
            key: dict[str, SQLiteValue] = {"scope_id": name, "group_key": group_key}
            transaction.run("effect_open_group", **key, **keys, size=size, now_ms=now_ms)
            opened = load_group(transaction, scope, group_key)
            if opened is None:
                raise CorruptData(f"group {group_key!r} of {name} was opened and is not there")
            require_same_size(scope, group_key, opened.size, size)
            return opened

        return await self._database.write(body)

    async def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        check_key(scope, group_key, "group_key")

        def body(reader: Reader) -> EffectGroup | None:
            owner_keys(reader, scope)
            return load_group(reader, scope, group_key)

        return self._database.read(body)

    async def _settle(self, claim: EffectClaim, settlement: Settlement) -> EffectRecord:
        guard = _guard(claim)

        def body(transaction: Transaction) -> EffectRecord:
            name, now_ms = scope_id(claim.scope), transaction.now_ms
            row = transaction.one(EffectRow, "effect_settle", **guard, **_settled(settlement), now_ms=now_ms)
            if row is None:
                return explain_settle(claim, settlement, effect_row(transaction, name, claim.replay_key))
            if row.settled_rank is not None:
                transaction.run("effect_settle_group", scope_id=name, replay_key=claim.replay_key)
            return decode_record(row, claim.scope)

        record = await self._database.write_briefly(body)
        self._hints.notify()
        return record


def retire_effects(transaction: Transaction, scope: str) -> int:
    """Forget the effects and groups of a scope, and return how many effects those were."""
    retired = transaction.run("effect_retire", scope_id=scope)
    transaction.run("effect_retire_groups", scope_id=scope)
    return retired


def _record(
    transaction: Transaction, fence: LeaseFence, encoded: EncodedEffect, settlement: Settlement
) -> EffectRecord:
    written = None
    if encoded.group_key is None:
        written = _insert_recorded(transaction, fence, encoded, settlement, rank=None)
    if written is None:
        facts = load_facts(transaction, encoded)
        known = explain_record(encoded, fence, facts)
        if known is not None:
            return known
        rank = None if facts.group is None else facts.group.settled + 1
        _join(transaction, encoded, settled=1)
        written = _insert_recorded(transaction, fence, encoded, settlement, rank=rank)
    if written is None:
        raise CorruptData(f"effect {encoded.replay_key!r} of {encoded.scope_id} is neither recorded nor can it be")
    return new_record(encoded, settlement, written)


def _insert_recorded(
    transaction: Transaction,
    fence: LeaseFence,
    encoded: EncodedEffect,
    settlement: Settlement,
    *,
    rank: int | None,
) -> RecordedRow | None:
    now_ms = transaction.now_ms
    written = RecordedRow(now_ms, due_at(encoded, now_ms), rank)
    in_session = fence.resource.kind is ResourceKind.SESSION
    statement = "effect_record" if in_session else "effect_record_in_process"
    inserted = transaction.run(
        statement,
        **_stored(encoded),
        **_settled(settlement),
        owned_by=fence.resource.id,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
        due_at_ms=written.due_at_ms,
        settled_rank=rank,
        now_ms=now_ms,
    )
    return written if inserted else None


def _begin(
    transaction: Transaction,
    encoded: EncodedEffect,
    keys: dict[str, SQLiteValue],
    claimant: dict[str, SQLiteValue],
    ttl_ms: int,
    *,
    once: bool,
) -> ClaimRow:
    if encoded.group_key is not None:
        require_room(encoded, group_row(transaction, encoded.scope_id, encoded.group_key))
        _join(transaction, encoded, settled=0)
    now_ms = transaction.now_ms
    written = ClaimRow(1, saturating_add(now_ms, ttl_ms), due_at(encoded, now_ms))
    transaction.run(
        "effect_begin",
        **_stored(encoded),
        **keys,
        **claimant,
        once=int(once),
        expires_at_ms=written.expires_at_ms,
        due_at_ms=written.due_at_ms,
        now_ms=now_ms,
    )
    return written


def _take(
    transaction: Transaction, encoded: EncodedEffect, plan: Take, claimant: dict[str, SQLiteValue], ttl_ms: int
) -> ClaimRow:
    taken = transaction.one(
        ClaimRow,
        "effect_take",
        **claimant,
        scope_id=encoded.scope_id,
        replay_key=encoded.replay_key,
        envelope_hash=encoded.hash,
        once=int(plan.once),
        seen_token=plan.row.token,
        seen_fencing=plan.row.fencing,
        expires_at_ms=saturating_add(transaction.now_ms, ttl_ms),
        now_ms=transaction.now_ms,
    )
    if taken is None:
        raise CorruptData(f"effect {encoded.replay_key!r} of {encoded.scope_id} changed inside a transaction")
    return taken


def _join(transaction: Transaction, encoded: EncodedEffect, *, settled: int) -> None:
    if encoded.group_key is not None:
        key: dict[str, SQLiteValue] = {"scope_id": encoded.scope_id, "group_key": encoded.group_key}
        transaction.run("effect_join_group", **key, settled=settled)


def _stored(encoded: EncodedEffect) -> dict[str, SQLiteValue]:
    return {
        "scope_id": encoded.scope_id,
        "replay_key": encoded.replay_key,
        "envelope": encoded.text,
        "envelope_hash": encoded.hash,
        "group_key": encoded.group_key,
    }


def _settled(settlement: Settlement) -> dict[str, SQLiteValue]:
    return {"status": settlement.status.value, "outcome": settlement.outcome, "error": settlement.error}


def _claimant(owner: LeaseOwner, token: str) -> dict[str, SQLiteValue]:
    return {
        "owner_id": owner.owner_id,
        "incarnation_id": owner.incarnation_id,
        "process": None if owner.process is None else encode(owner.process, LocalProcess, "owner.process"),
        "token": token,
    }


def _guard(claim: EffectClaim) -> dict[str, SQLiteValue]:
    return {
        "scope_id": check_effect_claim(claim),
        "replay_key": claim.replay_key,
        "envelope_hash": claim.envelope_hash,
        "token": claim.token,
        "fencing": claim.fencing,
    }

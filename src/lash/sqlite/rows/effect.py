"""Effects on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lash.backend.seal import seal_effect, seal_outcome
from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.model.effect import EffectClaimed, EffectDecision, EffectRecord, EffectRun, ExecutionScope
from lash.model.lease import LeaseFence, ResourceKind
from lash.model.scope import scope_id, scope_process_id, scope_session_id
from lash.plan.effect.claim import Claimant, ClaimGuard, EffectClaimPlan, InsertEffect, TakeEffect, WrittenClaim, due_at
from lash.plan.effect.effect import EncodedEffect, StoredOutcome
from lash.plan.effect.row import (
    ClaimRow,
    EffectFacts,
    EffectRow,
    GroupRow,
    GroupState,
    NumberedEffect,
    RecordedRow,
)
from lash.plan.lease import LeaseRow
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.lease import lease_row
from lash.sqlite.rows.process.process import find_process, process_lease_row
from lash.sqlite.rows.session.lookup import find_session_key
from lash.sqlkit.rows import Text


class SQLiteEffectRows:
    """The effects of one SQLite storage; the contract is `lash.stores.effect.EffectRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, effect: EncodedEffect, claimant: Claimant, *, once: bool, decide: Callable[[EffectFacts], EffectClaimPlan]
    ) -> WrittenClaim | EffectDecision:
        def body(transaction: Transaction) -> WrittenClaim | EffectDecision:
            keys = _owner_keys(transaction, effect.envelope.scope)
            plan = decide(_claim_facts(transaction, effect))
            if isinstance(plan, InsertEffect):
                return WrittenClaim(row=_insert_begun(transaction, effect, keys, claimant, once=once))
            if isinstance(plan, TakeEffect):
                return WrittenClaim(row=_take(transaction, effect, plan, claimant), taken_over=plan.taken_over)
            return plan

        return await self._database.write_briefly(body)

    async def take_over(
        self, effect: EncodedEffect, claimant: Claimant, decide: Callable[[EffectFacts], TakeEffect | EffectClaimed]
    ) -> WrittenClaim | EffectClaimed:
        def body(transaction: Transaction) -> WrittenClaim | EffectClaimed:
            _owner_keys(transaction, effect.envelope.scope)
            plan = decide(_claim_facts(transaction, effect))
            if isinstance(plan, EffectClaimed):
                return plan
            return WrittenClaim(row=_take(transaction, effect, plan, claimant), taken_over=plan.taken_over)

        return await self._database.write_briefly(body)

    async def facts(self, effect: EncodedEffect) -> EffectFacts:
        def body(reader: Reader) -> EffectFacts:
            _owner_keys(reader, effect.envelope.scope)
            return _claim_facts(reader, effect)

        return self._database.read(body)

    async def record(
        self,
        effect: EncodedEffect,
        fence: LeaseFence,
        stored: StoredOutcome,
        ran: EffectRun,
        explain: Callable[[EffectFacts], EffectRecord | None],
    ) -> RecordedRow | EffectRecord:
        def body(transaction: Transaction) -> RecordedRow | EffectRecord:
            written = None
            if effect.group_key is None:
                written = _insert_recorded(transaction, fence, effect, stored, ran, rank=None)
            if written is not None:
                return written
            facts = _record_facts(transaction, effect)
            known = explain(facts)
            if known is not None:
                return known
            _join(transaction, effect, finished=1)
            rank = None if facts.group is None else facts.group.settled + 1
            written = _insert_recorded(transaction, fence, effect, stored, ran, rank=rank)
            if written is None:
                raise CorruptData(f"effect {effect.replay_key!r} of {effect.scope_id} has no row and was refused")
            return written

        return await self._database.write_briefly(body)

    async def renew(self, guard: ClaimGuard, ttl_ms: int) -> ClaimRow | None:
        def body(transaction: Transaction) -> ClaimRow | None:
            now_ms = transaction.now_ms
            expires_at_ms = saturating_add(now_ms, ttl_ms)
            return transaction.one(
                ClaimRow, "effect_renew", **_guarded(guard), now_ms=now_ms, expires_at_ms=expires_at_ms
            )

        return await self._database.write_briefly(body)

    async def finish(self, guard: ClaimGuard, stored: StoredOutcome) -> EffectRow | None:
        def body(transaction: Transaction) -> EffectRow | None:
            now_ms = transaction.now_ms
            sealed = seal_outcome(transaction.seals, stored, guard.replay_key, guard.envelope_hash)
            row = transaction.one(EffectRow, "effect_finish", **_guarded(guard), **_outcome(sealed), now_ms=now_ms)
            if row is not None and row.settled_rank is not None:
                transaction.run("effect_finish_group", scope_id=guard.scope_id, replay_key=guard.replay_key)
            return row

        return await self._database.write_briefly(body)

    async def release(self, guard: ClaimGuard) -> bool:
        def body(transaction: Transaction) -> bool:
            return transaction.run("effect_release", **_guarded(guard), now_ms=transaction.now_ms) > 0

        return await self._database.write_briefly(body)

    async def row(self, scope_id: str, replay_key: str) -> EffectRow | None:
        return self._database.read(lambda reader: _effect_row(reader, scope_id, replay_key))

    async def rows(self, names: Sequence[tuple[str, str]]) -> Sequence[NumberedEffect]:
        return self._database.read(lambda reader: reader.all(NumberedEffect, "effect_rows", names=json_array(names)))

    async def page(self, scope: ExecutionScope, after: str, limit: int) -> Sequence[EffectRow]:
        def body(reader: Reader) -> list[EffectRow]:
            _owner_keys(reader, scope)
            return reader.all(EffectRow, "effect_page", scope_id=scope_id(scope), after=after, limit=limit)

        return await self._database.read_in_thread(body)

    async def recent(self, scope: ExecutionScope, limit: int) -> Sequence[EffectRow]:
        def body(reader: Reader) -> list[EffectRow]:
            _owner_keys(reader, scope)
            return reader.all(EffectRow, "effect_recent", scope_id=scope_id(scope), limit=limit)

        return await self._database.read_in_thread(body)

    async def retire(self, scope_id: str) -> int:
        return await self._database.write(lambda transaction: retire_effects(transaction, scope_id))

    async def open_group(self, scope: ExecutionScope, group_key: str, size: int) -> bool:
        def body(transaction: Transaction) -> bool:
            keys, now_ms = _owner_keys(transaction, scope), transaction.now_ms
            key: dict[str, SQLiteValue] = {"scope_id": scope_id(scope), "group_key": group_key}
            return transaction.run("effect_open_group", **key, **keys, size=size, now_ms=now_ms) > 0

        return await self._database.write(body)

    async def group(self, scope_id: str, group_key: str) -> GroupState | None:
        def body(reader: Reader) -> GroupState | None:
            row = _group_row(reader, scope_id, group_key)
            if row is None:
                return None
            finished = reader.all(Text, "effect_finished", scope_id=scope_id, group_key=group_key)
            return GroupState(row, [each.text for each in finished])

        return self._database.read(body)

    async def require_owner(self, scope: ExecutionScope) -> None:
        self._database.read(lambda reader: _owner_keys(reader, scope))


def retire_effects(transaction: Transaction, scope: str) -> int:
    """Delete the effects and groups of a scope, and return the number of effects."""
    retired = transaction.run("effect_retire", scope_id=scope)
    transaction.run("effect_retire_groups", scope_id=scope)
    return retired


def _claim_facts(reader: Reader, effect: EncodedEffect) -> EffectFacts:
    """Return the facts of a claim: the row, and the group if the effect would have to join it."""
    row = _effect_row(reader, effect.scope_id, effect.replay_key)
    group = None if row is not None else _group_of(reader, effect)
    return EffectFacts(now_ms=reader.now_ms, lease=None, group=group, row=row)


def _record_facts(reader: Reader, effect: EncodedEffect) -> EffectFacts:
    """Return the facts of a record: the lease of the session or process, the group and the row."""
    return EffectFacts(
        now_ms=reader.now_ms,
        lease=_lease(reader, effect.envelope.scope),
        group=_group_of(reader, effect),
        row=_effect_row(reader, effect.scope_id, effect.replay_key),
    )


def _lease(reader: Reader, scope: ExecutionScope) -> LeaseRow | None:
    session_id, process_id = scope_session_id(scope), scope_process_id(scope)
    if session_id is not None:
        return lease_row(reader, session_id)
    return None if process_id is None else process_lease_row(reader, find_process(reader, process_id).process_key)


def _owner_keys(reader: Reader, scope: ExecutionScope) -> dict[str, SQLiteValue]:
    """Return the key of the session or process of a scope, or raise that it does not exist."""
    session_id, process_id = scope_session_id(scope), scope_process_id(scope)
    return {
        "session_key": None if session_id is None else find_session_key(reader, session_id),
        "process_key": None if process_id is None else find_process(reader, process_id).process_key,
    }


def _effect_row(reader: Reader, scope: str, replay_key: str) -> EffectRow | None:
    return reader.one(EffectRow, "effect_row", scope_id=scope, replay_key=replay_key)


def _group_of(reader: Reader, effect: EncodedEffect) -> GroupRow | None:
    return None if effect.group_key is None else _group_row(reader, effect.scope_id, effect.group_key)


def _group_row(reader: Reader, scope: str, group_key: str) -> GroupRow | None:
    return reader.one(GroupRow, "effect_group", scope_id=scope, group_key=group_key)


def _insert_recorded(
    transaction: Transaction,
    fence: LeaseFence,
    effect: EncodedEffect,
    stored: StoredOutcome,
    ran: EffectRun,
    *,
    rank: int | None,
) -> RecordedRow | None:
    now_ms = transaction.now_ms
    written = RecordedRow(now_ms, due_at(effect, now_ms), rank)
    is_session = fence.resource.kind is ResourceKind.SESSION
    inserted = transaction.run(
        "effect_record" if is_session else "effect_record_in_process",
        **_columns(transaction, effect),
        **_outcome(seal_outcome(transaction.seals, stored, effect.replay_key, effect.hash)),
        owned_by=fence.resource.id,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
        due_at_ms=written.due_at_ms,
        settled_rank=rank,
        began_at_ms=now_ms - ran.took_ms,
        attempt=ran.attempt,
        tries=ran.tries,
        traceparent=ran.traceparent,
        now_ms=now_ms,
    )
    return written if inserted else None


def _insert_begun(
    transaction: Transaction, effect: EncodedEffect, keys: dict[str, SQLiteValue], claimant: Claimant, *, once: bool
) -> ClaimRow:
    _join(transaction, effect, finished=0)
    now_ms = transaction.now_ms
    written = ClaimRow(1, saturating_add(now_ms, claimant.ttl_ms), due_at(effect, now_ms))
    transaction.run(
        "effect_claim",
        **_columns(transaction, effect),
        **keys,
        **_runner(claimant),
        once=int(once),
        expires_at_ms=written.expires_at_ms,
        due_at_ms=written.due_at_ms,
        now_ms=now_ms,
    )
    return written


def _take(transaction: Transaction, effect: EncodedEffect, plan: TakeEffect, claimant: Claimant) -> ClaimRow:
    taken = transaction.one(
        ClaimRow,
        "effect_take",
        **_runner(claimant),
        scope_id=effect.scope_id,
        replay_key=effect.replay_key,
        envelope_hash=effect.hash,
        once=int(plan.once),
        seen_token=plan.row.token,
        seen_fencing=plan.row.fencing,
        expires_at_ms=saturating_add(transaction.now_ms, claimant.ttl_ms),
        now_ms=transaction.now_ms,
    )
    if taken is None:
        raise CorruptData(f"effect {effect.replay_key!r} of {effect.scope_id} changed inside a transaction")
    return taken


def _join(transaction: Transaction, effect: EncodedEffect, *, finished: int) -> None:
    if effect.group_key is not None:
        transaction.run("effect_join_group", scope_id=effect.scope_id, group_key=effect.group_key, settled=finished)


def _columns(transaction: Transaction, effect: EncodedEffect) -> dict[str, SQLiteValue]:
    return {
        "scope_id": effect.scope_id,
        "replay_key": effect.replay_key,
        "envelope": seal_effect(transaction.seals, effect),
        "envelope_hash": effect.hash,
        "group_key": effect.group_key,
    }


def _outcome(stored: StoredOutcome) -> dict[str, SQLiteValue]:
    return {"status": stored.status.value, "outcome": stored.outcome, "error": stored.error}


def _runner(claimant: Claimant) -> dict[str, SQLiteValue]:
    return {
        "owner_id": claimant.owner.owner_id,
        "incarnation_id": claimant.owner.incarnation_id,
        "process": claimant.process,
        "token": claimant.token,
        "attempt": claimant.attempt,
        "traceparent": claimant.traceparent,
    }


def _guarded(guard: ClaimGuard) -> dict[str, SQLiteValue]:
    return {
        "scope_id": guard.scope_id,
        "replay_key": guard.replay_key,
        "envelope_hash": guard.envelope_hash,
        "token": guard.token,
        "fencing": guard.fencing,
    }

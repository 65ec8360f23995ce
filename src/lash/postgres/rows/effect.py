"""Effects on PostgreSQL: try one guarded statement, and read the facts only if it was refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import msgspec

from lash.backend.seal import seal_effect, seal_outcome
from lash.base.backoff import MAX_PLANS
from lash.errors import StoreUnavailable
from lash.model.effect import EffectClaimed, EffectDecision, EffectRecord, EffectRun, ExecutionScope
from lash.model.lease import LeaseFence, ResourceKind
from lash.model.scope import scope_id, scope_process_id, scope_session_id
from lash.plan.effect.claim import Claimant, ClaimGuard, EffectClaimPlan, InsertEffect, TakeEffect, WrittenClaim
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
from lash.postgres.arguments import columns, fence_proof
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.process import missing_record
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Number

MAX_TOGETHER: Final = 32
"""How many effects of processes one statement takes; the statement has the same number as its limit."""


class _PageRow(msgspec.Struct, frozen=True, array_like=True):
    """An effect of a scope, if it has any, and whether the session or process of the scope exists."""

    has_owner: bool
    effect: EffectRow | None


class _EffectFactsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The facts of an effect, and whether its session or process exists."""

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


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """An effect to record, its outcome, and the fence under which it ran."""

    fence: LeaseFence
    effect: EncodedEffect
    stored: StoredOutcome
    ran: EffectRun


class PostgresEffectRows:
    """The effects of one PostgreSQL storage; the contract is `lash.stores.effect.EffectRows`."""

    def __init__(self, database: Database, seen: ProcessCache) -> None:
        self._database = database
        self._seen = seen
        self._group: StatementBatcher[_Record, RecordedRow] = StatementBatcher(self._record_all, limit=MAX_TOGETHER)

    async def claim(
        self, effect: EncodedEffect, claimant: Claimant, *, once: bool, decide: Callable[[EffectFacts], EffectClaimPlan]
    ) -> WrittenClaim | EffectDecision:
        for _ in range(MAX_PLANS):
            claimed = await self._insert_begun(effect, claimant, once=once)
            if claimed is not None:
                return WrittenClaim(row=claimed)
            plan = decide(await self.facts(effect))
            if isinstance(plan, InsertEffect):
                continue
            if not isinstance(plan, TakeEffect):
                return plan
            taken = await self._take(effect, plan, claimant)
            if taken is not None:
                return taken
        raise _kept_changing(effect)

    async def take_over(
        self, effect: EncodedEffect, claimant: Claimant, decide: Callable[[EffectFacts], TakeEffect | EffectClaimed]
    ) -> WrittenClaim | EffectClaimed:
        for _ in range(MAX_PLANS):
            plan = decide(await self.facts(effect))
            taken = plan if isinstance(plan, EffectClaimed) else await self._take(effect, plan, claimant)
            if taken is not None:
                return taken
        raise _kept_changing(effect)

    async def facts(self, effect: EncodedEffect) -> EffectFacts:
        answer = await self._database.read_one(_EffectFactsAnswer, "effect_facts", *_owned(effect))
        if answer is None or not answer.has_owner:
            raise await self._missing(effect.envelope.scope)
        return EffectFacts(now_ms=answer.now_ms, lease=answer.lease, group=answer.group, row=answer.row)

    async def record(
        self,
        effect: EncodedEffect,
        fence: LeaseFence,
        stored: StoredOutcome,
        ran: EffectRun,
        explain: Callable[[EffectFacts], EffectRecord | None],
    ) -> RecordedRow | EffectRecord:
        record = _Record(fence=fence, effect=effect, stored=stored, ran=ran)
        for _ in range(MAX_PLANS):
            recorded = await self._record(record) or explain(await self.facts(effect))
            if recorded is not None:
                return recorded
        raise _kept_changing(effect)

    async def renew(self, guard: ClaimGuard, ttl_ms: int) -> ClaimRow | None:
        return await self._database.write_one(ClaimRow, "effect_renew", *_guarded(guard), ttl_ms, repeatable=True)

    async def finish(self, guard: ClaimGuard, stored: StoredOutcome) -> EffectRow | None:
        # A retry after a lost connection is refused; the row then has the token of the claim.
        sealed = seal_outcome(self._database.seals, stored, guard.replay_key, guard.envelope_hash)
        arguments = (*_guarded(guard), *_outcome(sealed))
        return await self._database.write_one(EffectRow, "effect_finish", *arguments, repeatable=True)

    async def release(self, guard: ClaimGuard) -> bool:
        return await self._database.write_one(Flag, "effect_release", *_guarded(guard), repeatable=True) is not None

    async def row(self, scope_id: str, replay_key: str) -> EffectRow | None:
        return await self._database.read_one(EffectRow, "effect_row", scope_id, replay_key)

    async def rows(self, names: Sequence[tuple[str, str]]) -> Sequence[NumberedEffect]:
        scopes, keys = [scope for scope, _ in names], [key for _, key in names]
        return await self._database.read_all(NumberedEffect, "effect_rows", scopes, keys)

    async def page(self, scope: ExecutionScope, after: str, limit: int) -> Sequence[EffectRow]:
        arguments = (scope_id(scope), after, scope_session_id(scope), scope_process_id(scope), limit)
        return await self._owned(scope, await self._database.read_all(_PageRow, "effect_page", *arguments))

    async def recent(self, scope: ExecutionScope, limit: int) -> Sequence[EffectRow]:
        arguments = (scope_id(scope), limit, scope_session_id(scope), scope_process_id(scope))
        return await self._owned(scope, await self._database.read_all(_PageRow, "effect_recent", *arguments))

    async def _owned(self, scope: ExecutionScope, rows: Sequence[_PageRow]) -> list[EffectRow]:
        if not all(row.has_owner for row in rows):
            raise await self._missing(scope)
        return [row.effect for row in rows if row.effect is not None]

    async def retire(self, scope_id: str) -> int:
        retired = await self._database.write_one(Number, "effect_retire", scope_id, repeatable=True)
        return 0 if retired is None else retired.number

    async def open_group(self, scope: ExecutionScope, group_key: str, size: int) -> bool:
        arguments = (scope_id(scope), group_key, scope_session_id(scope), scope_process_id(scope), size)
        return await self._database.write_one(Flag, "effect_open_group", *arguments, repeatable=True) is not None

    async def group(self, scope_id: str, group_key: str) -> GroupState | None:
        return await self._database.read_one(GroupState, "effect_group", scope_id, group_key)

    async def require_owner(self, scope: ExecutionScope) -> None:
        arguments = (scope_id(scope), None, scope_session_id(scope), scope_process_id(scope), None)
        answer = await self._database.read_one(_EffectFactsAnswer, "effect_facts", *arguments)
        if answer is None or not answer.has_owner:
            raise await self._missing(scope)

    async def _insert_begun(self, effect: EncodedEffect, claimant: Claimant, *, once: bool) -> ClaimRow | None:
        # A retry after a lost connection is refused; the decision then finds the token.
        return await self._database.write_one(
            ClaimRow,
            "effect_claim",
            *_owned(effect),
            *(seal_effect(self._database.seals, effect), effect.hash, once),
            *_runner(claimant),
            *(effect.duration_ms, effect.until_ms),
            repeatable=True,
        )

    async def _take(self, effect: EncodedEffect, plan: TakeEffect, claimant: Claimant) -> WrittenClaim | None:
        taken = await self._database.write_one(
            ClaimRow,
            "effect_take",
            *(effect.scope_id, effect.replay_key, effect.hash),
            *(plan.row.token, plan.row.fencing, plan.once),
            *_runner(claimant),
            repeatable=True,
        )
        return None if taken is None else WrittenClaim(row=taken, taken_over=plan.taken_over)

    async def _record(self, record: _Record) -> RecordedRow | None:
        effect = record.effect
        if record.fence.resource.kind is ResourceKind.SESSION or effect.group_key is not None:
            return await self._record_alone(record)
        return await self._group.submit((effect.scope_id, effect.replay_key), record)

    async def _record_alone(self, record: _Record) -> RecordedRow | None:
        fence, effect = record.fence, record.effect
        seen = self._seen.get(fence.resource.id) if fence.resource.kind is ResourceKind.PROCESS else None
        if seen is not None and effect.group_key is None:
            # If the process was pruned and its id used again, the cached key has no lease with this fence.
            statement = "effect_record_by_key"
            head: tuple[object, ...] = (seen.process_key, *fence_proof(fence), effect.scope_id, effect.replay_key)
        else:
            statement, head = "effect_record", (*_owned(effect), *fence_proof(fence))
        # A retry after a lost connection is refused; the facts then hold the record.
        return await self._database.write_one(RecordedRow, statement, *head, *self._content(record), repeatable=True)

    async def _record_all(self, records: Mapping[Hashable, _Record]) -> Mapping[Hashable, RecordedRow]:
        """Record effects of several processes in one statement."""
        if len(records) == 1:
            alone = {key: await self._record_alone(record) for key, record in records.items()}
            return {key: row for key, row in alone.items() if row is not None}
        arrays = columns(map(self._in_process, records.values()))
        # A retry after a lost connection is refused; the facts then hold the record.
        answers = await self._database.write_all(_RecordedAnswer, "effect_record_in_process", *arrays, repeatable=True)
        return {
            (answer.scope_id, answer.replay_key): RecordedRow(answer.created_at_ms, answer.due_at_ms, None)
            for answer in answers
        }

    def _in_process(self, record: _Record) -> tuple[object, ...]:
        """Return the arguments of ``effect_record_in_process`` for one effect, in its order."""
        effect = record.effect
        keys = (effect.scope_id, effect.replay_key, scope_process_id(effect.envelope.scope))
        return (*keys, *fence_proof(record.fence), *self._content(record))

    def _content(self, record: _Record) -> tuple[object, ...]:
        effect, ran, seals = record.effect, record.ran, self._database.seals
        stored = seal_outcome(seals, record.stored, effect.replay_key, effect.hash)
        envelope = seal_effect(seals, effect)
        times = (effect.duration_ms, effect.until_ms, ran.took_ms)
        return (envelope, effect.hash, *_outcome(stored), *times, ran.attempt, ran.tries, ran.traceparent)

    async def _missing(self, scope: ExecutionScope) -> Exception:
        process_id = scope_process_id(scope)
        if process_id is not None:
            return await missing_record(self._database, self._seen, process_id)
        return await missing(self._database, scope_session_id(scope) or "")


def _owned(effect: EncodedEffect) -> tuple[str | None, ...]:
    """Return the keys of an effect, its session or process, and its group."""
    scope = effect.envelope.scope
    return (effect.scope_id, effect.replay_key, scope_session_id(scope), scope_process_id(scope), effect.group_key)


def _outcome(stored: StoredOutcome) -> tuple[object, ...]:
    return (stored.status.value, stored.outcome, stored.error)


def _runner(claimant: Claimant) -> tuple[object, ...]:
    owner = claimant.owner
    proof = (owner.owner_id, owner.incarnation_id, claimant.process, claimant.token)
    return (*proof, claimant.ttl_ms, claimant.attempt, claimant.traceparent)


def _guarded(guard: ClaimGuard) -> tuple[object, ...]:
    return (guard.scope_id, guard.replay_key, guard.envelope_hash, guard.token, guard.fencing)


def _kept_changing(effect: EncodedEffect) -> StoreUnavailable:
    what = f"effect {effect.replay_key!r} of {effect.scope_id}"
    return StoreUnavailable(f"{what}, its group or its lease changed {MAX_PLANS} times while it was written")

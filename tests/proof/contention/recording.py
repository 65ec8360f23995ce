"""A storage that records its calls and their results, for the runtime and for clients.

Only calls that the checker judges are recorded. All others pass through.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

import lash
from lash.errors import LashError, RecordConflict, RevisionConflict, StorageClosed, StorageFailure, StoreUnavailable
from lash.model.effect import EffectDecision, EffectReplayed, Envelope, ExecutionScope, TurnScope
from lash.model.lease import LeaseFence, LeaseOutcome
from lash.model.process.process import Outcome, ProcessAcquired, ProcessLeaseOutcome
from lash.model.queue import ClaimOutcome, ClaimTurnOutcome
from lash.model.scope import scope_id
from lash.model.session.commit import Append
from lash.model.value import JSON
from lash.model.wait import Accepted, AlreadyResolved, Resolution, ResolveAnswer
from lash.stores.storage import Storage
from tests.proof.contention.history import (
    ANY,
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    CountAct,
    EnqueueAct,
    FencedAct,
    OfferAct,
    ReadAct,
    Recorder,
    State,
)

T = TypeVar("T")
_UNCERTAIN = (StoreUnavailable, StorageFailure, StorageClosed)


def recorded(storage: Storage, recorder: Recorder) -> Storage:
    """Return the storage with a recorded history."""
    return cast("Storage", _Recording(storage, recorder))


def canonical(value: object) -> str:
    """Return a value as text, the same for equal values."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=True)


class _Noun:
    """A store, and where its history goes."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:  # noqa: ANN401 - any of the stores
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._inner, name)

    async def _call(self, act: Act, work: Awaitable[T], answer: Callable[[T], Act | None]) -> T:
        """Make the call and record the result; a result of None means that nothing was done."""
        number = self._recorder.invoke(act)
        try:
            result = await work
        except LashError as error:
            state = State.UNKNOWN if isinstance(error, _UNCERTAIN) else State.FAIL
            if isinstance(act, CountAct) and isinstance(error, RecordConflict):
                act = msgspec.structs.replace(act, actual=error.actual)
            if isinstance(act, CommitAct) and isinstance(error, RevisionConflict):
                act = msgspec.structs.replace(act, actual=error.actual)
            self._recorder.end(number, state, act)
            raise
        except BaseException:
            self._recorder.end(number, State.UNKNOWN, act)
            raise
        told = answer(result)
        self._recorder.end(number, State.FAIL if told is None else State.OK, act if told is None else told)
        return result

    async def _fenced(self, fence: LeaseFence, what: str, work: Awaitable[T]) -> T:
        """Make a call that needs a lease; a result of False means that the lease was not held."""
        act = FencedAct(subject=_subject(fence), fencing=fence.fencing, what=what)
        return await self._call(act, work, lambda result: None if result is False else act)


class _Recording(_Noun):
    """The storage itself."""

    def __init__(self, inner: Storage, recorder: Recorder) -> None:
        super().__init__(inner, recorder)
        self._keys: dict[str, str] = {}
        """The source keys of inputs, which commits do not name."""
        self.leases = _Leases(inner.leases, recorder)
        self.process_leases = _ProcessLeases(inner.process_leases, recorder)
        self.effects = _Effects(inner.effects, recorder)
        self.events = _Events(inner.events, recorder)
        self.waits = _Waits(inner.waits, recorder)
        self.occurrences = _Occurrences(inner.occurrences, recorder)
        self.queue = _Queue(inner.queue, recorder, self._keys)
        self.records = _Records(inner.records, recorder)

    def session(self, session_id: str) -> Any:  # noqa: ANN401 - like a session
        return _Session(self._inner.session(session_id), self._recorder, self._keys)


class _Session(_Noun):
    def __init__(self, inner: lash.Session, recorder: Recorder, keys: dict[str, str]) -> None:
        super().__init__(inner, recorder)
        self._keys = keys

    async def head(self) -> lash.model.SessionHead | None:
        act = ReadAct(session=self._inner.session_id)

        def answer(head: lash.model.SessionHead | None) -> Act:
            if head is None:
                return act
            return msgspec.structs.replace(act, revision=head.revision, leaf=head.leaf_node_id)

        return await self._call(act, self._inner.head(), answer)

    async def commit(self, commit: lash.model.Commit, *, work: bool = True) -> lash.model.CommitResult:
        nodes = commit.graph.nodes if isinstance(commit.graph, Append) else ()
        consumed = [batch_id for completion in commit.completions for batch_id in completion.batch_ids]
        act = CommitAct(
            session=commit.session_id,
            turn=str(commit.turn_id),
            expected=commit.expected_revision,
            seen_leaf=nodes[0].parent_node_id if nodes else None,
            nodes=tuple(node.node_id for node in nodes),
            consumed=tuple(self._keys[batch_id] for batch_id in consumed if batch_id in self._keys),
            fencing=None if commit.fence is None else commit.fence.fencing,
        )
        inner: Awaitable[lash.model.CommitResult] = self._inner.commit(commit, work=work)
        called = self._call(
            act,
            inner,
            lambda result: msgspec.structs.replace(act, revision=result.revision),
        )
        if not commit.records:
            return await called
        (record,) = commit.records
        count = CountAct(record=record.key, expected=record.expected_version or 0)
        return await self._call(count, called, lambda _: count)

    async def append(
        self, nodes: Sequence[lash.model.Node], *, turn_id: str | None = None, often_read: bool = False
    ) -> lash.model.AppendResult:
        """An append is a commit to whatever revision and leaf it finds; the result names them."""
        ids = tuple(node.node_id for node in nodes)
        act = CommitAct(session=self._inner.session_id, turn=str(turn_id), expected=ANY, nodes=ids)

        def answer(result: lash.model.AppendResult) -> Act:
            return msgspec.structs.replace(
                act, expected=result.revision - 1, seen_leaf=result.parent_node_id, revision=result.revision
            )

        return await self._call(act, self._inner.append(nodes, turn_id=turn_id, often_read=often_read), answer)


class _Records(_Noun):
    async def put(self, collection: str, key: str, value: int, *, expected_version: int) -> int:
        act = CountAct(record=key, expected=expected_version)
        work = self._inner.put(collection, key, value, expected_version=expected_version)
        return await self._call(act, work, lambda _: act)


class _Queue(_Noun):
    def __init__(self, inner: lash.stores.QueueStore, recorder: Recorder, keys: dict[str, str]) -> None:
        super().__init__(inner, recorder)
        self._keys = keys

    async def enqueue(self, draft: lash.model.BatchDraft) -> lash.Enqueued:
        act = EnqueueAct(session=draft.session_id, key=str(draft.source_key))
        return await self._call(
            act,
            self._inner.enqueue(draft),
            lambda answer: msgspec.structs.replace(act, created=answer.created),
        )

    async def enqueue_and_claim(
        self, draft: lash.model.BatchDraft, owner: lash.model.LeaseOwner, *, ttl_ms: int
    ) -> tuple[lash.Enqueued, lash.model.ClaimedTurn | None]:
        """Two acts in one write: the second may not happen."""
        sent = EnqueueAct(session=draft.session_id, key=str(draft.source_key))
        taken = AcquireAct(subject=f"session:{draft.session_id}")

        def answer(result: tuple[lash.Enqueued, lash.model.ClaimedTurn | None]) -> Act | None:
            turn = result[1]
            if turn is None:
                return None
            self._seen(turn.claim)
            return msgspec.structs.replace(taken, fencing=turn.lease.fencing, token=turn.lease.token)

        work = self._call(taken, self._inner.enqueue_and_claim(draft, owner, ttl_ms=ttl_ms), answer)
        return await self._call(sent, work, lambda result: msgspec.structs.replace(sent, created=result[0].created))

    async def claim(self, fence: lash.model.LeaseFence, **options: Any) -> ClaimOutcome:  # noqa: ANN401 - as they are
        return self._seen(await self._inner.claim(fence, **options))

    async def claim_turn(self, session_id: str, owner: lash.model.LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        act = AcquireAct(subject=f"session:{session_id}")

        def answer(outcome: ClaimTurnOutcome) -> Act | None:
            if not isinstance(outcome, lash.model.ClaimedTurn):
                return None
            self._seen(outcome.claim)
            return msgspec.structs.replace(act, fencing=outcome.lease.fencing, token=outcome.lease.token)

        return await self._call(act, self._inner.claim_turn(session_id, owner, ttl_ms=ttl_ms), answer)

    async def claim_batches(
        self, fence: lash.model.LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int
    ) -> ClaimOutcome:
        return self._seen(await self._inner.claim_batches(fence, batch_ids, ttl_ms=ttl_ms))

    def _seen(self, outcome: ClaimOutcome) -> ClaimOutcome:
        if isinstance(outcome, lash.model.Claim):
            inputs = [batch for batch in outcome.batches if isinstance(batch.payloads[0], lash.model.TurnInput)]
            self._keys.update({batch.batch_id: str(batch.source_key) for batch in inputs})
        return outcome


class _Leases(_Noun):
    async def claim(self, session_id: str, owner: lash.model.LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        return await self._acquire(session_id, self._inner.claim(session_id, owner, ttl_ms=ttl_ms))

    async def reclaim(
        self, session_id: str, owner: lash.model.LeaseOwner, *, observed: lash.model.Lease, ttl_ms: int
    ) -> LeaseOutcome:
        work = self._inner.reclaim(session_id, owner, observed=observed, ttl_ms=ttl_ms)
        return await self._acquire(session_id, work)

    async def renew(self, fence: lash.model.LeaseFence, *, ttl_ms: int) -> lash.model.Lease:
        return await self._fenced(fence, "renew", self._inner.renew(fence, ttl_ms=ttl_ms))

    async def release(self, fence: lash.model.LeaseFence, *, pause_ms: int = 0) -> bool:
        return await self._fenced(fence, "release", self._inner.release(fence, pause_ms=pause_ms))

    async def _acquire(self, session_id: str, work: Awaitable[LeaseOutcome]) -> LeaseOutcome:
        act = AcquireAct(subject=f"session:{session_id}")

        def answer(outcome: LeaseOutcome) -> Act | None:
            if not isinstance(outcome, lash.model.Acquired):
                return None
            return msgspec.structs.replace(act, fencing=outcome.lease.fencing, token=outcome.lease.token)

        return await self._call(act, work, answer)


class _ProcessLeases(_Noun):
    async def claim(self, process_id: str, owner: lash.model.LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        return await self._acquire(process_id, self._inner.claim(process_id, owner, ttl_ms=ttl_ms))

    async def reclaim(
        self, process_id: str, owner: lash.model.LeaseOwner, *, observed: lash.model.Lease, ttl_ms: int
    ) -> ProcessLeaseOutcome:
        work = self._inner.reclaim(process_id, owner, observed=observed, ttl_ms=ttl_ms)
        return await self._acquire(process_id, work)

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> lash.model.Lease:
        return await self._fenced(fence, "renew", self._inner.renew(fence, ttl_ms=ttl_ms))

    async def release(self, fence: LeaseFence) -> bool:
        return await self._fenced(fence, "release", self._inner.release(fence))

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        act = FencedAct(subject=_subject(fence), fencing=fence.fencing, what="park")
        # False is not a refusal here: the lease is freed in any case.
        return await self._call(act, self._inner.park(fence, wake_seq=wake_seq, until_ms=until_ms), lambda _: act)

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> lash.ProcessRecord:
        act = FencedAct(subject=_subject(fence), fencing=fence.fencing, what="complete", outcome=canonical(outcome))
        return await self._call(act, self._inner.complete(fence, outcome), lambda _: act)

    async def _acquire(self, process_id: str, work: Awaitable[ProcessLeaseOutcome]) -> ProcessLeaseOutcome:
        act = AcquireAct(subject=f"process:{process_id}")

        def answer(outcome: ProcessLeaseOutcome) -> Act | None:
            if not isinstance(outcome, ProcessAcquired):
                return None
            return msgspec.structs.replace(act, fencing=outcome.lease.fencing, token=outcome.lease.token)

        return await self._call(act, work, answer)


class _Effects(_Noun):
    async def record(
        self,
        fence: LeaseFence,
        envelope: Envelope,
        outcome: JSON | lash.EffectError,
        **options: Any,  # noqa: ANN401 - as they are
    ) -> lash.EffectRecord:
        act = _offer(envelope, canonical(outcome))
        work = self._fenced(fence, "record", self._inner.record(fence, envelope, outcome, **options))
        return await self._call(act, work, lambda record: msgspec.structs.replace(act, standing=_standing(record)))

    async def claim(self, envelope: Envelope, owner: lash.model.LeaseOwner, **options: Any) -> EffectDecision:  # noqa: ANN401 - as they are
        act = _offer(envelope, None)

        def answer(decision: EffectDecision) -> Act | None:
            if not isinstance(decision, EffectReplayed):
                return None
            return msgspec.structs.replace(act, standing=_standing(decision.record))

        return await self._call(act, self._inner.claim(envelope, owner, **options), answer)

    async def finish(self, claim: lash.model.EffectClaim, outcome: JSON) -> lash.EffectRecord:
        act = OfferAct(cell=_cell(claim.scope, claim.replay_key), value=canonical(outcome))
        return await self._call(
            act,
            self._inner.finish(claim, outcome),
            lambda record: msgspec.structs.replace(act, standing=_standing(record), won=True),
        )


class _Events(_Noun):
    async def append(
        self, process_id: str, draft: lash.model.EventDraft, *, fence: LeaseFence | None = None
    ) -> lash.model.Appended:
        work = self._inner.append(process_id, draft, fence=fence)
        if fence is not None:
            work = self._fenced(fence, "append", work)
        if draft.event_type != "note":
            return cast("lash.model.Appended", await work)
        act = AppendAct(process=process_id, payload=str(draft.payload))
        return await self._call(act, work, lambda found: msgspec.structs.replace(act, sequence=found.event.sequence))


class _Waits(_Noun):
    async def resolve(self, key: lash.model.WaitKey, resolution: Resolution) -> ResolveAnswer:
        act = OfferAct(cell=f"wait:{key.key_id}", value=canonical(resolution))

        def answer(found: ResolveAnswer) -> Act | None:
            if isinstance(found, Accepted):
                return msgspec.structs.replace(act, standing=act.value, won=True)
            if isinstance(found, AlreadyResolved):
                return msgspec.structs.replace(act, standing=canonical(found.terminal), won=False)
            return None

        return await self._call(act, self._inner.resolve(key, resolution), answer)


class _Occurrences(_Noun):
    async def emit(self, request: lash.model.OccurrenceRequest) -> lash.EmitReport:
        act = OfferAct(cell=f"occurrence:{request.idempotency_key}")

        def answer(report: lash.EmitReport) -> Act:
            started = canonical([report.occurrence_id, report.started_process_ids])
            return msgspec.structs.replace(act, standing=started)

        return await self._call(act, self._inner.emit(request), answer)


def _subject(fence: LeaseFence) -> str:
    return f"{fence.resource.kind}:{fence.resource.id}"


def _cell(scope: ExecutionScope, key: str) -> str:
    return f"effect:{scope_id(scope)}/{key}"


def _offer(envelope: Envelope, value: str | None) -> OfferAct:
    lasting = not isinstance(envelope.scope, TurnScope)
    return OfferAct(cell=_cell(envelope.scope, envelope.replay_key), value=value, lasting=lasting)


def _standing(record: lash.EffectRecord) -> str:
    return canonical(record.outcome if record.error is None else record.error)

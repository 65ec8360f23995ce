"""The contract of concurrent claims, records and ends of processes, whose writes may share a transaction."""

from __future__ import annotations

import asyncio
from typing import Final

from lash.errors import EffectMismatch, EventConflict, LeaseLost, ProcessNotFound
from lash.model.causal import ProcessCause
from lash.model.effect import EffectRecord, ProcessScope, Step
from lash.model.process.process import (
    ProcessAcquired,
    ProcessRecord,
    ProcessRefused,
    Provenance,
    RefusalReason,
    Success,
)
from lash.testing.harness import Harness
from tests.contract.process_state import check_logs
from tests.factories.effect import effect
from tests.factories.process import DONE, NOTE, external, process, process_lease
from tests.factories.session import owner

TTL: Final = 60_000
ANN, BOB = owner("ann"), owner("bob")
BY_P: Final = Provenance(caused_by=ProcessCause(process_id="p"))


def _run(process_id: str) -> ProcessScope:
    return ProcessScope(process_id=process_id)


class TestProcessTogether:
    """Laws of concurrent claims, records and ends."""

    async def test_many_claims_at_once_are_told_apart(self, harness: Harness) -> None:
        """Each of many concurrent claims gets its own answer, independent of the others."""
        storage = await harness.open()
        await storage.processes.register(process("p", NOTE))
        ids = [f"p{number:03}" for number in range(150)]
        for process_id in ids:
            await storage.processes.register(process(process_id, NOTE))
        held = process_lease(await storage.process_leases.claim("p007", BOB, ttl_ms=TTL))
        await storage.processes.complete("p011", DONE)
        await storage.processes.register(external("p150"))
        claims = (storage.process_leases.claim(each, ANN, ttl_ms=TTL) for each in [*ids, "p150", "missing"])
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        answers = dict(zip([*ids, "p150", "missing"], outcomes, strict=True))
        assert isinstance(answers.pop("missing"), ProcessNotFound)
        assert answers.pop("p007") == ProcessRefused(reason=RefusalReason.BUSY, holder=held)
        assert answers.pop("p011") == ProcessRefused(reason=RefusalReason.TERMINAL)
        assert answers.pop("p150") == ProcessRefused(reason=RefusalReason.EXTERNAL)
        for process_id, outcome in answers.items():
            assert isinstance(outcome, ProcessAcquired)
            assert outcome.lease.resource.id == process_id
            assert await storage.process_leases.holder(process_id) == outcome.lease
        await check_logs(storage)

    async def test_many_records_at_once_are_told_apart(self, harness: Harness) -> None:
        """Each of many concurrently recorded effects counts under its own lease and key."""
        storage = await harness.open()
        ids = [f"p{number:03}" for number in range(50)]
        for process_id in ids:
            await storage.processes.register(process(process_id, NOTE))
        claims = await asyncio.gather(*(storage.process_leases.claim(each, ANN, ttl_ms=TTL) for each in ids))
        fences = {each.lease.resource.id: each.lease.fence for each in claims if isinstance(each, ProcessAcquired)}
        await storage.process_leases.release(fences["p007"])
        await storage.process_leases.release(fences["p008"])
        await storage.process_leases.claim("p008", ANN, ttl_ms=TTL)
        await storage.effects.record(fences["p011"], effect(scope=_run("p011")), "before")
        await storage.effects.record(fences["p012"], effect(command=Step(name="other"), scope=_run("p012")), "before")
        two_each = [(each, key) for each in ids for key in ("k", "l")]
        records = [storage.effects.record(fences[each], effect(key, scope=_run(each)), each) for each, key in two_each]
        answers = dict(zip(two_each, await asyncio.gather(*records, return_exceptions=True), strict=True))
        for stale in ("p007", "p008"):
            assert isinstance(answers.pop((stale, "k")), LeaseLost)
            assert isinstance(answers.pop((stale, "l")), LeaseLost)
            assert await storage.effects.list(_run(stale)) == ()
        assert isinstance(answers.pop(("p012", "k")), EffectMismatch)
        known = answers.pop(("p011", "k"))
        assert isinstance(known, EffectRecord)
        assert known.outcome == "before"
        for (process_id, key), record in answers.items():
            assert isinstance(record, EffectRecord)
            assert (record.replay_key, record.outcome) == (key, process_id)
            assert await storage.effects.get(_run(process_id), key) == record

    async def test_many_ends_at_once_are_told_apart(self, harness: Harness) -> None:
        """Each of many concurrent ends is accepted or refused alone, and wakes its parent once."""
        storage = await harness.open()
        await storage.processes.register(process("p", NOTE))
        parent = process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=TTL))
        ids = [f"p{number:03}" for number in range(100)]
        for process_id in ids:
            await storage.processes.register(process(process_id, NOTE, provenance=BY_P))
        claims = await asyncio.gather(*(storage.process_leases.claim(each, ANN, ttl_ms=TTL) for each in ids))
        leases = [process_lease(each) for each in claims]
        await storage.process_leases.release(leases[7].fence)
        await storage.processes.complete("p011", DONE)
        ends = [storage.process_leases.complete(each.fence, Success(value=each.resource.id)) for each in leases]
        answers = dict(zip(ids, await asyncio.gather(*ends, return_exceptions=True), strict=True))
        assert isinstance(answers.pop("p007"), LeaseLost)
        assert isinstance(answers.pop("p011"), EventConflict)
        for process_id, record in answers.items():
            assert isinstance(record, ProcessRecord)
            assert record.projection.outcome == Success(value=process_id)
            assert record == await storage.processes.get(process_id)
            assert await storage.process_leases.holder(process_id) is None
        await check_logs(storage)
        woken = await storage.process_leases.claim("p", BOB, ttl_ms=TTL)
        assert isinstance(woken, ProcessAcquired)
        assert (woken.lease.fencing, woken.wake_seq) == (parent.fencing, 99)

    async def test_a_parent_may_end_with_its_children(self, harness: Harness) -> None:
        """Of processes that end concurrently none keeps its lease or stays ready, parents included."""
        storage = await harness.open()
        await storage.processes.register(process("p", NOTE))
        ids = ["p", *(f"p{number}" for number in range(5))]
        for process_id in ids[1:]:
            await storage.processes.register(process(process_id, NOTE, provenance=BY_P))
        claims = await asyncio.gather(*(storage.process_leases.claim(each, ANN, ttl_ms=TTL) for each in ids))
        await asyncio.gather(*(storage.process_leases.complete(process_lease(each).fence, DONE) for each in claims))
        await harness.clock.advance(2 * TTL)
        assert (await storage.work.poll(sessions=0, processes=10, owner=BOB)).process_ids == ()
        for process_id in ids:
            assert await storage.process_leases.holder(process_id) is None

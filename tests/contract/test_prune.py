"""Laws of counting prunable rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lash.errors import InvalidInput
from lash.model.maintenance import Prunable
from lash.model.queue import BatchDraft, TextItem, TurnInput
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.schedule_state import made, schedule
from tests.contract.state import observe
from tests.contract.test_activity import show
from tests.factories.process import DONE, registered
from tests.factories.session import commit, created, node
from tests.factories.trigger import HOST, pressed, trigger
from tests.factories.wait import OPERATION, YES, key_of

OLD = Prunable(
    before_ms=0,
    turns=1,
    source_keys=1,
    processes=2,
    occurrences=1,
    receipts=2,
    schedules=1,
    waits=1,
    activity=2,
    records=1,
)
"""The rows that `_live` leaves to prune."""


class TestPrune:
    """Laws of rows that are old enough to prune."""

    async def test_what_is_counted_is_what_pruning_removes(self, harness: Harness) -> None:
        """Old rows of each kind are counted; young, running and queued ones are not."""
        storage = await harness.open()
        await _live(storage, "old")
        await harness.clock.advance(10)
        await _live(storage, "young")
        before = await observe(storage, "old")
        counted = await storage.maintenance.prunable(older_than_ms=5)
        assert counted == replace(OLD, before_ms=harness.clock.now_ms() - 5)
        assert await observe(storage, "old") == before
        assert await _pruned(storage, counted.before_ms) == OLD
        assert await storage.maintenance.prunable(older_than_ms=5) == Prunable(before_ms=counted.before_ms)

    @pytest.mark.parametrize("wrong", [-1, 1.5, None])
    async def test_what_is_no_age_is_refused(self, harness: Harness, wrong: int) -> None:
        """An invalid age is refused."""
        storage = await harness.open()
        with pytest.raises(InvalidInput, match="older_than_ms"):
            await storage.maintenance.prunable(older_than_ms=wrong)


async def _live(storage: Storage, name: str) -> None:
    """Create one prunable row of each kind, and one that is still needed."""
    await created(storage, name)
    await storage.session(name).commit(commit(0, node(f"{name}-a"), session_id=name, turn_id="t"))
    for key in ("cancelled", "waiting"):
        items = (TextItem(text=key),)
        queued = await storage.queue.enqueue(
            BatchDraft(session_id=name, payloads=(TurnInput(items=items),), source_key=key)
        )
        if key == "cancelled":
            await storage.queue.cancel(name, queued.batch_id)
    await registered(storage, f"{name}-ended", outcome=DONE)
    await registered(storage, f"{name}-running")
    await storage.triggers.register(trigger(name), operation_id=name)
    for key in ("ended", "running"):
        report = await storage.occurrences.emit(pressed(f"{name}-{key}"))
        if key == "ended":
            for process_id in report.started_process_ids:
                await storage.processes.complete(process_id, DONE)
    await storage.triggers.delete(HOST, name, revision=1)
    await made(storage, schedule(name))
    await storage.schedules.delete(HOST, name, revision=1)
    await storage.waits.resolve(await key_of(storage, name, OPERATION), YES)
    await key_of(storage, f"{name}-open", OPERATION)
    await show(storage, "a", "b", session_id=name)
    await storage.records.put("c", name, 1, ttl_ms=1)
    await storage.records.put("c", f"{name}-kept", 1, ttl_ms=1_000)


async def _pruned(storage: Storage, before_ms: int) -> Prunable:
    """Prune each kind, and return how many rows were removed."""
    upkeep = storage.maintenance
    processes = await storage.processes.prune(ended_before_ms=before_ms, through_cursor=None)
    return Prunable(
        before_ms=0,
        turns=(await upkeep.prune_turns(older_than_ms=5)).removed_count,
        source_keys=(await upkeep.prune_source_keys(older_than_ms=5)).removed_count,
        processes=len(processes.pruned_process_ids),
        occurrences=len((await storage.occurrences.prune(before_ms=before_ms)).occurrence_ids),
        receipts=await storage.triggers.prune_receipts(before_ms=before_ms),
        schedules=await storage.schedules.prune_deleted(before_ms=before_ms),
        waits=await storage.waits.prune(resolved_before_ms=before_ms),
        activity=(await upkeep.prune_activity(older_than_ms=5)).removed_count,
        records=await storage.records.prune(expired_before_ms=before_ms),
    )

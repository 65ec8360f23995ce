"""Laws of maintenance."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput, RevisionConflict
from lash.model.artifact import ProcessEnvironment
from lash.model.maintenance import GarbageReport, PruneReport
from lash.model.process.process import EngineInput, Registration
from lash.model.queue import BatchDraft, TextItem, TurnInput
from lash.model.session.session import Retention
from lash.plan.artifact import ENVIRONMENTS
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import observe
from tests.factories.session import chain, commit, created, draft, frame, node, spent, started

DAY = 24 * 60 * 60 * 1000


class TestMaintenance:
    """Laws of audits, pruning and the size report."""

    async def test_an_audit_of_a_busy_storage_finds_nothing(self, harness: Harness) -> None:
        """Commits, retention, removal, forks and deletion leave no garbage."""
        storage = await harness.open(retention=Retention.last(2))
        assert await storage.maintenance.collect_garbage() == GarbageReport(dry_run=False)
        await _fill(storage)
        before = await observe(storage)
        for dry_run in (True, False):
            assert await storage.maintenance.collect_garbage(dry_run=dry_run) == GarbageReport(dry_run=dry_run)
        assert await observe(storage) == before

    async def test_old_turns_are_forgotten(self, harness: Harness) -> None:
        """The record of an old turn is removed; younger ones and the history stay."""
        storage = await harness.open()
        session = await created(storage)
        old = commit(0, node("a"), turn_id="old")
        young = commit(1, node("b", "a"), turn_id="young")
        await session.commit(old)
        await harness.clock.advance(DAY)
        result = await session.commit(young)
        before = await observe(storage)

        assert await storage.maintenance.prune_turns(older_than_ms=DAY) == PruneReport()
        await harness.clock.advance(1)
        assert await storage.maintenance.prune_turns(older_than_ms=DAY) == PruneReport(removed_count=1)
        assert await storage.maintenance.prune_turns(older_than_ms=DAY) == PruneReport()

        assert await observe(storage) == before
        assert await session.commit(young) == result
        with pytest.raises(RevisionConflict):
            await session.commit(old)

    async def test_pruning_takes_many_batches(self, harness: Harness) -> None:
        """One call removes more rows than one transaction does, of every session."""
        storage = await harness.open()
        for session_id in ("s", "t"):
            await created(storage, session_id)
            for number in range(260):
                await storage.session(session_id).commit(
                    commit(number, session_id=session_id, turn_id=f"turn-{number}")
                )
        await harness.clock.advance(1)
        assert await storage.maintenance.prune_turns(older_than_ms=0) == PruneReport(removed_count=520)

    async def test_old_source_keys_are_freed(self, harness: Harness) -> None:
        """The source key of an ended batch is freed once it is old; that of a waiting batch never is."""
        storage = await harness.open()
        await created(storage)
        ended, waiting = _input("ended"), _input("waiting")
        done = await storage.queue.enqueue(ended)
        await storage.queue.enqueue(waiting)
        await storage.queue.cancel("s", done.batch.batch_id if done.batch is not None else "")
        await harness.clock.advance(DAY)
        assert await storage.maintenance.prune_source_keys(older_than_ms=DAY) == PruneReport()
        await harness.clock.advance(1)
        assert await storage.maintenance.prune_source_keys(older_than_ms=DAY) == PruneReport(removed_count=1)
        assert len(await storage.queue.list("s")) == 1
        await storage.queue.enqueue(waiting)
        assert len(await storage.queue.list("s")) == 1
        await storage.queue.enqueue(ended)
        assert len(await storage.queue.list("s")) == 2

    @pytest.mark.parametrize("wrong", [-1, 1.5, True, None])
    async def test_what_is_no_age_is_refused(self, harness: Harness, wrong: int) -> None:
        """An invalid age removes nothing."""
        storage = await harness.open()
        for prune in (storage.maintenance.prune_turns, storage.maintenance.prune_source_keys):
            with pytest.raises(InvalidInput, match="older_than_ms"):
                await prune(older_than_ms=wrong)

    async def test_the_size_report_names_every_noun(self, harness: Harness) -> None:
        """The report has rows and bytes of each noun, and a total."""
        storage = await harness.open()
        await _fill(storage)
        report = await storage.report()
        assert report.bytes > 0
        nouns = {"session", "lease", "node", "frame", "checkpoint", "usage", "turn", "queue", "schema"}
        assert nouns <= report.nouns.keys()
        for size in report.nouns.values():
            assert size.bytes is not None
            assert size.bytes > 0
        assert sum(size.bytes or 0 for size in report.nouns.values()) <= report.bytes

    async def test_environments_that_no_process_names_are_collected(self, harness: Harness) -> None:
        """An environment is kept while a process refers to it and for a day after its last put, then collected."""
        storage = await harness.open()
        refs = [await storage.artifacts.put_environment(ProcessEnvironment(body={"n": n})) for n in range(3)]
        await storage.processes.register(
            Registration(process_id="p", input=EngineInput(kind="fn"), environment_ref=refs[0])
        )
        other = await storage.artifacts.put("modules", b"code")
        await harness.clock.advance(DAY + 1)
        await storage.artifacts.put_environment(ProcessEnvironment(body={"n": 1}))
        found = await storage.maintenance.collect_garbage(dry_run=True)
        assert found.environments.rows == 1
        assert found.environments.bytes > 0
        assert found.is_clean
        assert (await storage.maintenance.collect_garbage()).environments == found.environments
        kept = [await storage.artifacts.exists(ENVIRONMENTS, ref) for ref in refs]
        assert kept == [True, True, False]
        assert await storage.artifacts.exists("modules", other)


def _input(key: str) -> BatchDraft:
    return BatchDraft(session_id="s", payloads=(TurnInput(items=(TextItem(text=key),)),), source_key=key)


async def _fill(storage: Storage) -> None:
    """Write something of every kind: commits, replaced components, removed nodes, a fork, a deletion."""
    session = await started(storage, "s", "a", "b")
    for number in range(1, 5):
        components = {"changing": b"x" * 2_000 + bytes([number]), "steady": b"y" * 2_000}
        await session.commit(
            commit(
                number,
                *chain(f"n{number}", after="a"),
                turn_id=f"turn-{number}",
                frames=(frame("f", state=b"state" + bytes([number])),),
                checkpoint=draft(number, components),
                usage=(spent(1),),
            )
        )
    await storage.sessions.fork("s", "fork", node_id="n2")
    await session.tombstone(["n1", "n3"])
    await session.vacuum()
    await storage.queue.enqueue(_input("key"))
    await started(storage, "gone")
    await storage.sessions.delete("gone")

"""Laws of crashes and takeovers across nouns: leases, claims, commits and maintenance together."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import ClaimLost, LeaseLost, RevisionConflict, SessionDeleted
from lash.model.queue import Boundary
from lash.model.session.commit import CommitResult
from lash.testing.harness import Harness
from tests.contract.queue_state import claimed, consuming, joining, leased, queued, texts
from tests.contract.state import loaded
from tests.factories.session import chain, commit, created, draft, node, started


class TestCrash:
    """What holds when a worker dies, comes late, or retries."""

    async def test_a_commit_that_nobody_heard_of_is_told_to_who_repeats_it(self, harness: Harness) -> None:
        """A commit whose answer was lost returns that answer to the worker that repeats it."""
        first, second = await harness.open(), await harness.open()
        await created(first)
        turn = commit(0, *chain("a", "b"), turn_id="t", checkpoint=draft(1, {"k": b"v"}))
        applied = await first.session("s").commit(turn)
        assert await second.session("s").commit(turn) == applied
        assert [each.node_id for each in (await loaded(second)).graph.nodes] == ["a", "b"]

    async def test_a_dead_holder_is_waited_for_and_then_changes_nothing(self, harness: Harness) -> None:
        """After expiry others take over; the old holder's renewal, claim, commit and release change nothing."""
        storage = await harness.open()
        await started(storage, "s", "a")
        await queued(storage, joining("1"), joining("2"))
        dead = await leased(storage, "dead", ttl_ms=1_000)
        held = claimed(await storage.queue.claim(dead, boundary=Boundary.IDLE, ttl_ms=1_000))
        await harness.clock.advance(1_000)
        heir = await leased(storage, "heir")
        assert heir.fencing > dead.fencing
        taken = claimed(await storage.queue.claim(heir, boundary=Boundary.IDLE, ttl_ms=60_000))
        assert texts(taken.batches) == texts(held.batches) == ["1", "2"]
        with pytest.raises(LeaseLost):
            await storage.leases.renew(dead, ttl_ms=1_000)
        with pytest.raises(LeaseLost):
            await storage.queue.claim(dead, boundary=Boundary.IDLE, ttl_ms=1_000)
        with pytest.raises(ClaimLost):
            await storage.session("s").commit(consuming(commit(1, node("b", "a")), held))
        assert not await storage.leases.release(dead)
        await storage.session("s").commit(consuming(commit(1, node("c", "a"), fence=heir), taken))
        assert [each.node_id for each in (await loaded(storage)).graph.nodes] == ["a", "c"]
        assert await storage.queue.list("s") == ()

    async def test_an_interrupted_group_can_be_taken_as_it_was(self, harness: Harness) -> None:
        """A redrive that names the batches gets exactly the interrupted group, whatever was queued since."""
        storage = await harness.open()
        await created(storage)
        await queued(storage, joining("1"), joining("2"))
        first = await leased(storage, "first")
        held = claimed(await storage.queue.claim(first, boundary=Boundary.IDLE, ttl_ms=60_000))
        await queued(storage, joining("3"))
        await storage.leases.release(first)
        second = await leased(storage, "second")
        again = claimed(await storage.queue.claim_batches(second, held.completion.batch_ids, ttl_ms=60_000))
        assert texts(again.batches) == ["1", "2"]

    async def test_a_checkpoint_racing_a_deletion_is_refused_by_name(self, harness: Harness) -> None:
        """A commit concurrent with a deletion lands before it or is refused; neither session nor bytes come back."""
        storage, other = await harness.open(), await harness.open()
        for attempt in range(8):
            name = f"s{attempt}"
            session = await created(storage, name)
            outcome, _ = await asyncio.gather(
                session.commit(commit(0, node("a"), session_id=name, checkpoint=draft(1, {"k": name.encode()}))),
                other.sessions.delete(name),
                return_exceptions=True,
            )
            assert isinstance(outcome, CommitResult | SessionDeleted | RevisionConflict)
            assert await storage.sessions.open(name) is None
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_a_vacuum_leaves_other_sessions_alone(self, harness: Harness) -> None:
        """A vacuum of one session removes nothing of another."""
        storage = await harness.open()
        for name in ("one", "two"):
            session = await started(storage, name, "a")
            await session.commit(commit(1, node("b", "a"), session_id=name))
            await session.commit(commit(2, node("c", "a"), session_id=name))
            await session.tombstone(["b"])
        assert (await storage.session("one").vacuum()).removed_node_count == 1
        assert (await storage.session("two").vacuum()).removed_node_count == 1

    async def test_commits_collect_their_own_garbage(self, harness: Harness) -> None:
        """Each commit deletes what it replaced, so an audit finds nothing to do."""
        storage = await harness.open()
        session = await created(storage)
        for revision in range(3):
            await session.commit(commit(revision, checkpoint=draft(revision, {"k": str(revision).encode()})))
            assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_every_storage_keeps_a_manifest(self, harness: Harness) -> None:
        """Every storage keeps a manifest: an announced attachment is listed in memory too."""
        storage = await harness.open()
        await created(storage)
        ref = await storage.attachments.put("s", b"x", "text/plain")
        assert [each.ref.id for each in (await storage.attachments.list_uncommitted()).entries] == [ref.id]

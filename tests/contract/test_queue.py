"""The contract of queues: order, one batch for each source key, and an answer about each batch's fate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import pytest

from lash.errors import InvalidInput, SessionDeleted, SessionNotFound, SourceKeyConflict
from lash.model.causal import ProcessCause
from lash.model.lease import LeaseFence, session_resource
from lash.model.queue import (
    AttachmentItem,
    Batch,
    BatchDraft,
    BatchState,
    Boundary,
    Claim,
    Delivery,
    Enqueued,
    Payload,
    ProcessWake,
    SessionCommand,
    Slot,
    TextItem,
    TurnInput,
)
from lash.model.session.commit import CommitBudget
from lash.model.session.message import AttachmentRef
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    TTL,
    claimed,
    command,
    consuming,
    early,
    late,
    leased,
    observe_queue,
    queued,
    texts,
)
from tests.factories.session import commit, created, started

WAKE: Final = ProcessWake(
    wake_id="w", process_id="p", sequence=7, input={"k": [1]}, caused_by=ProcessCause(process_id="p")
)
ATTACHED: Final = AttachmentItem(attachment=AttachmentRef(id="0" * 64, media_type="image/png", byte_len=5, width=3))
PAYLOADS: Final[dict[str, tuple[Payload, ...]]] = {
    "texts": (TurnInput.of_text("one"), TurnInput.of_text("two")),
    "items": (TurnInput(items=(TextItem(text="see"), ATTACHED), protocol_turn_options={"a": 1}, trace_turn_id="t"),),
    "odd text": (TurnInput.of_text("\0 NUL, \N{PILE OF POO}, \u202e, ' -- ; %s $1 :name"), TurnInput.of_text("")),
    "wake": (WAKE,),
    "command": (SessionCommand(command="an open label", reason="why"),),
}
KEYED: Final = late("hello", source_key="host:1")
OTHER_CONTENT: Final[dict[str, BatchDraft]] = {
    "text": late("Hello", source_key="host:1"),
    "kind": command("hello", source_key="host:1"),
    "delivery": early("hello", source_key="host:1"),
    "slot": late("hello", source_key="host:1", slot=Slot.JOIN),
    "merge key": late("hello", source_key="host:1", merge_key="g"),
}
"""Drafts under the key of `KEYED` with other content."""


class TestQueue:
    """Laws of enqueueing, listing, cancelling and finding work."""

    @pytest.mark.parametrize("kind", PAYLOADS)
    async def test_a_batch_comes_back_as_it_was(self, harness: Harness, kind: str) -> None:
        """Payloads keep their content and order, and each gets an id from its position."""
        storage = await _storage(harness)
        draft = BatchDraft(
            session_id="s",
            payloads=PAYLOADS[kind],
            source_key="k",
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
            slot=Slot.JOIN,
            merge_key="g",
        )
        answer = await storage.queue.enqueue(draft)
        batch = answer.batch
        assert batch is not None
        assert answer == Enqueued(batch_id=batch.batch_id, created=True, state=BatchState.PENDING, batch=batch)
        assert batch.payloads == PAYLOADS[kind]
        assert batch.item_ids == tuple(f"{batch.batch_id}:item:{place}" for place in range(len(PAYLOADS[kind])))
        assert (batch.session_id, batch.source_key, batch.attempts) == ("s", "k", 0)
        assert (batch.delivery, batch.slot, batch.merge_key) == (draft.delivery, draft.slot, "g")
        assert (batch.enqueued_at_ms, batch.available_at_ms) == (harness.clock.now_ms(), 0)
        assert await (await harness.open()).queue.list("s") == (batch,)

    async def test_the_queue_keeps_the_order_of_enqueueing(self, harness: Harness) -> None:
        """Positions grow strictly for every kind of work, and each session has its own queue."""
        storage = await _storage(harness)
        await created(storage, "other")
        drafts = [late("a"), early("b"), command("c"), late("x", session_id="other"), late("d", available_at_ms=2**62)]
        batches = await queued(storage, *drafts)
        places = [batch.seq for batch in batches]
        assert places == sorted(set(places))
        assert texts(await storage.queue.list("s")) == ["a", "b", "c", "d"]
        assert texts(await storage.queue.list("other")) == ["x"]

    async def test_the_queue_is_read_in_pages(self, harness: Harness) -> None:
        """A page continues behind a position and holds no more than the limit."""
        storage = await _storage(harness)
        batches = await queued(storage, *(late(str(number)) for number in range(5)))
        for read in (storage.queue.list, storage.queue.list_pending):
            assert await read("s", limit=2) == tuple(batches[:2])
            assert await read("s", limit=2, after_seq=batches[1].seq) == tuple(batches[2:4])
            assert await read("s", after_seq=batches[4].seq) == ()

    async def test_queued_work_survives_reopening(self, harness: Harness) -> None:
        """Acknowledged work survives closing and reopening, and so does its source key."""
        batches = await queued(await _storage(harness), KEYED, early("b"))
        storage = await harness.reopen()
        assert await storage.queue.list("s") == tuple(batches)
        again = await storage.queue.enqueue(KEYED)
        assert (again.created, again.batch) == (False, batches[0])

    async def test_a_known_source_key_adds_nothing(self, harness: Harness) -> None:
        """A repeated enqueue returns the first batch, from any handle; other sessions have their own keys."""
        storage = await _storage(harness)
        await created(storage, "other")
        (batch,) = await queued(storage, KEYED)
        expected = Enqueued(batch_id=batch.batch_id, created=False, state=BatchState.PENDING, batch=batch)
        assert await storage.queue.enqueue(KEYED) == expected
        assert await (await harness.open()).queue.enqueue(KEYED) == expected
        delayed = msgspec.structs.replace(KEYED, available_at_ms=harness.clock.now_ms() + 1)
        assert await storage.queue.enqueue(delayed) == expected
        assert await storage.queue.list("s") == (batch,)
        elsewhere = await storage.queue.enqueue(msgspec.structs.replace(KEYED, session_id="other"))
        assert elsewhere.created
        assert elsewhere.batch_id != batch.batch_id

    async def test_without_a_source_key_every_enqueue_adds(self, harness: Harness) -> None:
        """Without a key, equal content is two batches."""
        storage = await _storage(harness)
        first, second = await queued(storage, late("same"), late("same"))
        assert first.batch_id != second.batch_id
        assert await storage.queue.list("s") == (first, second)

    @pytest.mark.parametrize("state", BatchState)
    @pytest.mark.parametrize("what", OTHER_CONTENT)
    async def test_other_content_under_a_source_key_conflicts(
        self, harness: Harness, what: str, state: BatchState
    ) -> None:
        """A key stands for its first content, even after that is done or cancelled; nothing changes."""
        storage = await _storage(harness)
        await _settled(storage, state)
        before = await observe_queue(storage)
        with pytest.raises(SourceKeyConflict) as refused:
            await storage.queue.enqueue(OTHER_CONTENT[what])
        assert (refused.value.session_id, refused.value.source_key) == ("s", "host:1")
        assert await observe_queue(storage) == before

    async def test_a_message_that_no_commit_could_hold_is_refused(self, harness: Harness) -> None:
        """Input takes at most half of a commit, so that a reply of its size fits too; nothing is queued."""
        storage = await harness.open(budget=CommitBudget(max_bytes=20_000))
        await created(storage)
        with pytest.raises(InvalidInput, match=r"the message holds 10,\d+ bytes; this storage accepts at most 10,000"):
            await storage.queue.enqueue(late("x" * 10_001))
        assert await storage.queue.list("s") == ()
        await storage.queue.enqueue(late("x" * 9_000))

    async def test_the_trace_is_not_part_of_the_content(self, harness: Harness) -> None:
        """A retry belongs to another trace, and is the same message, which keeps the trace that it came with."""
        storage = await _storage(harness)
        said = TurnInput.of_text("hello")
        sent = [
            await storage.queue.enqueue(
                BatchDraft(
                    session_id="s", source_key="k", payloads=(msgspec.structs.replace(said, traceparent=traceparent),)
                )
            )
            for traceparent in ("00-a-b-01", "00-c-d-01", None)
        ]
        assert [(each.batch_id, each.created) for each in sent[1:]] == [(sent[0].batch_id, False)] * 2
        (batch,) = await storage.queue.list("s")
        assert [getattr(each, "traceparent", "") for each in batch.payloads] == ["00-a-b-01"]

    async def test_the_agent_is_not_part_of_the_content(self, harness: Harness) -> None:
        """The same text under the same key is one message, whichever agent each sender names, if any."""
        storage = await _storage(harness)
        said = TurnInput.of_text("hello")
        named = [
            BatchDraft(
                session_id="s", source_key="k", payloads=(msgspec.structs.replace(said, protocol_turn_options=options),)
            )
            for options in ({"agent": "clerk"}, {}, {"agent": "boss"})
        ]
        first, *repeats = [await storage.queue.enqueue(draft) for draft in named]
        assert [(each.batch_id, each.created) for each in repeats] == [(first.batch_id, False)] * 2
        with pytest.raises(SourceKeyConflict):
            await storage.queue.enqueue(msgspec.structs.replace(named[0], payloads=(TurnInput.of_text("hello!"),)))

    @pytest.mark.parametrize("state", [BatchState.CONSUMED, BatchState.CANCELLED])
    async def test_a_source_key_stays_reserved(self, harness: Harness, state: BatchState) -> None:
        """A late duplicate returns the state of the first batch, and is not run again."""
        storage = await _storage(harness)
        batch = await _settled(storage, state)
        for handle in (storage, await harness.open()):
            answer = await handle.queue.enqueue(KEYED)
            assert answer == Enqueued(batch_id=batch.batch_id, created=False, state=state, batch=None)
        assert await storage.queue.list("s") == ()
        assert await storage.queue.ready_sessions() == ()

    async def test_concurrent_enqueues_of_one_source_key_are_one(self, harness: Harness) -> None:
        """One of the concurrent enqueues adds the batch, and all return it."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        for attempt in range(5):
            draft = late("same", source_key=f"k{attempt}")
            answers = await asyncio.gather(*(storage.queue.enqueue(draft) for storage in storages for _ in range(2)))
            assert sum(answer.created for answer in answers) == 1
            assert len({answer.batch_id for answer in answers}) == 1
            assert all(answer.batch is not None for answer in answers)
        assert len(await storages[0].queue.list("s")) == 5

    async def test_concurrent_enqueues_all_have_a_place(self, harness: Harness) -> None:
        """Batches enqueued in the same millisecond get different positions."""
        storages = [await harness.open() for _ in range(2)]
        await created(storages[0])
        answers = await asyncio.gather(*(storages[number % 2].queue.enqueue(late(str(number))) for number in range(40)))
        assert all(answer.created for answer in answers)
        queue = await storages[0].queue.list("s")
        assert len({batch.batch_id for batch in queue}) == len({batch.seq for batch in queue}) == 40
        assert sorted(texts(queue), key=int) == [str(number) for number in range(40)]

    async def test_unclaimed_work_can_be_cancelled(self, harness: Harness) -> None:
        """A cancelled batch is returned and gone; cancelling it again, or an unknown one, returns None."""
        storage = await _storage(harness)
        await created(storage, "other")
        first, second, delayed = await queued(storage, late("a"), command("b"), late("c", available_at_ms=2**62))
        assert await storage.queue.cancel("other", first.batch_id) is None
        for batch in (first, delayed):
            assert await storage.queue.cancel("s", batch.batch_id) == batch
            assert await storage.queue.cancel("s", batch.batch_id) is None
        assert await storage.queue.cancel("s", "unknown") is None
        assert await storage.queue.list("s") == (second,)

    async def test_claimed_work_cannot_be_cancelled(self, harness: Harness) -> None:
        """A batch under a live claim is queued but not pending; once released it can be cancelled."""
        storage = await _storage(harness)
        first, second = await queued(storage, late("a"), late("b"))
        fence = await leased(storage)
        claim = await _claim(storage, fence)
        assert await storage.queue.cancel("s", first.batch_id) is None
        assert texts(await storage.queue.list("s")) == ["a", "b"]
        assert await storage.queue.list_pending("s") == (second,)
        await storage.queue.abandon(claim)
        assert texts(await storage.queue.list_pending("s")) == ["a", "b"]
        assert texts([await _cancelled(storage, first)]) == ["a"]

    @pytest.mark.parametrize("ended", ["claim expired", "lease released", "lease taken over"])
    async def test_work_of_an_ended_claim_is_pending(self, harness: Harness, ended: str) -> None:
        """Work whose claim lapsed, or whose lease was lost, can be cancelled again."""
        storage = await _storage(harness)
        (batch,) = await queued(storage, late("a"))
        fence = await leased(storage, ttl_ms=TTL * 2)
        await _claim(storage, fence, ttl_ms=TTL if ended == "claim expired" else LONG)
        assert await storage.queue.list_pending("s") == ()
        if ended == "lease released":
            await storage.leases.release(fence)
        else:
            await harness.clock.advance(TTL if ended == "claim expired" else TTL * 2)
        if ended == "lease taken over":
            await leased(storage, "successor")
        assert texts(await storage.queue.list_pending("s")) == ["a"]
        assert (await _cancelled(storage, batch)).attempts == 1

    async def test_of_cancel_and_claim_one_gets_the_batch(self, harness: Harness) -> None:
        """A batch is cancelled or claimed, never both and never neither."""
        storages = [await harness.open() for _ in range(2)]
        await created(storages[0])
        fence = await leased(storages[0])
        for number in range(10):
            (batch,) = await queued(storages[0], late(str(number), source_key=str(number)))
            outcome, cancelled = await asyncio.gather(
                storages[0].queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL),
                storages[1].queue.cancel("s", batch.batch_id),
            )
            assert isinstance(outcome, Claim) == (cancelled is None)
            left = await storages[0].queue.list("s")
            assert len(left) == (1 if cancelled is None else 0)
            if isinstance(outcome, Claim):
                await storages[0].queue.abandon(outcome)
                await _cancelled(storages[0], batch)

    async def test_ready_sessions_have_work_and_no_live_lease(self, harness: Harness) -> None:
        """A session is found while it has ready work and no live lease, in a fixed order."""
        storage = await harness.open()
        for name in ("b", "a", "c"):
            await created(storage, name)
        assert await storage.queue.ready_sessions() == ()
        await queued(storage, late("1", session_id="c"), command("2", session_id="b"), early("3", session_id="b"))
        found = await storage.queue.ready_sessions()
        assert sorted(found) == ["b", "c"]
        assert await (await harness.open()).queue.ready_sessions() == found
        fence = await leased(storage, session_id="b", ttl_ms=TTL)
        assert await storage.queue.ready_sessions() == ("c",)
        await harness.clock.advance(TTL)
        assert await storage.queue.ready_sessions() == found
        claimed(await storage.queue.claim_command(await leased(storage, session_id="b"), ttl_ms=LONG))
        assert await storage.leases.release(fence) is False
        assert await storage.queue.ready_sessions() == ("c",)

    async def test_ready_sessions_are_read_in_pages(self, harness: Harness) -> None:
        """Pages show every ready session once, however much each has queued."""
        storage = await harness.open()
        names = [f"s{number}" for number in range(5)]
        for name in names:
            await created(storage, name)
            await queued(storage, *(late(str(number), session_id=name) for number in range(3)))
        whole = await storage.queue.ready_sessions()
        assert sorted(whole) == names
        seen: list[str] = []
        while page := await storage.queue.ready_sessions(limit=2, after=seen[-1] if seen else None):
            assert len(page) <= 2
            seen += page
        assert tuple(seen) == whole

    async def test_delayed_work_makes_its_session_ready_when_it_is_due(self, harness: Harness) -> None:
        """Delayed work makes its session ready at its due millisecond, even if the session was never read since."""
        storage = await _storage(harness)
        (batch,) = await queued(storage, late("a", available_at_ms=harness.clock.now_ms() + 10))
        assert batch.available_at_ms == harness.clock.now_ms() + 10
        assert texts(await storage.queue.list_pending("s")) == ["a"]
        await harness.clock.advance(9)
        assert await storage.queue.ready_sessions() == ()
        await harness.clock.advance(1)
        assert await storage.queue.ready_sessions() == ("s",)

    async def test_a_busy_session_does_not_hide_others(self, harness: Harness) -> None:
        """Ready and due sessions are found behind any number of batches of leased sessions."""
        storage = await harness.open()
        due = harness.clock.now_ms() + 1
        for name in ("busy", "idle"):
            await created(storage, name)
            await queued(storage, *(late(str(n), session_id=name, available_at_ms=due + n) for n in range(3)))
            due += 3
        await leased(storage, session_id="busy")
        await harness.clock.advance(10)
        assert await storage.queue.ready_sessions(limit=2) == ("idle",)
        await queued(storage, *(late(str(n), session_id="busy") for n in range(3)))
        assert await storage.queue.ready_sessions(limit=2) == ("idle",)

    @pytest.mark.parametrize("gone", [SessionNotFound, SessionDeleted])
    async def test_without_a_session_there_is_no_queue(self, harness: Harness, gone: type[Exception]) -> None:
        """Every call about a missing session raises, and a deleted session's work is gone."""
        storage = await harness.open()
        await created(storage, "gone")
        await queued(storage, late("a", session_id="gone", source_key="k"))
        fence = await leased(storage, session_id="gone")
        claim = await _claim(storage, fence)
        await storage.sessions.delete("gone")
        name = "gone" if gone is SessionDeleted else "never"
        moved, renamed = (
            msgspec.structs.replace(fence, resource=session_resource(name)),
            msgspec.structs.replace(claim, session_id=name),
        )
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: storage.queue.enqueue(late("b", session_id=name)),
            lambda: storage.queue.enqueue(late("a", session_id=name, source_key="k")),
            lambda: storage.queue.claim(moved, boundary=Boundary.IDLE, ttl_ms=TTL),
            lambda: storage.queue.claim_command(moved, ttl_ms=TTL),
            lambda: storage.queue.claim_batches(moved, ["a"], ttl_ms=TTL),
            lambda: storage.queue.renew(renamed, ttl_ms=TTL),
            lambda: storage.queue.abandon(renamed),
            lambda: storage.queue.cancel(name, "a"),
            lambda: storage.queue.list(name),
            lambda: storage.queue.list_pending(name),
        ]
        for call in calls:
            with pytest.raises(gone):
                await call()
        assert await storage.queue.ready_sessions() == ()


async def _storage(harness: Harness) -> Storage:
    storage = await harness.open()
    await started(storage)
    return storage


async def _claim(storage: Storage, fence: LeaseFence, *, ttl_ms: int = TTL) -> Claim:
    return claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=ttl_ms))


async def _cancelled(storage: Storage, batch: Batch) -> Batch:
    cancelled = await storage.queue.cancel(batch.session_id, batch.batch_id)
    assert cancelled is not None
    return cancelled


async def _settled(storage: Storage, state: BatchState) -> Batch:
    """Enqueue `KEYED` to session ``s`` of revision 1, and bring it into this state."""
    (batch,) = await queued(storage, KEYED)
    if state is BatchState.CANCELLED:
        await _cancelled(storage, batch)
    elif state is BatchState.CONSUMED:
        fence = await leased(storage)
        claim = await _claim(storage, fence)
        await storage.session("s").commit(consuming(commit(1, fence=fence, release=fence), claim))
    return batch

"""The contract of a commit that consumes work: the work, the head and the turn are one transaction."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from lash.errors import ClaimLost, InvalidInput, LeaseLost, NodeNotFound, RevisionConflict, TurnConflict
from lash.model.lease import LeaseFence
from lash.model.queue import (
    Batch,
    BatchDraft,
    BatchState,
    Boundary,
    Claim,
    ClaimCompletion,
    ClaimOutcome,
    Delivery,
    ProcessWake,
)
from lash.model.session.commit import Commit, CommitResult
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    TTL,
    claimed,
    command,
    consuming,
    joining,
    late,
    leased,
    observe_queue,
    queued,
    texts,
)
from tests.contract.state import loaded
from tests.factories.session import commit, created, node, started

IDLE, CHECKPOINT = Boundary.IDLE, Boundary.ACTIVE_TURN_CHECKPOINT

FALSE_COMPLETIONS: Final[dict[str, dict[str, Any]]] = {
    "another token": {"token": "another"},
    "another id": {"claim_id": "another"},
    "part of its batches": {"batch_ids": ("a",)},
    "more than its batches": {"batch_ids": ("a", "b", "c")},
    "as many other batches": {"batch_ids": ("a", "c")},
    "an unknown batch": {"batch_ids": ("a", "b", "unknown")},
    "batches of another session": {"batch_ids": ("x",)},
}
"""Faults of a completion of a claim on batches ``a`` and ``b``; the texts stand for batch ids."""

BAD_COMPLETIONS: Final[dict[str, Any]] = {
    "no tuple": "claim",
    "missing": None,
    "another type": ("claim",),
    "no batches": (ClaimCompletion(claim_id="c", token="t", batch_ids=()),),
    "a batch twice": (ClaimCompletion(claim_id="c", token="t", batch_ids=("b", "b")),),
    "a batch id with NUL": (ClaimCompletion(claim_id="c", token="t", batch_ids=("b\0",)),),
    "a number for a token": (ClaimCompletion(claim_id="c", token=7, batch_ids=("b",)),),  # type: ignore[arg-type]
    "a blank claim id": (ClaimCompletion(claim_id=" ", token="t", batch_ids=("b",)),),
    "a claim twice": tuple(ClaimCompletion(claim_id="c", token="t", batch_ids=(name,)) for name in "ab"),
}
"""Completions that are invalid in every state of a queue."""


class TestQueueCommit:
    """Laws of consuming claimed work."""

    async def test_a_commit_consumes_its_claim(self, harness: Harness) -> None:
        """Head, nodes and the end of the work become visible together; the claim is then gone."""
        storage, fence, claim = await _held(harness)
        await queued(storage, late("next"))
        await storage.session("s").commit(consuming(commit(1, node("n", "a"), fence=fence), claim))
        for handle in (storage, await harness.open()):
            assert texts(await handle.queue.list("s")) == ["c", "next"]
            assert (await loaded(handle)).head.leaf_node_id == "n"
        again = await storage.queue.enqueue(joining("a", source_key="ka"))
        assert (again.created, again.state) == (False, BatchState.CONSUMED)
        assert await storage.queue.abandon(claim) == 0
        with pytest.raises(ClaimLost):
            await storage.queue.renew(claim, ttl_ms=TTL)

    async def test_a_commit_without_completions_consumes_nothing(self, harness: Harness) -> None:
        """Claimed work that a commit does not complete stays claimed."""
        storage, fence, claim = await _held(harness)
        await storage.session("s").commit(commit(1, node("n", "a"), fence=fence))
        assert texts(await storage.queue.list_pending("s")) == ["c"]
        assert await storage.queue.renew(claim, ttl_ms=TTL) == claim

    async def test_a_repeated_commit_consumes_once(self, harness: Harness) -> None:
        """The repeat returns the first result, even if the work was claimed again for it."""
        storage, fence, claim = await _held(harness)
        values = consuming(commit(1, node("n", "a"), fence=fence, turn_id="t"), claim)
        first = await storage.session("s").commit(values)
        await queued(storage, late("next"))
        before = await observe_queue(storage)
        assert await storage.session("s").commit(values) == first
        assert await (await harness.open()).session("s").commit(values) == first
        again = msgspec.structs.replace(claim, claim_id="again", token="again")
        assert await storage.session("s").commit(consuming(values, again)) == first
        assert await observe_queue(storage) == before

    async def test_what_was_consumed_is_content_of_the_turn(self, harness: Harness) -> None:
        """The same turn with other work, or with none, raises TurnConflict."""
        storage, fence, claim = await _held(harness)
        values = commit(1, node("n", "a"), fence=fence, turn_id="t")
        await storage.session("s").commit(consuming(values, claim))
        other = claimed(await _try(storage, fence))
        for changed in (values, consuming(values, other), consuming(values, claim, other)):
            await _refuse(storage, changed, TurnConflict)

    async def test_several_claims_end_with_one_commit(self, harness: Harness) -> None:
        """A commit completes the work that started its turn and the work that joined it later."""
        storage, fence = await _storage(harness)
        await queued(storage, late("start"), joining("one"))
        start = claimed(await _try(storage, fence))
        checkpoints = [claimed(await _try(storage, fence, CHECKPOINT))]
        await queued(storage, joining("two"), late("later"))
        checkpoints.append(claimed(await _try(storage, fence, CHECKPOINT)))
        await storage.session("s").commit(
            consuming(commit(1, node("n", "a"), fence=fence, release=fence), start, *checkpoints)
        )
        assert texts(await storage.queue.list_pending("s")) == ["later"]
        assert await storage.leases.holder("s") is None
        assert await storage.queue.ready_sessions() == ("s",)

    async def test_a_command_is_consumed_like_turn_work(self, harness: Harness) -> None:
        """Once the command is consumed, the work behind it comes next."""
        storage, fence = await _storage(harness)
        await queued(storage, command("reset"), late("behind"))
        claim = claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
        await storage.session("s").commit(consuming(commit(1, fence=fence), claim))
        assert texts(claimed(await _try(storage, fence)).batches) == ["behind"]

    @pytest.mark.parametrize("fresh", [False, True], ids=["known head", "fresh handle"])
    @pytest.mark.parametrize("what", FALSE_COMPLETIONS)
    async def test_a_false_completion_is_refused(self, harness: Harness, what: str, fresh: bool) -> None:  # noqa: FBT001
        """A completion must name all batches of the claim and no others; anything else writes nothing."""
        storage, fence, claim = await _held(harness)
        await created(storage, "other")
        (foreign,) = await queued(storage, late("x", session_id="other"))
        known = {text: batch.batch_id for text, batch in await _by_text(storage)} | {"x": foreign.batch_id}
        changes = dict(FALSE_COMPLETIONS[what])
        if "batch_ids" in changes:
            changes["batch_ids"] = tuple(known.get(text, text) for text in changes["batch_ids"])
        false = msgspec.structs.replace(claim.completion, **changes)
        values = commit(1, node("n", "a"), fence=fence, turn_id="t")
        handle = await harness.open() if fresh else storage
        await _refuse(handle, msgspec.structs.replace(values, completions=(false,)), ClaimLost)
        assert (await storage.session("s").commit(consuming(values, claim))).revision == 2

    async def test_one_false_completion_spoils_all(self, harness: Harness) -> None:
        """If one of several claims is lost, none is consumed; the error names the lost one."""
        storage, fence, first = await _held(harness)
        second = claimed(await _try(storage, fence))
        await storage.queue.abandon(second)
        lost = await _refuse(storage, consuming(commit(1, node("n", "a"), fence=fence), first, second), ClaimLost)
        assert isinstance(lost, ClaimLost)
        assert (lost.session_id, lost.claim_id) == ("s", second.claim_id)

    async def test_a_claim_of_another_session_is_refused(self, harness: Harness) -> None:
        """A session cannot complete work that another session claimed."""
        storage, fence, claim = await _held(harness)
        await started(storage, "other")
        foreign = await leased(storage, session_id="other")
        values = consuming(commit(1, session_id="other", fence=foreign), claim)
        await _refuse(storage, values, ClaimLost)
        await storage.session("s").commit(consuming(commit(1, fence=fence), claim))

    @pytest.mark.parametrize("what", BAD_COMPLETIONS)
    async def test_a_bad_completion_is_invalid(self, harness: Harness, what: str) -> None:
        """Invalid or duplicate completions are refused before anything is read."""
        storage, fence, _ = await _held(harness)
        bad = msgspec.structs.replace(commit(1, node("n", "a"), fence=fence), completions=BAD_COMPLETIONS[what])
        await _refuse(storage, bad, InvalidInput)

    async def test_a_claim_that_ran_out_untaken_completes(self, harness: Harness) -> None:
        """A turn that took too long commits as long as no other claim took its work."""
        storage, _, claim = await _held(harness)
        await harness.clock.advance(LONG * 2)
        await storage.session("s").commit(consuming(commit(1, node("n", "a")), claim))
        assert texts(await storage.queue.list("s")) == ["c"]

    @pytest.mark.parametrize("advanced", [False, True], ids=["head current", "head advanced"])
    async def test_after_a_takeover_the_old_holder_is_refused(self, harness: Harness, advanced: bool) -> None:  # noqa: FBT001
        """A late commit of the old holder, fenced or not, writes nothing; the successor's commit succeeds."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(LONG)
        rival = await harness.open()
        successor = await leased(rival, "successor")
        newer = claimed(await _try(rival, successor))
        assert texts(newer.batches) == ["a", "b"]
        if advanced:
            await rival.session("s").commit(commit(1, node("m", "a"), fence=successor))
        revision, leaf = (2, "m") if advanced else (1, "a")
        late_commit = consuming(commit(1, node("n", "a")), claim)
        await _refuse(storage, msgspec.structs.replace(late_commit, fence=fence), LeaseLost)
        await _refuse(storage, late_commit, RevisionConflict if advanced else ClaimLost)
        await _refuse(storage, msgspec.structs.replace(late_commit, expected_revision=revision), ClaimLost)
        await rival.session("s").commit(consuming(commit(revision, node("o", leaf), fence=successor), newer))
        assert texts(await storage.queue.list("s")) == ["c"]

    @pytest.mark.parametrize("ended", ["abandoned", "consumed", "partly claimed again", "partly cancelled"])
    async def test_a_claim_that_lost_its_batches_does_not_complete(self, harness: Harness, ended: str) -> None:
        """A claim that was abandoned, consumed, or lost one of its batches raises ClaimLost."""
        storage, fence, claim = await _held(harness)
        revision = 1
        match ended:
            case "abandoned":
                await storage.queue.abandon(claim)
            case "consumed":
                await storage.session("s").commit(consuming(commit(1, fence=fence), claim))
                revision = 2
            case "partly claimed again":
                await harness.clock.advance(TTL)
                claimed(await _try(storage, fence, max_batches=1))
            case _:
                await harness.clock.advance(TTL)
                assert await storage.queue.cancel("s", claim.batches[1].batch_id) is not None
        await _refuse(storage, consuming(commit(revision, node("n", "a"), fence=fence), claim), ClaimLost)

    async def test_the_first_failure_is_told(self, harness: Harness) -> None:
        """Fence, revision, claims and graph are checked in this order."""
        storage, fence, claim = await _held(harness)
        stale = msgspec.structs.replace(fence, token="stale")
        false = msgspec.structs.replace(claim, token="false")
        orphan = node("n", "nowhere")
        await _refuse(storage, consuming(commit(7, orphan, fence=stale), false), LeaseLost)
        await _refuse(storage, consuming(commit(7, orphan, fence=fence), false), RevisionConflict)
        await _refuse(storage, consuming(commit(1, orphan, fence=fence), false), ClaimLost)
        await _refuse(storage, consuming(commit(1, orphan, fence=fence), claim), NodeNotFound)

    async def test_of_concurrent_commits_one_consumes(self, harness: Harness) -> None:
        """Work is consumed exactly once, by the commit that succeeds."""
        storages = [await harness.open() for _ in range(3)]
        await started(storages[0])
        fence = await leased(storages[0])
        for revision in range(1, 5):
            await queued(storages[0], joining("a", source_key=f"k{revision}"))
            claim = claimed(await _try(storages[0], fence))
            outcomes = await asyncio.gather(
                *(
                    storage.session("s").commit(
                        consuming(commit(revision, node(f"n{revision}-{number}", "a"), fence=fence), claim)
                    )
                    for number, storage in enumerate(storages)
                ),
                return_exceptions=True,
            )
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["CommitResult", "RevisionConflict", "RevisionConflict"]
            assert await storages[0].queue.list("s") == ()

    @pytest.mark.parametrize("rival", ["cancel", "claim"])
    async def test_work_of_a_late_commit_goes_to_one(self, harness: Harness, rival: str) -> None:
        """A commit of a lapsed claim concurrent with a cancel or a new claim: exactly one gets the batch."""
        storages = [await harness.open() for _ in range(2)]
        await started(storages[0])
        fence = await leased(storages[0], ttl_ms=LONG)
        revision = 1
        for number in range(6):
            (batch,) = await queued(storages[0], late(str(number)))
            claim = claimed(await _try(storages[0], fence))
            await harness.clock.advance(TTL)
            values = consuming(commit(revision, node(f"n{number}", "a")), claim)
            outcome, other = await asyncio.gather(
                storages[0].session("s").commit(values),
                storages[1].queue.cancel("s", batch.batch_id) if rival == "cancel" else _try(storages[1], fence),
                return_exceptions=True,
            )
            landed = isinstance(outcome, CommitResult)
            assert landed or isinstance(outcome, ClaimLost)
            assert isinstance(other, Batch | Claim) != landed
            revision += landed
            if isinstance(other, Claim):
                await storages[1].queue.abandon(other)
                assert await storages[1].queue.cancel("s", batch.batch_id) is not None
            assert await storages[0].queue.list("s") == ()

    async def test_a_wake_is_delivered_once(self, harness: Harness) -> None:
        """A process that repeats its event wakes the session once, even after the work is done."""
        storage, fence = await _storage(harness)
        wake = BatchDraft(
            session_id="s",
            payloads=(ProcessWake(wake_id="w", process_id="p", sequence=3, input="done"),),
            source_key="process:p:event:3:wake",
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
        )
        assert [(await storage.queue.enqueue(wake)).created for _ in range(2)] == [True, False]
        claim = claimed(await _try(storage, fence, CHECKPOINT))
        assert claim.batches[0].payloads == wake.payloads
        await storage.session("s").commit(consuming(commit(1, fence=fence), claim))
        assert (await storage.queue.enqueue(wake)).state is BatchState.CONSUMED
        assert await storage.queue.list("s") == ()


async def _storage(harness: Harness) -> tuple[Storage, LeaseFence]:
    storage = await harness.open()
    await started(storage)
    return storage, await leased(storage)


async def _held(harness: Harness) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage, the lease on its session ``s``, and a claim on ``a`` and ``b``; ``c`` waits behind them."""
    storage, fence = await _storage(harness)
    await queued(storage, joining("a", source_key="ka"), joining("b"), late("c"))
    return storage, fence, claimed(await _try(storage, fence))


async def _try(storage: Storage, fence: LeaseFence, boundary: Boundary = IDLE, max_batches: int = 100) -> ClaimOutcome:
    return await storage.queue.claim(fence, boundary=boundary, ttl_ms=TTL, max_batches=max_batches)


async def _by_text(storage: Storage) -> list[tuple[str, Batch]]:
    batches = await storage.queue.list("s")
    return list(zip(texts(batches), batches, strict=True))


async def _refuse(storage: Storage, values: Commit, error: type[Exception]) -> Exception:
    """Assert that the commit raises exactly this error and changes neither session nor queue."""
    before = await observe_queue(storage, values.session_id)
    with pytest.raises(error) as raised:
        await storage.session(values.session_id).commit(values)
    assert type(raised.value) is error
    assert await observe_queue(storage, values.session_id) == before
    return raised.value

"""The contract of traces: a step's record says how it ran, and a committed turn keeps the trace of its steps."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from lash.errors import InvalidInput, SessionNotFound
from lash.model.effect import EffectRun, ExecutionScope
from lash.model.lease import LeaseFence
from lash.model.session.trace import TraceStep, TurnTrace
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL
from tests.factories.effect import BROKEN, RUN, TURN, claimed, effect, in_session
from tests.factories.process import process_lease, registered
from tests.factories.session import commit, created, node

SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER_SPAN = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
STEP = TraceStep(name="search", began_at_ms=1_000, took_ms=20, worker="ann", attempt=1)
TRACE = TurnTrace(began_at_ms=990, attempts=2, crashes=1, worker="bob", steps=(STEP,))


async def test_a_record_says_how_its_effect_ran(harness: Harness) -> None:
    """The start is counted back from the moment of the record; attempt, tries and worker are kept with it."""
    storage = await harness.open()
    await registered(storage)
    run = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL)).fence
    ran = EffectRun(took_ms=250, attempt=2, tries=3)
    places: tuple[tuple[LeaseFence, ExecutionScope], ...] = ((await in_session(storage), TURN), (run, RUN))
    for number, (fence, scope) in enumerate(places):
        for key, outcome in (("done", "outcome"), ("failed", BROKEN)):
            record = await storage.effects.record(fence, effect(f"{key}{number}", scope=scope), outcome, ran=ran)
            assert record.began_at_ms == record.updated_at_ms - 250
            assert (record.attempt, record.tries, record.worker) == (2, 3, fence.owner_id)
            assert await storage.effects.get(scope, f"{key}{number}") == record
            assert await storage.effects.record(fence, effect(f"{key}{number}", scope=scope), outcome) == record


async def test_an_effect_without_a_measurement_began_when_it_was_recorded(harness: Harness) -> None:
    """A caller that does not measure gets the time of the record, and no attempt."""
    storage = await harness.open()
    record = await storage.effects.record(await in_session(storage), effect(), 1)
    assert (record.began_at_ms, record.attempt, record.tries) == (record.updated_at_ms, None, 1)


async def test_a_claimed_effect_began_with_its_last_claim(harness: Harness) -> None:
    """A claim is the start; a runner that takes the effect over starts it again, in its own attempt."""
    storage = await harness.open()
    await created(storage)
    claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, attempt=1))
    begun = await storage.effects.get(TURN, "k")
    assert begun is not None
    assert (begun.began_at_ms, begun.attempt, begun.worker) == (begun.created_at_ms, 1, ANN.owner_id)
    await harness.clock.advance(TTL)
    heir = claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL, attempt=2), taken_over=True)
    await harness.clock.advance(10)
    record = await storage.effects.finish(heir, "outcome")
    assert (record.began_at_ms, record.attempt, record.worker) == (record.updated_at_ms - 10, 2, BOB.owner_id)
    assert record.created_at_ms == begun.created_at_ms


async def test_a_record_keeps_the_span_of_its_attempt(harness: Harness) -> None:
    """Every read returns the span, and a repeat in another span returns the first record: it is not the identity."""
    storage = await harness.open()
    await registered(storage)
    run = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL)).fence
    places: tuple[tuple[LeaseFence, ExecutionScope], ...] = ((await in_session(storage), TURN), (run, RUN))
    for fence, scope in places:
        envelopes = [effect(key, scope=scope) for key in ("a", "b", "c")]
        traced = EffectRun(traceparent=SPAN)
        # Several at once are one statement on PostgreSQL.
        records = await asyncio.gather(*(storage.effects.record(fence, each, 1, ran=traced) for each in envelopes))
        assert [record.traceparent for record in records] == [SPAN] * 3
        again = await storage.effects.record(fence, envelopes[0], 1, ran=EffectRun(traceparent=OTHER_SPAN))
        assert again == records[0] == await storage.effects.get(scope, "a")
        assert list(await storage.effects.list(scope)) == records
        assert all(record in records for record in await storage.effects.recent(scope, 3))
        assert list(await storage.effects.get_many([(scope, key) for key in ("a", "b", "c")])) == records
        untraced = await storage.effects.record(fence, effect("d", scope=scope), 1)
        assert untraced.traceparent is None
        assert await storage.effects.get(scope, "d") == untraced


async def test_a_claimed_effect_keeps_the_span_of_its_last_claim(harness: Harness) -> None:
    """A claim stores the span before the effect runs; a runner in another span replaces it, and no hash changes."""
    storage = await harness.open()
    await created(storage)
    first = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, traceparent=SPAN))
    begun = await storage.effects.get(TURN, "k")
    assert begun is not None
    assert begun.traceparent == SPAN
    await harness.clock.advance(TTL)
    decision = await storage.effects.claim(effect(), BOB, ttl_ms=TTL, traceparent=OTHER_SPAN)
    heir = claimed(decision, taken_over=True)
    record = await storage.effects.finish(heir, "outcome")
    assert (record.traceparent, heir.envelope_hash) == (OTHER_SPAN, first.envelope_hash)
    assert await storage.effects.get(TURN, "k") == record


@pytest.mark.parametrize(
    "ran",
    [None, EffectRun(took_ms=-1), EffectRun(attempt=0), EffectRun(tries=0), EffectRun(traceparent="a\0")],
)
async def test_an_invalid_measurement_is_refused(harness: Harness, ran: object) -> None:
    """Times, attempts and tries are counts; nothing is recorded with others."""
    storage = await harness.open()
    fence = await in_session(storage)
    with pytest.raises(InvalidInput):
        await storage.effects.record(fence, effect(), 1, ran=cast(Any, ran))
    with pytest.raises(InvalidInput):
        await storage.effects.claim(effect(), ANN, ttl_ms=TTL, attempt=0)
    with pytest.raises(InvalidInput):
        await storage.effects.claim(effect(), ANN, ttl_ms=TTL, traceparent="")
    assert await storage.effects.list(TURN) == ()


async def test_a_turn_keeps_its_trace(harness: Harness) -> None:
    """The trace is read with the record of the turn: its revision, its time, and the steps."""
    storage = await harness.open()
    session = await created(storage)
    await session.commit(commit(0, node("a"), turn_id="t", trace=TRACE))
    await session.commit(commit(1, node("b", "a"), turn_id="u"))
    await session.append([node("c")], turn_id="v")
    found = await session.turns(["v", "t", "other", "u"])
    assert {turn_id: (each.revision, each.trace) for turn_id, each in found.items()} == {
        "t": (1, TRACE),
        "u": (2, None),
        "v": (3, None),
    }
    assert all(each.committed_at_ms == harness.clock.now_ms() for each in found.values())
    assert await session.turns([]) == {}
    with pytest.raises(SessionNotFound):
        await storage.session("other").turns(["t"])


async def test_the_first_commit_of_a_session_keeps_its_trace(harness: Harness) -> None:
    """A session that is created with its first commit has the trace of that turn too."""
    storage = await harness.open()
    await storage.sessions.create("s", commit=commit(0, node("a"), turn_id="t", trace=TRACE))
    assert (await storage.session("s").turns(["t"]))["t"].trace == TRACE


async def test_a_trace_is_no_part_of_the_identity(harness: Harness) -> None:
    """A repeat of the commit with another trace returns the first result, and the first trace stays."""
    storage = await harness.open()
    session = await created(storage)
    first = await session.commit(commit(0, node("a"), turn_id="t", trace=TRACE))
    assert await session.commit(commit(0, node("a"), turn_id="t", trace=TurnTrace(began_at_ms=1))) == first
    assert (await session.turns(["t"]))["t"].trace == TRACE


async def test_a_trace_is_pruned_with_its_turn(harness: Harness) -> None:
    """Nothing of a trace is left when the record of its turn is pruned."""
    storage = await harness.open()
    session = await created(storage)
    await session.commit(commit(0, node("a"), turn_id="t", trace=TRACE))
    await harness.clock.advance(1_000)
    await storage.maintenance.prune_turns(older_than_ms=500)
    assert await session.turns(["t"]) == {}

"""The contract of recorded effects: recorded once, replayed verbatim, never confused with another."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import pytest

from lash.errors import (
    Conflict,
    EffectMismatch,
    EffectNotRecorded,
    InvalidInput,
    ProcessNotFound,
)
from lash.model.causal import NodeCause
from lash.model.effect import (
    EffectStatus,
    Envelope,
    ExecCode,
    ExecutionScope,
    OperationScope,
    ProcessScope,
    Sleep,
    Step,
    TurnScope,
)
from lash.model.value import JSON
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL, refuse, seen
from tests.factories.effect import (
    BROKEN,
    TURN,
    claimed,
    effect,
    in_session,
    replayed,
)
from tests.factories.process import registered
from tests.factories.session import created

OUTCOMES: Final[tuple[JSON, ...]] = (
    None,
    True,
    0,
    1.5,
    "",
    "text é \N{GRINNING FACE}",
    [],
    [1, [None]],
    {"a": {"b": 1}},
)


class TestEffect:
    """Laws of recording and replaying."""

    async def test_a_recorded_outcome_is_replayed_verbatim(self, harness: Harness) -> None:
        """Every caller gets a recorded outcome unchanged, and nothing is left to run."""
        storage, other = await harness.open(), await harness.open()
        fence = await in_session(storage)
        for number, outcome in enumerate(OUTCOMES):
            envelope = effect(f"k{number}", Step(name="n", input=outcome))
            record = await storage.effects.record(fence, envelope, outcome)
            assert (record.status, record.outcome, record.error) == (EffectStatus.COMPLETED, outcome, None)
            assert (record.scope, record.kind, record.envelope) == (TURN, "step", envelope)
            assert await storage.effects.get(TURN, f"k{number}") == record
            for strict in (False, True):
                assert replayed(await other.effects.claim(envelope, BOB, ttl_ms=TTL, strict=strict)) == record

    async def test_a_recorded_error_is_replayed_verbatim(self, harness: Harness) -> None:
        """A recorded failure keeps its code, message and details."""
        storage = await harness.open()
        fence = await in_session(storage)
        at_once = await storage.effects.record(fence, effect("1"), BROKEN)
        claim = claimed(await storage.effects.claim(effect("2"), ANN, ttl_ms=TTL))
        after_claim = await storage.effects.fail(claim, BROKEN)
        for record in (at_once, after_claim):
            assert (record.status, record.outcome, record.error) == (EffectStatus.FAILED, None, BROKEN)
            assert replayed(await storage.effects.claim(record.envelope, BOB, ttl_ms=TTL)) == record

    async def test_recording_again_changes_nothing(self, harness: Harness) -> None:
        """The first outcome stays, whatever a later run of the same effect records."""
        storage = await harness.open()
        fence = await in_session(storage)
        first = await storage.effects.record(fence, effect(), 1)
        await harness.clock.advance(5)
        assert await storage.effects.record(fence, effect(), 2) == first
        assert await storage.effects.record(fence, effect(), BROKEN) == first
        assert await storage.effects.list(TURN) == (first,)
        await refuse(storage, storage.effects.take_over(effect(), BOB, ttl_ms=TTL), Conflict, naming="is completed")

    async def test_an_interrupted_effect_is_repeated_once(self, harness: Harness) -> None:
        """If the runner dies before recording, one other worker runs the effect and all others replay it."""
        storage = await harness.open()
        await created(storage)
        claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        heir = claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL), taken_over=True)
        record = await storage.effects.finish(heir, "second run")
        for _ in range(2):
            assert replayed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL)) == record
        assert record.outcome == "second run"

    async def test_another_effect_under_the_key_is_named(self, harness: Harness) -> None:
        """In every status, another envelope is refused with the first differing path and both values."""
        storage = await harness.open()
        fence = await in_session(storage)
        asked: list[dict[str, Any]] = [{"role": "user", "text": "a"}, {"role": "user", "text": "b"}]
        now = [asked[0], {"role": "user", "text": "c"}]
        before, after = (Step(name="model", input={"model": "m", "messages": each}) for each in (asked, now))
        await storage.effects.record(fence, effect("completed", before), 1)
        await storage.effects.record(fence, effect("failed", before), BROKEN)
        claimed(await storage.effects.claim(effect("live", before), ANN, ttl_ms=60_000))
        claimed(await storage.effects.claim(effect("lapsed", before), ANN, ttl_ms=0))
        given_back = claimed(await storage.effects.claim(effect("released", before), ANN, ttl_ms=TTL))
        await storage.effects.release(given_back)
        for key in ("completed", "failed", "live", "lapsed", "released"):
            for call in (
                storage.effects.claim(effect(key, after), BOB, ttl_ms=TTL),
                storage.effects.claim(effect(key, after), BOB, ttl_ms=TTL, strict=True),
                storage.effects.claim(effect(key, after), BOB, ttl_ms=TTL, once=True),
                storage.effects.record(fence, effect(key, after), 2),
                storage.effects.take_over(effect(key, after), BOB, ttl_ms=TTL),
            ):
                error = await refuse(storage, call, EffectMismatch, naming=repr(key))
                assert (error.path, error.recorded, error.given) == ("command.input.messages[1].text", "b", "c")

    async def test_every_part_of_an_envelope_counts(self, harness: Harness) -> None:
        """Another command, kind of command, cause or group under the key is another effect."""
        storage = await harness.open()
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=1)
        await storage.effects.record(fence, effect("k", Step(name="n", input={"a": 1})), 1)
        cause = NodeCause(session_id="s", node_id="a")
        for other, path in (
            (effect("k", Step(name="n", input={"a": 1.0})), "command.input.a"),
            (effect("k", Step(name="n", input={"a": 1, "b": None})), "command.input.b"),
            (effect("k", Step(name="n")), "command.input"),
            (effect("k", Step(name="m", input={"a": 1})), "command.name"),
            (effect("k", ExecCode(language="n", code="1")), "command.code"),
            (effect("k", Step(name="n", input={"a": 1}), cause=cause), "caused_by"),
            (effect("k", Step(name="n", input={"a": 1}), group="g"), "group_key"),
        ):
            error = await refuse(storage, storage.effects.record(fence, other, 1), EffectMismatch)
            assert error.path == path

    async def test_effects_are_found_by_key_and_not_by_order(self, harness: Harness) -> None:
        """Outcomes can be read in any order, and concurrently."""
        storage = await harness.open()
        fence = await in_session(storage)
        keys = [f"k{number}" for number in range(8)]
        await asyncio.gather(*(storage.effects.record(fence, effect(key), key) for key in keys))
        answers = await asyncio.gather(*(storage.effects.claim(effect(key), ANN, ttl_ms=TTL) for key in reversed(keys)))
        assert [replayed(answer).outcome for answer in answers] == keys[::-1]

    async def test_strict_replay_runs_nothing(self, harness: Harness) -> None:
        """Strict replay refuses an effect without an outcome: unknown, live, lapsed or released."""
        storage = await harness.open()
        await created(storage)
        claimed(await storage.effects.claim(effect("live"), ANN, ttl_ms=60_000))
        claimed(await storage.effects.claim(effect("lapsed"), ANN, ttl_ms=0))
        await storage.effects.release(claimed(await storage.effects.claim(effect("released"), ANN, ttl_ms=TTL)))
        for key in ("nothing", "live", "lapsed", "released"):
            call = storage.effects.claim(effect(key), BOB, ttl_ms=TTL, strict=True)
            error = await refuse(storage, call, EffectNotRecorded, naming=repr(key))
            assert error.replay_key == key

    async def test_scopes_share_nothing(self, harness: Harness) -> None:
        """Equal ids in scopes of other kinds, sessions or cuts are other scopes."""
        storage = await harness.open()
        for name in ("x", "x:y", "s"):
            await created(storage, name)
        await registered(storage, "x")
        scopes: list[ExecutionScope] = [
            TurnScope(session_id="x", turn_id="x"),
            TurnScope(session_id="x:y", turn_id="z"),
            TurnScope(session_id="x", turn_id="y:z"),
            TurnScope(session_id="s", turn_id="x"),
            ProcessScope(process_id="x"),
            OperationScope(operation_id="x"),
        ]
        for number, scope in enumerate(scopes):
            claim = claimed(await storage.effects.claim(effect(scope=scope), ANN, ttl_ms=TTL))
            await storage.effects.finish(claim, number)
        for number, scope in enumerate(scopes):
            (record,) = await storage.effects.list(scope)
            assert (record.scope, record.outcome) == (scope, number)

    async def test_many_are_read_in_the_order_of_their_names(self, harness: Harness) -> None:
        """Records of several scopes come with one call; None stands for what has no record, or no session."""
        storage = await harness.open()
        fence = await in_session(storage)
        one = await storage.effects.record(fence, effect("a"), 1)
        operation = OperationScope(operation_id="o")
        claim = claimed(await storage.effects.claim(effect("a", scope=operation), ANN, ttl_ms=TTL))
        other = await storage.effects.finish(claim, 2)
        gone = TurnScope(session_id="missing", turn_id="t")
        names: list[tuple[ExecutionScope, str]] = [
            (operation, "a"),
            (TURN, "b"),
            (TURN, "a"),
            (gone, "a"),
            (operation, "a"),
        ]
        assert await storage.effects.get_many(names) == (other, None, one, None, other)
        assert await storage.effects.get_many([]) == ()
        for wrong in ([(TURN, " ")], [(TURN, "k")] * 1_001, cast("Any", "ab")):
            await refuse(storage, storage.effects.get_many(wrong), InvalidInput)

    async def test_blank_ids_are_refused(self, harness: Harness) -> None:
        """A blank scope or key is refused before anything is read."""
        storage = await harness.open()
        fence = await in_session(storage)
        for scope in (
            TurnScope(session_id=" ", turn_id="t"),
            TurnScope(session_id="s", turn_id=""),
            ProcessScope(process_id=""),
            OperationScope(operation_id=" "),
        ):
            for call in (
                storage.effects.claim(effect(scope=scope), ANN, ttl_ms=TTL),
                storage.effects.record(fence, effect(scope=scope), 1),
                storage.effects.get(scope, "k"),
                storage.effects.list(scope),
                storage.effects.retire(scope),
                storage.effects.open_group(scope, "g", size=1),
            ):
                await refuse(storage, call, InvalidInput, naming="blank")
        for key in ("", " ", "x" * 256, "\0"):
            await refuse(storage, storage.effects.claim(effect(key), ANN, ttl_ms=TTL), InvalidInput)

    async def test_envelopes_and_outcomes_are_plain_and_bounded(self, harness: Harness) -> None:
        """Bytes, live objects and oversize values are refused; nothing is written."""
        storage = await harness.open()
        fence = await in_session(storage)
        for impossible in (b"bytes", object(), float("nan"), {1: 2}, "x" * 1_048_577):
            value = cast("JSON", impossible)
            await refuse(storage, storage.effects.record(fence, effect(), value), InvalidInput)
            if not isinstance(impossible, str):
                envelope = effect("k", Step(name="n", input=value))
                await refuse(storage, storage.effects.claim(envelope, ANN, ttl_ms=TTL), InvalidInput)
        text = "x" * 1_000_000
        assert (await storage.effects.record(fence, effect(), text)).outcome == text
        await refuse(storage, storage.effects.claim(cast("Envelope", "k"), ANN, ttl_ms=TTL), InvalidInput)

    async def test_a_step_is_its_input(self, harness: Harness) -> None:
        """The input is part of a step's identity; a failing step is recorded with its own code."""
        storage = await harness.open()
        fence = await in_session(storage)
        record = await storage.effects.record(fence, effect("k", Step(name="d", input=[1])), BROKEN)
        assert (record.kind, record.error) == ("step", BROKEN)
        other = effect("k", Step(name="d", input=[2]))
        assert (
            await refuse(storage, storage.effects.record(fence, other, 1), EffectMismatch)
        ).path == "command.input[0]"

    async def test_a_recorded_sleep_has_its_due_time(self, harness: Harness) -> None:
        """A duration counts from the first record on the storage's clock; a moment is that moment."""
        storage = await harness.open()
        fence = await in_session(storage)
        now = harness.clock.now_ms()
        first = await storage.effects.record(fence, effect("for", Sleep(duration_ms=500)), None)
        until = await storage.effects.record(fence, effect("until", Sleep(until_ms=7)), None)
        await harness.clock.advance(100)
        again = await storage.effects.record(fence, effect("for", Sleep(duration_ms=500)), None)
        assert (first.due_at_ms, until.due_at_ms, again) == (now + 500, 7, first)
        assert (await storage.effects.record(fence, effect("step"), None)).due_at_ms is None

    async def test_lists_go_by_key(self, harness: Harness) -> None:
        """A scope is listed in the byte order of its keys, in pages that continue behind a key."""
        storage = await harness.open()
        fence = await in_session(storage)
        keys = ["b", "a", "B", "é", "a:1", "a~"]
        for key in keys:
            await storage.effects.record(fence, effect(key), None)
        everything = await storage.effects.list(TURN)
        assert [record.replay_key for record in everything] == sorted(keys)
        page = await storage.effects.list(TURN, limit=2, after="a")
        assert page == everything[2:4]
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput):
                await storage.effects.list(TURN, limit=limit)

    async def test_the_last_effects_come_first(self, harness: Harness) -> None:
        """The newest change is first, and the earlier key of two that changed at once; an unknown scope is refused."""
        storage = await harness.open()
        fence = await in_session(storage)
        assert await storage.effects.recent(TURN, 10) == ()
        for key in ("b", "a", "B", "c"):
            await storage.effects.record(fence, effect(key), key)
            if key != "a":
                await harness.clock.advance(1)
        found = await storage.effects.recent(TURN, 3)
        assert [record.replay_key for record in found] == ["c", "B", "a"]
        assert [record.replay_key for record in await storage.effects.recent(TURN, 10)] == ["c", "B", "a", "b"]
        claimed(await storage.effects.claim(effect("b2"), BOB, ttl_ms=TTL))
        assert (await storage.effects.recent(TURN, 1))[0].replay_key == "b2"
        for count in (0, 1_001):
            with pytest.raises(InvalidInput):
                await storage.effects.recent(TURN, count)
        with pytest.raises(ProcessNotFound):
            await storage.effects.recent(ProcessScope(process_id="unknown"), 10)

    async def test_effects_survive_reopening(self, harness: Harness) -> None:
        """Outcomes, due times, claims and ranks survive closing and reopening."""
        storage = await harness.open()
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=3)
        for key in ("b", "a"):
            await storage.effects.record(fence, effect(key, group="g"), key)
        claim = claimed(await storage.effects.claim(effect("c", Sleep(duration_ms=9), group="g"), ANN, ttl_ms=TTL))
        before = await seen(storage)
        storage = await harness.reopen()
        assert await seen(storage) == before
        record = await storage.effects.finish(claim, None)
        assert (record.settled_rank, record.due_at_ms) == (3, claim.due_at_ms)

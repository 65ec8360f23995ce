"""Failed attempts are seen: in the log, in the storage, and at the caller, with the application's own traceback."""

from __future__ import annotations

import logging
import traceback

import pytest

import lash
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import Failure
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.steps.failure import describe_failure, trace_of
from tests.runtime.process_bench import World, outcome_of
from tests.runtime.turn_bench import Bench


def order(number: int) -> int:
    raise LookupError(f"order {number} of the user")


def check_trace(text: str, *, raised: str = 'raise LookupError(f"order {number} of the user")') -> None:
    """The text shows the application's frames, the innermost one included, and none of lash."""
    assert raised in text
    assert 'test_failed_attempt.py", line ' in text
    assert "/lash/runtime/" not in text


async def test_failed_attempts_of_a_turn_are_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Each has a line with name, id, number and pause, and the traceback; the last one is an error."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=0.5))
    async def clerk(turn: lash.Turn) -> str:
        return str(await turn.step(order, 7))

    chat = app.session("s", clerk)
    sent = await chat.send("x")
    await app.drain()
    await bench.seconds(1)
    await app.drain()
    first, last = caplog.records
    ids = f"agent 'clerk' (session_id='s', turn_id='turn:{sent.batch_id}')"
    why = "LookupError: order 7 of the user"
    line, _, trace = first.getMessage().partition("\n")
    assert line == f"turn.retried {ids}: attempt 1 of 2 failed; next attempt in 0.5 s: {why}"
    check_trace(trace)
    line, _, trace = last.getMessage().partition("\n")
    assert line == f"turn.buried {ids}: attempt 2 of 2 failed; no further attempt: {why}"
    check_trace(trace)
    assert [first.levelno, last.levelno] == [logging.WARNING, logging.ERROR]
    (letter,) = await chat.dead_letters()
    assert isinstance(letter.error, dict)
    check_trace(str(letter.error["traceback"]))


async def test_a_process_that_fails_for_good_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without retries there is one error in the log; the event and the outcome hold the traceback."""
    app = await world.app()

    @app.process(retry=NO_RETRY)
    async def ship(ctx: lash.Context) -> None:
        order(1)

    handle = await app.start(ship)
    await app.drain()
    ((kind, note),) = [(kind, note) for kind, note in world.heard.notes if kind.startswith("process.")]
    assert kind == "process.failed"
    check_trace(note["traceback"])
    assert (note["process"], note["process_id"], note["attempt"], note["max_attempts"]) == (
        "ship",
        handle.process_id,
        1,
        1,
    )
    (logged,) = caplog.records
    assert logged.levelno == logging.ERROR
    ids = f"process 'ship' (process_id='{handle.process_id}')"
    assert logged.getMessage().startswith(
        f"process.failed {ids}: attempt 1 of 1 failed; no further attempt: LookupError: order 1 of the user\nTraceback"
    )
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.raw, dict)
    assert outcome.raw["traceback"] == note["traceback"]
    (event,) = await app.storage.events.after(handle.process_id, event_type=ATTEMPT_FAILED)
    assert isinstance(event.payload, dict)
    assert event.payload["traceback"] == note["traceback"]


async def test_a_process_that_is_tried_again_is_logged(world: World) -> None:
    """A failed attempt names the pause; one that an operator must fix does not count, and is noted once."""
    app = await world.app()

    @app.process(retry=Retry(max_attempts=3, first_pause_s=2))
    async def ship(ctx: lash.Context) -> None:
        order(1)

    @app.process
    async def stuck(ctx: lash.Context) -> None:
        raise lash.OutcomeUnknown("x", "pay")

    await app.start(ship)
    other = await app.start(stuck)
    await app.drain()
    notes = {note["process"]: note for note in world.heard.of("process.retried")}
    assert (notes["ship"]["attempt"], notes["ship"]["next_s"], notes["ship"]["counts"]) == (1, 2, True)
    assert (notes["stuck"]["counts"], notes["stuck"]["next_s"]) == (False, 300)
    await world.seconds(301)
    await app.drain()
    assert len(await app.storage.events.after(other.process_id, event_type=ATTEMPT_FAILED)) == 1


async def test_a_process_without_its_arguments_is_seen(world: World) -> None:
    """A process whose arguments do not fit, as one that a schedule starts, is reported each time."""
    app = await world.app()

    @app.process
    async def digest(ctx: lash.Context, who: str) -> None:
        raise AssertionError("never called")

    app.on("tick", digest)
    await app.stop()
    await app.open()
    await app.emit("tick", {}, key="1")
    await app.drain()
    (note,) = world.heard.of("process.failed")
    assert note["process"] == "digest"
    assert "who" in note["error"]


async def test_the_caller_sees_the_line_of_the_application(bench: Bench) -> None:
    """TurnFailed and ProcessFailed show the stored traceback, also to a caller in another application."""
    app = await bench.app()

    @app.agent(retry=NO_RETRY)
    async def clerk(turn: lash.Turn) -> str:
        return str(order(2))

    @app.process(retry=NO_RETRY)
    async def ship(ctx: lash.Context) -> None:
        order(3)

    sent = await app.session("s", clerk).send("x", key="k")
    handle = await app.start(ship)
    await app.drain()
    caller = await bench.app() if bench.shared else app
    if bench.shared:
        caller.agent(name="clerk")(clerk.function)
    with pytest.raises(lash.TurnFailed) as turn_failed:
        await caller.session("s", "clerk").ask("x", key="k")
    with pytest.raises(lash.ProcessFailed) as process_failed:
        await caller.handle(handle.process_id).result()
    assert turn_failed.value.batch_id == sent.batch_id
    for failed, origin in ((turn_failed.value, "agent"), (process_failed.value, "process")):
        shown = "".join(traceback.format_exception(failed))
        assert f"In the {origin}:\n" in shown
        assert failed.traceback is not None
        assert failed.traceback in shown
        check_trace(failed.traceback)


def test_a_long_traceback_is_cut_in_its_middle() -> None:
    """The outermost and the innermost frames stay, and a long message leaves room for them."""

    def descend(depth: int) -> int:
        return climb(depth)

    def climb(depth: int) -> int:
        if depth == 0:
            raise ValueError("x" * 1_000_000)
        return descend(depth - 1)

    with pytest.raises(ValueError, match="xxx") as raised:
        descend(200)
    text, reason = trace_of(raised.value), describe_failure(raised.value)
    assert len(text) <= 8_000
    assert text.startswith("Traceback (most recent call last):\n")
    assert "    descend(200)" in text
    assert 'raise ValueError("x" * 1_000_000)' in text
    assert text.endswith("xxx...")
    assert reason == "ValueError: " + "x" * 988


def test_an_error_that_cannot_be_shown_is_named() -> None:
    """Neither ``__str__`` nor the notes of an error can hide that there was one."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    class Broken(Mute):
        def __getattribute__(self, name: str) -> object:
            if name == "__notes__":
                raise RuntimeError("no notes")
            return super().__getattribute__(name)

    for kind in (Mute, Broken):
        with pytest.raises(kind) as raised:
            raise kind
        assert kind.__name__ in describe_failure(raised.value)
        assert kind.__name__ in trace_of(raised.value)


def test_causes_and_groups_are_shown_without_frames_of_lash() -> None:
    """A cause keeps its frames; an error that lash raised on purpose shows only what it says."""
    with pytest.raises(LookupError) as cause:
        order(4)
    group = ExceptionGroup("both", [cause.value, ValueError("other")])
    group.__cause__ = cause.value
    text = trace_of(group)
    assert text.count("LookupError: order 4 of the user") == 2
    assert "ValueError: other" in text
    with pytest.raises(lash.ConfigError) as refused:
        Retry(max_attempts=0)
    text = trace_of(refused.value)
    assert "Retry(max_attempts=0)" in text
    assert "policy.py" not in text

"""Failed attempts are seen: in the log, in the storage, and at the caller, with the application's own traceback."""

from __future__ import annotations

import asyncio
import importlib
import logging
import traceback
from collections.abc import Callable

import pytest

import lash
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import Failure
from lash.model.worker import Served
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.steps.failure import describe_failure, trace_of
from tests.contract.test_worker import beat
from tests.runtime.process_bench import World, outcome_of
from tests.runtime.turn_bench import Bench
from tests.runtime.worker_kit import until


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
    (note,) = world.heard.of("process.failed")
    assert not world.heard.of("process.retried")
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


def _undefined() -> None:
    raise NameError("name 'nmae' is not defined")


def _inside() -> None:
    raise TypeError("an answer of another shape")


BUGS: dict[str, tuple[Callable[[lash.Turn], object], bool]] = {
    "attribute": (lambda turn: turn.message(), True),  # type: ignore[attr-defined]
    "name": (lambda _: _undefined(), True),
    "import": (lambda _: importlib.import_module("no_such_module"), True),
    "syntax": (lambda _: compile("def", "agent.py", "exec"), True),
    "type further inside": (lambda _: _inside(), False),
    "another": (lambda _: order(5), False),
}


@pytest.mark.parametrize("bug", BUGS)
async def test_programming_errors_are_not_tried_again(bench: Bench, bug: str) -> None:
    """The same code would raise them again; what depends on data or the world is tried again."""
    if bug not in ("attribute", "another") and bench.backend != "memory":
        pytest.skip("the rule does not know the database; two errors are enough")
    app = await bench.app()
    raising, is_final = BUGS[bug]

    @app.agent
    async def clerk(turn: lash.Turn) -> str:
        return str(raising(turn))

    @app.process
    async def ship(ctx: lash.Context) -> None:
        raising(ctx)  # type: ignore[arg-type]

    await app.session("s", clerk).send("x")
    handle = await app.start(ship)
    await app.drain()
    assert len(await app.session("s").dead_letters()) == int(is_final)
    assert ((await handle.record()).projection.outcome is not None) == is_final
    pauses = [note["next_s"] for kind in ("turn.retried", "process.retried") for note in bench.notes.of(kind)]
    assert pauses == ([] if is_final else [0.25, 0.25])


async def test_a_type_error_of_the_handler_itself_is_final(bench: Bench) -> None:
    """A wrong call in the handler is an error of the code; the user may choose to try again after all."""
    app = await bench.app()

    @app.agent
    async def clerk(turn: lash.Turn) -> str:
        return turn.messages("a", "b")  # type: ignore[arg-type,call-arg,return-value]

    @app.agent(retry=Retry(max_attempts=2, programming_errors=True))
    async def stubborn(turn: lash.Turn) -> str:
        return turn.messages("a", "b")  # type: ignore[arg-type,call-arg,return-value]

    await app.session("s", clerk).send("x")
    await app.session("t", stubborn).send("x")
    await app.drain()
    assert len(await app.session("s").dead_letters()) == 1
    assert [note["session_id"] for note in bench.notes.of("turn.retried")] == ["t"]


async def test_a_call_that_does_not_fit_the_handler_is_final(bench: Bench) -> None:
    """An agent that cannot be called with a turn fails once; its error names no frame of lash."""
    app = await bench.app()

    async def two(turn: lash.Turn, other: int) -> str:
        raise AssertionError("never called")

    app.agent(name="two")(two)  # type: ignore[type-var]
    await app.session("s", "two").send("x")
    await app.drain()
    (letter,) = await app.session("s").dead_letters()
    assert "missing 1 required positional argument" in letter.reason


async def test_a_changed_step_is_final_for_a_turn(bench: Bench) -> None:
    """A turn whose code no longer fits its records is a dead letter at once; it can be requeued with the old code."""
    app = await bench.app()
    said = ["hello", "hello!"]

    @app.agent(retry=Retry(max_attempts=4, first_pause_s=0))
    async def clerk(turn: lash.Turn) -> str:
        await turn.step("say", str.upper, said.pop(0))
        raise ConnectionError("down")

    await app.session("s", clerk).send("x")
    await app.drain()
    (letter,) = await app.session("s").dead_letters()
    assert "was recorded with other content" in letter.reason
    assert letter.attempts == 2


async def test_a_caller_without_a_worker_is_warned(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for replies or a result logs once that no worker runs; with a worker it logs nothing."""
    monkeypatch.setattr("lash.runtime.no_worker._PATIENCE_S", 0.02)
    app = await bench.app()

    @app.agent
    async def clerk(turn: lash.Turn) -> str:
        await asyncio.sleep(0.1)
        return "ok"

    @app.process
    async def ship(ctx: lash.Context) -> None:
        raise AssertionError("never called")

    handle = await app.start(ship)
    # Callers that wait at the same time share a warning.
    monkeypatch.setattr("lash.runtime.no_worker._EVERY_S", 600)
    asked = [app.session("s", clerk).ask("x", key="k", timeout_s=0.3) for _ in range(3)]
    replies = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in replies] == [lash.WaitTimedOut] * 3
    with pytest.raises(lash.WaitTimedOut):
        await handle.result(timeout_s=0.3)
    turn, process = [record.getMessage() for record in caplog.records]
    beginning = "no worker runs a turn of agent 'clerk' on this storage; "
    assert turn.startswith(f"{beginning}the reply to 'k' in session 's' waits for one")
    assert process.startswith(f"no worker runs a process on this storage; the result of process '{handle.process_id}'")
    caplog.clear()
    await app.stop()
    async with lash.App(bench.url) as busy:
        busy.agent(name="clerk")(clerk.function)

        async def is_registered() -> bool:
            return bool(await busy.storage.workers.list())

        await until(is_registered)
        assert await busy.session("t", "clerk").ask("x", timeout_s=30) == "ok"
    assert [record.getMessage() for record in caplog.records if "no worker" in record.getMessage()] == []


async def test_a_caller_is_warned_of_labels_that_no_worker_takes(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that takes other labels does not count; one that takes those of the session does."""
    monkeypatch.setattr("lash.runtime.no_worker._PATIENCE_S", 0.02)
    monkeypatch.setattr("lash.runtime.no_worker._EVERY_S", 0)
    app = await bench.app()

    @app.agent
    async def clerk(turn: lash.Turn) -> str:
        raise AssertionError("never called")

    announced = beat("a", served=Served(labels={"region": "eu"}), beat_ms=60_000)
    await app.storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
    for region in ("eu", "us"):
        await app.storage.sessions.create(region, labels={"region": region})
    with pytest.raises(lash.WaitTimedOut):
        await app.session("eu", clerk).ask("x", timeout_s=0.3)
    asking = asyncio.create_task(app.session("us", clerk).ask("x"))
    await until(lambda: bool(caplog.records))
    asking.cancel()
    await asyncio.wait({asking})
    warning = caplog.records[0].getMessage()
    assert warning.startswith("no worker runs a turn of agent 'clerk' with the labels {'region': 'us'} on this storage")


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

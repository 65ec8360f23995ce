from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

import pytest

import lash
from lash.model.effect import TurnScope
from lash.runtime.hooks import Attributes, Hooks
from lash.testing.clock import ManualClock

ONCE = lash.Retry(max_attempts=1)
TWICE = lash.Retry(max_attempts=2, first_pause_s=1)


class Recorder(lash.Hook):
    """Records every call."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Attributes, BaseException | None]] = []
        self.notes: list[tuple[str, Attributes]] = []
        self.statements: Counter[str] = Counter()

    @contextlib.contextmanager
    def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.spans.append((kind, attributes, error))
            raise
        self.spans.append((kind, attributes, None))

    def note(self, kind: str, attributes: Attributes) -> None:
        self.notes.append((kind, attributes))

    def statement(self, name: str) -> None:
        self.statements[name] += 1

    def noted(self, kind: str) -> list[Attributes]:
        return [attributes for each, attributes in self.notes if each == kind]


@dataclasses.dataclass
class Clumsy(lash.Hook):
    """Raises in every method, and cannot be hashed."""

    def span(self, kind: str, attributes: Attributes) -> AbstractContextManager[None]:
        raise ZeroDivisionError("span")

    def note(self, kind: str, attributes: Attributes) -> None:
        raise ZeroDivisionError("note")

    def statement(self, name: str) -> None:
        raise ZeroDivisionError("statement")

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        raise ZeroDivisionError("measure")

    def traceparent(self) -> str | None:
        raise ZeroDivisionError("traceparent")


async def test_turns_steps_and_statements_are_told(backend_url: str) -> None:
    """Each attempt of a turn and of a step is a span with its ids; a failed one ends with its error."""
    hook = Recorder()
    async with lash.App(backend_url, worker=False, hooks=[hook]) as app:

        async def double(number: int) -> int:
            return 2 * number

        @app.agent(retry=ONCE)
        async def agent(turn: lash.Turn) -> str:
            first = await turn.step(double, 4)
            if turn.text == "fail":
                raise ZeroDivisionError("by choice")
            return str(first)

        sent = await app.session("good").send("hi")
        await app.session("bad").send("fail")
        await app.drain()
        turns = {str(given["session_id"]): (given, error) for kind, given, error in hook.spans if kind == "turn"}
        good, error = turns["good"]
        assert good.items() >= {"session_id": "good", "turn_id": f"turn:{sent.batch_id}", "attempt": 1}.items()
        assert (good["agent"], error, float(good["waited_s"]) >= 0) == ("agent", None, True)
        failure = turns["bad"][1]
        assert isinstance(failure, ZeroDivisionError)
        assert failure.__traceback__ is not None
        steps = [given for kind, given, _ in hook.spans if kind == "step"]
        assert [(given["name"], given["step"], given["attempt"]) for given in steps] == [("double", "double#1", 1)] * 2
        assert {given["session_id"] for given in steps} == {"good", "bad"}
        (buried,) = hook.noted("turn.buried")
        assert (buried["session_id"], buried["error"]) == ("bad", "ZeroDivisionError: by choice")
        assert sum(hook.statements.values()) > 10


async def test_processes_and_replays_are_told() -> None:
    """A parked run has not failed; the next run notes the steps that it replays."""
    hook, clock = Recorder(), ManualClock()
    async with lash.App("sqlite://", worker=False, hooks=[hook], clock=clock) as app:

        @app.process(retry=TWICE)
        async def nap(ctx: lash.Context) -> None:
            await ctx.step(str.upper, "a")
            await ctx.sleep(60)
            raise ZeroDivisionError("after the nap")

        handle = await app.start(nap)
        await app.drain()
        assert [(kind, error) for kind, _, error in hook.spans if kind == "process"] == [("process", None)]
        assert hook.noted("process.parked") == [{"process_id": handle.process_id}]
        await clock.advance(61_000)
        await app.drain()
        kind, given, error = hook.spans[-1]
        assert (kind, given) == ("process", {"process_id": handle.process_id, "process": "nap"})
        assert isinstance(error, ZeroDivisionError)
        assert [given["name"] for given in hook.noted("step.replayed")] == ["upper"]
        assert [given["attempt"] for given in hook.noted("process.retried")] == [1]


async def test_context_variables_reach_all_of_a_turn() -> None:
    """Variables that a span's manager sets are seen by the agent, its concurrent steps and steps in threads."""
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="nothing")

    class Setting(lash.Hook):
        @contextlib.contextmanager
        def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
            token = current.set(f"{current.get()} > {attributes.get('name', kind)}")
            yield
            current.reset(token)

    async def in_loop() -> str:
        return current.get()

    def in_thread() -> str:
        assert threading.current_thread() is not threading.main_thread()
        return current.get()

    async with lash.App("sqlite://", worker=False, hooks=[Setting()]) as app:

        @app.process
        async def look(ctx: lash.Context) -> list[str]:
            return [current.get(), *await ctx.gather(ctx.step(in_loop), ctx.step(in_thread))]

        handle = await app.start(look)
        await app.drain()
        assert await handle.result() == [
            "nothing > process",
            "nothing > process > in_loop",
            "nothing > process > in_thread",
        ]
    assert current.get() == "nothing"


async def test_a_hook_that_fails_breaks_nothing(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Turns, processes and other hooks are not affected; the log has one entry per method."""
    hook = Recorder()
    with caplog.at_level(logging.INFO, logger="lash"):
        async with lash.App(backend_url, worker=False, hooks=[Clumsy(), hook]) as app:

            @app.agent
            async def agent(turn: lash.Turn) -> str:
                return await turn.step(str.upper, turn.text)

            await app.session("c").send("hi")
            await app.drain()
            assert [lash.text_of(message) for message in await app.session("c").messages()] == ["hi", "HI"]
    assert [kind for kind, _, _ in hook.spans] == ["step", "turn"]
    told = [record for record in caplog.records if "failed; the run that it watches goes on" in record.getMessage()]
    assert sorted(record.getMessage().split(" ")[0] for record in told) == [
        *("Clumsy.note", "Clumsy.span", "Clumsy.statement", "Clumsy.traceparent")
    ]
    assert all(record.exc_info is not None and record.exc_info[0] is ZeroDivisionError for record in told)


class Managed(lash.Hook):
    """Returns managers that end as the test asks."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def span(self, kind: str, attributes: Attributes) -> AbstractContextManager[None]:
        return _Manager(self.ending)


class _Manager:
    def __init__(self, ending: str) -> None:
        self._ending = ending

    def __enter__(self) -> None:
        if self._ending == "enter":
            raise ZeroDivisionError("enter")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._ending == "exit":
            raise ZeroDivisionError("exit")
        if self._ending == "again" and error is not None:
            raise error
        return self._ending == "swallow"


@pytest.mark.parametrize("ending", ["enter", "exit", "swallow", "again"])
@pytest.mark.parametrize("error", [LookupError("its own"), asyncio.CancelledError("its own")])
def test_an_error_passes_whatever_a_manager_does(ending: str, error: BaseException) -> None:
    """A manager can neither swallow nor replace an error, nor hide it from other managers."""
    hook = Recorder()
    hooks = Hooks([hook, Managed(ending)])
    with pytest.raises(type(error)) as caught, hooks.span("step", name="x"):
        raise error
    assert caught.value is error
    assert [seen for _, _, seen in hook.spans] == [error]


def test_an_error_that_was_dealt_with_inside_ends_only_the_innermost_span() -> None:
    """A retried failure is an error to the hooks, but not to the code around it."""
    hook, error = Recorder(), LookupError("dealt with")
    hooks = Hooks([hook])
    with hooks.span("turn"):
        with hooks.span("step"):
            hooks.failed(error)
        with hooks.span("step"):
            pass
    hooks.failed(error)
    assert [(kind, seen) for kind, _, seen in hook.spans] == [("step", error), ("step", None), ("turn", None)]


def test_what_nobody_listens_to_is_not_told() -> None:
    """Without a hook that overrides them, spans are one shared no-op, and statements are not hooked."""
    hooks = Hooks([lash.LoggingHook()])
    assert hooks.on_statement is None
    assert hooks.span("turn") is hooks.step(TurnScope(session_id="s", turn_id="t"), "x", 1)
    assert Hooks([Recorder()]).on_statement is not None


def test_something_else_than_a_hook_is_refused() -> None:
    """A class or a function in place of an instance is refused when the app is made."""
    for wrong in (Recorder, print):
        with pytest.raises(lash.ConfigError, match=r"instance of a subclass of lash\.Hook"):
            lash.App("sqlite://", hooks=[wrong])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("kind", "level"), [("lease.lost", "WARNING"), ("worker.trouble", "WARNING"), ("step.replayed", "DEBUG")]
)
def test_the_log_tells_what_somebody_should_know(kind: str, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """Trouble is logged as a warning, everything else at debug level."""
    with caplog.at_level(logging.DEBUG, logger="lash"):
        Hooks([lash.LoggingHook()]).note(kind, session_id="c", attempt=2)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (level, f"{kind} session_id='c' attempt=2")
    ]


async def test_each_turn_and_process_that_ended_is_one_line(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """At info level the log has a line with name, id, outcome, time and steps; nothing is a warning without trouble."""
    async with lash.App(backend_url, worker=False) as app:

        @app.agent
        async def clerk(turn: lash.Turn) -> str:
            return await turn.step(str.upper, turn.text)

        @app.process
        async def count(ctx: lash.Context, run: int) -> None:
            await ctx.step(str.upper, "a")
            if run == 1:
                await ctx.continue_as_new(2)

        with caplog.at_level(logging.INFO, logger="lash"):
            await app.session("s", agent=clerk).send("hi", key="1")
            await app.starting(process_id="p").start(count, 1)
            await app.drain()
    lines = [record.getMessage() for record in caplog.records if "ended" in record.getMessage()]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    (turn,) = [line for line in lines if line.startswith("turn.ended")]
    assert re.fullmatch(
        r"turn\.ended agent='clerk' session_id='s' turn_id='turn:\w+' outcome='committed' took_s=[\d.]+ steps=1", turn
    )
    processes = [re.sub(r"took_s=[\d.]+", "took_s=t", line) for line in lines if line.startswith("process.ended")]
    shown = "process.ended process='count' process_id='p' run={} outcome='{}' took_s=t steps=1"
    assert processes == [shown.format(1, "continued"), shown.format(2, "completed")]

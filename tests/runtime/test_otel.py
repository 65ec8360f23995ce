from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import lash
from lash.telemetry.otel import OpenTelemetryHook
from lash.testing.clock import ManualClock


class Telemetry:
    """The SDK with everything kept in memory."""

    def __init__(self) -> None:
        self.traces = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.hook = OpenTelemetryHook(self.traces, self.meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def counted(self, name: str) -> dict[str, int | float]:
        """Return the values of a counter by its attributes."""
        data = self._reader.get_metrics_data()
        found: dict[str, int | float] = {}
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name == name else ():
                        assert isinstance(point, NumberDataPoint)
                        found[" ".join(str(value) for value in (point.attributes or {}).values())] = point.value
        return found


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    given = Telemetry()
    yield given
    given.traces.shutdown()
    given.meters.shutdown()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_steps_are_children_of_their_run_in_every_task_and_thread(telemetry: Telemetry) -> None:
    """Concurrent steps, in the loop and in threads, and the spans inside them have the right parents."""
    tracer = telemetry.traces.get_tracer("the application")

    async def in_loop() -> None:
        with tracer.start_as_current_span("a call of the step"):
            pass

    def in_thread() -> None:
        with tracer.start_as_current_span("a call of the thread"):
            pass

    async with lash.App("sqlite://", worker=False, hooks=[telemetry.hook]) as app:

        @app.process
        async def work(ctx: lash.Context) -> None:
            await ctx.gather(ctx.step(in_loop), ctx.step(in_thread))

        handles = [await app.start(work), await app.start(work)]
        await app.drain()
    runs = {id_of(span): (span.attributes or {})["lash.process_id"] for span in telemetry.spans("process work")}
    assert sorted(map(str, runs.values())) == sorted(handle.process_id for handle in handles)
    for step, call in (("step in_loop", "a call of the step"), ("step in_thread", "a call of the thread")):
        steps = telemetry.spans(step)
        for span in steps:
            assert runs[parent_of(span) or 0] == (span.attributes or {})["lash.process_id"]
        assert {parent_of(span) for span in telemetry.spans(call)} == {id_of(span) for span in steps}
        assert len(steps) == 2


async def test_a_turn_has_its_ids_and_its_errors(telemetry: Telemetry) -> None:
    """Each attempt is a span; a failed one has its error with a traceback, and so has its step."""
    clock = ManualClock()
    async with lash.App("sqlite://", worker=False, hooks=[telemetry.hook], clock=clock) as app:

        def divide(by: int) -> float:
            return 1 / by

        @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=1))
        async def agent(turn: lash.Turn) -> str:
            return str(await turn.step(divide, turn.attempt - 1))

        sent = await app.session("c").send("hi")
        await app.drain()
        await clock.advance(2_000)
        await app.drain()
    failed, _ = telemetry.spans("turn")
    assert failed.attributes == {"lash.session_id": "c", "lash.turn_id": f"turn:{sent.batch_id}", "lash.attempt": 1}
    assert (failed.kind, failed.parent) == (SpanKind.CONSUMER, None)
    for span in (failed, telemetry.spans("step divide")[0]):
        assert (span.status.status_code, span.status.description) == (
            StatusCode.ERROR,
            "ZeroDivisionError: division by zero",
        )
        recorded = next(event.attributes or {} for event in span.events if event.name == "exception")
        assert recorded["exception.type"] == "ZeroDivisionError"
        assert "in divide" in str(recorded["exception.stacktrace"])
    assert "lash.turn.retried" in [event.name for event in failed.events]
    assert telemetry.counted("lash.retries") == {"turn": 1}


async def test_counters(telemetry: Telemetry) -> None:
    """Replayed steps, retries of steps, dead letters and statements are counted."""
    clock, tries = ManualClock(), iter([ZeroDivisionError(), "done"])

    async def flaky() -> str:
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    async with lash.App("sqlite://", worker=False, hooks=[telemetry.hook], clock=clock) as app:

        @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=1))
        async def agent(turn: lash.Turn) -> str:
            await turn.options(retry=lash.Retry(max_attempts=2, first_pause_s=0)).step(flaky)
            raise ZeroDivisionError

        await app.session("c").send("hi")
        await app.drain()
        await clock.advance(2_000)
        await app.drain()
        assert len(await app.session("c").dead_letters()) == 1
    assert telemetry.counted("lash.steps.replayed") == {"": 1}
    assert telemetry.counted("lash.retries") == {"step": 1, "turn": 1}
    assert telemetry.counted("lash.dead_letters") == {"": 1}
    assert telemetry.counted("lash.statements")["queue_insert"] == 1


async def test_a_worker_that_was_started_in_a_span_is_linked_with_it(telemetry: Telemetry) -> None:
    """A turn is linked with the span that started its worker, and is not its child."""
    tracer = telemetry.traces.get_tracer("the application")
    app = lash.App("sqlite://", hooks=[telemetry.hook])

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return "hello"

    with tracer.start_as_current_span("start"):
        await app.open()
    assert await app.session("c").ask("hi", timeout_s=20) == "hello"
    await app.stop()
    turn, start = telemetry.span("turn"), telemetry.span("start")
    assert turn.parent is None
    assert [link.context.span_id for link in turn.links] == [id_of(start)]


async def test_being_cancelled_is_no_error(telemetry: Telemetry) -> None:
    """A step that is cancelled with its process is marked as cancelled, not as failed."""
    begun = asyncio.Event()

    async def long() -> None:
        begun.set()
        await asyncio.sleep(3_600)

    async with lash.App("sqlite://", hooks=[telemetry.hook]) as app:

        @app.process
        async def work(ctx: lash.Context) -> None:
            await ctx.step(long)

        handle = await app.start(work)
        await begun.wait()
        await handle.cancel("enough")
        with pytest.raises(lash.ProcessFailed, match="was cancelled"):
            await handle.result(timeout_s=20)
    step = telemetry.span("step long")
    assert (step.status.status_code, (step.attributes or {})["lash.cancelled"]) == (StatusCode.UNSET, True)
    assert telemetry.span("process work").status.status_code is StatusCode.UNSET


def test_without_the_extra_the_error_says_what_to_install() -> None:
    """Importing lash.telemetry without OpenTelemetry raises ConfigError with the name of the extra."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import lash\n"
        "try: lash.telemetry\n"
        "except lash.ConfigError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "pip install 'lash-runtime[otel]'" in shown

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import lash
from lash.agents import Agent, ModelReply, ModelRequest, ToolCall, tool
from lash.runtime.hooks import Attributes
from lash.telemetry.otel import OpenTelemetryHook
from lash.testing.clock import ManualClock


class Telemetry:
    """The SDK with everything kept in memory."""

    def __init__(self, *, capture_content: bool = False) -> None:
        self.traces = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.hook = OpenTelemetryHook(self.traces, self.meters, capture_content=capture_content)

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

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


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def some(span: ReadableSpan, *names: str) -> list[object]:
    return [(span.attributes or {}).get(name) for name in names]


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
    runs = {id_of(span): (span.attributes or {})["lash.process_id"] for span in telemetry.spans("invoke_workflow work")}
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
    failed, again = telemetry.spans("invoke_agent agent")
    assert failed.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "lash",
        "gen_ai.agent.name": "agent",
        "gen_ai.conversation.id": "c",
        "lash.agent": "agent",
        "lash.session_id": "c",
        "lash.turn_id": f"turn:{sent.batch_id}",
        "lash.attempt": 1,
        "lash.waited_s": 0.0,
        "error.type": "ZeroDivisionError",
    }
    assert (failed.kind, failed.parent) == (SpanKind.INTERNAL, None)
    assert [link.context.span_id for link in again.links] == [id_of(failed)]
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
    assert telemetry.counted("lash.turns.buried") == {"agent": 1}
    assert telemetry.counted("lash.statements")["queue_insert"] == 1


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_request_its_turn_and_its_process_are_one_trace(telemetry: Telemetry, backend_url: str) -> None:
    """Message and start carry the trace: what they start on other workers belongs to it, as a child of the sender."""
    tracer = telemetry.traces.get_tracer("the application")
    sender, worker = (lash.App(backend_url, worker=False, hooks=[telemetry.hook]) for _ in range(2))

    @worker.process
    async def errand(ctx: lash.Context) -> str:
        return "done"

    @worker.agent
    async def agent(turn: lash.Turn) -> str:
        return await (await turn.start(errand)).result()

    async with sender, worker:
        with tracer.start_as_current_span("request") as request:
            sent = await sender.session("c").send("hi", key="k")
        with tracer.start_as_current_span("the request again"):
            assert (await sender.session("c").send("hi", key="k")).batch_id == sent.batch_id
        await worker.drain()
    turns, processes = telemetry.spans("invoke_agent agent"), telemetry.spans("invoke_workflow errand")
    assert {trace_of(span) for span in (*turns, *processes)} == {request.get_span_context().trace_id}
    assert {parent_of(turn) for turn in turns} == {id_of(telemetry.span("request"))}
    assert {parent_of(process) for process in processes} == {id_of(turns[0])}
    # The turn was parked for the process, and continued.
    assert [link.context.span_id for link in turns[1].links] == [id_of(turns[0])]


class Model:
    """Calls a tool, then replies."""

    provider, model = "openai", "m-1"

    async def __call__(self, request: ModelRequest) -> ModelReply:
        usage = lash.model.TokenUsage(input_tokens=10, output_tokens=3, cached_input_tokens=2, reasoning_tokens=1)
        if len(request.messages) > 1:
            return ModelReply.of("It rains.", model="m-1", usage=usage)
        call = ToolCall(id="c-7", name="weather", arguments='{"city":"Rome"}')
        return ModelReply.of("", call, model="m-1", usage=usage)


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"rain in {city}"


async def test_tools_and_models_have_the_names_of_the_conventions(telemetry: Telemetry) -> None:
    """A call of a model is a chat span, a call of a tool execute_tool; the turn has the tokens, and no text."""
    async with lash.App("sqlite://", worker=False, hooks=[telemetry.hook]) as app:
        Agent("guide", Model(), tools=[weather]).declare(app)
        await app.session("c").send("Rome?")
        await app.drain()
    chats, called, turn = (
        telemetry.spans("chat m-1"),
        telemetry.span("execute_tool weather"),
        telemetry.span("invoke_agent guide"),
    )
    assert [(chat.kind, parent_of(chat)) for chat in chats] == [(SpanKind.CLIENT, id_of(turn))] * 2
    names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
    assert some(chats[0], *names) == ["chat", "openai", "m-1"]
    assert some(called, "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type") == ["weather", "c-7", "function"]
    tokens = ("input_tokens", "output_tokens", "cache_read.input_tokens", "reasoning.output_tokens")
    assert some(turn, *(f"gen_ai.usage.{name}" for name in tokens)) == [20, 6, 4, 2]
    assert "Rome" not in str([(span.attributes, span.events) for span in (*chats, called, turn)])


async def test_content_is_recorded_on_request() -> None:
    """With capture_content the turn has its messages and its reply, in the form of the conventions."""
    telemetry = Telemetry(capture_content=True)
    async with lash.App("sqlite://", worker=False, hooks=[telemetry.hook]) as app:
        Agent("guide", Model(), tools=[weather]).declare(app)
        await app.session("c").send("Rome?")
        await app.drain()
    turn = telemetry.span("invoke_agent guide")
    told = [json.loads(str(each)) for each in some(turn, "gen_ai.input.messages", "gen_ai.output.messages")]
    assert told == [
        [{"role": "user", "parts": [{"type": "text", "content": "Rome?"}]}],
        [{"role": "assistant", "parts": [{"type": "text", "content": "It rains."}]}],
    ]


@pytest.mark.filterwarnings("ignore:Support for class-based")
def test_an_instrumented_client_makes_its_own_spans(telemetry: Telemetry) -> None:
    """While the instrumentation of the provider is active, the call of a model is a plain step around its span."""
    instrumentor = OpenAIInstrumentor()
    attributes: Attributes = {"step": "model#1", "name": "model", "attempt": 1, "model": "m-1", "provider": "openai"}
    with telemetry.hook.span("step", attributes):
        pass
    instrumentor.instrument(tracer_provider=telemetry.traces)
    try:
        with telemetry.hook.span("step", attributes):
            pass
        with telemetry.hook.span("step", {**attributes, "provider": "anthropic"}):
            pass
    finally:
        instrumentor.uninstrument()
    assert [span.name for span in telemetry.all()] == ["chat m-1", "step model", "chat m-1"]


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
    assert telemetry.span("invoke_workflow work").status.status_code is StatusCode.UNSET


def test_without_the_extra_the_error_says_what_to_install() -> None:
    """Importing lash.telemetry without OpenTelemetry raises ConfigError with the name of the extra."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import lash\n"
        "try: lash.telemetry.OpenTelemetryHook\n"
        "except lash.ConfigError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "pip install 'lash-runtime[otel]'" in shown

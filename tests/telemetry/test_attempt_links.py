"""Attempts are linked across programs: the record of a step carries the span of the attempt that ran it."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lash
from lash.telemetry.otel import OpenTelemetryHook
from tests import warm_programs
from tests.telemetry.traced_worker import OPTIONS, declare


async def _nothing(_kind: str, _number: int) -> None:
    pass


async def _killed(url: str, steps: int) -> dict[str, list[str]]:
    """Run a worker until it is killed after some steps; return the spans of its attempts, each with its links."""
    code, printed = await asyncio.to_thread(warm_programs.run, "tests.telemetry.traced_worker", url, str(steps))
    assert code != 0
    return dict(json.loads(printed))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_an_attempt_is_linked_with_the_one_before_in_another_program(backend_url: str) -> None:
    """After each of two killed workers, the next program links its attempt with the last one, and with no other."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with lash.App(backend_url, worker=False) as sender:
        started = await sender.start(declare(sender, _nothing))
        reply = asyncio.create_task(sender.session("c").ask("hi", timeout_s=60))
        first = await _killed(backend_url, 1)
        second = await _killed(backend_url, 2)
        assert {kind: links for kind, (_, *links) in first.items()} == {"turn": [], "process": []}
        assert {kind: links for kind, (_, *links) in second.items()} == first
        worker = lash.App(backend_url, options=OPTIONS, hooks=[OpenTelemetryHook(provider)])
        declare(worker, _nothing)
        async with worker:
            await started.result()
            assert await reply == "done"
    links = {
        span.name: [f"{link.context.span_id:016x}" for link in span.links]
        for span in exporter.get_finished_spans()
        if span.name.startswith("invoke_")
    }
    assert links == {"invoke_agent agent": second["turn"][:1], "invoke_workflow errand": second["process"][:1]}


async def test_without_a_tracing_hook_nothing_is_stored() -> None:
    """The records of an untraced attempt have no span."""
    async with lash.App("sqlite://", worker=False) as app:
        started = await app.start(declare(app, _nothing))
        await app.drain()
        records = await app.storage.effects.list(lash.model.ProcessScope(process_id=started.process_id))
    assert [record.traceparent for record in records] == [None] * 3


class _Unusable(lash.Hook):
    def traceparent(self) -> str:
        return "\0"


async def test_a_span_that_cannot_be_stored_fails_no_step(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that returns an unusable trace context is blamed, and the steps are recorded without one."""
    async with lash.App("sqlite://", worker=False, hooks=[_Unusable()]) as app:
        started = await app.start(declare(app, _nothing))
        await app.drain()
        await started.result()
    assert "_Unusable.traceparent failed" in caplog.text

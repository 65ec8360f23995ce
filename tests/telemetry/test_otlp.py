"""Spans and metrics reach a listener that speaks OTLP."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from oteltest import telemetry as received
from oteltest.sink import HttpSink
from oteltest.sink.handler import AccumulatingHandler

import lash
from lash.telemetry.otel import OpenTelemetryHook
from tests.runtime.worker_kit import until


@pytest.fixture
async def sink() -> AsyncIterator[HttpSink]:
    """A listener on a free port, with what it has received."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = HttpSink(AccumulatingHandler(), logging.getLogger(__name__), port)
    made.start()

    async def listens() -> bool:
        return made.httpd is not None

    await until(listens)
    yield made
    made.stop()


async def test_a_turn_arrives_over_otlp(sink: HttpSink) -> None:
    """A turn, its step and their durations arrive with their names."""
    address = f"http://127.0.0.1:{sink.port}/v1"
    traces = TracerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/traces")))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/metrics"), 3_600_000)])
    async with lash.App("sqlite://", worker=False, hooks=[OpenTelemetryHook(traces, meters)]) as app:

        @app.agent
        async def echo(turn: lash.Turn) -> str:
            return await turn.step("upper", turn.text.upper)

        await app.session("c").send("hi")
        await app.drain()
    # They send what is left.
    traces.shutdown()
    meters.shutdown()
    arrived = sink.listener.telemetry
    assert received.get_span_names(arrived) == {"invoke_agent echo", "step upper"}
    durations = {"lash.turn.duration", "lash.step.duration", "lash.commit.duration", "lash.queue.wait"}
    assert received.get_metric_names(arrived) == durations | {"lash.statements"}

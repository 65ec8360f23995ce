"""A traced worker in a process of its own, killed when its turn and its process have recorded some steps.

Called with a URL and the number of steps. It prints the span of each attempt, and the spans with which that is linked.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from opentelemetry import trace
from opentelemetry.sdk.trace import Span, TracerProvider

import lash
from lash.telemetry.otel import OpenTelemetryHook

STEPS = 3
_RUNS = 2
"""The turn and the process."""
OPTIONS = lash.WorkerOptions(lease_ttl_s=1.0, poll_s=0.1)


async def work(number: int) -> int:
    return number


def declare(app: lash.App, after: Callable[[str, int], Awaitable[None]]) -> lash.ProcessDefinition[[], None]:
    """Declare an agent and a process whose steps are followed by a call with their number."""
    tracer = trace.get_tracer("the application")

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        for number in range(1, STEPS + 1):
            # A span of the application around a step is not the span of the attempt.
            with tracer.start_as_current_span("inside"):
                await turn.step(work, number)
            await after("turn", number)
        return "done"

    @app.process
    async def errand(ctx: lash.Context) -> None:
        for number in range(1, STEPS + 1):
            # A claimed step is recorded by other statements.
            await ctx.options(once=True).step(work, number)
            await after("process", number)

    return errand


async def main(url: str, stops_after: str) -> None:
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    found: dict[str, list[str]] = {}

    async def after(kind: str, number: int) -> None:
        if number < int(stops_after):
            return
        span = trace.get_current_span()
        assert isinstance(span, Span)
        found[kind] = [f"{each.span_id:016x}" for each in (span.context, *(link.context for link in span.links))]
        if len(found) == _RUNS:
            sys.stdout.write(json.dumps(found))
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()

    app = lash.App(url, options=OPTIONS, hooks=[OpenTelemetryHook(provider)])
    declare(app, after)
    async with app:
        await app.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

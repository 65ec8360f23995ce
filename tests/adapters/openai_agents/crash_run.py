"""A turn of four model calls, two tools and an approval; files count the real calls, and a worker kills itself at one.

``python -m tests.adapters.openai_agents.crash_run URL COUNTS POINT [ONCE]`` runs a worker until it is killed. ONCE is a
tool that must not run twice; a turn then has two attempts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Usage, function_tool
from agents.items import TResponseStreamEvent
from agents.testing import assistant_message, function_call

import lash
from lash.adapters.openai_agents import LashRunner, LashSession
from lash.agents import ApprovalRequest

CALLS = ("look", "find", "pay")
OPTIONS = lash.WorkerOptions(lease_ttl_s=60, poll_s=0.5)
"""A lease outlives the test: a takeover needs a holder that is provably dead."""


def build(url: str, counts: Path, point: str, once: str = "", *, worker: bool = True) -> lash.App:
    """Return the application; each real call adds its name to a file, and the call at the point kills the worker."""
    app = lash.App(url, options=OPTIONS, worker=worker)

    def count(name: str) -> None:
        with os.fdopen(os.open(counts, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
            file.write(f"{name}\n")
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_args: Any, **_: Any) -> ModelResponse:  # noqa: A002, ANN401
            given = input if isinstance(input, list) else []
            number = sum(item.get("type") == "function_call_output" for item in given)
            count(f"model-{number + 1}")
            output = [function_call(CALLS[number], {"order": "7"}, call_id=f"c{number}")] if number < len(CALLS) else []
            usage = Usage(requests=1, input_tokens=10, output_tokens=3, total_tokens=13)
            return ModelResponse(output=list(output or [assistant_message("done")]), usage=usage, response_id=None)

        def stream_response(self, *args: object, **kwargs: object) -> AsyncIterator[TResponseStreamEvent]:
            raise NotImplementedError

    @function_tool
    async def look(order: str) -> str:
        count("look")
        return f"{order} is late"

    @function_tool
    def find(order: str) -> str:
        count("find")
        return f"{order} is here"

    @function_tool(needs_approval=True)
    async def pay(order: str) -> str:
        count("pay")
        return f"{order} is paid"

    async def ask(_request: ApprovalRequest) -> None:
        count("ask")

    support: Agent[Any] = Agent(name="support", model=Scripted(), tools=[look, find, pay])

    @app.agent(retry=lash.Retry(max_attempts=2 if once else 5))
    async def chat(turn: lash.Turn) -> str:
        session, tools = LashSession.of(turn), {once} - {""}
        config = RunConfig(tracing_disabled=True)
        result = await LashRunner.run(
            turn, support, turn.text, session=session, once=tools, on_approval=ask, run_config=config
        )
        return str(result.final_output)

    return app


async def _work(url: str, counts: str, point: str, once: str = "") -> None:
    async with build(url, Path(counts), point, once):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))

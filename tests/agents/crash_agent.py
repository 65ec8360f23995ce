"""One turn of an agent with a model, tools, an approval and a stream; files count the real calls."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import lash
from lash.agents import Agent, ApprovalRequest, ModelReply, ModelRequest, Piece, ToolCall, tool
from lash.model import TokenUsage

SESSION: Final = "crash"
STEPS: Final = ("model-1", "model-2", "look", "find", "pay", "ask")
"""Everything that is counted: model calls by their round, tools, and the request for an approval."""
TOOLS: Final = ("look", "find", "pay")
ARGUMENTS: Final = '{"order":"7"}'
OPTIONS: Final = lash.WorkerOptions(lease_ttl_s=60, poll_s=0.5)
"""A lease outlives every test: a takeover needs a holder that is provably dead."""
USAGE: Final = TokenUsage(input_tokens=10, output_tokens=3, cached_input_tokens=2, reasoning_tokens=1)


class Killer(Protocol):
    """Kills the worker at a place; the code of the application reports each one that it reaches."""

    def reach(self, boundary: str) -> None: ...


def build(url: str, counts: Path, killer: Killer) -> lash.App:
    """Return the application; each real call adds a line with its name to the file."""
    hooks = (killer,) if isinstance(killer, lash.Hook) else ()
    app = lash.App(url, options=OPTIONS, hooks=hooks)

    def count(name: str) -> None:
        killer.reach(f"before {name}")
        with os.fdopen(os.open(counts, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
            file.write(f"{name}\n")

    async def model(request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
        number = 1 + sum(message.parts[0].kind is lash.PartKind.TOOL_RESULT for message in request.messages)
        count(f"model-{number}")
        for piece in ("It is ", "done."):
            killer.reach(f"before a piece of model-{number}")
            yield piece
        calls = [ToolCall(id=f"c{index}", name=name, arguments=ARGUMENTS) for index, name in enumerate(TOOLS)]
        yield ModelReply.of("It is done.", *(calls if number == 1 else ()), model="m", usage=USAGE)

    @tool
    async def look(order: str) -> str:
        count("look")
        return f"{order} is late"

    @tool
    def find(order: str) -> str:
        count("find")
        raise LookupError(order)

    @tool(needs_approval=True)
    async def pay(order: str) -> str:
        count("pay")
        return f"{order} is paid"

    async def approve(request: ApprovalRequest) -> None:
        count("ask")
        await app.resolve(request.key, {"approved": True, "text": "go"})
        killer.reach("after the approval")

    agent = Agent("assistant", model, tools=[look, find, pay], on_approval=approve)
    agent.declare(app)
    return app


async def send_input(url: str) -> None:
    async with lash.App(url, worker=False) as app:
        await app.session(SESSION).send("pay for 7", key="first")


async def is_finished(storage: lash.Storage) -> bool:
    return not await storage.queue.list(SESSION)


def counted(counts: Path) -> dict[str, int]:
    """Return how often each call was made."""
    lines = counts.read_text().splitlines() if counts.exists() else []
    return {name: lines.count(name) for name in STEPS}

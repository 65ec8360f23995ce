"""A server and a worker with an agent whose model follows what the user says: ``program.py server URL PORT``.

Models and tools log to a file that the environment names, so that a test can count their calls. Some of them stop
until another file exists, so that a test can act while they run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import lash
from lash.agents import Agent, ModelReply, ModelRequest, Piece, Thought, ToolCall, tool

HELD = 3
"""How many words come before the gate."""


def log(line: str) -> None:
    """Note a call."""
    if "LASH_TEST_LOG" in os.environ:
        with Path(os.environ["LASH_TEST_LOG"]).open("a") as file:
            file.write(f"{line}\n")


def is_open() -> bool:
    """Return whether the gate is open; it always is if the environment names none."""
    return "LASH_TEST_GATE" not in os.environ or Path(os.environ["LASH_TEST_GATE"]).exists()


async def counted(text: str) -> AsyncIterator[str]:
    """Yield numbers: all of them for ``count N``, only the first until the gate is open for ``hold N``."""
    word, count = text.split()
    for number in range(int(count)):
        while word == "hold" and number == HELD and not is_open():  # noqa: ASYNC110 (a file in another process)
            await asyncio.sleep(0.02)
        yield f"{number} "


def weather(city: str) -> dict[str, str]:
    """Return the weather in a city."""
    log(f"weather {city}")
    while not is_open():
        time.sleep(0.02)
    if city == "Nowhere":
        raise ValueError("there is no such city")
    return {"city": city, "sky": "sunny"}


@tool(needs_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    log(f"refund {order}")
    return f"{order} refunded"


async def model(request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
    """Do what the last message of the user says: count N, hold N, weather CITY..., refund ORDER..., fail."""
    last = request.messages[-1]
    results = [part.content for part in last.parts if part.kind == "tool_result"]
    said = next(message.text for message in reversed(request.messages) if message.role == "user")
    word, *rest = said.split()
    log(f"model {said}")
    if word == "fail":
        raise lash.Permanent("the secret reason")
    calls = {"weather": "city", "refund": "order"}
    if word in calls and not results:
        yield Thought(text="which one?")
        yield "Let me see. "
        asked = [
            ToolCall(id=f"{said}-{number}", name=word, arguments=f'{{"{calls[word]}":"{each}"}}')
            for number, each in enumerate(rest)
        ]
        yield ModelReply.of("Let me see. ", *asked)
        return
    words = list(results)
    for each in results:
        yield each
    if not results:
        async for each in counted(said):
            words.append(each)
            yield each
    yield ModelReply.of("".join(words))


def application(url: str, *, worker: bool = True) -> lash.App:
    """Return the application with its agents."""
    app = lash.App(url, worker=worker)
    Agent("assistant", model, tools=[weather, refund]).declare(app)

    @app.agent
    async def plain(turn: lash.Turn) -> str:
        """Count without a model and tools, keep a state, and ask for a name if the user says so."""
        turn.state["turns"] = turn.state.get("turns", 0) + 1
        if turn.text.startswith("ask"):
            name = await turn.wait("name", of_type=str, ask="What is your name?")
            return f"Hello {name}"
        return await turn.stream("model", counted, turn.text)

    return app


def web(app: lash.App) -> Any:  # noqa: ANN401 (an ASGI application)
    """Return the server."""
    from contextlib import asynccontextmanager

    from starlette.applications import Starlette

    from lash.protocols import agui, vercel

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app:
            yield

    routes = [
        *agui.routes(app, "assistant", path="/agui"),
        *agui.routes(app, "plain", path="/plain/agui", show_state=dict),
        *vercel.routes(app, "assistant", path="/chat"),
        *vercel.routes(app, "plain", path="/plain/chat"),
    ]
    return Starlette(lifespan=lifespan, routes=routes)


def main() -> None:
    """Run the part that the arguments name."""
    part, url, *rest = sys.argv[1:]
    if part == "worker":
        app = application(url)

        async def work() -> None:
            async with app:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
                await app.run()

        asyncio.run(work())
        return
    import uvicorn

    app = application(url, worker="--no-worker" not in rest)
    uvicorn.run(web(app), port=int(rest[0]), log_level="info", access_log=False)


if __name__ == "__main__":
    main()

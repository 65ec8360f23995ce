"""An agent behind AG-UI, for CopilotKit, assistant-ui and every other front end that speaks the protocol.

    python examples/agui_server.py [--url postgresql://user@host/database] [--port 8000]

A front end posts to http://127.0.0.1:8000/agui. Ask for the weather to see tool calls, or for a trip to be asked for
approvals. Kill the program in the middle of a reply, start it again and send the same request: the reply is there once.
The model is OpenAI's, or the fake one: see examples/model_server.py.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

import lash
from lash.agents import Agent, tool
from lash.agents.openai import ChatCompletions
from lash.protocols import agui

parser = argparse.ArgumentParser(description="An agent behind AG-UI.")
parser.add_argument("--url", default="sqlite:///agui_server.db")
parser.add_argument("--port", type=int, default=8000)
options = parser.parse_args()

app = lash.App(options.url)


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


def clock() -> str:
    """Return the time of day."""
    return f"{datetime.now(UTC):%H:%M} UTC"


@tool(needs_approval=True, once=True)
def book(what: str) -> str:
    """Book a part of a trip."""
    return f"{what} booked"


assistant = Agent("assistant", ChatCompletions("gpt-4.1-mini"), tools=[weather, clock, book]).declare(app)


def session_of(request: Request, thread_id: str) -> str | None:
    """Return the session of a user's thread; in your application the user comes from its authentication."""
    user = request.headers.get("x-user", "guest")
    return f"{user}/{thread_id}" if user.isalnum() else None


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app:  # the worker runs inside the server; with App(url, worker=False) other programs do the work
        yield


web = Starlette(lifespan=lifespan, routes=agui.routes(app, assistant, path="/agui", session_of=session_of))

if __name__ == "__main__":
    uvicorn.run(web, port=options.port, timeout_graceful_shutdown=3)

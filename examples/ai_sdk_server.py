"""A chat for ``useChat`` of the Vercel AI SDK, with tools, approvals and the console in one application.

    python examples/ai_sdk_server.py [--url postgresql://user@host/database] [--port 8000]

The front end is yours: ``new DefaultChatTransport({ api: "http://127.0.0.1:8000/api/chat" })``. The console
is at http://127.0.0.1:8000/lash/. The model is OpenAI's, or the fake one: see examples/model_server.py.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Mount

import lash
from lash.agents import Agent, tool
from lash.agents.openai import ChatCompletions
from lash.protocols import vercel
from lash.web import Access, console

parser = argparse.ArgumentParser(description="A chat for the Vercel AI SDK.")
parser.add_argument("--url", default="sqlite:///ai_sdk_server.db")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--origin", default="http://localhost:3000", help="where the page of the front end is served")
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


def readers(request: Request) -> Access | None:
    """Return what a request to the console may do: here, read on this machine only."""
    return Access.READ if request.client is not None and request.client.host == "127.0.0.1" else None


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app:
        yield


web = Starlette(
    lifespan=lifespan,
    routes=[*vercel.routes(app, assistant, path="/api/chat"), Mount("/lash", console(app, access=readers))],
    middleware=[Middleware(CORSMiddleware, allow_origins=[options.origin], allow_headers=["*"])],
)

if __name__ == "__main__":
    uvicorn.run(web, port=options.port, timeout_graceful_shutdown=3)

"""A worker is killed in the middle of a turn; another one goes on, and no tool is called twice.

    python examples/crash_and_resume.py [--url postgresql://user@host/database]

The model is OpenAI's, or the stand-in: see examples/model_server.py. The exit code is 1 if a claim is false.

A tool that is at work while its worker dies is called again, as only what was recorded is known to have happened. Where
that is too much, say ``turn.options(once=True).step(...)``: the turn then waits for somebody to look.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionFunctionToolParam, ChatCompletionMessageParam

import lash

parser = argparse.ArgumentParser(description="Kill a worker, go on with another.")
parser.add_argument("--url", default="sqlite:///crash_and_resume.db")
parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)  # be a worker that books into this file
parser.add_argument("--die-after", type=int, help=argparse.SUPPRESS)  # be killed after so many bookings
options = parser.parse_args()

app = lash.App(options.url, worker=options.work is not None)
MODEL = os.environ.get("MODEL", "gpt-4.1-mini")
REQUEST = "Book me a trip to Rome."
KINDS = ["flight", "hotel", "museum"]
CITY: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": kind, "description": f"Book a {kind}.", "parameters": CITY}}
    for kind in KINDS
]


async def complete(messages: list[ChatCompletionMessageParam], request_id: str) -> ChatCompletion:
    headers = {"X-Client-Request-Id": request_id}
    async with AsyncOpenAI() as model:
        return await model.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, extra_headers=headers)


def book(kind: str, arguments: str) -> str:
    """Book something in the world outside, which keeps a list of all that was ever booked."""
    print(f"worker {os.getpid()} books a {kind}", flush=True)
    with options.work.open("a") as bookings:
        bookings.write(f"{kind} {arguments}\n")
    return f"booked a {kind}"


@app.agent
async def travel_agent(turn: lash.Turn) -> str:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": turn.text}]
    booked = 0
    while True:
        completion = await turn.step("model", complete, messages, f"{turn.turn_id}:{len(messages)}")
        reply = completion.choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        messages.append(cast("ChatCompletionMessageParam", reply.model_dump(mode="json", exclude_none=True)))
        for call in reply.tool_calls:
            assert call.type == "function"
            result = await turn.step(call.function.name, book, call.function.name, call.function.arguments)
            turn.add_tool_call(call.id, call.function.name, call.function.arguments, result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            booked += 1
            if booked == options.die_after:
                os.kill(os.getpid(), signal.SIGKILL)


async def start_worker(bookings: Path, *arguments: str) -> asyncio.subprocess.Process:
    command = [sys.executable, __file__, "--url", options.url, "--work", str(bookings), *arguments]
    return await asyncio.create_subprocess_exec(*command)


async def tell(bookings: Path) -> bool:
    """Tell the story, and return whether it is true."""
    claims: dict[str, bool] = {}
    async with app:
        chat = app.session(f"trip-{time.time_ns()}", travel_agent)
        await chat.send(REQUEST, key="the-trip")
        first = await start_worker(bookings, "--die-after", "2")
        claims["the first worker was killed by SIGKILL"] = await first.wait() == -signal.SIGKILL
        claims["it had booked two of three things"] = len(_kinds(bookings)) == 2  # noqa: PLR2004
        second = await start_worker(bookings)
        # The same key is the same message: this sends nothing, it waits for the reply.
        print("reply:", reply := await chat.ask(REQUEST, key="the-trip", timeout_s=60))
        second.terminate()
        await second.wait()
        said = [lash.text_of(message) for message in await chat.messages()]
        claims["every tool was called once"] = sorted(_kinds(bookings)) == KINDS
        claims["history has the request, a call of each tool, the reply"] = said == [REQUEST, "", "", "", reply]
        claims["nothing is left to do"] = await chat.pending() == await chat.dead_letters() == ()
    for claim, holds in claims.items():
        print(f"{'true: ' if holds else 'FALSE:'} {claim}")
    return all(claims.values())


def _kinds(bookings: Path) -> list[str]:
    return [line.split()[0] for line in bookings.read_text().splitlines()]


async def work() -> None:
    async with app:
        await app.run()


if __name__ == "__main__":
    if options.work is not None:
        asyncio.run(work())
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(0 if asyncio.run(tell(Path(folder) / "bookings.txt")) else 1)

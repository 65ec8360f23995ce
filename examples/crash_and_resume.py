"""A worker is killed in the middle of a turn; another one finishes it, and no tool is called twice.

    python examples/crash_and_resume.py [--url postgresql://user@host/database]

The model is OpenAI's, or the fake one: see examples/model_server.py. The exit code is 1 if a claim is false.

A tool that runs while its worker dies is called again, because only recorded calls are known to have happened. If that
is not acceptable, use ``turn.options(once=True).step(...)``: the outcome is then unknown, and the call is not repeated.
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
from typing import Literal

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

import lash
from openai_format import Tools, calls_of, for_model

parser = argparse.ArgumentParser(description="Kill a worker, go on with another.")
parser.add_argument("--url", default="sqlite:///crash_and_resume.db")
parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)  # run as a worker that writes bookings to this file
parser.add_argument("--die-after", type=int, help=argparse.SUPPRESS)  # kill this worker after so many bookings
options = parser.parse_args()

app = lash.App(options.url, worker=options.work is not None)
MODEL = "gpt-4.1-mini"
REQUEST = "Book me a trip to Rome: a flight, a hotel and a museum."


def book(what: Literal["flight", "hotel", "museum"]) -> str:
    """Book a part of a trip."""
    print(f"worker {os.getpid()} books a {what}", flush=True)
    with options.work.open("a") as bookings:  # the outside world: every booking ever made
        bookings.write(f"{what}\n")
    return f"booked a {what}"


TOOLS = Tools(book)


async def complete(messages: list[ChatCompletionMessageParam], request_id: str) -> ChatCompletion:
    headers = {"X-Client-Request-Id": request_id}
    async with AsyncOpenAI() as model:
        return await model.chat.completions.create(
            model=MODEL, messages=messages, tools=TOOLS.params, extra_headers=headers
        )


@app.agent
async def travel_agent(turn: lash.Turn) -> str:
    done = 0
    while True:
        messages = for_model(turn.messages())
        completion = await turn.step("model", complete, messages, f"{turn.turn_id}:{len(messages)}")
        for call in (calls := calls_of(completion)):
            result = await turn.step("tool", TOOLS.call, call.function.name, call.function.arguments)
            turn.add_tool_call(call.id, call.function.name, call.function.arguments, result)
            done += 1
            if done == options.die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        if not calls:
            return completion.choices[0].message.content or ""


async def start_worker(bookings: Path, *arguments: str) -> asyncio.subprocess.Process:
    command = [sys.executable, __file__, "--url", options.url, "--work", str(bookings), *arguments]
    return await asyncio.create_subprocess_exec(*command)


async def demonstrate(bookings: Path) -> bool:
    """Run the demonstration, and return True if every claim holds."""
    claims: dict[str, bool] = {}
    async with app:
        chat = app.session(f"trip-{time.time_ns()}", travel_agent)
        await chat.send(REQUEST, key="the-trip")
        first = await start_worker(bookings, "--die-after", "2")
        claims["the first worker was killed by SIGKILL"] = await first.wait() == -signal.SIGKILL
        claims["it had booked two of three things"] = len(booked(bookings)) == 2  # noqa: PLR2004
        second = await start_worker(bookings)
        # The same key is the same message: this sends nothing and waits for the reply.
        print("reply:", reply := await chat.ask(REQUEST, key="the-trip", timeout_s=60))
        second.terminate()
        await second.wait()
        said = [message.text for message in await chat.messages()]
        claims["every tool was called once"] = sorted(booked(bookings)) == ["flight", "hotel", "museum"]
        claims["history has the request, a call of each tool, the reply"] = said == [REQUEST, "", "", "", reply]
        claims["nothing is left to do"] = not await chat.pending() and not await chat.dead_letters()
    for claim, holds in claims.items():
        print(f"{'true: ' if holds else 'FALSE:'} {claim}")
    return all(claims.values())


def booked(bookings: Path) -> list[str]:
    return bookings.read_text().splitlines()


async def work() -> None:
    async with app:
        await app.run()


if __name__ == "__main__":
    if options.work is not None:
        asyncio.run(work())
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(0 if asyncio.run(demonstrate(Path(folder) / "bookings.txt")) else 1)

"""The app of the demo: an agent with tools, and a background process.

A script plays the model, so the demo needs no API key and no network; everything else is real. Every call to the
outside world is appended to a ledger file, which counts what really happened.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import lash

URL: Final = "LASH_DEMO_URL"
LEDGER: Final = "LASH_DEMO_LEDGER"
TOOLS: Final = ("flight", "hotel", "museum")
MODEL: Final = "demo-model"
INPUT_TOKENS, OUTPUT_TOKENS = 120, 30
"""Tokens that each model call reports."""

app = lash.App(os.environ.get(URL, "sqlite://"), worker=False)


def note(what: str) -> None:
    """Append a line to the ledger of outside calls."""
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what} by {os.getpid()}\n")


async def think(said: int) -> str:
    """Stand in for the model: return the next tool, or the reply after the last tool."""
    note("model")
    await asyncio.sleep(0.4)
    return TOOLS[said] if said < len(TOOLS) else "Your weekend in Rome is booked."


async def book(what: str) -> int:
    """Call a tool, and return the id of the OS process that called it."""
    await asyncio.sleep(0.2)
    note(what)
    return os.getpid()


@app.process
async def weather(ctx: lash.Context, city: str) -> str:
    """Look up the weather in the background, and wake the conversation with it."""
    await ctx.sleep(1)
    found = await ctx.step("forecast", forecast, city)
    await ctx.wake(f"it is {found} in {city}")
    return found


async def forecast(city: str) -> str:
    note("forecast")
    return "sunny" if city == "Rome" else "unknown"


@app.agent
async def travel_agent(turn: lash.Turn) -> str:
    """Answer a wake at once; for a request, call the model and its tools until there is a reply."""
    about = "the weather" if turn.wakes else repr(" ".join(turn.text.split()[:2]) + " ...")
    turn.activity({"says": f"worker {os.getpid()} runs the turn for {about}, attempt {turn.attempt}"})
    if turn.wakes:
        return f"By the way: {turn.wakes[0].input}."
    if "thanks" in turn.text.lower():
        return "You are welcome."
    await turn.start(weather, "Rome")
    if turn.attempt == 1:
        turn.activity({"says": f"worker {os.getpid()} starts a background process: weather in Rome"})
    for number in range(len(TOOLS) + 1):
        answer = await turn.step("model", think, number)
        turn.usage(MODEL, input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        if answer not in TOOLS:
            return answer
        caller = await turn.step("tool", book, answer)
        turn.add_tool_call(f"call-{number}", answer, "{}", "booked")
        done = f"books the {answer}" if caller == os.getpid() else f"skips the {answer}: recorded by worker {caller}"
        turn.activity({"says": f"worker {os.getpid()} {done}", "tools": number + 1})
    raise AssertionError("the model replies after its last tool")

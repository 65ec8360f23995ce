"""The application of the demonstration: an agent with tools, and a process that works beside it.

The model is played by a script, so that the demonstration needs no key and no network; everything else is real.
Every call that reaches the world outside is written to a file, which knows of all that ever happened.
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
"""What every call of the model costs here."""

app = lash.App(os.environ.get(URL, "sqlite://"), worker=False)


def note(what: str) -> None:
    """Write a line to the ledger of the world outside."""
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what} by {os.getpid()}\n")


async def think(said: int) -> str:
    """Play the model: name the next tool, or the reply when all have been called."""
    note("model")
    await asyncio.sleep(0.4)
    return TOOLS[said] if said < len(TOOLS) else "Your weekend in Rome is booked."


async def book(what: str) -> int:
    """Call a tool that must not be called twice, and say who called it."""
    await asyncio.sleep(0.2)
    note(what)
    return os.getpid()


@app.process
async def weather(ctx: lash.Context, city: str) -> str:
    """Look up the weather in the background, and tell the conversation."""
    await ctx.sleep(1)
    found = await ctx.step("forecast", forecast, city)
    await ctx.wake(f"{city}: {found}")
    return found


async def forecast(city: str) -> str:
    note("forecast")
    return "sunny" if city == "Rome" else "unknown"


@app.agent
async def travel_agent(turn: lash.Turn) -> str:
    """Answer news at once; for a request call the model and its tools until it has a reply."""
    turn.activity({"says": f"worker {os.getpid()} begins attempt {turn.attempt}"})
    if turn.wakes:
        return f"News: {turn.wakes[0].input}"
    if "thanks" in turn.text.lower():
        return "You are welcome."
    await turn.start(weather, "Rome")
    for number in range(len(TOOLS) + 1):
        answer = await turn.step("model", think, number)
        turn.usage(MODEL, input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        if answer not in TOOLS:
            return answer
        caller = await turn.step("tool", book, answer)
        turn.add_tool_call(f"call-{number}", answer, "{}", "booked")
        how = "books" if caller == os.getpid() else f"finds it recorded that worker {caller} booked"
        turn.activity({"says": f"worker {os.getpid()} {how} the {answer}", "tools": number + 1})
    raise AssertionError("the model replies in the end")

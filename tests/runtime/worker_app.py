"""The application that real workers run in the tests: ``lash worker tests.runtime.worker_app:app``.

Environment variables name its storage and the directory of its files. A message is a command:
``say TEXT``, ``nap TEXT`` (the same after 50 ms), ``hold NAME`` (wait until the file ``NAME.go`` exists),
``block NAME`` (like hold, but the first attempt blocks the event loop) or
``deaf NAME`` (like hold, but ignores cancellation).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

import lash

FOLDER: Final = Path(os.environ.get("LASH_TEST_FOLDER", "."))
_SECONDS: Final = {
    name: float(os.environ.get(f"LASH_TEST_{name.upper()}", default))
    for name, default in (("ttl", "600"), ("grace", "60"), ("poll", "0.5"))
}

app = lash.App(
    os.environ.get("LASH_TEST_URL", "sqlite://"),
    options=lash.WorkerOptions(
        lease_ttl_s=_SECONDS["ttl"], grace_s=_SECONDS["grace"], poll_s=_SECONDS["poll"], sessions=8, processes=32
    ),
)


def note(name: str) -> str:
    """Add a line to the file of this name."""
    with os.fdopen(os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
        file.write(f"{os.getpid()}\n")
    return name


async def noted(name: str) -> str:
    return note(name)


async def gate(name: str) -> str:
    """Wait until the test opens the gate."""
    note(f"{name}.began")
    while not (FOLDER / f"{name}.go").exists():  # noqa: ASYNC110 (another process opens it)
        await asyncio.sleep(0.01)
    return name


async def blocking_gate(name: str) -> str:
    """Wait at the gate and block the event loop."""
    note(f"{name}.began")
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)  # noqa: ASYNC251 (that is the point)
    return name


async def deaf_gate(name: str) -> str:
    """Wait at the gate and ignore cancellation."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            return await gate(name)


async def nap() -> None:
    await asyncio.sleep(0.05)


@app.agent
async def obedient(turn: lash.Turn) -> str:
    order, _, name = turn.text.partition(" ")
    if order == "nap":
        await turn.step("nap", nap)
    if order in {"say", "nap"}:
        return name
    await turn.step("first", noted, f"{name}.first")
    if order == "block" and turn.attempt == 1:
        await turn.step("gate", blocking_gate, name)
    elif order == "block":
        await turn.step("gate", noted, f"{name}.again")
    else:
        await turn.step("gate", deaf_gate if order == "deaf" else gate, name)
    return f"did {name}"


@app.process
async def chain(ctx: lash.Context, length: int, pause_s: float) -> list[str]:
    """Run some steps with pauses between them."""
    done: list[str] = []
    for number in range(length):
        done.append(await ctx.step("link", noted, f"{ctx.process_id}.{number}"))
        await ctx.sleep(pause_s)
    return done


@app.process
async def parked(ctx: lash.Context, seconds: float) -> float:
    """Sleep once, and return how late the sleep ended."""
    asleep = await ctx.now()
    await ctx.sleep(seconds)
    return (await ctx.now()).timestamp() - asleep.timestamp() - seconds


@app.process
async def moody(ctx: lash.Context, name: str, mood: str) -> str:
    """Wait at a gate, outside of any step; then the first run raises if it is asked to, and all others return."""
    is_first = not (FOLDER / f"{name}.began").exists()
    await gate(name)
    if is_first and mood == "raise":
        raise RuntimeError("that took too long")
    return str(os.getpid())

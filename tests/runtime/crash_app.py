"""One turn and one process with every kind of step that must run once; a file counts the real calls."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import lash
from lash.model.value import JSON

SESSION: Final = "crash"
ASKED: Final = "look into it"
EARLY: Final = "and hurry"
EXPERT: Final = "crash/expert"
"""The session that the first turn asks; the turn is parked meanwhile."""
ADVISE: Final = "advise"
"""The step of the turn that is asked."""
TURN_STEPS: Final = (("model", "tool"), ("react",))
"""The steps of the first turn, and of the turn that a wake starts."""
PROCESS_STEPS: Final = ("search", "left", "right", "approve", "fill", "write", "archive")
ALL_STEPS: Final = frozenset({*TURN_STEPS[0], *TURN_STEPS[1], *PROCESS_STEPS, ADVISE})
_PAUSE_S: Final = 0.02
OPTIONS: Final = lash.WorkerOptions(lease_ttl_s=60, poll_s=0.2)
"""A lease outlives every test: a takeover needs a holder that is provably dead."""


def build(url: str, counts: Path, *hooks: lash.Hook) -> lash.App:
    """Return the application; each step that runs adds a line with its name to the file."""
    app = lash.App(url, options=OPTIONS, hooks=hooks)

    def count(name: str) -> str:
        with os.fdopen(os.open(counts, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
            file.write(f"{name}\n")
        return name

    async def work(name: str) -> str:
        return count(name)

    async def approve(process_id: str) -> str:
        await app.signal(process_id, "approved", {"by": "helper"}, key="approval")
        return count("approve")

    async def fill(wait_key: str) -> str:
        await app.resolve(wait_key, 7)
        return count("fill")

    @app.process
    async def research(ctx: lash.Context, topic: str) -> dict[str, JSON]:
        found = [await ctx.step("search", work, "search")]
        found += await ctx.gather(ctx.step("left", work, "left"), ctx.step("right", work, "right"))
        await ctx.sleep(_PAUSE_S)
        child = await ctx.start(helper, parent=ctx.process_id, key=await ctx.wait_key("form"))
        approval = await ctx.wait_signal("approved")
        which, form = await ctx.wait_any(ctx.wait_signal("never"), ctx.wait("form"), ctx.sleep(days=1))
        helped = await child.result()
        await ctx.wake(f"{topic} is ready")
        await ctx.emit("research.done", {"topic": topic})
        written = await ctx.race(ctx.sleep(days=1), ctx.step("write", work, "write"))
        return {"found": [*found, written], "approval": approval, "form": [which, form], "helped": helped}

    @app.process
    async def helper(ctx: lash.Context, parent: str, key: str) -> str:
        await ctx.sleep(_PAUSE_S)
        await ctx.step("approve", approve, parent)
        await ctx.sleep(_PAUSE_S)
        await ctx.step("fill", fill, key)
        return "helped"

    @app.process
    async def archive(ctx: lash.Context, payload: JSON, run: int = 1) -> JSON:
        if run == 1:
            await ctx.continue_as_new(payload, run=2)
        await ctx.step("archive", work, "archive")
        return payload

    app.on("research.done", archive, inputs={"payload": lash.EVENT})
    _add_agent(app, work, research)
    return app


def _add_agent(
    app: lash.App, work: Callable[[str], Awaitable[str]], research: lash.ProcessDefinition[[str], dict[str, JSON]]
) -> None:
    @app.agent
    async def assistant(turn: lash.Turn) -> str:
        if turn.session_id == EXPERT:
            return await turn.step(ADVISE, work, ADVISE)
        if turn.wakes:
            await turn.step("react", work, "react")
            turn.usage("m", input_tokens=1, output_tokens=2)
            turn.state["turns"] = 2
            return f"received: {turn.wakes[0].input}"
        await turn.step("model", work, "model")
        early = await turn.join_early_input()
        advice = await turn.ask("assistant", "what now?", session_id=EXPERT)
        await turn.sleep(2 * _PAUSE_S)
        found = await turn.step("tool", work, "tool")
        turn.add_tool_call("call-1", "tool", "{}", found)
        turn.usage("m", input_tokens=10, output_tokens=5)
        turn.state["turns"] = 1
        turn.put_record("found", "tool", found)
        turn.put_record("sessions", SESSION, {"found": found}, of_storage=True)
        await turn.start(research, "lash")
        return f"begun, with {len(early)} more and {advice}"


async def send_input(url: str) -> None:
    """Queue the input of the first turn, and the early input that joins it."""
    async with lash.App(url, worker=False) as app:
        session = app.session(SESSION)
        await session.send(ASKED, key="first")
        await session.send(EARLY, key="second", early=True)


async def is_finished(storage: lash.Storage) -> bool:
    """Return True if both turns were committed and all three processes have ended."""
    if await storage.queue.list(SESSION):
        return False
    records = (await storage.processes.list()).processes
    return len(records) == 3 and all(record.status is not lash.ProcessStatus.RUNNING for record in records)


def counted(counts: Path) -> dict[str, int]:
    """Return how often each step has run."""
    lines = counts.read_text().splitlines() if counts.exists() else []
    return {name: lines.count(name) for name in ALL_STEPS}

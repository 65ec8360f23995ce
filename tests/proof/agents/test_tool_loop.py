"""Workers are killed before and after every model call, tool call, approval and stream piece of one turn.

The workers of a chain share a database: each takes the turn over from a dead one, and is killed at the next place. So
no worker does more than a little of the turn. ``LASH_CRASH_POINTS=all`` also kills at every statement.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

import lash
from lash.model import EffectStatus, TokenUsage
from lash.model.effect import TurnScope
from tests.agents.crash_agent import SESSION, STEPS, counted, send_input
from tests.backends import with_parameters
from tests.runtime.test_crash_matrix import Databases, Runner, connections_gone, databases, runner

__all__ = ["databases"]

_KILLED: Final = -9
_LONGEST_CHAIN: Final = 15
"""A turn whose workers crash more than 20 times becomes a dead letter."""
_NAMES: Final = {"model#1": "model-1", "model#2": "model-2", "tool.c0": "look", "tool.c1": "find", "tool.c2": "pay"}
ALL: Final = os.environ.get("LASH_CRASH_POINTS") == "all"

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(3_600 if ALL else 900),
]


async def test_a_worker_may_die_anywhere_in_the_tool_loop(databases: Databases) -> None:
    """No recorded call is made again, no token is counted twice, and the conversation is the same."""
    with runner("tests.agents.crash_agent_runner") as run:
        with databases.fresh() as (url, directory):
            await send_input(url)
            assert run.work(url, directory) == 0
            await _check_end(url, directory, dict.fromkeys(STEPS, 1))
            trace: list[str] = json.loads((directory / "trace.json").read_text())
        calls = [place for place in trace if not _is_statement(place)]
        statements = _statements(trace)
        left = list(calls)
        while left:
            with databases.fresh() as (url, directory):
                reached = await _chain(run, url, directory, left[:_LONGEST_CHAIN])
            assert reached, f"no worker reached {left[0]}"
            left = left[reached:]
        for statement in statements:
            with databases.fresh() as (url, directory):
                await _chain(run, url, directory, [statement])
    print(f"kills at {len(calls)} calls and {len(statements)} statements")  # noqa: T201 (a figure to see)


def _statements(trace: list[str]) -> list[str]:
    """Return all statements, or where the last reply is recorded, and where the turn is committed."""
    if ALL:
        return [place for place in trace if _is_statement(place)]
    replied = next(index for index, place in enumerate(trace) if place.startswith("after step model#2"))
    behind = [place for place in trace[replied:] if _is_statement(place)]
    return [next(place for place in behind if place.startswith("after")), behind[-1]]


def _is_statement(place: str) -> bool:
    """Return whether a place is a statement of the database, and not a call of the turn."""
    return " step " not in place and not any(f" {name} " in place for name in (*STEPS, "approval"))


async def _chain(run: Runner, url: str, directory: Path, points: list[str]) -> int:
    """Kill one worker after the other, let the last one finish, and return how many points were reached."""
    await send_input(url)
    reached, known, made = 0, set[str](), dict.fromkeys(STEPS, 0)
    for point in points:
        doomed = with_parameters(url, application_name="doomed") if url.startswith("postgres") else url
        code = run.work(doomed, directory, point)
        assert code in (0, _KILLED), point
        await connections_gone(url)
        now = counted(directory / "counts")
        assert {name: now[name] for name in known} == {name: made[name] for name in known}, point
        assert all(now[name] <= made[name] + 1 for name in STEPS), point
        known, made = await _recorded(url), now
        if code == 0:
            break
        reached += 1
    assert run.work(url, directory) == 0
    await _check_end(url, directory, {name: made[name] + (name not in known) for name in STEPS})
    return reached


async def _recorded(url: str) -> set[str]:
    """Return the calls that no later worker may make again."""
    async with await lash.open(url) as storage:
        queue = await storage.queue.list(SESSION)
        if not queue:
            return set(STEPS)
        effects = await storage.effects.list(TurnScope(session_id=SESSION, turn_id=f"turn:{queue[0].batch_id}"))
    keys = [effect.replay_key for effect in effects if effect.status is EffectStatus.COMPLETED]
    named = {_NAMES[each] for key in keys if (each := key.removeprefix("key:")) in _NAMES}
    return named | ({"ask"} if any("approval" in key and key.startswith("key:") for key in keys) else set())


async def _check_end(url: str, directory: Path, calls: dict[str, int]) -> None:
    """Compare calls, conversation, ledger and queue with values written by hand."""
    assert counted(directory / "counts") == calls
    async with await lash.open(url) as storage:
        read = await storage.session(SESSION).load()
        assert read is not None
        assert await storage.queue.dead() == ()
        assert await storage.waits.pending() == ()
    messages = [node.entry.message for node in read.graph.nodes if isinstance(node.entry, lash.model.MessageEntry)]
    assert [[part.content for part in message.parts] for message in messages] == [
        ["pay for 7"],
        ["It is done.", '{"order":"7"}', '{"order":"7"}', '{"order":"7"}'],
        ["7 is late", "LookupError: 7", "7 is paid\n\nApproved with the note: go"],
        ["It is done."],
    ]
    assert [(each.model, each.usage) for each in read.usage] == [
        ("m", TokenUsage(input_tokens=20, output_tokens=6, cached_input_tokens=4, reasoning_tokens=2))
    ]

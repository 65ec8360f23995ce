"""A third of a fleet is killed again and again: no message is lost, answered twice or delayed beyond a lease.

``LASH_FLEET_SECONDS`` makes it longer and adds SQLite, ``LASH_FLEET_WORKERS`` makes it larger, and ``LASH_FLEET_SEED``
repeats the kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

import lash
from lash.runtime.turns.messages import text_of
from tests.runtime.worker_kit import Crew, crew

SECONDS: Final = float(os.environ.get("LASH_FLEET_SECONDS", "6"))
WORKERS: Final = int(os.environ.get("LASH_FLEET_WORKERS", "6"))
BACKENDS: Final = ["sqlite", "postgres"] if "LASH_FLEET_SECONDS" in os.environ else ["postgres"]
"""The short form leaves SQLite out: there the crash matrix and the contention proof kill workers too."""
TTL_S: Final = 15.0
SESSIONS: Final = 12
PAUSE_S: Final = 0.2
"""How long a caller waits between two messages: the delay of each one counts, not how many there are."""
ROUND_S: Final = 2.0
"""How long the killed workers are missing."""

pytestmark = [
    pytest.mark.parametrize("backend_name", BACKENDS, indirect=True),
    pytest.mark.timeout(SECONDS * 3 + 300),
]


class Calls:
    """Callers that ask in turn, one per session, and the times that their replies took."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.sent: dict[str, list[str]] = {}
        self.stop = asyncio.Event()

    async def call(self, session: lash.SessionHandle) -> None:
        """Ask until stopped; each message is answered with its own text."""
        sent = self.sent[session.session_id] = []
        while not self.stop.is_set():
            text = f"nap {session.session_id} {len(sent)}"
            sent.append(text)
            began = time.monotonic()
            await session.ask(text, key=text)
            self.delays.append(time.monotonic() - began)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), PAUSE_S)


async def _kill_some(hired: Crew, chance: random.Random) -> int:
    """Kill a third of the workers, let the others work for a while, and start as many again."""
    victims = chance.sample([each for each in hired.workers if each.poll() is None], WORKERS // 3)
    for victim in victims:
        victim.kill()
    await asyncio.sleep(ROUND_S)
    newcomers = [hired.hire(ttl=TTL_S, poll=1.5) for _ in victims]
    await asyncio.gather(*(hired.ready(each) for each in newcomers))
    return len(victims)


async def test_killing_a_third_of_the_fleet_costs_at_most_a_lease(backend_url: str, tmp_path: Path) -> None:
    """Every message has exactly one reply, in order, and none waited longer than a lease lasts."""
    seed = os.environ.get("LASH_FLEET_SEED") or f"{random.getrandbits(32):08x}"
    chance, calls, kills = random.Random(seed), Calls(), 0
    with crew(backend_url, tmp_path) as hired:
        async with lash.App(backend_url, worker=False) as app:
            for _ in range(WORKERS):
                hired.hire(ttl=TTL_S, poll=1.5)
            await asyncio.gather(*(hired.ready(each) for each in list(hired.workers)))
            sessions = [app.session(f"s{number}") for number in range(SESSIONS)]
            callers = [asyncio.create_task(calls.call(session)) for session in sessions]
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                kills += await _kill_some(hired, chance)
            calls.stop.set()
            await asyncio.gather(*callers)
            calls.delays.sort()
            middle, last = calls.delays[len(calls.delays) // 2], calls.delays[-1]
            print(  # noqa: T201 - figures of the run
                f"\nLASH_FLEET_SEED={seed}: {kills} of {len(hired.workers)} workers killed, "
                f"{len(calls.delays)} messages, "
                f"p50 {1000 * middle:.0f} ms, p99 {1000 * calls.delays[len(calls.delays) * 99 // 100]:.0f} ms, "
                f"longest {1000 * last:.0f} ms"
            )
            assert kills
            assert last <= TTL_S
            for session in sessions:
                spoken = [text_of(message) for message in await session.messages()]
                expected = [each for text in calls.sent[session.session_id] for each in (text, text.partition(" ")[2])]
                assert spoken == expected

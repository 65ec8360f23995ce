"""A process that runs effects and is killed at a chosen moment, or races others for them.

``python -m tests.proof.concurrency.effect_child ROLE URL …`` prints the results that it received.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import lash
from lash.errors import EffectLeaseLost
from lash.model.effect import EffectClaimed, EffectReplayed, TurnScope
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.factories.effect import claimed, effect, in_session
from tests.factories.session import owner

TTL = 60_000
FOREVER = 3_600_000


class Bomb:
    """Kills this process before or right after a statement is sent; once armed, it counts from 1."""

    def __init__(self, moment: str, number: int) -> None:
        self._moment = moment
        self._number = number
        self._armed = False

    def arm(self) -> None:
        self._armed = True

    def __call__(self, _name: str) -> None:
        if not self._armed:
            return
        self._number -= 1
        if self._number == 0:
            if self._moment == "before":
                die()
            asyncio.get_running_loop().call_soon(die)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def crash(url: str, way: str, moment: str, number: str, ran: str) -> None:
    """Run one effect of its own session, once by recording it and once under a claim, and die on the way."""
    bomb = Bomb(moment, int(number))
    storage = await lash.open(url, clock=ManualClock(), on_statement=bomb)
    name = f"{way}-{moment}-{number}"
    fence = await in_session(storage, name, ttl_ms=TTL)
    for key in ("warm", "k"):
        if key == "k":
            bomb.arm()
        envelope = effect(key, scope=TurnScope(session_id=name, turn_id="t"))
        if way == "record":
            happen(ran, key)
            await storage.effects.record(fence, envelope, "child")
        else:
            claim = claimed(await storage.effects.claim(envelope, owner("child"), ttl_ms=TTL))
            happen(ran, key)
            await storage.effects.finish(claim, "child")
    say("acknowledged")
    die()


def happen(ran: str, key: str) -> None:
    """Run the side effect, which cannot be undone."""
    if key == "k":
        with Path(ran).open("a") as file:
            file.write("child\n")


async def stall(url: str) -> None:
    """Begin an effect, and finish it on request, however late that is."""
    storage = await lash.open(url, clock=ManualClock())
    claim = claimed(await storage.effects.claim(effect(), owner("stalled"), ttl_ms=TTL))
    say("begun")
    await asyncio.to_thread(sys.stdin.readline)
    for call in (storage.effects.renew(claim, ttl_ms=TTL), storage.effects.finish(claim, "stalled")):
        try:
            await call
            say("held")
        except EffectLeaseLost:
            say("lost")
    await storage.close()


async def race(url: str, name: str, keys: str) -> None:
    """Request every key, run the effects that no other process runs, and print the outcome of each."""
    async with await lash.open(url) as storage:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(_want(storage, name, f"k{number}") for number in range(int(keys))))


async def _want(storage: Storage, name: str, key: str) -> None:
    while True:
        decision = await storage.effects.claim(effect(key), owner(name), ttl_ms=FOREVER)
        if isinstance(decision, EffectClaimed):
            say(f"ran {key}")
            await storage.effects.finish(decision.claim, f"{name} {key}")
        elif isinstance(decision, EffectReplayed):
            say(f"saw {key} {decision.record.outcome}")
            return
        else:
            await asyncio.sleep(0.002)


ROLES: dict[str, Callable[..., Coroutine[None, None, None]]] = {"crash": crash, "stall": stall, "race": race}

if __name__ == "__main__":
    asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))

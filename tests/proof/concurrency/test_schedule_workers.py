"""Processes fire the same schedules and are killed: every tick is one occurrence and one process per subscription."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Final

import pytest

import lash
from tests.raw import raw
from tests.warm_programs import Program, start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

MINUTE: Final = 60_000
SCHEDULES: Final = ("a", "b", "c")
SUBSCRIPTIONS: Final = ("one", "two")
MISSED: Final = 150
"""How many ticks each schedule is behind."""
WORKERS: Final = 3
KILLS: Final = 6
_ENGINE_STATEMENTS: Final = frozenset(
    {"emit_apply", "emit_occurrence", "emit_processes", "emit_deliveries", "schedule_advance"}
)
"""Statements that emit: a worker is killed right before one of them, or while it runs."""


async def _prepare(storage: lash.Storage, url: str) -> int:
    """Create schedules that tick every minute and are behind; return their first tick."""
    for key in SCHEDULES:
        draft = lash.model.ScheduleDraft(key=key, cron="* * * * *", catch_up=lash.CatchUp.ALL)
        source_key = (await storage.schedules.register(draft)).schedule.source_key
        for subscription in SUBSCRIPTIONS:
            await storage.triggers.register(
                lash.model.TriggerDraft(
                    owner=lash.model.HostOriginator(),
                    key=f"{key}-{subscription}",
                    source_type="cron",
                    source_key=source_key,
                    target=lash.model.EngineInput(kind=f"{key}-{subscription}", payload={}),
                    environment_ref="environment",
                    input_template={"at": lash.model.EventPointer(path="/scheduled_at")},
                )
            )
    first = int(time.time()) // 60 * MINUTE - (MISSED - 1) * MINUTE
    await raw(url, f"UPDATE lash_schedules SET next_tick_ms = {first}, next_fire_ms = {first}")
    return first


def _start(url: str) -> Program:
    return start("tests.proof.concurrency.schedule_worker", url)


def _kill_in_a_transaction(victim: Program) -> bool:
    """Kill a worker during an emission and return true, or return false if it had nothing left to emit."""
    wanted = random.randint(1, 60)
    idle = 0
    for line in victim.stdout:
        emits = line.strip() in _ENGINE_STATEMENTS
        wanted -= emits
        idle = 0 if emits else idle + 1
        if wanted <= 0 or idle > 20:
            break
    victim.kill()
    victim.communicate()
    return wanted <= 0


async def _behind(url: str, until_ms: int) -> bool:
    return await raw(url, f"SELECT count(*) FROM lash_schedules WHERE next_tick_ms <= {until_ms}") != [(0,)]


async def _work_off(url: str, until_ms: int) -> int:
    """Run and kill workers until no schedule is behind; return how many were killed during an emission."""
    workers = [_start(url) for _ in range(WORKERS)]
    killed = 0
    try:
        for _ in range(KILLS):
            killed += await asyncio.to_thread(_kill_in_a_transaction, workers.pop(0))
            workers.append(_start(url))
        # Nothing reads these pipes any more; a full pipe would block the workers.
        drains = [asyncio.create_task(asyncio.to_thread(worker.communicate)) for worker in workers]
        async with asyncio.timeout(90):
            while await _behind(url, until_ms):  # noqa: ASYNC110 - other processes do the work
                await asyncio.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
    await asyncio.gather(*drains)
    return killed


async def test_every_tick_is_emitted_once(backend_url: str) -> None:
    """Workers killed with SIGKILL inside their transactions lose no tick and repeat none."""
    async with await lash.open(backend_url) as storage:
        first = await _prepare(storage, backend_url)
        last = first + (MISSED - 1) * MINUTE
        assert await _work_off(backend_url, last) > 0
        expected: Counter[tuple[str, str]] = Counter()
        ticks = 0
        for key in SCHEDULES:
            schedule = await storage.schedules.get(lash.model.HostOriginator(), key)
            assert schedule is not None
            assert schedule.last_tick_ms is not None
            assert schedule.last_tick_ms >= last
            for moment in range(first, schedule.last_tick_ms + MINUTE, MINUTE):
                ticks += 1
                text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment / 1000))
                expected.update((f"{key}-{subscription}", text) for subscription in SUBSCRIPTIONS)
        assert await _processes(storage) == expected
    assert set(expected.values()) == {1}
    assert await raw(backend_url, "SELECT count(*) FROM lash_trigger_occurrences") == [(ticks,)]
    assert await raw(backend_url, "SELECT count(*) FROM lash_trigger_deliveries") == [(2 * ticks,)]


async def _processes(storage: lash.Storage) -> Counter[tuple[str, str]]:
    """Return the number of processes of each kind and time."""
    found: Counter[tuple[str, str]] = Counter()
    cursor: str | None = None
    while True:
        page = await storage.processes.list(limit=1_000, cursor=cursor)
        for record in page.processes:
            assert isinstance(record.registration.input, lash.model.EngineInput)
            assert isinstance(record.registration.input.payload, dict)
            found[record.registration.input.kind, record.registration.input.payload["args"]["at"]] += 1
        cursor = page.next_cursor
        if cursor is None:
            return found

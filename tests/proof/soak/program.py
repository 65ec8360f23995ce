"""A worker under steady load, which prunes its data and reports measurements.

``python -m tests.proof.soak.program URL`` works in rounds. In the middle of each stretch of rounds it prints a
sample; at the end of each it waits until all work is done, prunes all that retention allows, prints a sample and
waits for a line: ``go`` for another stretch, anything else to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

import lash
from lash.base.ids import new_id
from lash.model.effect import OperationScope
from lash.model.wait import CustomIdentity, Resolved
from tests.factories.effect import claimed, effect
from tests.proof.soak.samples import Inside
from tests.runtime.worker_kit import until

ROUNDS: Final = 8
"""How many rounds are in a stretch."""
CHATS: Final = 4
TURNS: Final = 12
"""After how many turns a session is deleted and created again."""
OPTIONS: Final = lash.WorkerOptions(maintenance_s=0.5, keep_ended_processes_s=5, poll_s=0.5)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PATIENCE_S: Final = 60


def build(url: str) -> tuple[lash.App, lash.ProcessDefinition[[], str]]:
    app = lash.App(url, options=OPTIONS)

    async def think() -> str:
        return "x" * 500

    @app.agent
    async def talkative(turn: lash.Turn) -> str:
        await turn.step("think", think)
        return await turn.step("say", think)

    @app.process
    async def errand(ctx: lash.Context) -> str:
        await ctx.step("think", think)
        await ctx.sleep(0.3)
        said = await ctx.wait_signal("go")
        await ctx.wake("done")
        return str(said)

    @app.process
    async def answer(ctx: lash.Context) -> str:
        return await ctx.step("think", think)

    app.on("bell", answer, inputs={})
    app.cron("* * * * *", answer, key="tick")
    return app, errand


class Load:
    """Rounds of work, and the durations of the turns."""

    def __init__(self, app: lash.App, errand: lash.ProcessDefinition[[], str]) -> None:
        self._app = app
        self._storage = app.storage
        self._errand = errand
        self._numbers = itertools.count()
        self.rounds = 0
        self.turns_ms: list[float] = []

    async def round(self) -> None:
        """Run one operation of each kind, concurrently."""
        self.rounds += 1
        async with asyncio.TaskGroup() as group:
            for chat in range(CHATS):
                group.create_task(self._chat(f"chat-{chat}"))
            group.create_task(self._run_errand())
            group.create_task(self._ring())
            group.create_task(self._set_once())

    async def _chat(self, session_id: str) -> None:
        if self.rounds % TURNS == 0:
            await self._storage.sessions.delete(session_id)
        await self._storage.sessions.create(session_id)
        began = time.perf_counter()
        await self._app.session(session_id).ask("hello", key=new_id(), timeout_s=_PATIENCE_S)
        self.turns_ms.append((time.perf_counter() - began) * 1_000)

    async def _run_errand(self) -> None:
        handle = await self._app.starting(wake="chat-0").start(self._errand)
        await handle.signal("go", "now")
        await handle.result(timeout_s=_PATIENCE_S)

    async def _ring(self) -> None:
        report = await self._app.emit("bell", key=new_id())
        for process_id in report.started_process_ids:
            await self._app.handle(process_id).result(timeout_s=_PATIENCE_S)

    async def _set_once(self) -> None:
        """Record an effect and resolve a wait without an owner, and forget the effect."""
        scope = OperationScope(operation_id=f"o{next(self._numbers)}")
        decision = await self._storage.effects.claim(effect(scope=scope), lash.current_owner(), ttl_ms=60_000)
        await self._storage.effects.finish(claimed(decision), "x" * 500)
        await self._storage.effects.retire(scope)
        key = await self._storage.waits.key(scope, CustomIdentity(key="k"))
        await self._storage.waits.resolve(key, Resolved(value="x" * 500))

    async def tidy(self) -> None:
        """Wait until nothing is queued, then prune everything that an operator may prune."""
        storage = self._storage
        for chat in range(CHATS):
            await until(functools.partial(self._is_answered, f"chat-{chat}"))
        for chat in range(CHATS):
            await storage.sessions.delete(f"chat-{chat}")
        later_ms = int(time.time() * 1_000) + 3_600_000
        feed = await self._end_of_feed()
        while (await storage.processes.prune(ended_before_ms=later_ms, through_cursor=None)).more:
            pass
        # Changes added by the pruning itself are behind the cursor, and stay until the next time.
        await storage.processes.prune(ended_before_ms=0, through_cursor=feed)
        while (await storage.occurrences.prune(before_ms=later_ms)).more:
            pass
        while await storage.waits.prune(resolved_before_ms=later_ms):
            pass
        while await storage.triggers.prune_receipts(before_ms=later_ms):
            pass
        await storage.maintenance.prune_turns(older_than_ms=0)
        await storage.maintenance.prune_source_keys(older_than_ms=0)
        await storage.maintenance.prune_activity(older_than_ms=0)
        await storage.maintenance.collect_garbage()

    async def _end_of_feed(self) -> str | None:
        """Return the cursor of a reader that has seen all changes."""
        cursor: str | None = None
        while (page := await self._storage.events.changes(cursor, limit=1_000)).changes:
            cursor = page.cursor
        return cursor

    async def _is_answered(self, session_id: str) -> bool:
        return not await self._storage.queue.list(session_id)

    def sample(self, *, at_rest: bool) -> Inside:
        """Measure this process from the inside."""
        turns, self.turns_ms = sorted(self.turns_ms), []
        return Inside(
            at_rest=at_rest,
            rounds=self.rounds,
            seconds=time.monotonic(),
            memory_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES,
            files=len(list(Path("/proc/self/fd").iterdir())),
            tasks=len(asyncio.all_tasks()),
            turn_ms=turns[len(turns) // 2],
            slowest_turn_ms=turns[-1],
        )


async def soak(url: str) -> None:
    app, errand = build(url)
    async with app:
        load = Load(app, errand)
        while True:
            for number in range(ROUNDS):
                await load.round()
                if number == ROUNDS // 2:
                    _say(load.sample(at_rest=False))
            await load.tidy()
            # Work that has just ended leaves its last tasks behind for a moment.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.1)
            _say(load.sample(at_rest=True))
            if await asyncio.to_thread(sys.stdin.readline) != "go\n":
                return


def _say(sample: Inside) -> None:
    sys.stdout.write(msgspec.json.encode(sample).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(soak(sys.argv[1]))

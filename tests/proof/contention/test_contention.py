"""Four processes of workers and clients on one storage are killed and stopped at random, and their history is checked.

``LASH_CONTENTION_SECONDS`` makes it longer, ``LASH_CONTENTION_SEED`` repeats the kills and stops;
the timing of the processes still varies.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import lash
from tests.contract.process_state import check_logs
from tests.proof.contention.checker import judge
from tests.proof.contention.feed import FeedReader
from tests.proof.contention.history import Operation, State, read_history
from tests.proof.contention.stored import read_stored
from tests.proof.contention.storm import storm
from tests.raw import raw
from tests.runtime.worker_kit import until

SECONDS: Final = float(os.environ.get("LASH_CONTENTION_SECONDS", "3"))
PROCESSES: Final = 4
_ACTS: Final = {"AcquireAct", "AppendAct", "CommitAct", "CountAct", "EnqueueAct", "FencedAct", "OfferAct", "ReadAct"}

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(SECONDS * 3 + 400),
]


async def test_killed_and_stopped_processes_break_no_law(backend_url: str, backend_name: str, tmp_path: Path) -> None:
    """Heads and records are registers, inputs are consumed once, fences grow, the feed misses no last change."""
    seed = os.environ.get("LASH_CONTENTION_SEED") or f"{random.getrandbits(32):08x}"
    print(f"\nLASH_CONTENTION_SEED={seed} on {backend_name}")  # noqa: T201 - to repeat it
    async with await lash.open(backend_url) as storage:
        feed, over = FeedReader(storage), asyncio.Event()
        with storm(backend_url, tmp_path, seed) as raging:
            async with asyncio.TaskGroup() as group:
                group.create_task(feed.follow(over))
                await raging.rage(PROCESSES, SECONDS)
                assert len(await storage.workers.list()) > 1
                (tmp_path / "stop").touch()
                await until(lambda: _is_quiet(backend_url), patience_s=180)
                await raging.end()
                over.set()
        history = read_history(raging.histories())
        print(f"{raging.kills} killed, {raging.stops} stopped; {_told(history)}; {feed.pages} pages")  # noqa: T201 - figures of the run
        assert raging.kills
        assert raging.stops

        stored = await read_stored(backend_url)
        feed.check(history, stored)
        violations = judge(history, stored)
        assert not violations, "\n".join(str(violation) for violation in violations[:20])
        assert {type(each.act).__name__ for each in history if each.state is State.OK} == _ACTS
        await check_logs(storage)
        await _check_rows(backend_url)
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean


async def _is_quiet(url: str) -> bool:
    """Return whether nothing is queued, and no process of the app is running."""
    running = "SELECT count(*) FROM lash_processes WHERE status = 'running' AND recovery <> 'external'"
    return [await raw(url, running), await raw(url, "SELECT count(*) FROM lash_batches")] == [[(0,)], [(0,)]]


async def _check_rows(url: str) -> None:
    """Raw SQL: processes ended well, wakes were consumed once, the ledger adds up, and no lease or claim is held."""
    assert await raw(url, "SELECT DISTINCT status FROM lash_processes WHERE recovery <> 'external'") == [("completed",)]
    states: dict[str, int] = dict(await raw(url, "SELECT state, count(*) FROM lash_wakes GROUP BY state"))
    assert states.keys() <= {"acknowledged", "no_target"}, "what a trigger has started wakes no session"
    # On a busy machine the seconds of a short run may bring no process that wakes a session.
    wakes = (states.get("acknowledged", 0),)
    assert await raw(url, """SELECT count(*) FROM lash_nodes WHERE body LIKE '%"role":"event"%'""") == [wakes]
    ledger = "SELECT session_key, sum(input_tokens) FROM {} GROUP BY session_key ORDER BY session_key"
    assert await raw(url, ledger.format("lash_usage")) == await raw(url, ledger.format("lash_usage_totals"))
    held = "SELECT count(*) FROM {} WHERE token IS NOT NULL AND owner_id NOT LIKE 'w%'"
    for table in ("lash_session_leases", "lash_process_leases"):
        assert await raw(url, held.format(table)) == [(0,)]


def _told(history: list[Operation]) -> str:
    """Return how many acts of each kind were requested, and how many of these succeeded."""
    asked = Counter(type(each.act).__name__.removesuffix("Act").lower() for each in history)
    done = Counter(type(each.act).__name__.removesuffix("Act").lower() for each in history if each.state is State.OK)
    unknown = sum(each.state is State.UNKNOWN for each in history)
    parts = [f"{name} {done[name]} of {count}" for name, count in sorted(asked.items())]
    return f"{len(history)} acts ({', '.join(parts)}; {unknown} of unknown outcome)"

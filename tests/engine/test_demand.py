"""The contract of the view ``lash_demand``: its columns, what each counts, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

import lash
from lash.model.effect import TurnScope
from lash.model.process.process import Recovery
from lash.model.queue import ClaimedTurn
from lash.model.wait import CustomIdentity, Resolved
from lash.stores.storage import Storage
from tests.contract.schedule_state import schedule
from tests.contract.work_state import looked
from tests.factories.process import process, process_lease, registered
from tests.factories.session import owner
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

COLUMNS: Final = (
    "sessions_ready",
    "sessions_running",
    "processes_ready",
    "processes_running",
    "oldest_age_s",
    "next_due_at",
)
INDEXES_READ: Final = [
    "SCAN b USING COVERING INDEX lash_batches_ready",
    "SCAN k USING COVERING INDEX lash_session_wakes_session",
    "SCAN l USING INDEX lash_session_leases_holder",
    "SCAN l USING INDEX lash_session_leases_unnamed",
]
"""Up to the first entry; and reasons to continue that no worker has counted, and sessions that are held: few."""
ANN, BOB = owner("ann"), owner("bob")
LONG: Final = 3_600_000
LAPSE: Final = f"UPDATE {{table}} SET expires_at_ms = 1 WHERE expires_at_ms > {int(time.time() * 1_000) + 5_400_000}"
"""Lets leases of two hours lapse."""


class Demand(NamedTuple):
    """The row of the view."""

    sessions_ready: int
    sessions_running: int
    processes_ready: int
    processes_running: int
    oldest_age_s: float
    next_due_at: datetime | None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self[:4]


@pytest_asyncio.fixture
async def storage(backend_url: str) -> AsyncIterator[Storage]:
    async with await lash.open(backend_url) as opened:
        yield opened


async def demand(url: str) -> Demand:
    """Read the view as a program without lash does, by the names of its columns."""
    (row,) = await raw(url, f"SELECT {', '.join(COLUMNS)} FROM lash_demand")
    found = Demand(*row)
    due: object = found.next_due_at
    return found._replace(next_due_at=datetime.fromisoformat(due)) if isinstance(due, str) else found


async def send(storage: Storage, session_id: str, *, at: datetime | None = None) -> None:
    await storage.sessions.create(session_id)
    await lash.SessionHandle(storage, session_id).send("hello", at=at)


async def claim(storage: Storage, session_id: str, ttl_ms: int = LONG) -> ClaimedTurn:
    claimed = await storage.queue.claim_turn(session_id, ANN, ttl_ms=ttl_ms)
    assert isinstance(claimed, ClaimedTurn)
    return claimed


async def park(storage: Storage, turn: ClaimedTurn) -> None:
    """Park a turn until it is woken."""
    assert turn.wake_seq is not None
    assert await storage.leases.park(turn.lease.fence, wake_seq=turn.wake_seq, until_ms=None, waiting_for="wait")


async def test_an_empty_storage_demands_nothing(storage: Storage, backend_url: str) -> None:
    """There is always exactly one row, with the documented columns and types."""
    del storage
    found = await demand(backend_url)
    assert found == Demand(0, 0, 0, 0, 0.0, None)
    assert [type(value) for value in found[:5]] == [int] * 4 + [float]


async def test_sessions_are_counted_once_and_by_state(storage: Storage, backend_url: str) -> None:
    """A session with several messages counts once; it is ready until a worker holds it, and again when that is gone."""
    for session_id in ("a", "a", "b", "c"):
        await send(storage, session_id)
    assert (await demand(backend_url)).counts == (3, 0, 0, 0)
    turn = await claim(storage, "a")
    await claim(storage, "b", ttl_ms=2 * LONG)
    await raw(backend_url, LAPSE.format(table="lash_session_leases"))
    assert (await demand(backend_url)).counts == (2, 1, 0, 0)
    assert len((await looked(storage, BOB)).session_ids) == 2
    await storage.leases.release(turn.lease.fence, pause_ms=LONG)
    found = await demand(backend_url)
    assert found.counts == (2, 0, 0, 0), "a session that pauses after a failure is not ready"
    assert found.next_due_at is not None


async def test_messages_for_later_count_when_they_are_due(storage: Storage, backend_url: str) -> None:
    """A delayed message does not count as demand; its moment is next_due_at."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    await send(storage, "a", at=at)
    found = await demand(backend_url)
    assert (found.counts, found.next_due_at) == ((0, 0, 0, 0), at)
    await raw(backend_url, "UPDATE lash_batches SET available_at_ms = 1000")
    found = await demand(backend_url)
    assert (found.counts, found.next_due_at) == ((1, 0, 0, 0), None)


async def test_processes_are_counted_by_state(storage: Storage, backend_url: str) -> None:
    """Ready, running and lapsed processes count; parked ones, ended ones and those of other systems do not."""
    await registered(storage, "ready", "running", "lapsed", "parked")
    await registered(storage, "ended", outcome=lash.model.Success(value=None))
    process_lease(await storage.process_leases.claim("running", ANN, ttl_ms=LONG))
    process_lease(await storage.process_leases.claim("lapsed", ANN, ttl_ms=2 * LONG))
    acquired = await storage.process_leases.claim("parked", ANN, ttl_ms=LONG)
    moment = (int(time.time()) + 7_200) * 1_000
    await storage.process_leases.park(process_lease(acquired).fence, wake_seq=0, until_ms=moment)
    await raw(backend_url, LAPSE.format(table="lash_process_leases"))
    found = await demand(backend_url)
    assert found.counts == (0, 0, 2, 1)
    assert found.next_due_at == datetime.fromtimestamp(moment / 1_000, UTC)
    assert len((await looked(storage, BOB)).process_ids) == 2


async def test_a_process_of_a_dead_owner_keeps_no_worker_running(storage: Storage, backend_url: str) -> None:
    """A process that is bound to its owner counts until it has one."""
    await storage.processes.register(process("bound", recovery=Recovery.OWNER_BOUND))
    assert (await demand(backend_url)).counts == (0, 0, 1, 0)
    process_lease(await storage.process_leases.claim("bound", ANN, ttl_ms=2 * LONG))
    await raw(backend_url, LAPSE.format(table="lash_process_leases"))
    assert (await demand(backend_url)).counts == (0, 0, 0, 0)
    assert (await looked(storage, BOB)).process_ids == ()


async def test_a_parked_turn_counts_when_it_is_woken(storage: Storage, backend_url: str) -> None:
    """Without any worker, an answer to a wait is demand: a worker has to count the reason and continue the turn."""
    await send(storage, "a")
    turn = await claim(storage, "a")
    scope = TurnScope(session_id="a", turn_id="t")
    key = await storage.waits.key(scope, CustomIdentity(key="approval"))
    await storage.waits.open(key, timeout_ms=LONG)
    await park(storage, turn)
    await lash.SessionHandle(storage, "a").send("more")
    found = await demand(backend_url)
    assert found.counts == (0, 0, 0, 0)
    assert found.next_due_at is not None, "the deadline of the wait"
    await storage.waits.resolve(key, Resolved(value=True))
    assert (await demand(backend_url)).counts == (1, 0, 0, 0)
    assert await storage.work.wake() == ("a",)
    assert (await demand(backend_url)).counts == (1, 0, 0, 0)


async def test_the_oldest_age_and_the_next_tick(storage: Storage, backend_url: str) -> None:
    """The age is that of the oldest ready message or process; a schedule is due at its next tick."""
    await send(storage, "new")
    await send(storage, "old")
    await send(storage, "held")
    await claim(storage, "held")
    await raw(backend_url, _age("lash_batches", "enqueued_at_ms", 600, "old"))
    await raw(backend_url, _age("lash_batches", "enqueued_at_ms", 9_000, "held"))
    assert 600 <= (await demand(backend_url)).oldest_age_s < 660
    await registered(storage, "p")
    await raw(backend_url, f"UPDATE lash_process_leases SET ready_at_ms = ready_at_ms - {1_200_000}")
    assert 600 <= (await demand(backend_url)).oldest_age_s < 660, "a process is not older than its registration"
    await raw(backend_url, f"UPDATE lash_processes SET created_at_ms = created_at_ms - {1_200_000}")
    assert 1_200 <= (await demand(backend_url)).oldest_age_s < 1_260
    await storage.schedules.register(schedule(cron="0 3 * * *"))
    found = (await demand(backend_url)).next_due_at
    assert found is not None
    assert found.timestamp() * 1_000 == await storage.schedules.next_fire_at_ms()


def _age(table: str, column: str, seconds: int, session_id: str) -> str:
    return (
        f"UPDATE {table} SET {column} = {column} - {seconds * 1_000} "
        f"WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = '{session_id}')"
    )


async def test_a_moment_that_never_comes_is_not_due(storage: Storage, backend_url: str) -> None:
    """Neither a moment beyond the calendar nor a parked turn breaks the view."""
    await send(storage, "a")
    turn = await claim(storage, "a")
    await park(storage, turn)
    await registered(storage, "p")
    await raw(backend_url, f"UPDATE lash_process_leases SET ready_at_ms = {2**62}")
    assert await demand(backend_url) == Demand(0, 0, 0, 0, 0.0, None)


async def test_the_cost_follows_the_ready_sessions(storage: Storage, backend_url: str, backend_name: str) -> None:
    """Of five thousand queued messages few are read: the view goes from session to session."""
    await send(storage, "a")
    await send(storage, "b")
    await registered(storage, "p")
    for statement in _many(backend_name):
        await raw(backend_url, statement)
    assert (await demand(backend_url)).counts == (2, 0, 1, 0)
    if backend_name == "sqlite":
        plan = [str(row[3]) for row in await raw(backend_url, "EXPLAIN QUERY PLAN SELECT * FROM lash_demand")]
        assert [line for line in plan if line.startswith("SCAN") and " USING " in line] == INDEXES_READ
        assert sum(line.startswith("SEARCH b USING INDEX lash_batches_ready") for line in plan) == 1
        assert not [line for line in plan if "ORDER BY" in line]
        return
    ((plan,),) = await raw(
        backend_url, "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, SUMMARY OFF) SELECT * FROM lash_demand"
    )
    assert _rows_read(json.loads(plan)[0]["Plan"]) < 100


def _many(backend_name: str) -> tuple[str, ...]:
    """Queue 5,000 more messages in the first session."""
    numbers = {
        "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)",
        "postgres": "WITH n (i) AS (SELECT generate_series(1, 5000))",
    }[backend_name]
    batches = (
        "INSERT INTO lash_batches (session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, "
        "payloads) SELECT b.session_key, b.batch_id || n.i, b.lane, b.delivery, b.slot, 0, b.enqueued_at_ms, "
        "b.payloads "
        "FROM n CROSS JOIN (SELECT * FROM lash_batches ORDER BY seq LIMIT 1) AS b"
    )
    return (f"{numbers} {batches}", "ANALYZE")


def _rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows the scans of tables and indexes returned."""
    own = plan["Actual Rows"] * plan["Actual Loops"] if "Relation Name" in plan else 0
    return int(own) + sum(_rows_read(each) for each in plan.get("Plans", ()))

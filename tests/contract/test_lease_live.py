"""The contract of lists of live leases."""

from __future__ import annotations

from typing import Final

import pytest

import lash
from lash.errors import InvalidInput
from lash.model.lease import Lease, LocalProcess, ResourceKind
from lash.model.process.process import ProcessAcquired, Success
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.costs import cost
from tests.factories.process import process
from tests.factories.session import acquired, created, owner
from tests.raw import raw

LONG: Final = 60_000
LOCAL: Final = LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1")


async def session_lease(storage: Storage, name: str, who: str, ttl_ms: int = LONG) -> Lease:
    await created(storage, name)
    return acquired(await storage.leases.claim(name, owner(who, process=LOCAL), ttl_ms=ttl_ms))


async def process_lease(storage: Storage, name: str, who: str) -> Lease:
    await storage.processes.register(process(name))
    outcome = await storage.process_leases.claim(name, owner(who), ttl_ms=LONG)
    assert isinstance(outcome, ProcessAcquired)
    return outcome.lease


class TestLive:
    """Laws of lists of live leases."""

    async def test_leases_of_sessions_and_processes_come_in_order(self, harness: Harness) -> None:
        """They come as they were acquired, as the calls returned them, in pages of one statement each."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append)
        held = [await session_lease(storage, "b", "w1")]
        await harness.clock.advance(5)
        held.append(await process_lease(storage, "p", "w1"))
        await harness.clock.advance(5)
        await created(storage, "a")
        held.append(acquired(await storage.leases.claim("a", owner("w2"), ttl_ms=LONG)))
        await created(storage, "free")
        page = await storage.leases.live()
        assert (list(page.leases), page.next_cursor) == (held, None)
        names.clear()
        found: list[Lease] = []
        cursor: str | None = None
        for _ in held:
            page = await storage.leases.live(limit=1, cursor=cursor)
            found += page.leases
            cursor = page.next_cursor
        assert (found, cursor) == (held, None)
        assert [name for name in names if name.startswith("lease")] == ["lease_live"] * 3
        assert [*(await storage.leases.live(ResourceKind.SESSION)).leases] == [held[0], held[2]]
        assert [*(await storage.leases.live(ResourceKind.PROCESS)).leases] == [held[1]]

    async def test_only_live_leases_are_listed(self, harness: Harness) -> None:
        """A lease that expired or was released is not, and neither is that of a process that ended."""
        storage = await harness.open()
        await session_lease(storage, "expired", "w", ttl_ms=10)
        released = await session_lease(storage, "released", "w")
        await storage.leases.release(released.fence)
        done = await process_lease(storage, "done", "w")
        await storage.process_leases.complete(done.fence, Success(value=1))
        await process_lease(storage, "stopped", "w")
        await storage.processes.complete("stopped", Success(value=1))
        kept = await session_lease(storage, "kept", "w")
        await harness.clock.advance(10)
        assert (await storage.leases.live()).leases == (kept,)
        renewed = await storage.leases.renew(kept.fence, ttl_ms=LONG)
        assert (await storage.leases.live()).leases == (renewed,)

    async def test_bad_arguments_are_refused(self, harness: Harness) -> None:
        """A kind that is none and a cursor of another list raise InvalidInput."""
        storage = await harness.open()
        with pytest.raises(InvalidInput, match="expected a ResourceKind, got 'session'"):
            await storage.leases.live("session")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="expected a cursor of a list of leases"):
            await storage.leases.live(cursor="czE6MQ==")


_MANY: Final = """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'free' || number, '', 0, '', '{"type":"root"}', 0, 0 FROM %s
"""
_NUMBERS: Final = {
    "sqlite": """(
        WITH RECURSIVE n (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < 10000)
        SELECT number FROM n
    )""",
    "postgres": "generate_series(1, 10000) AS number",
}
_FREE: Final = """
    INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id LIKE 'free%'
"""
_NAMED: Final = {"wanted": None, "claimed_at_ms": 0, "kind": "", "key": 0, "limit": 101, "now_ms": 0}


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_free_leases_cost_nothing(backend_url: str, backend_name: str) -> None:
    """A list reads as much beside 10,000 free leases as beside none."""
    async with await lash.open(backend_url) as storage:
        for number in range(10):
            await session_lease(storage, f"s{number}", "w")
    few = await cost(backend_url, "lease_live", _NAMED, "NULL, 0, '', 0, 101")
    await raw(backend_url, _MANY % _NUMBERS[backend_name])
    await raw(backend_url, _FREE)
    await raw(backend_url, "ANALYZE")
    many = await cost(backend_url, "lease_live", _NAMED, "NULL, 0, '', 0, 101")
    # Counts of PostgreSQL vary by a few rows with what was vacuumed meanwhile.
    assert 0 < many <= few + 20, (few, many)

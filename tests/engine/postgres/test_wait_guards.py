"""Guards that keep a wait of an old key out of the table under concurrent writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
import pytest

import lash
from lash.errors import WaitUnknown
from lash.model.wait import WaitKey
from lash.postgres.engine.options import PostgresOptions
from tests.factories.process import DONE
from tests.factories.wait import PROCESS, TURN, YES, key_of, placed, soon
from tests.raw import raw

Call: TypeAlias = Callable[[lash.Storage, WaitKey], Coroutine[Any, Any, object]]

_CANCEL: Final = """UPDATE lash_waits SET resolved_at_ms = 1, resolution = '{"resolution":{"status":"cancelled"}}'"""
_BLOCKED: Final = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND query LIKE '%' || current_schema() || '%' AND pid <> pg_backend_pid()"
)


@asynccontextmanager
async def rival(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Give another connection, in a transaction that the test ends."""
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


async def blocked(url: str) -> None:
    """Return once a statement on this schema waits for a lock."""

    async def look() -> None:
        while await raw(url, _BLOCKED) == [(0,)]:  # noqa: ASYNC110 (the server sends no event)
            await asyncio.sleep(0.01)

    await soon(look())


async def _resolve(storage: lash.Storage, key: WaitKey) -> object:
    return await storage.waits.resolve(key, YES)


async def _open(storage: lash.Storage, key: WaitKey) -> object:
    try:
        return await storage.waits.open(key)
    except WaitUnknown:
        return lash.model.UnknownOrRevoked()


calls = pytest.mark.parametrize("call", [_resolve, _open])


@calls
async def test_a_revocation_under_way_is_waited_for(postgres_storage_url: str, call: Call) -> None:
    """A writer to a wait whose keys are being revoked blocks, and is then refused; no row is left."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage)
        await connection.execute("SELECT 1 FROM lash_sessions FOR UPDATE")
        await connection.execute("UPDATE lash_sessions SET wait_revocations = wait_revocations + 1")
        task = asyncio.create_task(call(storage, key))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        assert await soon(task) == lash.model.UnknownOrRevoked()
        assert await raw(postgres_storage_url, "SELECT count(*) FROM lash_waits") == [(0,)]


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
async def test_a_resolution_under_way_is_told(postgres_storage_url: str, timeout_ms: int | None) -> None:
    """Of two callers that resolve an open wait concurrently, the later one gets the other's resolution."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage)
        await storage.waits.open(key, timeout_ms=timeout_ms)
        await connection.execute(_CANCEL)
        task = asyncio.create_task(storage.waits.resolve(key, YES))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        assert await soon(task) == lash.model.AlreadyResolved(terminal=lash.model.Cancelled())


async def test_a_deadline_under_way_is_seen(postgres_storage_url: str) -> None:
    """A caller that opens a wait while another sets its deadline sees that deadline."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage)
        await storage.waits.open(key)
        await connection.execute("UPDATE lash_waits SET deadline_ms = 4000000000000")
        task = asyncio.create_task(storage.waits.open(key, timeout_ms=60_000))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        assert (await soon(task)).deadline_ms == 4_000_000_000_000


async def test_a_revocation_waits_for_who_writes(postgres_storage_url: str) -> None:
    """A write to a wait whose keys are about to be revoked is removed with them."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage)
        await storage.waits.resolve(key, YES)
        await connection.execute("SELECT 1 FROM lash_sessions FOR KEY SHARE")
        await connection.execute(
            "INSERT INTO lash_waits (key_id, scope_id, scope, identity, session_key, created_at_ms) "
            "SELECT 'other', scope_id, scope, identity, session_key, 0 FROM lash_waits"
        )
        task = asyncio.create_task(storage.waits.revoke("s"))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        assert await soon(task) == 2
        assert await raw(postgres_storage_url, "SELECT count(*) FROM lash_waits") == [(0,)]


@calls
@pytest.mark.parametrize("scope", [TURN, PROCESS], ids=["session", "process"])
async def test_a_removal_under_way_is_waited_for(
    postgres_storage_url: str, call: Call, scope: lash.model.TurnScope | lash.model.ProcessScope
) -> None:
    """A writer to a wait whose owner is being removed gets lash's refusal, not a database error."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage, scope=scope)
        await connection.execute("DELETE FROM lash_sessions" if scope is TURN else "DELETE FROM lash_processes")
        task = asyncio.create_task(call(storage, key))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        assert await soon(task) == lash.model.UnknownOrRevoked()


@calls
async def test_a_wait_written_at_the_same_moment_is_seen(postgres_storage_url: str, call: Call) -> None:
    """A writer that blocks on a row another transaction commits sees the committed values."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        key = await key_of(storage, scope=PROCESS)
        other = await key_of(storage, "other", PROCESS)
        await storage.waits.resolve(other, YES)
        await connection.execute(
            "INSERT INTO lash_waits (key_id, scope_id, scope, identity, process_key, resolution, created_at_ms, "
            "resolved_at_ms) SELECT $1, scope_id, scope, identity, process_key, resolution, 0, 1 FROM lash_waits",
            key.key_id,
        )
        task = asyncio.create_task(call(storage, key))
        await blocked(postgres_storage_url)
        await connection.execute("COMMIT")
        answer = await soon(task)
        if isinstance(answer, lash.model.WaitRecord):
            assert (answer.resolution, answer.resolved_at_ms) == (YES, 1)
        else:
            assert answer == lash.model.AlreadyResolved(terminal=YES)


async def test_a_commit_and_a_claim_do_not_stand_in_the_way(postgres_storage_url: str) -> None:
    """Waits of a session with a running commit, and of a running process, can be resolved."""
    async with await lash.open(postgres_storage_url) as storage, rival(postgres_storage_url) as connection:
        await placed(storage)
        keys = [await key_of(storage, scope=scope) for scope in (TURN, PROCESS)]
        await connection.execute("UPDATE lash_sessions SET revision = revision + 1")
        await connection.execute("UPDATE lash_session_leases SET fencing = fencing + 1")
        await connection.execute("UPDATE lash_processes SET last_sequence = last_sequence + 1")
        assert [await soon(storage.waits.resolve(key, YES)) for key in keys] == [lash.model.Accepted()] * 2
        await connection.execute("ROLLBACK")


async def test_pruning_and_resolving_at_once(postgres_storage_url: str) -> None:
    """In any order, no process is left half removed and no caller gets a database error."""
    async with await lash.open(postgres_storage_url) as storage:
        await placed(storage)
        await storage.processes.complete("p", DONE)
        keys = [await key_of(storage, str(number), PROCESS) for number in range(20)]
        answers = await asyncio.gather(
            *(storage.waits.resolve(key, YES) for key in keys),
            storage.processes.prune(ended_before_ms=2**62, through_cursor=None),
        )
        assert all(answer in (lash.model.Accepted(), lash.model.UnknownOrRevoked()) for answer in answers[:-1])
        assert await storage.processes.get("p") is None
        assert await raw(postgres_storage_url, "SELECT count(*) FROM lash_waits") == [(0,)]

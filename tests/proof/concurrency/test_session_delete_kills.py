"""A deletion is one transaction over all nouns: a process killed in it leaves the whole session or nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

import lash
from tests.contract.test_session_delete import inhabited
from tests.factories.trigger import by_session
from tests.raw import raw
from tests.warm_programs import run

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OWNED: Final = (
    *("lash_nodes", "lash_batches", "lash_dead_letters", "lash_source_keys", "lash_usage", "lash_session_leases"),
    *("lash_effects", "lash_waits", "lash_records"),
)
_MOST_STATEMENTS: Final = 60


async def _rows(url: str, session_key: object) -> list[int]:
    counts = []
    for table in _OWNED:
        (count,) = await raw(url, f"SELECT count(*) FROM {table} WHERE session_key = {session_key}")
        counts.append(int(str(count[0])))
    return counts


async def test_a_killed_deletion_is_whole_or_none(backend_url: str, backend_name: str) -> None:
    """Killed before each of its statements in turn, then retried: the session is never partial, and gone in the end."""
    async with await lash.open(backend_url) as storage:
        statement, deleted = 0, False
        while not deleted:
            assert statement < _MOST_STATEMENTS
            name = f"s{statement}"
            await inhabited(storage, name)
            ((key,),) = await raw(backend_url, f"SELECT session_key FROM lash_sessions WHERE session_id = '{name}'")
            whole = await _rows(backend_url, key)
            assert min(whole) > 0
            code, said = await asyncio.to_thread(
                run, "tests.proof.concurrency.session_deleter", backend_url, name, str(statement)
            )
            deleted = said == "deleted\n"
            assert code == (0 if deleted else -9)
            if not deleted:
                assert await _rows(backend_url, key) == whole
                assert (await storage.schedules.get(by_session(name), "schedule")) is not None
                assert (await storage.triggers.get(by_session(name), "subscription")) is not None
                assert await storage.sessions.delete(name)
            assert await _rows(backend_url, key) == [0] * len(_OWNED)
            assert (await storage.schedules.get(by_session(name), "schedule")) is None
            assert (await storage.triggers.get(by_session(name), "subscription")) is None
            statement += 1
        assert statement > 1

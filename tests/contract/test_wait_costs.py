"""Costs of waiting: one query for all waiters, and one statement per resolution on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.base.waiting_kit import changes_of
from tests.factories.wait import PROCESS, TURN, YES, key_of, parked, placed, soon, waiting

_CONTROL = {"begin", "commit", "savepoint", "release", "checkpoint"}


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)

    def take(self) -> list[str]:
        """Return what ran since the last call, except transaction control."""
        taken, self.names = self.names, []
        return [name for name in taken if name not in _CONTROL]

    async def until(self, name: str) -> None:
        """Return once a statement of this name has run, and the ones that run with it."""
        while name not in self.names:  # noqa: ASYNC110 (nothing to wait on)
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)

    async def until_quiet(self) -> None:
        """Return once no statement has run for a while."""
        before = -1
        while before != len(self.names):
            before = len(self.names)
            await asyncio.sleep(0.1)


async def _opened(harness: Harness, recorder: Recorder) -> Storage:
    """Open a storage that polls only on a hint."""
    storage = await placed(await harness.open(on_statement=recorder))
    changes_of(storage)._poll_s = 3_600
    return storage


async def test_a_thousand_waiters_cost_one_query(harness: Harness) -> None:
    """A hint leads to one query for all waiters, not one for each."""
    recorder = Recorder()
    storage = await _opened(harness, recorder)
    keys = [await key_of(storage, str(number)) for number in range(1_000)]
    tasks = [waiting(storage, key) for key in keys]
    await parked(storage, *keys)
    await soon(recorder.until_quiet())
    recorder.take()
    storage.hints.notify()
    await soon(recorder.until("wait_states"))
    assert recorder.take() == ["wait_states"]

    await storage.waits.resolve(keys[7], YES)
    assert await soon(tasks[7]) == YES
    await asyncio.sleep(0.05)
    taken = recorder.take()
    # SQLite reads the wait in the transaction that resolves it; no waiter reads it.
    assert (taken.count("wait_states"), taken.count("wait_row")) == (1, int(harness.backend != "postgres"))
    await storage.waits.revoke("s")
    gone = await soon(asyncio.gather(*tasks, return_exceptions=True))
    assert sum(isinstance(each, lash.WaitUnknown) for each in gone) == 999


async def test_those_who_wait_for_processes_and_for_waits_share_a_task(harness: Harness) -> None:
    """One task serves both kinds of waiters, with one query of each kind."""
    recorder = Recorder()
    storage = await _opened(harness, recorder)
    key = await key_of(storage)
    task = waiting(storage, key)
    outcome = asyncio.create_task(storage.waiter.await_outcome("p"))
    await parked(storage, key)
    await soon(recorder.until_quiet())
    assert sum(each.get_name() == "lash-change-waiter" for each in asyncio.all_tasks()) == 1
    recorder.take()
    storage.hints.notify()
    await soon(recorder.until("wait_states"))
    assert sorted(recorder.take()) == ["event_last_sequences", "wait_states"]
    await storage.waits.resolve(key, YES)
    assert await soon(task) == YES
    await storage.processes.complete("p", lash.Success())
    assert await soon(outcome) == lash.Success()
    await asyncio.sleep(0)
    assert not any(each.get_name() == "lash-change-waiter" for each in asyncio.all_tasks())


@pytest.mark.parametrize("scope", [TURN, PROCESS], ids=["session", "process"])
async def test_what_each_call_costs(harness: Harness, scope: lash.model.TurnScope | lash.model.ProcessScope) -> None:
    """Making a key is one read; opening and resolving are one statement each on PostgreSQL, a few on SQLite."""
    recorder = Recorder()
    storage = await _opened(harness, recorder)
    await key_of(storage, "first", scope)
    recorder.take()
    key = await key_of(storage, "k", scope)
    life = "wait_session_life" if scope is TURN else "wait_process_life"
    assert recorder.take() == [life]
    await storage.waits.open(key, timeout_ms=5)
    on_postgres = harness.backend == "postgres"
    assert recorder.take() == (["wait_open"] if on_postgres else ["wait_owner_lives", "wait_open", "wait_row"])
    await storage.waits.resolve(key, YES)
    woken = [] if scope is TURN else ["work_wake_own"]
    expected = ["wait_owner_lives", "wait_resolve", "wait_note_change", *woken, "wait_row"]
    assert recorder.take() == (["wait_resolve"] if on_postgres else expected)
    await storage.waits.resolve("lw1.W10." + "A" * 43, YES)
    assert recorder.take() == []


async def test_a_timeout_in_real_time(backend_url: str, backend_name: str) -> None:
    """With a real clock a wait ends at its deadline, without a poll."""
    async with await lash.open(backend_url) as storage:
        changes_of(storage)._poll_s = 3_600
        await placed(storage)
        key = await key_of(storage)
        assert await soon(storage.waits.wait(key, timeout_ms=20)) == lash.model.TimedOut()
        assert await storage.waits.resolve(key, YES) == lash.model.AlreadyResolved(terminal=lash.model.TimedOut())

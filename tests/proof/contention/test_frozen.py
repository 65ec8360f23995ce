"""A worker that is stopped inside a transaction holds others up for a limited time, and changes nothing later."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

import lash
from tests.backends import with_parameters
from tests.cli.kit import run
from tests.factories.session import started
from tests.proof.contention.freezer import OPERATIONS
from tests.proof.contention.rows import all_rows
from tests.raw import raw
from tests.runtime.worker_kit import PATIENCE_S, ROOT

pytestmark = [pytest.mark.parametrize("backend_name", ["postgres"], indirect=True), pytest.mark.timeout(240)]

LIMIT_MS: Final = "600"
_IDLE: Final = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    " AND application_name = 'frozen'"
)


@asynccontextmanager
async def _frozen(url: str, name: str) -> AsyncIterator[subprocess.Popen[str]]:
    """A process that has stopped inside a transaction."""
    command = [sys.executable, "-m", "tests.proof.contention.freezer", url, name]
    child = subprocess.Popen(  # noqa: ASYNC220 - starting it takes no time
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        stopped = await asyncio.to_thread(os.waitid, os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP, "it ended before it stopped"
        yield child
    finally:
        child.kill()
        child.communicate()


async def _prepare(storage: lash.Storage, url: str) -> None:
    """Create a session with a turn, and a schedule with two ticks that are due: these fire in one transaction.

    The session has a fork: without ties it would be deleted by one statement, in which its process cannot stop.
    """
    await started(storage)
    await storage.sessions.fork("s", "heir")
    await storage.schedules.register(
        lash.model.ScheduleDraft(key="hourly", cron="0 * * * *", catch_up=lash.CatchUp.ALL)
    )
    first = int(time.time()) // 3600 * 3_600_000 - 3_600_000
    await raw(url, f"UPDATE lash_schedules SET next_tick_ms = {first}, next_fire_ms = {first}")


async def _do(storage: lash.Storage, name: str) -> object:
    """Do what the frozen process was about to do; a schedule that is locked is tried again, as a worker does."""
    if name != "fire":
        return await OPERATIONS[name].run(storage)
    while not (fired := await storage.schedules.fire_due()):  # noqa: ASYNC110 - the server ends the wait
        await asyncio.sleep(0.02)
    return fired


@pytest.mark.parametrize("name", OPERATIONS)
async def test_others_go_on_and_the_frozen_one_changes_nothing(backend_url: str, name: str) -> None:
    """The server rolls a frozen transaction back after the limit; its process finds that out when it continues."""
    async with await lash.open(backend_url) as storage:
        await _prepare(storage, backend_url)
        frozen_url = with_parameters(
            backend_url, idle_transaction_timeout_ms=LIMIT_MS, application_name="frozen", max_size="1"
        )
        async with _frozen(frozen_url, name) as child:
            async with asyncio.timeout(PATIENCE_S):
                await _do(storage, name)
            before = await all_rows(backend_url)
            child.send_signal(signal.SIGCONT)
            said, _ = await asyncio.to_thread(child.communicate, None, PATIENCE_S)
        # A COMMIT to a closed connection may be answered by a reset, which does not say why it was closed.
        assert said in {"StoreUnavailable False\n", "StoreUnavailable True\n" if name == "commit" else ""}
        assert await all_rows(backend_url) == before
    ticks = {row[1] for row in before["lash_trigger_occurrences"]}
    assert len(ticks) >= 2 if name == "fire" else not ticks
    assert len(before["lash_trigger_subscriptions"]) == (name == "register")


async def test_a_waiting_statement_names_what_it_waits_for(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """After a second it logs the process id, the name and the state of the holder; the doctor shows the same."""
    async with await lash.open(backend_url) as storage:
        await _prepare(storage, backend_url)
        frozen_url = with_parameters(backend_url, idle_transaction_timeout_ms="0", application_name="frozen")
        async with _frozen(frozen_url, "register"):
            ((pid,),) = await raw(backend_url, _IDLE)
            with caplog.at_level(logging.WARNING, "lash.postgres"):
                waiting = asyncio.create_task(_do(storage, "register"))
                async with asyncio.timeout(PATIENCE_S):
                    while not caplog.records:  # noqa: ASYNC110 - the log has no event
                        await asyncio.sleep(0.02)
            doctor = await asyncio.to_thread(run, "doctor", url=backend_url)
        await waiting
    line = caplog.messages[0]
    assert line.startswith("'trigger_open_receipt' has waited for ")
    assert f"locks are held by pid {pid} (frozen from " in line
    assert "idle in transaction for " in line
    assert line.endswith(", 1 waiting")
    assert re.search(rf"^locks +warn +pid {pid} \(frozen from .*: idle in transaction", doctor.stdout, re.MULTILINE)


async def test_a_schedule_that_stays_locked_is_reported(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker does not wait for the lock of a schedule; it reports the holder after a second."""
    async with await lash.open(backend_url) as storage:
        await _prepare(storage, backend_url)
        frozen_url = with_parameters(backend_url, idle_transaction_timeout_ms="0", application_name="frozen")
        async with _frozen(frozen_url, "fire"):
            ((pid,),) = await raw(backend_url, _IDLE)
            with caplog.at_level(logging.WARNING, "lash.postgres"):
                async with asyncio.timeout(PATIENCE_S):
                    while not caplog.records:
                        assert await storage.schedules.fire_due() == ()
                        await asyncio.sleep(0.02)
        async with asyncio.timeout(PATIENCE_S):
            await _do(storage, "fire")
    assert caplog.messages[0].startswith(f"schedule 'hourly' is due and locked; locks are held by pid {pid} (frozen")


class _Recorder(lash.Hook):
    """Records the names of the statements of an app."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def statement(self, name: str) -> None:
        self.statements.append(name)


async def test_a_worker_polls_slowly_while_another_holds_a_schedule(backend_url: str) -> None:
    """A schedule that is due and locked is tried again after growing pauses, not in a busy loop."""
    recorder = _Recorder()
    async with await lash.open(backend_url) as storage:
        await _prepare(storage, backend_url)
        frozen_url = with_parameters(backend_url, idle_transaction_timeout_ms="0", application_name="frozen")
        async with (
            _frozen(frozen_url, "fire"),
            lash.App(backend_url, options=lash.WorkerOptions(poll_s=1), hooks=[recorder]),
        ):
            await asyncio.sleep(1.5)
    # The pauses are 20, 40, 80, 160, 320, 640 ms; a notification may end one. A busy loop polls hundreds of times.
    assert 1 <= recorder.statements.count("work_poll") < 20

"""Servers that crash, restart and fail over under workers: no effect is repeated."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.proof.faults.chats import Troubles
from tests.proof.faults.disk import EFFORT
from tests.proof.faults.ledger import Firm, Ledger, has, worked_through
from tests.proof.faults.postgres.servers import StandbyServer, both_hosts, follow_synchronously
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.timeout(300 * EFFORT)


async def test_no_effect_is_repeated_by_restarts(tmp_path: Path) -> None:
    """Through five immediate restarts every effect of turns and processes happens once, and all work is finished."""
    restarts = 5 * EFFORT
    with PostgresServer(durable=True, binaries=find_binaries()) as server:
        firm = Firm(f"{server.url}?schema=public", Ledger(tmp_path / "ledger"), Troubles())

        async def crash() -> None:
            for number in range(restarts):
                await until(partial(has, firm, 40 * (number + 1)))
                await asyncio.to_thread(server.stop, immediate=True)
                await asyncio.sleep(0.5 * (number % 5))
                await asyncio.to_thread(server.start)

        await worked_through(firm, crash)


async def test_no_effect_is_repeated_by_a_failover(tmp_path: Path) -> None:
    """The primary dies and its standby is promoted: every effect happens once, and all work is finished there."""
    with PostgresServer(durable=True, binaries=find_binaries()) as primary, StandbyServer(primary) as standby:
        follow_synchronously(primary)
        url = f"{both_hosts(primary, standby)}&schema=public"
        firm = Firm(url, Ledger(tmp_path / "ledger"), Troubles())

        async def fail_over() -> None:
            await until(partial(has, firm, 40))
            await asyncio.to_thread(primary.stop, immediate=True)
            # Until the promotion the standby refuses every write.
            await asyncio.sleep(2)
            await until(firm.troubles.has_noticed)
            await asyncio.to_thread(standby.promote)
            await until(partial(has, firm, 80))

        await worked_through(firm, fail_over)

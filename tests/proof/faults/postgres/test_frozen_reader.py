"""A client that stops while the server sends it a long answer to a write."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.backends import with_parameters
from tests.engine.postgres.kit import opened, raw_connection, with_items
from tests.proof.faults.chats import PATIENCE_S
from tests.runtime.worker_kit import ROOT

_WRITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reader' AND wait_event = 'ClientWrite'"


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is an option of Linux")
async def test_a_client_that_stops_reading_is_cut_off(postgres_schema_url: str) -> None:
    """The write that it holds open is rolled back after ``peer_timeout_s``, and another client can write."""
    async with opened(postgres_schema_url) as database:
        await with_items(database, 1)
        url = with_parameters(postgres_schema_url, peer_timeout_s="6", application_name="reader")
        command = [sys.executable, "-m", "tests.proof.faults.postgres.frozen_reader", url]
        with subprocess.Popen(command, cwd=ROOT) as child:  # noqa: ASYNC220 - starting it takes no time
            try:
                async with raw_connection(postgres_schema_url) as watcher, asyncio.timeout(PATIENCE_S):
                    await asyncio.to_thread(os.waitid, os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
                    while not await watcher.fetchval(_WRITING):  # noqa: ASYNC110 - the server has no event
                        await asyncio.sleep(0.05)
                    # It waits for the lock, up to its own limit of ten seconds, and is repeated once.
                    began = time.monotonic()
                    assert await database.write_one(tuple, "add", 1, repeatable=True) == (1, 1)
                    assert time.monotonic() - began > 1
            finally:
                child.send_signal(signal.SIGKILL)

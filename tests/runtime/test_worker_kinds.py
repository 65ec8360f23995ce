"""Workers of several kinds as processes: by agent and by label."""

from __future__ import annotations

from pathlib import Path

import pytest

import lash
from tests.runtime.kinds_app import index, kinds
from tests.runtime.worker_kit import PATIENCE_S, crew

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240),
]
_APP = "tests.runtime.kinds_app:app"


async def test_each_kind_of_worker_runs_its_own_work(backend_url: str, tmp_path: Path) -> None:
    """Turns and processes run in the worker of their agent or label, also after one was killed; the rest waits."""
    sender = lash.App(backend_url, worker=False)
    sender.include(kinds)
    async with sender:

        async def pid_of(session_id: str, agent: str, text: str) -> int:
            return int(await sender.session(session_id, agent).ask(text, timeout_s=PATIENCE_S))

        for region in ("eu", "us"):
            await sender.storage.sessions.create(f"in-{region}", labels={"region": region})
        with crew(backend_url, tmp_path) as workers:
            clerk = workers.hire("--agent", "clerk", "--processes", "0", target=_APP)
            eu = workers.hire("--agent", "judge", "--label", "region=eu", target=_APP)
            us = workers.hire("--agent", "judge", "--label", "region=us", target=_APP)
            for worker in (clerk, eu, us):
                await workers.ready(worker)
            for _ in range(3):
                assert await pid_of("in-eu", "judge", "say") == eu.pid
                assert await pid_of("in-us", "judge", "say") == us.pid
                assert await pid_of("in-us", "clerk", "say") == clerk.pid
            assert await pid_of("in-us", "clerk", "start") == us.pid
            await sender.session("plain", "judge").send("wait", key="plain")
            started = await sender.start(index)

            us.kill()
            us.wait()
            await sender.session("in-us", "judge").send("again", key="again")
            assert await pid_of("in-eu", "judge", "say") == eu.pid
            assert [batch.attempts for batch in await sender.session("in-us").pending()] == [0]
            other = workers.hire("--label", "region=us", target=_APP)
            again = await sender.session("in-us", "judge").ask("again", key="again", timeout_s=PATIENCE_S)
            assert int(again) == other.pid

            assert [batch.attempts for batch in await sender.session("plain").pending()] == [0]
            rest = workers.hire(target=_APP)
            last = await sender.session("plain", "judge").ask("wait", key="plain", timeout_s=PATIENCE_S)
            assert (int(last), int(await started.result(timeout_s=PATIENCE_S))) == (rest.pid, rest.pid)

"""Workers as processes: how they stop, how they are replaced, and what slow ones cannot do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from tests.raw import raw
from tests.runtime.stopping import stop
from tests.runtime.worker_kit import PATIENCE_S, Crew, crew, until

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240),
]

_HELD = "SELECT count(*) FROM lash_session_leases WHERE token IS NOT NULL"


@pytest.fixture
def workers(backend_url: str, tmp_path: Path) -> Iterator[Crew]:
    with crew(backend_url, tmp_path) as hired:
        yield hired


@pytest.fixture
def sender(backend_url: str) -> lash.App:
    """An app that only sends; it needs no agent."""
    return lash.App(backend_url, worker=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_work_finishes_before_the_stop(
    workers: Crew, sender: lash.App, backend_url: str, number: signal.Signals
) -> None:
    """A stopping worker finishes its running turn, starts no other, and exits with 0."""
    async with sender:
        worker = workers.hire()
        await sender.session("s").send("hold a", key="1")
        await workers.began("a")
        worker.send_signal(number)
        await sender.session("t").send("say hello", key="2")
        workers.open_gate("a")
        assert await workers.ended(worker) == 0, workers.log(worker)

        assert [lash.text_of(message) for message in await sender.session("s").messages()] == ["hold a", "did a"]
        assert [batch.attempts for batch in await sender.session("t").pending()] == [0]
        assert await raw(backend_url, _HELD) == [(0,)]


async def test_what_does_not_finish_in_time_is_given_back(workers: Crew, sender: lash.App, backend_url: str) -> None:
    """After the grace time a turn is free for others at once, no attempt is counted, and its records stand."""
    async with sender:
        worker = workers.hire(grace=0.1)
        await sender.session("s").send("hold a", key="1")
        await workers.began("a")
        worker.send_signal(signal.SIGTERM)
        assert await workers.ended(worker) == 0, workers.log(worker)
        assert [batch.attempts for batch in await sender.session("s").pending()] == [0]
        assert await raw(backend_url, _HELD) == [(0,)]

        workers.open_gate("a")
        workers.hire()
        assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"
        assert len(workers.lines("a.first")) == 1
        assert len(workers.lines("a.began")) == 2


async def test_what_hears_nothing_is_left_behind(workers: Crew, sender: lash.App) -> None:
    """Code that swallows its cancellation cannot keep a worker from exiting; the exit code and the log report it."""
    if sender.url.startswith("postgres"):
        pytest.skip("it takes long, and no storage has a part in it")
    async with sender:
        worker = workers.hire(grace=0.1)
        await sender.session("s").send("deaf a", key="1")
        await workers.began("a")
        worker.send_signal(signal.SIGTERM)
        assert await workers.ended(worker) == 1
        assert "ignored cancellation and were abandoned" in workers.log(worker)

        workers.open_gate("a")
        workers.hire()
        assert await sender.session("s").ask("deaf a", key="1", timeout_s=PATIENCE_S) == "did a"
        assert len(workers.lines("a.first")) == 1


async def test_a_second_signal_ends_at_once(workers: Crew, sender: lash.App) -> None:
    """A second signal skips the grace time; the next worker continues."""
    async with sender:
        worker = workers.hire(grace=600)
        await sender.session("s").send("hold a", key="1")
        await workers.began("a")
        worker.send_signal(signal.SIGTERM)
        # The kernel merges two signals that arrive together.
        await until(lambda: "stopping" in workers.log(worker))
        worker.send_signal(signal.SIGTERM)
        assert await workers.ended(worker) == -signal.SIGTERM

        workers.open_gate("a")
        workers.hire()
        assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"


async def test_a_killed_neighbour_is_replaced_at_once(workers: Crew, sender: lash.App) -> None:
    """Another worker on the machine takes over the work of a killed one, long before its lease expires."""
    async with sender:
        doomed = workers.hire(ttl=3_600)
        await sender.session("s").send("hold a", key="1")
        await workers.began("a")
        await workers.ready(workers.hire(ttl=3_600))
        doomed.kill()
        workers.open_gate("a")
        assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"
        assert len(workers.lines("a.first")) == 1


async def test_a_worker_that_was_stopped_and_wakes_changes_nothing(
    workers: Crew, sender: lash.App, backend_url: str
) -> None:
    """A worker that slept through its lease finds it taken: it writes nothing, and continues with other work."""
    async with sender:
        sleeper = workers.hire(ttl=2, poll=0.2)
        await sender.session("s").send("hold a", key="1")
        await workers.began("a")
        await stop(sleeper, backend_url)
        other = workers.hire(ttl=600, poll=0.2)
        await workers.began("a", times=2)
        workers.open_gate("a")
        assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"

        sleeper.send_signal(signal.SIGCONT)
        other.send_signal(signal.SIGTERM)
        assert await workers.ended(other) == 0
        assert await sender.session("t").ask("say still here", timeout_s=PATIENCE_S) == "still here"
        said = [lash.text_of(message) for message in await sender.session("s").messages()]
        assert said == ["hold a", "did a"]
        await until(lambda: "lease.lost" in workers.log(sleeper))


async def test_a_handler_that_blocks_the_loop_is_noted_and_does_no_harm(workers: Crew, sender: lash.App) -> None:
    """A blocked loop cannot renew: another worker continues, the blocked run writes nothing, and its log says why."""
    async with sender:
        blocked = workers.hire(ttl=2, poll=0.2)
        await sender.session("s").send("block a", key="1")
        await workers.began("a")
        other = workers.hire(ttl=600, poll=0.2)
        assert await sender.session("s").ask("block a", key="1", timeout_s=PATIENCE_S) == "did a"

        workers.open_gate("a")
        other.send_signal(signal.SIGTERM)
        assert await workers.ended(other) == 0
        assert await sender.session("t").ask("say still here", timeout_s=PATIENCE_S) == "still here"
        said = [lash.text_of(message) for message in await sender.session("s").messages()]
        assert said == ["block a", "did a"]
        assert "loop.blocked" in workers.log(blocked)

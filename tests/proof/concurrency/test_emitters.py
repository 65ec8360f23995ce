"""Real processes emit and are killed: every delivery has exactly one process, wherever the emitter died."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from multiprocessing.connection import Connection

import msgspec
import pytest

import lash
from tests.factories.session import created
from tests.factories.trigger import pressed, subscribed
from tests.proof.concurrency.emitter import DELAYS, emit_and_die, emit_many
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

SUBSCRIPTIONS = 20
EMITTERS = 3
EACH = 12


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    """Forked processes, which need not import everything again."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.proof.concurrency.emitter", "lash.sqlite.storage", "lash.postgres.storage"])
    return server


async def _prepare(storage: lash.Storage) -> None:
    await created(storage)
    keys = [f"k{number}" for number in range(SUBSCRIPTIONS)]
    await subscribed(storage, *keys, wake_session_id="s", input_template={"event": lash.model.WholeEvent()})


async def _check(url: str, keys: int) -> None:
    """Raw SQL: each occurrence once, and for each of its deliveries one complete process."""
    wanted = [(keys * SUBSCRIPTIONS,)]
    assert await raw(url, "SELECT count(*) FROM lash_trigger_occurrences WHERE report <> ''") == [(keys,)]
    assert await raw(url, "SELECT count(*) FROM lash_trigger_occurrences") == [(keys,)]
    assert await raw(url, "SELECT count(*) FROM lash_trigger_deliveries WHERE state = 'started'") == wanted
    for table in ("lash_trigger_deliveries", "lash_processes", "lash_process_leases", "lash_grants"):
        assert await raw(url, f"SELECT count(*) FROM {table}") == wanted, table
    matched = (
        "SELECT count(DISTINCT d.process_id) FROM lash_trigger_deliveries AS d"
        " JOIN lash_processes AS p ON p.process_id = d.process_id"
        " JOIN lash_process_leases AS l ON l.process_key = p.process_key"
        " JOIN lash_grants AS g ON g.process_key = p.process_key AND g.session_id = 's'"
    )
    assert await raw(url, matched) == wanted
    places = "SELECT count(DISTINCT registered_seq) FROM lash_processes WHERE registered_seq > 0"
    assert await raw(url, places) == wanted


@pytest.mark.timeout(180)
async def test_kills_around_every_statement_of_an_emission(
    backend_url: str, backend_name: str, context: multiprocessing.context.ForkServerContext
) -> None:
    """Killed before, inside and after each statement, and emitted again: one process for each delivery."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await _prepare(storage)
        names.clear()
        await storage.occurrences.emit(pressed("whole", {"n": "whole"}))
        statements = len(names)
    assert statements >= {"sqlite": 7, "postgres": 2}[backend_name]
    points = [(at, delay) for at in range(1, statements + 2) for delay in (None, *DELAYS)]
    for at, delay in points:
        process = context.Process(target=emit_and_die, args=(backend_url, f"{at}/{delay}", at, delay))
        process.start()
        await asyncio.to_thread(process.join, 30)
        assert process.exitcode == -signal.SIGKILL
    finished = (await raw(backend_url, "SELECT count(*) FROM lash_trigger_occurrences"))[0][0]
    assert finished > len(DELAYS), "some were killed only after the commit"
    assert finished < len(points), "some were killed before it"
    async with await lash.open(backend_url) as storage:
        for at, delay in points:
            key = f"{at}/{delay}"
            report = await storage.occurrences.emit(pressed(key, {"n": key}))
            assert len(report.started_process_ids) == SUBSCRIPTIONS
            assert await storage.occurrences.emit(pressed(key, {"n": key})) == report
            assert await storage.occurrences.deliveries(report.occurrence_id) == report.deliveries
    await _check(backend_url, 1 + len(points))


@pytest.mark.timeout(120)
async def test_processes_emit_the_same_and_different_things(
    backend_url: str, context: multiprocessing.context.ForkServerContext
) -> None:
    """Processes that emit the same occurrences concurrently get the same bytes; their own occurrences exist too."""
    async with await lash.open(backend_url) as storage:
        await _prepare(storage)
    barrier = context.Barrier(EMITTERS)
    answers: list[Connection] = []
    processes = []
    for number in range(EMITTERS):
        receiving, sending = context.Pipe(duplex=False)
        answers.append(receiving)
        process = context.Process(target=emit_many, args=(backend_url, f"own{number}-", EACH, barrier, sending))
        process.start()
        sending.close()
        processes.append(process)
    reports: list[list[bytes]] = [await asyncio.to_thread(each.recv) for each in answers]
    for process in processes:
        await asyncio.to_thread(process.join, 30)
    assert [process.exitcode for process in processes] == [0] * EMITTERS
    # Sorted by key, the shared occurrences come last.
    assert {tuple(each[EACH:]) for each in reports} == {tuple(reports[0][EACH:])}
    seen = {msgspec.json.decode(report)["occurrence_id"] for each in reports for report in each}
    assert len(seen) == EACH * (EMITTERS + 1)
    await _check(backend_url, EACH * (EMITTERS + 1))

"""Four real processes append, claim, park, end and cancel, and are killed; raw SQL checks the rows.

``LASH_SOAK_SECONDS`` makes the run longer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lash
from lash.model.process.process import ChangeKind, ProcessChange, Success
from lash.stores.storage import Storage
from tests.contract.process_state import all_records, check_logs, log
from tests.factories.session import created
from tests.raw import raw

ROOT = Path(__file__).parents[3]
SECONDS = float(os.environ.get("LASH_SOAK_SECONDS", "5"))
WORKERS = 4
_ACTS = {"append", "claim", "cancel", "end", "park"}
_ENDS = "('process.completed', 'process.failed', 'process.cancelled', 'process.abandoned')"

Said = dict[str, Any]

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(SECONDS * 2 + 120),
]


class Gang:
    """Workers that are killed and replaced, and everything they printed."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._names = itertools.count()
        self._alive: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.kills = 0

    def hire(self) -> None:
        name = f"w{next(self._names)}"
        file = self._directory / f"{name}.said"
        with file.open("wb") as said:
            command = [sys.executable, "-m", "tests.proof.concurrency.process_worker", self._url, name]
            self._alive.append((subprocess.Popen(command, stdout=said, cwd=ROOT), file))

    def replace_one(self) -> None:
        """Kill a random worker that has begun to work, and hire another. On a busy machine a start takes seconds."""
        working = [each for each in self._alive if each[1].stat().st_size]
        if working:
            self._kill(random.choice(working))
            self.hire()

    def kill_all(self) -> None:
        while self._alive:
            self._kill(self._alive[-1])

    def _kill(self, worker: tuple[subprocess.Popen[bytes], Path]) -> None:
        """Kill a worker; one that ended on its own failed."""
        self._alive.remove(worker)
        process, _ = worker
        assert process.poll() is None, "a worker failed; see its traceback above"
        process.kill()
        process.wait()
        self.kills += 1

    def said(self) -> list[Said]:
        """Return every acknowledgement, except a last line that the kill truncated."""
        lines = [line for file in self._directory.glob("*.said") for line in file.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]


@contextmanager
def gang(url: str, directory: Path) -> Iterator[Gang]:
    hired = Gang(url, directory)
    try:
        yield hired
    finally:
        hired.kill_all()


async def test_killed_workers_leave_whole_processes(backend_url: str, tmp_path: Path) -> None:
    """Logs are dense and end once, fences grew, and the feed missed no change."""
    async with await lash.open(backend_url) as storage:
        await created(storage)
        seen: list[ProcessChange] = []
        stop = asyncio.Event()
        reading = asyncio.create_task(_follow(storage, seen, stop))
        with gang(backend_url, tmp_path) as workers:
            await _rampage(workers)
        stop.set()
        await reading
        said = workers.said()
        assert workers.kills > WORKERS
        assert {each["did"] for each in said} == _ACTS

        await _check_rows(backend_url)
        await _check_work(backend_url)
        await check_logs(storage)
        await _check_acknowledged(storage, said)
        await _check_fences(backend_url, storage, said)
        await _check_feed(backend_url, seen)


async def _rampage(workers: Gang) -> None:
    """Run the workers and kill one about every second, at random moments, until they have done every kind of act."""
    for _ in range(WORKERS):
        workers.hire()
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    while loop.time() < end or workers.kills == 0 or {each["did"] for each in workers.said()} != _ACTS:
        await asyncio.sleep(random.uniform(0.5, 1.5))
        workers.replace_one()


async def _follow(storage: Storage, seen: list[ProcessChange], stop: asyncio.Event) -> None:
    """Read the feed in small pages while it grows, and to its end once the workers have stopped."""
    cursor: str | None = None
    idle = 0
    while idle < 20:
        page = await storage.events.changes(cursor, limit=7)
        cursor = page.cursor
        seen += page.changes
        if not page.changes:
            # A killed worker's transaction may be open for a moment; the server then holds the feed back.
            await asyncio.sleep(0.02)
            idle = idle + 1 if stop.is_set() else 0


async def _check_rows(url: str) -> None:
    """Raw SQL: numbers without gaps, one end at most and only where the status says so, a batch for every wake."""
    logs = await raw(
        url,
        "SELECT p.process_id, p.last_sequence, count(e.sequence), coalesce(min(e.sequence), 1),"
        " coalesce(max(e.sequence), 0), count(DISTINCT e.replay_key), count(e.replay_key)"
        " FROM lash_processes AS p LEFT JOIN lash_process_log AS e ON e.process_key = p.process_key"
        " GROUP BY p.process_id, p.last_sequence",
    )
    assert logs
    for process_id, last, count, first, highest, keys, keyed in logs:
        assert (count, first, highest, keys) == (last, 1, last, keyed), process_id
    ends = await raw(
        url,
        "SELECT p.process_id, p.status, count(e.sequence) FROM lash_processes AS p"
        f" LEFT JOIN lash_process_log AS e ON e.process_key = p.process_key AND e.event_type IN {_ENDS}"
        " GROUP BY p.process_id, p.status",
    )
    assert [row for row in ends if row[2] != (row[1] != "running")] == []
    assert any(status != "running" for _, status, _ in ends)
    told = await raw(url, "SELECT count(*) FROM lash_process_events WHERE event_type = 'news'")
    queued = await raw(url, "SELECT count(*), count(DISTINCT batch_id) FROM lash_wakes WHERE state = 'queued'")
    batches = await raw(url, "SELECT count(*), count(DISTINCT batch_id) FROM lash_batches")
    assert queued == batches == [(told[0][0], told[0][0])]


async def _check_work(url: str) -> None:
    """Raw SQL: ended processes are off the work list, and each signal or request before the end counted as a reason."""
    rows = await raw(
        url,
        "SELECT p.process_id, p.status, l.runnable, l.ready_at_ms, l.wake_seq, ("
        " SELECT count(*) FROM lash_process_log AS e WHERE e.process_key = p.process_key"
        " AND e.event_type IN ('signal.go', 'process.cancel_requested') AND e.sequence < coalesce(("
        " SELECT x.sequence FROM lash_process_log AS x"
        f" WHERE x.process_key = p.process_key AND x.event_type IN {_ENDS}"
        " ), p.last_sequence + 1))"
        " FROM lash_processes AS p JOIN lash_process_leases AS l ON l.process_key = p.process_key",
    )
    for process_id, status, runnable, ready_at_ms, wake_seq, reasons in rows:
        assert (bool(runnable), wake_seq) == (status == "running", reasons), process_id
        assert status == "running" or ready_at_ms is None, process_id


async def _check_acknowledged(storage: Storage, said: list[Said]) -> None:
    """Every acknowledged event is there, under its number, once."""
    kept = {(each.process_id, each.sequence): each for name in _names(said) for each in await log(storage, name)}
    payloads = Counter(json.dumps(each.payload) for each in kept.values() if each.event_type in {"note", "signal.go"})
    assert max(payloads.values()) == 1
    for each in said:
        if each["did"] == "append":
            assert kept[each["process"], each["sequence"]].payload == each["payload"]
    records = {record.process_id: record for record in await all_records(storage)}
    for each in said:
        if each["did"] == "end":
            outcome = records[each["process"]].projection.outcome
            assert isinstance(outcome, Success)
            assert outcome.value == each["outcome"]
        if each["did"] == "cancel":
            assert records[each["process"]].projection.cancel_requested


async def _check_fences(url: str, storage: Storage, said: list[Said]) -> None:
    """Fencing numbers grew, one per acquisition; the last one ended its process; owner-bound work had one owner."""
    claims: defaultdict[str, dict[int, tuple[str, int, str]]] = defaultdict(dict)
    for each in said:
        if each["did"] == "claim":
            first = claims[each["process"]].setdefault(
                each["fencing"], (each["token"], each["sequence"], each["owner"])
            )
            assert first[0] == each["token"], "two acquisitions under one number"
    stored: dict[str, int] = dict(
        await raw(
            url,
            "SELECT p.process_id, l.fencing FROM lash_processes AS p"
            " JOIN lash_process_leases AS l ON l.process_key = p.process_key",
        )
    )
    for name, numbers in claims.items():
        places = [numbers[number][1] for number in sorted(numbers)]
        assert places == sorted(places), f"{name}: a later number was given out on an earlier state"
        assert max(numbers) <= stored[name]
        if name.endswith("0"):
            assert len({owner for _, _, owner in numbers.values()}) == 1, f"{name} is bound to its owner"
    for record in await all_records(storage):
        outcome = record.projection.outcome
        if isinstance(outcome, Success) and isinstance(outcome.value, dict):
            fencing = outcome.value["fencing"]
            assert fencing in {None, stored[record.process_id]}, f"{record.process_id} was ended by an old holder"


async def _check_feed(url: str, seen: list[ProcessChange]) -> None:
    """The reader saw every registration and every event once; concurrent writers may overtake each other."""
    logs: dict[str, int] = dict(await raw(url, "SELECT process_id, last_sequence FROM lash_processes"))
    followed: defaultdict[str, list[tuple[ChangeKind, int | None]]] = defaultdict(list)
    for change in seen:
        followed[change.process_id].append((change.kind, change.sequence))
    assert followed.keys() == logs.keys()
    for name, last in logs.items():
        events = [(ChangeKind.EVENT, number) for number in range(1, last + 1)]
        assert sorted(followed[name], key=lambda each: each[1] or 0) == [(ChangeKind.REGISTERED, None), *events], name


def _names(said: list[Said]) -> set[str]:
    return {each["process"] for each in said}

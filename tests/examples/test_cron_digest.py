from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import lash
from tests.examples.conftest import Model
from tests.examples.programs import Program, Programs
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_DAY_S = 86_400


async def test_missed_ticks_make_one_digest_in_one_of_two_workers(
    programs: Programs, model: Model, backend_url: str, tmp_path: Path
) -> None:
    """No worker ran for three days; two workers that start then make one digest, of the last tick."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text, age_s in (("a", "alpha", 0), ("b", "beta", 0), ("c", "long ago", 3 * _DAY_S)):
        file = notes / f"{name}.txt"
        file.write_text(text)
        os.utime(file, (time.time() - age_s,) * 2)
    last_tick = _tick_half_a_day_ago()
    arguments = (str(notes), "--cron", f"0 {last_tick.hour} * * *", "--time-zone", "UTC", "--url", backend_url)

    registering = programs.start("cron_digest.py", *arguments)
    registering.read_until("Ctrl-C ends")
    assert _stop(registering) == 0
    assert len(registering.lines) == 1
    await raw(
        backend_url,
        f"UPDATE lash_schedules SET next_tick_ms = next_tick_ms - {3 * _DAY_S}000, "
        f"next_fire_ms = next_fire_ms - {3 * _DAY_S}000",
    )

    workers = [programs.start("cron_digest.py", *arguments) for _ in range(2)]
    for worker in workers:
        worker.read_until("Ctrl-C ends")
    digest = await _only_result(backend_url)
    assert [_stop(worker) for worker in workers] == [0, 0]
    assert digest == "In short: Sum up: alpha beta"
    digests = [line for worker in workers for line in worker.lines if line.startswith("digest of 2")]
    assert digests == [f"digest of {last_tick:%Y-%m-%d %H:%M}: {digest}"]
    assert list(model.calls().values()) == [1]


def _stop(program: Program) -> int:
    program.process.send_signal(signal.SIGINT)
    return program.finish()


def _tick_half_a_day_ago() -> datetime:
    """Return the last tick of a daily schedule, chosen so that none comes while the test is running."""
    return (datetime.now(UTC) - timedelta(hours=12)).replace(minute=0, second=0, microsecond=0)


async def _only_result(url: str) -> object:
    """Wait for the end of the only process, and return its result."""
    async with await lash.open(url) as storage:
        with storage.hints.listen() as hints:
            while not (found := (await storage.processes.list()).processes):
                await hints.wait(1)
        assert len(found) == 1
        outcome = await storage.waiter.await_outcome(found[0].process_id, timeout_s=30)
        assert isinstance(outcome, lash.Success)
        return outcome.value

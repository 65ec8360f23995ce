"""Processes put the bytes that other processes sweep, and are killed: no committed attachment ever loses its bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.proof.concurrency.attachment_worker import nobody_lives, opened
from tests.raw import raw
from tests.warm_programs import Program, start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_PUTTERS = 3
_SWEEPERS = 2
_MORE_SWEEPS = 200
_ROUNDS = 3
_KEPT_IN_A_ROUND = 4


class Workers:
    """The processes of one race."""

    def __init__(self, url: str, files: str) -> None:
        self._arguments = (url, files)
        self._all: list[Program] = []

    def start(self, kind: str, name: str) -> Program:
        process = start("tests.proof.concurrency.attachment_worker", kind, *self._arguments, name)
        self._all.append(process)
        return process

    def kill(self, process: Program) -> list[str]:
        """Kill with SIGKILL and return the whole lines that it had printed since."""
        process.kill()
        rest, _ = process.communicate()
        return rest.splitlines()

    def kill_all(self) -> None:
        for process in self._all:
            if not process.stdout.closed:
                self.kill(process)


def _race(workers: Workers) -> tuple[set[tuple[str, str]], int]:
    """Return what was acknowledged as kept, and how many bytes the sweepers deleted."""
    sweepers = [workers.start("sweep", f"sweep-{number}") for number in range(_SWEEPERS)]
    swept = [_lines(sweeper, 1)[0] for sweeper in sweepers]
    putters = [workers.start("put", f"put-{number}") for number in range(_PUTTERS)]
    kept: list[str] = []
    for number in range(_ROUNDS):
        for putter in putters:
            kept.extend(_lines(putter, _KEPT_IN_A_ROUND))
        # A sweeper dies while others wait for what it was deleting; its successor must take over.
        swept.extend(workers.kill(sweepers.pop(0)))
        sweepers.append(workers.start("sweep", f"sweep-again-{number}"))
        swept.extend(_lines(sweepers[-1], 1))
    for _ in range(_MORE_SWEEPS):
        # On a busy machine the sweepers may have come too early each time.
        if _deleted(swept):
            break
        swept.extend(_lines(sweepers[0], 1))
    for putter in putters:
        kept.extend(workers.kill(putter))
    for sweeper in sweepers:
        swept.extend(workers.kill(sweeper))
    pairs = (line.partition(" ") for line in kept)
    return {(session_id, attachment_id) for session_id, _, attachment_id in pairs}, _deleted(swept)


def _deleted(swept: list[str]) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in swept)


def _lines(process: Program, count: int) -> list[str]:
    lines = [process.stdout.readline().strip() for _ in range(count)]
    assert all(lines), "a process ended by itself; see its traceback"
    return lines


@pytest.mark.parametrize("byte_store", ["database", "files"])
async def test_no_committed_attachment_loses_its_bytes(backend_url: str, byte_store: str, tmp_path: Path) -> None:
    """Three putters and two sweepers on the same digests, all killed; what was committed is readable."""
    files = "-" if byte_store == "database" else str(tmp_path / "files")
    await (await opened(backend_url, files)).close()
    workers = Workers(backend_url, files)
    try:
        kept, deleted = await asyncio.to_thread(_race, workers)
    finally:
        workers.kill_all()
    assert len(kept) >= _PUTTERS * _ROUNDS * _KEPT_IN_A_ROUND
    assert deleted > 0, "the sweepers had something to delete"

    async with await opened(backend_url, files) as storage:
        await storage.attachments.sweep(0, nobody_lives)
        committed = await raw(
            backend_url,
            "SELECT s.session_id, a.attachment_id FROM lash_attachments AS a JOIN lash_sessions AS s"
            " ON s.session_key = a.session_key WHERE a.committed_at_ms IS NOT NULL",
        )
        assert kept <= set(committed)
        for session_id, attachment_id in committed:
            assert (await storage.attachments.get(session_id, attachment_id)).ref.id == attachment_id
    named = {attachment_id for _, attachment_id in committed}
    fences = await raw(backend_url, "SELECT attachment_id, phase FROM lash_attachment_fences")
    assert set(fences) == {(attachment_id, "kept") for attachment_id in named}

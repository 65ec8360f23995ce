"""The feed of sessions beside real processes that commit, and transactions that end out of order."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.stores.storage import Storage
from tests.factories.session import started

ROOT: Final = Path(__file__).parents[3]
COMMITTERS: Final = 4
SLOW: Final = 3
COMMITS: Final = 40
_RENAME: Final = """
UPDATE lash_sessions SET name = $2, changed_xid = pg_current_xact_id() WHERE session_id = ANY ($1)
"""

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def test_a_reader_ends_with_what_is_stored(backend_url: str, backend_name: str, tmp_path: Path) -> None:
    """Committers are killed while they write, slow transactions end late; a reader of small pages has every session."""
    names = [f"s{number}" for number in range(COMMITTERS)]
    slow = [f"slow{number}" for number in range(SLOW * 2)]
    async with await lash.open(backend_url) as storage:
        for name in (*names, *slow):
            await started(storage, name)
        replica = Replica()
        with committing(backend_url, names, tmp_path) as files:
            late = [asyncio.create_task(_write_slowly(backend_url, slow[each::SLOW])) for each in range(SLOW)]
            if backend_name == "sqlite":
                for task in late:
                    task.cancel()
            while any(file.read_bytes().count(b"\n") < COMMITS for file in files):
                assert not any(task.done() and not task.cancelled() for task in late)
                await replica.read(storage, limit=random.randrange(1, 4))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await replica.read(storage, limit=1)
        listed = (await storage.sessions.list(limit=1_000)).sessions
        assert replica.sessions == {each.meta.session_id: (each.revision, each.meta.name) for each in listed}
    assert replica.most_reads > 1


class Replica:
    """What a reader has read: the revision and the name of each session. A revision never goes back."""

    def __init__(self) -> None:
        self.sessions: dict[str, tuple[int, str]] = {}
        self.most_reads = 0
        self._reads: dict[str, int] = {}
        self._cursor: str | None = None

    async def read(self, storage: Storage, limit: int) -> None:
        while True:
            page = await storage.sessions.changes(self._cursor, limit=limit)
            assert page.gap is None
            self._cursor = page.cursor
            for change in page.changes:
                assert change.session is not None
                found = (change.revision, change.session.meta.name)
                known = self.sessions.get(change.session_id)
                assert known is None or (known[0] <= found[0] and known != found), (known, found)
                self.sessions[change.session_id] = found
                self._reads[change.session_id] = self._reads.get(change.session_id, 0) + 1
                self.most_reads = max(self.most_reads, self._reads[change.session_id])
            if len(page.changes) < limit:
                return


@contextmanager
def committing(url: str, session_ids: list[str], directory: Path) -> Iterator[list[Path]]:
    """Let a process of its own commit to each session; kill all of them at the end."""
    files = [directory / session_id for session_id in session_ids]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for session_id, file in zip(session_ids, files, strict=True):
            command = [sys.executable, "-m", "tests.proof.concurrency.committer", url, session_id, "c"]
            with file.open("wb") as said:
                running.append(subprocess.Popen(command, stdout=said, cwd=ROOT))
        yield files
        assert all(process.poll() is None for process in running)
    finally:
        for process in running:
            process.kill()
            process.wait()


async def _write_slowly(url: str, session_ids: list[str]) -> None:
    """Change sessions in transactions that stay open while others commit, until cancelled."""
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        for number in range(1_000_000):
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(_RENAME, session_ids, f"name {number}")
            await asyncio.sleep(random.random() / 20)
            await (transaction.rollback() if random.random() < 0.2 else transaction.commit())
    finally:
        await connection.close()

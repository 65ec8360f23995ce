"""A rolling upgrade: workers of the version before run beside those of this one, on a storage that this one migrated.

The old workers are real ones: their code comes from the history of the repository.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import lash
from lash.sqlkit.migrations import last_number
from tests.engine.migration.previous import last_breaking, unpack_previous
from tests.raw import raw

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240),
]

KNOWN: Final = last_number("lash.sqlite.sql.migrations")
_PATIENCE_S: Final = 60.0
_LAST: Final = """
SELECT max(number) FROM (SELECT number FROM lash_migrations UNION ALL SELECT number FROM lashadditions) AS m
"""
_SERVICE: Final = """
import os
from pathlib import Path
import lash

CODE = os.environ["CODE"]
assert Path(lash.__file__).is_relative_to(os.environ["HOME_OF_CODE"]), lash.__file__
app = lash.App(os.environ["LASH_URL"])

def mark(name):
    with Path("marks").open("a") as marks:
        marks.write(f"{name} {CODE}\\n")
    return CODE

@app.agent
async def assistant(turn):
    return await turn.step(mark, turn.text)

@app.process
async def job(ctx, name):
    first = await ctx.step("first", mark, name)
    await ctx.wait_signal("go")
    return [first, await ctx.step("last", mark, name)]
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the version before."""
    return unpack_previous(tmp_path_factory.mktemp("previous"))


class Fleet:
    """Starts workers of both versions in one directory, and reads what they have marked."""

    def __init__(self, folder: Path, url: str, previous: Path) -> None:
        self._folder = folder
        self._url = url
        self._homes = {"old": previous, "new": Path(lash.__file__).parents[1]}
        (folder / "service.py").write_text(_SERVICE)

    @contextmanager
    def worker(self, code: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker until the end of the block: it must then stop as usual."""
        home, log = str(self._homes[code]), self._folder / f"{code}.log"
        given = {**os.environ, "LASH_URL": self._url, "CODE": code, "HOME_OF_CODE": home, "PYTHONPATH": home}
        command = [sys.executable, "-m", "lash", "worker", "service:app"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=self._folder, env=given, stdout=out, stderr=out)
        try:
            until(lambda: b"working, on up to" in log.read_bytes() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(_PATIENCE_S) == 0, log.read_text()
            assert "outdated" not in log.read_text()
        finally:
            process.kill()
            process.wait()

    def marks(self, name: str) -> list[str]:
        """Return which versions ran the steps of a message or a process."""
        path = self._folder / "marks"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name]


def until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def stop(process: subprocess.Popen[bytes]) -> None:
    """Let a worker finish and leave."""
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.wait, _PATIENCE_S)


class Sender:
    """An app of this version that runs nothing."""

    def __init__(self, url: str) -> None:
        self.app = lash.App(url, worker=False)

        @self.app.agent
        async def assistant(turn: lash.Turn) -> str:
            raise AssertionError(turn)

        @self.app.process
        async def job(ctx: lash.Context, name: str) -> list[str]:
            raise AssertionError(ctx, name)

        self._job = job

    async def ask(self, session_id: str, key: str) -> str:
        """Return which version answered."""
        return await self.app.session(session_id).ask(key, key=key, timeout_s=_PATIENCE_S)

    async def begin(self, fleet: Fleet, name: str) -> None:
        """Start a process, and return when its first step has run."""
        await self.app.starting(process_id=name).start(self._job, name)
        await asyncio.to_thread(until, lambda: len(fleet.marks(name)) == 1)

    async def finish(self, name: str) -> object:
        """Return which versions ran the two steps of a process."""
        await self.app.signal(name, "go")
        return await self.app.handle(name).result(timeout_s=_PATIENCE_S)


async def test_workers_of_two_versions_share_a_storage(backend_url: str, previous: Path, tmp_path: Path) -> None:
    """Both answer, and hand running processes over in both directions; no step runs twice, and no worker stops."""
    fleet, sender = Fleet(tmp_path, backend_url, previous), Sender(backend_url)
    app = sender.app
    with fleet.worker("old") as old:
        assert await raw(backend_url, "SELECT max(number) FROM lash_migrations") == [(int(last_breaking().name[:4]),)]
        # This migrates the storage under the running worker.
        await app.open()
        assert await raw(backend_url, _LAST) == [(KNOWN,)]
        assert await sender.ask("chat", "one") == "old"
        await sender.begin(fleet, "first")
        with fleet.worker("new") as new:
            await _answer_together(sender, fleet)
            assert (old.poll(), new.poll()) == (None, None)
            await stop(old)
            assert await sender.finish("first") == ["old", "new"]
            assert await sender.ask("chat", "two") == "new"
            await sender.begin(fleet, "second")
    with fleet.worker("old"):
        assert await sender.finish("second") == ["new", "old"]
        assert await sender.ask("chat", "three") == "old"
    written = [lash.text_of(each) for each in await app.session("chat").messages()]
    await app.stop()
    assert written == ["one", "old", "two", "new", "three", "old"]
    assert (fleet.marks("first"), fleet.marks("second")) == (["old", "new"], ["new", "old"])


async def _answer_together(sender: Sender, fleet: Fleet) -> None:
    """Messages of twelve sessions are answered once each, by either worker."""
    async with asyncio.timeout(_PATIENCE_S):
        while len(await sender.app.storage.workers.list()) < 2:  # noqa: ASYNC110 (other processes write it)
            await asyncio.sleep(0.02)
    keys = [f"m{number}" for number in range(12)]
    answers = await asyncio.gather(*(sender.ask(f"s-{key}", key) for key in keys))
    assert [fleet.marks(key) for key in keys] == [[answer] for answer in answers]

"""The recipe for Litestream, with Litestream itself: its copy of a file in use can be restored and used."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

import lash
from tests.cli.kit import run
from tests.docs.pages import DOCS, blocks_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the package with Litestream is for Linux")

_PATIENCE_S: Final = 60.0
_SESSIONS: Final = 3
_MESSAGES: Final = 24


def _litestream(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "litestream"), *arguments]


def _configured(directory: Path) -> Path:
    """Write the configuration of the page, with the file of this test and a directory instead of the object store."""
    page = (DOCS / "howto/deploy.md").read_text(encoding="utf-8")
    (text,) = (block.body for block in blocks_of(page) if block.body.startswith("# litestream.yml"))
    configuration = yaml.safe_load(text)
    (database,) = configuration["dbs"]
    assert (database["path"], database["replica"]["url"]) == ("/var/lib/lash/lash.db", "s3://backups/lash")
    database["path"] = str(directory / "lash.db")
    database["replica"]["url"] = f"file://{directory / 'replica'}"
    path = directory / "litestream.yml"
    path.write_text(yaml.safe_dump(configuration))
    return path


@contextmanager
def _replicating(configuration: Path) -> Iterator[None]:
    """Run Litestream, and kill it as a machine that is lost would."""
    with (configuration.parent / "log").open("wb") as log:
        process = subprocess.Popen(_litestream("replicate", "-config", str(configuration)), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _app(path: Path) -> lash.App:
    app = lash.App(f"sqlite:///{path}")

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return f"you said {turn.text} " + "." * 2_000

    return app


async def _converse(app: lash.App) -> None:
    for number in range(_MESSAGES):
        await app.session(f"s{number % _SESSIONS}").ask(f"m{number}", key=f"m{number}", timeout_s=_PATIENCE_S)


async def _messages(path: Path) -> int:
    async with await lash.open(f"sqlite:///{path}") as storage:
        handles = [lash.SessionHandle(storage, f"s{number}") for number in range(_SESSIONS)]
        found = [each for each in handles if await storage.sessions.open(each.session_id) is not None]
        return sum([len(await each.messages()) for each in found])


async def _restored(configuration: Path, wanted: int) -> Path:
    """Restore until the copy has all messages: Litestream sends changes about once a second."""
    directory = configuration.parent
    async with asyncio.timeout(_PATIENCE_S):
        for number in range(1_000):
            target = directory / f"restored-{number}.db"
            command = _litestream(
                "restore", "-config", str(configuration), "-o", str(target), str(directory / "lash.db")
            )
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            if done.returncode == 0 and await _messages(target) == wanted:
                return target
            await asyncio.sleep(0.2)
    raise AssertionError(directory)


async def test_a_copy_that_litestream_kept_is_a_storage(tmp_path: Path) -> None:
    """While a worker runs turns, every commit reaches the copy; the copy is undamaged, and a worker continues on it."""
    configuration = _configured(tmp_path)
    await (await lash.open(f"sqlite:///{tmp_path / 'lash.db'}")).close()
    async with _app(tmp_path / "lash.db") as app:
        with _replicating(configuration):
            await _converse(app)
            target = await _restored(configuration, 2 * _MESSAGES)
        assert await app.session("s0").ask("more", key="more", timeout_s=_PATIENCE_S), "it goes on without Litestream"
    shutil.rmtree(tmp_path / "replica")
    checked = run("db", "check", url=f"sqlite:///{target}")
    assert checked.returncode == 0, checked.stdout
    async with _app(target) as app:
        assert (await app.session("s0").ask("again", key="again", timeout_s=_PATIENCE_S)).startswith("you said again")

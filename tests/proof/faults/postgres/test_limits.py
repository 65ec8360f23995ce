"""A server without free connections, or without disk space."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.errors import StoreUnavailable
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql
from tests.contract.queue_state import late

ROOT = Path(__file__).parents[4]


@pytest.fixture
def limited_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty schema for a role that may have two connections."""
    role = f"limited_{uuid.uuid4().hex}"
    run_sql(
        postgres_server.url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret' CONNECTION LIMIT 2",
        f"CREATE SCHEMA {role} AUTHORIZATION {role}",
    )
    parts = urlsplit(postgres_server.url)
    netloc = f"{role}:secret@{parts.netloc.rpartition('@')[2]}"
    yield parts._replace(netloc=netloc, query=f"schema={role}").geturl()
    run_sql(
        postgres_server.url,
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'",
        f"DROP SCHEMA {role} CASCADE",
        f"DROP ROLE {role}",
    )


async def test_a_server_without_free_connections(limited_url: str) -> None:
    """Callers wait for a while and then get an error that the server is full; once it is not, they are served."""
    plain = urlsplit(limited_url)._replace(query="").geturl()
    async with await lash.open(f"{limited_url}&max_size=1") as storage:
        await storage.sessions.create("s")
    others = [await asyncpg.connect(plain) for _ in range(2)]
    with pytest.raises(StoreUnavailable, match="53300"):
        await lash.open(limited_url)
    await others.pop().close()
    async with await lash.open(f"{limited_url}&max_size=4") as storage:
        # The pool wants four connections and gets one: every caller is served exactly once.
        answers = await asyncio.gather(
            *(storage.queue.enqueue(late(str(number), source_key=str(number))) for number in range(8)),
            return_exceptions=True,
        )
        refused = [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)]
        assert all(isinstance(answers[number], StoreUnavailable) for number in refused), answers
        await others.pop().close()
        for number in refused:
            await storage.queue.enqueue(late(str(number), source_key=str(number)))
        assert sorted(str(each.source_key) for each in await storage.queue.list("s")) == [str(n) for n in range(8)]


def test_a_full_disk_of_the_server() -> None:
    """A server with a full disk raises that error, keeps its data, and goes on once there is space."""
    attempt = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    able = os.geteuid() == 0 and shutil.which("unshare") is not None
    if not able or subprocess.run(attempt, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-m", "tests.proof.faults.postgres.small_server"],
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
    )
    assert done.stdout == "StorageFailure True True\n", done.stdout + done.stderr

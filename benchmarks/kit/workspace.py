"""The workspace of a scenario: a directory on a real disk, a durable server, and the amount of work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from lash.testing.postgres_server import PostgresServer


class Workspace:
    """Directory, server and size of one run. Everything in it is removed when the block ends."""

    def __init__(self, directory: Path, *, rounds: int, scale: float, server: PostgresServer | None = None) -> None:
        self.directory = directory
        self.rounds = rounds
        self.scale = scale
        self._server = server
        self._owns_server = server is None
        self._numbers = itertools.count(1)

    def count(self, full: int, *, least: int = 1) -> int:
        """Return a number of repetitions: ``full`` in a real run, fewer in a short one."""
        return max(least, round(full * self.scale))

    @property
    def warm(self) -> int:
        """How many warm-up calls each lane makes: enough for a server to choose its plans."""
        return self.count(10)

    def new_path(self, suffix: str = "") -> Path:
        """Return an unused path in the directory."""
        return self.directory / f"{next(self._numbers)}{suffix}"

    @property
    def server(self) -> PostgresServer:
        """A private server that waits for the disk at each commit, started on first use."""
        if self._server is None:
            server = PostgresServer(durable=True)
            server.start()
            self._server = server
        return self._server

    @contextlib.contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Yield the URL of a new database, empty or a copy of the template, and drop it afterwards."""
        name = f"bench_{next(self._numbers)}"
        source = "" if template is None else f' TEMPLATE "{urlsplit(template).path.removeprefix("/")}"'
        asyncio.run(_execute(self.server.url, f'CREATE DATABASE "{name}"{source}'))
        try:
            yield urlunsplit(urlsplit(self.server.url)._replace(path=f"/{name}"))
        finally:
            asyncio.run(_execute(self.server.url, f'DROP DATABASE "{name}" WITH (FORCE)'))

    @contextlib.contextmanager
    def file(self, template: Path | None = None) -> Iterator[Path]:
        """Yield the path of a new database file, or a copy of the template, and remove it with all its files."""
        directory = self.new_path()
        directory.mkdir()
        path = directory / "bench.db"
        if template is not None:
            shutil.copyfile(template, path)
        try:
            yield path
        finally:
            # A peer that is ending may still write its log.
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        if self._server is not None and self._owns_server:
            self._server.close()


@contextlib.contextmanager
def workspace(base: Path, *, rounds: int, scale: float, server: PostgresServer | None = None) -> Iterator[Workspace]:
    """Create a workspace below a directory, and clean up. A server that is passed in is not closed."""
    with tempfile.TemporaryDirectory(prefix="lashbench", dir=base) as name:
        directory = Path(name)
        # The server may run as another user, which needs access to its own directory in here.
        directory.chmod(0o711)
        before, tempfile.tempdir = tempfile.tempdir, name
        here = Workspace(directory, rounds=rounds, scale=scale, server=server)
        # The programs that a scenario starts find each other's sockets there.
        with _environment("TMPDIR", name):
            try:
                yield here
            finally:
                here.close()
                tempfile.tempdir = before


@contextlib.contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    """Set a variable of the environment for a while."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def file_system(directory: Path) -> str:
    """Return the type of the file system of a directory; on tmpfs nothing waits for a disk."""
    best = ("", "unknown")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, kind, *_ = line.split()
            if directory.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
                best = (mount, kind)
    return best[1]


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()

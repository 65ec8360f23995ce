"""Where a scenario runs: a folder on a real disk, a server that waits for it, and how much is to be measured."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from lash.testing.postgres_server import PostgresServer


class Workspace:
    """Folder, server and size of one run. Everything in it is removed when the block ends."""

    def __init__(self, folder: Path, *, rounds: int, scale: float, server: PostgresServer | None = None) -> None:
        self.folder = folder
        self.rounds = rounds
        self.scale = scale
        self._server = server
        self._owns_server = server is None
        self._numbers = itertools.count(1)

    def count(self, full: int, *, least: int = 1) -> int:
        """Return how many of something to do: ``full`` in a real run, fewer in a short one."""
        return max(least, round(full * self.scale))

    @property
    def warm(self) -> int:
        """How many calls of each lane come before the clock starts: enough for a server to settle on its plans."""
        return self.count(10)

    def new_path(self, suffix: str = "") -> Path:
        """Return a path in the folder that nothing has yet."""
        return self.folder / f"{next(self._numbers)}{suffix}"

    @property
    def server(self) -> PostgresServer:
        """A private server that waits for the disk at each commit, started by the first who asks."""
        if self._server is None:
            server = PostgresServer(durable=True)
            server.start()
            self._server = server
        return self._server

    @contextlib.contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Give the URL of a database of one's own, empty or a copy of the template's, and drop it afterwards."""
        name = f"bench_{next(self._numbers)}"
        source = "" if template is None else f' TEMPLATE "{urlsplit(template).path.removeprefix("/")}"'
        asyncio.run(_execute(self.server.url, f'CREATE DATABASE "{name}"{source}'))
        try:
            yield urlunsplit(urlsplit(self.server.url)._replace(path=f"/{name}"))
        finally:
            asyncio.run(_execute(self.server.url, f'DROP DATABASE "{name}" WITH (FORCE)'))

    @contextlib.contextmanager
    def file(self, template: Path | None = None) -> Iterator[Path]:
        """Give the path of a database file of one's own, a copy of the template's, and remove all that it left."""
        folder = self.new_path()
        folder.mkdir()
        path = folder / "bench.db"
        if template is not None:
            shutil.copyfile(template, path)
        try:
            yield path
        finally:
            shutil.rmtree(folder)

    def close(self) -> None:
        if self._server is not None and self._owns_server:
            self._server.close()


@contextlib.contextmanager
def workspace(base: Path, *, rounds: int, scale: float, server: PostgresServer | None = None) -> Iterator[Workspace]:
    """Make a workspace below a folder, and clean up. A server that is handed in is used and left alone."""
    with tempfile.TemporaryDirectory(prefix="lashbench", dir=base) as name:
        folder = Path(name)
        # The server may run as another user, who must find its own folder in here.
        folder.chmod(0o711)
        before, tempfile.tempdir = tempfile.tempdir, name
        here = Workspace(folder, rounds=rounds, scale=scale, server=server)
        try:
            yield here
        finally:
            here.close()
            tempfile.tempdir = before


def file_system(folder: Path) -> str:
    """Return the kind of file system that holds the folder; on tmpfs nothing waits for a disk."""
    best = ("", "unknown")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, kind, *_ = line.split()
            if folder.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
                best = (mount, kind)
    return best[1]


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()

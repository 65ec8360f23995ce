"""Several programs of one contender that work on one database."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.kit.peer import PeerFailed, Program
from benchmarks.kit.processor import process_s
from benchmarks.peers.lash.fleet import counted_statements

_READY_S = 120.0
_STARTING = 4
"""How many programs are started at once."""


class Crowd:
    """The workers of a fleet, directed by files in one directory."""

    def __init__(self, directory: Path, members: list[Program]) -> None:
        self.directory = directory
        self._members = members

    def wait_until_ready(self, *names: str) -> None:
        """Wait until the programs of these names are ready."""
        limit = time.monotonic() + _READY_S
        while missing := [name for name in names if not (self.directory / f"ready-{name}").exists()]:
            if time.monotonic() > limit:
                raise PeerFailed(f"these programs did not begin: {', '.join(missing)}")
            time.sleep(0.02)

    def wait_until_done(self, jobs: int, limit_s: float) -> None:
        """Wait until this many jobs are done, and the one that was sent to warm up."""
        limit = time.monotonic() + limit_s
        while len(done := self._done()) < jobs + 1:
            if time.monotonic() > limit:
                raise PeerFailed(f"{len(done)} of {jobs + 1} jobs were done in {limit_s:g} s")
            time.sleep(0.02)
        if sorted(done) != list(range(-1, jobs)):
            raise PeerFailed("a job was done twice")

    def forget(self) -> None:
        """Remove the files of the jobs so far, all of which are done, so that another sender can begin."""
        for name in ("ready-sender", "go", "done"):
            (self.directory / name).unlink()

    def cpu_s(self) -> float:
        """Return the processor time of all workers so far."""
        return sum(process_s(each.pid) for each in self._members)

    def statements(self) -> int:
        """Return how many statements the workers of lash have run so far."""
        return sum(counted_statements(path) for path in self.directory.glob("count-*"))

    def end(self) -> None:
        """Let all workers stop."""
        (self.directory / "end").touch()
        for member in self._members:
            member.hear()

    def _done(self) -> list[int]:
        file = self.directory / "done"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


@contextlib.contextmanager
def crowd(directory: Path, program: str, workers: int, url: str, **options: Any) -> Iterator[Crowd]:  # noqa: ANN401
    """Run workers of a program on a database, and yield when all of them are ready; ``options`` are lash's."""
    directory.mkdir()
    members: list[Program] = []
    with contextlib.ExitStack() as stack:
        with concurrent.futures.ThreadPoolExecutor(_STARTING) as starting:
            for each in starting.map(lambda _: Program(program), range(workers)):
                stack.callback(each.close)
                members.append(each)
        names = [str(number) for number in range(workers)]
        for name, member in zip(names, members, strict=True):
            about = {"url": url, "directory": str(directory), "name": name, "options": options}
            member.tell(about | {"do": "fleet_worker", "count": str(directory / f"count-{name}")})
        running = Crowd(directory, members)
        running.wait_until_ready(*names)
        yield running
        running.end()

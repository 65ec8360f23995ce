"""Applications on one storage with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import lash
from lash.testing.clock import ManualClock
from tests.contract.harnesses import PostgresHarness


class Stage:
    """An empty storage on one backend, and any number of applications on it.

    A storage in memory takes one application.
    """

    def __init__(self, backend: str, url: str) -> None:
        self.url = url
        self.backend = backend
        self._server = PostgresHarness(url) if backend == "postgres" else None
        self.clock = ManualClock() if self._server is None else self._server.clock

    def app(self, *hooks: lash.Hook, worker: bool = False, options: lash.WorkerOptions | None = None) -> lash.App:
        return lash.App(self.url, worker=worker, hooks=hooks, clock=self.clock, options=options or lash.WorkerOptions())

    async def prepare(self) -> None:
        """Let the server follow the clock of the test."""
        if self._server is not None:
            await self._server.install_clock()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()


@asynccontextmanager
async def staged(backend: str, url: str) -> AsyncIterator[Stage]:
    """Yield a stage on an empty storage."""
    stage = Stage(backend, url)
    await stage.prepare()
    try:
        yield stage
    finally:
        await stage.close()

"""Applications that run processes on one storage, with time that only the test moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lash.model.effect import EffectRecord, ProcessScope
from lash.model.process.process import Outcome
from lash.runtime.app import App
from lash.runtime.hooks import Attributes, Hook
from lash.runtime.processes.handle import ProcessHandle
from lash.testing.clock import ManualClock
from tests.contract.harnesses import PostgresHarness


class Heard(Hook):
    """Keeps every event that it receives."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def note(self, kind: str, attributes: Attributes) -> None:
        self.notes.append((kind, dict(attributes)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [attributes for each, attributes in self.notes if each == kind]


class World:
    """Opens applications on the storage of one test, and closes them."""

    def __init__(self, backend: str, url: str, *, has_clock: bool = False) -> None:
        """Prepare the applications; ``has_clock`` is for a PostgreSQL database that is at rest."""
        self.backend = backend
        self.url = url
        self.calls: Counter[str] = Counter()
        self.heard = Heard()
        self._postgres = PostgresHarness(url, has_clock=has_clock) if backend == "postgres" else None
        self.clock = ManualClock() if self._postgres is None else self._postgres.clock
        self._apps: list[App] = []

    @property
    def shared(self) -> bool:
        """Whether the storage outlives an application."""
        return self.backend != "memory"

    async def app(self, *, worker: bool = False, real_time: bool = False, **options: Any) -> App:  # noqa: ANN401 (those of App)
        """Return an open application; without a worker the test drains it."""
        if self._postgres is not None and not real_time:
            await self._postgres.install_clock()
        hooks = (self.heard, *options.pop("hooks", ()))
        app = App(self.url, worker=worker, clock=None if real_time else self.clock, hooks=hooks, **options)
        await app.open()
        self._apps.append(app)
        return app

    def count(self, name: str) -> int:
        """Count a call and return its number."""
        self.calls[name] += 1
        return self.calls[name]

    async def seconds(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(round(seconds * 1_000))

    async def close(self) -> None:
        while self._apps:
            await self._apps.pop().stop()
        if self._postgres is not None:
            await self._postgres.close()


async def outcome_of(handle: ProcessHandle[Any]) -> Outcome | None:
    """Return how a process ended, or None."""
    return (await handle.record()).projection.outcome


async def records_of(app: App, handle: ProcessHandle[Any]) -> dict[str, EffectRecord]:
    """Return what was recorded of a process, by key."""
    found = await app.storage.effects.list(ProcessScope(process_id=handle.process_id))
    return {record.replay_key: record for record in found}


async def kinds_of(handle: ProcessHandle[Any]) -> list[str]:
    """Return the types of the events in a process's log."""
    return [event.event_type for event in await handle.events()]

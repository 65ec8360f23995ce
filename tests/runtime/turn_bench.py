"""Applications on one storage, with time that only the test moves."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from lash.backend.liveness import current_owner
from lash.model.lease import Acquired, Lease
from lash.model.queue import ClaimedTurn
from lash.model.session.message import Message
from lash.runtime.app import App
from lash.runtime.hooks import Attributes, Hook
from lash.runtime.turns.commands import claim_behind_commands
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.messages import text_of
from lash.runtime.turns.run import TurnRun
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.harnesses import PostgresHarness


class Notes(Hook):
    """Keeps every event that it receives."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def note(self, kind: str, attributes: Attributes) -> None:
        self.heard.append((kind, dict(attributes)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [attributes for each, attributes in self.heard if each == kind]


class Bench:
    """Opens applications on the storage of one test, and closes them."""

    def __init__(self, backend: str, url: str) -> None:
        self.backend = backend
        self.url = url
        self._postgres = PostgresHarness(url) if backend == "postgres" else None
        self.clock = ManualClock() if self._postgres is None else self._postgres.clock
        self._open = AsyncExitStack()
        self.notes = Notes()

    @property
    def shared(self) -> bool:
        """Whether several applications can be open on the storage."""
        return self.backend != "memory"

    async def app(self, *, worker: bool = False, **options: Any) -> App:  # noqa: ANN401 (what App takes)
        """Return an open application without a worker: the test drains it."""
        if self._postgres is not None:
            await self._postgres.install_clock()
        options.setdefault("hooks", (self.notes,))
        app = App(self.url, worker=worker, clock=self.clock, **options)
        return await self._open.enter_async_context(app)

    async def close(self) -> None:
        await self._open.aclose()
        if self._postgres is not None:
            await self._postgres.close()

    async def seconds(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(round(seconds * 1_000))


async def take_session(storage: Storage, session_id: str, *, ttl_ms: int = 60_000) -> Lease:
    """Hold the lease of a session, as another worker would."""
    claimed = await storage.leases.claim(session_id, current_owner("another"), ttl_ms=ttl_ms)
    assert isinstance(claimed, Acquired), claimed
    return claimed.lease


def texts(messages: list[Message]) -> list[tuple[str, str]]:
    """Return the author and text of each message."""
    return [(message.role.value, text_of(message)) for message in messages]


async def claim_turn(app: App, session_id: str) -> TurnRun:
    """Return a run of the session's next turn, as a worker starts it."""
    owner = current_owner()
    claimed: ClaimedTurn | None = None
    outcome = await app.storage.queue.claim_turn(session_id, owner, ttl_ms=30_000)
    if isinstance(outcome, ClaimedTurn):
        claimed = outcome
    else:
        leased = await app.storage.leases.claim(session_id, owner, ttl_ms=30_000)
        assert isinstance(leased, Acquired)
        claimed = await claim_behind_commands(app._require(), leased.lease)
    assert claimed is not None
    return TurnRun(app._require(), claimed)


async def run_turn(app: App, session_id: str) -> TurnEnd:
    """Run the session's next turn."""
    return await (await claim_turn(app, session_id)).run()

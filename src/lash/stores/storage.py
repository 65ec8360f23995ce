"""The bundle of all stores on one database."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from lash.model.session import Durability
from lash.stores.artifact import ArtifactStore
from lash.stores.attachment import AttachmentStore
from lash.stores.lease import LeaseStore
from lash.stores.queue import QueueStore
from lash.stores.session import Session, SessionStore


class Storage(Protocol):
    """One database with everything in it, used from the event loop that opened it."""

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        ...

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def leases(self) -> LeaseStore: ...

    @property
    def queue(self) -> QueueStore: ...

    @property
    def artifacts(self) -> ArtifactStore: ...

    @property
    def attachments(self) -> AttachmentStore: ...

    def session(self, session_id: str) -> Session:
        """Return a handle on one session, without asking whether it exists."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then close. A second close is harmless."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

"""The bundle of all stores on one database."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from lash.model.maintenance import StorageCounts, StorageReport, Throughput
from lash.model.session.session import Durability
from lash.stores.act import ActStore
from lash.stores.activity import ActivityStore
from lash.stores.artifact import ArtifactStore
from lash.stores.attachment import AttachmentStore
from lash.stores.effect import EffectStore
from lash.stores.hints import Hints
from lash.stores.lease import LeaseStore
from lash.stores.limit import LimitStore
from lash.stores.maintenance import Maintenance
from lash.stores.process.event import EventStore
from lash.stores.process.grant import GrantStore
from lash.stores.process.process import ProcessLeaseStore, ProcessStore
from lash.stores.queue import QueueStore
from lash.stores.record import RecordStore
from lash.stores.session import Session, SessionStore
from lash.stores.trigger.emit import OccurrenceStore
from lash.stores.trigger.schedule import ScheduleStore
from lash.stores.trigger.trigger import TriggerStore
from lash.stores.usage import UsageStore
from lash.stores.wait import WaitStore
from lash.stores.waiter import ProcessWaiter, SessionWaiter
from lash.stores.work import WorkStore
from lash.stores.worker import WorkerStore


class Storage(Protocol):
    """All stores of one database, used from the event loop that opened it.

    A call that raises has changed nothing, unless its error has ``outcome_unknown``: then it was applied whole or not
    at all, and repeating the call shows which. On PostgreSQL lash retries an idempotent call whose connection was
    lost. If the first try was applied, the caller gets the answer of a second call: ``created`` is false, ``replayed``
    or ``reentered`` is true, and nothing is left to count, release or remove. Maintenance, sweeps and putting an
    attachment are several transactions; those before an error stay.
    """

    @property
    def durability(self) -> Durability:
        """The failures that an acknowledged write survives."""
        ...

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def leases(self) -> LeaseStore: ...

    @property
    def maintenance(self) -> Maintenance: ...

    @property
    def queue(self) -> QueueStore: ...

    @property
    def acts(self) -> ActStore:
        """What operators did, and who did it."""
        ...

    @property
    def limits(self) -> LimitStore:
        """How often steps may start, by name."""
        ...

    @property
    def artifacts(self) -> ArtifactStore: ...

    @property
    def attachments(self) -> AttachmentStore: ...

    @property
    def processes(self) -> ProcessStore: ...

    @property
    def process_leases(self) -> ProcessLeaseStore: ...

    @property
    def events(self) -> EventStore: ...

    @property
    def effects(self) -> EffectStore: ...

    @property
    def records(self) -> RecordStore: ...

    @property
    def grants(self) -> GrantStore: ...

    @property
    def activity(self) -> ActivityStore: ...

    @property
    def hints(self) -> Hints:
        """Hints that something may have changed, for tasks that wait."""
        ...

    @property
    def work(self) -> WorkStore: ...

    @property
    def workers(self) -> WorkerStore:
        """The workers that run on this storage."""
        ...

    @property
    def triggers(self) -> TriggerStore: ...

    @property
    def occurrences(self) -> OccurrenceStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def usage(self) -> UsageStore:
        """The token ledgers of all sessions."""
        ...

    @property
    def waiter(self) -> ProcessWaiter:
        """Waits for events and ends of processes."""
        ...

    @property
    def session_waiter(self) -> SessionWaiter:
        """Waits for replies and news of sessions; used by the runtime only."""
        ...

    @property
    def waits(self) -> WaitStore: ...

    def session(self, session_id: str) -> Session:
        """Return a handle on one session, without checking that it exists."""
        ...

    async def report(self) -> StorageReport:
        """Return the rows and bytes of each noun; cheap enough for a health check.

        On PostgreSQL the rows are the server's estimates of its last ANALYZE, and the bytes are exact. On SQLite the
        rows are exact up to 10,000 in a table. Beyond that they are estimated: by the highest row number of a table
        that has row numbers, else by a lower bound. The total bytes are exact except for the write-ahead log. The
        bytes of a noun are measured only in files of at most 4,096 pages, because that reads every page.
        """
        ...

    async def counts(self) -> StorageCounts:
        """Return how many sessions, batches, dead letters, processes and waits there are by state, in one statement.

        The numbers are of one moment. It reads an index of each of them, so it costs more the more there are.
        """
        ...

    async def throughput(
        self, *, since_ms: int, until_ms: int | None = None, interval_ms: int = 60_000
    ) -> tuple[Throughput, ...]:
        """Return how many turns and processes ended in each interval, and how many failed, in one statement.

        The intervals follow each other without a gap, from the one that contains ``since_ms`` to the last one that
        begins before ``until_ms``, by default now. They begin at multiples of ``interval_ms`` since 1970. Raises
        InvalidInput for more than 10,000 of them. Only what is still stored is counted: not the turns and dead letters
        of deleted sessions, pruned turns and processes, or dead letters that were requeued or discarded. It reads
        indexes by time, so its cost depends on what ended in the range.
        """
        ...

    async def close(self) -> None:
        """Finish the accepted calls, then close. Idempotent."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

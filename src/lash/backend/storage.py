"""The bundle of stores on every backend, built from the rows that a backend supplies."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import msgspec

from lash.backend.act import Acts
from lash.backend.activity import Activities
from lash.backend.artifact import Artifacts
from lash.backend.attachment.attachment import Attachments
from lash.backend.effect import Effects
from lash.backend.lease import Leases
from lash.backend.limit import Limits
from lash.backend.maintenance import StorageMaintenance
from lash.backend.process.event import Events
from lash.backend.process.grant import Grants
from lash.backend.process.lease import ProcessLeases
from lash.backend.process.process import Processes
from lash.backend.queue import Queue
from lash.backend.record import Records, RecordValues
from lash.backend.session import BoundSession, Sessions
from lash.backend.session_waiter import SharedSessionWaiter
from lash.backend.table_rows import MovableRows
from lash.backend.trigger.emit import Occurrences
from lash.backend.trigger.schedule import Schedules
from lash.backend.trigger.trigger import Triggers
from lash.backend.usage import Usages
from lash.backend.wait import Waits
from lash.backend.waiter import SharedProcessWaiter
from lash.backend.work import Work
from lash.backend.worker import Workers
from lash.base.seal import PLAIN, Seals
from lash.model.maintenance import StorageCounts, StorageReport, Throughput
from lash.model.session.session import Durability
from lash.plan.session.commit import CommitRules
from lash.stores.act import ActRows
from lash.stores.activity import ActivityRows
from lash.stores.artifact import ArtifactRows
from lash.stores.attachment import AttachmentManifest, ByteStore
from lash.stores.effect import EffectRows
from lash.stores.hints import Hints
from lash.stores.lease import LeaseRows
from lash.stores.limit import LimitRows
from lash.stores.maintenance import MaintenanceRows
from lash.stores.process.event import EventRows
from lash.stores.process.grant import GrantRows
from lash.stores.process.process import ProcessLeaseRows, ProcessRows
from lash.stores.queue import ClaimRows, DeadLetterRows, QueueRows
from lash.stores.record import RecordRows
from lash.stores.seal import SealRows
from lash.stores.session import SessionRows
from lash.stores.table_rows import RawRows
from lash.stores.trigger.emit import OccurrenceRows
from lash.stores.trigger.schedule import ScheduleRows
from lash.stores.trigger.trigger import TriggerRows
from lash.stores.usage import UsageRows
from lash.stores.wait import WaitRows
from lash.stores.waiter import ReplyRows
from lash.stores.work import WorkRows
from lash.stores.worker import WorkerRows


class BackendRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one open database, one port for each noun: everything that a backend adds to the stores."""

    activity: ActivityRows
    acts: ActRows
    artifacts: ArtifactRows
    attachment_bytes: ByteStore
    attachments: AttachmentManifest
    claims: ClaimRows
    dead_letters: DeadLetterRows
    effects: EffectRows
    events: EventRows
    grants: GrantRows
    leases: LeaseRows
    limits: LimitRows
    maintenance: MaintenanceRows
    occurrences: OccurrenceRows
    process_leases: ProcessLeaseRows
    processes: ProcessRows
    queue: QueueRows
    raw: RawRows
    records: RecordRows
    replies: ReplyRows
    schema: int
    """The number of the last migration that this version knows."""
    schedules: ScheduleRows
    seal: SealRows
    sessions: SessionRows
    triggers: TriggerRows
    usage: UsageRows
    waits: WaitRows
    work: WorkRows
    workers: WorkerRows


class BackendStorage:
    """All stores of one database; the contract is `lash.stores.storage.Storage`.

    A backend derives from it, builds the rows and the hints, and closes its database after `close`.
    """

    def __init__(
        self, rows: BackendRows, hints: Hints, rules: CommitRules, durability: Durability, seals: Seals = PLAIN
    ) -> None:
        values = RecordValues(rules.compression)
        self.durability = durability
        self.hints = hints
        self.sessions = Sessions(rows.sessions, rules, values, hints)
        self.leases = Leases(rows.leases, hints)
        self.acts = Acts(rows.acts)
        self.queue = Queue(rows.queue, rows.claims, rows.dead_letters, hints, rules.budget)
        self.activity = Activities(rows.activity, hints)
        self.session_waiter = SharedSessionWaiter(rows.replies, self.activity, hints)
        self.processes = Processes(rows.processes, rows.events, hints)
        self.events = Events(rows.events, hints)
        self.waiter = self.processes.waiter = SharedProcessWaiter(self.events, self.processes, hints)
        self.process_leases = ProcessLeases(rows.process_leases, rows.events, hints, self.waiter)
        self.grants = Grants(rows.grants)
        self.effects = Effects(rows.effects, hints)
        self.work = Work(rows.work, hints, rows.schema)
        self.workers = Workers(rows.workers)
        self.waits = Waits(rows.waits, self.waiter.changes, hints)
        self.limits = Limits(rows.limits, self.work, self.waiter.changes, hints)
        self.triggers = Triggers(rows.triggers)
        self.usage = Usages(rows.usage)
        self.occurrences = Occurrences(rows.occurrences, hints)
        self.schedules = Schedules(rows.schedules, hints)
        self.records = Records(rows.records, values)
        self.artifacts = Artifacts(rows.artifacts, rules.compression)
        self.attachments = Attachments(rows.attachments, rows.attachment_bytes, durability)
        self.rows = MovableRows(rows.raw, rows.seal, seals, rows.schema)
        self.maintenance = StorageMaintenance(rows.maintenance, self.rows, rows.attachment_bytes)

    def session(self, session_id: str) -> BoundSession:
        return self.sessions.handle(session_id)

    async def report(self) -> StorageReport:
        return await self.maintenance.report()

    async def counts(self) -> StorageCounts:
        return await self.maintenance.counts()

    async def throughput(
        self, *, since_ms: int, until_ms: int | None = None, interval_ms: int = 60_000
    ) -> tuple[Throughput, ...]:
        return await self.maintenance.throughput(since_ms=since_ms, until_ms=until_ms, interval_ms=interval_ms)

    async def close(self) -> None:
        """End every wait with StorageClosed, and stop the hints."""
        await self.waiter.close()
        await self.session_waiter.close()
        await self.hints.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

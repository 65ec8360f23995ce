"""Written by ``python -m tools.write_sync_stub``; change the async classes, not this file."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import asyncpg
from msgspec import UnsetType

from lash.base.clock import Clock
from lash.base.compression import BlobRef, Compression
from lash.base.seal import Sealer
from lash.code.engine import CodeProcess
from lash.code.limits import CodeLimits
from lash.connect.open import OpenOptions
from lash.model.act import Act
from lash.model.activity import ActivityDraft, ActivityPage, ObserveCursor, Observed, SeenChanges
from lash.model.artifact import ArtifactPage, ArtifactRef, ProcessEnvironment
from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, StoredAttachment, SweepReport
from lash.model.effect import (
    EffectClaim,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectRun,
    Envelope,
    ExecutionScope,
)
from lash.model.lease import Lease, LeaseFence, LeaseOutcome, LeaseOwner, LeasePage, ParkedTurn, ResourceKind
from lash.model.limit import LimitPlace, LimitState, Rate, Reservation
from lash.model.maintenance import (
    Damage,
    GarbageReport,
    Prunable,
    PruneReport,
    RewrapReport,
    StorageCounts,
    StorageReport,
    Throughput,
)
from lash.model.process.continuation import Continuation
from lash.model.process.event import Appended, EventDraft, EventPage, ProcessEvent, WakeRecord
from lash.model.process.process import (
    Abandonment,
    AgentScope,
    ChangePage,
    ExternalRef,
    Grant,
    GrantEntry,
    Outcome,
    ProcessAcquired,
    ProcessFilter,
    ProcessLeaseOutcome,
    ProcessPage,
    ProcessRecord,
    ProcessStatus,
    ProcessVersion,
    PrunedProcesses,
    Registered,
    Registration,
    SessionDetached,
    SignalWait,
)
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimedTurn,
    ClaimOutcome,
    ClaimTurnOutcome,
    DeadLetter,
    Enqueued,
    QueuedBatch,
    QueuedState,
)
from lash.model.record import Record, RecordDelete, RecordPut, RecordValue
from lash.model.session.change import SessionChangePage
from lash.model.session.checkpoint import Checkpoint, CheckpointManifest
from lash.model.session.commit import AppendResult, Commit, CommitBudget, CommitResult
from lash.model.session.created import CreatedSession
from lash.model.session.message import AttachmentRef, Message
from lash.model.session.node import Node, RawNode
from lash.model.session.session import (
    Durability,
    ReadScope,
    Retention,
    SessionFilter,
    SessionHead,
    SessionMeta,
    SessionOrder,
    SessionPage,
    SessionRead,
    SessionRelation,
    VacuumReport,
)
from lash.model.session.trace import TurnRecord
from lash.model.session.usage import UsageEntry, UsagePage
from lash.model.trigger.schedule import Fired, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import (
    DeletedTrigger,
    EmitReport,
    Occurrence,
    OccurrenceRequest,
    PrunedOccurrences,
    RegisteredTrigger,
    TriggerDelivery,
    TriggerDraft,
    TriggerFilter,
    TriggerOwner,
    TriggerPage,
    TriggerSubscription,
)
from lash.model.value import JSON, JSONObject
from lash.model.wait import Question, Resolution, ResolveAnswer, WaitIdentity, WaitKey, WaitRecord
from lash.model.work import WorkList
from lash.model.worker import Beat, Holding, WorkerRecord
from lash.runtime.app import App as AsyncApp
from lash.runtime.declarations import Router
from lash.runtime.definition import AgentDefinition, ProcessDefinition
from lash.runtime.engine import Engine, Program
from lash.runtime.hooks import Hook
from lash.runtime.policy import Retry, WorkerOptions
from lash.runtime.processes.context import Context
from lash.runtime.turns.transcript import TranscriptEntry
from lash.runtime.turns.turn import Turn
from lash.stores.attachment import ByteStore, IsOwnerGone
from lash.stores.hints import Hint
from lash.stores.waiter import SessionWaiter
from lash.sync.stream import Stream as Stream

__all__ = [
    "ActStore",
    "ActivityStore",
    "App",
    "ArtifactStore",
    "AttachmentStore",
    "EffectStore",
    "EventStore",
    "GrantStore",
    "HintListener",
    "Hints",
    "LeaseStore",
    "LimitStore",
    "Maintenance",
    "OccurrenceStore",
    "ProcessHandle",
    "ProcessLeaseStore",
    "ProcessStore",
    "ProcessWaiter",
    "QueueStore",
    "RecordStore",
    "ScheduleStore",
    "Session",
    "SessionHandle",
    "SessionStore",
    "Starter",
    "Storage",
    "Stream",
    "TriggerStore",
    "UsageStore",
    "WaitStore",
    "WorkStore",
    "WorkerStore",
    "open",
    "shared",
]

A = TypeVar("A", bound=Callable[[Turn], Awaitable[object]])
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

class ActStore:
    """What operators did, and who did it. `lash.runtime.acting.acting` records an act around any call.

    Acts belong to the storage: they outlive the sessions and processes that they concern, until they are pruned.
    """
    def record(
        self, by: str, verb: str, target: str, *, session_id: str | None = None, process_id: str | None = None
    ) -> Act:
        """Record an act before it is done, so that no act is missed; it has no outcome yet. Not idempotent.

        ``session_id`` or ``process_id`` names what the target belongs to; neither has to exist.
        """
    def settle(self, act_id: str, *, error: str | None = None) -> bool:
        """Record that an act was done, or the class of the error with which it was refused; the first outcome stands.

        Returns False if there is no such act without an outcome.
        """
    def list(
        self,
        *,
        by: str | None = None,
        session_id: str | None = None,
        process_id: str | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[Act, ...]:
        """Return at most ``limit`` acts, the last first: of all, of an operator, about a session or about a process.

        ``after`` is the position of the last act of the previous page. A page with fewer than ``limit`` is the last.
        Its cost does not grow with the number of acts. Raises InvalidInput if a session and a process are named.
        """
    def prune(self, *, before_ms: int, limit: int = 1000) -> int:
        """Remove at most ``limit`` acts from before a moment, the oldest first, and return how many."""

class ActivityStore:
    """The live activity of the sessions of a storage: best effort, kept for a while, and never part of history.

    Positions are 1, 2, 3… within a session and become visible in that order. All methods raise SessionNotFound or
    SessionDeleted if the session does not exist.
    """
    def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        """Store activity, all items or none, and return the position of the last one.

        It neither waits for commits of the session nor delays them. Of older activity, the last 2,048 items, 8 MB and
        120 seconds are kept. Activity need not survive a crash of the database; positions may then start again in
        another epoch.
        """
    def read(self, session_id: str, cursor: ObserveCursor | None = None, *, limit: int = 256) -> ActivityPage:
        """Return the newest state of a session and the activity after a cursor, from one moment, in one read.

        Without a cursor the page has no activity. If activity after the cursor was deleted, or the cursor is from
        another life or epoch or ahead of the session, the page has the reason as its gap and no activity. The epoch is
        another one after the storage was restored or moved.
        """
    def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        """Return changes after a cursor of the change feed, of processes that wake the session or are granted to it.

        Returns None if changes after the cursor were pruned, or if the feed does not have the change that the cursor
        names. A session sees a process as long as it exists; its pruning is not reported. An answer without changes may
        still have a cursor that is further on.
        """

class App:
    """Agents and durable processes on one storage.

    Declare them in any order, before or after opening the app. ``with app:`` opens the storage and runs a worker
    in this process; with ``worker=False`` it only opens the storage, for programs that send and ask and leave the work
    to other workers. Many apps, in any number of processes and machines, may share a storage.
    """

    url: str
    options: WorkerOptions
    @overload
    def agent(self, function: A, /) -> AgentDefinition: ...
    @overload
    def agent(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry = ...,
        timeout_s: float | None = None,
        limit: str | None = None,
        limit_key: str | Callable[[Turn], str | Awaitable[str]] = "",
    ) -> Callable[[A], AgentDefinition]: ...
    @overload
    def process(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> ProcessDefinition[P, R]: ...
    @overload
    def process(
        self,
        /,
        *,
        name: str | None = None,
        version: str = ...,
        retry: Retry = ...,
        timeout_s: float | None = None,
        signals: Mapping[str, object] | None = None,
        limit: str | None = None,
        limit_key: str | Callable[..., str | Awaitable[str]] = "",
    ) -> Callable[[Callable[Concatenate[Context, P], Awaitable[R]]], ProcessDefinition[P, R]]: ...
    def on(
        self,
        source_type: str,
        process: Program[Any, Any],
        *,
        key: str | None = None,
        source_key: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        wake: str | None = None,
    ) -> None:
        """Start a process each time something is emitted under this name.

        ``inputs`` says where its arguments come from: ``lash.EVENT`` for the whole payload, ``lash.pointer("/path")``
        for a part of it, anything else as it is. Without it a process of one argument gets the payload. ``schema`` is
        what a payload must look like; ``wake`` is the session that the processes wake.
        """
    def cron(
        self,
        line: str,
        process: Program[Any, Any],
        *,
        key: str | None = None,
        time_zone: str = "UTC",
        inputs: Mapping[str, Any] | None = None,
        catch_up: str = "last",
        jitter_s: float = 0,
        wake: str | None = None,
    ) -> None:
        """Start a process by the clock: ``app.cron("0 7 * * 1-5", digest, time_zone="Europe/Berlin")``.

        The key, by default made of the process's name, says which schedule this is: another line under the same key
        takes the place of the one that an earlier version of the code declared.
        Each tick starts it once, however many workers run. ``catch_up`` decides about ticks that were missed while no
        worker ran: ``skip``, ``last`` or ``all``.
        """
    def limit(self, name: str, *, rate: str | None = None, burst: int = 1, concurrency: int | None = None) -> None:
        """Declare a limit over all workers: ``app.limit("openai", rate="60/minute", concurrency=4)``.

        Steps name it: ``turn.options(limit="openai").step(...)``. With a ``rate``, starts are evenly spaced; after a
        pause up to ``burst`` of them may come at once. With a ``concurrency``, at most so many run at the same time.
        Declaring a name again changes it.
        """
    def engine(self, engine: Engine) -> None:
        """Add an engine: a worker of this app runs the processes whose input names it.

        Another engine of the same name raises ConfigError.
        """
    def declare(self, program: Program[P, R]) -> Program[P, R]:
        """Declare a program that an engine of this app runs, by its name and version, and return it."""
    def code_process(
        self,
        name: str = "program",
        *,
        tools: Sequence[Callable[..., Any]] = ...,
        limits: CodeLimits | None = None,
        version: str = ...,
        retry: Retry = ...,
        timeout_s: float | None = None,
    ) -> CodeProcess:
        """Declare processes that run sandboxed Python: ``app.start(program, source)``.

        A program may call the ``tools``, functions or `lash.agents.tool`, and nothing else outside of its sandbox. Each
        call is a step; ``sleep`` and ``ask_human`` park the process. It needs the extra ``code``.
        """
    def include(self, router: Router) -> None:
        """Add everything that a router has declared by now; including it again adds what it declared since."""
    def find_process(self, name: str) -> Program[Any, Any]:
        """Return the declared process of a name; of several versions the one that was declared last."""
    def find_engine(self, name: str) -> Engine:
        """Return the engine of a name; raise UnknownDefinition if this app has none."""
    @overload
    def __init__(self, app: AsyncApp, /) -> None: ...
    @overload
    def __init__(
        self,
        url: str,
        *,
        options: WorkerOptions = ...,
        worker: bool = True,
        worker_id: str | None = None,
        hooks: Sequence[Hook] = ...,
        clock: Clock | None = None,
        **storage_options: Any,
    ) -> None: ...
    def configure(
        self, *, options: WorkerOptions | None = None, worker: bool | None = None, hooks: Sequence[Hook] = ...
    ) -> None:
        """Change options and add hooks before the app is opened, as ``lash worker`` does."""
    def open(self) -> None:
        """Open the storage and start the worker. ``with app`` calls it; on an open app it does nothing."""
    def start(self, process: Program[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ProcessHandle[R]:
        """Start a process and return a handle on it."""
    def starting(self, *, process_id: str | None = None, wake: str | None = None) -> Starter:
        """Return a starter with options: a fixed process id, which makes starting idempotent, or a session to wake."""
    def stop(self) -> None:
        """Let runs finish within the grace time, give back the rest, and close the storage; idempotent.

        Running work can use the app until it finishes.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def run(self) -> None:
        """Work until `stop` is called or the worker fails, as ``lash worker`` does."""
    def drain(self) -> int:
        """Run everything that is ready until nothing is, and return how many runs that were.

        For tests and scripts, in an app without a worker. What sleeps or is delayed stays as it is.
        """
    @property
    def storage(self) -> Storage:
        """The storage itself, for everything that has no short form here."""
    def session(self, session_id: str, agent: AgentDefinition | str | None = None) -> SessionHandle:
        """Return a handle on a session. The agent is named once; the session remembers it from its first turn on."""
    def handle(self, process_id: str) -> ProcessHandle[Any]:
        """Return a handle on a process by its id."""
    def emit(self, source_type: str, payload: JSON = None, *, key: str, source_key: str | None = None) -> EmitReport:
        """Record an occurrence and start its processes. The same key again returns the first report."""
    def unwatch(self, key: str) -> bool:
        """End a subscription or a schedule of `on` or `cron` by its key, and return whether there was one.

        A declaration that was removed from the code stays registered, since other versions may still rely on it.
        """
    def signal(self, process_id: str, name: str, payload: JSON = None, *, key: str | None = None) -> None:
        """Send a signal to a process. The same key is one signal, however often it is sent."""
    def resolve(self, wait_key: str, value: JSON = None) -> bool:
        """Resolve a wait with a value, and return whether this was the first resolution.

        A key that is unknown, revoked or tampered with raises InvalidInput.
        """
    def reject(self, wait_key: str, code: str, message: str = "") -> bool:
        """Resolve a wait with an error; see `resolve`."""

class ArtifactStore:
    """Immutable bytes by namespace and content hash, verified on every load.

    A storage caches a bounded number of recently loaded artifacts. It may therefore still return an artifact that
    another storage has deleted, but never wrong bytes.
    """
    def put(self, namespace: str, content: bytes) -> ArtifactRef:
        """Store the bytes and return their ref. Idempotent: existing bytes and their creation time stay."""
    def get(self, namespace: str, ref: ArtifactRef) -> bytes:
        """Return the bytes, or raise ArtifactNotFound.

        Raises CorruptData unless the requested ref, the stored ref and the hash of the bytes agree.
        """
    def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        """Return whether the database holds the artifact, without loading it."""
    def put_environment(self, environment: ProcessEnvironment) -> ArtifactRef:
        """Store the environment of a process and return its ref. Equal environments have the same ref."""
    def get_environment(self, ref: ArtifactRef) -> ProcessEnvironment:
        """Return an environment, or raise ArtifactNotFound; CorruptData if the bytes are not an environment."""
    def list(self, namespace: str, *, limit: int = 100, cursor: str | None = None) -> ArtifactPage:
        """Return a page of the namespace's artifacts, ordered by ref. Pages do not overlap."""
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that hold an artifact, sorted."""
    def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        """Remove an artifact and return whether it existed. The caller ensures that nothing refers to it."""

class AttachmentStore:
    """The attachments of sessions.

    Methods that name a session raise SessionNotFound or SessionDeleted if it does not exist, and InvalidInput for an
    id that is not 64 lowercase hex digits.
    """
    @property
    def durability(self) -> Durability:
        """Which crashes a put survives once it has returned: the weaker promise of the database and the byte store."""
    def put(
        self,
        session_id: str,
        content: bytes,
        media_type: str,
        *,
        owner: AttachmentOwner | None = None,
        width: int | None = None,
        height: int | None = None,
        label: str | None = None,
    ) -> AttachmentRef:
        """Announce the attachment, write its bytes, and return the reference that messages use.

        Idempotent: putting the same bytes again keeps a commit's stamp and takes the latest description. Without a
        stamp the attachment counts as new again and belongs to the latest owner named. A failed put leaves an
        announcement, which a sweep removes. A concurrent sweep never deletes the bytes of a successful put.
        """
    def get(self, session_id: str, attachment_id: str) -> StoredAttachment:
        """Return the attachment with its bytes, checked against its id, or raise AttachmentNotFound.

        Damaged bytes raise CorruptData, and so do missing ones after a commit; putting them again repairs both.
        """
    def entry(self, session_id: str, attachment_id: str) -> AttachmentEntry | None:
        """Return the entry of the manifest, without the bytes; None if the session has no such attachment."""
    def commit_refs(self, session_id: str, attachment_ids: Collection[str]) -> tuple[str, ...]:
        """Stamp attachments as committed, and return the ids that are; the session does not have the others.

        The first stamp stays. A commit of the session that names attachments does the same in its own transaction.
        """
    def list(self, session_id: str, *, limit: int = 100, cursor: str | None = None) -> AttachmentPage:
        """Return the attachments of a session, committed or not, ordered by id. Pages do not overlap."""
    def list_uncommitted(
        self, older_than_ms: int = 0, *, limit: int = 100, cursor: str | None = None
    ) -> AttachmentPage:
        """Return attachments that were announced at least this long ago and are not committed, by time and then id."""
    def forget(self, session_id: str, attachment_id: str) -> bool:
        """Remove an attachment from a session, committed or not, and return whether the session had it.

        The next sweep deletes the bytes, unless another session names them.
        """
    def sweep(self, older_than_ms: int, is_owner_gone: IsOwnerGone, *, dry_run: bool = False) -> SweepReport:
        """Remove old attachments that nothing can commit any more, and the bytes that no session names.

        ``is_owner_gone`` is called for each, also for those without an owner; if it fails, the attachment stays and is
        reported as refused. If bytes cannot be deleted, or the database fails meanwhile, this raises SweepIncomplete
        with the report so far. Sweeps may run concurrently.
        """

class EffectStore:
    """The recorded effects of a storage. A recorded outcome is never executed again and never changes.

    Every method that takes an envelope raises EffectMismatch, and writes nothing, if another one was recorded under its
    key; the error names the first path that differs and both values. A scope whose session or process does not exist
    raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned. A claim on an effect of such a scope is
    lost like any other.
    """
    def claim(
        self,
        envelope: Envelope,
        owner: LeaseOwner,
        *,
        ttl_ms: int,
        once: bool = False,
        strict: bool = False,
        token: str | None = None,
        attempt: int | None = None,
        traceparent: str | None = None,
    ) -> EffectDecision:
        """Decide whether to run an effect, and claim it if so. The same owner cannot run it twice at the same time.

        ``once`` records the intent of an effect that must not run twice: after a crash it is unknown, not taken over.
        ``strict`` never runs anything: an effect without a recorded outcome raises EffectNotRecorded. An effect of a
        group that was not opened or is full raises Conflict. ``token`` identifies the call: one that repeats a call
        whose answer was lost, with the same token, gets the claim that the first one made. Without it every call is
        another. ``attempt`` is the attempt of the turn or process that runs it, and ``traceparent`` the span of
        that attempt; both are for the record and have no part in the identity.
        """
    def record(
        self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError, *, ran: EffectRun = ...
    ) -> EffectRecord:
        """Record the outcome of an effect that ran under an exclusive lease: one write, without a claim before it.

        The fence must be live and belong to the envelope's session or process, else LeaseLost. Idempotent: if an equal
        effect was recorded before, that record is returned and nothing is written. An effect that has a claim
        raises Conflict. The due time of a sleep is counted by the clock of the storage. ``ran`` is kept with the
        record: the effect began so long before the moment at which it is recorded. It has no part in the identity.
        """
    def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        """Extend a claim, expired or not, never shorten it; raise EffectLeaseLost if it was taken over or finished."""
    def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        """Record the outcome under a claim; raise EffectLeaseLost, and change nothing, if it does not hold.

        An expired claim holds until another caller takes the effect over. Idempotent: the same claim and an equal
        outcome return the same record, so a lost answer can be retried.
        """
    def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        """Record a permanent failure, as ``finish`` records an outcome. After an outage, ``release`` instead."""
    def release(self, claim: EffectClaim) -> bool:
        """Give the claim up without an outcome, so that any caller may run the effect; return whether it was held.

        An expired claim can be released if no other caller took the effect over. An effect that must not run twice then
        counts as never claimed: release it only if it did not happen.
        """
    def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        """Take an effect whose runner died, also one that must not run twice: the caller has looked up what happened.

        Raises EffectNotRecorded if it was never claimed, Conflict if it has finished or its runner is live.
        """
    def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        """Return the record of one effect."""
    def get_many(self, names: Sequence[tuple[ExecutionScope, str]]) -> tuple[EffectRecord | None, ...]:
        """Return the records of at most 1,000 effects of any scopes, each named by scope and replay key, in one read.

        They come in the order of the names; None stands for an effect that has no record, also if its session or
        process does not exist.
        """
    def list(self, scope: ExecutionScope, *, limit: int = 1000, after: str | None = None) -> tuple[EffectRecord, ...]:
        """Return at most ``limit`` effects of a scope, ordered by replay key.

        ``after`` is the last key of the previous page. A page with fewer than ``limit`` is the last.
        """
    def recent(self, scope: ExecutionScope, count: int) -> tuple[EffectRecord, ...]:
        """Return the last effects of a scope to be begun or recorded, at most 1,000, the newest first.

        It reads the time of every effect of the scope, and the content of the returned ones.
        """
    def retire(self, scope: ExecutionScope) -> int:
        """Delete the effects and groups of a scope that has ended, and return the number of effects.

        Commits do this for their turn, pruning for processes, deletion for all scopes of a session. An effect that is
        still running loses its claim. A scope that does not exist has none: 0.
        """
    def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        """Open a group, or return the one that exists; another size raises Conflict."""
    def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        """Return a group with its finished effects, in the order in which they finished."""

class EventStore:
    """The logs of all processes. Event numbers start at 1 and have no gaps.

    Methods that name a process raise ProcessNotFound or ProcessPruned if it does not exist.
    """
    def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        """Append an event and write what it means, in one transaction: the record, the end of the process, the wake.

        A known replay key returns the first event and writes nothing; other content under it raises EventConflict. An
        undeclared type, a payload that does not match its schema and a selector that finds nothing raise InvalidInput.
        A second end raises ProcessTerminal; other events can follow the end.

        A wake is put into the queue of its session in the same transaction. If the session does not exist, the wake is
        stored as undeliverable.

        Pass a ``fence`` to append to a process that the caller runs. It must be live; otherwise LeaseLost is raised and
        nothing is written, even if the replay key is known.
        """
    def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        """Append the event of a signal. The k-th wait for a name gets the k-th signal of that name; none is lost.

        The same ``signal_id`` is one signal.
        """
    def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        """Return the ``ordinal``-th signal of this name, counted from 1; None if the log does not have it yet."""
    def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1000
    ) -> tuple[ProcessEvent, ...]:
        """Return at most ``limit`` events after a number, in order, of one type or of all.

        A page with fewer than ``limit`` is the last; the next one follows the ``sequence`` of its last event.
        """
    def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        """Return the last events, in order."""
    def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        """Return how many events of a type there are up to and including a number."""
    def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        """Return the number of the last event of each process, 0 for an empty log, in one query for all.

        A process that does not exist has no entry.
        """
    def wakes_after(self, process_id: str, sequence: int = 0) -> tuple[WakeRecord, ...]:
        """Return the open wakes after a number: neither acknowledged nor merged into an earlier one."""
    def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        """Acknowledge a wake by hand, for hosts that do not use the queue; return whether it was open."""
    def undeliverable_wakes(self, *, limit: int = 100, after: WakeRecord | None = None) -> tuple[WakeRecord, ...]:
        """Return at most ``limit`` wakes whose session did not exist or was deleted before it could get them.

        They are ordered by process and number. ``after`` is the last wake of the previous page. A page with fewer than
        ``limit`` is the last.
        """
    def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        """Return the events of all processes after a cursor; a reader that keeps the cursor gets each exactly once.

        Events of pruned processes are left out. The cursor is that of ``changes``: either method resumes the other, and
        both report the same gaps.
        """
    def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        """Return the changes of all processes after a cursor; a reader that keeps the cursor gets each exactly once.

        If changes after the cursor were pruned, or the cursor is from another epoch of the feed, the page has the
        reason as its gap. A cursor of another epoch continues at the end of the feed.

        The changes of one writer come in its order. Changes of one process by concurrent writers can come in another
        order on PostgreSQL; ``sequence`` is the order of the log.
        """

class GrantStore:
    """The visibility of processes. Grants never affect whether a process runs."""
    def grant(self, grant: Grant) -> Grant:
        """Let a scope see a process, running or ended; an existing grant gets the new kind and label.

        Raises ProcessNotFound or ProcessPruned if the process does not exist.
        """
    def revoke(self, scope: AgentScope, process_id: str) -> bool:
        """Remove a grant, and return whether there was one."""
    def transfer(self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]) -> None:
        """Move grants with their kinds and labels, all or none; a missing one raises GrantNotFound."""
    def list(self, scope: AgentScope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        """Return the grants of exactly this scope, ordered by process id; with ``live_only`` of running processes."""
    def has(self, scope: AgentScope, process_id: str) -> bool:
        """Return whether exactly this scope may see the process."""
    def of_process(self, process_id: str) -> tuple[Grant, ...]:
        """Return the grants of a process, ordered by session and frame."""
    def detach_session(self, session_id: str) -> SessionDetached:
        """Revoke all grants of a session, clear it as a wake target, and report what changed.

        No process is cancelled and no event is appended. A second call reports nothing.
        """

class HintListener:
    """One listener for hints. Each listener gets every hint; waking one does not consume it for the others."""
    def wait(self, timeout_s: float) -> Hint:
        """Return at a hint, or after the timeout; hints given since this listener's last wait count.

        One task waits at a time. Raises StorageClosed when the storage is closed, and InvalidInput if this listener
        was closed.
        """
    def hint(self, hint: Hint = ...) -> None:
        """Wake this listener alone; the caller learned of the change elsewhere."""
    def close(self) -> None:
        """Stop listening; idempotent."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Hints:
    """Hints that this storage, or another one on the same database, may have changed something.

    A hint means that a read may find something new; it has no content. Hints can be late, spurious or lost, so a
    waiting task also reads at intervals. No task runs, and no connection is held, while there are no listeners.
    """
    @property
    def is_receiving(self) -> bool:
        """Whether hints of other storages arrive now; without them a task sees changes at its next read only."""
    @property
    def channel(self) -> str | None:
        """The address at which hints reach only this storage; None while it cannot be addressed."""
    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> HintListener:
        """Start listening: for changes of processes; for everything, such as queued input and commits; or for work.

        Work is everything that a worker polls for. ``by_session`` is for everything too, and its hints name the
        sessions where that is known: what a hint does not name has not changed, or another hint follows. Without it a
        task must read everything that it waits for after each hint. Spurious hints are possible.

        Changes from this moment on are hints, also those made before the first wait, which may return without one.
        """
    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        process_id: str | None = None,
        ended: bool = False,
        timed: bool = False,
        later: bool = False,
    ) -> None:
        """Give a hint. The stores call it after a write that committed and that a task may wait for.

        With ``process=False`` no process changed, and listeners for processes get no hint; with ``work=False`` nothing
        became ready and nothing that runs was asked to stop, and listeners for work get none. ``session_id`` is a
        session with new input that can be claimed now, ``changed`` one that changed in another way. ``process_id`` is
        the one process that changed, if the caller knows it, and ``ended`` whether it may have ended. Without a process
        and a session the hint is about any session. With ``later`` other storages may get it some tenths of a second
        later, together with what follows.

        Work that a hint names is assigned to one worker, where the backend can reach one alone. Work that it does not
        name is left to the duty worker, and so is work that becomes ready at a later time (``timed``).
        """
    def pass_on(self, sessions: Collection[str], processes: Collection[str], *, is_full: bool = False) -> None:
        """Assign ready work that this worker cannot take to others; what no worker has a slot for is left.

        With ``is_full`` no further session is assigned to this worker until its next beat.
        """
    def suspect(self, workers: Collection[str]) -> None:
        """Assign nothing more to these workers until their next beat, and let them beat; the names are their tags."""
    def greet(self) -> None:
        """Let the duty workers of other storages beat, because a worker came or left."""
    def serve(self, worker_id: str | None, *, duty: bool = False, draining: bool = False) -> None:
        """Let the listeners for work get hints as this worker; None ends that.

        A duty worker gets the hints about work of all other storages. Any other worker gets those of its own storage,
        and the work that it is assigned. Storages without a worker of this name get all hints. What a draining worker
        leaves is assigned to others.
        """
    def close(self) -> None:
        """Stop the tasks and connections behind the hints, and end every wait with StorageClosed; idempotent."""

class LeaseStore:
    """Expiring, fenced rights to execute a session.

    Each acquisition has a larger fencing number than all before it, across release, expiry and deletion. On PostgreSQL
    the clock of the server decides. Methods that name a session raise SessionNotFound or SessionDeleted if it does not
    exist.
    """
    def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        """Acquire the lease if it is free or expired.

        The same holder re-enters its live lease: the expiry moves, never to an earlier moment, and so does that of the
        claims made under the lease; the token stays. Repeating a claim of unknown outcome is therefore safe.
        """
    def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        """Acquire the lease from the observed holder if that is provably a dead process of this machine.

        A holder that is not provably dead, or has changed since, is treated as by ``claim``. Of several callers at most
        one acquires.
        """
    def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a lease and every claim made under it, never shorten; raise LeaseLost if the fence does not hold it.

        An expired lease is extended too, if it was neither released nor taken by another owner: a worker keeps its
        work through an outage of the database. This is the heartbeat of a worker: one statement keeps everything that
        it holds of a session.
        """
    def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        """Free the lease if this fence still holds it, expired or not, and return whether it did.

        A late release by an old holder changes nothing. The fencing number stays. A pause keeps the session off the
        work list for a while, so that failed work is not retried at once; a claim is still possible and ends the pause.
        """
    def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None, waiting_for: str) -> bool:
        """Free a live lease with all claims under it, and park the turn until a moment, or (None) until it is woken.

        ``wake_seq`` comes from the claim of the turn. Until then no turn of the session can be claimed with
        ``claim_turn``, and its input stays in its place in the queue; the next claim of it counts no further attempt.
        If there was a reason to continue since the claim, the turn is not parked, its input is queued, and the method
        returns False: run it again. A fence that does not hold raises LeaseLost and changes nothing.
        """
    def parked(self, session_id: str) -> ParkedTurn | None:
        """Return what the parked turn of a session waits for; None if none of its turns is parked."""
    def holder(self, session_id: str) -> Lease | None:
        """Return the lease as it is stored, live or expired; None if it is free."""
    def live(self, kind: ResourceKind | None = None, *, limit: int = 100, cursor: str | None = None) -> LeasePage:
        """Return the live leases of sessions and processes, or of one kind, in the order in which they were acquired.

        The lease of a process that ended is not listed. Pages do not overlap; a lease that is acquired while they are
        read may be missing. It is one statement, and its cost grows with the number of leases that are held, not with
        that of the sessions and processes.
        """

class LimitStore:
    """Limits by name and key: how often something starts, and how much of it runs at once.

    A limit exists as long as reservations reach into the future, or places are held or waited for.
    """
    def reserve(self, name: str, key: str = "", *, rate: Rate) -> Reservation:
        """Reserve the next free moment under a limit: now, or later if the rate is used up. One write.

        Reservations get their moments in the order in which they are made, over all callers of the storage. Not
        idempotent, and never taken back: a caller that does not start leaves its moment unused, so the rate is never
        exceeded. Each reservation brings its rate along. A changed one decides from then on; earlier reservations keep
        their moments.
        """
    def take(self, name: str, key: str = "", *, concurrency: int, fence: LeaseFence, step: str = "") -> bool:
        """Take a place under a limit on concurrency; return False if all are held, and wait in its line. One write.

        At most ``concurrency`` places are held, each by a live lease. They are given in the order in which runs asked,
        over all callers of the storage. A place is free once ``leave`` gives it back, or once the lease under which it
        was taken has been released or has expired. It is then offered for 30 seconds to the first run that waits, whose
        session or process is woken; the run calls ``take`` again. A run that does not come in this time loses its
        place in the line.

        Idempotent: the place belongs to the step of the session or process. A later run of it keeps a place that was
        not yet given to another run. Each call brings its concurrency along; another one decides from then on, also
        about runs that wait. A fence that does not hold raises LeaseLost.
        """
    def leave(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> bool:
        """Give back a place, or stop waiting for one, and return whether there was one; the next run is woken.

        A place that a later run of the same step holds stays. It needs no live lease.
        """
    def offered(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> None:
        """Return once a run that waits in memory should call ``take`` again; spurious returns are possible."""
    def pass_on(self, *, limit: int = 100) -> int:
        """Offer the places of holders that died, and return how many lines were checked; workers call it.

        At most ``limit`` lines are checked, those in which a lease or an offer has expired while runs wait.
        """
    def places(self, name: str, key: str = "", *, limit: int = 100, after: int = 0) -> tuple[LimitPlace, ...]:
        """Return at most ``limit`` places of a line after a number, held or waited for, in the order of their runs."""
    def list(self, *, limit: int = 100, after: tuple[str, str] | None = None) -> tuple[LimitState, ...]:
        """Return at most ``limit`` limits in use, by name and key, after the name and key of ``after``."""
    def prune(self, *, limit: int = 1000) -> int:
        """Remove at most ``limit`` limits that nothing uses any more, and return how many. Workers call it."""

class Maintenance:
    """Removes old and unused rows. Every call is idempotent and can run at any time, during other work too.

    The work is done in small transactions. If one of them fails, MaintenanceFailed carries the report of the work done
    before it, with the error as its cause.
    """
    def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        """Find rows that nothing needs, and remove them unless ``dry_run``.

        Every write removes the rows that it makes superfluous, so this is an audit that should find nothing. It reads
        every table once.
        """
    def find_damage(self) -> tuple[Damage, ...]:
        """Read every row once, and return what cannot be true, each with what to do; change nothing.

        It finds rows that cannot be read, that do not have their hash, that are missing, and that contradict each
        other. At most 100 findings of each kind are returned. Bytes of attachments outside the database are not read.
        Run it while no other program writes: rows that change meanwhile may seem to contradict each other.
        """
    def prunable(self, *, older_than_ms: int) -> Prunable:
        """Count the rows that are older than this and could be pruned, here and by the other stores.

        Changes nothing. It reads every table that has an age. The positions of change feed readers are not considered.
        """
    def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        """Remove the record of turns that were committed longer ago than this.

        A commit that repeats such a turn is no longer recognised; it raises RevisionConflict, like a new one. Nothing
        else of a turn is removed.
        """
    def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        """Free the source keys of batches that were consumed or cancelled longer ago than this.

        A late duplicate of such a batch is no longer recognised; it is enqueued as a new batch.
        """
    def prune_activity(self, *, older_than_ms: int = ...) -> PruneReport:
        """Remove live activity that is older than this, by default older than the 120 seconds for which it is kept.

        New activity removes the old activity of its session; this removes that of sessions without new activity.
        """
    def rewrap(self) -> RewrapReport:
        """Seal every value again that is plain or sealed with another key than the current one.

        Idempotent; it can be stopped and run again, and runs beside other work. Once it has run, and every program that
        uses the storage seals with the current key, the older keys are not needed any more. Live activity is not sealed
        again: what is older than the 120 seconds for which it is kept is removed.

        Raises CannotUnseal for a value that no key opens, and does nothing without a sealer.
        """

class OccurrenceStore:
    """Recorded occurrences and their deliveries."""
    def emit(self, request: OccurrenceRequest) -> EmitReport:
        """Record an occurrence and start a process for every subscription that matches, in one transaction.

        It matches the enabled subscriptions with the same source type and key. Each gets a process, whose id follows
        from occurrence and subscription, with a grant for the session that it wakes. A process that cannot be started
        is a rejected delivery with a reason; the others start. Deliveries are in the order in which the subscriptions
        were created.

        Idempotent: the same request, from any machine at any time, returns the first report and writes nothing. Later
        subscriptions are not matched. Other content under the same idempotency key of the source raises
        OccurrenceConflict.
        """
    def get(self, occurrence_id: str) -> Occurrence | None:
        """Return an occurrence, or None."""
    def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        """Return the current deliveries in the order of the report, or raise OccurrenceNotFound."""
    def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        """Try a rejected delivery again, with the current subscription; return a started one unchanged.

        Raises TriggerNotFound if the subscription is gone, TriggerConflict if it is disabled or has another source,
        and OccurrenceNotFound if the delivery is unknown.
        """
    def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        """Remove the oldest occurrences from before a moment, at most ``limit``, except those with a running process.

        While an occurrence is kept, none of its processes is started a second time, even after it was pruned. Emitting
        a removed occurrence is a new occurrence.
        """

class ProcessHandle(Generic[R]):
    """A process by its id. The handle holds no state: every call reads the storage."""

    process_id: str
    def record(self) -> ProcessRecord:
        """Return the current record of the process; raise ProcessNotFound if it does not exist or was pruned."""
    def status(self) -> ProcessStatus: ...
    def result(self, *, timeout_s: float | None = None) -> R:
        """Wait for the end of the process and return its result; raise ProcessFailed if it did not succeed.

        Raises WaitTimedOut if the time is over first; the process continues.
        """
    def signal(self, name: str, payload: JSON = None, *, key: str | None = None) -> None:
        """Send a signal. The same key is one signal, however often it is sent."""
    def cancel(self, reason: str = "") -> None:
        """Ask the process to stop. A running one is cancelled at its next await, a parked one is woken for it."""
    def rerun(self, process_id: str | None = None) -> ProcessHandle[R]:
        """Start the same process again, with the same input, under a new id, and return a handle on it.

        Nothing that this one recorded is used: every step runs again. The new one names this one in
        ``provenance.rerun_of``. It belongs to the same session and wakes the same one, and has no parent process. With
        an id the call is idempotent; another process of this id raises RegistrationConflict. Raises ProcessNotFound if
        this one was pruned, and InvalidInput if it is external.
        """
    def events(self, after: int = 0, *, limit: int = 1000) -> tuple[ProcessEvent, ...]:
        """Return the events after a sequence number, in order: at most ``limit``, which is at most 1,000.

        If there are as many, there may be more: pass the ``sequence`` of the last one as ``after``.
        """
    def unknown_steps(self) -> tuple[EffectRecord, ...]:
        """Return the ``once`` steps that started and have no outcome, including those of a live run."""
    def record_outcome(self, step_key: str, outcome: JSON | EffectError) -> None:
        """Record the outcome of a step whose outcome is unknown; the process continues with it at once.

        ``step_key`` is the one that OutcomeUnknown and `unknown_steps` name. Raises EffectNotRecorded if no run
        started it, Conflict if it has an outcome or its runner may still be alive.
        """
    def run_again(self, step_key: str) -> None:
        """Let a step whose outcome is unknown run again; the caller knows that it did not happen."""

class ProcessLeaseStore:
    """Expiring, fenced rights to run a process. Fencing numbers only grow.

    A process is on the work list (`lash.stores.work.WorkStore`) from its registration to its end, unless it is parked.
    A signal, a cancel or abandon request, and the end of a process that it started wake it, in the transaction of that
    event.
    """
    def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        """Acquire the right to run a process if its lease is free or expired; the same holder re-enters.

        The refusal says why: the process ended, is external, is bound to another owner, or has a live lease. The first
        claim of an owner appends a ``process.started`` event.
        """
    def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        """Register a process and acquire the right to run it, in one transaction, with the rows of both calls.

        Acquires nothing, and returns `Registered` as `register` does, if the process was registered before or is
        external. So does a repetition after an unknown outcome; the lease that the first call acquired then expires.
        """
    def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        """Acquire the right from a holder that is provably a dead process of this machine; otherwise as ``claim``."""
    def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a lease, never shorten it; raise LeaseLost if the fence does not hold it.

        An expired lease is extended too, if it was neither released nor taken by another owner.
        """
    def release(self, fence: LeaseFence) -> bool:
        """Free the lease if this fence still holds it, and return whether it did. The process is then ready."""
    def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        """Free a live lease and take the process off the work list until a moment, or (None) until it is woken.

        ``wake_seq`` comes from the claim. If the process was woken since, it stays on the work list and the method
        returns False: run it again. A process that ended meanwhile is not on the list anyway. A fence that does not
        hold raises LeaseLost and changes nothing. No event is appended: like the lease, parking is scheduling state.
        """
    def continue_as_new(self, fence: LeaseFence, continuation: Continuation) -> ProcessRecord:
        """End this run of the process and begin the next one, in one transaction, if the fence is live.

        The record has the number of the new run; the log has the event ``process.continued`` with the continuation. The
        effects of the last run are deleted. Signals, waits, children, requests and the lease stay as they are.
        Repeating it is idempotent. Raises InvalidInput unless the number of the run is the next one, EventConflict if
        that run began with another continuation, ProcessTerminal if the process ended, LeaseLost as `append` does.
        """
    def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        """End the process and free the lease, in one transaction, if the fence is live; otherwise raise LeaseLost.

        Repeating it after an unknown outcome is safe: the stored outcome is recognised.
        """
    def holder(self, process_id: str) -> Lease | None:
        """Return the lease as it is stored, live or expired; None if it is free."""

class ProcessStore:
    """The processes of a storage. A record changes only by events of its log, in the same transaction.

    Methods that name a process raise ProcessNotFound if it was never registered, and ProcessPruned if it ended and was
    removed since.
    """
    def register(self, registration: Registration) -> Registered:
        """Register a process, or return the stored record of an equal registration, whatever happened to it since.

        Another registration under the same id raises RegistrationConflict. Concurrent equal ones all succeed.
        """
    def get(self, process_id: str) -> ProcessRecord | None:
        """Return the record; None if the process was never registered or was pruned."""
    def list(
        self, wanted: ProcessFilter = ..., *, with_state: bool = False, limit: int = 100, cursor: str | None = None
    ) -> ProcessPage:
        """Return processes that match the filter, the newest first. Pages do not overlap.

        ``with_state`` brings the `ProcessState` of each in the same read.
        """
    def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` ids that begin with a text, in the order of their characters; ended ones included.

        ``after`` is the last id of the previous page; a page with fewer than ``limit`` is the last. An id that equals
        the text is the first. It is one statement, which reads no more ids than it returns.
        """
    def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        """Return at most ``limit`` running processes that workers can run and that no live lease holds, by id.

        Waiting and parked processes are included, external ones are not. ``after`` is the last id of the previous page;
        a page with fewer than ``limit`` is the last. Use it to walk through all of them;
        `lash.stores.work.WorkStore.poll` returns what a worker should claim next.
        """
    def versions(self) -> tuple[ProcessVersion, ...]:
        """Return how many processes have not ended, by the definition under which they were started; by name.

        External processes are left out. It is one statement, which reads an index entry for each of them.
        """
    def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        """End a process without a lease: an external one, or by an operator.

        Repeating the same outcome is idempotent; another one raises EventConflict or ProcessTerminal. An Abandonment is
        refused: use ``abandon``.
        """
    def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        """End a process whose outcome is unknown, after an abandon request and once no live lease holds it.

        Raises Conflict while a lease is live, and if abandonment was not requested.
        """
    def request_cancel(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Ask a process to stop. The request is durable: the process ends when its run sees it."""
    def request_abandon(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Record that an operator abandons the process; ``abandon`` requires it."""
    def set_external_ref(self, process_id: str, reference: ExternalRef) -> ProcessRecord:
        """Record where else the process can be found; the last reference counts."""
    def set_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Park a running process until a signal; raise ProcessTerminal if it ended, LeaseLost as `append` does."""
    def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Record that the process continues after the signal; the fence is checked as by `set_wait`."""
    def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        """Remove at most ``limit`` processes that ended before a moment, with their logs, and leave tombstones.

        ``through_cursor`` is the position of the slowest reader of the change feed: nothing that it has not read is
        removed. Pass None if the feed has no reader. A cursor of another epoch of the feed removes nothing.
        """
    def prune_changes(self, *, before_ms: int, limit: int = 1000) -> int:
        """Remove the oldest changes of the feed, at most ``limit``, that happened before a moment; return how many.

        A reader whose cursor is older gets a gap, and so does the tail of events. The logs of the processes keep all
        their events.
        """

class ProcessWaiter:
    """Waits for events and ends of processes, without a query for each caller.

    A lost hint delays a wait by at most a second. A caller that is cancelled leaves nothing behind.
    """
    def wait_event_after(
        self, process_id: str, event_type: str, sequence: int = 0, *, timeout_s: float | None = None
    ) -> ProcessEvent:
        """Return the first event of a type after a sequence, at once if it is in the log, else when it is appended.

        Raises WaitTimedOut if it is not in the log at the end of that time, ProcessNotFound or ProcessPruned if the
        process does not exist, and StorageClosed if the storage is closed meanwhile.
        """
    def await_outcome(self, process_id: str, *, timeout_s: float | None = None) -> Outcome:
        """Return how a process ended, at once if it has, else when it does; raises like `wait_event_after`."""

class QueueStore:
    """The queued work of a storage, in order for each session; no batch is lost or consumed twice.

    A batch is *claimed* while a live claim holds it: one that has not expired and was made under the session's current
    lease. No other caller can claim or cancel it then. An expired claim still completes if no other claim took its
    batches. All methods that name a session raise SessionNotFound or SessionDeleted if it does not exist.
    """
    def enqueue(self, draft: BatchDraft) -> Enqueued:
        """Add work to the end of the queue; durable once this returns.

        Idempotent under a source key: a repeat adds nothing and returns the state of the first batch, also after it
        was consumed, cancelled or buried. Other content under the same key raises SourceKeyConflict; the agent that a
        message names is not part of its content.
        """
    def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        """Claim the next group of turn work under a live lease, all of it, or return why there is none.

        The group is the first batch that is ready at this boundary and the batches directly behind it that share its
        delivery and merge key. An exclusive batch, or one without a merge key, is a group of its own. At a checkpoint
        only early work counts, and it does not wait behind later work. Nothing overtakes an earlier ready command.
        """
    def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        """Take the lease of a session and claim the next group of turn work under it, both or neither, in one write.

        The group is that of an idle ``claim``. The lease must be free or lapsed: a live one is Busy, also to its
        holder. A paused session yields NothingClaimed. The answer includes the session's revision and whether an
        earlier attempt left recorded effects, so a worker needs no other read to start.
        """
    def enqueue_and_claim(
        self, draft: BatchDraft, owner: LeaseOwner, *, ttl_ms: int
    ) -> tuple[Enqueued, ClaimedTurn | None]:
        """Enqueue a batch and begin the turn of its session with it, in one write, if nothing comes before it.

        The rows are those of ``enqueue`` and ``claim_turn``. The batch is only enqueued, and nothing is claimed, if the
        session has other queued work, claimed or delayed work included, if its lease is not free, if it was paused or
        parked, if the batch is delayed or a command, or if its source key is known.
        """
    def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        """Claim the session command at the head of the queue, unless turn work comes first."""
    def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        """Claim exactly these batches if an idle claim of as many would get them; otherwise change nothing."""
    def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        """Extend a claim, never shorten it; raise ClaimLost, and change nothing, if a batch of it was taken.

        Returns the claim with the earliest expiry that is stored for its batches.
        """
    def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        """Return the batches that the claim still holds to the queue, and return their number.

        The attempt counts as failed. With ``count_attempt=False`` it does not count at all: the work was stopped, it
        did not fail.
        """
    def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        """Move the batches of a claim from the queue to the dead letters, and return their number.

        The claim must hold all its batches; otherwise this raises ClaimLost and changes nothing. An expired claim
        whose batches no other claim took can still be buried. Idempotent: burying a claim again changes nothing and
        returns the same number. Source keys stay reserved, and wakes stay unacknowledged.
        """
    def dead(
        self, *, session_id: str | None = None, prefix: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[DeadLetter, ...]:
        """Return at most ``limit`` dead letters in the order in which they died, of one session or of all.

        With ``prefix``, those of the sessions whose id begins with it. ``after`` is the ``position`` of the last letter
        of the previous page. A page with fewer than ``limit`` is the last.
        """
    def requeue(self, session_id: str, batch_id: str) -> Batch:
        """Move a dead letter to the end of the queue, under the same id, with its attempts reset.

        Raises DeadLetterNotFound if there is none, so only one of two concurrent callers succeeds.
        """
    def discard(self, session_id: str, batch_id: str) -> bool:
        """Delete a dead letter and return whether it existed.

        Its source key and its wake are then treated like those of a cancelled batch.
        """
    def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        """Remove a batch that is not claimed, and return it; None if it is claimed or does not exist."""
    def list(self, session_id: str, *, limit: int = 1000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return at most ``limit`` queued batches, in order, claimed or not.

        ``after_seq`` is the ``seq`` of the last batch of the previous page. A page with fewer than ``limit`` is the
        last.
        """
    def list_pending(self, session_id: str, *, limit: int = 1000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return at most ``limit`` queued batches that are not claimed, delayed ones included; paged like ``list``."""
    def list_all(
        self, *, prefix: str | None = None, state: QueuedState | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[QueuedBatch, ...]:
        """Return at most ``limit`` queued batches of all sessions, in the order in which they were enqueued.

        With ``prefix``, those of the sessions whose id begins with it; with ``state``, those in that state. ``after``
        is the ``batch.seq`` of the last batch of the previous page. A page with fewer than ``limit`` is the last. A
        batch that is enqueued while the pages are read may be missing from them.

        It is one statement. Without a filter the cost does not depend on how much is queued; with ``prefix`` it grows
        with the input of these sessions, and with DELAYED, PARKED or CLAIMED with the number of such batches.
        """
    def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` sessions that have ready work and no live lease, for workers to poll.

        The cost does not depend on the length of the queues. ``after`` is the last session of the previous page. A page
        with fewer than ``limit`` is the last.
        """
    def ready_agents(self, *, limit: int = 100) -> tuple[str | None, ...]:
        """Return at most ``limit`` agents that have queued input which is not delayed, claimed or not, by name.

        Input is for the agent that it names, or else for that of the session's last turn; None, the last one, is input
        for which neither is known. The cost depends on the number of agents, not on the length of the queues.
        """

class RecordStore:
    """Small values under a collection and a key, with a version for compare-and-set and an optional expiry.

    A record belongs to a session (``session_id``) and is deleted with it, or to the storage (None). Calls about a
    session raise SessionNotFound or SessionDeleted if it does not exist. `Commit.records` changes records with a
    commit. A put, a get and a page cost the same however many records the collection has.

    An expired record reads as absent, by the clock of the storage: its key is free, and the next put writes version 1.
    """
    def get(self, collection: str, key: str, *, session_id: str | None = None) -> Record | None:
        """Return one record; None if it is absent or has expired."""
    def get_many(self, collection: str, keys: Collection[str], *, session_id: str | None = None) -> dict[str, Record]:
        """Return the records of at most 1,000 keys that exist, by key, as of one moment."""
    def put(
        self,
        collection: str,
        key: str,
        value: RecordValue,
        *,
        session_id: str | None = None,
        index: Mapping[str, str] | None = None,
        ttl_ms: int | None = None,
        expires_at_ms: int | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Write a record and return its version: 1 for a new one, one more than before for an existing one.

        ``expected_version`` makes it a compare-and-set: n for this version, 0 for no record, None for any. Raises
        RecordConflict and writes nothing if another is stored. The put replaces the whole record, its index fields and
        its expiry included. ``index`` has at most 4 names with texts of up to 255 characters. ``ttl_ms`` counts from
        now by the storage's clock; ``expires_at_ms`` is absolute. A call whose connection was lost is not repeated: it
        raises StoreUnavailable with ``outcome_unknown``.
        """
    def put_many(self, puts: Sequence[RecordPut]) -> tuple[int, ...]:
        """Write at most 1,000 records of any collections and owners, all or none, and return their versions in order.

        Raises InvalidInput if two of them have the same name.
        """
    def delete(
        self, collection: str, key: str, *, session_id: str | None = None, expected_version: int | None = None
    ) -> bool:
        """Remove a record, and return whether there was one. ``expected_version`` is that of `put`."""
    def delete_many(self, deletes: Sequence[RecordDelete]) -> int:
        """Remove at most 1,000 records, all or none, and return how many there were."""
    def list(
        self,
        collection: str,
        *,
        session_id: str | None = None,
        prefix: str = "",
        where: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
        reverse: bool = False,
    ) -> tuple[Record, ...]:
        """Return at most ``limit`` records, ordered by key, code point by code point; ``reverse`` starts at the end.

        ``prefix`` is the start of their keys, ``where`` the values of their index fields. ``after`` is the key of the
        last record of the previous page. A page with fewer than ``limit`` is the last. With several fields in
        ``where``, the first is read by its index and the others are compared: put the rarest value first.
        """
    def collections(self, *, session_id: str | None = None) -> tuple[str, ...]:
        """Return the collections that have a record, expired or not, sorted."""
    def prune(self, *, expired_before_ms: int | None = None, limit: int = 100) -> int:
        """Remove at most ``limit`` records that expired before a moment, by default now, and return how many.

        Workers call it. Call it again until it returns 0.
        """

class ScheduleStore:
    """Cron as a source of occurrences.

    A schedule is identified by its owner and key. Each of its ticks becomes one occurrence of type ``cron`` under the
    schedule's source key, with the time of the tick as its idempotency key. It starts a process for every subscription
    to that source. Workers call `fire_due`; a schedule does nothing without a worker.
    """
    def register(self, draft: ScheduleDraft) -> RegisteredSchedule:
        """Create a schedule, whose first tick is the next one after now.

        Idempotent: a repetition returns the current schedule. Another definition under the same owner and key raises
        ScheduleConflict. SessionNotFound or SessionDeleted mean that the owner is a session that does not exist. A
        cron expression that cannot be parsed or never ticks, and an unknown time zone, raise InvalidInput.
        """
    def update(self, draft: ScheduleDraft, *, revision: int) -> Schedule:
        """Replace the definition of a schedule; its next tick is the next one after now.

        Raises ScheduleConflict unless the schedule is at this revision. An equal definition changes nothing.
        """
    def enable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Enable a schedule from now on; ticks during the time in which it was disabled are not emitted."""
    def disable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Disable a schedule; ticks that are due and not yet emitted are dropped."""
    def delete(self, owner: TriggerOwner, key: str, *, revision: int) -> None:
        """Remove a schedule. Its owner and key can be used again; revisions continue from the last one."""
    def delete_session(self, session_id: str) -> int:
        """Remove all schedules of a session and return their number.

        Deleting the session does the same, in its own transaction.
        """
    def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        """Remove the oldest tombstones from before a moment, at most ``limit``, and return how many were removed.

        A later schedule of such an owner and key starts again at revision 1.
        """
    def get(self, owner: TriggerOwner, key: str) -> Schedule | None:
        """Return a schedule, or None."""
    def list(
        self,
        owner: TriggerOwner | None = None,
        *,
        enabled: bool | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SchedulePage:
        """Return a page of schedules, of one owner or of all, ordered by owner (the host first) and key."""
    def next_fire_at_ms(self) -> int | None:
        """Return the moment at which `fire_due` has work again, or None if no schedule will tick."""
    def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        """Emit the due ticks of at most ``limit`` schedules, longest due first.

        Any number of workers may call it concurrently: one of them emits each tick, in one transaction with its
        deliveries, their processes and the schedule's next tick. A crash neither loses nor repeats a tick. One call
        emits at most 100 ticks of a schedule; the rest are due at once. A schedule that this machine cannot read is
        reported and does not stop the others.
        """

class Session:
    """A handle on one session. It holds no state: every call reads or writes the database.

    Every method raises SessionNotFound if the session was never created, and SessionDeleted once it was deleted.
    """
    @property
    def session_id(self) -> str: ...
    def head(self) -> SessionHead | None:
        """Return the head alone, which is cheap; None before the first commit."""
    def revision(self) -> int:
        """Return the revision that the next commit must expect, before the first commit too."""
    def load(self, scope: ReadScope = ...) -> SessionRead | None:
        """Return one committed revision, never a mixture of two; None before the first commit.

        The scope defaults to the active path of the head. A path ends where an ancestor was removed; the path of
        an unknown leaf is empty. Damaged data raises CorruptData; it is never left out.
        """
    def raw_path(self, *, leaf_node_id: str | None = None, last: int | None = None) -> tuple[RawNode, ...]:
        """Return the path to a leaf, by default the head's, or only its last nodes, without decoding them.

        These are the nodes that `load` returns for an `ActivePath`, and nothing else of the revision. The last nodes
        are a read of their rows alone. If they are more than 500, others may be erased while they are read. Empty
        before the first commit, and for an unknown leaf.
        """
    def node(self, node_id: str) -> Node | None:
        """Return a live node of any branch, own or inherited; None if there is none of this id."""
    def nodes(self, node_ids: Collection[str]) -> dict[str, Node]:
        """Return the live nodes of these ids, of any branch, own or inherited; others are left out."""
    def children(self, node_id: str, *, after: str | None = None, limit: int = 100) -> tuple[Node, ...]:
        """Return the live children of a live node, own or inherited, in the order of insertion.

        Returns no nodes if the parent is unknown. ``after`` is the last node of the previous page; raises NodeNotFound
        if it is unknown. The cost depends on the page alone, however large the graph is.
        """
    def list_nodes(
        self, kind: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> tuple[Node, ...]:
        """Return the live nodes of all branches whose `Node.kind` is this one.

        The order is that of insertion, inherited nodes first; or the opposite order. ``after`` is the last node of the
        previous page; raises NodeNotFound if it is unknown. The cost depends on the page alone, with one exception: a
        fork reads its whole inherited path for a page that contains inherited nodes.
        """
    def checkpoint(self, revision: int | None = None, *, turn_id: str | None = None) -> Checkpoint | None:
        """Return the checkpoint of a revision or of a turn, by default the head's; None if it is not kept.

        That of a turn is the one that its commit or append left. It is found by the record of the turn, so None is
        also the answer for a turn that was not committed or whose record was pruned. It takes a second read.
        """
    def checkpoint_manifest(
        self, revision: int | None = None, *, turn_id: str | None = None
    ) -> CheckpointManifest | None:
        """Return the same without the bytes of its components."""
    def turns(self, turn_ids: Collection[str]) -> dict[str, TurnRecord]:
        """Return what is kept of committed turns, with the traces of their steps; turns without a record are left out.

        The nodes of a turn name it in ``caused_by``. The record of a turn is pruned some time after its commit.
        """
    def blob(self, ref: BlobRef) -> bytes:
        """Return bytes that the session holds, or raise BlobNotFound."""
    def commit(self, commit: Commit, *, work: bool = True) -> CommitResult:
        """Publish a new head with everything that belongs to it, atomically and durably.

        The checks come in this order, and the first failure wins: binding (SessionBindingMismatch), existence,
        turn replay (TurnConflict), fence (LeaseLost), revision (RevisionConflict), claims (ClaimLost), graph
        (GraphConflict, GraphShared, NodeConflict, NodeNotFound), refs (BlobNotFound). A refused commit changes
        nothing.

        Repeating a commit that carries a turn id is always safe: it returns the first result and writes nothing
        again, also when the head has moved on, when the lease is gone, and when both run at once. The repeat still
        releases the lease that ``release`` names, if it holds.

        With ``work=False`` workers get no hint: the caller itself looks for further input of the session.
        """
    def append(self, nodes: Sequence[Node], *, turn_id: str | None = None, often_read: bool = False) -> AppendResult:
        """Add nodes below the current leaf, whatever it is, atomically and durably; the last becomes the leaf.

        The caller needs neither the revision nor the leaf, and no number of concurrent callers makes it fail. Each node
        follows the one before it, and the first follows the leaf; their ``parent_node_id`` must be None. Every append
        is one revision. Configuration, frames, checkpoint and usage stay as they are; on a session without a commit
        they are the defaults. Like a commit without a fence, an append is independent of the session's lease.

        An append that begins after another one was acknowledged comes after it on the path, and callers of one
        storage are acknowledged in the order of the path.

        Repeating an append that carries a turn id is always safe: it returns the first result and writes nothing
        again; other content under the turn id raises TurnConflict. A node id that is taken raises NodeConflict. So a
        caller without a turn id may repeat an append of unknown outcome with the same node ids: the repeat never
        writes the nodes twice, and NodeConflict means that the first one was written.

        With ``often_read=True`` texts of 1,024 to 4,095 bytes are not compressed under the profile `balanced`: they
        take up to twice the space, and are read in less than half of the time. Nothing else depends on it.
        """
    def meta(self) -> SessionMeta:
        """Return the metadata."""
    def save_meta(self, meta: SessionMeta) -> None:
        """Overwrite the metadata. The head is not touched."""
    def edit(
        self,
        *,
        name: str | UnsetType = ...,
        owner: str | None | UnsetType = ...,
        labels: dict[str, str] | UnsetType = ...,
        metadata: JSONObject | UnsetType = ...,
        expires_at_ms: int | None | UnsetType = ...,
        retention: Retention | None | UnsetType = ...,
    ) -> None:
        """Change the given parts of the metadata in one write; the others, and the head, are not touched.

        Labels and metadata are replaced as a whole. None removes the owner, the expiry, or the session's own retention.
        A new retention holds from the next commit on, which drops the checkpoints that are too many.
        """
    def tombstone(self, node_ids: Collection[str]) -> int:
        """Remove nodes from every read at once, and return how many were live until now.

        Unknown ids are ignored. A node on the active path, one that this session inherits from its source, or one
        that a fork inherits from it, is refused (InvalidInput) and then none is removed.
        """
    def erase(self, node_ids: Collection[str], *, fence: LeaseFence | None = None) -> int:
        """Delete the content of nodes at once and for good, and return how many had content until now.

        An erased node keeps its id, its parent and its place, so that every path through it stays whole. Paths leave it
        out; other reads return it with an `ErasedEntry`, whose node has the time of the erasure. It can still be a
        parent, a leaf or the start of a fork. An erasure publishes a revision of its own and changes nothing else: a
        turn that runs meanwhile gets RevisionConflict and is repeated. ``fence``, if given, must be live (LeaseLost).
        Repeating an erasure is safe and changes nothing again.

        Unknown and removed ids are ignored. A node that this session inherits from its source, or that a fork inherits
        from it, is refused (InvalidInput), and then no node is erased.
        """
    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Delete the removed nodes of this session permanently, and no other session's; a dry run only counts them."""

class SessionHandle:
    """One durable conversation. The handle holds no state: every call reads the storage."""

    session_id: str
    def send(
        self,
        text: str,
        *,
        key: str | None = None,
        early: bool = False,
        attachments: Sequence[AttachmentRef] = ...,
        at: datetime | None = None,
        priority: int = 0,
        instead_of: str | None = None,
    ) -> Enqueued:
        """Send a message to the agent; it is durable once this returns.

        The key makes it idempotent: a resend returns the first message. An ``early`` message may join a running turn
        where its agent calls `lash.Turn.join_early_input`; others get their own turn. ``at`` delays it.
        Sessions with a message of a higher ``priority``, 0 to 9, come before others; the order within a session stays.
        ``instead_of`` is the id of an earlier message of the user, which it replaces as `edit` does.
        """
    @overload
    def ask(
        self,
        text: str,
        *,
        key: str | None = None,
        timeout_s: float | None = None,
        attachments: Sequence[AttachmentRef] = ...,
        priority: int = 0,
    ) -> str: ...
    @overload
    def ask(
        self,
        text: str,
        *,
        of_type: type[T],
        key: str | None = None,
        timeout_s: float | None = None,
        attachments: Sequence[AttachmentRef] = ...,
        priority: int = 0,
    ) -> T: ...
    def edit(self, message_id: str, text: str, *, key: str | None = None, timeout_s: float | None = None) -> str:
        """Send a message instead of an earlier one of the user, and return the reply, as `ask` does.

        It starts a branch where the earlier message stands; what followed that one is kept on its own branch. The agent
        sees the conversation up to there, with the current state. Raises NodeNotFound for an unknown message.
        """
    def regenerate(
        self, message_id: str | None = None, *, key: str | None = None, timeout_s: float | None = None
    ) -> str:
        """Have a message of the user answered again, and return the new reply, as `ask` does.

        ``message_id`` is the message or its reply, by default the last message of the user. The new reply starts
        a branch beside the earlier one.
        """
    def branches(self, message_id: str) -> tuple[Message, ...]:
        """Return the alternatives to a message, itself included, the earliest first: edits, or replies to one message.

        It reads the whole graph of the session.
        """
    def switch(self, message_id: str) -> None:
        """Make the branch that a message is on the conversation, up to the last message that was added to it.

        Raises SessionBusy while a turn is between its start and its commit. It reads the whole graph of the session.
        """
    def fork(self, session_id: str | None = None, *, at: str | None = None) -> SessionHandle:
        """Create a session that continues from a message of this one, by default from its end, and return its handle.

        Without ``session_id`` it gets a new one; with it, a repeated call returns the fork that exists. See
        `lash.stores.session.SessionStore.fork`.
        """
    def state(self) -> dict[str, JSON]:
        """Return the state that the last turn saved: what its agent sees as ``turn.state``."""
    def messages(self, last: int | None = None) -> list[Message]:
        """Return the conversation as it stands, or its last so many messages; none before the first was sent."""
    def transcript(self, last: int | None = None) -> list[TranscriptEntry]:
        """Return the conversation with times, followed by the input that is queued or running.

        ``last`` is how many committed messages are returned at most.
        """
    def attach(self, content: bytes, media_type: str, *, label: str | None = None) -> AttachmentRef:
        """Store a file with the session, and return the reference for ``attachments`` of `send` and `ask`.

        A file that no message names is deleted by a sweep, after a day by default.
        """
    def describe(
        self,
        *,
        name: str | UnsetType = ...,
        owner: str | None | UnsetType = ...,
        labels: dict[str, str] | UnsetType = ...,
        metadata: JSONObject | UnsetType = ...,
    ) -> None:
        """Set what lists of sessions show and filter by; create the session if it does not exist.

        What is not given stays as it is. Labels and metadata are replaced as a whole.
        """
    def meta(self) -> SessionMeta | None:
        """Return name, owner, labels and metadata; None before the session exists."""
    def usage(self) -> tuple[UsageEntry, ...]:
        """Return the tokens spent, in all."""
    def pending(self, *, limit: int = 1000, after: int = 0) -> tuple[Batch, ...]:
        """Return the queued batches, claimed or not, in order: at most ``limit``, which is at most 1,000.

        If there are as many, there may be more: pass the ``seq`` of the last one as ``after``.
        """
    def cancel(self, reason: str = "", *, batch_id: str | None = None) -> bool:
        """Cancel the running turn, or the message that `send` returned with this id; return whether there was one.

        A message whose turn has not started is removed from the queue. The agent of a running turn gets CancelledError
        at its current await. Then its input is consumed and the session continues; nothing else of it is committed.
        A turn that waits for its next attempt is cancelled when that starts.
        """
    def dead_letters(self, *, limit: int = 100, after: int | None = None) -> tuple[DeadLetter, ...]:
        """Return the dead letters, the oldest first: input whose turns failed permanently.

        At most ``limit``, which is at most 1,000. If there are as many, there may be more: pass the ``position`` of the
        last one as ``after``.
        """
    def requeue(self, batch_id: str) -> Batch:
        """Move a dead letter to the end of the queue; its recorded steps are not run again."""
    def observe(self, cursor: str | None = None) -> Stream[Observed]:
        """Yield what happens in the session, from now on or after a cursor: activity, commits, changes.

        Any process can continue after a value with its cursor; a `lash.Gap` reports lost values.
        """
    def cursor(self) -> str:
        """Return the current cursor: take it, load the messages, then observe from it, and nothing is missed."""
    def delete(self) -> bool:
        """Delete the session with all it owns."""

class SessionStore:
    """The sessions of a storage."""
    def create(
        self,
        session_id: str,
        *,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        relation: SessionRelation = ...,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
        commit: Commit | None = None,
    ) -> CreatedSession:
        """Create a session, or return the one that exists, unchanged.

        ``owner`` and at most 32 ``labels`` are indexed for `list`. ``metadata`` is JSON of up to 64 KiB. From
        ``expires_at_ms`` on, maintenance deletes the session. ``retention`` is how many checkpoints the session keeps;
        None: as many as the storage is opened with.

        Of any number of concurrent calls one creates. An id that was deleted may be created again; its revision
        and fencing numbers then start above the old ones, so that no old revision or fence matches.

        With ``commit``, the session and its first commit are one write, whole or not at all: a commit that is refused
        creates nothing. Its ``expected_revision`` must be 0, whatever the number from which the session starts. A
        session that exists is returned without the commit, unless the commit has a turn id that the session has: then
        the result is the first one, or TurnConflict is raised over other content. So the call may be repeated if the
        commit carries a turn id.
        """
    def fork(
        self,
        source_session_id: str,
        new_session_id: str,
        *,
        node_id: str | None = None,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
    ) -> CreatedSession:
        """Create a session that continues from a live node of another one, by default from its leaf.

        The fork shares the path to that node and no later node or other branch; the whole graph of a fork is that path
        followed by its own nodes, and node ids are unique among them. What either side does later is invisible to the
        other, and deleting one leaves the other whole. The fork has a head at once: configuration, frames and
        checkpoint are copies of those of the source's head, also when the node is an earlier one, as an older state
        is not kept. So are its committed attachments, whose bytes are shared. Usage, turns, queue, claims and lease
        are not inherited, metadata only as given here.
        A fork of a session without a commit has none either.

        The checks come in this order: the new id is free (SessionExists), the source exists (SessionNotFound,
        SessionDeleted), the node is live in it (NodeNotFound). Repeating a fork returns the one that exists, unchanged.
        """
    def open(self, session_id: str) -> Session | None:
        """Return a handle if the session exists; never create one."""
    def list(
        self,
        wanted: SessionFilter = ...,
        *,
        order: SessionOrder = ...,
        oldest_first: bool = False,
        with_head: bool = False,
        with_state: bool = False,
        with_counts: bool = False,
        with_checkpoint: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return the sessions that match the filter, by default all of them, the last created first.

        The entries have the columns that a picker shows and, on request, the head, the state, counts, and the
        checkpoint with its bytes, all from one read.

        In the order of creation, pages do not overlap. In the order of activity, a session that is active between two
        pages moves: it is shown again, or not at all, and the others are shown once. A cursor is valid for the same
        filter and order.

        A page costs what it shows if the filter is empty, and in the order of creation if it names an owner, a label or
        an agent. With an owner or a label in the order of activity, and with a prefix, a state or a source, all that
        match are sorted for each page. Other parts of a filter are checked on each session in the order of the list.
        """
    def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` ids that begin with a text, in the order of their characters.

        ``after`` is the last id of the previous page; a page with fewer than ``limit`` is the last. An id that equals
        the text is the first. It is one statement, which reads no more ids than it returns.
        """
    def changes(self, cursor: str | None = None, *, limit: int = 100) -> SessionChangePage:
        """Return the sessions that changed after a cursor, each once, as they are after their last change.

        A session changes when it is created, committed or appended to, edited, or deleted, and when nodes of it are
        tombstoned or erased. Without a cursor the feed begins with all sessions. A reader that keeps the cursor misses
        no session: it gets the last of several changes, and a session never goes back to an earlier revision. The order
        is that of the last changes; on PostgreSQL, of the transactions that made them, and a change by a transaction
        that ends late is returned when it has ended. A page with fewer than ``limit`` changes reaches the end.

        Nothing is pruned, so a cursor does not expire. It belongs to the epoch of the feed: in a storage that was
        restored, copied or moved, the page has a gap and begins at the start of the feed.
        """
    def changes_cursor(self) -> str:
        """Return the cursor after every change so far, for a reader that needs only later ones."""
    def follow(self, cursor: str | None = None, *, limit: int = 100) -> Stream[SessionChangePage]:
        """Yield the pages of `changes` that have changes or a gap, and wait for the next one at the end, without end.

        Commits and deletions are read soon after a hint, other changes within a second.
        """
    def delete_many(self, session_ids: Collection[str]) -> tuple[str, ...]:
        """Delete several sessions like `delete`, in the given order; return the ids of the existing ones.

        Each is deleted whole or not at all. If an error ends the call, some sessions may be deleted already.
        """
    def delete_expired(self, *, limit: int = 100) -> tuple[str, ...]:
        """Delete at most ``limit`` sessions whose expiry has passed, and return their ids; workers do it regularly.

        A session whose lease is live is left for a later call. Fewer than ``limit`` ids mean that no more were found.
        """
    def delete(self, session_id: str) -> bool:
        """Delete a session with everything that it owns, and leave a tombstone; return whether it existed.

        Its schedules and trigger subscriptions go first, then its ties to processes, then the rest, in one transaction.
        Nodes that a fork inherits stay, invisible to all but the forks, until the last of these is deleted too.
        Deleting an unknown id succeeds and leaves nothing behind.
        """

class Starter:
    """Starts processes with given options."""
    def start(self, process: Program[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ProcessHandle[R]:
        """Start a process and return a handle on it."""

class Storage:
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
    @property
    def limits(self) -> LimitStore:
        """How often steps may start, by name."""
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
    @property
    def work(self) -> WorkStore: ...
    @property
    def workers(self) -> WorkerStore:
        """The workers that run on this storage."""
    @property
    def triggers(self) -> TriggerStore: ...
    @property
    def occurrences(self) -> OccurrenceStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def usage(self) -> UsageStore:
        """The token ledgers of all sessions."""
    @property
    def waiter(self) -> ProcessWaiter:
        """Waits for events and ends of processes."""
    @property
    def session_waiter(self) -> SessionWaiter:
        """Waits for replies and news of sessions; used by the runtime only."""
    @property
    def waits(self) -> WaitStore: ...
    def session(self, session_id: str) -> Session:
        """Return a handle on one session, without checking that it exists."""
    def report(self) -> StorageReport:
        """Return the rows and bytes of each noun; cheap enough for a health check.

        On PostgreSQL the rows are the server's estimates of its last ANALYZE, and the bytes are exact. On SQLite the
        rows are exact up to 10,000 in a table. Beyond that they are estimated: by the highest row number of a table
        that has row numbers, else by a lower bound. The total bytes are exact except for the write-ahead log. The
        bytes of a noun are measured only in files of at most 4,096 pages, because that reads every page.
        """
    def counts(self) -> StorageCounts:
        """Return how many sessions, batches, dead letters, processes and waits there are by state, in one statement.

        The numbers are of one moment. It reads an index of each of them, so it costs more the more there are.
        """
    def throughput(
        self, *, since_ms: int, until_ms: int | None = None, interval_ms: int = 60000
    ) -> tuple[Throughput, ...]:
        """Return how many turns and processes ended in each interval, and how many failed, in one statement.

        The intervals follow each other without a gap, from the one that contains ``since_ms`` to the last one that
        begins before ``until_ms``, by default now. They begin at multiples of ``interval_ms`` since 1970. Raises
        InvalidInput for more than 10,000 of them. Only what is still stored is counted: not the turns and dead letters
        of deleted sessions, pruned turns and processes, or dead letters that were requeued or discarded. It reads
        indexes by time, so its cost depends on what ended in the range.
        """
    def close(self) -> None:
        """Finish the accepted calls, then close. Idempotent."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class TriggerStore:
    """Standing requests, by owner and key, to start a process for every matching occurrence.

    Every change takes an optional ``operation_id``, which makes it idempotent: a repetition returns the first answer,
    even after later changes, until receipts are pruned. Another request under the same id raises TriggerConflict. A
    change that raises leaves no receipt.
    """
    def source_key(self, source_type: str, source: JSON = None) -> str:
        """Return the default key of a source, the same on every machine for the same type and description."""
    def register(self, draft: TriggerDraft, *, operation_id: str | None = None) -> RegisteredTrigger:
        """Create an enabled subscription, or return the existing one if it has the same definition.

        Raises TriggerConflict if the existing one has another definition, and SessionNotFound or SessionDeleted if the
        owner is a session that does not exist. A subscription created after another of its name was deleted has an id
        of its own and starts above the last revision of the deleted one.
        """
    def update(self, draft: TriggerDraft, *, revision: int, operation_id: str | None = None) -> TriggerSubscription:
        """Replace the definition if the subscription is at this revision; an equal one changes nothing.

        Raises TriggerConflict, which names both revisions, or TriggerNotFound. ``enabled`` does not change.
        """
    def enable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Let occurrences start processes if the subscription is at this revision; see `update`."""
    def disable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Stop occurrences from starting processes if the subscription is at this revision; running ones go on."""
    def delete(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> DeletedTrigger:
        """Remove the subscription if it is at this revision; its processes go on and its deliveries stay recorded."""
    def delete_session(self, session_id: str) -> int:
        """Remove all subscriptions of a session and return their number.

        Deleting the session does the same, in its own transaction.
        """
    def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        """Return a subscription, or None. An unreadable one raises CorruptData; it can be updated and deleted."""
    def list(self, wanted: TriggerFilter = ..., *, limit: int = 100, cursor: str | None = None) -> TriggerPage:
        """Return a page of subscriptions, newest first; unreadable ones are listed by id in ``damaged``.

        A page without a filter costs the same however many subscriptions exist; a filtered one may read all of them.
        """
    def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        """Remove the oldest receipts and tombstones from before a moment, and return how many were removed.

        At most ``limit`` of each kind: call again until it returns 0. A later request under such an operation id is a
        new request, and a deleted name starts again at revision 1.
        """

class UsageStore:
    """The token ledgers of all sessions. Each commit adds its entries, with its time and the agent of its session."""
    def sum(
        self,
        by: Sequence[str] = ...,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        session_id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        limit: int = 1000,
        cursor: str | None = None,
    ) -> UsagePage:
        """Return the tokens of each day, model, agent, session or source, or of each combination of them.

        ``by`` has the values of `UsageGroup`, such as ``["day", "model"]``. The sums come in the order of day, model,
        agent, session and source. Without anything to group by there is one sum, or none if there are no tokens.
        ``since_ms`` and ``until_ms`` bound the time of the commits: from the first on, and before the second.
        ``session_id``, ``agent`` and ``model`` choose entries; an unknown one has none.

        Entries that an earlier version of lash wrote have no time: they have no day, are left out if a time is given,
        and count for the agent that their session has now. The tokens of deleted sessions are not counted. An imported
        session has the sums of its source, with the time of the import.

        It is one statement. With ``since_ms`` it reads the sessions that were active since then, and of their ledgers
        the entries since then; without it, every entry.
        """

class WaitStore:
    """Promises in the database: the first resolution wins, whichever caller makes it.

    Keys are signed with a secret that each database generates once. Tampered, unknown and revoked keys get the same
    answer: UnknownOrRevoked from ``resolve``, WaitUnknown from ``wait``.
    """
    def key(self, scope: ExecutionScope, identity: WaitIdentity) -> WaitKey:
        """Return the key of a wait, always the same one during the life of the scope's session or process.

        Creates no wait yet. Raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned if the scope's
        owner does not exist, InvalidInput for blank parts. Anyone with the key can resolve the wait: log its
        ``key_id``, not its ``text``.
        """
    def open(self, key: WaitKey | str, *, timeout_ms: int | None = None, ask: Question | None = None) -> WaitRecord:
        """Create the wait with its deadline if there is none, and return it, resolved or not.

        The deadline is counted from the first open that gives one, by the clock of the storage, and never moves. The
        question stays that of the first open that asks one.
        """
    def get(self, key: WaitKey | str) -> WaitRecord | None:
        """Return the wait if it was opened or resolved; None for any other key, genuine or not."""
    def resolve(self, key: WaitKey | str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait, whether or not it was opened; the first resolution stands and wakes the waiting callers.

        Raises InvalidInput for a resolution that JSON cannot carry or that takes more than a mebibyte, and for a value
        that does not match the schema of the wait's question; the wait then stays open. A value that comes before the
        wait is opened is not checked.
        A deadline counts once its passing is stored, by a waiting caller or by ``expire``; a resolution before that is
        still the first. A call whose connection was lost is retried, and may then report its own resolution as an
        earlier one.
        """
    def resolve_id(self, key_id: str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait that was opened, by the id that ``pending`` returns; for operators.

        The answer is that of ``resolve``. An id is not a secret: never pass on one that an outsider sent.
        """
    def get_id(self, key_id: str) -> WaitRecord | None:
        """Return the wait of an id that ``pending`` returns; for operators, like ``resolve_id``."""
    def cancel(self, key: WaitKey | str) -> ResolveAnswer:
        """Resolve a wait as cancelled, unless it was resolved before."""
    def wait(self, key: WaitKey | str, *, timeout_ms: int | None = None, patience_s: float | None = None) -> Resolution:
        """Wait for the resolution and return it.

        ``timeout_ms`` is that of ``open``: when it passes, the wait is resolved as timed out for all callers.
        ``patience_s`` ends only this call, with WaitTimedOut, and leaves the wait as it is.
        """
    def revoke(self, session_id: str) -> int:
        """Revoke every key of the session's scopes permanently, delete their waits, and return how many there were.

        Callers that wait get WaitUnknown, in other processes within a second. Later keys are new ones. Deleting a
        session does the same. Waits of processes stay. A session that does not exist has none: 0.
        """
    def pending(
        self, *, scope: ExecutionScope | None = None, limit: int = 100, after: str | None = None
    ) -> tuple[WaitRecord, ...]:
        """Return at most ``limit`` waits that are open and not resolved, of one scope or of all, by ``key_id``.

        ``after`` is the ``key_id`` of the last wait of the previous page. A page with fewer than ``limit`` is the last.
        """
    def expire(self, *, limit: int = 100) -> int:
        """Resolve at most ``limit`` waits whose deadline has passed as timed out, and return how many; workers call it.

        Call it again until it returns 0.
        """
    def prune(self, *, resolved_before_ms: int, limit: int = 100) -> int:
        """Remove at most ``limit`` waits of operations that were resolved before a moment, and return how many.

        Waits of sessions and processes are deleted with their owners; only this deletes waits of operations. The key of
        a pruned wait can be resolved again, so choose a time by which no late resolution arrives.
        """

class WorkStore:
    """The sessions and processes that a worker can run, found in one query however much is queued or parked."""
    def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = ...,
        running_processes: Collection[str] = ...,
        beat: Beat | None = None,
        process_names: Collection[str] | None = None,
        agents: Collection[str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> WorkList:
        """Return what the caller can claim now, and commands and cancellations for what it runs already.

        At most ``processes`` are returned, and at most ``sessions`` in each lane, a fourth of that in the newest one; a
        session may be in several. Of each other holder on the caller's machine, as many suspect leases are returned.
        A process that is bound to another owner is left out. ``next_at_ms`` does not foresee the expiry of leases, so
        a worker has to poll from time to time even if nothing is announced.

        ``process_names`` are the labels of the processes that the caller takes; without it, it takes all. A poll reads
        past ready processes of other labels.

        ``agents`` are those whose input the caller takes; without it, it takes all. Input is for the agent that it
        names, or else for that of the session's last turn; without either it is left to callers that take all. Ready
        and due input of other agents is not read.

        A session must have all of the ``labels``; without any, the caller takes all sessions. A process has the labels
        of the session that it works for. A poll reads a bounded part of what is ready or due for other sessions, from
        a random place on: if those are a thousand and more, it may leave a session to a later poll. It reads past
        ready parked turns and ready processes of others.

        With a ``beat`` the call also registers the owner as a worker, or shows that it lives, and removes the workers
        that missed their last four beats, all in one transaction; the answer then has the place of the worker in the
        fleet. A poll without a beat writes nothing.

        Raises `NewerSchema` once another program has migrated the storage past this version of lash.
        """
    def wake(self, *, limit: int = 1000) -> tuple[str, ...]:
        """Count at most ``limit`` reasons to continue turns, and return the sessions whose parked turns are now ready.

        A reason is written together with its cause: a batch with a ``wake_session_id`` left the queue, a process ended
        that works for the session, a wait of the session was resolved, or a command was enqueued. Workers call this
        when a poll shows ``wakes_due``; it is safe if several do so at once.
        """
    def check_schema(self) -> None:
        """Raise `NewerSchema` if another program has migrated the storage past this version of lash."""

class WorkerStore:
    """The workers that run on a storage. A worker registers and beats with `lash.stores.work.WorkStore.poll`.

    The registry only saves work: it decides which worker gets a hint and which one does the common duties. Leases
    decide which one executes, so a worker that is missing here, or dead, does no harm.
    """
    def list(self) -> tuple[WorkerRecord, ...]:
        """Return all registered workers in the order of their start, late ones included."""
    def holding(self, worker_ids: Collection[str], *, limit: int = 100) -> dict[str, Holding]:
        """Return what each of the workers runs now by its leases, up to ``limit`` sessions and ``limit`` processes.

        One read, whatever the number of workers. Empty for an unknown worker, and for one on a system that does not
        identify its processes.
        """
    def drain(self, worker_id: str) -> bool:
        """Let a worker finish what it runs and take nothing new; return whether it is registered. Idempotent.

        The worker is woken and stops taking work at once; one that cannot be woken does so after its next beat. It
        drains until it ends; a restarted worker is a new one.
        """
    def leave(self, worker_id: str) -> bool:
        """Remove a worker that has ended, and return whether it was registered. Idempotent.

        A worker that is removed while it runs is registered again by its next beat.
        """

def open(
    url: str,
    *,
    migrate: bool = True,
    compression: Compression = ...,
    budget: CommitBudget = ...,
    retention: Retention = ...,
    attachment_bytes: ByteStore | None = None,
    sealer: Sealer | None = None,
    clock: Clock | None = None,
    pool: asyncpg.Pool[asyncpg.Record] | None = None,
    listen_url: str | None = None,
    password: Callable[[], str | Awaitable[str]] | None = None,
    on_statement: Callable[[str], None] | None = None,
) -> Storage:
    """Open the storage at the URL, and create or migrate its tables unless ``migrate`` is False.

    ``sqlite:///agents.db`` is a file relative to the working directory, ``sqlite:////var/lib/agents.db`` an
    absolute one, ``sqlite://`` lives in memory as long as the storage. ``postgresql://user@host/database`` takes the
    usual parameters and those of `lash.postgres.engine.options.PostgresOptions`; ``pool`` is a pool of your own to use
    instead of a new one. ``listen_url`` leads to the same database without a pooler in transaction mode; one connection
    receives notifications there. ``password`` returns the password for each new connection, such as a token that
    expires; it may be a coroutine function.

    ``attachment_bytes`` is where the bytes of attachments are stored, by default in the database: `lash.FileBytes`,
    `lash.S3Bytes` or a `lash.ByteStore` of your own. It must be the same one each time.

    ``sealer`` wraps values before they are stored, and unwraps them when they are read; `lash.AesGcm` encrypts them.
    Values that were stored without one stay readable. A sealed storage cannot be opened without its sealer
    (CannotUnseal).

    ``clock`` is used on SQLite only; PostgreSQL uses its server's clock. ``on_statement`` is called with the name
    of every statement before it runs.

    Raises ConfigError if no asyncio event loop is running, as under trio.
    """

def shared(url: str, **options: Unpack[OpenOptions]) -> Storage:
    """Return the storage that this process shares for the URL; the first call of one of its methods opens it.

    Its methods can be awaited from any asyncio event loop, and from several at once; plain threads use
    `lash.sync.shared`, which is the same storage. It lives in a thread with its own event loop and is closed at exit;
    short calls run in the thread of their caller, as those of an own storage do. A URL that names the same database
    with the same options is the same storage, however it is spelled; ``sqlite://`` is one database in memory for the
    whole process. A relative path is resolved here and now.

    The options are those of `lash.open` without ``pool``, which belongs to one event loop. They are passed once, in the
    first call for a URL; a later call without options returns the same storage, one with other options raises
    ConfigError.

    A cancelled call is cancelled in the storage, and raises once it has ended there. Errors are the same objects, with
    both sides in their traceback. Context variables of the caller are seen by the call. ``with`` does not close
    the storage, because other code may use it; `close` does, and the next call opens it again. A child that is forked
    after the first call gets ConfigError.
    """

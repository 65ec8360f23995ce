"""All errors of lash, in one tree.

::

    LashError
    ├── ConfigError                  fix     wrong option or URL, missing extra, wrong thread or loop
    ├── InvalidInput                 fix     a value that cannot be stored; nothing was written
    │   ├── CommitTooLarge           fix     the commit breaks the budget of this storage
    │   └── InvalidProgram           fix     a program that no worker can run, with the place of the mistake
    ├── ExecutionError
    │   ├── StepFailed               decide  a step failed, and that is recorded
    │   ├── OutcomeUnknown           decide  it is unknown whether a step that must not run twice ran
    │   ├── ProcessFailed            decide  the awaited process ended without success
    │   ├── TurnFailed               decide  the awaited turn failed; its input is a dead letter
    │   ├── WaitRejected             decide  the wait ended with an error, a cancellation or its deadline
    │   └── UnknownDefinition        fix     unknown agent or process
    └── StoreError
        ├── NotFound                 decide  the named object does not exist
        │   ├── SessionNotFound
        │   ├── ProcessNotFound
        │   ├── ProcessPruned
        │   ├── GrantNotFound
        │   ├── NodeNotFound
        │   ├── BlobNotFound
        │   ├── ArtifactNotFound
        │   ├── AttachmentNotFound
        │   ├── EffectNotRecorded
        │   ├── WaitUnknown
        │   ├── TriggerNotFound
        │   ├── OccurrenceNotFound
        │   ├── ScheduleNotFound
        │   └── DeadLetterNotFound
        ├── SessionDeleted           stop    the session existed and was deleted
        ├── SessionBindingMismatch   fix     a handle was given data of another session
        ├── Conflict                 decide  another writer was first: load again, decide again
        │   ├── SessionBusy          retry   a turn of the session is not committed yet
        │   ├── RevisionConflict
        │   ├── TurnConflict
        │   ├── NodeConflict
        │   ├── GraphConflict
        │   ├── GraphShared
        │   ├── SessionExists
        │   ├── RecordConflict
        │   ├── SourceKeyConflict
        │   ├── RegistrationConflict
        │   ├── EventConflict
        │   ├── ProcessTerminal
        │   ├── EffectMismatch
        │   ├── TriggerConflict
        │   ├── OccurrenceConflict
        │   └── ScheduleConflict
        ├── LeaseLost                stop    another holder has the lease, or it expired
        ├── ClaimLost                stop    another claim holds the work now
        ├── EffectLeaseLost          stop    another worker runs the effect, or it has its outcome
        ├── StoreUnavailable         retry   busy, contended, timed out, connection lost
        ├── MaintenanceFailed        retry   maintenance was done in part; see the cause
        ├── WaitTimedOut             retry   the awaited event has not happened yet
        ├── StorageFailure           stop    disk full, I/O error, read-only
        ├── CorruptData              stop    stored data contradicts itself
        ├── CannotUnseal             fix     a sealed value, and no sealer or another key than its own
        ├── SweepIncomplete          retry   a sweep of attachments was done in part; see its report
        ├── StorageClosed            fix     the storage was closed
        └── SchemaMismatch           stop    migrate, upgrade or repair first
            ├── NewerSchema
            ├── PendingMigrations
            └── ForeignDatabase

``error.advice`` is the second column, for programs. Exceptions of a database driver never escape; the original is kept
as ``__cause__``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from lash.model.attachment import SweepReport
    from lash.model.lease import Resource


class Advice(enum.Enum):
    """What a caller should do about an error."""

    RETRY = "retry"
    """Try the same call again, a little later."""
    DECIDE_AGAIN = "decide_again"
    """Load the current state and decide again; the same call would fail again."""
    STOP = "stop"
    """Stop this piece of work: a person must act, or another worker owns it now."""
    FIX = "fix"
    """Fix the calling code or its configuration."""


class LashError(Exception):
    """The base of every error that lash raises."""

    advice: ClassVar[Advice] = Advice.STOP

    def __reduce__(self) -> tuple[Callable[..., LashError], tuple[type[LashError], object, dict[str, object]]]:
        """Support pickling with the message and all fields."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[LashError], arguments: object, fields: dict[str, object]) -> LashError:
    error = kind.__new__(kind)
    if isinstance(arguments, tuple):
        # Set here: __new__ leaves it to __init__ if an OSError is among the bases.
        error.args = arguments
    error.__dict__.update(fields)
    return error


class ConfigError(LashError):
    """A wrong option or URL, a missing extra, or a storage used from the wrong thread, event loop or process."""

    advice = Advice.FIX


class InvalidInput(LashError):
    """A value that cannot be stored. It is raised before anything is written."""

    advice = Advice.FIX


class CommitTooLarge(InvalidInput):
    """The commit breaks the budget of this storage; splitting it or raising the budget helps, retrying does not."""

    def __init__(self, measure: str, actual: int, limit: int) -> None:
        super().__init__(f"the commit holds {actual:,} {measure}; this storage accepts at most {limit:,}")
        self.measure = measure
        self.actual = actual
        self.limit = limit


class InvalidProgram(InvalidInput):
    """No worker can run this program: its source has a mistake, its artifact is missing, or it needs what is not here.

    ``code`` says which, for programs; the message has the place of a mistake in the source.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ExecutionError(LashError):
    """A step, turn, process or wait of the application did not succeed."""

    advice = Advice.DECIDE_AGAIN


class StepFailed(ExecutionError):
    """A step failed and the failure is recorded: a replay raises it again, without running the step."""

    def __init__(self, step: str, code: str, message: str) -> None:
        super().__init__(f"step {step!r} failed: {code}: {message}")
        self.step = step
        self.code = code
        self.message = message


class OutcomeUnknown(ExecutionError):
    """A step that must not run twice was started by a worker that died; it is unknown whether it took effect.

    Check with the service that the step calls, then record the outcome with ``handle.record_outcome``, or call
    ``handle.run_again``.
    """

    def __init__(self, scope: str, step: str) -> None:
        super().__init__(f"step {step!r} of {scope}: unknown whether it took effect; it is not run twice")
        self.scope = scope
        self.step = step


class ProcessFailed(ExecutionError):
    """The awaited process ended without success.

    ``traceback`` is that of the process, wherever it ran, as it was stored; it is also a note of this error.
    """

    def __init__(self, process_id: str, status: str, message: str, traceback: str | None = None) -> None:
        super().__init__(f"process {process_id!r} {status}: {message}")
        self.process_id = process_id
        self.status = status
        self.traceback = traceback
        _add_traceback(self, "process", traceback)


class TurnFailed(ExecutionError):
    """The awaited turn failed permanently; its input is a dead letter.

    ``traceback`` is that of the agent, wherever it ran, as it was stored; it is also a note of this error.
    """

    def __init__(self, session_id: str, batch_id: str, reason: str, traceback: str | None = None) -> None:
        super().__init__(f"the turn of message {batch_id!r} to session {session_id!r} failed: {reason}")
        self.session_id = session_id
        self.batch_id = batch_id
        self.reason = reason
        self.traceback = traceback
        _add_traceback(self, "agent", traceback)


def _add_traceback(error: BaseException, origin: str, traceback: str | None) -> None:
    """Add the stored traceback of a failure to the error that reports it, so that both are shown."""
    if traceback is not None:
        error.add_note(f"\nIn the {origin}:\n{traceback}")


class WaitRejected(ExecutionError):
    """The wait was resolved with an error, cancelled, or its deadline passed."""

    def __init__(self, key: str, code: str, message: str) -> None:
        super().__init__(f"wait {key!r}: {code}: {message}")
        self.key = key
        self.code = code
        self.message = message


class UnknownDefinition(ExecutionError):
    """No agent, limit or process of this name, or of this version of it, is registered with the application."""

    advice = Advice.FIX

    def __init__(self, kind: str, name: str, known: str) -> None:
        super().__init__(f"unknown {kind} {name!r}; registered: {known or 'none'}")
        self.kind = kind
        self.name = name


class StoreError(LashError):
    """The base of errors between lash and its database."""


class NotFound(StoreError):
    """The named object does not exist."""

    advice = Advice.DECIDE_AGAIN


class SessionNotFound(NotFound):
    """No session with this id was ever created."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} does not exist; create it with storage.sessions.create(...)")
        self.session_id = session_id


class ProcessNotFound(NotFound):
    """No process with this id was ever registered."""

    def __init__(self, process_id: str) -> None:
        super().__init__(f"unknown process {process_id!r}")
        self.process_id = process_id


class ProcessPruned(NotFound):
    """The process ended and was pruned."""

    def __init__(self, process_id: str) -> None:
        super().__init__(f"process {process_id!r} ended and was pruned")
        self.process_id = process_id


class GrantNotFound(NotFound):
    """The process is not granted to the session."""

    def __init__(self, session_id: str, process_id: str) -> None:
        super().__init__(f"process {process_id!r} is not granted to session {session_id!r}")
        self.session_id = session_id
        self.process_id = process_id


class NodeNotFound(NotFound):
    """A node that the call builds on is not part of the session's live graph."""

    def __init__(self, session_id: str, node_id: str) -> None:
        super().__init__(f"session {session_id!r} has no live node {node_id!r}")
        self.session_id = session_id
        self.node_id = node_id


class BlobNotFound(NotFound):
    """A reference does not resolve: the session holds no bytes with this hash."""

    def __init__(self, session_id: str, ref: str) -> None:
        super().__init__(f"session {session_id!r} holds no bytes for {ref}; send the bytes instead of the reference")
        self.session_id = session_id
        self.ref = ref


class ArtifactNotFound(NotFound):
    """The namespace has no artifact with this ref."""

    def __init__(self, namespace: str, ref: str) -> None:
        super().__init__(f"unknown artifact {ref} in namespace {namespace!r}")
        self.namespace = namespace
        self.ref = ref


class AttachmentNotFound(NotFound):
    """The session has no attachment with this id, or its bytes were announced and never arrived."""

    def __init__(self, session_id: str, attachment_id: str) -> None:
        super().__init__(f"session {session_id!r} has no attachment {attachment_id}; put it again")
        self.session_id = session_id
        self.attachment_id = attachment_id


class EffectNotRecorded(NotFound):
    """The effect has no recorded outcome, and the caller asked not to run it, or it was never started."""

    def __init__(self, scope: str, replay_key: str) -> None:
        super().__init__(f"effect {replay_key!r} of {scope} has no record")
        self.scope = scope
        self.replay_key = replay_key


class WaitUnknown(NotFound):
    """No such wait: the key was tampered with, revoked, or belongs to a deleted session or process."""

    def __init__(self) -> None:
        super().__init__("the wait is unknown or was revoked")


class TriggerNotFound(NotFound):
    """The owner has no trigger subscription with this key."""

    def __init__(self, owner: str, key: str) -> None:
        super().__init__(f"{owner} has no trigger subscription {key!r}")
        self.owner = owner
        self.key = key


class OccurrenceNotFound(NotFound):
    """Unknown occurrence, or unknown delivery of it."""

    def __init__(self, occurrence_id: str, subscription_id: str | None = None) -> None:
        what = "" if subscription_id is None else f" has no delivery to {subscription_id!r}"
        super().__init__(f"trigger occurrence {occurrence_id!r}{what or ' is unknown'}")
        self.occurrence_id = occurrence_id
        self.subscription_id = subscription_id


class ScheduleNotFound(NotFound):
    """The owner has no schedule with this key."""

    def __init__(self, owner: str, key: str) -> None:
        super().__init__(f"{owner} has no schedule {key!r}")
        self.owner = owner
        self.key = key


class DeadLetterNotFound(NotFound):
    """The session has no dead letter with this id."""

    def __init__(self, session_id: str, batch_id: str) -> None:
        super().__init__(f"session {session_id!r} has no dead letter {batch_id!r}")
        self.session_id = session_id
        self.batch_id = batch_id


class SessionDeleted(StoreError):
    """The session existed and was deleted; nothing can be written to it unless it is created again."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} was deleted")
        self.session_id = session_id


class SessionBindingMismatch(StoreError):
    """A handle bound to one session was given the data of another."""

    advice = Advice.FIX

    def __init__(self, bound_session_id: str, attempted_session_id: str) -> None:
        super().__init__(
            f"this handle serves session {bound_session_id!r}; data of session {attempted_session_id!r} was refused"
        )
        self.bound_session_id = bound_session_id
        self.attempted_session_id = attempted_session_id


class Conflict(StoreError):
    """Another writer was first, or the name is in use for other content."""

    advice = Advice.DECIDE_AGAIN


class SessionBusy(Conflict):
    """A turn of the session has started and is not committed yet."""

    advice = Advice.RETRY

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is in the middle of a turn; try again after it, or cancel it")
        self.session_id = session_id


class RevisionConflict(Conflict):
    """The session has another revision than the caller expected."""

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {session_id!r} is at revision {actual}, the commit expected {expected}; load and decide again"
        )
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class TurnConflict(Conflict):
    """The turn already has a commit, with other content."""

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__(f"turn {turn_id!r} of session {session_id!r} was already committed with other content")
        self.session_id = session_id
        self.turn_id = turn_id


class NodeConflict(Conflict):
    """The node id is taken by a node with other content, or by a removed one."""

    def __init__(self, session_id: str, node_id: str, reason: str) -> None:
        super().__init__(f"node {node_id!r} of session {session_id!r} {reason}")
        self.session_id = session_id
        self.node_id = node_id


class GraphConflict(Conflict):
    """A full replacement was built on a partial view of the graph."""

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {session_id!r} holds {actual} live nodes, the replacement was built on {expected}; "
            "load the full graph and decide again"
        )
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class GraphShared(Conflict):
    """A graph cannot be replaced while a fork inherits nodes of it; append to it, or delete the forks first."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"a fork inherits nodes of session {session_id!r}, so its graph cannot be replaced")
        self.session_id = session_id


class SessionExists(Conflict):
    """The id for a fork or an import belongs to another session."""

    def __init__(self, session_id: str, difference: str = "is not a fork of this source") -> None:
        super().__init__(f"session {session_id!r} exists already and {difference}")
        self.session_id = session_id


class RecordConflict(Conflict):
    """The version of the record differs from the expected one; version 0 means that the record does not exist."""

    def __init__(self, session_id: str | None, collection: str, key: str, *, expected: int, actual: int) -> None:
        owner = "the storage" if session_id is None else f"session {session_id!r}"
        there = "does not exist" if actual == 0 else f"is at version {actual}"
        wanted = "no record" if expected == 0 else f"version {expected}"
        super().__init__(
            f"record {key!r} in collection {collection!r} of {owner} {there}, the caller expected {wanted}; "
            "get it and decide again"
        )
        self.session_id = session_id
        self.collection = collection
        self.key = key
        self.expected = expected
        self.actual = actual


class SourceKeyConflict(Conflict):
    """The source key was used before, for other content."""

    def __init__(self, session_id: str, source_key: str) -> None:
        super().__init__(f"source key {source_key!r} of session {session_id!r} was used for other content")
        self.session_id = session_id
        self.source_key = source_key


class RegistrationConflict(Conflict):
    """The process id is taken by another registration."""

    def __init__(self, process_id: str, existing_hash: str, new_hash: str) -> None:
        super().__init__(
            f"process {process_id!r} was registered with other content: "
            f"existing {existing_hash[:12]}, new {new_hash[:12]}"
        )
        self.process_id = process_id
        self.existing_hash = existing_hash
        self.new_hash = new_hash


class EventConflict(Conflict):
    """The replay key was used for another event."""

    def __init__(self, process_id: str, replay_key: str) -> None:
        super().__init__(f"process {process_id!r}: replay key {replay_key!r} was used for another event")
        self.process_id = process_id
        self.replay_key = replay_key


class ProcessTerminal(Conflict):
    """The process has ended; nothing can end it again or make it wait."""

    def __init__(self, process_id: str, status: str) -> None:
        super().__init__(f"process {process_id!r} is already terminal: {status}")
        self.process_id = process_id
        self.status = status


class EffectMismatch(Conflict):
    """Another effect was recorded under the replay key: the code has changed since.

    ``path`` is the first difference, ``recorded`` and ``given`` are the two values there.
    """

    def __init__(self, scope: str, replay_key: str, *, path: str, recorded: object, given: object) -> None:
        super().__init__(
            f"effect {replay_key!r} of {scope} was recorded with other content: "
            f"{path} was {recorded!r:.200}, now {given!r:.200}"
        )
        self.scope = scope
        self.replay_key = replay_key
        self.path = path
        self.recorded = recorded
        self.given = given


class TriggerConflict(Conflict):
    """The subscription has another definition or another revision than the caller expects."""

    def __init__(self, owner: str, key: str, reason: str) -> None:
        super().__init__(f"trigger subscription {key!r} of {owner} {reason}")
        self.owner = owner
        self.key = key
        self.reason = reason


class OccurrenceConflict(Conflict):
    """The idempotency key was used for another occurrence of the same source."""

    def __init__(self, source_type: str, source_key: str, idempotency_key: str) -> None:
        super().__init__(
            f"idempotency key {idempotency_key!r} of source {source_type!r}, {source_key!r} was used for other content"
        )
        self.source_type = source_type
        self.source_key = source_key
        self.idempotency_key = idempotency_key


class ScheduleConflict(Conflict):
    """The schedule has another definition or another revision than the caller expects."""

    def __init__(self, owner: str, key: str, reason: str) -> None:
        super().__init__(f"schedule {key!r} of {owner} {reason}")
        self.owner = owner
        self.key = key
        self.reason = reason


class LeaseLost(StoreError):
    """The fence is not live: its lease was released, expired or taken over, or it is of another session or process."""

    def __init__(self, resource: Resource, reason: str) -> None:
        super().__init__(f"the lease on {resource} does not hold: {reason}")
        self.resource = resource
        self.reason = reason


class ClaimLost(StoreError):
    """The claim no longer holds exactly the batches it was made for: given back, taken over, or consumed."""

    def __init__(self, session_id: str, claim_id: str) -> None:
        super().__init__(f"claim {claim_id!r} of session {session_id!r} no longer holds its batches")
        self.session_id = session_id
        self.claim_id = claim_id


class EffectLeaseLost(StoreError):
    """The claim on an effect is not live: taken over, expired, released, or the effect has its outcome."""

    def __init__(self, scope: str, replay_key: str) -> None:
        super().__init__(f"the claim on effect {replay_key!r} of {scope} does not hold; another worker may run it")
        self.scope = scope
        self.replay_key = replay_key


class StoreUnavailable(StoreError):
    """The database did not answer in time or not at all.

    ``outcome_unknown`` is True if the call may have been applied: retry it with the same turn id or key, or load the
    current state first.
    """

    advice = Advice.RETRY

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class MaintenanceFailed(StoreError):
    """Maintenance ended early. ``report`` lists what was done until then, ``__cause__`` is the error."""

    advice = Advice.RETRY

    def __init__(self, message: str, report: object) -> None:
        super().__init__(message)
        self.report = report


class WaitTimedOut(StoreError, TimeoutError):
    """The awaited event had not happened when the timeout passed; waiting again misses nothing.

    ``process_id`` is None if it was not an event of a process.
    """

    advice = Advice.RETRY

    def __init__(self, process_id: str | None, awaited: str, timeout_s: float) -> None:
        of_process = "" if process_id is None else f"process {process_id!r}: "
        super().__init__(f"{of_process}no {awaited} within {timeout_s:g} s")
        self.process_id = process_id
        self.awaited = awaited
        self.timeout_s = timeout_s


class StorageFailure(StoreError):
    """The disk or the server failed: full, broken, read-only, or without permission."""

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class CorruptData(StoreError):
    """Stored data contradicts itself; it is never reported as absent."""


class CannotUnseal(StoreError):
    """A sealed value cannot be read: the storage has no sealer or the wrong key, or the value was altered."""

    advice = Advice.FIX


class SweepIncomplete(StoreError):
    """A sweep of attachments stopped early or could not delete all bytes; sweeping again is safe.

    ``report`` is the partial report. Where the database or the byte store failed, its error is the ``__cause__``.
    """

    advice = Advice.RETRY

    def __init__(self, message: str, report: SweepReport) -> None:
        super().__init__(message)
        self.report = report


class StorageClosed(StoreError):
    """The storage was closed."""

    advice = Advice.FIX

    def __init__(self) -> None:
        super().__init__("this storage is closed")


class SchemaMismatch(StoreError):
    """The tables differ from what this version of lash needs."""


class NewerSchema(SchemaMismatch):
    """The database was migrated by a newer lash."""

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(
            f"the database has schema {found}, this version of lash knows schemas up to {supported}; "
            "upgrade lash and restart this program"
        )
        self.found = found
        self.supported = supported


class PendingMigrations(SchemaMismatch):
    """Migrations are pending and the caller asked not to touch the schema."""

    def __init__(self, found: int, pending: tuple[str, ...]) -> None:
        super().__init__(
            f"the database has schema {found}; pending: {', '.join(pending)}; open it with migrate=True to apply them"
        )
        self.found = found
        self.pending = pending


class ForeignDatabase(SchemaMismatch):
    """The file belongs to another program, or is not a database."""

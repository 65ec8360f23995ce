"""Effects: nondeterministic steps whose outcomes are recorded under replay keys."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from lash.model.causal import CausalRef
from lash.model.lease import LeaseOwner
from lash.model.value import JSON, Count, JSONObject, Positive, Value


class _Scope(Value, frozen=True, kw_only=True, tag_field="type"):
    """The unit of execution to which an effect or a wait belongs; the ``type`` key is the kind."""


class TurnScope(_Scope, frozen=True, kw_only=True, tag="turn"):
    """One turn of a session. Its effects are deleted when the turn commits."""

    session_id: str
    turn_id: str


class ProcessScope(_Scope, frozen=True, kw_only=True, tag="process"):
    """One process. Its effects are deleted when the process is pruned."""

    process_id: str


class OperationScope(_Scope, frozen=True, kw_only=True, tag="runtime_operation"):
    """An operation of the host that belongs to no session and no process."""

    operation_id: str


ExecutionScope: TypeAlias = TurnScope | ProcessScope | OperationScope


class _EffectCommand(Value, frozen=True, kw_only=True, tag_field="kind"):
    """What an effect does; the ``kind`` key is the kind of command."""


class Step(_EffectCommand, frozen=True, kw_only=True, tag="step"):
    """A named function of the application; ``input`` is part of the identity of the step."""

    name: str
    input: JSON = None


class PreparedCall(Value, frozen=True, kw_only=True):
    """A tool call as it will be run, its arguments already rewritten."""

    call_id: str
    tool_id: str
    tool_name: str
    arguments: JSON = None
    prepared_payload: JSON = None


class ToolAttempt(_EffectCommand, frozen=True, kw_only=True, tag="tool_attempt"):
    """One attempt of one tool call, counted from 1."""

    call: PreparedCall
    attempt: Positive
    max_attempts: Positive


class BatchCall(Value, frozen=True, kw_only=True):
    """One call of a batch, and the suffix that makes its replay key from that of the batch."""

    call: PreparedCall
    replay_suffix: str


class ToolBatch(_EffectCommand, frozen=True, kw_only=True, tag="tool_batch"):
    """Several tool calls that a model asked for at once."""

    batch_id: str
    calls: tuple[BatchCall, ...]


class ProcessCommand(_EffectCommand, frozen=True, kw_only=True, tag="process"):
    """An order to the process registry: start, list, transfer, delete_session, await, cancel or signal."""

    op: str
    arguments: JSONObject = msgspec.field(default_factory=dict)


class ExecCode(_EffectCommand, frozen=True, kw_only=True, tag="exec_code"):
    language: str
    code: str


class CheckpointPoint(enum.StrEnum):
    AFTER_WORK = "after_work"
    BEFORE_COMPLETION = "before_completion"


class TurnCheckpoint(_EffectCommand, frozen=True, kw_only=True, tag="checkpoint"):
    """A safe boundary of a turn, at which plugins run and early input joins."""

    checkpoint: CheckpointPoint


class Sleep(_EffectCommand, frozen=True, kw_only=True, tag="sleep"):
    """A pause: for a duration from its first start, or until a moment. Exactly one of the two is given."""

    duration_ms: Count | None = None
    until_ms: int | None = None


class AwaitEvent(_EffectCommand, frozen=True, kw_only=True, tag="await_event"):
    """A durable wait, by the id of its key; the signature of the key is not part of the identity."""

    key_id: str


Command: TypeAlias = Step | ToolAttempt | ToolBatch | ProcessCommand | ExecCode | TurnCheckpoint | Sleep | AwaitEvent


class Envelope(Value, frozen=True, kw_only=True):
    """The complete description of one effect: its scope, the key under which it is recorded, and its command.

    ``replay_key`` is the stable name of the step within its scope; a run after a crash must compute it again. The
    identity of the effect is the hash of the whole envelope.
    """

    scope: ExecutionScope
    replay_key: str
    command: Command
    caused_by: CausalRef | None = None
    group_key: str | None = None
    """The group that records the order in which its effects finish; it must be open."""


class EffectError(Value, frozen=True, kw_only=True):
    """A recorded failure; a replay raises it again."""

    code: str
    message: str
    raw: JSON = None


class EffectStatus(enum.StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


class EffectRun(Value, frozen=True, kw_only=True):
    """How an effect ran, as the worker that ran it measured."""

    took_ms: Count = 0
    """How long it ran, from the first call of its function."""
    attempt: Positive | None = None
    """The attempt of its turn, or of its process since that was last parked; above 1, an earlier one died or failed."""
    tries: Positive = 1
    """How often its function was called in this attempt."""
    traceparent: str | None = None
    """The span of this attempt as a W3C trace context; None if no hook traced it."""


class EffectRecord(Value, frozen=True, kw_only=True):
    """The current record of one effect. ``due_at_ms`` is set once, for sleeps.

    An effect that an earlier version recorded has no ``began_at_ms``, ``attempt``, ``tries`` and ``worker``.
    """

    scope: ExecutionScope
    replay_key: str
    kind: str
    envelope: Envelope
    envelope_hash: str
    status: EffectStatus
    outcome: JSON = None
    error: EffectError | None = None
    once: bool = False
    due_at_ms: int | None = None
    owner: LeaseOwner | None = None
    fencing: Count = 0
    expires_at_ms: int | None = None
    settled_rank: Positive | None = None
    """The rank in which the effect finished in its group, from 1."""
    created_at_ms: int
    updated_at_ms: int
    began_at_ms: int | None = None
    """When its last runner began it; it ended at ``updated_at_ms``."""
    attempt: Positive | None = None
    """The attempt of its turn or process in which it ran; see `EffectRun`."""
    tries: Positive | None = None
    """How often its function was called in that attempt."""
    worker: str | None = None
    """The owner id of the worker that ran it."""
    traceparent: str | None = None
    """The span of the attempt in which it ran; see `EffectRun`."""


class EffectClaim(Value, frozen=True, kw_only=True):
    """The right to run an effect and to record its outcome; live until ``expires_at_ms``, that moment excluded."""

    scope: ExecutionScope
    replay_key: str
    envelope_hash: str
    owner: LeaseOwner
    token: str
    fencing: Positive
    expires_at_ms: int
    due_at_ms: int | None = None


class EffectClaimed(Value, frozen=True, kw_only=True):
    """The caller must run the effect. ``taken_over`` is true if another runner began it and may have run it."""

    claim: EffectClaim
    taken_over: bool = False


class EffectReplayed(Value, frozen=True, kw_only=True):
    """The effect has a recorded outcome or error; the caller must not run it."""

    record: EffectRecord


class EffectBusy(Value, frozen=True, kw_only=True):
    """Another runner has a live claim; retry at ``until_ms``, or earlier after a hint."""

    holder: LeaseOwner
    until_ms: int


class EffectUnknown(Value, frozen=True, kw_only=True):
    """The effect must not run twice, its runner died, and it is unknown whether it happened.

    Check with the service that it calls. Then call ``take_over``, and run it again or record its outcome.
    """

    record: EffectRecord


EffectDecision: TypeAlias = EffectClaimed | EffectReplayed | EffectBusy | EffectUnknown


class EffectGroup(Value, frozen=True, kw_only=True):
    """Effects whose order of finishing is recorded. `settled` has the keys of the finished ones, by rank."""

    scope: ExecutionScope
    group_key: str
    size: Positive
    settled: tuple[str, ...] = ()

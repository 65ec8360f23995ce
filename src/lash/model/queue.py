"""Queued work: input and commands for a session, in batches, until a turn consumes them."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.model.causal import CausalRef
from lash.model.lease import Busy, Lease, ParkedTurn
from lash.model.session.message import AttachmentRef
from lash.model.value import JSON, Count, JSONObject, Value, share_default


class Delivery(enum.StrEnum):
    """When a batch may reach the agent."""

    EARLIEST_SAFE_BOUNDARY = "earliest_safe_boundary"
    """At the next checkpoint of a running turn, or with the next turn."""
    AFTER_CURRENT_TURN_COMMIT = "after_current_turn_commit"
    """With a turn of its own."""


class Slot(enum.StrEnum):
    """Whether a batch may share a claim with its neighbours."""

    JOIN = "join"
    EXCLUSIVE = "exclusive"


class Boundary(enum.StrEnum):
    """The moment at which work is claimed."""

    ACTIVE_TURN_CHECKPOINT = "active_turn_checkpoint"
    IDLE = "idle"


class _InputItem(Value, frozen=True, kw_only=True, tag_field="type"):
    """One part of a user's input."""


class TextItem(_InputItem, frozen=True, kw_only=True, tag="text"):
    text: str


class AttachmentItem(_InputItem, frozen=True, kw_only=True, tag="attachment"):
    attachment: AttachmentRef


class _BatchPayload(Value, frozen=True, kw_only=True, tag_field="kind"):
    """One piece of work; the ``kind`` key is its type."""


class TurnInput(_BatchPayload, frozen=True, kw_only=True, tag="turn_input"):
    """A user's input to the agent."""

    items: tuple[TextItem | AttachmentItem, ...]
    protocol_turn_options: JSONObject = msgspec.field(default_factory=dict)
    trace_turn_id: str | None = None
    traceparent: str | None = None
    """The W3C trace context of its sender; not part of its content."""

    @classmethod
    def of_text(cls, text: str) -> TurnInput:
        """Return an input with a single text."""
        return cls(items=(TextItem(text=text),))


_WAKE: Final = "process.wake"


class ProcessWake(_BatchPayload, frozen=True, kw_only=True, tag="process_wake"):
    """A message from a background process, derived from one of its events."""

    wake_id: str
    process_id: str
    sequence: Count
    event_type: str = _WAKE
    input: JSON = None
    caused_by: CausalRef | None = None

    def __post_init__(self) -> None:
        share_default(self, "event_type", _WAKE)


class SessionCommand(_BatchPayload, frozen=True, kw_only=True, tag="session_command"):
    """A command to the session itself. ``command`` is any label; it never becomes part of a prompt."""

    command: str
    reason: str = ""


Payload: TypeAlias = TurnInput | ProcessWake | SessionCommand


PARKED_AT_MS: Final = 2**63 - 1
"""When the input of a parked turn is available: never, until its turn is ready."""


MAX_PRIORITY: Final = 9
"""The priority of the most urgent work; 0 is the default."""


class BatchDraft(Value, frozen=True, kw_only=True):
    """Work to enqueue, all payloads of one kind.

    ``source_key`` makes the enqueue idempotent: the key stays reserved after the work is done. Adjacent batches with
    the same ``merge_key`` may be claimed together; without a key a batch never merges. ``available_at_ms`` delays it.
    When the batch leaves the queue, consumed or not, the parked turn of ``wake_session_id`` continues.
    The session comes before others as long as a batch of a higher ``priority`` is ready in it; the order within the
    session stays.
    """

    session_id: str
    payloads: tuple[Payload, ...]
    source_key: str | None = None
    delivery: Delivery = Delivery.AFTER_CURRENT_TURN_COMMIT
    slot: Slot = Slot.EXCLUSIVE
    merge_key: str | None = None
    available_at_ms: int = 0
    wake_session_id: str | None = None
    priority: int = 0


class Batch(Value, frozen=True, kw_only=True):
    """One unit of queued work. ``seq`` orders the queue.

    ``attempts`` is how often the batch was claimed, ``failures`` how many of these claims were given back as failed.
    The others crashed, except for one that still runs.
    """

    session_id: str
    batch_id: str
    seq: int
    payloads: tuple[Payload, ...]
    source_key: str | None
    delivery: Delivery
    slot: Slot
    merge_key: str | None
    available_at_ms: int
    enqueued_at_ms: int
    attempts: Count
    failures: Count = 0
    priority: Count = 0

    @property
    def is_parked(self) -> bool:
        """Whether it is the input of a parked turn."""
        return self.available_at_ms == PARKED_AT_MS

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The ids of the payloads, in their order."""
        return tuple(f"{self.batch_id}:item:{index}" for index in range(len(self.payloads)))


class BatchState(enum.StrEnum):
    """The state of a batch that was enqueued under a source key."""

    PENDING = "pending"
    CONSUMED = "consumed"
    CANCELLED = "cancelled"
    DEAD = "dead"
    """It is a dead letter: neither queued nor done until it is requeued or discarded."""


class QueuedState(enum.StrEnum):
    """The state of a queued batch at the moment of a read."""

    READY = "ready"
    """It can be claimed."""
    DELAYED = "delayed"
    """It cannot be claimed before its ``available_at_ms``."""
    CLAIMED = "claimed"
    """A live claim holds it."""
    PARKED = "parked"
    """Its turn is parked."""


class QueuedBatch(Value, frozen=True, kw_only=True):
    """A queued batch of any session, and its state; ``parked`` is what its parked turn waits for."""

    batch: Batch
    state: QueuedState
    parked: ParkedTurn | None = None


class Enqueued(Value, frozen=True, kw_only=True):
    """The answer to an enqueue. ``batch`` is None if the work of this source key is done, cancelled or dead."""

    batch_id: str
    created: bool
    state: BatchState = BatchState.PENDING
    batch: Batch | None = None


class ClaimCompletion(Value, frozen=True, kw_only=True):
    """The proof with which a commit consumes all batches of a claim."""

    claim_id: str
    token: str
    batch_ids: tuple[str, ...]


class Claim(Value, frozen=True, kw_only=True):
    """The right to consume some batches, made under a session lease; renewing the lease extends it."""

    session_id: str
    claim_id: str
    token: str
    lease_fencing: Count
    claimed_at_ms: int
    expires_at_ms: int
    batches: tuple[Batch, ...]

    @property
    def completion(self) -> ClaimCompletion:
        batch_ids = tuple(batch.batch_id for batch in self.batches)
        return ClaimCompletion(claim_id=self.claim_id, token=self.token, batch_ids=batch_ids)


class EmptyReason(enum.StrEnum):
    """Why a claim got nothing."""

    EMPTY = "empty"
    """Nothing is queued."""
    NOT_YET_AVAILABLE = "not_yet_available"
    """All queued work is delayed."""
    CLAIMED = "claimed"
    """All work that could be claimed is claimed already."""
    COMMAND_AT_HEAD = "command_at_head"
    """A session command comes first."""
    TURN_WORK_AT_HEAD = "turn_work_at_head"
    """The claim was for a command, and turn work comes first."""
    AFTER_TURN = "after_turn"
    """All ready work is for after the turn."""
    NOT_AT_HEAD = "not_at_head"
    """The requested batches are not next in the queue."""
    PAUSED = "paused"
    """The session is paused because its last turn failed."""
    PARKED = "parked"
    """A turn of the session waits for something; later input waits for the turn."""
    NOTHING_ASKED_FOR = "nothing_asked_for"
    """The claim was for no batches."""


class NothingClaimed(Value, frozen=True, kw_only=True):
    """A claim that got nothing and changed nothing. Delayed work becomes available at ``next_available_at_ms``."""

    reason: EmptyReason
    next_available_at_ms: int | None = None


class ClaimedTurn(Value, frozen=True, kw_only=True):
    """A turn that may run: the lease of its session, the claim on its input, and the state that it starts from.

    ``revision`` and ``leaf_node_id`` are those of the session. ``recorded`` is true if an earlier attempt recorded
    effects. ``wake_seq`` is how many reasons to continue a turn of the session there have been; None if it was not
    read.
    """

    lease: Lease
    claim: Claim
    revision: int
    leaf_node_id: str | None
    recorded: bool
    wake_seq: int | None = None


class DeadLetter(Value, frozen=True, kw_only=True):
    """A batch that was given up, with the reason and the time. ``position`` orders dead letters by their death.

    It is called ``place`` in JSON, as in the database.
    """

    position: int = msgspec.field(name="place")
    batch: Batch
    reason: str
    error: JSON
    died_at_ms: int

    @property
    def attempts(self) -> int:
        """How often the batch was claimed before it was buried."""
        return self.batch.attempts


ClaimOutcome: TypeAlias = Claim | NothingClaimed
ClaimTurnOutcome: TypeAlias = ClaimedTurn | Busy | NothingClaimed


def turn_id_of(batch_id: str) -> str:
    """Return the id of the turn that is named after its first batch, the same in every attempt."""
    return f"turn:{batch_id}"

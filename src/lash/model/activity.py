"""Activity: the live output of a session's turns, and the values that an observer gets."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, UnsetType

from lash.model.gap import GapReason
from lash.model.process.process import ChangeKind, ProcessChange, ProcessStatus
from lash.model.value import JSON, Count, Positive, Value


class ActivityDraft(Value, frozen=True, kw_only=True):
    """Something to show, such as a piece of a reply; ``lost`` is the number of pieces before it that were dropped.

    Without a payload it reports only that loss.
    """

    turn_id: str
    payload: JSON | UnsetType = UNSET
    lost: Count = 0


class Activity(Value, frozen=True, kw_only=True):
    """A stored piece of activity: its position in the session, and the session's revision when it was stored."""

    position: Positive
    revision: Count
    turn_id: str
    payload: JSON | UnsetType = UNSET
    lost: Count = 0
    created_at_ms: int


class QueueMark(Value, frozen=True, kw_only=True):
    """The state of a queue: how many batches are queued, how many of them a claim holds, how many dead letters.

    Each is counted up to 1,000, the newest first.
    """

    queued: Count = 0
    claimed: Count = 0
    newest_seq: Count = 0
    dead: Count = 0


class ObserveCursor(Value, frozen=True, kw_only=True):
    """How far an observer has read a session; users see its text form.

    ``life`` changes when the session is deleted and created again, and is 0 before it is first created. ``epoch``
    identifies one numbering of its activity, and is empty before there is any.
    """

    life: Count = 0
    epoch: str = ""
    position: Count = 0
    revision: Count = 0
    queue: QueueMark = QueueMark()
    change: str = ""


class ActivityPage(Value, frozen=True, kw_only=True):
    """One read of a session: the cursor of its newest state, and its activity after the reader's cursor, limited.

    If activity after the cursor was deleted, ``oldest`` is the position of the first piece after it that is kept.
    """

    newest: ObserveCursor
    gap: GapReason | None = None
    oldest: Positive | None = None
    activity: tuple[Activity, ...] = ()

    @property
    def more(self) -> bool:
        """Whether there is activity after this page."""
        return bool(self.activity) and self.activity[-1].position < self.newest.position


class SeenChange(Value, frozen=True, kw_only=True):
    """A change of a process that a session may see, and the cursor directly after it."""

    change: ProcessChange
    cursor: str


class SeenChanges(Value, frozen=True, kw_only=True):
    """Changes that a session may see; ``cursor`` is after all changes that were read to find them."""

    changes: tuple[SeenChange, ...]
    cursor: str


class _Observed(Value, frozen=True, kw_only=True, tag_field="type"):
    """Something that an observer received; observing again with its cursor continues directly after it."""

    cursor: str


class TurnActivity(_Observed, frozen=True, kw_only=True, tag="turn_activity"):
    """A turn showed something. It is not history: the turn may fail or run again after showing it."""

    turn_id: str
    payload: JSON = None


class Committed(_Observed, frozen=True, kw_only=True, tag="committed"):
    """The session is at a new revision; of several commits between two reads only the last is reported."""

    revision: Count


class QueueChanged(_Observed, frozen=True, kw_only=True, tag="queue_changed"):
    """The queue differs from the last report; batches that came and went in between are not reported."""

    queue: QueueMark


class ProcessChanged(_Observed, frozen=True, kw_only=True, tag="process_changed"):
    """A process changed that wakes the session or was granted to it."""

    process_id: str
    kind: ChangeKind
    sequence: Count | None = None
    status: ProcessStatus | None = None


class Gap(_Observed, frozen=True, kw_only=True, tag="gap"):
    """Something is missing; the stream continues from the cursor.

    With ``DROPPED`` only ``lost`` pieces of activity are missing. With the other reasons anything may be missing:
    load the session again, which is at ``revision``.
    """

    reason: GapReason
    revision: Count
    lost: Count = 0


Observed: TypeAlias = TurnActivity | Committed | QueueChanged | ProcessChanged | Gap

"""Activity: what can be seen of a session while it lives, and the values that an observer gets."""

from __future__ import annotations

import enum
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from lash.model.process.process import ChangeKind, ProcessChange, ProcessStatus
from lash.model.value import JSON, Count, Positive, Value


class ActivityDraft(Value, frozen=True, kw_only=True):
    """Something to show, such as a piece of a reply; ``lost`` tells how many before it could not be kept.

    Without a payload it shows nothing but that loss.
    """

    turn_id: str
    payload: JSON | UnsetType = UNSET
    lost: Count = 0


class Activity(Value, frozen=True, kw_only=True):
    """Something that was shown, at its position within the session, while the session was at ``revision``."""

    position: Positive
    revision: Count
    turn_id: str
    payload: JSON | UnsetType = UNSET
    lost: Count = 0
    created_at_ms: int


class QueueMark(Value, frozen=True, kw_only=True):
    """How a queue stands: what is queued, how much of that a claim holds, and the dead letters.

    Each is counted up to 1,000, beginning with the newest.
    """

    queued: Count = 0
    claimed: Count = 0
    newest_seq: Count = 0
    dead: Count = 0


class Place(Value, frozen=True, kw_only=True):
    """How far somebody has seen a session; the text form of it is a cursor.

    ``life`` is another number after the session was deleted and created again, 0 before it was first created.
    ``epoch`` names one numbering of its activity, and is empty before there is any.
    """

    life: Count = 0
    epoch: str = ""
    position: Count = 0
    revision: Count = 0
    queue: QueueMark = QueueMark()
    change: str = ""


class GapReason(enum.StrEnum):
    """Why something that happened cannot be told."""

    TRIMMED = "trimmed"
    """It is no longer kept: whoever observes was away for too long, or too slow."""
    UNAVAILABLE = "unavailable"
    """The cursor is of another life of the session or of the database, or ahead of it."""
    DROPPED = "dropped"
    """The worker could not write it down fast enough, or at all."""


class Look(Value, frozen=True, kw_only=True):
    """What one look at a session showed: where it stands now, and its activity behind a place, up to a limit."""

    place: Place
    gap: GapReason | None = None
    activity: tuple[Activity, ...] = ()

    @property
    def more(self) -> bool:
        """Whether there is activity behind what the look holds."""
        return bool(self.activity) and self.activity[-1].position < self.place.position


class SeenChange(Value, frozen=True, kw_only=True):
    """A change of a process that a session may see, and the cursor right behind it."""

    change: ProcessChange
    cursor: str


class SeenChanges(Value, frozen=True, kw_only=True):
    """Some of the changes that a session may see; ``cursor`` stands behind all that was looked at for them."""

    changes: tuple[SeenChange, ...]
    cursor: str


class _Observed(Value, frozen=True, kw_only=True, tag_field="type"):
    """Something that was observed; observing again with its cursor goes on right behind it."""

    cursor: str


class TurnActivity(_Observed, frozen=True, kw_only=True, tag="turn_activity"):
    """A turn showed something. It is not history: a turn that fails or is run again may have shown it in vain."""

    turn_id: str
    payload: JSON = None


class Committed(_Observed, frozen=True, kw_only=True, tag="committed"):
    """The session is at a new revision; several commits between two looks are told as the last of them."""

    revision: Count


class QueueChanged(_Observed, frozen=True, kw_only=True, tag="queue_changed"):
    """The queue stands otherwise than it was told last; what came and went in between is not told."""

    queue: QueueMark


class ProcessChanged(_Observed, frozen=True, kw_only=True, tag="process_changed"):
    """A process changed that wakes the session or that it was granted."""

    process_id: str
    kind: ChangeKind
    sequence: Count | None = None
    status: ProcessStatus | None = None


class Gap(_Observed, frozen=True, kw_only=True, tag="gap"):
    """Something happened that cannot be told; what follows goes on from the cursor.

    With ``DROPPED`` only ``lost`` pieces of activity are missing. Otherwise anything may be, and ``revision`` is where
    the session stands: read it anew.
    """

    reason: GapReason
    revision: Count
    lost: Count = 0


Observed: TypeAlias = TurnActivity | Committed | QueueChanged | ProcessChanged | Gap

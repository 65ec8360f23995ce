"""Why a reader that resumes at a cursor misses something."""

from __future__ import annotations

import enum


class GapReason(enum.StrEnum):
    """Why an observer or a reader of the change feed misses something."""

    TRIMMED = "trimmed"
    """It was deleted: the reader was disconnected for too long, or too slow."""
    UNAVAILABLE = "unavailable"
    """The cursor is from another life of the session, from another epoch of the database, or ahead of it."""
    DROPPED = "dropped"
    """The worker could not store it fast enough, or at all."""

"""Deleting sessions: what is left to do after the guarded statement for sessions without ties."""

from __future__ import annotations

import enum

import msgspec


class DeletionFacts(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a session after the guarded statement, read under its locks."""

    session_id: str
    is_deleted: bool
    """Whether the statement deleted it."""
    exists: bool
    """Whether it existed before the statement."""
    is_wanted: bool
    """False if only an expired session is wanted, and this one is not, or does not exist, or its lease is live."""
    is_tied: bool
    """Whether schedules, subscriptions, processes, queued wakes or forks are tied to it."""


class Deletion(enum.Enum):
    """What is left to do for the deletion of a session."""

    DONE = "done"
    """The statement deleted it."""
    NOTHING = "nothing"
    """There is nothing to delete."""
    STEPWISE = "stepwise"
    """It is deleted in steps, each of which sees what the locks of the one before it waited for."""


def choose_deletion(facts: DeletionFacts) -> Deletion:
    """Decide what is left to do.

    A session that exists and is not tied was created after the statement had taken its locks, so it stayed. A session
    that does not exist may still be tied, for instance to a process that wakes it.
    """
    if facts.is_deleted:
        return Deletion.DONE
    if facts.is_wanted and (facts.exists or facts.is_tied):
        return Deletion.STEPWISE
    return Deletion.NOTHING

"""How the run of a turn ended."""

from __future__ import annotations

from typing import Final

from lash.runtime.after_run import AfterRun, EndOfRun


class TurnEnd(EndOfRun):
    """How a turn's run ended, and what the worker does next with the session."""

    COMMITTED = "committed", AfterRun.POLL
    FAILED = "failed", AfterRun.POLL
    """Its input is queued again, for another attempt after a pause."""
    BURIED = "buried", AfterRun.POLL
    """Its input is a dead letter."""
    LOST = "lost", AfterRun.BACK_OFF
    """Another worker has the session, or it was deleted."""
    PARKED = "parked", AfterRun.POLL
    """It waits for another session, a process, a wait or a moment, which makes it ready again."""
    RELEASED = "released", AfterRun.POLL
    """The worker stops; another one continues from the records."""
    UNKNOWN = "unknown", AfterRun.LEAVE
    """No agent of the name that the session wants is declared here."""
    LEFT = "left", AfterRun.LEAVE
    """The worker does not run turns of this agent."""


LAST: Final = frozenset({TurnEnd.COMMITTED, TurnEnd.BURIED})
"""The ends after which the turn does not run again."""

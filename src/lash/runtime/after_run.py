"""What a worker does next with a session or a process after a run."""

from __future__ import annotations

import enum


class AfterRun(enum.Enum):
    """The next thing that a worker does, whatever the reason that a run ended."""

    POLL = "poll"
    """Poll at once: there may be more to do."""
    FORGET = "forget"
    """It has ended and never runs again; nothing to poll for."""
    BACK_OFF = "back off"
    """Nothing was done: leave it alone for a moment, twice as long each time."""
    LEAVE = "leave"
    """This worker lacks the code: leave it to other workers for a while."""


class EndOfRun(enum.Enum):
    """How a run ended: each member is its name and what the worker does next."""

    @property
    def after(self) -> AfterRun:
        after: AfterRun = self.value[1]
        return after

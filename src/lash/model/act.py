"""Acts: what operators did to a storage, and who did it."""

from __future__ import annotations

import enum

from lash.model.value import Value


class ActOutcome(enum.StrEnum):
    """How an act ended."""

    DONE = "done"
    REFUSED = "refused"


class Act(Value, frozen=True, kw_only=True):
    """One act of an operator, such as a cancellation. It is recorded before it is done.

    Without an ``outcome`` it is unknown whether it was done: it runs, or its program crashed.
    """

    position: int
    """Later acts have higher positions."""
    act_id: str
    by: str
    """The operator, as the application or the command names them."""
    verb: str
    """What was done, such as ``requeue``."""
    target: str
    """The id of what it was done to."""
    session_id: str | None = None
    """The session of the target, if it has one."""
    process_id: str | None = None
    """The process of the target, if it has one."""
    at_ms: int
    outcome: ActOutcome | None = None
    error: str | None = None
    """The class of the error with which it was refused."""

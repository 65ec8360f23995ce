"""The work list: what a worker finds when it looks."""

from __future__ import annotations

from lash.model.lease import Lease
from lash.model.value import Value


class WorkList(Value, frozen=True, kw_only=True):
    """What there is to do at one moment. All of it are hints: only a claim decides who does it."""

    session_ids: tuple[str, ...] = ()
    """Sessions that have ready work, no live lease and no pause."""
    process_ids: tuple[str, ...] = ()
    """Processes that are ready and that no live lease holds, those ready for longest first."""
    commanded_session_ids: tuple[str, ...] = ()
    """Those of the caller's running sessions for which a session command is ready."""
    cancelled_process_ids: tuple[str, ...] = ()
    """Those of the caller's running processes that were asked to stop."""
    suspect_leases: tuple[Lease, ...] = ()
    """Live leases of other incarnations on the caller's machine and boot, which may be dead: the caller checks."""
    timers_due: bool = False
    """Whether a schedule is to be fired or a wait is over."""
    next_at_ms: int | None = None
    """The earliest moment after ``now_ms`` at which something becomes ready by itself; None if nothing will."""
    now_ms: int
    """The storage's time of this look."""

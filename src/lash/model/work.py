"""The work list: what a worker finds when it polls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lash.model.lease import Lease
from lash.model.value import Value
from lash.model.worker import Fleet

MAX_POLL: Final = 1_000
"""How many sessions, and how many processes, one poll returns at most."""


class SessionLanes(Value, frozen=True, kw_only=True):
    """Sessions that a poll found, by the reason for which they come next. A session may be in several lanes."""

    urgent: tuple[str, ...] = ()
    """The sessions with the highest priority among their ready messages first, then in the order of arrival."""
    resumed: tuple[str, ...] = ()
    """A parked turn can continue, or delayed work is due; ordered by the moment."""
    waiting: tuple[str, ...] = ()
    """By the arrival of their ready work. Sessions that other work in front of them hides follow by their own age."""
    newest: tuple[str, ...] = ()
    """The sessions to which ready work came last, the last first."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every session once, lane after lane."""
        return tuple(dict.fromkeys((*self.urgent, *self.resumed, *self.waiting, *self.newest)))

    def only(self, is_wanted: Callable[[str], bool]) -> SessionLanes:
        """Return the lanes with some of their sessions."""
        return SessionLanes(
            urgent=tuple(filter(is_wanted, self.urgent)),
            resumed=tuple(filter(is_wanted, self.resumed)),
            waiting=tuple(filter(is_wanted, self.waiting)),
            newest=tuple(filter(is_wanted, self.newest)),
        )


class WorkList(Value, frozen=True, kw_only=True):
    """The work that one poll found. All of this is advisory: only a claim decides which worker does it."""

    lanes: SessionLanes = SessionLanes()
    """Sessions that have ready work, no live lease and no pause."""
    process_ids: tuple[str, ...] = ()
    """Ready processes without a live lease, ordered by how long they have been ready, the longest first."""
    commanded_session_ids: tuple[str, ...] = ()
    """Those of the caller's running sessions that have a ready session command."""
    cancelled_process_ids: tuple[str, ...] = ()
    """Those of the caller's running processes that were asked to stop."""
    suspect_leases: tuple[Lease, ...] = ()
    """Live leases of other incarnations on the caller's machine and boot; the caller checks whether they are dead."""
    timers_due: bool = False
    """Whether a schedule is due or the deadline of a wait has passed."""
    wakes_due: bool = False
    """Whether there are reasons to continue parked turns that `WorkStore.wake` has not counted yet."""
    next_at_ms: int | None = None
    """The earliest moment after ``now_ms`` at which something becomes ready without a write; None if nothing will."""
    now_ms: int
    """The time of the storage at this poll."""
    fleet: Fleet | None = None
    """The place of the caller among the workers; None if the poll had no beat."""

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The sessions of all lanes."""
        return self.lanes.all

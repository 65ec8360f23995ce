"""Rules of the work list: which events make a process ready to run, and the arguments and answer of a poll.

Readiness is scheduling state, as the lease is: it is not part of the record, and no event is written for it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.limits import check_identifiers, check_integer
from lash.errors import CorruptData, InvalidInput, NewerSchema
from lash.model.causal import ProcessCause, ProcessEventCause
from lash.model.lease import Lease, LeaseOwner, Resource, process_resource, session_resource
from lash.model.process.event import ABANDON_REQUESTED, CANCEL_REQUESTED, CONTINUED, SIGNAL_PREFIX
from lash.model.process.process import ProcessStatus, Projection, Recovery, Registration
from lash.model.work import MAX_POLL, SessionLanes, WorkList
from lash.plan.lease import MAX_TTL_MS, LeaseRow, check_claim, held_lease
from lash.plan.park import known_moment
from lash.plan.worker import FleetRow, WorkerRow, check_beat, decode_fleet, encode_choice

MAX_HOLDERS: Final = 64
"""How many other holders on the same machine one poll returns leases of; the next poll returns others."""


class WorkChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of the work list that an appended event causes."""

    wakes: bool = False
    """The process has one more reason to run."""
    ends: bool = False
    """The process is never run again."""
    wakes_parent: bool = False
    """The process that started it has one more reason to run."""
    continues: bool = False
    """The next run of the process begins, and the effects of the last one are deleted."""


class HeldRow(msgspec.Struct, frozen=True, array_like=True):
    """The lease row of a session or a process, with the id of that session or process."""

    held_id: str
    fencing: int
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int
    expires_at_ms: int

    @property
    def lease(self) -> LeaseRow:
        return LeaseRow(
            self.fencing,
            self.owner_id,
            self.incarnation_id,
            self.process,
            self.token,
            self.claimed_at_ms,
            self.expires_at_ms,
        )


class WorkAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The rows that a poll found."""

    now_ms: int
    urgent_ids: list[str]
    resumed_ids: list[str]
    waiting_ids: list[str]
    newest_ids: list[str]
    process_ids: list[str]
    commanded_session_ids: list[str]
    cancelled_process_ids: list[str]
    held_sessions: list[HeldRow]
    held_processes: list[HeldRow]
    next_at_ms: int | None
    timer_at_ms: int | None
    schema: int
    """The number of the last migration that was applied to the storage."""
    any_wakes: bool
    """Whether there are reasons to continue turns that were not counted yet."""
    fleet: FleetRow | None
    """What the beat of the poll found, if the poll had one."""


class WorkPoll(msgspec.Struct, frozen=True, kw_only=True):
    """A poll of the work list, checked."""

    sessions: int
    processes: int
    owner: LeaseOwner
    running_sessions: tuple[str, ...]
    running_processes: tuple[str, ...]
    process_names: tuple[str, ...] | None = None
    """The labels of the processes that the caller takes; None is all."""
    agents: tuple[str, ...] | None = None
    """The agents whose sessions the caller takes; None is all."""
    labels: str | None = None
    """The labels of the sessions that the caller takes, a JSON object; None is all."""
    beat: WorkerRow | None = None


def plan_work(registration: Registration, before: Projection, event_type: str, after: Projection) -> WorkChange:
    """Return the change of the work list by an event, given the projections before and after it."""
    if before.status is not ProcessStatus.RUNNING:
        return WorkChange()
    if after.status is not ProcessStatus.RUNNING:
        return WorkChange(ends=True, wakes_parent=parent_of(registration) is not None)
    if event_type == CONTINUED:
        return WorkChange(continues=True)
    is_request = event_type in (CANCEL_REQUESTED, ABANDON_REQUESTED)
    return WorkChange(wakes=is_request or event_type.startswith(SIGNAL_PREFIX))


def is_runnable(registration: Registration) -> bool:
    """Return whether workers run the process."""
    return registration.recovery is not Recovery.EXTERNAL


def parent_of(registration: Registration) -> str | None:
    """Return the id of the process that started this one; None if it was not started by a process."""
    cause = registration.provenance.caused_by
    if not isinstance(cause, ProcessCause | ProcessEventCause) or cause.process_id == registration.process_id:
        return None
    return cause.process_id


def check_poll(
    sessions: object,
    processes: object,
    owner: object,
    running_sessions: object,
    running_processes: object,
    beat: object = None,
    process_names: object = None,
    agents: object = None,
    labels: object = None,
) -> WorkPoll:
    """Return the checked poll, or raise InvalidInput."""
    check_claim(owner, 0)
    assert isinstance(owner, LeaseOwner)
    row = None if beat is None else check_beat(beat)
    if row is not None and (row.owner_id, row.worker_id) != (owner.owner_id, owner.incarnation_id):
        raise InvalidInput("the owner of the beat must be the owner of the poll")
    return WorkPoll(
        sessions=_check_size("sessions", sessions),
        processes=_check_size("processes", processes),
        owner=owner,
        running_sessions=check_identifiers("running_sessions", running_sessions),
        running_processes=check_identifiers("running_processes", running_processes),
        process_names=None if process_names is None else check_identifiers("process_names", process_names),
        agents=None if agents is None else check_identifiers("agents", agents),
        labels=encode_choice(labels),
        beat=row,
    )


def check_schema(found: int, known: int) -> None:
    """Raise NewerSchema if a migration was applied that this version does not know."""
    if found > known:
        raise NewerSchema(found=found, supported=known)


def decode_work(answer: WorkAnswer) -> WorkList:
    """Return the work list of the rows."""
    held: tuple[Lease, ...] = ()
    if answer.held_sessions or answer.held_processes:
        held = (
            *(_held(row, session_resource(row.held_id)) for row in answer.held_sessions),
            *(_held(row, process_resource(row.held_id)) for row in answer.held_processes),
        )
    timer = answer.timer_at_ms
    timers_due = timer is not None and timer <= answer.now_ms
    next_at_ms = known_moment(answer.next_at_ms)
    moments = [each for each in (next_at_ms, None if timers_due else timer) if each is not None]
    return WorkList(
        lanes=SessionLanes(
            urgent=_once(answer.urgent_ids),
            resumed=_once(answer.resumed_ids),
            waiting=_once(answer.waiting_ids),
            newest=_once(answer.newest_ids),
        ),
        process_ids=tuple(answer.process_ids),
        commanded_session_ids=tuple(answer.commanded_session_ids),
        cancelled_process_ids=tuple(answer.cancelled_process_ids),
        suspect_leases=held,
        timers_due=timers_due,
        wakes_due=answer.any_wakes,
        next_at_ms=min(moments, default=None),
        now_ms=answer.now_ms,
        fleet=None if answer.fleet is None else decode_fleet(answer.fleet),
    )


def check_park(wake_seq: object, until_ms: object) -> None:
    """Raise InvalidInput unless the arguments of a parking are valid."""
    check_integer("wake_seq", wake_seq, at_least=0)
    if until_ms is not None:
        check_integer("until_ms", until_ms, at_least=0)


def check_pause(pause_ms: object) -> int:
    """Return the pause in milliseconds, or raise InvalidInput unless it lies between zero and a day."""
    milliseconds = check_integer("pause_ms", pause_ms, at_least=0)
    if milliseconds > MAX_TTL_MS:
        raise InvalidInput(f"pause_ms must be at most {MAX_TTL_MS:,} (a day)")
    return milliseconds


def _once(session_ids: list[str]) -> tuple[str, ...]:
    """Return the sessions at their first place: several of the batches that were found may be of one session."""
    return tuple(dict.fromkeys(session_ids)) if session_ids else ()


def _held(row: HeldRow, resource: Resource) -> Lease:
    lease = held_lease(row.lease, resource)
    if lease is None:
        raise CorruptData(f"the lease of {resource} was found by its holder but has none")
    return lease


def _check_size(what: str, size: object) -> int:
    number = check_integer(what, size, at_least=0)
    if number > MAX_POLL:
        raise InvalidInput(f"{what} must be at most {MAX_POLL:,}, not {number:,}")
    return number

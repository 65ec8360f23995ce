"""Rules of the registry of workers: what a beat stores, when a worker counts as late, and how often each one polls."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.codec import decode, encode
from lash.base.limits import check_identifier, check_integer, check_text, saturating_add
from lash.errors import CorruptData, InvalidInput
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.worker import Beat, Fleet, Holding, Pace, Served, WorkerRecord, WorkerStatus
from lash.plan.lease import MAX_TTL_MS, check_claim, encode_process
from lash.plan.session.meta import check_labels

LATE_BEATS: Final = 2
"""A worker is late once it has missed this many beats: a slow database delays one."""
GONE_BEATS: Final = 4
"""A worker that missed this many beats is removed by the beat of another one."""
MAX_NAMES: Final = 100
"""How many agents and processes one worker may name: the list is read for every hint."""
LONE_POLLS: Final = 20
"""How many poll intervals a lone worker promises its next beat in: no other worker relies on it."""
DUTY_POLLS: Final = 2
"""How many poll intervals the duty worker promises its next beat in."""
STAND_IN_POLLS: Final = 3
"""How many poll intervals the stand-in waits; the worker of rank n waits n times as long."""
LONGEST_PAUSE_S: Final = 120.0
"""How long any worker waits at most until its next poll and beat."""


class WorkerRow(msgspec.Struct, frozen=True, array_like=True):
    """One row of the registry."""

    worker_id: str
    owner_id: str
    host: str
    pid: int
    process: str | None
    boot_id: str | None
    version: str
    started_at_ms: int
    seen_at_ms: int
    beat_ms: int
    session_slots: int
    process_slots: int
    free_sessions: int
    free_processes: int
    agents: str | None
    processes: str | None
    labels: str | None
    channel: str | None
    status: str


class HoldingRow(msgspec.Struct, frozen=True, array_like=True):
    """What one worker runs."""

    worker_id: str
    session_ids: list[str]
    process_ids: list[str]


class NeighbourRow(msgspec.Struct, frozen=True, array_like=True):
    """Another worker on the same boot of the same machine."""

    owner_id: str
    worker_id: str
    process: str


class FleetRow(msgspec.Struct, frozen=True, array_like=True):
    """What a beat found about the fleet."""

    live: int
    """Without the worker itself."""
    rank: int
    status: str
    neighbours: list[NeighbourRow]
    alike: list[str]


def check_beat(beat: object) -> WorkerRow:
    """Return the row of a beat, or raise InvalidInput. The database adds the times and the status."""
    if not isinstance(beat, Beat):
        raise InvalidInput(f"beat must be a Beat, not {type(beat).__name__}")
    check_claim(beat.owner, 0)
    if beat.channel is not None:
        check_identifier("channel", beat.channel)
    if not isinstance(beat.served, Served):
        raise InvalidInput(f"served must be a Served, not {type(beat.served).__name__}")
    beat_ms = check_integer("beat_ms", beat.beat_ms, at_least=1)
    if beat_ms > MAX_TTL_MS:
        raise InvalidInput(f"beat_ms must be at most {MAX_TTL_MS:,} (a day)")
    return WorkerRow(
        beat.owner.incarnation_id,
        beat.owner.owner_id,
        check_text("host", beat.host),
        check_integer("pid", beat.pid, at_least=0),
        encode_process(beat.owner),
        None if beat.owner.process is None else beat.owner.process.boot_id,
        check_text("version", beat.version),
        0,
        0,
        beat_ms,
        check_integer("session_slots", beat.session_slots, at_least=0),
        check_integer("process_slots", beat.process_slots, at_least=0),
        check_integer("free_sessions", beat.free_sessions, at_least=0),
        check_integer("free_processes", beat.free_processes, at_least=0),
        _names("agents", beat.served.agents),
        _names("processes", beat.served.processes),
        encode_choice(beat.served.labels),
        beat.channel,
        WorkerStatus.ACTIVE,
    )


def decode_worker(row: WorkerRow, now_ms: int) -> WorkerRecord:
    """Return the worker of a row."""
    what = f"worker {row.worker_id!r}"
    process = None if row.process is None else decode(row.process, LocalProcess, f"the process of {what}")
    return WorkerRecord(
        beat=Beat(
            owner=LeaseOwner(owner_id=row.owner_id, incarnation_id=row.worker_id, process=process),
            host=row.host,
            pid=row.pid,
            version=row.version,
            beat_ms=row.beat_ms,
            session_slots=row.session_slots,
            process_slots=row.process_slots,
            free_sessions=row.free_sessions,
            free_processes=row.free_processes,
            served=Served(
                agents=_decode_names(row.agents, what),
                processes=_decode_names(row.processes, what),
                labels=None if row.labels is None else decode_choice(row.labels, what),
            ),
            channel=row.channel,
        ),
        status=_status(row.status, what),
        started_at_ms=row.started_at_ms,
        seen_at_ms=row.seen_at_ms,
        is_late=is_late(row.seen_at_ms, row.beat_ms, now_ms),
    )


def decode_holding(row: HoldingRow | None) -> Holding:
    """Return what a worker runs: nothing without a row."""
    if row is None:
        return Holding(session_ids=(), process_ids=())
    return Holding(session_ids=tuple(row.session_ids), process_ids=tuple(row.process_ids))


def is_late(seen_at_ms: int, beat_ms: int, now_ms: int) -> bool:
    """Return whether a worker missed so many beats that others stop to rely on it."""
    return saturating_add(seen_at_ms, LATE_BEATS * beat_ms) < now_ms


def decode_fleet(row: FleetRow) -> Fleet:
    """Return what a beat found."""
    status = _status(row.status, "this worker")
    return Fleet(
        live=row.live + 1,
        rank=row.rank if status is WorkerStatus.ACTIVE else None,
        status=status,
        neighbours=tuple(owner for each in row.neighbours if (owner := _neighbour(each)) is not None),
        alike=tuple(row.alike),
    )


def _neighbour(row: NeighbourRow) -> LeaseOwner | None:
    """Return another worker; None if its row is damaged, which must not stop this one."""
    try:
        process = decode(row.process, LocalProcess, "the process of a worker")
    except CorruptData:
        return None
    return LeaseOwner(owner_id=row.owner_id, incarnation_id=row.worker_id, process=process)


def plan_pace(fleet: Fleet | None, poll_s: float, *, gets_hints: bool) -> Pace:
    """Return how often a worker polls without a hint and when it promises its next beat.

    The duty worker polls for all; each further rank polls less often, so that few take over when some die, and so that
    many cost little. A worker that no hint can reach, or that takes only some kinds of work, polls as if it were alone.
    """
    rank = 0 if fleet is None else fleet.rank
    if rank == 0:
        is_lone = fleet is None or fleet.live == 1
        return _pace(poll_s, (LONE_POLLS if is_lone else DUTY_POLLS) * poll_s)
    pause_s = max(poll_s, LONGEST_PAUSE_S if rank is None else min(STAND_IN_POLLS * rank * poll_s, LONGEST_PAUSE_S))
    return _pace(pause_s if gets_hints else poll_s, pause_s)


def _pace(poll_s: float, beat_s: float) -> Pace:
    return Pace(poll_s=poll_s, beat_ms=min(max(1, round(beat_s * 1_000)), MAX_TTL_MS))


def _names(what: str, names: object) -> str | None:
    if names is None:
        return None
    if not isinstance(names, tuple):
        raise InvalidInput(f"{what} must be a tuple of names or None, not {type(names).__name__}")
    if len(names) > MAX_NAMES:
        raise InvalidInput(f"{what} has {len(names):,} names; at most {MAX_NAMES} are allowed")
    return encode(tuple(check_identifier(f"{what} item", each) for each in names), tuple[str, ...], what)


def encode_choice(labels: object) -> str | None:
    """Check the labels that a worker chooses work by, and return them as stored; None if it takes all."""
    return None if labels is None or labels == {} else encode(check_labels(labels), dict[str, str], "labels")


def decode_choice(labels: str, what: str) -> dict[str, str]:
    """Return stored labels."""
    return decode(labels, dict[str, str], f"the labels of {what}")


def _decode_names(names: str | None, what: str) -> tuple[str, ...] | None:
    return None if names is None else decode(names, tuple[str, ...], f"the names of {what}")


def _status(status: str, what: str) -> WorkerStatus:
    try:
        return WorkerStatus(status)
    except ValueError as error:
        raise CorruptData(f"the status of {what} is {status!r}; expected active or draining") from error

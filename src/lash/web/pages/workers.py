"""Workers, and the leases that they hold."""

from __future__ import annotations

import asyncio
from typing import Final

import htpy as h

from lash.cli.workers import names_text, serves_text
from lash.model.lease import Lease, ResourceKind
from lash.model.worker import Holding, WorkerRecord, WorkerStatus
from lash.web.show import Column, act, ago, badge, line, more_link, name_link, table
from lash.web.view import Visit, WebPage

_PAGE: Final = 100
_COLUMNS: Final = (
    "worker",
    "state",
    "host",
    Column("pid", is_number=True),
    "version",
    "serves",
    Column("sessions", is_number=True),
    Column("processes", is_number=True),
    "started",
    "seen",
    "",
)


async def workers(visit: Visit) -> WebPage:
    """Three reads, however many workers there are."""
    listed, leases = await asyncio.gather(
        visit.storage.workers.list(),
        visit.storage.leases.live(limit=_PAGE, cursor=visit.parameter("cursor") or None),
    )
    held = await visit.storage.workers.holding([each.worker_id for each in listed], limit=_PAGE)
    rows = (_row(visit, each, held[each.worker_id]) for each in listed)
    owners = {each.worker_id: each.beat.host for each in listed}
    held_rows = (_lease_row(each, owners) for each in leases.leases)
    return WebPage(
        "Workers",
        (
            h.section("#found")[table(_COLUMNS, rows, nothing="No workers. Start one with: lash worker MODULE:APP"),],
            h.section("#leases")[
                h.h2["Leases"],
                table(
                    ("what", "worker", Column("fencing number", is_number=True), "held since", "time left"),
                    held_rows,
                    nothing="Nothing runs.",
                ),
                more_link("workers", visit.query, leases.next_cursor, "cursor"),
            ],
        ),
    )


def _row(visit: Visit, worker: WorkerRecord, holding: Holding) -> tuple[h.Node, ...]:
    beat = worker.beat
    may_drain = visit.may_act and worker.status is WorkerStatus.ACTIVE
    return (
        h.span(title=names_text(holding.session_ids + holding.process_ids))[line(beat.owner.owner_id, 60)],
        badge("late" if worker.is_late else worker.status.value),
        line(beat.host, 60),
        str(beat.pid),
        line(beat.version, 30),
        line(serves_text(beat.served, sessions=beat.session_slots, processes=beat.process_slots)),
        f"{len(holding.session_ids)}/{beat.session_slots}",
        f"{len(holding.process_ids)}/{beat.process_slots}",
        ago(worker.started_at_ms),
        ago(worker.seen_at_ms),
        act("drain", "Drain", {"worker": worker.worker_id}, danger=True) if may_drain else None,
    )


def _lease_row(lease: Lease, hosts: dict[str, str]) -> tuple[h.Node, ...]:
    page = "session" if lease.resource.kind is ResourceKind.SESSION else "process"
    host = hosts.get(lease.owner.incarnation_id)
    return (
        (f"{page} ", name_link(page, lease.resource.id)),
        line(lease.owner.owner_id if host is None else f"{lease.owner.owner_id} on {host}", 80),
        f"{lease.fencing:,}",
        ago(lease.claimed_at_ms),
        ago(lease.expires_at_ms),
    )

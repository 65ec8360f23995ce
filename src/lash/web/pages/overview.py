"""What happens now: figures, and what waits for a person."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import htpy as h

from lash.cli.text import size
from lash.model.maintenance import StorageCounts, StorageReport
from lash.model.process.process import ProcessStatus
from lash.model.session.session import SessionOrder, SessionPage, SessionState
from lash.model.session.usage import UsagePage
from lash.model.worker import WorkerRecord
from lash.web.pages.sessions import session_table
from lash.web.show import link, now_ms
from lash.web.view import Visit, WebPage

_DAY_MS = 86_400_000
_RECENT = 12


async def overview(visit: Visit) -> WebPage:
    """Six reads, however much there is."""
    today_ms = now_ms() // _DAY_MS * _DAY_MS
    counts, workers, used, report, recent = await asyncio.gather(
        visit.storage.counts(),
        visit.storage.workers.list(),
        visit.storage.usage.sum((), since_ms=today_ms),
        visit.storage.report(),
        visit.storage.sessions.list(order=SessionOrder.ACTIVE, with_state=True, with_counts=True, limit=_RECENT),
    )
    return WebPage("Overview", (_figures(counts, workers, used, report), _recent(visit, recent)))


def _figures(
    counts: StorageCounts, workers: tuple[WorkerRecord, ...], used: UsagePage, report: StorageReport
) -> h.Element:
    spent = used.sums[0].usage.total if used.sums else 0
    live = sum(1 for each in workers if not each.is_late)
    today = datetime.now(UTC).date().isoformat()
    tiles = (
        _tile(counts.sessions[SessionState.RUNNING], "turns now", link("sessions", state="running"), "good"),
        _tile(counts.queued, "queued", link("queue"), "warn" if counts.queued else ""),
        _tile(counts.waits, "waiting for you", link("inbox"), "warn" if counts.waits else ""),
        _tile(counts.dead, "dead letters", link("queue", show="dead"), "bad" if counts.dead else ""),
        _tile(counts.processes[ProcessStatus.RUNNING], "processes", link("processes"), ""),
        _tile(
            counts.processes[ProcessStatus.FAILED],
            "failed processes",
            link("processes", status="failed"),
            "bad" if counts.processes[ProcessStatus.FAILED] else "",
        ),
        _tile(live, "workers", link("workers"), "" if live else "bad"),
        _tile(spent, f"tokens on {today}", link("tokens"), ""),
        _tile(size(report.bytes), "stored", link("storage"), ""),
    )
    return h.section("#figures", aria_label="Figures")[h.ul(".tiles")[tiles]]


def _tile(value: int | str, name: str, address: str, tone: str) -> h.Element:
    shown = value if isinstance(value, str) else f"{value:,}"
    return h.li[h.a(href=address, class_=tone)[h.b[shown], h.span[name]]]


def _recent(visit: Visit, page: SessionPage) -> h.Element:
    return h.section("#recent")[
        h.h2["Last active sessions"],
        session_table(
            visit, page.sessions, nothing="No sessions yet. Send a message to an agent: lash ask MODULE:APP."
        ),
    ]

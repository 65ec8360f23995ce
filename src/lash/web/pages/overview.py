"""What happens now: figures, the last hour, and what waits for a person."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, NamedTuple

import htpy as h

from lash.cli.text import plural, size
from lash.model.maintenance import StorageCounts, StorageReport, Throughput
from lash.model.process.process import ProcessStatus
from lash.model.session.session import SessionOrder, SessionPage, SessionState
from lash.model.session.usage import UsagePage
from lash.model.worker import WorkerRecord
from lash.web.pages.sessions import session_table
from lash.web.series import series
from lash.web.show import link, now_ms
from lash.web.view import Visit, WebPage

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_RECENT: Final = 12


class _Span(NamedTuple):
    """How far back the drawing goes, and the interval of its bars."""

    text: str
    interval_ms: int
    bars: int
    per: str


_SPANS: Final = {
    "hour": _Span("the last hour", _MINUTE_MS, 60, "minute"),
    "day": _Span("the last 24 hours", 15 * _MINUTE_MS, 96, "quarter of an hour"),
}


async def overview(visit: Visit) -> WebPage:
    """Six reads, however much there is."""
    now, span = now_ms(), _SPANS.get(visit.parameter("span"), _SPANS["hour"])
    since_ms = (now // span.interval_ms - span.bars + 1) * span.interval_ms
    counts, workers, used, report, recent, ended = await asyncio.gather(
        visit.storage.counts(),
        visit.storage.workers.list(),
        visit.storage.usage.sum((), since_ms=now // _DAY_MS * _DAY_MS),
        visit.storage.report(),
        visit.storage.sessions.list(order=SessionOrder.ACTIVE, with_state=True, with_counts=True, limit=_RECENT),
        visit.storage.throughput(since_ms=since_ms, interval_ms=span.interval_ms),
    )
    pieces = (_figures(counts, workers, used, report), _pace(ended, span), _recent(visit, recent))
    return WebPage("Overview", pieces)


def _figures(
    counts: StorageCounts, workers: tuple[WorkerRecord, ...], used: UsagePage, report: StorageReport
) -> h.Element:
    spent = used.sums[0].usage.total if used.sums else 0
    live = sum(1 for each in workers if not each.is_late)
    failed = counts.processes[ProcessStatus.FAILED]
    running = counts.sessions[SessionState.RUNNING]
    today = datetime.now(UTC).date().isoformat()
    tiles = (
        _tile(running, "turns now", link("sessions", state="running"), "good" if running else ""),
        _tile(counts.queued, "queued", link("queue"), "warn" if counts.queued else ""),
        _tile(counts.waits, "waiting for you", link("inbox"), "warn" if counts.waits else ""),
        _tile(counts.dead, "dead letters", link("queue", show="dead"), "bad" if counts.dead else ""),
        _tile(counts.processes[ProcessStatus.RUNNING], "processes", link("processes", status="running"), ""),
        _tile(failed, "failed", link("processes", status="failed"), "bad" if failed else "", "failed processes"),
        _tile(live, "workers", link("workers"), "" if live else "bad"),
        _tile(spent, "tokens today", link("tokens", since="1 day"), "", f"since midnight UTC, {today}"),
        _tile(size(report.bytes), "stored", link("storage"), ""),
    )
    return h.section("#figures", aria_label="Figures")[h.ul(".tiles")[tiles]]


def _tile(value: int | str, name: str, address: str, tone: str, title: str | None = None) -> h.Element:
    shown = value if isinstance(value, str) else f"{value:,}"
    return h.li[h.a(href=address, class_=tone, title=title)[h.b[shown], h.span[name]]]


def _pace(ended: tuple[Throughput, ...], span: _Span) -> h.Element:
    turns, failed = sum(each.turns for each in ended), sum(each.failures for each in ended)
    processes = sum(each.processes for each in ended)
    counted = ", ".join((plural(turns, "turn"), plural(processes, "process"), plural(failed, "failure")))
    spans = (
        h.a(href=link("", span=name), aria_current="true" if each is span else None)[each.text]
        for name, each in _SPANS.items()
    )
    return h.section("#pace")[
        h.h2["Turns and failures"],
        h.nav(".tabs", aria_label="Time")[spans],
        h.p[counted, h.span(".quiet")[" ended in ", span.text, "."]],
        h.div(".card")[series(ended, span.per)],
    ]


def _recent(visit: Visit, page: SessionPage) -> h.Element:
    return h.section("#recent")[
        h.h2["Last active sessions"],
        session_table(
            visit, page.sessions, nothing="No sessions yet. Send a message to an agent: lash ask MODULE:APP."
        ),
    ]

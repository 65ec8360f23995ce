"""All processes, with filters."""

from __future__ import annotations

from collections.abc import Iterable

import htpy as h

from lash.cli.failure import reason_of
from lash.model.process.process import ProcessFilter, ProcessRecord, ProcessStatus
from lash.web.show import Column, ago, badge, choice_field, line, more_link, name_link, search_form, table, text_field
from lash.web.view import Visit, WebPage

_PAGE = 50
_COLUMNS = ("process", "name", "state", "due", Column("events", is_number=True), "created", "changed", "reason")


async def processes(visit: Visit) -> WebPage:
    """One read of one page, with the phases."""
    status = visit.parameter("status")
    wanted = ProcessFilter(
        status=ProcessStatus(status) if status in list(ProcessStatus) else None,
        parked=True if visit.parameter("parked") == "yes" else None,
        label=visit.parameter("name") or None,
        originator_session_id=visit.parameter("session") or None,
        parent_process_id=visit.parameter("parent") or None,
    )
    page = await visit.storage.processes.list(
        wanted, with_state=True, limit=_PAGE, cursor=visit.parameter("cursor") or None
    )
    filters = search_form(
        "processes",
        text_field("name", "name", visit.parameter("name"), key=True),
        choice_field("status", "status", status, list(ProcessStatus)),
        choice_field("parked", "parked", visit.parameter("parked"), ("yes",)),
        text_field("session", "started by session", visit.parameter("session")),
        text_field("parent", "started by process", visit.parameter("parent")),
    )
    found = process_table(
        visit, page.processes, nothing="No process matches. Start one: lash start MODULE:APP PROCESS."
    )
    return WebPage(
        "Processes",
        (
            h.section("#filters", aria_label="Filters")[filters],
            h.section("#found")[found, more_link("processes", visit.query, page.next_cursor, "cursor")],
        ),
    )


def process_table(visit: Visit, found: Iterable[ProcessRecord], *, nothing: str) -> h.Renderable:
    return table(_COLUMNS, (_row(visit, each) for each in found), nothing=nothing)


def _row(visit: Visit, record: ProcessRecord) -> tuple[h.Node, ...]:
    return (
        name_link("process", record.process_id),
        line(process_name(record)),
        process_badge(record),
        "" if record.state is None else ago(record.state.due_at_ms),
        f"{record.last_sequence:,}",
        ago(record.created_at_ms),
        ago(record.updated_at_ms),
        h.span(".text")[line(visit.redact(reason_of(record.projection.outcome)))],
    )


def process_name(record: ProcessRecord) -> str:
    """Return the name under which a process was declared, and the number of its run if it continued as new."""
    identity = record.registration.identity
    name = "" if identity is None else identity.label or identity.kind
    return name if record.projection.run == 1 else f"{name} (run {record.projection.run})"


def process_badge(record: ProcessRecord) -> h.Element:
    """Return what a process does: its phase while it runs, else how it ended."""
    state = record.state
    if state is None:
        return badge(record.status.value)
    if record.projection.cancel_requested:
        return badge("cancelling")
    return badge(state.phase.value, f"{state.phase.value} ({state.waits_for})" if state.waits_for else None)

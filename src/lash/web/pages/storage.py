"""The storage itself: what it holds, how large it is, what can be pruned."""

from __future__ import annotations

import asyncio
from typing import Final

import htpy as h

from lash.cli.doctor import storage_checks
from lash.cli.text import size
from lash.model.maintenance import Prunable, StorageReport
from lash.web.show import Column, badge, facts, line, link, table
from lash.web.view import Visit, WebPage

_OLD_MS: Final = 30 * 86_400_000


async def storage(visit: Visit) -> WebPage:
    """Two reads; the sizes are estimates where exact ones would read every row. The doctor reads for each check."""
    if visit.parameter("check") == "doctor":
        return WebPage("Storage", (_tabs("doctor"), await _doctor(visit)))
    report, prunable = await asyncio.gather(
        visit.storage.report(), visit.storage.maintenance.prunable(older_than_ms=_OLD_MS)
    )
    return WebPage("Storage", (_tabs(""), _sizes(report), _prunable(prunable)))


def _tabs(shown: str) -> h.Element:
    links = (
        h.a(href=link("storage", check=check), aria_current="true" if check == shown else None)[name]
        for name, check in (("Report", ""), ("Doctor", "doctor"))
    )
    return h.section("#tabs", aria_label="Parts")[h.nav(".tabs")[links]]


def _sizes(report: StorageReport) -> h.Element:
    rows = (
        (name, f"{'' if noun.exact else 'about '}{noun.rows:,}", size(noun.bytes))
        for name, noun in sorted(report.nouns.items(), key=lambda each: -(each[1].bytes or 0))
    )
    return h.section("#sizes")[
        facts((("stored in all", size(report.bytes)),)),
        table(("what", Column("rows", is_number=True), Column("bytes", is_number=True)), rows, nothing="Empty."),
    ]


def _prunable(found: Prunable) -> h.Element:
    counts = {name.replace("_", " "): getattr(found, name) for name in found.__struct_fields__ if name != "before_ms"}
    rows = ((name, f"{count:,}") for name, count in counts.items() if count)
    return h.section("#prunable")[
        h.h2["Older than 30 days"],
        table(("what", Column("rows", is_number=True)), rows, nothing="Nothing is old enough to be pruned."),
        any(counts.values()) and h.p[h.code["lash db prune --older-than 30d --dry-run"], " shows what would go."],
    ]


async def _doctor(visit: Visit) -> h.Element:
    """Run the checks of ``lash doctor`` that concern the storage."""
    checks = [check async for check in storage_checks(visit.storage, visit.redact)]
    rows = (
        (check.name, badge(check.state), h.span(".text")[line(visit.redact(check.detail), 500)]) for check in checks
    )
    return h.section("#doctor")[
        table(("check", "state", "detail"), rows, nothing="No checks."),
        h.p(".quiet")[
            h.code["lash doctor"], " also checks the machine; ", h.code["lash db check"], " searches for damaged rows."
        ],
    ]

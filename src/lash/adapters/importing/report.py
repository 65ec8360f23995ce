"""The report of an import."""

from __future__ import annotations

from collections import Counter

from lash.model.value import Count, Value


class KeptRaw(Value, frozen=True, kw_only=True):
    """Rows of a table that are kept as they are, in the collection ``import.raw``."""

    table: str
    reason: str
    rows: Count


class NotImported(Value, frozen=True, kw_only=True):
    """Something of the framework's database that the storage does not have after the import."""

    name: str
    reason: str


class ImportReport(Value, frozen=True, kw_only=True):
    """The result of an import. After a dry run, what it would do."""

    framework: str
    dry_run: bool
    sessions: Count
    """Sessions that were imported."""
    counts: dict[str, int]
    """What they hold and what belongs to no session, by the framework's nouns."""
    already_there: Count
    """Sessions that an earlier import has brought; they are left as they are."""
    kept_raw: tuple[KeptRaw, ...]
    not_imported: tuple[NotImported, ...]
    other_tables: tuple[str, ...]
    """Tables of the database that are not the framework's. They are not read."""


class Tally:
    """Counts for a report."""

    def __init__(self) -> None:
        self.sessions = 0
        self.already_there = 0
        self.not_imported: list[NotImported] = []
        self._counts: Counter[str] = Counter()
        self._raw: Counter[tuple[str, str]] = Counter()

    def add(self, counts: Counter[str], raw: Counter[tuple[str, str]]) -> None:
        self._counts.update(counts)
        self._raw.update(raw)

    def report(self, framework: str, other_tables: frozenset[str], *, dry_run: bool) -> ImportReport:
        return ImportReport(
            framework=framework,
            dry_run=dry_run,
            sessions=self.sessions,
            counts=dict(self._counts),
            already_there=self.already_there,
            kept_raw=tuple(
                KeptRaw(table=table, reason=reason, rows=rows) for (table, reason), rows in sorted(self._raw.items())
            ),
            not_imported=tuple(self.not_imported),
            other_tables=tuple(sorted(other_tables)),
        )

"""The search for damage: reads every row once, in pages, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from lash.backend.damage import other, process, remedy, session
from lash.backend.damage.body import BODIES
from lash.backend.damage.relation import RELATIONS
from lash.backend.damage.row import Columns
from lash.errors import LashError
from lash.model.maintenance import Damage
from lash.stores.maintenance import MaintenanceRows
from lash.stores.table_rows import Row, RowStore, RowTable

LIMIT: Final = 100
"""The most findings of one kind: a storage with more is restored, not repaired."""
_FIRST_PAGE: Final = 8
_LARGEST_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Rows may be large: the size of a page follows from the one before it."""
_LEAST: Final[dict[str, Row]] = {
    "lash_components": ("", -1),
    "lash_process_events": (0,),
    "lash_trigger_deliveries": (-1,),
}
"""What precedes the rest of every key of an owner."""


class DamageSearch:
    """One search through one storage."""

    def __init__(self, maintenance: MaintenanceRows, rows: RowStore) -> None:
        self._maintenance = maintenance
        self._rows = rows
        self._tables = {table.name: table for table in rows.tables}
        self._sessions: dict[object, str] = {}
        self._revocations: dict[int, int] = {}

    async def run(self) -> AsyncIterator[Damage]:
        """Yield what is found: rows that contradict each other first, then rows that cannot be read."""
        for relation in RELATIONS:
            for row in await self._maintenance.contradictions(relation.query, LIMIT):
                where, problem = (
                    template.format(subject=row.subject, detail=row.detail)
                    for template in (relation.where, relation.problem)
                )
                yield Damage(where=where, problem=problem, remedy=relation.remedy)
        # Sessions first: findings about their rows name them.
        for table in sorted(self._rows.tables, key=lambda table: table.name != "lash_sessions"):
            found = 0
            async for damage in self._table(table):
                yield damage
                found += 1
                if found == LIMIT:
                    break

    async def _table(self, table: RowTable) -> AsyncIterator[Damage]:
        async for row in self._all(table):
            problem = await self._problem(table.name, row)
            if problem is not None:
                yield problem

    async def _problem(self, table: str, row: Columns) -> Damage | None:
        """Return what is wrong with a row, if anything is."""
        self._note(table, row)
        where, advice = "", ""
        try:
            if table == "lash_processes":
                where, advice = f"process {row['process_id']!r}", remedy.PROCESS
                await self._check_process(row)
            elif table == "lash_checkpoints":
                where = f"checkpoint {row['revision']!r} of session {self._session(row)}"
                advice = remedy.SESSION
                session.check_checkpoint(row, [each async for each in self._of("lash_components", row["session_key"])])
            elif table == "lash_trigger_occurrences":
                where, advice = f"occurrence {row['occurrence_id']!r}", remedy.OCCURRENCE
                rows = [each async for each in self._of("lash_trigger_deliveries", row["occurrence_key"])]
                other.check_occurrence(row, rows)
            elif table == "lash_waits":
                where, advice = f"wait {row['key_id']!r}", remedy.WAIT
                process.check_wait(row, self._revocations)
            elif (body := BODIES.get(table)) is not None:
                where, advice = body.where.format_map({**row, "session": self._session(row)}), body.remedy
                body.check(row)
        except LashError as error:
            return Damage(where=where, problem=str(error), remedy=advice)
        return None

    def _note(self, table: str, row: Columns) -> None:
        """Keep the id of a session, and how often its keys were revoked."""
        if table != "lash_sessions":
            return
        key, revocations = row["session_key"], row["wait_revocations"]
        self._sessions[key] = str(row["session_id"])
        if isinstance(key, int) and isinstance(revocations, int) and revocations:
            self._revocations[key] = revocations

    def _session(self, row: Columns) -> str:
        key = row.get("session_key")
        return repr(self._sessions[key]) if key in self._sessions else f"number {key!r}"

    async def _check_process(self, row: Columns) -> None:
        record = process.check_process(row)
        rows = [each async for each in self._of("lash_process_events", row["process_key"])]
        process.check_log(record, [process.check_event(each, record.process_id) for each in rows])

    async def _of(self, name: str, owner: object) -> AsyncIterator[Columns]:
        """Yield the rows of a table whose key starts with this owner."""
        table = self._tables[name]
        assert isinstance(owner, int)
        start: Row = (owner, *_LEAST[name])
        async for row in self._all(table, start):
            if row[table.key[0]] != owner:
                return
            yield row

    async def _all(self, table: RowTable, after: Row | None = None) -> AsyncIterator[Columns]:
        """Yield the rows of a table after a key, ordered by key."""
        size = _FIRST_PAGE
        while page := await self._rows.read(table, after, size):
            for values in page:
                yield dict(zip(table.columns, values, strict=True))
            after = tuple(page[-1][table.columns.index(column)] for column in table.key)
            if len(page) < size:
                return
            size = _next_size(page)


def _next_size(page: Sequence[Row]) -> int:
    size = sum(len(value) for row in page for value in row if isinstance(value, str | bytes))
    return max(1, min(_LARGEST_PAGE, _PAGE_BYTES * len(page) // max(size, 1)))

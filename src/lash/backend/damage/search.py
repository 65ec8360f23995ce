"""The search for damage: reads every row once, in pages, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from lash.backend.damage import other, process, remedy, session
from lash.backend.damage.body import BODIES
from lash.backend.damage.relation import RELATIONS
from lash.backend.damage.row import Columns
from lash.backend.table_rows import stored_pages
from lash.errors import LashError
from lash.model.maintenance import Damage
from lash.stores.maintenance import MaintenanceRows
from lash.stores.table_rows import Row, RowStore, RowTable

LIMIT: Final = 100
"""The most findings of one kind: a storage with more is restored, not repaired."""
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
        async for values in self._all(table):
            problem = await self._problem(table, values)
            if problem is not None:
                yield problem

    async def _problem(self, table: RowTable, values: Row) -> Damage | None:
        """Return what is wrong with a row, if anything is."""
        stored = _by_column(table, values)
        self._note(table.name, stored)
        try:
            await self._check(table.name, _by_column(table, self._rows.unsealed(table, values)))
        except LashError as error:
            where, advice = self._where(table.name, stored)
            return Damage(where=where, problem=str(error), remedy=advice)
        return None

    def _where(self, table: str, row: Columns) -> tuple[str, str]:
        """Return the name of a row that is damaged, and what to do."""
        if table == "lash_processes":
            return f"process {row['process_id']!r}", remedy.PROCESS
        if table == "lash_checkpoints":
            return f"checkpoint {row['revision']!r} of session {self._session(row)}", remedy.SESSION
        if table == "lash_trigger_occurrences":
            return f"occurrence {row['occurrence_id']!r}", remedy.OCCURRENCE
        if table == "lash_waits":
            return f"wait {row['key_id']!r}", remedy.WAIT
        body = BODIES.get(table)
        if body is None:
            return f"a row of {table}", remedy.SEALED
        return body.where.format_map({**row, "session": self._session(row)}), body.remedy

    async def _check(self, table: str, row: Columns) -> None:
        if table == "lash_processes":
            await self._check_process(row)
        elif table == "lash_checkpoints":
            session.check_checkpoint(row, [each async for each in self._of("lash_components", row["session_key"])])
        elif table == "lash_trigger_occurrences":
            rows = [each async for each in self._of("lash_trigger_deliveries", row["occurrence_key"])]
            other.check_occurrence(row, rows)
        elif table == "lash_waits":
            process.check_wait(row, self._revocations)
        elif (body := BODIES.get(table)) is not None:
            body.check(row)

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
        rows = process.inline_events(row)
        rows += [each async for each in self._of("lash_process_events", row["process_key"])]
        process.check_log(record, [process.check_event(each, record.process_id) for each in rows])

    async def _of(self, name: str, owner: object) -> AsyncIterator[Columns]:
        """Yield the rows of a table whose key starts with this owner."""
        table = self._tables[name]
        assert isinstance(owner, int)
        start: Row = (owner, *_LEAST[name])
        async for values in self._all(table, start):
            row = _by_column(table, self._rows.unsealed(table, values))
            if row[table.key[0]] != owner:
                return
            yield row

    async def _all(self, table: RowTable, after: Row | None = None) -> AsyncIterator[Row]:
        """Yield the rows of a table after a key, ordered by key, as they are stored."""
        async for page in stored_pages(self._rows, table, after):
            for values in page:
                yield values


def _by_column(table: RowTable, values: Row) -> Columns:
    return dict(zip(table.columns, values, strict=True))

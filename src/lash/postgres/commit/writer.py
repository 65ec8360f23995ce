"""Writes planned commits; commits of concurrent callers share statements."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec

from lash.errors import CorruptData
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.statement import choose_statement
from lash.postgres.commit.together import MAX_TOGETHER
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.engine.database import Database
from lash.postgres.engine.errors import is_taken_key


class WrittenCommit(msgspec.Struct, frozen=True, array_like=True):
    """A commit that was written, and whether its session sees nodes of another one."""

    session_key: int
    inherits: bool


class CommitWriter:
    """Writes commits, each of them atomically."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # No gathering: a session whose graph is being replaced is locked for long, and would hold up the others.
        self._batcher: StatementBatcher[PlannedCommit, WrittenCommit] = StatementBatcher(
            self._write_all, limit=MAX_TOGETHER, is_repeatable=lambda commit: commit.is_repeatable, gather=False
        )

    async def write(self, commit: PlannedCommit) -> WrittenCommit | None:
        """Write one commit; return None if its guard found the plan stale. Errors of the database are not caught."""
        if commit.prepared.records:
            return await self._write_alone(commit)
        return await self._batcher.submit(commit.session_key, commit)

    async def _write_alone(self, commit: PlannedCommit) -> WrittenCommit | None:
        """Write a commit with records: two of them in one statement could change the same record of the storage."""
        name, arguments = choose_statement([commit])
        try:
            return await self._database.write_one(WrittenCommit, name, *arguments, repeatable=commit.is_repeatable)
        except CorruptData as error:
            # Another statement inserted one of the records meanwhile.
            if not is_taken_key(error):
                raise
            return None

    async def _write_all(self, commits: Mapping[Hashable, PlannedCommit]) -> Mapping[Hashable, WrittenCommit]:
        """Send commits in one statement, and return the written ones by the keys of their sessions."""
        together = list(commits.values())
        name, arguments = choose_statement(together)
        repeatable = all(commit.is_repeatable for commit in together)
        rows = await self._database.write_all(WrittenCommit, name, *arguments, repeatable=repeatable)
        return {row.session_key: row for row in rows}

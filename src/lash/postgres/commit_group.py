"""Commits of many callers in few statements."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from lash.postgres.commit_record import MAX_TOGETHER, PlannedCommit, statement_for
from lash.postgres.database import Database
from lash.postgres.group import Group
from lash.sqlkit.rows import Number


class CommitGroups:
    """Writes planned commits, each whole or not at all; those of different sessions share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Sessions are locked for longer than processes, by whoever replaces a graph or deletes one.
        self._group: Group[PlannedCommit, Number] = Group(
            self._write_all, limit=MAX_TOGETHER, is_repeatable=lambda commit: commit.is_repeatable, gather=False
        )

    async def write(self, commit: PlannedCommit) -> bool:
        """Return whether the guard let the commit pass; raise what stood in the way of asking."""
        return await self._group.ask(commit.session_key, commit) is not None

    async def _write_all(self, commits: Mapping[Hashable, PlannedCommit]) -> Mapping[Hashable, Number]:
        """Send commits in one statement, and return the keys of the sessions whose guard let them pass."""
        together = list(commits.values())
        name, arguments = statement_for(together)
        repeatable = all(commit.is_repeatable for commit in together)
        rows = await self._database.write_all(Number, name, *arguments, repeatable=repeatable)
        return {row.number: row for row in rows}

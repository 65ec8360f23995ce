"""Commits of many callers in few statements."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from lash.postgres.engine.batcher import Group
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.commit_plan import PlannedCommit
from lash.postgres.rows.session.commit_record import MAX_TOGETHER, statement_for
from lash.postgres.rows.session.rows import CommitAnswer


class CommitGroups:
    """Writes planned commits, each whole or not at all; those of different sessions share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Sessions are locked for longer than processes, by whoever replaces a graph or deletes one.
        self._group: Group[PlannedCommit, CommitAnswer] = Group(
            self._write_all, limit=MAX_TOGETHER, is_repeatable=lambda commit: commit.is_repeatable, gather=False
        )

    async def write(self, commit: PlannedCommit) -> CommitAnswer | None:
        """Return the answer if the guard let the commit pass; raise what stood in the way of asking."""
        return await self._group.ask(commit.session_key, commit)

    async def _write_all(self, commits: Mapping[Hashable, PlannedCommit]) -> Mapping[Hashable, CommitAnswer]:
        """Send commits in one statement, and return the answers of those whose guard let them pass."""
        together = list(commits.values())
        name, arguments = statement_for(together)
        repeatable = all(commit.is_repeatable for commit in together)
        rows = await self._database.write_all(CommitAnswer, name, *arguments, repeatable=repeatable)
        return {row.session_key: row for row in rows}

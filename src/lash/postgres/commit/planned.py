"""A commit that is planned and ready to be written, alone or together with others."""

from __future__ import annotations

from typing import Self

import msgspec

from lash.backend.seal import seal_commit
from lash.base.seal import Seals
from lash.plan.session.commit import Apply, PreparedCommit
from lash.postgres.cache import KnownCheckpoint


class PlannedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A decided commit, and the checkpoint before it as far as this storage knows it."""

    prepared: PreparedCommit
    decision: Apply
    before: KnownCheckpoint | None

    @classmethod
    def sealed(
        cls, seals: Seals, prepared: PreparedCommit, decision: Apply, before: KnownCheckpoint | None = None
    ) -> Self:
        """Return a decided commit with its values as they are written."""
        writing, decided = seal_commit(seals, prepared, decision)
        return cls(prepared=writing, decision=decided, before=before)

    @property
    def session_key(self) -> int:
        return self.decision.head.session_key

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice is harmless: the guard refuses a turn that has its commit, and the plan replays."""
        return self.prepared.commit.turn_id is not None

    @property
    def claims(self) -> list[tuple[str, str, str]]:
        """The token, the claim id and the batch id of each batch that the commit consumes."""
        return [
            (each.token, each.claim_id, name) for each in self.prepared.commit.completions for name in each.batch_ids
        ]

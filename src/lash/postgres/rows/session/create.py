"""Creating a session with its first commit, as one statement; with records, in one transaction."""

from __future__ import annotations

import msgspec

from lash.base.backoff import MAX_PLANS
from lash.errors import CorruptData, LashError, StoreUnavailable
from lash.model.session.commit import CommitResult
from lash.plan.session.commit import Apply, PreparedCommit
from lash.plan.session.first_commit import first_facts, starting_at
from lash.plan.session.meta import EncodedMeta, MetaRow
from lash.plan.session.turn import TurnRow
from lash.postgres.cache import HeadCache, KnownCheckpoint
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.record import arguments_of_any
from lash.postgres.commit.together import arguments_of_first
from lash.postgres.commit.writer import WrittenCommit
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.engine.errors import is_taken_key
from lash.postgres.rows.session.commit import FactsAnswer, StalePlanError, facts_arguments
from lash.postgres.rows.session.fork import create_arguments
from lash.stores.session import DecideFirstCommit


class ExistingAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The session of an id, if there is one, and the revision from which a new one would start."""

    row: MetaRow | None
    turn: TurnRow | None
    revision: int


class PostgresCreations:
    """Creates sessions with their first commits."""

    def __init__(self, database: Database, heads: HeadCache) -> None:
        self._database = database
        self._heads = heads

    async def create(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> tuple[MetaRow, TurnRow | None, CommitResult | None]:
        """Create the session unless its id is taken. The first plan assumes an id that was never used."""
        session_id, revision = encoded.meta.session_id, 0
        write = self._in_transaction if prepared.records else self._at_once
        for _ in range(MAX_PLANS):
            moved = starting_at(prepared, revision)
            refusal: LashError | None = None
            try:
                row = await write(encoded, moved, decide)
            except StoreUnavailable:
                raise
            except LashError as error:
                # A session that exists is returned, whatever the commit.
                row, refusal = None, error
            if row is not None:
                return row, None, moved.result
            existing = await self._existing(session_id, prepared.commit.turn_id)
            if existing.row is not None:
                return existing.row, existing.turn, None
            if refusal is not None:
                raise refusal
            revision = existing.revision
        raise StoreUnavailable(f"session {session_id!r} was created and deleted {MAX_PLANS} times during a creation")

    async def _at_once(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> MetaRow | None:
        """Write both in one statement; return None if the session exists or starts at another revision."""
        decision = decide(prepared, first_facts(prepared))
        assert isinstance(decision, Apply), "a new session has no turn to replay"
        planned = PlannedCommit.sealed(self._database.seals, prepared, decision)
        revision = prepared.commit.expected_revision
        arguments = (*create_arguments(self._database.seals, encoded), revision, *arguments_of_first(planned))
        repeatable = planned.is_repeatable
        row = await self._database.write_one(MetaRow, "session_create_committed", *arguments, repeatable=repeatable)
        if row is not None:
            self._remember(row, prepared, decision)
        return row

    async def _in_transaction(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> MetaRow | None:
        """Write both in one transaction, which reads the versions of the storage's records; return None as above."""
        try:
            async with self._database.transaction() as transaction:
                return await _write_both(transaction, encoded, prepared, decide)
        except StalePlanError:
            return None
        except CorruptData as error:
            # Another statement inserted one of the records meanwhile.
            if not is_taken_key(error):
                raise
            return None

    async def _existing(self, session_id: str, turn_id: str | None) -> ExistingAnswer:
        found = await self._database.read_one(ExistingAnswer, "session_existing", session_id, turn_id)
        if found is None:
            raise CorruptData("query session_existing returned no row")
        return found

    def _remember(self, row: MetaRow, prepared: PreparedCommit, decision: Apply) -> None:
        head = msgspec.structs.replace(decision.head, session_key=row.session_key, keep=row.keep_checkpoints)
        known = KnownCheckpoint(prepared.components, inherits=False) if prepared.leaves_one_checkpoint else None
        self._heads.remember(row.session_id, head, known)


async def _write_both(
    transaction: Transaction, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
) -> MetaRow | None:
    created = await transaction.one(MetaRow, "session_create", *create_arguments(transaction.seals, encoded))
    if created is None or created.revision != prepared.commit.expected_revision:
        raise StalePlanError
    answer = await transaction.one(FactsAnswer, "commit_facts", *facts_arguments(prepared))
    if answer is None:
        raise StalePlanError
    decision = decide(prepared, answer.facts(prepared))
    assert isinstance(decision, Apply), "a new session has no turn to replay"
    planned = PlannedCommit.sealed(transaction.seals, prepared, decision)
    if await transaction.one(WrittenCommit, "commit_apply", *arguments_of_any([planned])) is None:
        raise StalePlanError
    return await transaction.one(MetaRow, "session_meta", encoded.meta.session_id)

"""The commit with which a session is created: it depends on the revision alone, as nothing of a session is stored."""

from __future__ import annotations

import msgspec

from lash.errors import InvalidInput
from lash.model.session.commit import Commit, CommitResult
from lash.plan.lease import NEVER_HELD
from lash.plan.record import EncodedChange
from lash.plan.session.commit import CommitFacts, CommitRules, PreparedCommit, encode_result, prepare_commit
from lash.plan.session.session import empty_head
from lash.plan.session.turn import TurnRow, replay

replace = msgspec.structs.replace


def prepare_first_commit(
    commit: Commit, session_id: str, rules: CommitRules, records: tuple[EncodedChange, ...] = ()
) -> PreparedCommit:
    """Check the commit of a session that is yet to be created; see `prepare_commit`."""
    prepared = prepare_commit(commit, session_id, rules, records)
    if commit.expected_revision != 0:
        raise InvalidInput(
            f"expected_revision must be 0, not {commit.expected_revision}: the commit is the first of its session"
        )
    return prepared


def starting_at(prepared: PreparedCommit, revision: int) -> PreparedCommit:
    """Return the first commit of a session that starts at this revision.

    A session whose id was used before starts above the revision of its predecessor.
    """
    result = replace(prepared.result, revision=revision + 1)
    return replace(
        prepared,
        commit=replace(prepared.commit, expected_revision=revision),
        result=result,
        stored_result=encode_result(prepared.commit, result),
        retention_floor=prepared.retention_floor + revision,
    )


def first_facts(prepared: PreparedCommit) -> CommitFacts:
    """Return the facts of a first commit without records, before its session exists and has a key."""
    return CommitFacts(
        head=empty_head(0, prepared.commit.expected_revision),
        turn=None,
        lease=NEVER_HELD,
        held_batches={},
        stored_nodes={},
        missing_refs=prepared.required_refs,
        missing_attachments=frozenset(prepared.attachments),
        record_versions={},
        now_ms=0,
    )


def repeated_first_commit(prepared: PreparedCommit, turn: TurnRow | None) -> CommitResult | None:
    """Return the first result if the session exists with this commit; None if it exists without.

    Raises TurnConflict if the turn has other content.
    """
    commit = prepared.commit
    if turn is None or commit.turn_id is None or prepared.commit_hash is None:
        return None
    return replay(commit.session_id, commit.turn_id, turn, prepared.commit_hash, CommitResult)

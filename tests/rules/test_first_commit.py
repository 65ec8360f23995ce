"""Rules of the commit with which a session is created."""

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import AttachmentNotFound, BlobNotFound, InvalidInput, TurnConflict
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import Commit, CommitResult
from lash.plan.session.commit import Apply, plan_commit
from lash.plan.session.first_commit import first_facts, prepare_first_commit, repeated_first_commit, starting_at
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow
from tests.rules.kit import SESSION, appending, rules, said, sha256


def test_it_expects_revision_zero() -> None:
    """Any other revision is one that no session has yet."""
    with pytest.raises(InvalidInput, match="expected_revision must be 0, not 3"):
        prepare_first_commit(appending(said("a"), expected_revision=3), SESSION, rules())


def test_it_is_moved_to_where_the_session_starts() -> None:
    """Revision, result and retention follow; the identity stays."""
    prepared = prepare_first_commit(appending(said("a", text="hi"), turn_id="t"), SESSION, rules(keep=2))
    moved = starting_at(prepared, 5)
    assert (moved.revision, moved.result.revision, moved.retention_floor) == (6, 6, 5)
    assert moved.commit_hash == prepared.commit_hash
    assert starting_at(prepared, 0) == prepared
    decision = plan_commit(moved, first_facts(moved))
    assert isinstance(decision, Apply)
    assert decision.assumed == HeadRow(0, 5, False, None, None, None, False, 0, 0, 0, "", 0, None)
    assert decision.head == HeadRow(0, 6, True, "a", 1, 0, True, 1, 1, 1, "hi", 1, None)


def test_nothing_is_stored_yet() -> None:
    """A ref or an attachment cannot resolve."""
    bare = Commit(session_id=SESSION, expected_revision=0)
    ref = BlobRef(sha256(b"x"))
    with_ref = msgspec.structs.replace(bare, checkpoint=CheckpointDraft(components={"k": ref}))
    with_attachment = msgspec.structs.replace(bare, attachments=(ref,))
    for commit, error in ((with_ref, BlobNotFound), (with_attachment, AttachmentNotFound)):
        prepared = prepare_first_commit(commit, SESSION, rules())
        with pytest.raises(error):
            plan_commit(prepared, first_facts(prepared))


def test_a_repeat_is_recognised_by_its_turn() -> None:
    """The first result, None without the turn, a conflict over other content."""
    prepared = prepare_first_commit(appending(said("a"), turn_id="t"), SESSION, rules())
    row = TurnRow(prepared.commit_hash or "", msgspec.json.encode(prepared.result).decode())
    assert repeated_first_commit(prepared, row) == prepared.result
    assert isinstance(prepared.result, CommitResult)
    assert repeated_first_commit(prepared, None) is None
    with pytest.raises(TurnConflict):
        repeated_first_commit(prepared, TurnRow("other", row.result))
    unnamed = prepare_first_commit(appending(said("a")), SESSION, rules())
    assert repeated_first_commit(unnamed, row) is None

"""Rules of deleting sessions."""

from __future__ import annotations

import pytest

from lash.plan.session.delete import Deletion, DeletionFacts, choose_deletion


def facts(*, is_deleted: bool = False, exists: bool = True, is_wanted: bool = True, is_tied: bool) -> DeletionFacts:
    return DeletionFacts("s", is_deleted, exists, is_wanted, is_tied)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(is_deleted=True, is_tied=False), Deletion.DONE),
        (facts(is_tied=True), Deletion.STEPWISE),
        # Created after the locks were taken.
        (facts(is_tied=False), Deletion.STEPWISE),
        (facts(exists=False, is_tied=False), Deletion.NOTHING),
        # A process may wake a session that does not exist.
        (facts(exists=False, is_tied=True), Deletion.STEPWISE),
        # Only expired sessions are wanted, and it is not expired, or it does not exist.
        (facts(is_wanted=False, is_tied=False), Deletion.NOTHING),
        (facts(is_wanted=False, is_tied=True), Deletion.NOTHING),
        (facts(is_wanted=False, exists=False, is_tied=True), Deletion.NOTHING),
    ],
)
def test_what_is_left_to_do(found: DeletionFacts, expected: Deletion) -> None:
    """A session that the statement left is deleted in steps if it is wanted and has anything to delete."""
    assert choose_deletion(found) is expected

"""The rule that finds a damaged relation."""

from __future__ import annotations

import pytest

from lash.plan.session.relation import RelationRow, relation_damage


def test_sound_relations_have_no_damage() -> None:
    """What is JSON can be indexed, whatever it says."""
    rows = [RelationRow(1, "a", '{"relation":{"kind":"root"}}'), RelationRow(2, "b", '"none"')]
    assert relation_damage(32, rows) is None


@pytest.mark.parametrize("relation", ["", "{", '{"relation":', "none", '{"a":"\ud800"}'])
def test_the_first_damaged_session_is_named(relation: str) -> None:
    """The error names the migration, the session, the table and the remedy."""
    rows = [RelationRow(1, "a", "{}"), RelationRow(2, "b", relation), RelationRow(3, "c", "{")]
    found = relation_damage(32, rows)
    assert str(found) == (
        "migration 0032_relatives: the relation of session 'b' is not JSON; repair or delete its row in lash_sessions, "
        "or restore a backup, and migrate again"
    )

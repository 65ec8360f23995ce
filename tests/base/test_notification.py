"""The text of notifications: what one storage writes, another reads."""

from __future__ import annotations

import pytest

from lash.backend.notification import Notification, assigned_text, parse, parse_assigned
from lash.stores.hints import ANYTHING, NO_TAGS, Assigned, Hint


@pytest.mark.parametrize(
    "hint",
    [
        Hint(process=True),
        Hint(process=True, processes=frozenset({"aaaa"}), ended=NO_TAGS),
        Hint(process=True, processes=frozenset({"aaaa", "bbbb"}), ended=frozenset({"bbbb"})),
        Hint(queued=None, changed=None, processes=NO_TAGS, ended=NO_TAGS),
        Hint(changed=frozenset({"cccc"}), processes=NO_TAGS, ended=NO_TAGS),
    ],
)
def test_a_notification_survives_its_text(hint: Hint) -> None:
    """What one storage writes, another reads."""
    for unnamed in (False, True):
        parsed = parse(Notification(hint, work=True, unnamed=unnamed).whole_text)
        assert parsed == Notification(hint, work=True, unnamed=unnamed)


def test_much_work_is_not_named() -> None:
    """Beyond 64 names a notification leaves all of its work to the duty worker."""
    merged = Notification(Hint(), work=True)
    for number in range(65):
        merged = merged.merged(Notification(Hint(), work=True, sessions=frozenset({str(number)})))
        assert merged.unnamed is (number == 64)
    assert merged.sessions == NO_TAGS


def test_assigned_work_survives_its_text() -> None:
    """Ids of any form arrive; a text that would be too long lets the worker poll."""
    work = Assigned(frozenset({"s", 'a "quoted" id', "\u00e9"}), frozenset({"p"}))
    assert parse_assigned(assigned_text(work)) == (Hint(assigned=work), [])
    many = Assigned(frozenset(f"{number:0200}" for number in range(60)))
    assert parse_assigned(assigned_text(many)) == (ANYTHING, [])

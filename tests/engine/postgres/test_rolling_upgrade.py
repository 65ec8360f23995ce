"""Notifications of older versions, which name no work."""

from __future__ import annotations

from lash.backend.notification import Notification
from lash.postgres.hints import PostgresHints
from lash.stores.hints import NO_TAGS, Hint
from tests.contract.test_dispatch import fleet, woken
from tests.raw import raw


async def test_a_notification_of_an_older_version_lets_the_duty_workers_poll(postgres_storage_url: str) -> None:
    """During a rolling upgrade the duty workers poll for what older senders announce; older workers poll for all."""
    url = postgres_storage_url
    async with fleet(url, "abc") as members:
        hints = members["a"].storage.hints
        assert isinstance(hints, PostgresHints)
        await raw(url, f"SELECT pg_notify('{hints._channel}', 'old-name other 1234 1234 ')")
        got = await woken(members)
        assert [hint != Hint() and hint.assigned is None for hint in got.values()] == [True, True, False]
    sent = Notification(Hint(process=True, processes=NO_TAGS, ended=NO_TAGS), work=True)
    assert len(sent.whole_text.split(" ")) not in {4, 5}, "an older version would misread it"

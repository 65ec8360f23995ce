"""An unreadable subscription is reported and does not affect others."""

from __future__ import annotations

import pytest

import lash
from tests.factories.trigger import HOST, by_session, pressed, subscribed, trigger
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_DAMAGE = "UPDATE lash_trigger_subscriptions SET definition = '{' WHERE key = 'bad'"


async def _prepare(url: str, owner: lash.model.TriggerOwner = HOST) -> str:
    """Create three subscriptions, damage the middle one, and return its id."""
    async with await lash.open(url) as storage:
        await storage.sessions.create("s")
        made = await subscribed(storage, "a", "bad", "c", owner=owner)
    await raw(url, _DAMAGE)
    return made[1].subscription_id


async def test_a_list_names_the_damaged_and_shows_the_others(backend_url: str) -> None:
    """A list neither hides a damaged row nor fails."""
    damaged = await _prepare(backend_url)
    async with await lash.open(backend_url) as storage:
        page = await storage.triggers.list()
        assert [each.key for each in page.subscriptions] == ["c", "a"]
        assert page.damaged == (damaged,)
        first = await storage.triggers.list(limit=2)
        assert first.next_cursor is not None
        second = await storage.triggers.list(limit=2, cursor=first.next_cursor)
        assert [each.key for each in (*first.subscriptions, *second.subscriptions)] == ["c", "a"]
        assert (first.damaged, second.damaged) == ((damaged,), ())


async def test_asking_for_the_damaged_one_says_so(backend_url: str) -> None:
    """Getting a damaged subscription raises CorruptData, which names it, instead of returning None."""
    damaged = await _prepare(backend_url)
    async with await lash.open(backend_url) as storage:
        with pytest.raises(lash.CorruptData, match=rf"'bad' \({damaged}\) of the host"):
            await storage.triggers.get(HOST, "bad")
        with pytest.raises(lash.CorruptData, match="'bad'"):
            await storage.triggers.disable(HOST, "bad", revision=1)
        with pytest.raises(lash.CorruptData, match="'bad'"):
            await storage.triggers.register(trigger("bad"))
        assert (await storage.triggers.list()).damaged == (damaged,)


async def test_an_emission_rejects_the_damaged_one(backend_url: str) -> None:
    """The delivery to a damaged subscription is rejected, the others start; a retry after a repair starts it."""
    damaged = await _prepare(backend_url)
    async with await lash.open(backend_url) as storage:
        report = await storage.occurrences.emit(pressed())
        assert [each.state.value for each in report.deliveries] == ["started", "rejected", "started"]
        bad = report.deliveries[1]
        assert bad.reason is not None
        assert "cannot be read" in bad.reason
        repaired = await storage.triggers.update(trigger("bad"), revision=1)
        assert (repaired.revision, repaired.subscription_id) == (2, damaged)
        delivery = await storage.occurrences.retry_delivery(report.occurrence_id, damaged)
        assert delivery.state is lash.model.DeliveryState.STARTED


async def test_a_damaged_one_can_be_deleted(backend_url: str) -> None:
    """A damaged subscription and its session can be deleted."""
    await _prepare(backend_url, owner=by_session())
    async with await lash.open(backend_url) as storage:
        assert (await storage.triggers.delete(by_session(), "bad", revision=1)).revision == 1
        await subscribed(storage, "bad", owner=by_session())
        await raw(backend_url, _DAMAGE)
        assert await storage.sessions.delete("s")
        assert (await storage.triggers.list()).damaged == ()


async def test_a_damaged_answer_is_no_replay(backend_url: str) -> None:
    """An unreadable receipt raises CorruptData, and the repetition changes nothing."""
    async with await lash.open(backend_url) as storage:
        await storage.triggers.register(trigger(), operation_id="o")
        await storage.occurrences.emit(pressed())
        await raw(backend_url, "UPDATE lash_trigger_occurrences SET report = '['")
        await raw(backend_url, "UPDATE lash_trigger_receipts SET answer = '[]'")
        with pytest.raises(lash.CorruptData, match="report"):
            await storage.occurrences.emit(pressed())
        with pytest.raises(lash.CorruptData, match="receipt"):
            await storage.triggers.register(trigger(), operation_id="o")
        assert len((await storage.processes.list()).processes) == 1


async def test_a_damaged_occurrence_is_not_absent(backend_url: str) -> None:
    """Reading or retrying an unreadable occurrence raises CorruptData."""
    async with await lash.open(backend_url) as storage:
        await subscribed(storage, payload_schema={"type": "string"})
        report = await storage.occurrences.emit(pressed())
        await raw(backend_url, "UPDATE lash_trigger_occurrences SET request = '{}'")
        with pytest.raises(lash.CorruptData, match="occurrence"):
            await storage.occurrences.get(report.occurrence_id)
        with pytest.raises(lash.CorruptData, match="occurrence"):
            await storage.occurrences.retry_delivery(report.occurrence_id, report.deliveries[0].subscription_id)

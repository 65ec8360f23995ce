"""Stored effects that contradict themselves are reported as damage: never replayed, never run again."""

from __future__ import annotations

import pytest

import lash
from tests.factories.effect import BROKEN, TURN, claimed, effect, in_session
from tests.factories.session import owner
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

ANN = owner("ann")


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        ("completed", "outcome = '{'"),
        ("completed", "outcome = '[]'"),
        ("completed", "envelope = '{'"),
        ("completed", "envelope = '{}'"),
        ("completed", "envelope = replace(envelope, '\"completed\"', '\"another\"')"),
        ("completed", "envelope_hash = 'other'"),
        ("failed", "error = '7'"),
        ("failed", 'error = \'{"code": "c"}\''),
        ("live", "process = '{'"),
    ],
)
async def test_a_damaged_effect_is_corrupt(backend_url: str, key: str, damage: str) -> None:
    """An unreadable row, or one that does not match its hash, raises CorruptData for every caller."""
    async with await lash.open(backend_url) as storage:
        fence = await in_session(storage)
        await storage.effects.record(fence, effect("completed"), 1)
        await storage.effects.record(fence, effect("failed"), BROKEN)
        claimed(await storage.effects.claim(effect("live"), ANN, ttl_ms=60_000))
        await raw(backend_url, f"UPDATE lash_effects SET {damage} WHERE replay_key = '{key}'")
        before = await raw(backend_url, "SELECT * FROM lash_effects ORDER BY replay_key")
        calls = [storage.effects.claim(effect(key), ANN, ttl_ms=60_000)]
        if damage != "envelope_hash = 'other'":
            calls += [storage.effects.get(TURN, key), storage.effects.list(TURN)]  # type: ignore[list-item]
        for call in calls:
            with pytest.raises(lash.CorruptData, match=f"'{key}'"):
                await call
        assert await raw(backend_url, "SELECT * FROM lash_effects ORDER BY replay_key") == before


async def test_a_miscounted_group_is_corrupt(backend_url: str) -> None:
    """A counter that disagrees with the effects is damage."""
    async with await lash.open(backend_url) as storage:
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=3)
        await storage.effects.record(fence, effect(group="g"), 1)
        await raw(backend_url, "UPDATE lash_effect_groups SET members = 2, settled = 2")
        with pytest.raises(lash.CorruptData, match="'g'"):
            await storage.effects.group(TURN, "g")


@pytest.mark.parametrize(
    "impossible",
    [
        "status = 'done'",
        "status = 'completed', expires_at_ms = NULL",
        "outcome = '1'",
        "token = NULL",
        "owner_id = NULL",
        "expires_at_ms = NULL",
        "settled_rank = 1",
        "fencing = -1",
        "process_key = 1",
    ],
)
async def test_the_tables_refuse_what_cannot_be(backend_url: str, impossible: str) -> None:
    """Constraints of the tables refuse most damage."""
    async with await lash.open(backend_url) as storage:
        await in_session(storage)
        claimed(await storage.effects.claim(effect(), ANN, ttl_ms=60_000))
        with pytest.raises(Exception, match=r"(?i)constraint|datatype"):
            await raw(backend_url, f"UPDATE lash_effects SET {impossible}")

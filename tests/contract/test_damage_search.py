"""The search for damage: nothing in a sound storage, and each kind of damage with what to do."""

from __future__ import annotations

import pytest

import lash
from tests.proof.fuzz.damage import QUICK
from tests.proof.fuzz.everything import fill_everything
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def test_a_sound_storage_has_no_damage(backend_url: str) -> None:
    """A storage with rows in every table has no findings, also after deletions, forks, retries and pruning."""
    async with await lash.open(backend_url) as storage:
        known = await fill_everything(storage)
        assert await storage.maintenance.find_damage() == ()
        await storage.queue.requeue("support-42", known.batch)
        await storage.session("s").vacuum()
        await storage.sessions.delete("s")
        await storage.processes.prune(ended_before_ms=2**62, through_cursor=None)
        assert await storage.maintenance.find_damage() == ()


async def test_each_kind_of_damage_is_found(backend_url: str) -> None:
    """A missing row, a wrong reference, hash, counter and order, orphans and unreadable text are named with a remedy.

    `tests/proof/fuzz/test_damage.py` plants every damage of each kind.
    """
    async with await lash.open(backend_url) as storage:
        await fill_everything(storage)
    off = "PRAGMA foreign_keys = OFF" if backend_url.startswith("sqlite") else "SET session_replication_role = replica"
    for planted in QUICK:
        await raw(backend_url, planted.statement, before=off)
    async with await lash.open(backend_url) as storage:
        findings = await storage.maintenance.find_damage()
    for planted in QUICK:
        assert any(planted.names(each.where, each.problem) for each in findings), planted
    assert all(each.remedy for each in findings)

"""A worker on a disk that is sometimes full."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import apsw
import pytest

from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.disk import EFFORT, disk_below

COUNT = 8 * EFFORT


async def test_a_worker_outlives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are handled once and in order whenever the disk has space, and none becomes a dead letter."""
    chance = random.Random(3)
    refused = 0

    def full(operation: str, _suffix: str) -> None:
        nonlocal refused
        if operation == "write":
            refused += 1
            raise apsw.FullError("made for the test")

    async def fill(done: asyncio.Event) -> None:
        while not done.is_set():
            await asyncio.sleep(chance.uniform(0, 0.1))
            disk.fault = full
            await asyncio.sleep(chance.uniform(0, 0.2))
            disk.fault = None

    with disk_below(tmp_path, monkeypatch) as disk:
        done = asyncio.Event()
        async with make_app(f"sqlite:///{tmp_path / 'lash.db'}", Troubles()) as app, asyncio.TaskGroup() as group:
            group.create_task(fill(done))
            for name in ("a", "b"):
                group.create_task(talk(app, name, COUNT, []))
            for name in ("a", "b"):
                assert await said(app, name, COUNT) == expected(name, COUNT)
            done.set()
            assert await app.storage.queue.dead() == ()
    assert refused > 3

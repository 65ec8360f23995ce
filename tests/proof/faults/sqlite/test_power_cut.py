"""An acknowledged write survives a power cut, whatever else the disk had not synced."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.proof.faults.disk import EFFORT, disk_below
from tests.proof.faults.sqlite.power import check_database, check_storage, live, remains


@pytest.mark.parametrize("seed", range(2 * EFFORT))
async def test_acknowledged_writes_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Cut at any moment, the database is whole and holds every acknowledged write, and lash goes on with it."""
    chance = random.Random(seed)
    source = tmp_path / "source"
    source.mkdir()
    with disk_below(source, monkeypatch) as disk:
        story = await live(disk, rounds=4, checkpoint_pages=chance.choice((10, 40)), reopen_after=3)
    positions = sorted(chance.randint(0, len(disk.log)) for _ in range(100))
    seen = 0
    for left in remains(story, positions, tmp_path, chance):
        check_database(left)
        if seen % 10 == 0:
            await check_storage(left)
        seen += 1
        shutil.rmtree(left.directory)
    assert seen == 100

"""A file that another program locks again and again under workers: no effect is repeated."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.proof.faults.chats import Troubles
from tests.proof.faults.disk import EFFORT
from tests.proof.faults.ledger import Firm, Ledger, has, worked_through
from tests.runtime.outages import locked_file
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.timeout(300 * EFFORT)


async def test_no_effect_is_repeated_by_a_foreign_lock(tmp_path: Path) -> None:
    """Through five locks beyond the patience of lash every effect happens once, and all work is finished."""
    with locked_file(tmp_path / "lash.db") as file:
        firm = Firm(file.url, Ledger(tmp_path / "ledger"), Troubles())

        async def lock() -> None:
            for number in range(5 * EFFORT):
                await until(partial(has, firm, 40 * (number + 1)))
                await file.begin()
                await asyncio.sleep(0.5 * (number % 5))
                await file.end()

        await worked_through(firm, lock)

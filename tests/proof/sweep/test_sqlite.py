"""The sweep on SQLite."""

from __future__ import annotations

import pytest

from tests.proof.sweep.bench import SQLiteBench
from tests.proof.sweep.cases import CASES
from tests.proof.sweep.killer import Killer
from tests.proof.sweep.sweep import sweep


@pytest.mark.parametrize("backend_name", ["sqlite"])
@pytest.mark.parametrize("name", CASES)
async def test_every_point(backend_name: str, name: str, sqlite_bench: SQLiteBench, killer: Killer) -> None:
    """Whatever happens at a statement, the state is the old or the new one, and the same call again succeeds."""
    assert sqlite_bench.backend == backend_name
    await sweep(sqlite_bench, CASES[name], killer)

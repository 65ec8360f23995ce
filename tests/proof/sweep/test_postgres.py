"""The sweep on PostgreSQL."""

from __future__ import annotations

import pytest

from tests.proof.sweep.bench_postgres import PostgresBench
from tests.proof.sweep.cases import CASES
from tests.proof.sweep.killer import Killer
from tests.proof.sweep.sweep import sweep


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("name", CASES)
async def test_every_point(backend_name: str, name: str, postgres_bench: PostgresBench, killer: Killer) -> None:
    """Whatever happens at a statement, the state is the old or the new one, and the same call again succeeds."""
    assert postgres_bench.backend == backend_name
    await sweep(postgres_bench, CASES[name], killer)

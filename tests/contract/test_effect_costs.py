"""Costs of effects: one statement for each frequent call, independent of how many effects exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest
import pytest_asyncio

from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from tests.contract.harnesses import PostgresHarness
from tests.factories.effect import RUN, TURN, claimed, effect, in_session
from tests.factories.process import process_lease, registered
from tests.factories.session import commit, node, owner

ANN = owner("ann")
_TRANSACTION = {"begin", "savepoint", "release", "commit"}


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def __call__(self, name: str) -> None:
        self._names.append(name)

    async def during(self, call: Awaitable[object]) -> list[str]:
        """Return the statements that ran during the call, except transaction control."""
        self._names.clear()
        await call
        return [name for name in self._names if name not in _TRANSACTION]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture(loop_scope="session")
async def sqlite(tmp_path: Path, recorder: Recorder) -> AsyncIterator[Storage]:
    harness = URLHarness("sqlite", f"sqlite:///{tmp_path / 'lash.db'}", ManualClock())
    yield await harness.open(on_statement=recorder)
    await harness.close()


@pytest_asyncio.fixture(loop_scope="session")
async def postgres(postgres_schema_url: str, recorder: Recorder) -> AsyncIterator[Storage]:
    harness = PostgresHarness(postgres_schema_url)
    yield await harness.open(on_statement=recorder)
    await harness.close()


async def _costs(storage: Storage, recorder: Recorder) -> dict[str, list[str]]:
    """Return the statements of each frequent call."""
    fence = await in_session(storage)
    await registered(storage)
    run = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=60_000)).fence
    count = recorder.during
    await storage.effects.open_group(TURN, "g", size=2)
    begun = claimed(await storage.effects.claim(effect("1"), ANN, ttl_ms=60_000))
    grouped = claimed(await storage.effects.claim(effect("2", group="g"), ANN, ttl_ms=60_000))
    return {
        "record": await count(storage.effects.record(fence, effect("3"), 1)),
        "record in a process": await count(storage.effects.record(run, effect(scope=RUN), 1)),
        "record in a group": await count(storage.effects.record(fence, effect("4", group="g"), 1)),
        "record again": await count(storage.effects.record(fence, effect("3"), 2)),
        "begin": await count(storage.effects.claim(effect("5"), ANN, ttl_ms=60_000)),
        "replay": await count(storage.effects.claim(effect("3"), ANN, ttl_ms=60_000)),
        "renew": await count(storage.effects.renew(begun, ttl_ms=60_000)),
        "finish": await count(storage.effects.finish(begun, 1)),
        "finish in a group": await count(storage.effects.finish(grouped, 1)),
        "get": await count(storage.effects.get(TURN, "3")),
        "get many": await count(storage.effects.get_many([(TURN, key) for key in "1234567"])),
        "list": await count(storage.effects.list(TURN)),
        "recent": await count(storage.effects.recent(TURN, 10)),
        "commit": await count(storage.session("s").commit(commit(0, node("a"), turn_id="t"))),
    }


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_postgres_records_in_one_statement(postgres: Storage, recorder: Recorder, backend_name: str) -> None:
    """Recording, with its fence and its group, is one round trip; a replay takes a second."""
    costs = await _costs(postgres, recorder)
    assert costs == {
        "record": ["effect_record"],
        "record in a process": ["effect_record_by_key"],
        "record in a group": ["effect_record"],
        "record again": ["effect_record", "effect_facts"],
        "begin": ["effect_claim"],
        "replay": ["effect_claim", "effect_facts"],
        "renew": ["effect_renew"],
        "finish": ["effect_finish"],
        "finish in a group": ["effect_finish"],
        "get": ["effect_row"],
        "get many": ["effect_rows"],
        "list": ["effect_page"],
        "recent": ["effect_recent"],
        "commit": ["commit_apply"],
    }


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_sqlite_records_in_one_statement(sqlite: Storage, recorder: Recorder, backend_name: str) -> None:
    """Recording under a lease is one statement and one commit; groups and claims take a few."""
    costs = await _costs(sqlite, recorder)
    assert costs["record"] == ["effect_record"]
    assert costs["record in a process"] == ["effect_record_in_process"]
    assert costs["renew"] == ["effect_renew"]
    assert costs["finish"] == ["effect_finish"]
    assert costs["finish in a group"] == ["effect_finish", "effect_finish_group"]
    assert costs["begin"] == ["session_key", "effect_row", "effect_claim"]
    assert costs["replay"] == ["session_key", "effect_row"]
    assert costs["get"] == ["effect_row"]
    assert costs["get many"] == ["effect_rows"]
    assert len(costs["record in a group"]) == 5
    assert costs["commit"][-2:] == ["effect_retire", "effect_retire_groups"]


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_commit_without_a_turn_looks_for_no_effects(
    sqlite: Storage, recorder: Recorder, backend_name: str
) -> None:
    """Only the commit of a turn retires effects, so only it looks for them."""
    await in_session(sqlite)
    names = await recorder.during(sqlite.session("s").commit(commit(0, node("a"))))
    assert not any(name.startswith("effect") for name in names)


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_effects_do_not_cost_more_beside_many(sqlite: Storage, recorder: Recorder, backend_name: str) -> None:
    """A replay and a record run the same statements beside one effect and beside many."""
    fence = await in_session(sqlite)

    async def twice(key: str) -> list[list[str]]:
        return [await recorder.during(sqlite.effects.record(fence, effect(key), 1)) for _ in range(2)]

    few = await twice("a")
    await asyncio.gather(*(sqlite.effects.record(fence, effect(f"k{number}"), number) for number in range(500)))
    assert await twice("b") == few

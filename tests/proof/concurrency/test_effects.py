"""Real processes run effects and are killed or stalled: each outcome is recorded once, late finishes are refused."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from lash.model.effect import EffectStatus, Envelope, TurnScope
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from tests.contract.harnesses import PostgresHarness
from tests.factories.effect import TURN, claimed, effect, replayed
from tests.factories.session import acquired, created, owner
from tests.proof.concurrency.effect_child import TTL
from tests.raw import raw
from tests.warm_programs import Program, start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_RACERS: Final = 3
_KEYS: Final = 20
_MOST_STATEMENTS: Final = {
    ("sqlite", "record"): 4,
    ("sqlite", "claim"): 9,
    ("postgres", "record"): 2,
    ("postgres", "claim"): 3,
}
"""One more than each way takes, so that the last child survives until its acknowledgement."""


@pytest_asyncio.fixture
async def harness(backend_url: str, backend_name: str) -> AsyncIterator[URLHarness]:
    """A database whose time the test moves, for children that stop in it."""
    if backend_name == "postgres":
        opened: URLHarness = PostgresHarness(backend_url)
    else:
        opened = URLHarness("sqlite", backend_url, ManualClock())
    yield opened
    await opened.close()


def _child(*arguments: str) -> Program:
    return start("tests.proof.concurrency.effect_child", *arguments)


def _end(child: Program) -> list[str]:
    said, _ = child.communicate(timeout=60)
    return said.splitlines()


@pytest.mark.parametrize("way", ["record", "claim"])
async def test_a_killed_runner_leaves_one_outcome(
    harness: URLHarness, backend_url: str, backend_name: str, tmp_path: Path, way: str
) -> None:
    """Killed before or at any statement, the effect is run again at most once and recorded exactly once."""
    storage = await harness.open()
    moments = ["before"] if backend_name == "sqlite" else ["before", "sent"]
    numbers = range(1, _MOST_STATEMENTS[backend_name, way] + 1)
    names = [(moment, str(number)) for moment, number in itertools.product(moments, numbers)]
    children = [
        _child("crash", backend_url, way, moment, number, str(tmp_path / f"{way}-{moment}-{number}.ran"))
        for moment, number in names
    ]
    heard = [await asyncio.to_thread(_end, child) for child in children]
    assert {child.returncode for child in children} == {-9}
    assert [bool(said) for said in heard] == [int(number) == numbers[-1] for _, number in names]
    await harness.clock.advance(TTL)
    runs = [
        await _recover(storage, way, f"{way}-{moment}-{number}", tmp_path, acknowledged=bool(said))
        for (moment, number), said in zip(names, heard, strict=True)
    ]
    assert max(runs) == 2, "at least one child died between the effect and its outcome"
    assert min(runs) == 1
    rows = await raw(backend_url, "SELECT count(*) FROM lash_effects WHERE replay_key = 'k' AND status = 'completed'")
    assert rows == [(len(names),)]


async def _recover(storage: Storage, way: str, name: str, directory: Path, *, acknowledged: bool) -> int:
    """Finish what the dead child left, and return how often the effect was run."""
    ran = directory / f"{name}.ran"
    envelope = effect(scope=TurnScope(session_id=name, turn_id="t"))
    known = await storage.effects.get(envelope.scope, "k")
    recorded = known is not None and known.status is EffectStatus.COMPLETED
    assert recorded or not acknowledged, "an acknowledged outcome is there"
    record = await (_record_again if way == "record" else _claim_again)(storage, name, envelope, ran)
    assert record == ("child" if recorded else "heir")
    decision = await storage.effects.claim(envelope, owner("third"), ttl_ms=TTL, strict=True)
    assert replayed(decision).outcome == record
    return len(ran.read_text().splitlines())


async def _record_again(storage: Storage, name: str, envelope: Envelope, ran: Path) -> object:
    lease = acquired(await storage.leases.claim(name, owner("heir"), ttl_ms=TTL))
    known = await storage.effects.get(envelope.scope, "k")
    if known is not None:
        return known.outcome
    with ran.open("a") as file:
        file.write("heir\n")
    return (await storage.effects.record(lease.fence, envelope, "heir")).outcome


async def _claim_again(storage: Storage, _name: str, envelope: Envelope, ran: Path) -> object:
    known = await storage.effects.get(envelope.scope, "k")
    decision = await storage.effects.claim(envelope, owner("heir"), ttl_ms=TTL)
    if known is not None and known.status is EffectStatus.COMPLETED:
        return replayed(decision).outcome
    claim = claimed(decision, taken_over=known is not None)
    with ran.open("a") as file:
        file.write("heir\n")
    return (await storage.effects.finish(claim, "heir")).outcome


async def test_a_stalled_runner_is_not_believed(harness: URLHarness, backend_url: str) -> None:
    """A runner that wakes up after its claim was taken over can neither renew nor finish."""
    storage = await harness.open()
    await created(storage)
    child = _child("stall", backend_url)
    assert await asyncio.to_thread(child.stdout.readline) == "begun\n"
    await harness.clock.advance(TTL)
    heir = claimed(await storage.effects.claim(effect(), owner("heir"), ttl_ms=TTL), taken_over=True)
    said, _ = await asyncio.to_thread(child.communicate, "go\n", 60)
    assert said.split() == ["lost", "lost"]
    assert (await storage.effects.finish(heir, "heir")).outcome == "heir"
    assert [(each.outcome, each.fencing) for each in await storage.effects.list(TURN)] == [("heir", 2)]


async def test_of_racing_processes_one_runs_each_effect(harness: URLHarness, backend_url: str) -> None:
    """Several processes request the same effects at once; one of them runs each, and all see its outcome."""
    storage = await harness.open()
    await created(storage)
    children = [_child("race", backend_url, f"w{number}", str(_KEYS)) for number in range(_RACERS)]
    for child in children:
        assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [line for child in children for line in await asyncio.to_thread(_end, child)]
    assert [child.returncode for child in children] == [0] * _RACERS
    ran = Counter(line for line in said if line.startswith("ran"))
    assert ran == Counter(f"ran k{number}" for number in range(_KEYS))
    saw = Counter(line for line in said if line.startswith("saw"))
    assert (len(saw), set(saw.values())) == (_KEYS, {_RACERS})

"""The contract of the registry of workers: a beat registers a worker, shows that it lives, and returns its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.process.process import ProcessIdentity
from lash.model.worker import Beat, Fleet, Holding, Served, WorkerStatus
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.process import process

BEAT_MS = 1_000


def beat(name: str, *, boot: str = "boot", **changes: Any) -> Beat:  # noqa: ANN401 (fields of a beat)
    """Return the beat of a worker of this name."""
    process = LocalProcess(host_id="host", boot_id=boot, pid=1, process_start=name)
    announced = Beat(
        owner=LeaseOwner(owner_id=f"owner-{name}", incarnation_id=name, process=process),
        host="localhost",
        pid=1,
        version="1.0",
        beat_ms=BEAT_MS,
        session_slots=4,
        process_slots=8,
        free_sessions=3,
        free_processes=7,
    )
    return msgspec.structs.replace(announced, **changes)


async def sent(storage: Storage, announced: Beat) -> Fleet:
    """Poll with a beat and return what the worker learns."""
    work = await storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
    assert work.fleet is not None
    return work.fleet


async def names(storage: Storage) -> list[str]:
    return [each.worker_id for each in await storage.workers.list()]


class TestWorker:
    """Laws of the registry."""

    async def test_a_beat_registers_what_it_says(self, harness: Harness) -> None:
        """The worker is listed as its last beat described it, with the times of the storage."""
        storage = await harness.open()
        served = Served(agents=("writer",), processes=(), labels={"gpu": "yes", "region": "eu"})
        first = beat("a", served=served, channel="here")
        assert (await sent(storage, first)).live == 1
        await harness.clock.advance(10)
        later = msgspec.structs.replace(first, free_sessions=0, free_processes=1, beat_ms=2_000, channel=None)
        await sent(storage, later)
        (listed,) = await storage.workers.list()
        assert listed.beat == later
        assert (listed.status, listed.is_late, listed.seen_at_ms - listed.started_at_ms) == (
            WorkerStatus.ACTIVE,
            False,
            10,
        )

    async def test_the_place_follows_the_order_of_the_starts(self, harness: Harness) -> None:
        """The rank counts the live, active workers that started earlier; of one moment, the id decides."""
        storage = await harness.open()
        await sent(storage, beat("b"))
        await harness.clock.advance(1)
        for name in ("d", "c"):
            await sent(storage, beat(name))
        ranks = {name: (await sent(storage, beat(name))).rank for name in "bcd"}
        assert ranks == {"b": 0, "c": 1, "d": 2}
        assert await names(storage) == ["b", "c", "d"]
        assert (await sent(storage, beat("d"))).live == 3

    async def test_workers_of_some_kinds_come_last(self, harness: Harness) -> None:
        """A worker that takes all work is ranked before older ones that take only some."""
        storage = await harness.open()
        kinds: dict[str, dict[str, Any]] = {
            "a": {"served": Served(processes=("x",))},
            "b": {"session_slots": 0},
            "c": {},
        }
        for name, changes in kinds.items():
            await sent(storage, beat(name, **changes))
            await harness.clock.advance(1)
        assert {name: (await sent(storage, beat(name, **kinds[name]))).rank for name in kinds} == {
            "a": 1,
            "b": 2,
            "c": 0,
        }

    async def test_a_late_worker_loses_its_place_and_gets_it_back(self, harness: Harness) -> None:
        """A worker that misses two beats does not count; its next beat restores its place."""
        storage = await harness.open()
        await sent(storage, beat("a"))
        await sent(storage, beat("b", beat_ms=100_000))
        await harness.clock.advance(2 * BEAT_MS)
        assert (await sent(storage, beat("b", beat_ms=100_000))).rank == 1
        await harness.clock.advance(1)
        alone = await sent(storage, beat("b", beat_ms=100_000))
        assert (alone.rank, alone.live) == (0, 1)
        assert [each.is_late for each in await storage.workers.list()] == [True, False]
        assert (await sent(storage, beat("a"))).rank == 0
        assert (await sent(storage, beat("b", beat_ms=100_000))).rank == 1

    async def test_a_dead_worker_is_removed_by_the_others(self, harness: Harness) -> None:
        """A beat removes the workers that missed four of theirs; a late beat of such a worker registers it again."""
        storage = await harness.open()
        await sent(storage, beat("a"))
        await sent(storage, beat("b", beat_ms=100_000))
        await harness.clock.advance(4 * BEAT_MS)
        await sent(storage, beat("b", beat_ms=100_000))
        assert await names(storage) == ["a", "b"]
        await harness.clock.advance(1)
        await sent(storage, beat("b", beat_ms=100_000))
        assert await names(storage) == ["b"]
        assert (await sent(storage, beat("a"))).rank == 1

    async def test_a_worker_leaves(self, harness: Harness) -> None:
        """Leaving removes the worker at once; a second time it is unknown."""
        storage = await harness.open()
        await sent(storage, beat("a"))
        await sent(storage, beat("b"))
        assert await storage.workers.leave("a")
        assert not await storage.workers.leave("a")
        assert (await sent(storage, beat("b"))).rank == 0

    async def test_draining_lasts(self, harness: Harness) -> None:
        """A draining worker has no rank, whatever it announces, and the others move up."""
        storage = await harness.open()
        await sent(storage, beat("a"))
        await sent(storage, beat("b"))
        assert await storage.workers.drain("a")
        assert await storage.workers.drain("a")
        assert not await storage.workers.drain("nobody")
        drained = await sent(storage, beat("a"))
        assert (drained.rank, drained.status, drained.live) == (None, WorkerStatus.DRAINING, 2)
        assert (await sent(storage, beat("b"))).rank == 0
        assert [each.status for each in await storage.workers.list()] == [WorkerStatus.DRAINING, WorkerStatus.ACTIVE]

    async def test_what_a_worker_holds_follows_its_leases(self, harness: Harness) -> None:
        """A worker holds the sessions and processes of its live leases, and no others."""
        storage = await harness.open()
        for name in ("a", "b"):
            await sent(storage, beat(name))
            await storage.sessions.create(f"session-{name}")
            await storage.leases.claim(f"session-{name}", beat(name).owner, ttl_ms=1_000)
            await storage.processes.register(process(f"process-{name}"))
            await storage.process_leases.claim(f"process-{name}", beat(name).owner, ttl_ms=2_000)
        await storage.sessions.create("another")
        await storage.leases.claim("another", beat("b").owner, ttl_ms=1_000)
        held = await storage.workers.holding(["b", "a", "unknown"])
        assert held == {
            "b": Holding(session_ids=("another", "session-b"), process_ids=("process-b",)),
            "a": Holding(session_ids=("session-a",), process_ids=("process-a",)),
            "unknown": Holding(session_ids=(), process_ids=()),
        }
        assert (await storage.workers.holding(["b"], limit=1))["b"].session_ids == ("another",)
        await harness.clock.advance(1_000)
        assert await storage.workers.holding(["a"]) == {"a": Holding(session_ids=(), process_ids=("process-a",))}

    async def test_a_poll_finds_only_processes_of_the_names_that_it_serves(self, harness: Harness) -> None:
        """Ready and lapsed processes of other labels are left out, and so are those without one."""
        storage = await harness.open()
        for name, label in (("p1", "index"), ("p2", "report"), ("p3", "index"), ("p4", None)):
            identity = None if label is None else ProcessIdentity(kind="python", label=label)
            await storage.processes.register(process(name, identity=identity))
        for name in ("p2", "p3"):
            await storage.process_leases.claim(name, beat("dead").owner, ttl_ms=1_000)
        await harness.clock.advance(1_000)

        async def found(names: tuple[str, ...] | None, announced: Beat | None = None) -> set[str]:
            owner = beat("a").owner
            work = await storage.work.poll(sessions=1, processes=9, owner=owner, process_names=names, beat=announced)
            return set(work.process_ids)

        assert await found(None) == {"p1", "p2", "p3", "p4"}
        assert await found(("index",)) == {"p1", "p3"}
        assert await found(("report", "other"), beat("a")) == {"p2"}
        assert await found(()) == set()

    async def test_neighbours_are_on_the_same_boot(self, harness: Harness) -> None:
        """A worker learns the other workers on its machine, in the order of their start."""
        storage = await harness.open()
        for name, boot in (("a", "boot"), ("b", "other"), ("c", "boot")):
            await sent(storage, beat(name, boot=boot))
            await harness.clock.advance(1)
        assert (await sent(storage, beat("c"))).neighbours == (beat("a").owner,)
        assert (await sent(storage, beat("a"))).neighbours == (beat("c").owner,)
        assert (await sent(storage, beat("b", boot="other"))).neighbours == ()
        nowhere = LeaseOwner(owner_id="n", incarnation_id="n")
        assert (await sent(storage, beat("n", owner=nowhere))).neighbours == ()

    async def test_workers_that_take_the_same_sessions_are_alike(self, harness: Harness) -> None:
        """A worker learns which others choose from the same sessions: late, draining and other kinds are left out."""
        storage = await harness.open()
        clerk = Served(agents=("clerk",))
        for name, changes in (
            ("a", {}),
            ("b", {"session_slots": 0}),
            ("c", {"served": clerk}),
            ("d", {"served": Served(labels={"gpu": "yes"})}),
            ("e", {}),
            ("f", {"beat_ms": 1}),
            ("g", {}),
            ("h", {"served": clerk}),
        ):
            await sent(storage, beat(name, **changes))
        await storage.workers.drain("g")
        await harness.clock.advance(100)
        assert (await sent(storage, beat("a"))).alike == ("e",)
        assert (await sent(storage, beat("c", served=clerk))).alike == ("h",)
        assert (await sent(storage, beat("d", served=Served(labels={"gpu": "yes"})))).alike == ()

    async def test_a_poll_without_a_beat_registers_nothing(self, harness: Harness) -> None:
        """Programs that poll without a beat are no workers."""
        storage = await harness.open()
        work = await storage.work.poll(sessions=1, processes=1, owner=beat("a").owner)
        assert work.fleet is None
        assert await names(storage) == []

    @pytest.mark.parametrize(
        ("change", "naming"),
        [
            ({"beat_ms": 0}, "beat_ms"),
            ({"beat_ms": 86_400_001}, "beat_ms"),
            ({"free_sessions": -1}, "free_sessions"),
            ({"served": Served(agents=("",))}, "agents item"),
            ({"served": Served(agents=("x",) * 101)}, "at most 100"),
            ({"served": Served(labels={"": "x"})}, "label"),
            ({"channel": ""}, "channel"),
            ({"owner": LeaseOwner(owner_id="o", incarnation_id="other")}, "owner of the poll"),
        ],
    )
    async def test_an_invalid_beat_is_refused(self, harness: Harness, change: dict[str, Any], naming: str) -> None:
        """A beat that cannot be stored raises InvalidInput and registers nothing."""
        storage = await harness.open()
        with pytest.raises(InvalidInput, match=naming):
            await storage.work.poll(sessions=0, processes=0, owner=beat("a").owner, beat=beat("a", **change))
        assert await names(storage) == []

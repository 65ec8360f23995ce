"""One worker: its limits, its leases, and what it reacts to while it is busy."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

import lash
from lash.model.lease import Acquired, LeaseFence, LeaseOwner, LocalProcess
from lash.model.process.process import ProcessAcquired, ProcessRefused
from lash.runtime.hooks import Attributes
from lash.runtime.worker.reclaim import Reclaimer
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState
from tests.runtime.stage_kit import Stage, staged
from tests.runtime.worker_kit import until

PATIENCE_S = 60
REMOTE = LeaseOwner(
    owner_id="far away",
    incarnation_id="1",
    process=LocalProcess(host_id="another machine", boot_id="another boot", pid=1, process_start="1"),
)


class Statements(lash.Hook):
    """Counts statements and keeps the events that it receives."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: list[tuple[str, Attributes]] = []

    def statement(self, name: str) -> None:
        self.counts[name] += 1

    def note(self, kind: str, attributes: Attributes) -> None:
        self.notes.append((kind, attributes))


@pytest_asyncio.fixture
async def stage(backend_name: str, backend_url: str) -> AsyncIterator[Stage]:
    async with staged(backend_name, backend_url) as opened:
        yield opened


class Crowd:
    """Counts how many callers are inside at once, and holds them there."""

    def __init__(self) -> None:
        self.inside = self.most = self.came = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> None:
        self.inside += 1
        self.came += 1
        self.most = max(self.most, self.inside)
        await self.gate.wait()
        self.inside -= 1


async def test_limits_hold_and_nothing_is_left_out(backend_url: str) -> None:
    """Never more turns and processes run at once than the options allow, and in the end all have run."""
    turns, runs = Crowd(), Crowd()
    app = lash.App(backend_url, options=lash.WorkerOptions(sessions=2, processes=3, poll_s=0.2))

    @app.agent
    async def slow(turn: lash.Turn) -> None:
        await turn.step("inside", turns)

    @app.process
    async def slow_process(ctx: lash.Context) -> None:
        await ctx.step("inside", runs)

    async with app:
        for number in range(6):
            await app.session(f"s{number}").send("x", key="1")
        handles = [await app.start(slow_process) for _ in range(8)]
        await until(lambda: turns.inside == 2 and runs.inside == 3)
        turns.gate.set()
        runs.gate.set()
        for handle in handles:
            await handle.result(timeout_s=PATIENCE_S)
        await until(lambda: turns.came == 6 and turns.inside == 0)
    assert (turns.most, runs.most, runs.came) == (2, 3, 8)


async def test_a_parent_at_the_limit_does_not_starve_its_children(backend_url: str) -> None:
    """A process that waits for its children frees its slot, at any depth."""
    app = lash.App(backend_url, options=lash.WorkerOptions(processes=1, poll_s=0.2))

    @app.process
    async def depth(ctx: lash.Context, left: int) -> int:
        if left == 0:
            return 0
        children = [await ctx.start(depth, left - 1) for _ in range(2)]
        return 1 + max([await child.result() for child in children])

    async with app:
        handle = await app.start(depth, 3)
        assert await handle.result(timeout_s=PATIENCE_S) == 3


async def test_a_full_worker_hears_orders(backend_url: str) -> None:
    """A turn and a process can be cancelled although their worker has no free slot."""
    app = lash.App(backend_url, options=lash.WorkerOptions(sessions=1, processes=1, poll_s=0.2))
    turns, runs = Crowd(), Crowd()

    @app.agent
    async def slow(turn: lash.Turn) -> None:
        await turns()

    @app.process
    async def slow_process(ctx: lash.Context) -> None:
        await runs()

    async with app:
        await app.session("s").send("x", key="1")
        handle = await app.start(slow_process)
        await until(lambda: turns.inside == runs.inside == 1)
        await app.session("s").cancel("enough")
        await handle.cancel("enough")
        with pytest.raises(lash.ProcessFailed, match="was cancelled"):
            await handle.result(timeout_s=PATIENCE_S)

        async def is_quiet() -> bool:
            return await app.session("s").pending() == ()

        await until(is_quiet)


async def test_sessions_that_always_have_work_leave_room_for_others(stage: Stage) -> None:
    """Under more work than a worker can do, the session that waited longest comes before the ones that ran.

    One turn in four goes to the newest message.
    """
    app = stage.app(options=lash.WorkerOptions(sessions=1))
    served: list[str] = []

    @app.agent
    async def greedy(turn: lash.Turn) -> None:
        served.append(turn.session_id)
        if turn.session_id != "modest" and len(served) < 30:
            await app.session(turn.session_id).send("more", key=f"{len(served)}")

    async with app:
        for name in ("greedy", "greedier", "modest"):
            await app.session(name).send("x", key="first")
        await app.drain()
    assert "modest" in served[:4]
    assert len(served) >= 30


async def test_renewals_keep_long_work(stage: Stage) -> None:
    """Work longer than its lease is renewed: another worker finds nothing, and the turn runs once."""
    if stage.backend == "memory":
        pytest.skip("another worker cannot see a storage in memory")
    crowd = Crowd()
    app = stage.app(worker=True, options=lash.WorkerOptions(lease_ttl_s=0.9, poll_s=0.2))
    other = stage.app()

    async def slow(turn: lash.Turn) -> str:
        await crowd()
        return "kept"

    app.agent(slow)
    other.agent(slow)
    async with app, other:
        await app.session("s").send("x", key="1")
        await until(lambda: crowd.inside == 1)
        for _ in range(4):

            async def is_renewed() -> bool:
                held = await other.storage.leases.holder("s")
                return held is not None and held.expires_at_ms >= stage.clock.now_ms() + 900

            await until(is_renewed)
            await stage.clock.advance(700)
            assert await other.drain() == 0
        crowd.gate.set()
        assert await app.session("s").ask("x", key="1", timeout_s=PATIENCE_S) == "kept"
    assert crowd.came == 1


async def test_what_a_remote_worker_held_is_free_when_its_lease_ends(stage: Stage) -> None:
    """The death of a worker on another machine cannot be detected: its work waits for the lease to expire."""
    app = stage.app()

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return "answered"

    @app.process
    async def process(ctx: lash.Context) -> str:
        return "ran"

    async with app:
        await app.session("s").send("x", key="1")
        handle = await app.start(process)
        storage = app.storage
        assert isinstance(await storage.leases.claim("s", REMOTE, ttl_ms=5_000), Acquired)
        claimed = await storage.process_leases.claim(handle.process_id, REMOTE, ttl_ms=5_000)
        assert isinstance(claimed, ProcessAcquired)
        await stage.clock.advance(4_999)
        assert await app.drain() == 0
        await stage.clock.advance(2)
        assert await app.drain() == 2
        assert await handle.result() == "ran"
        assert await app.session("s").ask("x", key="1") == "answered"


async def test_drain_runs_what_timers_start(stage: Stage) -> None:
    """A due tick starts its process, and the same drain runs it; future ticks are left."""
    app = stage.app()

    @app.process
    async def tick(ctx: lash.Context) -> str:
        return "ticked"

    app.cron("* * * * *", tick)
    async with app:
        assert await app.drain() == 0
        await stage.clock.advance(60_000)
        # The tick and its process.
        assert await app.drain() == 2
        records = (await app.storage.processes.list()).processes
        assert [record.status for record in records] == [lash.ProcessStatus.COMPLETED]
        assert await app.drain() == 0


async def test_old_processes_are_removed_if_the_options_say_so(stage: Stage) -> None:
    """A worker prunes processes that ended long enough ago, and no others."""
    options = lash.WorkerOptions(maintenance_s=0.05, keep_ended_processes_s=100, poll_s=0.2)
    app = stage.app(worker=True, options=options)

    @app.process
    async def process(ctx: lash.Context) -> None:
        return None

    async with app:
        old = await app.start(process)
        await old.result(timeout_s=PATIENCE_S)
        await stage.clock.advance(100_001)
        young = await app.start(process)
        await young.result(timeout_s=PATIENCE_S)

        async def is_gone() -> bool:
            return await app.storage.processes.get(old.process_id) is None

        await until(is_gone)
        assert await young.status() is lash.ProcessStatus.COMPLETED


async def test_an_unknown_definition_costs_no_busy_loop(backend_url: str) -> None:
    """Work for unknown code is left to others, noted, and checked again only now and then."""
    statements = Statements()
    sender = lash.App(backend_url, worker=True, hooks=[statements], options=lash.WorkerOptions(poll_s=1))

    async def elsewhere(ctx: lash.Context) -> str:
        return "here now"

    foreign = lash.App(backend_url, worker=False).process(elsewhere)
    async with sender:
        await sender.storage.processes.register(await _registration(sender, foreign))
        await until(lambda: "definition.unknown" in [kind for kind, _ in statements.notes])
        before, began = statements.counts["process_lease_acquire"], time.monotonic()
        await asyncio.sleep(1)
        # A busy machine sleeps longer.
        assert statements.counts["process_lease_acquire"] - before <= time.monotonic() - began


async def _registration(app: lash.App, process: lash.ProcessDefinition[[], str]) -> lash.model.Registration:
    core = app._require()
    provenance = lash.model.Provenance(originator=lash.model.HostOriginator())
    return await core.registration(process, "p", (), {}, provenance=provenance, wake_session_id=None)


def test_refusals_back_off_and_are_forgotten() -> None:
    """A listed and refused name is tried ever more rarely, up to a limit; one success resets that."""
    now = 0.0
    slots: Slots[str] = Slots(2, longest_pause_s=1.0, clock=lambda: now)
    pauses = []
    for _ in range(10):
        assert slots.take("a")
        slots.leave("a", in_vain=True)
        pauses.append(slots.next_try_s())
        assert not slots.take("a")
        # One more than there are slots, because a poll will list this one too.
        assert slots.wanted() == 3
        now += pauses[-1]
    assert pauses == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0])
    assert slots.take("a")
    slots.leave("a", in_vain=False)
    assert slots.take("a")
    slots.leave("a", in_vain=True)
    assert slots.next_try_s() == pytest.approx(0.01)


def test_slots_are_counted() -> None:
    """Slots are not exceeded, none is taken twice, and a full worker polls for none."""
    slots: Slots[str] = Slots(2, longest_pause_s=1.0)
    assert [slots.take(name) for name in ("a", "a", "b", "c")] == [True, False, True, False]
    assert slots.is_full
    assert slots.wanted() == 0
    slots.fill("a", "run")
    assert (slots.names(), slots.filled(), slots.get("a"), slots.get("b")) == (("a", "b"), ("run",), "run", None)


def test_what_has_ended_is_not_remembered() -> None:
    """An ended process is forgotten, so polls need not be larger for it; others keep their rank."""
    slots: Slots[str] = Slots(2, longest_pause_s=1.0)
    for number in range(100):
        assert slots.take(f"ended-{number}")
        slots.leave(f"ended-{number}", in_vain=False, for_good=True)
    assert slots.wanted() == 2
    assert slots.take("parked")
    slots.leave("parked", in_vain=False)
    assert slots.wanted() == 3


def test_what_only_writes_down_how_it_went_keeps_no_slot() -> None:
    """A run that only records its outcome frees its slot; at most twice the limit run in all."""
    slots: Slots[str] = Slots(2, longest_pause_s=1.0)
    assert [slots.take(name) for name in ("a", "b", "c")] == [True, True, False]
    slots.mark_finishing("a")
    slots.mark_finishing("never there")
    assert (slots.is_full, slots.wanted()) == (False, 1)
    assert [slots.take(name) for name in ("a", "c", "d")] == [False, True, False]
    for name in ("b", "c"):
        slots.mark_finishing(name)
    assert slots.take("d")
    slots.mark_finishing("d")
    assert slots.names() == ("a", "b", "c", "d")
    assert not slots.take("e")
    slots.leave("a", in_vain=False)
    assert slots.take("e")


async def test_a_run_does_not_share_a_lease_that_is_being_reclaimed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking the lease of a dead worker and freeing it, the worker itself cannot claim it either."""
    app = stage.app()

    @app.process
    async def work(ctx: lash.Context) -> None: ...

    async with app:
        process_id = (await app.start(work)).process_id
        core, leases = app._require(), app.storage.process_leases
        if core.owner.process is None:
            pytest.skip("this machine cannot prove that a process is dead")
        gone = msgspec.structs.replace(core.owner.process, process_start="1", presence=None)
        dead = LeaseOwner(owner_id="dead", incarnation_id="1", process=gone)
        held = await leases.claim(process_id, dead, ttl_ms=60_000)
        assert isinstance(held, ProcessAcquired)
        claimed: list[object] = []
        release = leases.release

        async def claim_before(fence: LeaseFence) -> None:
            claimed.append(await leases.claim(process_id, core.owner, ttl_ms=60_000))
            await release(fence)

        monkeypatch.setattr(leases, "release", claim_before)
        state = WorkerState(core)
        Reclaimer(state).check([held.lease])
        await asyncio.gather(*state.tasks)
        assert [type(each) for each in claimed] == [ProcessRefused]
        assert isinstance(await leases.claim(process_id, core.owner, ttl_ms=60_000), ProcessAcquired)

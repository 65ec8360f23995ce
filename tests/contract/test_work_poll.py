"""The contract of polling the work list: it finds work exactly when it is ready, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.process.process import ProcessAcquired, Recovery
from lash.model.work import WorkList
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import opened
from tests.contract.queue_state import claimed, command, early, late, leased, queued
from tests.contract.work_state import ANN, BOB, FOREVER, TTL, looked, parked, ready, run
from tests.factories.process import DONE, GO, NOTE, process, registered
from tests.factories.session import acquired, commit, created, owner

HERE: Final = LocalProcess(host_id="host/ns", boot_id="boot", pid=1, process_start="1")
ELSEWHERE: Final = {
    "another boot": msgspec.structs.replace(HERE, boot_id="other"),
    "another host": msgspec.structs.replace(HERE, host_id="other/ns"),
    "unknown process": None,
}
ME: Final = owner("me", process=HERE)
BAD: Final[dict[str, dict[str, Any]]] = {
    "too many sessions": {"sessions": 1_001},
    "too many processes": {"processes": 1_001},
    "negative limit": {"processes": -1},
    "limit as text": {"sessions": "1"},
    "owner as text": {"owner": "me"},
    "ids as one text": {"running_sessions": "s"},
    "ids as numbers": {"running_processes": [1]},
    "ids as a number": {"running_processes": 1},
}


class TestLook:
    """Laws of what a worker's poll finds."""

    async def test_an_empty_storage_has_no_work(self, harness: Harness) -> None:
        """An empty storage has no work and no next moment."""
        storage = await harness.open()
        assert await looked(storage) == WorkList(now_ms=harness.clock.now_ms())

    @pytest.mark.parametrize("kind", ["late", "early", "command"])
    async def test_a_session_with_work_is_found(self, harness: Harness, kind: str) -> None:
        """Turn work and commands both put a session on the list; a session without them is not on it."""
        storage = await _sessions(harness, "idle", "s")
        await queued(storage, {"late": late, "early": early, "command": command}[kind]("x"))
        assert (await looked(storage)).session_ids == ("s",)

    async def test_a_held_session_is_not_found(self, harness: Harness) -> None:
        """A live lease keeps a session off the list to its last moment; release and expiry put it back."""
        storage = await _sessions(harness)
        await queued(storage, late("x"))
        fence = await leased(storage, ttl_ms=TTL)
        assert (await looked(storage)).session_ids == ()
        await storage.leases.release(fence)
        assert (await looked(storage)).session_ids == ("s",)
        await leased(storage, ttl_ms=TTL)
        await harness.clock.advance(TTL - 1)
        assert (await looked(storage)).session_ids == ()
        await harness.clock.advance(1)
        assert (await looked(storage)).session_ids == ("s",)

    async def test_delayed_work_is_found_when_due(self, harness: Harness) -> None:
        """A poll returns the due time of a delayed batch, and finds its session from then on."""
        storage = await _sessions(harness)
        due = harness.clock.now_ms() + 50
        await queued(storage, late("x", available_at_ms=due + 10), late("y", available_at_ms=due))
        work = await looked(storage)
        assert (work.session_ids, work.next_at_ms) == ((), due)
        await harness.clock.advance(50)
        work = await looked(storage)
        assert (work.session_ids, work.next_at_ms) == (("s",), due + 10)

    async def test_a_paused_session_is_found_when_its_pause_ends(self, harness: Harness) -> None:
        """A session released with a pause stays off the list, whatever is sent to it; a poll returns the end."""
        storage = await _sessions(harness, "s", "other")
        await queued(storage, late("x"), late("z", session_id="other"))
        fence = await leased(storage)
        assert await storage.leases.release(fence, pause_ms=500) is True
        await queued(storage, command("y"), late("soon", available_at_ms=harness.clock.now_ms() + 100))
        await harness.clock.advance(499)
        work = await looked(storage)
        assert (work.session_ids, work.next_at_ms) == (("other",), work.now_ms + 1)
        await harness.clock.advance(1)
        work = await looked(storage)
        assert (work.session_ids, work.next_at_ms) == (("s", "other"), None)

    async def test_a_claim_ends_a_pause(self, harness: Harness) -> None:
        """A pause does not hinder a claim; afterwards, released or committed, the session is found again."""
        storage = await _sessions(harness)
        await queued(storage, late("x"))
        assert await storage.leases.release(await leased(storage), pause_ms=500)
        await storage.leases.release(await leased(storage))
        assert (await looked(storage)).session_ids == ("s",)
        assert await storage.leases.release(await leased(storage), pause_ms=500)
        fence = await leased(storage)
        await storage.session("s").commit(commit(0, fence=fence, release=fence))
        assert (await looked(storage)).session_ids == ("s",)

    async def test_a_late_release_pauses_nothing(self, harness: Harness) -> None:
        """A late release by an earlier holder changes nothing, its pause included."""
        storage = await _sessions(harness)
        await queued(storage, late("x"))
        old = await leased(storage, ttl_ms=1)
        await harness.clock.advance(1)
        await storage.leases.release(await leased(storage, "new"))
        assert await storage.leases.release(old, pause_ms=500) is False
        assert (await looked(storage)).session_ids == ("s",)

    @pytest.mark.parametrize("pause_ms", [-1, 24 * 60 * 60 * 1000 + 1, "1", None])
    async def test_a_bad_pause_is_refused(self, harness: Harness, pause_ms: Any) -> None:  # noqa: ANN401
        """A pause is a number of milliseconds up to a day; a bad one is refused and the lease kept."""
        storage = await _sessions(harness)
        fence = await leased(storage)
        with pytest.raises(InvalidInput, match="pause_ms"):
            await storage.leases.release(fence, pause_ms=pause_ms)
        assert await storage.leases.holder("s") is not None

    async def test_a_deleted_session_is_gone(self, harness: Harness) -> None:
        """Deleting a session takes its work, its delays and its pause off the list."""
        storage = await _sessions(harness)
        await queued(storage, late("x"), late("y", available_at_ms=FOREVER))
        await storage.leases.release(await leased(storage), pause_ms=500)
        await storage.sessions.delete("s")
        assert await looked(storage) == WorkList(now_ms=harness.clock.now_ms())

    async def test_limits_are_kept(self, harness: Harness) -> None:
        """A poll returns no more than the limits, of sessions in each lane; a limit of zero returns none."""
        storage = await _sessions(harness, *"abc")
        for name in "abc":
            await queued(storage, late("x", session_id=name))
        for name in "cab":
            await registered(storage, name)
            await harness.clock.advance(1)
        work = await storage.work.poll(sessions=2, processes=2, owner=ANN)
        assert (work.lanes.waiting, work.lanes.newest, work.process_ids) == (("a", "b"), ("c",), ("c", "a"))
        work = await storage.work.poll(sessions=0, processes=0, owner=ME)
        assert (work.session_ids, work.process_ids) == ((), ())

    async def test_what_lapsed_keeps_its_place(self, harness: Harness) -> None:
        """A process whose worker vanished comes before processes that became ready later."""
        storage = await opened(harness)
        await registered(storage, "first")
        await run(storage, "first")
        await harness.clock.advance(1)
        await registered(storage, "second", "third")
        assert await ready(storage) == ["second", "third"]
        await harness.clock.advance(TTL)
        assert await ready(storage) == ["first", "second", "third"]

    async def test_what_is_bound_to_others_is_not_found(self, harness: Harness) -> None:
        """Once started, an owner-bound process is work for its owner only, parked, released or lapsed."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NOTE, GO, recovery=Recovery.OWNER_BOUND))
        assert await ready(storage, ANN) == await ready(storage, BOB) == ["p"]
        await storage.process_leases.release((await run(storage)).lease.fence)
        assert (await ready(storage, ANN), await ready(storage, BOB)) == (["p"], [])
        assert await ready(storage, owner("ann", "2")) == []
        await run(storage)
        await harness.clock.advance(TTL)
        assert (await ready(storage, ANN), await ready(storage, BOB)) == (["p"], [])

    async def test_the_next_moment_is_the_earliest_of_all(self, harness: Harness) -> None:
        """The next moment is the earliest future one of all timers, delays and pauses."""
        storage = await _sessions(harness)
        now = harness.clock.now_ms()
        await registered(storage, "p", "q")
        await parked(storage, "p", now + 30)
        await parked(storage, "q", now + 60)
        await queued(storage, late("x", available_at_ms=now + 20))
        await storage.leases.release(await leased(storage), pause_ms=40)
        moments = []
        for _ in range(6):
            moment = (await looked(storage)).next_at_ms
            moments.append(None if moment is None else moment - now)
            await harness.clock.advance(10)
        assert moments == [20, 20, 30, 40, 60, 60]
        assert (await looked(storage)).next_at_ms is None

    @pytest.mark.parametrize("bad", BAD)
    async def test_bad_looks_are_refused(self, harness: Harness, bad: str) -> None:
        """An invalid poll is refused before any query."""
        storage = await harness.open()
        arguments: dict[str, Any] = {"sessions": 1, "processes": 1, "owner": ANN, **BAD[bad]}
        with pytest.raises(InvalidInput):
            await storage.work.poll(**arguments)


class TestRunning:
    """Laws of what a worker learns about its running work, and about others on its machine."""

    async def test_commands_for_running_sessions_are_told(self, harness: Harness) -> None:
        """Of the named sessions, those with a ready command are returned; turn work does not count."""
        storage = await _sessions(harness, *"abcd")
        due = harness.clock.now_ms() + 50
        await queued(
            storage,
            command("x", session_id="a"),
            late("x", session_id="b"),
            command("x", session_id="c", available_at_ms=due),
            command("x", session_id="d"),
        )
        assert await _commanded(storage, "a", "b", "c", "missing") == {"a"}
        await harness.clock.advance(50)
        assert await _commanded(storage, "a", "b", "c") == {"a", "c"}

    async def test_a_claimed_command_is_not_told_again(self, harness: Harness) -> None:
        """A command that the worker has claimed is not returned until its claim lapses."""
        storage = await _sessions(harness)
        fence = await leased(storage)
        await queued(storage, command("x"))
        assert await _commanded(storage, "s") == {"s"}
        claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
        assert await _commanded(storage, "s") == set()
        await queued(storage, command("y"))
        assert await _commanded(storage, "s") == {"s"}
        claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
        assert await _commanded(storage, "s") == set()
        await harness.clock.advance(TTL)
        assert await _commanded(storage, "s") == {"s"}

    async def test_cancel_requests_for_running_processes_are_told(self, harness: Harness) -> None:
        """Of the named processes, those with a request to stop are returned."""
        storage = await opened(harness)
        await registered(storage, *"abc")
        await storage.processes.request_cancel("a")
        await storage.processes.request_cancel("c")
        await storage.processes.request_abandon("b")
        work = await storage.work.poll(sessions=0, processes=0, owner=ANN, running_processes={"a", "b", "missing"})
        assert work.cancelled_process_ids == ("a",)

    async def test_leases_of_the_same_machine_are_told(self, harness: Harness) -> None:
        """Live leases of other holders on the same machine and boot are returned, of sessions and processes."""
        storage = await _sessions(harness)
        await registered(storage)
        other = owner("other", "2", process=HERE)
        session = acquired(await storage.leases.claim("s", other, ttl_ms=TTL))
        mine = (await run(storage, who=other)).lease
        assert (await looked(storage, ME)).suspect_leases == (session, mine)
        assert (await looked(storage, other)).suspect_leases == ()
        assert (await storage.work.poll(sessions=0, processes=0, owner=ME)).suspect_leases == ()
        await harness.clock.advance(TTL)
        assert (await looked(storage, ME)).suspect_leases == ()

    @pytest.mark.parametrize("where", ELSEWHERE)
    async def test_leases_of_elsewhere_are_not_told(self, harness: Harness, where: str) -> None:
        """Leases from another boot, host or container, or of unknown processes, are not returned."""
        storage = await _sessions(harness)
        await registered(storage)
        far = owner("far", "2", process=ELSEWHERE[where])
        acquired(await storage.leases.claim("s", far, ttl_ms=TTL))
        await run(storage, who=far)
        assert (await looked(storage, ME)).suspect_leases == ()
        assert (await looked(storage, ANN)).suspect_leases == ()

    async def test_a_lease_on_what_ended_is_not_told(self, harness: Harness) -> None:
        """A lease on an ended process is not returned: there is nothing to take over."""
        storage = await opened(harness)
        await registered(storage)
        await run(storage, who=owner("other", "2", process=HERE))
        await storage.processes.complete("p", DONE)
        assert (await looked(storage, ME)).suspect_leases == ()

    async def test_a_busy_neighbour_hides_nobody(self, harness: Harness) -> None:
        """Every other holder is returned with a few leases, so a dead one is found beside one with very many."""
        storage = await harness.open()
        await registered(storage, *(f"p{number}" for number in range(12)))
        busy, dead = owner("busy", "2", process=HERE), owner("dead", "3", process=HERE)
        await run(storage, "p0", ME)
        for number in range(1, 9):
            await run(storage, f"p{number}", busy)
        for number in range(9, 12):
            await run(storage, f"p{number}", dead)
        work = await storage.work.poll(sessions=2, processes=2, owner=ME)
        assert [lease.owner.owner_id for lease in work.suspect_leases] == ["busy", "busy", "dead", "dead"]

    async def test_many_looks_and_claims_share_the_work(self, harness: Harness) -> None:
        """Several storages that poll and claim concurrently run every process once, and leave none behind."""
        storages = [await harness.open() for _ in range(4)]
        await registered(storages[0], *(f"p{number:02}" for number in range(24)))
        runs = await asyncio.gather(*(_work(each, owner(f"w{n}")) for n, each in enumerate(storages)))
        ran = [process_id for done in runs for process_id in done]
        assert sorted(ran) == [f"p{number:02}" for number in range(24)]
        assert await ready(storages[0]) == []


async def _work(storage: Storage, who: LeaseOwner) -> list[str]:
    """Run and end ready processes until there are none."""
    ran: list[str] = []
    while True:
        found = (await storage.work.poll(sessions=0, processes=4, owner=who)).process_ids
        if not found:
            return ran
        for process_id in found:
            outcome = await storage.process_leases.claim(process_id, who, ttl_ms=TTL)
            if isinstance(outcome, ProcessAcquired):
                await storage.process_leases.complete(outcome.lease.fence, DONE)
                ran.append(process_id)


async def _sessions(harness: Harness, *session_ids: str) -> Storage:
    """Open a storage with sessions, by default ``s``."""
    storage = await harness.open()
    for session_id in session_ids or ("s",):
        await created(storage, session_id)
    return storage


async def _commanded(storage: Storage, *running: str) -> set[str]:
    work = await storage.work.poll(sessions=0, processes=0, owner=ANN, running_sessions=running)
    return set(work.commanded_session_ids)

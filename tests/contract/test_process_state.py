"""The contract of the state of a process: what it does, and until when, in the read of a list."""

from __future__ import annotations

from lash.model.effect import ProcessScope, Sleep
from lash.model.lease import LeaseFence
from lash.model.process.event import ATTEMPT_FAILED, EventDraft
from lash.model.process.process import ProcessAcquired, ProcessFilter, ProcessPhase, ProcessState
from lash.model.wait import CustomIdentity, Resolved
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.effect import effect
from tests.factories.process import DONE, external, process, wait
from tests.factories.session import owner

TTL = 5_000


async def held(storage: Storage, process_id: str) -> tuple[LeaseFence, int]:
    """Register a process if it is new, and claim it."""
    await storage.processes.register(process(process_id))
    claimed = await storage.process_leases.claim(process_id, owner("w"), ttl_ms=TTL)
    assert isinstance(claimed, ProcessAcquired)
    return claimed.lease.fence, claimed.wake_seq


async def parked(storage: Storage, process_id: str, until_ms: int | None) -> None:
    fence, wake_seq = await held(storage, process_id)
    await storage.process_leases.park(fence, wake_seq=wake_seq, until_ms=until_ms)


async def states(storage: Storage, *, parked: bool | None = None) -> dict[str, ProcessState | None]:
    page = await storage.processes.list(ProcessFilter(parked=parked), with_state=True)
    return {record.process_id: record.state for record in page.processes}


def waiting(what: str, due_at_ms: int | None = None) -> ProcessState:
    return ProcessState(phase=ProcessPhase.WAITING, due_at_ms=due_at_ms, waits_for=what)


class TestProcessState:
    """Laws of the state of a process."""

    async def test_a_list_shows_what_each_process_does(self, harness: Harness) -> None:
        """Running, ready, sleeping, retrying and waiting differ; an ended process has no state."""
        storage = await harness.open()
        later = harness.clock.now_ms() + 200_000
        await storage.processes.register(external("external"))
        await storage.processes.register(process("ready"))
        await held(storage, "running")
        await parked(storage, "sleeping", later)
        fence, wake_seq = await held(storage, "retrying")
        await storage.events.append("retrying", EventDraft(event_type=ATTEMPT_FAILED, payload={}), fence=fence)
        await storage.process_leases.park(fence, wake_seq=wake_seq, until_ms=later)
        await parked(storage, "parent", None)
        await storage.processes.register(process("ended"))
        await storage.processes.complete("ended", DONE)
        found = await states(storage)
        assert found == {
            "external": ProcessState(phase=ProcessPhase.RUNNING),
            "ready": ProcessState(phase=ProcessPhase.READY),
            "running": ProcessState(phase=ProcessPhase.RUNNING),
            "sleeping": ProcessState(phase=ProcessPhase.SLEEPING, due_at_ms=later),
            "retrying": ProcessState(phase=ProcessPhase.RETRYING, due_at_ms=later),
            "parent": waiting("child process"),
            "ended": None,
        }
        assert set(await states(storage, parked=True)) == {"sleeping", "retrying", "parent"}
        assert set(await states(storage, parked=False)) == set(found) - {"sleeping", "retrying", "parent"}
        await harness.clock.advance(TTL)
        assert (await states(storage))["running"] == ProcessState(phase=ProcessPhase.READY)

    async def test_a_waiting_process_names_what_it_waits_for(self, harness: Harness) -> None:
        """A signal, or an open wait with its deadline; when that comes, the process is ready."""
        storage = await harness.open()
        fence, wake_seq = await held(storage, "signal")
        await storage.processes.set_wait("signal", wait("go"), fence=fence)
        await storage.process_leases.park(fence, wake_seq=wake_seq, until_ms=None)
        await held(storage, "approval")
        key = await storage.waits.key(ProcessScope(process_id="approval"), CustomIdentity(key="approve"))
        opened = await storage.waits.open(key, timeout_ms=100_000)
        await parked(storage, "approval", opened.deadline_ms)
        found = {"signal": waiting("signal go"), "approval": waiting("wait approve", opened.deadline_ms)}
        assert await states(storage, parked=True) == found
        await storage.waits.resolve(key, Resolved())
        assert (await states(storage))["approval"] == ProcessState(phase=ProcessPhase.READY)
        assert await states(storage, parked=True) == {"signal": found["signal"]}

    async def test_a_sleep_after_a_failure_is_a_sleep(self, harness: Harness) -> None:
        """The step of the sleep is due when the process is; the pause of a retry has no step."""
        storage = await harness.open()
        fence, wake_seq = await held(storage, "p")
        await storage.events.append("p", EventDraft(event_type=ATTEMPT_FAILED, payload={}), fence=fence)
        scope = ProcessScope(process_id="p")
        record = await storage.effects.record(fence, effect("sleep#1", Sleep(duration_ms=60_000), scope=scope), None)
        await storage.process_leases.park(fence, wake_seq=wake_seq, until_ms=record.due_at_ms)
        assert await states(storage) == {"p": ProcessState(phase=ProcessPhase.SLEEPING, due_at_ms=record.due_at_ms)}

    async def test_a_list_without_states_has_none(self, harness: Harness) -> None:
        """States are read only on request, and are no part of a record that is read alone."""
        storage = await harness.open()
        await parked(storage, "p", None)
        (record,) = (await storage.processes.list()).processes
        assert record.state is None
        assert record == await storage.processes.get("p")

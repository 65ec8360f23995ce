"""Withdrawing: on a full machine few workers run all turns, and a fleet that waits for models uses all its slots."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pytest

import lash
from lash.plan.withdrawal import LocalPlace, TurnTimes
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.withdrawal import Withdrawal, processor_pressure, usable_processors
from lash.runtime.worker.worker import Worker
from tests.runtime.worker_kit import until

PROCESSORS = 2
SLOTS = 4
TICK_S = 0.001


class Turn:
    """One turn: half of its work, a wait for a model, and the other half."""

    def __init__(self, began: float, work_s: float, wait_s: float) -> None:
        self.began = began
        self.work_s = self.half_s = work_s / 2
        self.waits_until = 0.0
        self.wait_s = wait_s
        self.storage_s = 0.0
        self.has_waited = False


class Machine:
    """Workers that share two processors; a turn costs the more the more workers have run turns lately.

    The work of a turn is that of a fleet as measured: 6 ms, and 3 % more for each worker above eight that is in use.
    """

    def __init__(self, workers: int, *, wait_s: float, may_withdraw: bool = True) -> None:
        self.now = 0.0
        self.ended: Counter[int] = Counter()
        self._wait_s = wait_s
        self._may_withdraw = may_withdraw
        self._random = random.Random(workers)
        self._slots: list[Slots[TurnRun]] = [Slots(SLOTS, longest_pause_s=1.0) for _ in range(workers)]
        self._withdrawals = [
            Withdrawal(each, processors=PROCESSORS, clock=lambda: self.now, read_pressure=self._pressure)
            for each in self._slots
        ]
        self._running: list[dict[str, Turn]] = [{} for _ in range(workers)]
        self._last_used = [float("-inf")] * workers
        self._number = 0
        self._full_share = 0.0

    def run(self, seconds: float) -> float:
        """Run for so long with more sessions than slots, and return how many turns ended in a second."""
        before, until = self.ended.total(), self.now + seconds
        while self.now < until:
            self._tick()
        return (self.ended.total() - before) / seconds

    @property
    def slots(self) -> int:
        """How many turns the machine may run at once now."""
        return sum(each.limit for each in self._slots)

    def wait_for_models(self, seconds: float) -> None:
        """Let each further turn wait so long."""
        self._wait_s = seconds

    def _tick(self) -> None:
        self.now += TICK_S
        for worker, withdrawal in enumerate(self._withdrawals):
            withdrawal.come_back()
            self._fill(worker)
        working = [
            (worker, name, turn)
            for worker, turns in enumerate(self._running)
            for name, turn in turns.items()
            if turn.waits_until <= self.now
        ]
        # As Linux does: the part of the last ten seconds in which a program waited for a processor.
        self._full_share += ((len(working) > PROCESSORS) - self._full_share) * TICK_S / 10
        done_s = TICK_S * min(1.0, PROCESSORS / max(1, len(working)))
        for worker, name, turn in working:
            self._work(worker, name, turn, done_s)

    def _pressure(self) -> str:
        return f"some avg10={100 * self._full_share:.2f} avg60=0.00 avg300=0.00 total=0"

    def _fill(self, worker: int) -> None:
        slots = self._slots[worker]
        while not slots.is_full:
            self._number += 1
            name = f"s{self._number}"
            slots.take(name)
            self._last_used[worker] = self.now
            used = sum(at > self.now - 1.0 for at in self._last_used)
            work_s = 0.006 * (1 + 0.03 * max(0, used - 8)) * self._random.uniform(0.8, 1.2)
            self._running[worker][name] = Turn(self.now, work_s, self._wait_s)

    def _work(self, worker: int, name: str, turn: Turn, done_s: float) -> None:
        turn.storage_s += TICK_S
        turn.half_s -= done_s
        if turn.half_s > 0:
            return
        if not turn.has_waited:
            turn.has_waited, turn.half_s, turn.waits_until = True, turn.work_s, self.now + turn.wait_s
            return
        del self._running[worker][name]
        self._slots[worker].leave(name, in_vain=False, for_good=True)
        self.ended[worker] += 1
        if self._may_withdraw:
            times = TurnTimes(storage_s=turn.storage_s, total_s=self.now - turn.began)
            self._withdrawals[worker].note(times, LocalPlace(place=worker, workers=len(self._slots)))


def test_a_full_machine_does_as_many_turns_with_many_workers_as_with_few() -> None:
    """With 32 workers it does nearly as many turns as with eight; without withdrawing, far fewer."""
    best = Machine(8, wait_s=0.05, may_withdraw=False).run(20)
    all_at_work = Machine(32, wait_s=0.05, may_withdraw=False).run(20)
    machine = Machine(32, wait_s=0.05)
    machine.run(15)
    few_at_work = machine.run(20)
    assert all_at_work < 0.65 * best
    assert few_at_work > 0.9 * best


def test_the_first_workers_of_a_machine_do_not_withdraw() -> None:
    """Two for each processor always give out all their slots."""
    machine = Machine(32, wait_s=0.05)
    for _ in range(20):
        machine.run(1)
        assert machine.slots >= 2 * PROCESSORS * SLOTS
        assert all(machine.ended[worker] for worker in range(2 * PROCESSORS))


def test_workers_that_wait_for_models_give_out_all_slots() -> None:
    """Agents that mostly wait let no worker withdraw, and workers that have withdrawn come back within seconds."""
    waiting = Machine(32, wait_s=5.0)
    waiting.run(20)
    assert waiting.slots == 32 * SLOTS
    machine = Machine(32, wait_s=0.05)
    machine.run(15)
    assert machine.slots < 16 * SLOTS
    machine.wait_for_models(5.0)
    machine.run(15)
    assert machine.slots > 24 * SLOTS


IDLE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
FULL = "some avg10=97.31 avg60=0.00 avg300=0.00 total=0"
SLOWED = TurnTimes(storage_s=0.2, total_s=0.25)
QUICK = TurnTimes(storage_s=0.01, total_s=0.06)
LAST = LocalPlace(place=4, workers=5)
"""The last of five workers, of which two for each of two processors stay: it withdraws for two seconds at first."""


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_tries_with_one_turn_at_a_time() -> None:
    """A withdrawn worker gives out no slot, then one, and all of them once two turns were quick."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: IDLE)
    assert [withdrawal.note(SLOWED, LAST) for _ in range(4)] == [False, False, False, True]
    assert (slots.limit, withdrawal.is_withdrawn, withdrawal.left_s) == (0, True, 2.0)
    assert not withdrawal.note(SLOWED, LAST)
    clock.now += 1.9
    withdrawal.come_back()
    assert slots.limit == 0
    clock.now += 0.1
    withdrawal.come_back()
    assert (slots.limit, withdrawal.is_withdrawn) == (1, False)
    withdrawal.note(QUICK, LAST)
    assert slots.limit == 1
    withdrawal.note(QUICK, LAST)
    assert (slots.limit, withdrawal.left_s) == (SLOTS, float("inf"))


def test_a_worker_that_is_still_slowed_withdraws_for_longer() -> None:
    """Two slowed turns of a trial are enough, and the second pause is twice as long; a good trial ends the row."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: IDLE)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    for pause_s in (4.0, 4.0):
        clock.now += 10
        withdrawal.come_back()
        assert [withdrawal.note(SLOWED, LAST) for _ in range(2)] == [False, True]
        assert withdrawal.left_s == pause_s
    clock.now += 10
    withdrawal.come_back()
    for _ in range(2):
        withdrawal.note(QUICK, LAST)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    assert withdrawal.left_s == 2.0


def test_a_worker_of_a_full_machine_adds_pauses_before_it_tries() -> None:
    """While programs wait for processors, three more pauses follow; then it tries, however full the machine is."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: FULL)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    for _ in range(3):
        clock.now += 2
        withdrawal.come_back()
        assert (slots.limit, withdrawal.left_s) == (0, 2.0)
    clock.now += 2
    withdrawal.come_back()
    assert slots.limit == 1


def test_a_machine_without_a_report_of_pressure_is_not_full() -> None:
    """The report is read where there is one, and is empty elsewhere."""
    assert processor_pressure() == "" or "avg10=" in processor_pressure()


def test_a_trial_without_turns_ends() -> None:
    """If no two turns end within two seconds, the worker gives out all slots."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: IDLE)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    clock.now += 2
    withdrawal.come_back()
    withdrawal.note(SLOWED, LAST)
    assert (slots.limit, withdrawal.left_s) == (1, 2.0)
    clock.now += 2
    withdrawal.come_back()
    assert slots.limit == SLOTS


def test_a_worker_whose_place_comes_forward_gives_out_all_slots() -> None:
    """When the workers before it stop, a worker in trial has a place that does not withdraw."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: IDLE)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    clock.now += 2
    withdrawal.come_back()
    assert not withdrawal.note(SLOWED, LocalPlace(place=3, workers=4))
    assert slots.limit == SLOTS


def test_a_draining_worker_gives_out_no_slot_again() -> None:
    """The end of a withdrawal does not open slots that were closed."""
    clock, slots = Clock(), Slots[TurnRun](SLOTS, longest_pause_s=1.0)
    withdrawal = Withdrawal(slots, processors=PROCESSORS, clock=clock, read_pressure=lambda: IDLE)
    for _ in range(4):
        withdrawal.note(SLOWED, LAST)
    slots.close()
    clock.now += 2
    withdrawal.come_back()
    assert slots.is_full


def test_this_process_may_use_a_processor() -> None:
    """The number of processors is at least one."""
    assert usable_processors() >= 1


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_withdrawn_worker_shows_no_slots_and_comes_back(backend_url: str) -> None:
    """The registry shows a worker that has withdrawn without slots for sessions, and later with all of them."""
    fleet, options = 2 * usable_processors() + 1, lash.WorkerOptions(poll_s=0.2, sessions=3)
    async with contextlib.AsyncExitStack() as stack:
        caller = await stack.enter_async_context(lash.App(backend_url, worker=False))

        async def slots() -> list[int]:
            return sorted(each.beat.session_slots for each in await caller.storage.workers.list())

        async def all_give_out_slots() -> bool:
            return await slots() == [3] * fleet

        async def one_does_not() -> bool:
            return await slots() == [0] + [3] * (fleet - 1)

        workers: list[Worker] = []
        for number in range(fleet):
            app = await stack.enter_async_context(lash.App(backend_url, options=options))
            assert app._worker is not None
            workers.append(app._worker)
            await until(lambda worker=app._worker, place=number: worker._membership.local_place.place == place)
        await until(all_give_out_slots)
        for _ in range(4):
            workers[-1]._note_turn(SLOWED)
        await until(one_does_not)
        await until(all_give_out_slots)

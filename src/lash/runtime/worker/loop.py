"""A worker: it finds what is ready in the storage, runs it, and keeps the leases of what it runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final

from lash.backend.liveness import is_provably_dead
from lash.base.limits import check_identifier
from lash.errors import LashError, LeaseLost, StorageClosed
from lash.model.lease import Acquired, Busy, Lease, ResourceKind
from lash.model.process.process import (
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRefused,
    RefusalReason,
    Registration,
)
from lash.model.queue import ClaimedTurn, EmptyReason
from lash.model.work import MAX_POLL, WorkList
from lash.runtime.core import Core
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.processes.run import ProcessRun, RunEnd
from lash.runtime.turns.run import TurnEnd, TurnRun
from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.maintenance import keep_tidy
from lash.runtime.worker.slots import Slots
from lash.stores.hints import HintListener

_TICK_S: Final = 0.25
_LAG_NOTED_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.1
_LAST_WORD_S: Final = 5.0
_DEAD_EVERY_S: Final = 0.5
_FULL_PAUSE_S: Final = 0.05
_HINTED_REST_S: Final = 0.02


class Worker:
    """Runs sessions, processes and timers of one storage, as many at once as its options say."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._storage = core.storage
        options = core.options
        self._turns: Slots[TurnRun] = Slots(options.sessions, longest_pause_s=options.poll_s)
        self._processes: Slots[ProcessRun] = Slots(options.processes, longest_pause_s=options.poll_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._neighbours: tuple[Lease, ...] = ()
        self._look_for_dead_at = 0.0
        self._timer_pause_s = 0.0
        self._freed = asyncio.Event()
        self._backlog: Backlog[ProcessRun] = Backlog(self._processes, options.processes)
        self._hints: HintListener | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Work until `stop` is called; then let what runs finish within the grace time, and give back the rest."""
        background = [
            asyncio.create_task(self._keep_leases(), name="lash-worker-leases"),
            asyncio.create_task(self._watch(), name="lash-worker-watch"),
            asyncio.create_task(keep_tidy(self._core), name="lash-worker-upkeep"),
        ]
        try:
            await self._look_for_ever()
        finally:
            await self._finish()
            for task in background:
                task.cancel()
            await asyncio.wait(background)

    def stop(self) -> None:
        """Begin no new work; `run` returns when what runs has ended or was given back."""
        self._stopping.set()
        self._look_again()

    async def drain(self) -> int:
        """Run everything that is ready, and what becomes ready by it, until nothing is; return how many runs that were.

        Sleeps and delayed messages whose time has not come are left. For tests and scripts.
        """
        runs = 0
        keeping = asyncio.create_task(self._keep_leases(), name="lash-worker-leases")
        try:
            while True:
                work = await self._look()
                begun = await self._begin(work) + await self._fire_timers(work)
                runs += begun
                if self._tasks:
                    await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
                elif not begun:
                    return runs
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})

    async def _look_for_ever(self) -> None:
        pause_s = 0.0
        with self._storage.hints.listen(work=True) as self._hints:
            while not self._stopping.is_set():
                self._freed.clear()
                try:
                    work = await self._look()
                    await self._begin(work)
                    pause_s = 0.0
                except StorageClosed:
                    raise
                except LashError as error:
                    self._note_trouble(error)
                    pause_s = self._longer(pause_s)
                    await _either(self._stopping.wait(), asyncio.sleep(pause_s))
                    continue
                await self._try_timers(work)
                if self._is_full():
                    # Orders to what runs are still to be found, but not in a hurry.
                    await _either(self._freed.wait(), asyncio.sleep(_FULL_PAUSE_S))
                await self._wait(self._hints, self._pause_s(work))

    async def _wait(self, hints: HintListener, pause_s: float) -> None:
        """Wait until it is time to look; what a hint is about is begun at once, and the look comes a little later.

        So a turn that is begun does not share the database with a look, and a short one needs no look but the one at
        its end.
        """
        if not self._begin_tagged((await hints.wait(pause_s)).ready):
            return
        look_at = time.monotonic() + _HINTED_REST_S
        while (rest_s := look_at - time.monotonic()) > 0 and self._begin_tagged((await hints.wait(rest_s)).ready):
            pass

    def _begin_tagged(self, tag: str | None) -> bool:
        """Begin a turn of the session that a hint was about, and return whether that was done.

        Only of one whose history is here: of all who hear the hint, not everybody should try.
        """
        session_id = None if tag is None else self._core.histories.tagged(tag)
        if session_id is None or self._stopping.is_set() or not self._turns.take(session_id):
            return False
        self._spawn(self._run_turn(session_id, hinted=True))
        return True

    def _look_again(self) -> None:
        """Let the next look be at once: a slot is free, or there is other news."""
        self._freed.set()
        if self._hints is not None:
            self._hints.hint()

    def _pause_s(self, work: WorkList) -> float:
        """Return for how long nothing becomes ready by itself, as far as one can tell."""
        pause_s = min(self._core.options.poll_s, self._turns.next_try_s(), self._processes.next_try_s())
        if work.next_at_ms is not None and not self._is_full():
            pause_s = min(pause_s, max(self._timer_pause_s, (work.next_at_ms - work.now_ms) / 1_000))
        return max(0.001, pause_s)

    async def _look(self) -> WorkList:
        processes = self._backlog.wanted()
        work = await self._storage.work.poll(
            sessions=min(self._turns.wanted(), MAX_POLL),
            processes=processes,
            owner=self._core.owner,
            running_sessions=self._turns.names(),
            running_processes=self._processes.names(),
        )
        self._backlog.put(work.process_ids, wanted=processes)
        return work

    async def start(self, registration: Registration) -> None:
        """Register a process, and begin it at once if there is room and nobody has waited for that for longer.

        Whoever is cancelled meanwhile has started it or not; what is begun goes on.
        """
        process_id = check_identifier("process_id", registration.process_id)
        if self._stopping.is_set() or self._backlog.may_be_longer or not self._processes.take(process_id):
            await self._storage.processes.register(registration)
            return
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def note_end(_task: object) -> None:
            # A task that is ended before its first step does nothing, not even what it should do in any case.
            if not begun.done():
                self._processes.leave(process_id, in_vain=False)
                begun.set_result(False)

        self._spawn(self._run_new(registration, begun)).add_done_callback(note_end)
        if not await begun:
            await self._storage.processes.register(registration)

    async def _run_new(self, registration: Registration, begun: asyncio.Future[bool]) -> None:
        """Register a process with its lease, and run it; whoever started it hears whether it surely is registered."""
        process_id, answer, acquired = registration.process_id, None, None
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        try:
            answer = await self._storage.process_leases.register_and_claim(registration, owner, ttl_ms=ttl_ms)
            acquired = answer if isinstance(answer, ProcessAcquired) else None
        except Exception as error:  # noqa: BLE001 (whoever started the process is told)
            if not begun.done():
                begun.set_exception(error)
        finally:
            if acquired is None:
                self._processes.leave(process_id, in_vain=False)
            if not begun.done():
                # Nobody knows if the worker was ended meanwhile.
                begun.set_result(answer is not None)
        if acquired is not None:
            await self._run_process(process_id, acquired)

    async def _begin(self, work: WorkList) -> int:
        """Begin what was found, pass on orders, and return how many runs were begun."""
        begun = 0
        for session_id in self._turns.ranked(work.session_ids):
            if self._turns.take(session_id):
                self._spawn(self._run_turn(session_id))
                begun += 1
        begun += self._begin_found()
        self._backlog.may_be_longer |= self._processes.is_full
        for session_id in work.commanded_session_ids:
            turn = self._turns.get(session_id)
            if turn is not None:
                self._spawn(turn.obey())
        for process_id in work.cancelled_process_ids:
            process = self._processes.get(process_id)
            if process is not None:
                process.cancel_once("it was asked to stop")
        self._reclaim_dead(work)
        return begun

    def _begin_found(self) -> int:
        """Begin processes that were found, as long as there is room, and return how many those were."""
        begun = 0
        for process_id in self._backlog.begin():
            self._spawn(self._run_process(process_id))
            begun += 1
        return begun

    def _begin_more(self) -> None:
        """Use a slot that is free for what waits for one; look for more when nothing of it is left."""
        if self._stopping.is_set():
            return
        self._begin_found()
        if self._backlog.may_be_longer and not self._processes.is_full:
            self._look_again()

    async def _fire_timers(self, work: WorkList) -> int:
        """Do what is due by the clock, and return how much that was."""
        if not work.timers_due:
            return 0
        return await self._storage.waits.expire() + len(await self._storage.schedules.fire_due())

    async def _try_timers(self, work: WorkList) -> None:
        """Do what is due; trouble with it must not keep back what has nothing to do with it."""
        try:
            await self._fire_timers(work)
            self._timer_pause_s = 0.0
        except StorageClosed:
            raise
        except LashError as error:
            self._note_trouble(error)
            self._timer_pause_s = self._longer(self._timer_pause_s)

    def _longer(self, pause_s: float) -> float:
        """Return how long to wait after trouble, if it was so long the last time."""
        return min(max(_FIRST_PAUSE_S, 2 * pause_s), self._core.options.poll_s * 10)

    def _reclaim_dead(self, work: WorkList) -> None:
        """Free what dead workers of this machine held. Looking at processes costs more than looking at hints."""
        self._neighbours = work.suspect_leases
        if time.monotonic() < self._look_for_dead_at:
            return
        self._look_for_dead_at = time.monotonic() + _DEAD_EVERY_S
        for lease in work.suspect_leases:
            if self._is_dead(lease):
                self._spawn(self._reclaim(lease))

    def _is_dead(self, lease: Lease) -> bool:
        return is_provably_dead(lease.owner.process, self._core.owner.process)

    def _runs(self) -> tuple[TurnRun | ProcessRun, ...]:
        return (*self._turns.filled(), *self._processes.filled())

    def _is_full(self) -> bool:
        return self._turns.is_full and self._processes.is_full

    async def _run_turn(self, session_id: str, *, hinted: bool = False) -> None:
        end: TurnEnd | None = None
        begun: ClaimedTurn | Acquired | None = None
        try:
            begun = await self._begin_turn(session_id)
            if begun is not None:
                run = TurnRun(self._core, begun)
                self._turns.fill(session_id, run)
                if self._stopping.is_set():
                    run.release()
                end = await run.run()
        except STORAGE_TROUBLE:
            if begun is not None:
                self._turns.empty(session_id)
                await self._let_go(partial(self._storage.leases.release, begun.lease.fence))
            raise
        finally:
            in_vain = end in (None, TurnEnd.NOTHING, TurnEnd.LOST)
            self._turns.leave(session_id, in_vain=in_vain and not hinted)
            if end is TurnEnd.UNKNOWN:
                self._turns.avoid(session_id, self._core.options.poll_s)
            self._look_again()

    async def _begin_turn(self, session_id: str) -> ClaimedTurn | Acquired | None:
        """Take the lease of a session, and its next input with it; orders that come first need the lease alone."""
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        begun = await self._storage.queue.claim_turn(session_id, owner, ttl_ms=ttl_ms)
        if isinstance(begun, ClaimedTurn):
            return begun
        if isinstance(begun, Busy) or begun.reason is not EmptyReason.COMMAND_AT_HEAD:
            return None
        claimed = await self._storage.leases.claim(session_id, owner, ttl_ms=ttl_ms)
        return claimed if isinstance(claimed, Acquired) else None

    async def _run_process(self, process_id: str, claimed: ProcessLeaseOutcome | None = None) -> None:
        """Run a process in a slot that was taken, after claiming it unless that was done."""
        end: RunEnd | None = None
        try:
            if claimed is None:
                claimed = await self._storage.process_leases.claim(
                    process_id, self._core.owner, ttl_ms=self._core.options.ttl_ms
                )
            if isinstance(claimed, ProcessAcquired) and self._stopping.is_set():
                await self._storage.process_leases.release(claimed.lease.fence)
            elif isinstance(claimed, ProcessAcquired):
                run = ProcessRun(self._core, claimed, partial(self._settle, process_id))
                self._processes.fill(process_id, run)
                end = await run.run()
        except STORAGE_TROUBLE:
            if isinstance(claimed, ProcessAcquired):
                self._processes.empty(process_id)
                await self._let_go(partial(self._storage.process_leases.release, claimed.lease.fence))
            raise
        finally:
            ended = end is RunEnd.ENDED
            self._processes.leave(process_id, in_vain=end in (None, RunEnd.LOST), for_good=ended)
            if end is RunEnd.UNKNOWN:
                self._processes.avoid(process_id, 10 * self._core.options.poll_s)
            if isinstance(claimed, ProcessRefused) and claimed.reason is RefusalReason.BUSY:
                self._backlog.note_rival()
            if not ended:
                self._look_again()
            self._begin_more()

    def _settle(self, process_id: str) -> None:
        """Let another process begin while this one writes down how it went."""
        self._processes.settle(process_id)
        self._begin_more()

    async def _let_go(self, release: Callable[[], Awaitable[object]]) -> None:
        """Give a lease back as soon as the storage takes that: its work should not have to wait until it runs out."""
        end = time.monotonic() + self._core.options.lease_ttl_s
        pause_s = _FIRST_PAUSE_S
        while time.monotonic() < end and not self._stopping.is_set():
            try:
                await release()
            except STORAGE_TROUBLE:
                await _either(self._stopping.wait(), asyncio.sleep(pause_s))
                pause_s = min(2 * pause_s, self._core.options.poll_s)
            else:
                return

    async def _reclaim(self, lease: Lease) -> None:
        """Take a lease from a dead holder and give it back, so that anybody can go on at once."""
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        if lease.resource.kind is ResourceKind.SESSION:
            taken = await self._storage.leases.reclaim(lease.resource.id, owner, observed=lease, ttl_ms=ttl_ms)
            if isinstance(taken, Acquired):
                await self._storage.leases.release(taken.lease.fence)
                self._core.hooks.note("lease.reclaimed", owner_id=lease.owner.owner_id, session_id=lease.resource.id)
        else:
            got = await self._storage.process_leases.reclaim(lease.resource.id, owner, observed=lease, ttl_ms=ttl_ms)
            if isinstance(got, ProcessAcquired):
                await self._storage.process_leases.release(got.lease.fence)
                self._core.hooks.note("lease.reclaimed", owner_id=lease.owner.owner_id, process_id=lease.resource.id)
        self._look_again()

    async def _keep_leases(self) -> None:
        """Renew the leases of all that runs; what cannot be renewed in time is stopped."""
        renewed: dict[TurnRun | ProcessRun, float] = {}
        while True:
            await asyncio.sleep(self._core.options.lease_ttl_s / 3)
            runs = self._runs()
            renewed = {run: renewed.get(run, time.monotonic()) for run in runs}
            # All at once: one that hangs must not cost the others their leases.
            await asyncio.gather(*(self._renew(run, renewed) for run in runs))

    async def _renew(self, run: TurnRun | ProcessRun, renewed: dict[TurnRun | ProcessRun, float]) -> None:
        ttl_s = self._core.options.lease_ttl_s
        try:
            async with asyncio.timeout(ttl_s / 3):
                await run.renew()
            renewed[run] = time.monotonic()
        except LeaseLost:
            self._lose(run)
        except (LashError, TimeoutError):
            if time.monotonic() - renewed[run] > ttl_s:
                self._lose(run)

    def _lose(self, run: TurnRun | ProcessRun) -> None:
        # Its own end may have freed the lease just now.
        if run in self._runs():
            run.lose()

    async def _watch(self) -> None:
        """Notice code that blocks the event loop, and with it every lease, and neighbours that have died."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            lag = time.monotonic() - before - _TICK_S
            if lag > _LAG_NOTED_S:
                self._core.hooks.note("loop.blocked", seconds=round(lag, 3))
            if any(self._is_dead(lease) for lease in self._neighbours):
                self._neighbours, self._look_for_dead_at = (), 0.0
                self._look_again()

    async def _finish(self) -> None:
        """Let what runs end within the grace time; give back what has not."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._core.options.grace_s)
        for run in self._runs():
            run.release()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_LAST_WORD_S)
        deaf = set(self._tasks)
        for task in deaf:
            task.cancel()
        if deaf:
            self._core.hooks.note("worker.trouble", error=f"{len(deaf)} runs heard no cancellation and are left behind")
            await asyncio.wait(deaf, timeout=_LAST_WORD_S)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease runs out by itself, and whoever looks then goes on from the records.
            self._note_trouble(error)

    def _note_trouble(self, error: BaseException) -> None:
        self._core.hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")


async def _either(*waits: Coroutine[object, object, object]) -> None:
    """Wait until one of them is over."""
    tasks = {asyncio.ensure_future(each) for each in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})

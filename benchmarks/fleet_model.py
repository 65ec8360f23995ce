"""A model of a fleet on one PostgreSQL, for sizes that no machine here has: ``python -m benchmarks.fleet_model``.

Discrete events: turns arrive, each passes the stages of the dispatch, and each stage uses a resource. The costs are
measured (`Costs` says where each comes from). For docs/internals/scaling.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

_COALESCE_S: Final = 0.005
"""A storage sends at most one notification in this time."""
_CALLERS: Final = 20
"""Processes that call, in the large fleets, each on a machine of its own."""
_WARM: Final = 0.2
"""The part of the simulated time that is not counted."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Microseconds of one core, measured on 2 cores of an AMD EPYC with PostgreSQL 18.4 on the same machine."""

    write_us: float = 330
    """Server: a writing statement. `benchmarks.costs` has 1,650 µs for a turn of three writes and three reads."""
    read_us: float = 200
    """Server: a reply or a poll; the rest of the same figure."""
    notify_us: float = 65
    """Server: a notification, with the start of the statement that chooses its worker."""
    choose_us: float = 0.23
    """Server: the choice of a worker, for each registered one; measured with 32 and with 1,000 rows."""
    lock_us: float = 20
    """Server: how long a notification holds the lock that all of them take at their commit; an estimate."""
    wake_us: float = 33
    """Server: each connection that listens in the database, for each notification; the same for 8, 32 and 64."""
    worker_us: float = 2_400
    """Client: what the worker process uses for a turn. Scenario `fleet`."""
    caller_us: float = 1_600
    """Client: what the calling process uses for a turn."""
    relay_us: float = 80
    """Client: what the relay and the receiver use for a notification that is passed on; an estimate."""
    fsync_us: float = 300
    """How long a commit waits for the disk; commits of one moment share it."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One fleet and its load."""

    workers: int
    rate: float | None = None
    """Turns that arrive a second; None: ``askers`` sessions, each of which asks again at once."""
    askers: int = 0
    slots: int = 16
    callers: int = 1
    """Processes that send the turns."""
    step_s: float = 0.05
    """How long an agent waits in its one step."""
    cores: int = 8
    """Cores of the server."""
    shares_cores: bool = False
    """Whether workers and callers run on the cores of the server."""
    machines: int = 0
    """Machines of workers and callers, on each of which one program listens for all; 0: each program listens."""
    wakes_all: bool = True
    """Whether a notification wakes each connection that listens; False from PostgreSQL 19 on."""
    seconds: float = 2.0

    @property
    def listeners(self) -> int:
        """How many connections listen."""
        return self.machines or self.workers + self.callers


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one run of the model found."""

    turns_s: float
    median_s: float
    cpu: float
    """The used part of the server's cores."""
    waking: float
    """The part of the server's cores that wakes listeners."""
    lock: float
    """The part of the time in which the lock of notifications was held."""
    connections: int

    @property
    def first_limit(self) -> str:
        """The resource of which most is used."""
        used = {"server CPU": self.cpu - self.waking, "waking listeners": self.waking, "NOTIFY lock": self.lock}
        return max(used, key=lambda name: used[name])


Stage = tuple[str, float]
Run = Generator[Stage, int, None]


class _Resource:
    """Some equal servers with one queue."""

    def __init__(self, model: Model, servers: int) -> None:
        self._model = model
        self._free = servers
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()
        self.busy_s = 0.0

    def use(self, seconds: float, then: Callable[[], None]) -> None:
        self._queue.append((seconds, then))
        self._start()

    def _start(self) -> None:
        while self._free and self._queue:
            seconds, then = self._queue.popleft()
            self._free -= 1
            self.busy_s += seconds if self._model.counts else 0.0
            self._model.after(seconds, functools.partial(self._end, then))

    def _end(self, then: Callable[[], None]) -> None:
        self._free += 1
        then()
        self._start()


class _Sender:
    """Sends notifications for one process: those of five milliseconds share one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._waiting: list[Callable[[], None]] = []
        self._sending = False

    def send(self, then: Callable[[], None]) -> None:
        self._waiting.append(then)
        if not self._sending:
            self._sending = True
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            self._sending = False
            return
        batch, self._waiting = self._waiting, []
        self._model.notify(lambda: _call_all(batch))
        self._model.after(_COALESCE_S, self._flush)


class Model:
    """One run: the same seed gives the same outcome."""

    def __init__(self, setting: Setting, costs: Costs, seed: int = 1) -> None:
        self.setting, self.costs = setting, costs
        self.now = 0.0
        self._chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._cpu = _Resource(self, setting.cores)
        self._lock = _Resource(self, 1)
        self._clients = self._cpu if setting.shares_cores else _Resource(self, 1_000_000)
        self._senders = [_Sender(self) for _ in range(setting.callers + setting.workers)]
        self._free = [setting.slots] * setting.workers
        self._queued: deque[Callable[[int], None]] = deque()
        self._waking_s = 0.0
        self._pass_waits: list[Callable[[], None]] | None = None
        self._taken: list[float] = []

    @property
    def counts(self) -> bool:
        return self.now >= _WARM * self.setting.seconds

    def run(self) -> Outcome:
        """Run for the simulated time and return what was found."""
        setting = self.setting
        if setting.rate is None:
            for _ in range(setting.askers):
                self._begin()
        else:
            self._arrive(setting.rate)
        while self._events and self.now < setting.seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()
        counted_s = (1 - _WARM) * setting.seconds
        cores_s = counted_s * setting.cores
        return Outcome(
            turns_s=len(self._taken) / counted_s,
            median_s=sorted(self._taken)[len(self._taken) // 2] if self._taken else float("inf"),
            cpu=min(1.0, self._cpu.busy_s / cores_s),
            waking=min(1.0, self._waking_s / cores_s),
            lock=min(1.0, self._lock.busy_s / counted_s),
            connections=setting.workers + setting.callers + setting.listeners,
        )

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def notify(self, then: Callable[[], None]) -> None:
        """Send a notification: it takes the lock, and then wakes the listeners."""
        costs = self.costs
        choosing = costs.notify_us + costs.choose_us * self.setting.workers
        self._cpu.use(self._about(choosing), lambda: self._lock.use(costs.lock_us / 1e6, lambda: self._wake(then)))

    def _wake(self, then: Callable[[], None]) -> None:
        """Wake the listeners; a notification that comes while they are being woken is seen by the next pass."""
        if self._pass_waits is not None:
            self._pass_waits.append(then)
            return
        self._pass_waits = []
        setting = self.setting
        listeners = setting.listeners if setting.wakes_all else 1
        parts = min(setting.cores, listeners)
        part_s = listeners * self.costs.wake_us / parts / 1e6
        self._waking_s += part_s * parts if self.counts else 0.0
        left = itertools.count(1)

        def ended() -> None:
            if next(left) == parts:
                waits, self._pass_waits = self._pass_waits or [], None
                then()
                if waits:
                    self._wake(lambda: _call_all(waits))

        for _ in range(parts):
            self._cpu.use(part_s, ended)

    def _about(self, microseconds: float) -> float:
        """Return seconds that vary as costs do."""
        return microseconds / 1e6 * self._chance.uniform(0.7, 1.3)

    def _arrive(self, rate: float) -> None:
        self._begin()
        self.after(self._chance.expovariate(rate), lambda: self._arrive(rate))

    def _begin(self) -> None:
        self._go_on(self._turn())

    def _turn(self) -> Run:
        """Pass the stages of one turn, from the call to its reply."""
        costs, setting, began = self.costs, self.setting, self.now
        caller = self._chance.randrange(setting.callers)
        yield "client", costs.caller_us / 2
        yield from self._write()
        yield "notify", caller
        worker = yield "place", 0
        yield "client", costs.worker_us / 2
        yield from self._write()
        if setting.step_s:
            yield "wait", setting.step_s
            yield from self._write()
        yield "client", costs.worker_us / 2
        yield from self._write()
        self._leave(worker)
        yield "notify", setting.callers + worker
        yield "server", costs.read_us
        yield "client", costs.caller_us / 2
        if self.counts:
            self._taken.append(self.now - began)
        if setting.rate is None:
            self._begin()

    def _write(self) -> Run:
        yield "server", self.costs.write_us
        yield "wait", self.costs.fsync_us / 1e6

    def _go_on(self, run: Run, answer: int | None = None) -> None:
        """Let a turn go on to its next stage."""
        try:
            kind, amount = run.send(answer)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration:
            return
        if kind == "server":
            self._cpu.use(self._about(amount), lambda: self._go_on(run, 0))
        elif kind == "client":
            self._clients.use(self._about(amount), lambda: self._go_on(run, 0))
        elif kind == "wait":
            self.after(amount, lambda: self._go_on(run, 0))
        elif kind == "notify":
            self._senders[int(amount)].send(lambda: self._relay(lambda: self._go_on(run, 0)))
        else:
            self._place(lambda worker: self._go_on(run, worker))

    def _relay(self, then: Callable[[], None]) -> None:
        """Pass a notification on, if one program listens for others."""
        if self.setting.machines:
            self._clients.use(self._about(self.costs.relay_us), then)
        else:
            then()

    def _place(self, then: Callable[[int], None]) -> None:
        """Give a turn to the freer of two workers, to any other with a free slot, or to the first that gets one."""
        two = [self._chance.randrange(self.setting.workers) for _ in range(2)]
        best = max(two, key=lambda each: self._free[each])
        if not self._free[best]:
            best = next((each for each, free in enumerate(self._free) if free), -1)
        if best < 0:
            self._queued.append(then)
        else:
            self._free[best] -= 1
            then(best)

    def _leave(self, worker: int) -> None:
        """Free a slot; a turn that waits for one takes it, which costs the worker a poll."""
        if not self._queued:
            self._free[worker] += 1
            return
        then = self._queued.popleft()
        self._cpu.use(self._about(self.costs.read_us), lambda: then(worker))


def _call_all(functions: list[Callable[[], None]]) -> None:
    for each in functions:
        each()


def simulate(setting: Setting, costs: Costs | None = None, seed: int = 1) -> Outcome:
    """Run the model once."""
    return Model(setting, costs or Costs(), seed).run()


_HEADS: Final = (
    "workers, machines",
    "arriving/s",
    "done/s",
    "median",
    "server CPU",
    "of that waking",
    "NOTIFY lock",
    "connections",
    "first",
)


def main() -> None:
    """Print the curves as tables: of large fleets, and of small ones on one machine with its server."""
    parser = argparse.ArgumentParser(description="Model a fleet of workers on one PostgreSQL server.")
    parser.add_argument("--workers", type=int, nargs="*", default=[32, 100, 300, 1_000])
    parser.add_argument("--rates", type=int, nargs="*", default=[1_000, 3_000, 5_000, 10_000])
    parser.add_argument("--cores", type=int, default=32)
    parser.add_argument("--per-machine", type=int, default=16, help="workers on each machine")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| " + " | ".join(_HEADS) + " |")
    print("|---" * len(_HEADS) + "|")
    for shared in (True, False):
        for workers in options.workers:
            machines = math.ceil(workers / options.per_machine) + _CALLERS if shared else 0
            for rate in options.rates:
                setting = Setting(workers=workers, rate=rate, callers=_CALLERS, cores=options.cores, machines=machines)
                _print(f"{workers:,}, {machines or 'each listens'}", setting, options.seed)
    print()
    print("| workers, on 2 cores with the server | turns/s | median |")
    print("|---|---:|---:|")
    for workers in (1, 2, 4, 8, 16, 32):
        found = simulate(small_fleet(workers), seed=options.seed)
        print(f"| {workers} | {found.turns_s:,.0f} | {found.median_s * 1e3:,.0f} ms |")


def small_fleet(workers: int) -> Setting:
    """Return what scenario `fleet-throughput` measures: everything on one machine with two cores."""
    return Setting(workers=workers, askers=6 * workers, slots=2, cores=2, shares_cores=True, machines=1, seconds=5.0)


def _print(name: str, setting: Setting, seed: int) -> None:
    found = simulate(setting, seed=seed)
    cells = (
        name,
        f"{setting.rate:,}",
        f"{found.turns_s:,.0f}",
        f"{found.median_s * 1e3:,.0f} ms",
        f"{found.cpu:.0%}",
        f"{found.waking:.0%}",
        f"{found.lock:.0%}",
        f"{found.connections:,}",
        found.first_limit,
    )
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

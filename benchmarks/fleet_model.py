"""A model of a fleet on one PostgreSQL, for sizes that no machine here has.

Discrete events: turns arrive, each passes the stages of the dispatch, and each stage uses a resource. The costs are
measured (`Costs` says where each comes from). ``python -m benchmarks.fleet_curve`` prints and draws what it finds, for
docs/internals/scaling.md.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

_COALESCE_S: Final = 0.005
"""A storage sends at most one notification in this time."""
_WARM: Final = 0.2
"""The part of the simulated time that is not counted."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Microseconds of one core, measured on 2 cores of an AMD EPYC with PostgreSQL 18.4 on the same machine."""

    write_us: float = 330
    """Server: a writing statement. `benchmarks.costs` has 1,650 µs for a turn of three writes and three reads."""
    read_us: float = 200
    """Server: the facts of a claim, a poll or a reply; the rest of the same figure."""
    cold_us: float = 1_400
    """Server: the history of a session that another worker had."""
    notify_us: float = 130
    """Server: a notification that assigns nothing."""
    choose_us: float = 1.06
    """Server: the choice of a worker for one turn, for each registered one; measured with 32 and with 1,000 rows."""
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
    turn_bytes: float = 6_296
    """WAL of a turn, and of its step below. `benchmarks.costs`."""
    step_bytes: float = 2_169


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One fleet and its load."""

    workers: int
    rate: float | None = None
    """Turns that arrive a second, of random sessions; None: each session asks again at once."""
    sessions: int = 20_000
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
    choosing: float
    """The part of the server's cores that reads the registry to choose workers."""
    lock: float
    """The part of the time in which the lock of notifications was held."""
    wal_bytes_s: float
    moved: float
    """The part of the turns that another worker ran than the turn of this session before."""
    connections: int

    @property
    def first_limit(self) -> str:
        """The lock of notifications if more of it is used than of the processor, or what uses most of that."""
        others = self.waking + self.choosing
        used = {"statements": self.cpu - others, "waking listeners": self.waking, "choosing workers": self.choosing}
        if self.lock > self.cpu:
            return "NOTIFY lock"
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
        self._choices = 0
        self._sending = False

    def send(self, then: Callable[[], None], choices: int) -> None:
        """Send at the next moment; a message has one choice of a worker, a reply none."""
        self._waiting.append(then)
        self._choices += choices
        if not self._sending:
            self._sending = True
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            self._sending = False
            return
        batch, self._waiting = self._waiting, []
        choices, self._choices = self._choices, 0
        self._model.notify(lambda: _call_all(batch), choices)
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
        self._queued: deque[tuple[int, Callable[[int], None]]] = deque()
        self._waking_s = self._choosing_s = 0.0
        self._held: dict[int, int] = {}
        self._moves = 0
        self._pass_waits: list[Callable[[], None]] | None = None
        self._taken: list[float] = []

    @property
    def counts(self) -> bool:
        return self.now >= _WARM * self.setting.seconds

    def run(self) -> Outcome:
        """Run for the simulated time and return what was found."""
        setting = self.setting
        if setting.rate is None:
            for session in range(setting.sessions):
                self._begin(session)
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
            choosing=min(1.0, self._choosing_s / cores_s),
            lock=min(1.0, self._lock.busy_s / counted_s),
            wal_bytes_s=len(self._taken) / counted_s * self._turn_bytes(),
            moved=self._moves / max(1, len(self._taken)),
            connections=setting.workers + setting.callers + setting.listeners,
        )

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def notify(self, then: Callable[[], None], choices: int) -> None:
        """Send a notification: it chooses workers, takes the lock, and then wakes the listeners."""
        costs = self.costs
        choosing = costs.choose_us * self.setting.workers * choices
        self._choosing_s += choosing / 1e6 if self.counts else 0.0
        self._cpu.use(
            self._about(costs.notify_us + choosing),
            lambda: self._lock.use(costs.lock_us / 1e6, lambda: self._wake(then)),
        )

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
        self._begin(self._chance.randrange(self.setting.sessions))
        self.after(self._chance.expovariate(rate), lambda: self._arrive(rate))

    def _begin(self, session: int) -> None:
        self._go_on(self._turn(session))

    def _turn(self, session: int) -> Run:
        """Pass the stages of one turn, from the call to its reply."""
        costs, setting, began = self.costs, self.setting, self.now
        caller = self._chance.randrange(setting.callers)
        yield "client", costs.caller_us / 2
        yield from self._write()
        yield "assign", caller
        worker = yield "place", session
        yield "client", costs.worker_us / 2
        yield "server", costs.read_us
        yield from self._write()
        if self._held.setdefault(session, worker) != worker:
            self._held[session] = worker
            self._moves += self.counts
            yield "server", costs.cold_us
        if setting.step_s:
            yield "wait", setting.step_s
            yield from self._write()
        yield "client", costs.worker_us / 2
        yield from self._write()
        yield "server", costs.read_us
        self._leave(worker)
        yield "notify", setting.callers + worker
        yield "server", costs.read_us
        yield "client", costs.caller_us / 2
        if self.counts:
            self._taken.append(self.now - began)
        if setting.rate is None:
            self._begin(session)

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
        elif kind in {"assign", "notify"}:
            self._senders[int(amount)].send(lambda: self._relay(lambda: self._go_on(run, 0)), int(kind == "assign"))
        else:
            self._place(int(amount), lambda worker: self._go_on(run, worker))

    def _relay(self, then: Callable[[], None]) -> None:
        """Pass a notification on, if one program listens for others."""
        if self.setting.machines:
            self._clients.use(self._about(self.costs.relay_us), then)
        else:
            then()

    def _place(self, session: int, then: Callable[[int], None]) -> None:
        """Give a turn to the worker with the best hash, or the second best if half of its slots are taken.

        If both are full, any other with a free slot gets it, or the first that gets one.
        """
        first, second = (self._nearest(session, rank) for rank in range(2))
        best = first if 2 * self._free[first] >= self.setting.slots else second
        if not self._free[best]:
            best = next((each for each, free in enumerate(self._free) if free), -1)
        if best < 0:
            self._queued.append((session, then))
        else:
            self._free[best] -= 1
            then(best)

    def _leave(self, worker: int) -> None:
        """Free a slot; a turn that waits for one takes it, first one whose nearest worker this is."""
        if not self._queued:
            self._free[worker] += 1
            return
        own = (index for index, (session, _) in enumerate(self._queued) if self._nearest(session) == worker)
        place = next(own, 0)
        _, then = self._queued[place]
        del self._queued[place]
        then(worker)

    def _nearest(self, session: int, rank: int = 0) -> int:
        return hash((session, rank)) % self.setting.workers

    def _turn_bytes(self) -> float:
        return self.costs.turn_bytes + (self.costs.step_bytes if self.setting.step_s else 0.0)


def _call_all(functions: list[Callable[[], None]]) -> None:
    for each in functions:
        each()


def simulate(setting: Setting, costs: Costs | None = None, seed: int = 1) -> Outcome:
    """Run the model once."""
    return Model(setting, costs or Costs(), seed).run()

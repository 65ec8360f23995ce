"""The context of a durable function, and handles on other processes."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

import msgspec

from lash.base.replay_key import replay_key
from lash.errors import InvalidInput, ProcessFailed, ProcessPruned, WaitRejected
from lash.model.effect import AwaitEvent, Sleep, Step
from lash.model.failure import traceback_in
from lash.model.process.event import EventDraft
from lash.model.process.process import Cancellation, Failure, Outcome, SignalWait, Success
from lash.model.trigger.trigger import EmitReport
from lash.model.value import JSON
from lash.model.wait import Cancelled, CustomIdentity, Rejected, Resolution, Resolved
from lash.runtime.definition import WAKE, ProcessDefinition
from lash.runtime.policy import STEP_RETRY, Retry
from lash.runtime.steps.journal import Journal, StepOptions
from lash.runtime.steps.values import UNTYPED, describe, from_json, result_type

if TYPE_CHECKING:
    from lash.runtime.processes.run import ProcessRun

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_SHOWN_BYTES: Final = 1_024
_USUAL: Final = StepOptions()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Steps:
    """Runs steps of one run with the same options."""

    def __init__(self, journal: Journal, options: StepOptions) -> None:
        self._journal = journal
        self._options = options

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...

    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    def step(self, first: Any, /, *rest: Any, **kwargs: Any) -> Any:
        """Run a function once and record its result; after a crash the recorded result is returned.

        An async function runs in the event loop, a plain one in a thread.
        The name, by default the function's, and how often it came before make the key of the record, so give steps
        that differ different names. The arguments take part in the identity of the step: a run that comes by with
        others raises EffectMismatch. The result must be of the type that the function declares, or plain JSON.
        """
        name, function, args = _named((first, *rest))
        return self._journal.step(name, function, args, kwargs, self._options)

    def gather(self, *awaitables: Awaitable[Any]) -> Awaitable[list[Any]]:
        """Run several branches concurrently and return their results in order; the first error cancels the others.

        Steps are counted within their branch, so that their keys do not depend on timing. Give it steps,
        waits and calls of async functions that contain steps. Steps that are called by other means in tasks of their
        own raise ConfigError, unless they have keys of their own.
        """
        return self._journal.lines.gather(self._journal.name("gather"), awaitables)


class Context(Steps):
    """A durable function's access to everything that must happen once.

    The function runs again from its beginning after every pause and every crash; whatever it learns through its
    context is the same each time. What it does beside the context happens again.

    A function that waits is parked: `Suspended`, neither an `Exception` nor a cancellation, is raised where it waits,
    and the next run reaches the same place. ``finally`` blocks around waits therefore run at each parking, so let
    them only free what the run itself holds; the context does nothing in them then. What must happen at the end of the
    process belongs behind the wait, or in ``except`` blocks for what the wait raises: a cancellation raises
    `asyncio.CancelledError` there, once in every run, and steps in its handler are recorded like any others. Code that
    catches `BaseException` must raise it again. The time limits of asyncio know nothing of other runs: use
    ``timeout_s``.
    """

    def __init__(self, run: ProcessRun, journal: Journal) -> None:
        super().__init__(journal, _USUAL)
        self._run = run

    @property
    def process_id(self) -> str:
        return self._run.process_id

    @property
    def session_id(self) -> str | None:
        """The session that this process wakes, if there is one."""
        return self._run.record.wake_session_id

    def options(
        self, *, key: str | None = None, once: bool = False, retry: Retry = STEP_RETRY, timeout_s: float | None = None
    ) -> Steps:
        """Return steps with options: an explicit key, at most once, with retries, with a time limit."""
        return Steps(self._journal, StepOptions(key=key, once=once, retry=retry, timeout_s=timeout_s))

    def sleep(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> Awaitable[None]:
        """Pause. The due time is set once; until then the process takes no memory and no worker."""
        pause = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if pause < timedelta(0):
            raise InvalidInput(f"a pause is not negative: {pause}")
        return self._sleep(self._journal.name("sleep"), Sleep(duration_ms=round(pause / timedelta(milliseconds=1))))

    def sleep_until(self, moment: datetime) -> Awaitable[None]:
        """Pause until a moment, which must have a time zone."""
        if moment.tzinfo is None:
            raise InvalidInput(f"{moment} has no time zone")
        return self._sleep(self._journal.name("sleep"), Sleep(until_ms=round(moment.timestamp() * 1_000)))

    def wait_signal(
        self, name: str, *, timeout_s: float | None = None, of_type: type[Any] | None = None
    ) -> Awaitable[Any]:
        """Wait for the next signal of a name and return its payload; the k-th wait gets the k-th signal.

        The payload is of the type that the process declares for the signal, or ``of_type``; else plain JSON.
        Raises TimeoutError when the time is over first; the signal that comes later is then that of the next wait.
        """
        key = self._journal.name(f"signal.{name}")
        declared = self._run.definition.signal_type(name) if of_type is None else of_type
        return self._signal(key, name, _milliseconds(timeout_s), declared)

    async def wait_key(self, name: str) -> str:
        """Return the key that resolves the wait of this name, from any process; it is safe in URLs."""
        self._journal.check_running()
        return (await self._run.wait_key(CustomIdentity(key=name))).text

    def wait(self, name: str, *, timeout_s: float | None = None, of_type: type[Any] | None = None) -> Awaitable[Any]:
        """Wait until the key of this name is resolved with ``app.resolve``, and return the value.

        A name stands for one resolution, so waiting for it again returns the same value.
        Raises WaitRejected if it is resolved with an error or cancelled, TimeoutError when the time is over first.
        """
        key = self._journal.name(f"wait.{name}")
        return self._wait(key, name, _milliseconds(timeout_s), UNTYPED if of_type is None else of_type)

    def start(self, process: ProcessDefinition[P, R], *args: P.args, **kwargs: P.kwargs) -> Awaitable[ChildHandle[R]]:
        """Start another process, once, and return a handle on it. It continues if this one ends first."""
        key = self._journal.name(f"start.{process.name}")
        return self._start(key, process, args, kwargs)

    def emit(self, source_type: str, payload: JSON = None, *, source_key: str | None = None) -> Awaitable[EmitReport]:
        """Record an occurrence once, and start the processes that subscribe to it."""
        key = self._journal.name(f"emit.{source_type}")
        return self._emit(key, source_type, payload, source_key)

    def wake(self, text: str) -> Awaitable[None]:
        """Send a message to the session that this process works for, once."""
        return self._wake(self._journal.name("wake"), text)

    def now(self) -> Awaitable[datetime]:
        """Return the time, the same in every run."""
        key = self._journal.name("now")
        return self._now(key)

    def random(self) -> float:
        """Return a random number from 0 to 1, the same in every run."""
        return random.Random(self._seed("random")).random()  # noqa: S311 (no secret is made of it)

    def uuid(self) -> uuid.UUID:
        """Return a random UUID, the same in every run."""
        return uuid.UUID(bytes=self._seed("uuid")[:16], version=4)

    def _seed(self, name: str) -> bytes:
        identity = f"{self.process_id}\0{self._run.record.created_at_ms}\0{self._journal.name(name)}"
        return hashlib.sha256(identity.encode()).digest()

    async def _sleep(self, key: str, command: Sleep) -> None:
        record = await self._journal.recorded(key, command, _nothing)
        await self._run.until(record.due_at_ms or 0)

    async def _now(self, key: str) -> datetime:
        # A sleep of no time is due at the clock of the storage.
        record = await self._journal.recorded(key, Sleep(duration_ms=0), _nothing)
        return _EPOCH + timedelta(milliseconds=record.due_at_ms or 0)

    async def _emit(self, key: str, source_type: str, payload: JSON, source_key: str | None) -> EmitReport:
        async def body() -> JSON:
            report: JSON = msgspec.to_builtins(await self._run.emit(key, source_type, payload, source_key))
            return report

        command = _command(f"emit:{source_type}", payload, source_key)
        return msgspec.convert((await self._journal.recorded(key, command, body)).outcome, EmitReport)

    async def _wake(self, key: str, text: str) -> None:
        async def body() -> JSON:
            draft = EventDraft(event_type=WAKE, payload={"text": text}, replay_key=key)
            return (await self._run.storage.events.append(self.process_id, draft, fence=self._run.fence)).event.sequence

        await self._journal.recorded(key, _command("wake", text), body)

    async def _signal(self, key: str, name: str, timeout_ms: int | None, declared: object) -> Any:  # noqa: ANN401
        command = AwaitEvent(key_id=f"signal:{name}")
        known = self._journal.peek(key, command)
        if known is None:
            await self._journal.begin_new()
            due = None if timeout_ms is None else await self._deadline(key, timeout_ms)
            outcome = await self._next_signal(name, due)
            known = await self._journal.recorded(key, command, _constant(outcome))
            await self._run.resumed()
        kept = known.outcome if isinstance(known.outcome, dict) else {}
        if kept.get("timed_out"):
            raise self._journal.as_recorded(TimeoutError(f"no signal {name!r} came in time"))
        return from_json(kept.get("payload"), declared, f"the payload of signal {name!r}")

    async def _next_signal(self, name: str, due: int | None) -> JSON:
        ordinal, event = self._run.take_ordinal(name), None
        try:
            signal_at = self._run.storage.events.signal_at
            event = await self._run.lease.bridge(f"signal {name!r}", signal_at, self.process_id, name, ordinal)
            if event is None and (due is None or self._run.now_ms() < due):
                await self._run.block(due, SignalWait(name=name, ordinal=ordinal))
        finally:
            if event is None:
                self._run.give_back_ordinal(name, ordinal)
        return {"timed_out": True} if event is None else {"ordinal": ordinal, "payload": event.payload}

    async def _deadline(self, key: str, timeout_ms: int) -> int:
        record = await self._journal.recorded(f"{key}:deadline", Sleep(duration_ms=timeout_ms), _nothing)
        return record.due_at_ms or 0

    async def _wait(self, key: str, name: str, timeout_ms: int | None, declared: object) -> Any:  # noqa: ANN401
        command = AwaitEvent(key_id=f"wait:{name}")
        known = self._journal.peek(key, command)
        if known is None:
            await self._journal.begin_new()
            resolution = await self._run.resolution(CustomIdentity(key=name), timeout_ms)
            known = await self._journal.recorded(key, command, _constant(_resolution_json(resolution)))
        kept = known.outcome if isinstance(known.outcome, dict) else {}
        if kept.get("timed_out"):
            raise self._journal.as_recorded(TimeoutError(f"wait {name!r} was not resolved in time"))
        if "code" in kept:
            raise self._journal.as_recorded(WaitRejected(name, str(kept["code"]), str(kept.get("message", ""))))
        return from_json(kept.get("value"), declared, f"the value of wait {name!r}")

    async def _start(
        self, key: str, process: ProcessDefinition[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ChildHandle[R]:
        async def body() -> JSON:
            return await self._run.start_child(key, process, args, kwargs)

        # Without the version: a run keeps the child that it started, even if there is a newer version.
        command = _command(f"start:{process.name}", *args, **kwargs)
        record = await self._journal.recorded(key, command, body)
        return ChildHandle(self._run, self._journal, str(record.outcome), process)


class ChildHandle(Generic[R]):
    """A process that the process with this context started."""

    def __init__(self, run: ProcessRun, journal: Journal, process_id: str, process: ProcessDefinition[Any, R]) -> None:
        self._run = run
        self._journal = journal
        self.process_id = process_id
        self._process = process

    async def result(self) -> R:
        """Return what the process returned, waiting without memory or worker; raise ProcessFailed if it failed.

        The end of a child wakes its parent at once. What was seen is recorded: it stays when the child is pruned.
        """
        key, command = replay_key("result", self.process_id), _command("result", self.process_id)
        known = self._journal.peek(key, command)
        if known is None:
            await self._journal.begin_new()
            ended: JSON = msgspec.to_builtins(await self._outcome())
            known = await self._journal.recorded(key, command, _constant(ended))
        declared = result_type(self._process.function)
        outcome: Outcome = msgspec.convert(known.outcome, Outcome)
        try:
            result: R = read_outcome(self.process_id, outcome, declared)
        except ProcessFailed as failed:
            raise self._journal.as_recorded(failed) from None
        return result

    async def signal(self, name: str, payload: JSON = None, *, signal_id: str) -> None:
        """Send a signal; the same id is one signal."""

        async def body() -> JSON:
            events = self._run.storage.events
            sent = await events.signal(self.process_id, name, signal_id=signal_id, payload=payload)
            return sent.event.sequence

        key = replay_key("signal", self.process_id, name, signal_id)
        await self._journal.recorded(key, _command(f"signal:{name}", payload), body)

    async def _outcome(self) -> Outcome:
        while True:
            get = self._run.storage.processes.get
            record = await self._run.lease.bridge("the end of a child", get, self.process_id)
            if record is None:
                raise ProcessPruned(self.process_id)
            if record.projection.outcome is not None:
                return record.projection.outcome
            # The end of a child wakes its parent, also one that comes before the parent is parked.
            await self._run.block(None)


def read_outcome(process_id: str, outcome: Outcome, declared: object) -> Any:  # noqa: ANN401 (known at run time)
    """Return the value of a process that succeeded, or raise ProcessFailed."""
    match outcome:
        case Success():
            return from_json(outcome.value, declared, f"the result of process {process_id!r}")
        case Failure():
            message, trace = f"{outcome.code}: {outcome.message}", traceback_in(outcome.raw)
            raise ProcessFailed(process_id, "failed", message, trace)
        case Cancellation():
            raise ProcessFailed(process_id, "was cancelled", outcome.message)
    raise ProcessFailed(process_id, "was abandoned", outcome.message)


def _resolution_json(resolution: Resolution) -> JSON:
    match resolution:
        case Resolved():
            return {"value": resolution.value}
        case Rejected():
            return {"code": resolution.code, "message": resolution.message}
        case Cancelled():
            return {"code": "cancelled", "message": "the wait was cancelled"}
    return {"timed_out": True}


def _named(given: tuple[Any, ...]) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
    """Return the name, the function and its arguments of a step's call."""
    if given and isinstance(given[0], str):
        name, *rest = given
        if not rest or not callable(rest[0]):
            raise InvalidInput(f"step {name!r} needs a function behind its name")
        return name, rest[0], tuple(rest[1:])
    if not given or not callable(given[0]):
        raise InvalidInput("a step needs a function, with a name before it or without")
    name = getattr(given[0], "__name__", "")
    if not name or name == "<lambda>":
        raise InvalidInput("a step of a function without a name needs one: step('name', function)")
    return name, given[0], tuple(given[1:])


async def _nothing() -> JSON:
    return None


def _constant(value: JSON) -> Callable[[], Awaitable[JSON]]:
    async def body() -> JSON:
        return value

    return body


def _command(name: str, /, *args: object, **kwargs: object) -> Step:
    """Return the identity of something that the runtime itself does for a function."""
    return Step(name=name, input=describe(args, kwargs, limit=_SHOWN_BYTES))


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is not None and seconds < 0:
        raise InvalidInput(f"a time limit is not negative: {seconds} s")
    return None if seconds is None else round(seconds * 1_000)

"""The context of a durable function, and handles on other processes."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from lash.base.replay_key import replay_key
from lash.base.shapes import convert
from lash.errors import ProcessFailed, ProcessPruned
from lash.model.effect import AwaitEvent, Command
from lash.model.failure import traceback_in
from lash.model.process.event import EventDraft
from lash.model.process.process import Cancellation, Failure, Outcome, Success
from lash.model.trigger.trigger import EmitReport
from lash.model.value import JSON
from lash.runtime.engine import WAKE, Program
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.race import Waitable
from lash.runtime.steps.steps import milliseconds, operation
from lash.runtime.steps.values import UNTYPED, from_json
from lash.runtime.steps.waits import Waits

if TYPE_CHECKING:
    from lash.runtime.processes.run import ProcessRun

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Context(Waits):
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
        super().__init__(run.parking, journal)
        self._run = run

    @property
    def process_id(self) -> str:
        return self._run.process_id

    @property
    def session_id(self) -> str | None:
        """The session that this process wakes, if there is one."""
        return self._run.record.wake_session_id

    @overload
    def wait_signal(self, name: str, *, timeout_s: float | None = None, of_type: type[T]) -> Waitable[T]: ...

    @overload
    def wait_signal(self, name: str, *, timeout_s: float | None = None, of_type: object = None) -> Waitable[Any]: ...

    def wait_signal(self, name: str, *, timeout_s: float | None = None, of_type: object = None) -> Waitable[Any]:
        """Wait for the next signal of a name and return its payload; the k-th wait gets the k-th signal.

        The payload is of the type that the process declares for the signal, or ``of_type``; else plain JSON.
        Raises TimeoutError when the time is over first; the signal that comes later is then that of the next wait.
        """
        key = self._journal.name(f"signal.{name}")
        declared = self._run.definition.signal_type(name) if of_type is None else of_type
        return self._signal(key, name, milliseconds(timeout_s), declared)

    def start(self, process: Program[P, R], *args: P.args, **kwargs: P.kwargs) -> Awaitable[ChildHandle[R]]:
        """Start another process, once, and return a handle on it. It continues if this one ends first."""
        key = self._journal.name(f"start.{process.name}")
        return self._start(key, process, args, kwargs)

    def child(self, process_id: str) -> ChildHandle[Any]:
        """Return a handle on a child that this process started, in this run or an earlier one, by its id."""
        return ChildHandle(self._run, self._journal, process_id)

    def event(self, event_type: str, payload: JSON = None) -> Awaitable[int]:
        """Append an event of a declared type to the log of this process, once, and return its number."""
        return self._event(self._journal.name(f"event.{event_type}"), event_type, payload)

    def activity(self, payload: JSON) -> None:
        """Show something to observers of the session that this process works for; without a session, do nothing.

        It is not part of any history, and a run that starts again shows it again.
        """
        if self.session_id is not None:
            self._run.show(self.session_id, payload)

    def emit(self, source_type: str, payload: JSON = None, *, source_key: str | None = None) -> Awaitable[EmitReport]:
        """Record an occurrence once, and start the processes that subscribe to it."""
        key = self._journal.name(f"emit.{source_type}")
        return self._emit(key, source_type, payload, source_key)

    async def continue_as_new(self, *args: object, **kwargs: object) -> NoReturn:
        """End this run, and begin the next one of the same process with new arguments, in one write.

        Use it in long loops: the next run has no records to replay, so its cost does not grow. It runs the latest
        version of the process that this worker declares. The process keeps its id, and callers of ``result`` get the
        result of the last run. Signals that no wait has received come to the next run; waits keep their names and keys,
        so a resolved one stays resolved; children continue; a cancel request is raised in the next run too. The
        attempts that may fail are counted for each run.

        Raises InvalidInput if the arguments do not fit.
        """
        await self._run.continue_as_new(args, kwargs)

    def wake(self, text: str) -> Awaitable[None]:
        """Send a message to the session that this process works for, once."""
        return self._wake(self._journal.name("wake"), text)

    async def _emit(self, key: str, source_type: str, payload: JSON, source_key: str | None) -> EmitReport:
        async def body() -> JSON:
            report: JSON = msgspec.to_builtins(await self._run.emit(key, source_type, payload, source_key))
            return report

        command = operation(f"emit:{source_type}", payload, source_key)
        return convert((await self._journal.recorded(key, command, body)).outcome, EmitReport)

    async def _wake(self, key: str, text: str) -> None:
        await self._append(key, operation("wake", text), WAKE, {"text": text})

    async def _event(self, key: str, event_type: str, payload: JSON) -> int:
        return await self._append(key, operation(f"event:{event_type}", payload), event_type, payload)

    async def _append(self, key: str, command: Command, event_type: str, payload: JSON) -> int:
        async def body() -> JSON:
            draft = EventDraft(event_type=event_type, payload=payload, replay_key=key)
            return (await self._run.storage.events.append(self.process_id, draft, fence=self._run.fence)).event.sequence

        return int(str((await self._journal.recorded(key, command, body)).outcome))

    def _signal(self, key: str, name: str, timeout_ms: int | None, declared: object) -> Waitable[Any]:
        parking = self._run.parking

        async def find() -> JSON:
            due_ms = None if timeout_ms is None else await parking.deadline(key, timeout_ms)
            return await parking.next_signal(name, due_ms)

        def read(outcome: JSON) -> Any:  # noqa: ANN401 (the declared type is known at run time)
            kept = outcome if isinstance(outcome, dict) else {}
            if kept.get("timed_out"):
                raise self._journal.as_recorded(TimeoutError(f"no signal {name!r} came in time"))
            return from_json(kept.get("payload"), declared, f"the payload of signal {name!r}")

        waitable = Waitable(self._journal, key, AwaitEvent(key_id=f"signal:{name}"), find, read)
        waitable.on_recorded, waitable.on_lost = partial(parking.resumed, name), partial(parking.give_back, name)
        return waitable

    async def _start(
        self, key: str, process: Program[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ChildHandle[R]:
        async def body() -> JSON:
            return await self._run.start_child(key, process, args, kwargs)

        # Without the version: a run keeps the child that it started, even if there is a newer version.
        command = operation(f"start:{process.name}", *args, **kwargs)
        record = await self._journal.recorded(key, command, body)
        return ChildHandle(self._run, self._journal, str(record.outcome), process)


class ChildHandle(Generic[R]):
    """A process that the process with this context started."""

    def __init__(
        self, run: ProcessRun, journal: Journal, process_id: str, process: Program[Any, R] | None = None
    ) -> None:
        self._run = run
        self._journal = journal
        self.process_id = process_id
        self._process = process

    def result(self) -> Waitable[R]:
        """Return what the process returned, waiting without memory or worker; raise ProcessFailed if it failed.

        The end of a child wakes its parent at once. What was seen is recorded: it stays when the child is pruned.
        """
        declared = UNTYPED if self._process is None else self._process.result_type

        def read(ended: JSON) -> R:
            outcome: Outcome = convert(ended, Outcome)
            try:
                result: R = read_outcome(self.process_id, outcome, declared)
            except ProcessFailed as failed:
                raise self._journal.as_recorded(failed) from None
            return result

        key, command = replay_key("result", self.process_id), operation("result", self.process_id)
        return Waitable(self._journal, key, command, self._ended, read)

    async def signal(self, name: str, payload: JSON = None, *, signal_id: str) -> None:
        """Send a signal; the same id is one signal."""

        async def body() -> JSON:
            events = self._run.storage.events
            sent = await events.signal(self.process_id, name, signal_id=signal_id, payload=payload)
            return sent.event.sequence

        key = replay_key("signal", self.process_id, name, signal_id)
        await self._journal.recorded(key, operation(f"signal:{name}", payload), body)

    async def cancel(self, reason: str = "") -> None:
        """Ask the child to stop, once; `result` raises ProcessFailed if it did."""

        async def body() -> JSON:
            await self._run.storage.processes.request_cancel(self.process_id, reason=reason)
            return None

        key = replay_key("cancel", self.process_id)
        await self._journal.recorded(key, operation("cancel", reason), body)

    async def _ended(self) -> JSON:
        parking, storage = self._run.parking, self._run.storage
        while True:
            record = await parking.lease.bridge("the end of a child", storage.processes.get, self.process_id)
            if record is None:
                raise ProcessPruned(self.process_id)
            if record.projection.outcome is not None:
                ended: JSON = msgspec.to_builtins(record.projection.outcome)
                return ended
            # The end of a child wakes its parent, also one that comes before the parent is parked.
            await parking.block(None, None, partial(storage.waiter.await_outcome, self.process_id))


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

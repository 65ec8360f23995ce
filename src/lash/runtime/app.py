"""The application: agents and processes, and the storage and worker that run them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from lash.backend.liveness import current_owner, worker_owner
from lash.base.clock import Clock
from lash.base.ids import new_id
from lash.connect.open import open_storage
from lash.errors import ConfigError, InvalidInput, LashError, NewerSchema
from lash.model.lease import LeaseOwner
from lash.model.process.process import HOST, Provenance
from lash.model.session.session import Durability
from lash.model.trigger.trigger import EmitReport
from lash.model.value import JSON
from lash.model.wait import Accepted, AlreadyResolved, Rejected, ResolveAnswer, Resolved
from lash.runtime.core import Core
from lash.runtime.declarations import Declarations
from lash.runtime.definition import AgentDefinition, agent_name
from lash.runtime.engine import Program
from lash.runtime.hooks import Hook, Hooks, LoggingHook
from lash.runtime.policy import DEFAULTS, WorkerOptions
from lash.runtime.processes.handle import ProcessHandle
from lash.runtime.processes.starter import Starter, StartOptions
from lash.runtime.trigger import DeclaredTrigger
from lash.runtime.turns.handle import SessionHandle
from lash.runtime.turns.turn import Turn
from lash.runtime.worker.worker import Worker

if TYPE_CHECKING:
    from lash.stores.storage import Storage

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Callable[[Turn], Awaitable[object]])


class App(Declarations):
    """Agents and durable processes on one storage.

    Declare them in any order, before or after opening the app. ``async with app:`` opens the storage and runs a worker
    in this process; with ``worker=False`` it only opens the storage, for programs that send and ask and leave the work
    to other workers. Many apps, in any number of processes and machines, may share a storage.
    """

    def __init__(
        self,
        url: str,
        *,
        options: WorkerOptions = DEFAULTS,
        worker: bool = True,
        worker_id: str | None = None,
        hooks: Sequence[Hook] = (),
        clock: Clock | None = None,
        **storage_options: Any,  # noqa: ANN401 (what lash.open takes)
    ) -> None:
        super().__init__()
        self.url = url
        self.options = options
        self._with_worker = worker
        self._worker_id = worker_id
        self._hooks = Hooks((LoggingHook(), *hooks))
        self._clock = clock
        self._storage_options = storage_options
        self._core: Core | None = None
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._registering: asyncio.Task[None] | None = None
        self._life = asyncio.Lock()
        self._draining = asyncio.Lock()

    def configure(
        self, *, options: WorkerOptions | None = None, worker: bool | None = None, hooks: Sequence[Hook] = ()
    ) -> None:
        """Change options and add hooks before the app is opened, as ``lash worker`` does."""
        if self._core is not None:
            raise ConfigError("the app is open; configure it before opening it")
        self.options = self.options if options is None else options
        self._with_worker = self._with_worker if worker is None else worker
        self._hooks = self._hooks.and_also(hooks)

    # Life.

    async def open(self) -> None:
        """Open the storage and start the worker. ``async with app`` calls it; on an open app it does nothing."""
        async with self._life:
            if self._core is None:
                await self._open()

    async def start(self, process: Program[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ProcessHandle[R]:
        """Start a process and return a handle on it."""
        return await self._start(StartOptions(), process, args, kwargs)

    def starting(self, *, process_id: str | None = None, wake: str | None = None) -> Starter:
        """Return a starter with options: a fixed process id, which makes starting idempotent, or a session to wake."""
        return Starter(self._start, StartOptions(process_id=process_id, wake_session_id=wake))

    async def stop(self) -> None:
        """Let runs finish within the grace time, give back the rest, and close the storage; idempotent.

        Running work can use the app until it finishes.
        """
        if self._worker is not None:
            self._worker.stop()
        async with self._life:
            if self._core is None:
                return
            try:
                if self._running is not None:
                    await asyncio.wait({self._running})
                    with contextlib.suppress(asyncio.CancelledError):
                        self._running.result()
            finally:
                core, self._core, self._worker, self._running = self._core, None, None, None
                self._triggers.close()
                await core.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def run(self) -> None:
        """Work until `stop` is called or the worker fails, as ``lash worker`` does."""
        if self._running is None:
            raise ConfigError("the app runs no worker; open it first, with worker=True")
        await asyncio.shield(self._running)

    async def drain(self) -> int:
        """Run everything that is ready until nothing is, and return how many runs that were.

        For tests and scripts, in an app without a worker. What sleeps or is delayed stays as it is.
        """
        core = self._require()
        if self._running is not None:
            raise ConfigError("this app has a worker, which runs what is ready; drain is for App(url, worker=False)")
        await self._triggers.register_pending()
        async with self._draining:
            return await Worker(core).drain()

    # Use.

    @property
    def storage(self) -> Storage:
        """The storage itself, for everything that has no short form here."""
        return self._require().storage

    def session(self, session_id: str, agent: AgentDefinition | str | None = None) -> SessionHandle:
        """Return a handle on a session. The agent is named once; the session remembers it from its first turn on."""
        core = self._require()
        if agent is not None:
            core.agent(agent.name if isinstance(agent, AgentDefinition) else agent)
        return SessionHandle(
            core.storage,
            session_id,
            agent=agent_name(agent),
            traceparent=core.hooks.traceparent,
            sender=self._worker,
        )

    def handle(self, process_id: str) -> ProcessHandle[Any]:
        """Return a handle on a process by its id."""
        return ProcessHandle(self._require().storage, process_id)

    async def emit(
        self, source_type: str, payload: JSON = None, *, key: str, source_key: str | None = None
    ) -> EmitReport:
        """Record an occurrence and start its processes. The same key again returns the first report."""
        core = self._require()
        await self._triggers.register_pending()
        return await core.emit(source_type, payload, key=key, source_key=source_key)

    async def unwatch(self, key: str) -> bool:
        """End a subscription or a schedule of `on` or `cron` by its key, and return whether there was one.

        A declaration that was removed from the code stays registered, since other versions may still rely on it.
        """
        return await self._triggers.remove(self._require().storage, key)

    async def signal(self, process_id: str, name: str, payload: JSON = None, *, key: str | None = None) -> None:
        """Send a signal to a process. The same key is one signal, however often it is sent."""
        await self.handle(process_id).signal(name, payload, key=key)

    async def resolve(self, wait_key: str, value: JSON = None) -> bool:
        """Resolve a wait with a value, and return whether this was the first resolution.

        A key that is unknown, revoked or tampered with raises InvalidInput.
        """
        return _first(await self._require().storage.waits.resolve(wait_key, Resolved(value=value)))

    async def reject(self, wait_key: str, code: str, message: str = "") -> bool:
        """Resolve a wait with an error; see `resolve`."""
        return _first(await self._require().storage.waits.resolve(wait_key, Rejected(code=code, message=message)))

    # Inside.

    async def _open(self) -> None:
        self._definitions.check_limits()
        storage = await open_storage(
            self.url, clock=self._clock, on_statement=self._hooks.on_statement, **self._storage_options
        )
        try:
            _check_durability(storage)
            await self._triggers.open(storage)
        except BaseException:
            self._triggers.close()
            await storage.close()
            raise
        core = self._core = Core(storage, self._definitions, self._owner(), self.options, self._hooks)
        if self._with_worker:
            self._worker = Worker(core)
            self._running = asyncio.create_task(self._worker.run(), name="lash-worker")
            self._running.add_done_callback(self._worker_ended)

    def _owner(self) -> LeaseOwner:
        return worker_owner(self._worker_id) if self._with_worker else current_owner(self._worker_id)

    def _worker_ended(self, running: asyncio.Task[None]) -> None:
        """Report a worker that failed; the application may not be waiting for it."""
        if running.cancelled() or isinstance(running.exception(), NewerSchema):
            # The worker has reported a newer schema when it stopped taking work.
            return
        if (error := running.exception()) is not None:
            self._hooks.note("worker.failed", error=f"{type(error).__qualname__}: {error}")

    async def _start(
        self, options: StartOptions, process: Program[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ProcessHandle[Any]:
        core = self._require()
        if not isinstance(process, Program):
            raise InvalidInput(f"{process!r:.80} is not a process; declare it with @app.process")
        core.check_known(process)
        registration = await core.registration(
            process,
            new_id() if options.process_id is None else options.process_id,
            args,
            kwargs,
            provenance=Provenance(originator=HOST),
            wake_session_id=options.wake_session_id,
        )
        if self._worker is None:
            await core.storage.processes.register(registration)
        else:
            await self._worker.start(registration)
        return ProcessHandle(core.storage, registration.process_id, process)

    def _declare(self, declared: DeclaredTrigger) -> None:
        super()._declare(declared)
        if self._core is not None and (self._registering is None or self._registering.done()):
            self._registering = asyncio.get_running_loop().create_task(self._register_triggers(), name="lash-triggers")

    async def _register_triggers(self) -> None:
        try:
            await self._triggers.register_pending()
        except LashError as error:
            # Not fatal: the next emit or open retries it and raises.
            self._hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")

    def _require(self) -> Core:
        if self._core is None:
            raise ConfigError("the app is not open; use `async with app:` or `await app.open()` first")
        return self._core


def _check_durability(storage: Storage) -> None:
    """Raise ConfigError if attachments are less durable than the rest of the storage."""
    if storage.durability is Durability.DURABLE and storage.attachments.durability is not Durability.DURABLE:
        raise ConfigError("the storage is durable and its attachments are not; use a durable attachment_bytes")


def _first(answer: ResolveAnswer) -> bool:
    if isinstance(answer, Accepted):
        return True
    if isinstance(answer, AlreadyResolved):
        return False
    raise InvalidInput("unknown wait key: it was revoked, or is not a key of this storage")

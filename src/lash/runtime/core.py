"""What all parts of an open application share."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from lash.errors import ConfigError, LashError, NewerSchema, StorageClosed, StoreUnavailable, UnknownDefinition
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.limit import Limit
from lash.model.process.process import EngineInput, ProcessInput, Provenance, Registration
from lash.model.trigger.trigger import EmitReport, OccurrenceRequest
from lash.model.value import JSON
from lash.runtime.definition import AgentDefinition, FunctionEngine
from lash.runtime.engine import Engine, Loaded, Program
from lash.runtime.hooks import Hooks
from lash.runtime.observe.activity import ActivityWriter
from lash.runtime.outage import HeldLease, Outages
from lash.runtime.policy import WorkerOptions
from lash.runtime.resources import Resources
from lash.runtime.turns.history import Histories
from lash.runtime.turns.past import Reach
from lash.stores.storage import Storage


class Definitions:
    """The agents, processes, engines and limits of an application, by name."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentDefinition] = {}
        self.processes: dict[tuple[str, str], Program[Any, Any]] = {}
        functions = FunctionEngine()
        self.engines: dict[str, Engine] = {functions.name: functions}
        self.limits: dict[str, Limit] = {}

    def agent(self, name: str | None) -> AgentDefinition:
        """Return the agent of a name; without a name the only one there is."""
        if name is None and len(self.agents) == 1:
            return next(iter(self.agents.values()))
        found = None if name is None else self.agents.get(name)
        if found is None:
            raise UnknownDefinition("agent", name or "(none named)", ", ".join(sorted(self.agents)))
        return found

    def latest(self, name: str) -> Program[Any, Any]:
        """Return the process of a name, of the version that was declared last."""
        for (each, _), found in reversed(self.processes.items()):
            if each == name:
                return found
        raise UnknownDefinition("process", name, ", ".join(sorted({each for each, _ in self.processes})))

    def engine(self, name: str) -> Engine:
        """Return the engine of a name."""
        found = self.engines.get(name)
        if found is None:
            raise UnknownDefinition("engine", name, ", ".join(sorted(self.engines)))
        return found

    def process(self, name: str, version: str) -> Program[Any, Any]:
        found = self.processes.get((name, version))
        if found is None:
            known = ", ".join(f"{each} version {tag}" for each, tag in sorted(self.processes))
            raise UnknownDefinition("process", f"{name} version {version}", known)
        return found

    def check_limits(self) -> None:
        """Raise ConfigError if an agent or a process names a limit that is not declared."""
        runs = [(f"agent {each.name!r}", each.limit) for each in self.agents.values()]
        runs += [(f"process {each.name!r}", each.limit) for each in self.processes.values()]
        for what, limit in runs:
            if limit is not None and limit.name not in self.limits:
                known = ", ".join(sorted(self.limits)) or "none"
                raise ConfigError(f"{what}: unknown limit {limit.name!r}; declared: {known}")


class Core:
    """An open storage with everything that works on it."""

    def __init__(
        self, storage: Storage, definitions: Definitions, owner: LeaseOwner, options: WorkerOptions, hooks: Hooks
    ) -> None:
        self.storage = storage
        self.definitions = definitions
        self.owner = owner
        self.options = options
        self.hooks = hooks
        self.histories = Histories(options.history_cache_bytes)
        self._reaches: dict[str, Reach] = {}
        self.activity = ActivityWriter(storage.activity, on_loss=self._note_loss)
        self._outages = Outages(hooks)
        self.resources = Resources()

    def agent(self, name: str | None) -> AgentDefinition:
        return self.definitions.agent(name)

    def reach(self, agent: AgentDefinition) -> Reach:
        """Return how much of the conversation the turns of an agent ask for."""
        return self._reaches.setdefault(agent.name, Reach())

    def process(self, name: str, version: str) -> Program[Any, Any]:
        return self.definitions.process(name, version)

    def latest(self, name: str) -> Program[Any, Any]:
        return self.definitions.latest(name)

    def check_known(self, program: Program[Any, Any]) -> None:
        """Raise UnknownDefinition if this application does not declare a program."""
        self.definitions.engine(program.engine).check_known(program, self)

    async def load(self, process_input: ProcessInput, payload: JSON) -> Loaded:
        """Return the program of a process and the arguments of one run, from its engine."""
        if not isinstance(process_input, EngineInput):
            known = ", ".join(sorted(self.definitions.engines))
            raise UnknownDefinition("engine", type(process_input).__name__, known)
        engine = self.definitions.engine(process_input.kind)
        return await engine.load(payload if isinstance(payload, dict) else {}, self)

    async def continuation(
        self, program: Program[Any, Any], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> JSON:
        """Return the payload of the next run of a process."""
        return await self.definitions.engine(program.engine).continuation(program, args, kwargs, self)

    def hold_session(self, fence: LeaseFence) -> HeldLease:
        """Return the lease on a session that this worker has just claimed; renewing it renews the claims under it."""
        return self._hold(fence, partial(self.storage.leases.renew, fence, ttl_ms=self.options.ttl_ms))

    def hold_process(self, fence: LeaseFence) -> HeldLease:
        """Return the lease on a process that this worker has just claimed."""
        return self._hold(fence, partial(self.storage.process_leases.renew, fence, ttl_ms=self.options.ttl_ms))

    async def registration(
        self,
        process: Program[Any, Any],
        process_id: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        provenance: Provenance,
        wake_session_id: str | None,
    ) -> Registration:
        """Return the registration of a process, its arguments checked."""
        arguments = await process.check_start(self.storage, args, kwargs)
        return Registration(
            process_id=process_id,
            input=process.input(arguments),
            identity=process.identity(),
            event_types=process.event_types(),
            provenance=self._traced(provenance),
            environment_ref=process.environment_ref,
            wake_session_id=wake_session_id,
        )

    def _traced(self, provenance: Provenance) -> Provenance:
        """Return where a process comes from, with the trace that it belongs to."""
        traceparent = self.hooks.traceparent()
        return provenance if traceparent is None else msgspec.structs.replace(provenance, traceparent=traceparent)

    async def emit(self, source_type: str, payload: JSON, *, key: str, source_key: str | None) -> EmitReport:
        """Emit an occurrence; the key makes it idempotent."""
        return await self.storage.occurrences.emit(
            OccurrenceRequest(
                source_type=source_type,
                source_key=source_key or self.storage.triggers.source_key(source_type),
                idempotency_key=key,
                payload=payload,
            )
        )

    async def is_outdated(self, error: BaseException) -> bool:
        """Return whether the storage was migrated past this version, which would explain an error that ends a run.

        Such an attempt does not count: a worker of the new version continues from the records.
        """
        if isinstance(error, StoreUnavailable | StorageClosed):
            return False
        try:
            await self.storage.work.check_schema()
        except NewerSchema:
            return True
        except LashError:
            return False
        return False

    async def close(self) -> None:
        """Close what the runs kept open, write buffered activity, close the engines, then close the storage."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.storage.close)
            for engine in self.definitions.engines.values():
                stack.push_async_callback(engine.close)
            stack.push_async_callback(self.activity.close)
            stack.push_async_callback(self.resources.close)

    def _hold(self, fence: LeaseFence, renew: Callable[[], Awaitable[object]]) -> HeldLease:
        return HeldLease(fence.resource, renew, ttl_s=self.options.lease_ttl_s, outages=self._outages)

    def _note_loss(self, session_id: str, count: int, error: Exception | None) -> None:
        self.hooks.note("activity.lost", session_id=session_id, count=count, error=str(error or "it came too fast"))

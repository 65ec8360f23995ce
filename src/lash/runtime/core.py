"""What all parts of an open application share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from lash.errors import ConfigError, LashError, NewerSchema, StorageClosed, StoreUnavailable, UnknownDefinition
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.limit import Limit
from lash.model.process.process import EngineInput, ProcessIdentity, Provenance, Registration
from lash.model.trigger.trigger import EmitReport, OccurrenceRequest
from lash.model.value import JSON
from lash.runtime.definition import ENGINE, AgentDefinition, ProcessDefinition
from lash.runtime.hooks import Hooks
from lash.runtime.observe.activity import ActivityWriter
from lash.runtime.outage import HeldLease, Outages
from lash.runtime.policy import WorkerOptions
from lash.runtime.resources import Resources
from lash.runtime.steps.values import bind_arguments
from lash.runtime.turns.history import Histories
from lash.runtime.turns.past import Reach
from lash.stores.storage import Storage


class Definitions:
    """The agents, processes and limits of an application, by name."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentDefinition] = {}
        self.processes: dict[tuple[str, str], ProcessDefinition[Any, Any]] = {}
        self.limits: dict[str, Limit] = {}

    def agent(self, name: str | None) -> AgentDefinition:
        """Return the agent of a name; without a name the only one there is."""
        if name is None and len(self.agents) == 1:
            return next(iter(self.agents.values()))
        found = None if name is None else self.agents.get(name)
        if found is None:
            raise UnknownDefinition("agent", name or "(none named)", ", ".join(sorted(self.agents)))
        return found

    def latest(self, name: str) -> ProcessDefinition[Any, Any]:
        """Return the process of a name, of the version that was declared last."""
        for (each, _), found in reversed(self.processes.items()):
            if each == name:
                return found
        raise UnknownDefinition("process", name, ", ".join(sorted({each for each, _ in self.processes})))

    def process(self, name: str, version: str) -> ProcessDefinition[Any, Any]:
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

    def process(self, name: str, version: str) -> ProcessDefinition[Any, Any]:
        return self.definitions.process(name, version)

    def hold_session(self, fence: LeaseFence) -> HeldLease:
        """Return the lease on a session that this worker has just claimed; renewing it renews the claims under it."""
        return self._hold(fence, partial(self.storage.leases.renew, fence, ttl_ms=self.options.ttl_ms))

    def hold_process(self, fence: LeaseFence) -> HeldLease:
        """Return the lease on a process that this worker has just claimed."""
        return self._hold(fence, partial(self.storage.process_leases.renew, fence, ttl_ms=self.options.ttl_ms))

    def registration(
        self,
        process: ProcessDefinition[Any, Any],
        process_id: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        provenance: Provenance,
        wake_session_id: str | None,
    ) -> Registration:
        """Return the registration of one run of a durable function, its arguments checked."""
        arguments = bind_arguments(process.function, f"process {process.name!r}", args, kwargs)
        return Registration(
            process_id=process_id,
            input=engine_input(process, arguments),
            identity=identity(process),
            event_types=process.event_types(),
            provenance=self._traced(provenance),
            environment_ref=environment_ref(process),
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
        """Close what the runs kept open, write buffered activity, then close the storage."""
        try:
            await self.resources.close()
            await self.activity.close()
        finally:
            await self.storage.close()

    def _hold(self, fence: LeaseFence, renew: Callable[[], Awaitable[object]]) -> HeldLease:
        return HeldLease(fence.resource, renew, ttl_s=self.options.lease_ttl_s, outages=self._outages)

    def _note_loss(self, session_id: str, count: int, error: Exception | None) -> None:
        self.hooks.note("activity.lost", session_id=session_id, count=count, error=str(error or "it came too fast"))


def engine_input(process: ProcessDefinition[Any, Any], arguments: dict[str, JSON]) -> EngineInput:
    """Return the input with which a process is registered: its name, its version and its arguments."""
    payload: dict[str, JSON] = {"process": process.name, "version": process.version, "args": arguments}
    return EngineInput(kind=ENGINE, payload=payload)


def identity(process: ProcessDefinition[Any, Any]) -> ProcessIdentity:
    return ProcessIdentity(
        kind=ENGINE, label=process.name, definition={"process": process.name, "version": process.version}
    )


def environment_ref(process: ProcessDefinition[Any, Any]) -> str:
    return f"python:{process.name}@{process.version}"

"""Subscriptions and schedules that start processes, as an application declares them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lash.errors import ConfigError, Conflict, InvalidInput, ScheduleConflict, TriggerConflict
from lash.model.process.process import HOST
from lash.model.trigger.schedule import CRON_SOURCE_TYPE, CatchUp, ScheduleDraft
from lash.model.trigger.trigger import EventPointer, FixedInput, InputBinding, TriggerDraft, WholeEvent
from lash.plan.trigger.schedule import check_schedule
from lash.runtime.engine import Program
from lash.runtime.place import Place, declaring_place, is_run_again
from lash.stores.storage import Storage

EVENT: Final = WholeEvent()
"""Stands for the whole payload of what happened, among the inputs of a process."""
_MOST_TRIES: Final = 10
"""How many workers may start at the same time with different definitions."""


def pointer(path: str) -> EventPointer:
    """Return what stands for a part of the payload, among the inputs of a process."""
    return EventPointer(path=path)


class DeclaredTrigger(NamedTuple):
    """A subscription, and the schedule behind it if it is one by the clock."""

    draft: TriggerDraft
    schedule: ScheduleDraft | None
    has_source_key: bool
    place: Place | None = None


class DeclaredTriggers:
    """The subscriptions of an application: kept until there is a storage, then registered with it."""

    def __init__(self) -> None:
        self._declared: dict[str, DeclaredTrigger] = {}
        self._storage: Storage | None = None
        self._pending: list[DeclaredTrigger] = []
        self._registering = asyncio.Lock()

    def __iter__(self) -> Iterator[DeclaredTrigger]:
        return iter(self._declared.values())

    def add(self, declared: DeclaredTrigger) -> None:
        """Declare a subscription; it is registered at the start, or before the next emit if the app is running.

        It takes the place of another one under its key if the code that declared it is run again.
        """
        known = self._declared.get(declared.draft.key)
        if known is not None and known[:-1] != declared[:-1] and not is_run_again(known.place, declared.place):
            raise ConfigError(f"subscription {declared.draft.key!r} is declared twice; give one of them another key")
        self._declared[declared.draft.key] = declared
        self._pending = [each for each in self._pending if each is not known] + [declared]

    async def open(self, storage: Storage) -> None:
        self._storage, self._pending = storage, list(self._declared.values())
        await self.register_pending()

    def close(self) -> None:
        """Keep what is declared for the next storage."""
        self._storage = None

    async def remove(self, storage: Storage, key: str) -> bool:
        """Remove a subscription, declared here or not, and return whether there was one."""
        async with self._registering:
            removed = self._declared.pop(key, None)
            self._pending = [each for each in self._pending if each is not removed]
            return await _remove(storage, key)

    async def register_pending(self) -> None:
        """Register pending declarations; one that an older version of the code declared differently is updated."""
        async with self._registering:
            while self._storage is not None and self._pending:
                declared = self._pending[0]
                await _register(self._storage, declared)
                # Another one may have taken its place meanwhile.
                self._pending = [each for each in self._pending if each is not declared]


def event_trigger(
    source_type: str,
    process: Program[Any, Any],
    key: str | None,
    source_key: str | None,
    inputs: Mapping[str, Any] | None,
    schema: Mapping[str, Any] | None,
    wake: str | None,
) -> DeclaredTrigger:
    """Return the subscription of a process to something that is emitted."""
    draft = TriggerDraft(
        owner=HOST,
        key=key or f"{source_type}:{process.name}",
        source_type=source_type,
        source_key=source_key or source_type,
        target=process.input({}),
        environment_ref=process.environment_ref,
        payload_schema=dict(schema or {}),
        identity=process.identity(),
        event_types=process.event_types(),
        input_template=_template(process, inputs),
        wake_session_id=wake,
    )
    return DeclaredTrigger(draft, None, source_key is not None, declaring_place())


def cron_trigger(
    line: str,
    process: Program[Any, Any],
    key: str | None,
    time_zone: str,
    inputs: Mapping[str, Any] | None,
    catch_up: str,
    jitter_s: float,
    wake: str | None,
) -> DeclaredTrigger:
    """Return the subscription of a process to the ticks of a schedule of its own."""
    # Without the line, which may be changed: a new one takes the place of the old one.
    name = key or f"cron:{process.name}"
    try:
        policy = CatchUp(catch_up)
    except ValueError:
        raise ConfigError(f"catch_up is one of {', '.join(CatchUp)}, not {catch_up!r}") from None
    declared = event_trigger(CRON_SOURCE_TYPE, process, name, name, inputs if inputs is not None else {}, None, wake)
    schedule = ScheduleDraft(
        key=name, cron=line, time_zone=time_zone, catch_up=policy, jitter_ms=round(jitter_s * 1_000), source_key=name
    )
    try:
        check_schedule(schedule)
    except InvalidInput as error:
        raise ConfigError(str(error)) from error
    return declared._replace(schedule=schedule)


def _template(process: Program[Any, Any], inputs: Mapping[str, Any] | None) -> dict[str, InputBinding]:
    parameters = process.parameters
    if inputs is None:
        if len(parameters) > 1:
            raise ConfigError(
                f"process {process.name!r} has {len(parameters)} arguments; say with inputs= what they get"
            )
        return dict.fromkeys(parameters, EVENT)
    unknown = sorted(set(inputs) - set(parameters))
    if unknown:
        raise ConfigError(f"process {process.name!r} takes no argument {unknown[0]!r}")
    missing = [name for name, is_needed in parameters.items() if is_needed and name not in inputs]
    if missing:
        raise ConfigError(f"process {process.name!r} needs argument {missing[0]!r}; add it to inputs=")
    return {name: _binding(process, name, value) for name, value in inputs.items()}


def _binding(process: Program[Any, Any], name: str, value: object) -> InputBinding:
    if isinstance(value, WholeEvent | FixedInput | EventPointer):
        return value
    return FixedInput(value=process.argument(name, value))


async def _register(storage: Storage, declared: DeclaredTrigger) -> None:
    draft = declared.draft
    if not declared.has_source_key:
        draft = msgspec.structs.replace(draft, source_key=storage.triggers.source_key(draft.source_type))
    # The subscription first, so that no tick comes before it.
    await register_trigger(storage, draft)
    schedule = declared.schedule
    if schedule is not None:
        await register_schedule(storage, schedule)


async def register_trigger(storage: Storage, draft: TriggerDraft) -> None:
    """Register a subscription, or give the one of its owner and key another definition. Idempotent."""
    await _with_retries(lambda: _register_trigger(storage, draft))


async def register_schedule(storage: Storage, draft: ScheduleDraft) -> None:
    """Register a schedule, or give the one of its owner and key another definition. Idempotent."""
    await _with_retries(lambda: _register_schedule(storage, draft))


async def _with_retries(register: Callable[[], Awaitable[None]]) -> None:
    """Register, again if another worker that starts at the same time was faster in changing the definition."""
    for _ in range(_MOST_TRIES - 1):
        with contextlib.suppress(Conflict):
            return await register()
    return await register()


async def _register_trigger(storage: Storage, draft: TriggerDraft) -> None:
    try:
        await storage.triggers.register(draft)
    except TriggerConflict:
        known = await storage.triggers.get(draft.owner, draft.key)
        if known is None:
            raise
        await storage.triggers.update(draft, revision=known.revision)


async def _register_schedule(storage: Storage, draft: ScheduleDraft) -> None:
    try:
        await storage.schedules.register(draft)
    except ScheduleConflict:
        known = await storage.schedules.get(draft.owner, draft.key)
        if known is None:
            raise
        await storage.schedules.update(draft, revision=known.revision)


async def _remove(storage: Storage, key: str) -> bool:
    trigger, schedule = await storage.triggers.get(HOST, key), await storage.schedules.get(HOST, key)
    if schedule is not None:
        await storage.schedules.delete(HOST, key, revision=schedule.revision)
    if trigger is not None:
        await storage.triggers.delete(HOST, key, revision=trigger.revision)
    return trigger is not None or schedule is not None

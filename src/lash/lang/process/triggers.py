"""The module ``triggers`` of a host: programs register processes for events, list and cancel them.

A subscription belongs to the session that the program works for, or to the host if there is none. Each operation is one
recorded step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lash.base.codec import canonical, content_hash
from lash.errors import Conflict, InvalidInput, NotFound
from lash.lang.link.triggers import EVENT_KEY
from lash.lang.machine.effects import Operation
from lash.lang.process.modules import PROCESS
from lash.lang.process.sources import CLOCK, Source
from lash.lang.values.convert import from_json
from lash.lang.values.value import Value
from lash.model.process.process import HOST, AgentScope, SessionOriginator
from lash.model.trigger.schedule import CRON_SOURCE_TYPE, ScheduleDraft
from lash.model.trigger.trigger import (
    FixedInput,
    InputBinding,
    TriggerDraft,
    TriggerFilter,
    TriggerOwner,
    TriggerSubscription,
    WholeEvent,
)
from lash.model.value import JSON, JSONObject
from lash.runtime.steps.waits import Waits
from lash.runtime.trigger import register_schedule, register_trigger
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from lash.lang.process.engine import Lashlang

_TYPE: Final = "$lash_host_descriptor_type"
_VALUE: Final = "$lash_host_descriptor_value"
_MOST_LISTED: Final = 1_000


class ProgramTriggers:
    """The subscriptions of one owner, as a program sees them."""

    def __init__(self, engine: Lashlang, storage: Storage, waits: Waits, session_id: str | None) -> None:
        self._engine = engine
        self._storage = storage
        self._waits = waits
        self._session_id = session_id
        self._owner: TriggerOwner = (
            HOST if session_id is None else SessionOriginator(scope=AgentScope(session_id=session_id))
        )

    async def perform(self, operation: Operation, key: str) -> Value:
        """Return the result of an operation, done once under a key."""
        body = {"register": self._register, "list": self._list, "cancel": self._cancel}[operation.name]

        async def run(payload: JSON) -> JSON:
            try:
                return {"ok": True, "value": await body(payload if isinstance(payload, dict) else {})}
            except (InvalidInput, NotFound, Conflict) as error:
                return {"ok": False, "error": str(error)}

        name = f"triggers.{operation.name}"
        return from_json(await self._waits.options(key=key).step(name, run, operation.payload))

    async def _register(self, request: JSONObject) -> JSON:
        source, described = self._source(request.get("source"))
        target = _object(request.get("target"))
        if target.get(PROCESS) is not True:
            raise InvalidInput("expected a process as the target of a trigger")
        program = await self._engine.stored_program(self._storage, target)
        template = self._template(program, _object(request.get("inputs")))
        identity = canonical([described, target, request.get("inputs")])
        key = _text(request.get("name")) or f"lashlang:{program.name}:{content_hash(identity)[:16]}"
        is_clock = source.source_type == CRON_SOURCE_TYPE
        default = self._storage.triggers.source_key(source.source_type)
        draft = TriggerDraft(
            owner=self._owner,
            key=key,
            source_type=source.source_type,
            source_key=self._clock_key(key) if is_clock else _text(described.get("key")) or default,
            source=described,
            target=program.input({}),
            environment_ref=program.environment_ref,
            payload_schema=source.payload_schema,
            identity=program.identity(),
            event_types=program.event_types(),
            input_template=template,
            wake_session_id=self._session_id,
        )
        # The subscription first, so that no tick comes before it.
        await register_trigger(self._storage, draft)
        if is_clock:
            await register_schedule(self._storage, self._schedule(key, described))
        found = await self._storage.triggers.get(self._owner, key)
        return None if found is None else _handle(found)

    async def _list(self, request: JSONObject) -> JSON:
        source_type, name, enabled = (request.get(each) for each in ("source_type", "name", "enabled"))
        source = self._engine.sources.get(str(source_type))
        wanted = TriggerFilter(
            owner=self._owner,
            key=_text(name),
            source_type=_text(source_type) if source is None else source.source_type,
            enabled=enabled if isinstance(enabled, bool) else None,
        )
        target, found, cursor = request.get("target"), list[TriggerSubscription](), None
        while len(found) < _MOST_LISTED:
            page = await self._storage.triggers.list(wanted, cursor=cursor)
            found += page.subscriptions
            cursor = page.next_cursor
            if cursor is None:
                break
        definition = _definition(target)
        return [_handle(each) for each in found if definition is None or _defines(each, definition)]

    async def _cancel(self, request: JSONObject) -> JSON:
        handle = _object(request.get("handle"))
        known = await self._storage.triggers.get(self._owner, str(handle.get("name")))
        if known is None or known.subscription_id != handle.get("id"):
            return False
        schedule = await self._storage.schedules.get(self._owner, known.key)
        if schedule is not None:
            await self._storage.schedules.delete(self._owner, known.key, revision=schedule.revision)
        await self._storage.triggers.delete(self._owner, known.key, revision=known.revision)
        return True

    def _source(self, given: JSON) -> tuple[Source, JSONObject]:
        descriptor = _object(given)
        type_name = str(descriptor.get(_TYPE))
        source = self._engine.sources.get(type_name)
        if source is None:
            raise InvalidInput(f"{type_name} is not a trigger source of this host")
        return source, _object(descriptor.get(_VALUE))

    def _template(self, program: Any, inputs: JSONObject) -> dict[str, InputBinding]:  # noqa: ANN401 (a program)
        if set(inputs) != set(program.parameters):
            raise InvalidInput(f"expected inputs for {', '.join(program.parameters) or 'no parameter'}")
        template: dict[str, InputBinding] = {}
        for name, value in inputs.items():
            is_event = isinstance(value, dict) and value.get(EVENT_KEY) is True
            template[name] = WholeEvent() if is_event else FixedInput(value=program.argument(name, value))
        return template

    def _clock_key(self, key: str) -> str:
        """Return the source key of a schedule, unique to its owner and key."""
        return key if self._session_id is None else f"session:{content_hash(canonical([self._session_id, key]))}"

    def _schedule(self, key: str, described: JSONObject) -> ScheduleDraft:
        return ScheduleDraft(
            owner=self._owner,
            key=key,
            cron=str(described.get("cron")),
            time_zone=_text(described.get("time_zone")) or "UTC",
            source_key=self._clock_key(key),
        )


def _text(given: JSON) -> str | None:
    return given if isinstance(given, str) else None


def _object(given: JSON) -> JSONObject:
    return given if isinstance(given, dict) else {}


def _handle(subscription: TriggerSubscription) -> JSON:
    definition = subscription.definition
    return {
        "type": "trigger_handle",
        "id": subscription.subscription_id,
        "name": subscription.key,
        "source_type": CLOCK if definition.source_type == CRON_SOURCE_TYPE else definition.source_type,
        "source_key": definition.source_key,
        "enabled": subscription.enabled,
    }


def _definition(target: JSON) -> tuple[str, str] | None:
    """Return the module and the process of a definition, or None if none is given."""
    found = _object(target)
    return (str(found.get("module_ref")), str(found.get("process_name"))) if found else None


def _defines(subscription: TriggerSubscription, definition: tuple[str, str]) -> bool:
    payload = _object(subscription.definition.target.payload)
    return (payload.get("module_ref"), payload.get("process_name")) == definition

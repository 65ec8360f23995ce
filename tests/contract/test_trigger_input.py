"""Laws of invalid triggers and occurrences: InvalidInput, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.process.event import EventSemantics, EventType, Pointer, WakeSpec
from lash.model.process.process import EngineInput, ExternalInput, ProcessIdentity, Recovery, ToolCallInput
from lash.model.trigger.trigger import EventPointer, FixedInput, OccurrenceRequest, TriggerDraft
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.test_input import BAD_IDS, BAD_JSON, LONG
from tests.contract.trigger_state import listed, refuse
from tests.factories.trigger import HOST, by_session, pressed, subscribed, trigger

_TOOL: Final = ToolCallInput(call_id="c", tool_id="t", tool_name="n")
_BIG: Final = "x" * 262_144

BAD_DRAFTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a tool call as the target": ({"target": _TOOL}, "ToolCallInput"),
    "an external target": ({"target": ExternalInput()}, "ExternalInput"),
    "no target": ({"target": None}, "target"),
    "a target without payload": ({"target": EngineInput(kind="work")}, "object"),
    "a list as the target's payload": ({"target": EngineInput(kind="work", payload=[1])}, "object"),
    "a blank engine": ({"target": EngineInput(kind="", payload={})}, "kind"),
    "no owner": ({"owner": None}, "owner"),
    "text as the owner": ({"owner": "host"}, "owner"),
    "a blank session as the owner": ({"owner": by_session("")}, "session_id"),
    "a blank frame": ({"owner": by_session("s", "")}, "frame"),
    "a long source type": ({"source_type": "x" * 129}, "source_type"),
    "no environment": ({"environment_ref": None}, "environment"),
    "a blank environment": ({"environment_ref": " "}, "environment"),
    "an invalid schema": ({"payload_schema": {"type": "integre"}}, "payload_schema"),
    "a schema that refers elsewhere": ({"payload_schema": {"$ref": "https://example.com/s.json"}}, "payload_schema"),
    "text as the schema": ({"payload_schema": "object"}, "payload_schema"),
    "two labels": ({"label": "a", "identity": ProcessIdentity(kind="k", label="b")}, "expected label 'b'"),
    "a long label": ({"label": LONG}, "label"),
    "a blank kind": ({"identity": ProcessIdentity(kind="")}, "kind"),
    "a core event type": ({"event_types": (EventType(name="process.completed"),)}, "process.completed"),
    "an event type twice": ({"event_types": (EventType(name="e"), EventType(name="e"))}, "twice"),
    "a bad selector": (
        {
            "event_types": (
                EventType(name="e", semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="no slash")))),
            )
        },
        "no slash",
    ),
    "a bad pointer": ({"input_template": {"x": EventPointer(path="no slash")}}, "no slash"),
    "a blank input": ({"input_template": {"": FixedInput(value=1)}}, "input"),
    "an invalid binding": ({"input_template": {"x": 5}}, "input_template"),
    "NaN as an input": ({"input_template": {"x": FixedInput(value=math.nan)}}, "nan"),
    "a blank session to wake": ({"wake_session_id": ""}, "wake_session_id"),
    "external recovery": ({"recovery": Recovery.EXTERNAL}, "external"),
    "unknown recovery": ({"recovery": "sometimes"}, "recovery"),
    "oversize": ({"source": _BIG}, "262,144"),
}


class TestTriggerInput:
    """Laws of invalid arguments: each is refused before anything is written."""

    @pytest.mark.parametrize("case", BAD_DRAFTS)
    async def test_a_bad_definition_is_refused(self, harness: Harness, case: str) -> None:
        """Registering and updating refuse every definition that could not start a process."""
        storage = await harness.open()
        await subscribed(storage)
        fields, saying = BAD_DRAFTS[case]
        for call in (
            storage.triggers.register(trigger("new", **fields)),
            storage.triggers.update(trigger(**fields), revision=1),
        ):
            error = await refuse(storage, call, InvalidInput)
            assert saying in str(error)

    @pytest.mark.parametrize("case", BAD_IDS)
    async def test_bad_names_are_refused(self, harness: Harness, case: str) -> None:
        """Every name is text that can be stored, and not blank."""
        storage = await harness.open()
        bad: Any = BAD_IDS[case]
        occurrences = storage.occurrences
        calls: list[Callable[[], Any]] = [
            lambda: storage.triggers.register(trigger(bad)),
            lambda: storage.triggers.register(trigger(source_type=bad)),
            lambda: storage.triggers.register(trigger(source_key=bad)),
            lambda: storage.triggers.get(HOST, bad),
            lambda: storage.triggers.delete(HOST, bad, revision=1),
            lambda: storage.triggers.delete_session(bad),
            lambda: occurrences.emit(pressed(bad)),
            lambda: occurrences.emit(pressed(source_key=bad)),
            lambda: occurrences.emit(msgspec.structs.replace(pressed(), source_type=bad)),
            lambda: occurrences.get(bad),
            lambda: occurrences.deliveries(bad),
            lambda: occurrences.retry_delivery(bad, "x"),
            lambda: occurrences.retry_delivery("x", bad),
        ]
        if bad is not None:
            calls.append(lambda: storage.triggers.register(trigger(), operation_id=bad))
        for call in calls:
            await refuse(storage, call(), InvalidInput)

    @pytest.mark.parametrize("case", BAD_JSON)
    async def test_bad_json_is_refused(self, harness: Harness, case: str) -> None:
        """A value that is not plain JSON is refused in every field."""
        storage = await harness.open()
        bad: Any = BAD_JSON[case]
        for call in (
            storage.occurrences.emit(pressed(payload=bad)),
            storage.occurrences.emit(pressed(source=bad)),
            storage.triggers.register(trigger(source=bad)),
            storage.triggers.register(trigger(target=EngineInput(kind="work", payload={"x": bad}))),
            storage.triggers.register(trigger(input_template={"x": FixedInput(value=bad)})),
        ):
            await refuse(storage, call, InvalidInput)
        with pytest.raises(InvalidInput):
            storage.triggers.source_key("t", bad)

    async def test_an_oversize_payload_is_refused(self, harness: Harness) -> None:
        """The size of an occurrence is limited, because every process that it starts gets a copy."""
        storage = await harness.open()
        await refuse(storage, storage.occurrences.emit(pressed(payload=_BIG)), InvalidInput, "262,144", "'1'")

    @pytest.mark.parametrize("revision", [0, -1, True, "1", None, 2**63])
    async def test_a_bad_revision_is_refused(self, harness: Harness, revision: Any) -> None:  # noqa: ANN401
        """A revision is a positive number."""
        storage = await harness.open()
        await subscribed(storage)
        triggers = storage.triggers
        for call in (
            triggers.update(trigger(), revision=revision),
            triggers.enable(HOST, "k", revision=revision),
            triggers.disable(HOST, "k", revision=revision),
            triggers.delete(HOST, "k", revision=revision),
        ):
            await refuse(storage, call, InvalidInput)

    async def test_other_things_are_refused(self, harness: Harness) -> None:
        """Arguments of another type are refused."""
        storage = await harness.open()
        nothing: Any = None
        for call in (
            storage.triggers.register(nothing),
            storage.triggers.update(nothing, revision=1),
            storage.occurrences.emit(nothing),
            storage.occurrences.prune(before_ms=nothing),
            storage.occurrences.prune(before_ms=1, limit=0),
            storage.triggers.prune_receipts(before_ms=nothing),
            storage.triggers.prune_receipts(before_ms=1, limit=1_001),
        ):
            await refuse(storage, call, InvalidInput)

    async def test_what_is_only_just_allowed(self, harness: Harness) -> None:
        """Names of full length and with unusual characters work, and so do values at the limits."""
        storage = await harness.open()
        key, kind, name = "🔑" * 255, "t" * 128, storage.triggers.source_key("t" * 128, {"x": "\0"})
        draft = trigger(
            key, source_type=kind, source_key=name, input_template={"p" * 255: EventPointer(path="/a~1b/~0/0")}
        )
        await storage.triggers.register(draft, operation_id="o" * 255)
        request = OccurrenceRequest(
            source_type=kind, source_key=name, idempotency_key="i" * 255, payload={"a/b": {"~": ["\0 and 💥"]}}
        )
        report = await storage.occurrences.emit(request)
        assert await _inputs(storage, report.started_process_ids[0]) == {"p" * 255: "\0 and 💥"}
        assert await listed(storage, key=key) == [key]

    async def test_text_for_enums_is_the_member(self, harness: Harness) -> None:
        """A definition given as plain JSON values equals the typed definition."""
        storage = await harness.open()
        recovery: Any = "owner_bound"
        first = await storage.triggers.register(trigger(recovery=recovery))
        again = await storage.triggers.register(trigger(recovery=Recovery.OWNER_BOUND))
        assert (again.created, again.subscription) == (False, first.subscription)
        assert isinstance(first.subscription.definition, TriggerDraft)


async def _inputs(storage: Storage, process_id: str) -> object:
    record = await storage.processes.get(process_id)
    assert record is not None
    assert isinstance(record.registration.input, EngineInput)
    assert isinstance(record.registration.input.payload, dict)
    return record.registration.input.payload["args"]

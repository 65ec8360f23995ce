"""The contract of the process registry: registration, requests, wait state, and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest

from lash.errors import InvalidInput, ProcessNotFound, ProcessTerminal, RegistrationConflict
from lash.model.causal import ProcessCause
from lash.model.lease import process_resource
from lash.model.process.event import EventType, Pointer, TerminalState
from lash.model.process.process import (
    Abandonment,
    EngineInput,
    ExternalInput,
    ExternalRef,
    ProcessIdentity,
    ProcessStatus,
    Projection,
    Provenance,
    Recovery,
    Registration,
    SessionOriginator,
    SessionTurnInput,
    ToolCallInput,
)
from lash.model.session.session import Durability
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import listed, log, opened, refuse, world
from tests.contract.test_event import nested
from tests.factories.process import (
    DONE,
    GO,
    NOTE,
    ending,
    event,
    external,
    granted,
    process,
    process_lease,
    registered,
    scope,
    stored,
    wait,
)
from tests.factories.session import owner

TURN: Final = SessionTurnInput(create_request={"plugins": ["a"]}, turn_input={"text": "hi"})
CALL: Final = ToolCallInput(call_id="c", tool_id="t", tool_name="search", arguments={"q": [1, None]})
ELSEWHERE: Final = ExternalRef(backend="queue", id="job-7", metadata={"shard": 3})


def _changed(base: Registration, **changes: Any) -> Registration:  # noqa: ANN401 - wrong types are the point
    return msgspec.structs.replace(base, **changes)


OTHERWISE: Final[dict[str, dict[str, Any]]] = {
    "input": {"input": EngineInput(kind="work", payload={"k": 2})},
    "identity": {"identity": ProcessIdentity(kind="work", label="another")},
    "one more event type": {"event_types": (NOTE, GO, EventType(name="more"))},
    "event types in another order": {"event_types": (GO, NOTE)},
    "cause": {"provenance": Provenance(caused_by=ProcessCause(process_id="parent"))},
    "originator": {"provenance": Provenance(originator=SessionOriginator(scope=scope("s")))},
    "environment": {"environment_ref": "another"},
    "wake target": {"wake_session_id": "another"},
    "recovery": {"recovery": Recovery.OWNER_BOUND},
}
"""Changes that make it another registration."""

BAD_REGISTRATIONS: Final[dict[str, dict[str, Any]]] = {
    "engine without an environment": {"environment_ref": None},
    "tool call without an environment": {"input": CALL, "environment_ref": None},
    "external with an environment": {"input": ExternalInput()},
    "session turn with an environment": {"input": TURN},
    "blank environment": {"environment_ref": " "},
    "blank event type": {"event_types": (EventType(name=" "),)},
    "event type twice": {"event_types": (NOTE, GO, NOTE)},
    "a core name": {"event_types": (EventType(name="process.completed"),)},
    "failure without output": {"event_types": (ending("bad", TerminalState.FAILED),)},
    "cancellation without output": {"event_types": (ending("bad", TerminalState.CANCELLED),)},
    "pointer without a slash": {"event_types": (ending("bad", TerminalState.FAILED, Pointer(path="a")),)},
    "invalid schema": {"event_types": (EventType(name="bad", payload_schema={"type": "nonsense"}),)},
    "input of another type": {"input": {"type": "engine"}},
    "external recovery of a worker's process": {"recovery": Recovery.EXTERNAL},
    "recovery unknown": {"recovery": "maybe"},
    "blank wake target": {"wake_session_id": ""},
    "payload too deep": {"input": EngineInput(kind="work", payload=nested(101))},
    "payload with NaN": {"input": EngineInput(kind="work", payload=[float("nan")])},
    "kind too long": {"identity": ProcessIdentity(kind="k" * 256)},
    "label with NUL": {"identity": ProcessIdentity(kind="k", label="a\0b")},
}
"""Changes that make a registration invalid."""


BY_ID: Final[tuple[Callable[[Storage, str], Awaitable[object]], ...]] = (
    lambda storage, process_id: storage.processes.complete(process_id, DONE),
    lambda storage, process_id: storage.processes.abandon(process_id, Abandonment(message="m")),
    lambda storage, process_id: storage.processes.request_cancel(process_id),
    lambda storage, process_id: storage.processes.request_abandon(process_id),
    lambda storage, process_id: storage.processes.set_external_ref(process_id, ELSEWHERE),
    lambda storage, process_id: storage.processes.set_wait(process_id, wait()),
    lambda storage, process_id: storage.processes.clear_wait(process_id, wait()),
    lambda storage, process_id: storage.process_leases.claim(process_id, owner("w"), ttl_ms=5),
    lambda storage, process_id: storage.process_leases.holder(process_id),
    lambda storage, process_id: storage.events.append(process_id, event()),
    lambda storage, process_id: storage.events.signal(process_id, "go", signal_id="1"),
    lambda storage, process_id: storage.events.signal_at(process_id, "go", 1),
    lambda storage, process_id: storage.events.after(process_id),
    lambda storage, process_id: storage.events.recent(process_id, 5),
    lambda storage, process_id: storage.events.count_through(process_id, "note", 5),
    lambda storage, process_id: storage.events.wakes_after(process_id),
    lambda storage, process_id: storage.events.acknowledge_wake(process_id, 1),
    lambda storage, process_id: storage.grants.grant(granted("s", process_id)),
    lambda storage, process_id: storage.grants.of_process(process_id),
)
"""Calls about one process, all except its registration."""


class TestProcess:
    """Laws of registering, requesting and parking."""

    async def test_the_storage_says_what_it_keeps(self, harness: Harness) -> None:
        """A database that outlives its storages is durable, one in memory inline."""
        storage = await opened(harness)
        assert storage.durability is (Durability.DURABLE if harness.durable else Durability.INLINE)

    async def test_a_fresh_process(self, harness: Harness) -> None:
        """A fresh record is running, has no events, and both of its times are the registration's."""
        storage = await opened(harness)
        answer = await storage.processes.register(process("p", NOTE, GO, wake_session_id="s"))
        record, now = answer.record, harness.clock.now_ms()
        assert (answer.created, record.status, record.is_terminal) == (True, ProcessStatus.RUNNING, False)
        assert record.projection == Projection()
        assert (record.last_sequence, record.created_at_ms, record.updated_at_ms) == (0, now, now)
        assert (record.wake_session_id, record.registration.event_types) == ("s", (NOTE, GO))
        assert await (await harness.open()).processes.get("p") == record

    @pytest.mark.parametrize(
        ("given", "identity"),
        [
            (process(), ProcessIdentity(kind="work")),
            (process(input=CALL), ProcessIdentity(kind="tool", label="search")),
            (process(input=TURN), ProcessIdentity(kind="session_turn")),
            (external(), ProcessIdentity(kind="external")),
            (
                process(input=ExternalInput(metadata={"title": "T", "name": "N"})),
                ProcessIdentity(kind="external", label="N"),
            ),
            (process(input=ExternalInput(metadata={"label": 1, "name": "N"})), ProcessIdentity(kind="external")),
            (
                process(identity=ProcessIdentity(kind="mine", definition=[1])),
                ProcessIdentity(kind="mine", definition=[1]),
            ),
        ],
    )
    async def test_what_is_registered_comes_back(
        self, harness: Harness, given: Registration, identity: ProcessIdentity
    ) -> None:
        """Each kind of input is kept whole, and gets an identity if it has none."""
        storage = await opened(harness)
        await storage.processes.register(given)
        kept = (await stored(storage)).registration
        assert (kept.input, kept.identity, kept.event_types) == (given.input, identity, given.event_types)
        assert (kept.recovery is Recovery.EXTERNAL) is isinstance(given.input, ExternalInput)

    async def test_registering_again_changes_nothing(self, harness: Harness) -> None:
        """An equal registration returns the stored record, ended or not, whatever its key order."""
        storage = await opened(harness)
        first = await storage.processes.register(process(input=EngineInput(kind="k", payload={"a": 1, "b": 2})))
        await storage.processes.set_external_ref("p", ELSEWHERE)
        await storage.grants.grant(granted("s"))
        await harness.clock.advance(5)
        record = await storage.processes.complete("p", DONE)
        before = await world(storage)
        again = await storage.processes.register(process(input=EngineInput(kind="k", payload={"b": 2, "a": 1})))
        assert (again.created, again.record) == (False, record)
        assert again.record.registration_hash == first.record.registration_hash
        assert await world(storage) == before

    async def test_the_trace_is_not_part_of_the_registration(self, harness: Harness) -> None:
        """A retry belongs to another trace, and finds the process, which keeps the trace that it was started in."""
        storage = await opened(harness)
        traced = [process(provenance=Provenance(traceparent=each)) for each in ("00-a-b-01", "00-c-d-01", None)]
        first, *again = [await storage.processes.register(each) for each in traced]
        assert [(each.created, each.record) for each in again] == [(False, first.record)] * 2
        assert first.record.registration.provenance.traceparent == "00-a-b-01"

    @pytest.mark.parametrize("change", OTHERWISE)
    async def test_another_registration_is_a_conflict(self, harness: Harness, change: str) -> None:
        """One id stands for one registration; every part of it except the id counts."""
        storage = await opened(harness)
        base = process("p", NOTE, GO)
        await storage.processes.register(base)
        other = _changed(base, **OTHERWISE[change])
        await refuse(storage, storage.processes.register(other), RegistrationConflict, naming="p")

    async def test_registration_survives_a_cleared_wake_target(self, harness: Harness) -> None:
        """Registering again changes nothing after the session it was to wake is deleted."""
        storage = await opened(harness)
        await storage.processes.register(process(wake_session_id="s"))
        await storage.grants.detach_session("s")
        again = await storage.processes.register(process(wake_session_id="s"))
        assert (again.created, again.record.wake_session_id) == (False, None)
        assert again.record.registration.wake_session_id == "s"

    @pytest.mark.parametrize("change", BAD_REGISTRATIONS)
    async def test_a_bad_registration_leaves_nothing(self, harness: Harness, change: str) -> None:
        """A contradictory registration is refused with the reason, and no row is left; core types stay as they are."""
        storage = await opened(harness)
        bad = _changed(process(), **BAD_REGISTRATIONS[change])
        await refuse(storage, storage.processes.register(bad), InvalidInput, naming="p")
        assert await storage.processes.get("p") is None

    @pytest.mark.parametrize("process_id", ["", " \n", "x" * 256, "a\0b", "\ud800", 5, None])
    async def test_a_bad_id_is_refused_everywhere(self, harness: Harness, process_id: Any) -> None:  # noqa: ANN401
        """An invalid id is refused by every call that takes one."""
        storage = await opened(harness)
        await registered(storage, "held")
        fence = process_lease(await storage.process_leases.claim("held", owner("w"), ttl_ms=100)).fence
        calls = [
            storage.processes.register(_changed(process(), process_id=process_id)),
            storage.processes.get(process_id),
            *(call(storage, process_id) for call in BY_ID),
            storage.process_leases.renew(
                msgspec.structs.replace(fence, resource=process_resource(process_id)), ttl_ms=1
            ),
        ]
        for call in calls:
            await refuse(storage, call, InvalidInput)

    @pytest.mark.parametrize("number", range(19))
    async def test_an_unknown_process_is_named(self, harness: Harness, number: int) -> None:
        """Every call about a process that never existed raises an error with its id."""
        storage = await opened(harness)
        await registered(storage, "other")
        assert len(BY_ID) == 19
        await refuse(storage, BY_ID[number](storage, "never"), ProcessNotFound, naming="never")
        assert await storage.processes.get("never") is None

    async def test_one_registration_wins_many_times(self, harness: Harness) -> None:
        """Concurrent equal registrations all return one record, and one of them created it."""
        storages = [await harness.open() for _ in range(3)]
        for attempt in range(4):
            answers = await asyncio.gather(
                *(storages[number % 3].processes.register(process(f"p{attempt}")) for number in range(9))
            )
            assert sorted(answer.created for answer in answers) == [False] * 8 + [True]
            assert len({answer.record.registration_hash for answer in answers}) == 1
        kinds = [change.kind.value for change in (await storages[0].events.changes()).changes]
        assert kinds == ["registered"] * 4

    async def test_the_external_ref_is_an_event(self, harness: Harness) -> None:
        """The last reference counts, even after the end, and each one is in the log."""
        storage = await opened(harness)
        await registered(storage)
        assert (await storage.processes.set_external_ref("p", ELSEWHERE)).projection.external_ref == ELSEWHERE
        await storage.processes.complete("p", DONE)
        other = ExternalRef(backend="b", id="2")
        assert (await storage.processes.set_external_ref("p", other)).projection.external_ref == other
        types = [each.event_type for each in await log(storage)]
        assert types == ["process.external_ref_set", "process.completed", "process.external_ref_set"]

    async def test_requests_are_events(self, harness: Harness) -> None:
        """A request to stop is durable, recorded once per reason, and does not end the process."""
        storage = await opened(harness)
        await registered(storage)
        for reason in ("slow", "slow"):
            await storage.processes.request_cancel("p", reason=reason)
        record = await storage.processes.request_cancel("p", reason="wrong")
        assert (record.projection.cancel_requested, record.projection.cancel_reason) == (True, "wrong")
        assert (record.status, record.last_sequence) == (ProcessStatus.RUNNING, 2)
        record = await storage.processes.request_abandon("p", reason="host lost")
        assert (record.projection.abandon_requested, record.status) == (True, ProcessStatus.RUNNING)
        assert [each.payload for each in await log(storage)] == [
            {"reason": "slow"},
            {"reason": "wrong"},
            {"reason": "host lost"},
        ]

    @pytest.mark.parametrize("reason", ["x" * 4_097, "a\0b", "\ud800", None, 5])
    async def test_a_bad_reason_is_refused(self, harness: Harness, reason: Any) -> None:  # noqa: ANN401
        """A reason that is too long or not text is refused."""
        storage = await opened(harness)
        await registered(storage)
        await refuse(storage, storage.processes.request_cancel("p", reason=reason), InvalidInput)
        await refuse(storage, storage.processes.request_abandon("p", reason=reason), InvalidInput)

    async def test_a_wait_shows_and_goes(self, harness: Harness) -> None:
        """A wait round-trips, is an event, filters the list, and is gone when cleared."""
        storage = await opened(harness)
        await registered(storage, "a", "b")
        parked = wait()
        assert (await storage.processes.set_wait("a", parked)).projection.wait == parked
        assert (await storage.processes.set_wait("a", parked)).last_sequence == 1
        assert await listed(storage, waiting=True) == ["a"]
        assert await listed(storage, waiting=False) == ["b"]
        assert await listed(storage, status=ProcessStatus.RUNNING) == ["b", "a"]
        assert (await storage.processes.clear_wait("a", parked)).projection.wait is None
        assert await listed(storage, waiting=True) == []
        assert [each.event_type for each in await log(storage, "a")] == ["process.waiting", "process.resumed"]

    async def test_an_ended_process_cannot_be_parked(self, harness: Harness) -> None:
        """The end clears the wait; afterwards parking is refused and clearing is not."""
        storage = await opened(harness)
        await registered(storage)
        await storage.processes.set_wait("p", wait())
        assert (await storage.processes.complete("p", DONE)).projection.wait is None
        await refuse(storage, storage.processes.set_wait("p", wait(ordinal=2)), ProcessTerminal, naming="p")
        assert (await storage.processes.clear_wait("p", wait())).projection.wait is None

    async def test_what_one_storage_wrote_another_sees(self, harness: Harness) -> None:
        """Record, events and grants are visible through another storage, and keyed replay works there."""
        one, other = await harness.open(), await harness.open()
        await one.processes.register(process())
        first = await one.events.append("p", event(payload=1, key="k"))
        await one.grants.grant(granted("s"))
        again = await other.events.append("p", event(payload=1, key="k"))
        assert (again.replayed, again.event) == (True, first.event)
        assert await world(other) == await world(one)
        assert await other.grants.has(scope("s"), "p")

    async def test_everything_survives_reopening(self, harness: Harness) -> None:
        """A process that never ran is on the work list of the next storage, with its whole state."""
        storage = await opened(harness)
        await registered(storage)
        await storage.events.append("p", event(payload={"x": 1}))
        before = await world(storage)
        again = await harness.reopen()
        assert await world(again) == before
        assert [record.process_id for record in await again.processes.runnable()] == ["p"]

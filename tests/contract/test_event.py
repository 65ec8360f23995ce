"""The contract of process logs: appends, replays, reads and signals."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from lash.errors import EventConflict, InvalidInput
from lash.model.process.event import Constant, EventDraft, EventType, Pointer, TerminalState
from lash.model.process.process import ProcessStatus
from lash.model.value import JSON
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import check_logs, log, opened, refuse, world
from tests.factories.process import (
    COUNT,
    DONE,
    GO,
    NEWS,
    NOTE,
    STOP,
    ending,
    event,
    external,
    process,
    registered,
    stored,
    wait,
    waking,
)


def nested(depth: int) -> JSON:
    """Return JSON nested this deep."""
    value: JSON = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


BAD_EVENTS: Final[dict[str, Any]] = {
    "undeclared": event("unheard"),
    "undeclared with the name of a method": event("__class__"),
    "wrong type in the payload": event("count", {"n": "1"}),
    "float instead of an integer": event("count", {"n": 1.5}),
    "property missing": event("count", {}),
    "extra property": event("count", {"n": 1, "m": 2}),
    "payload missing": event("count"),
    "pointer of a wake that finds nothing": event("news", {"txt": "x"}),
    "pointer into a number": event("news", 5),
    "pointer of a condition that finds nothing": event("maybe", {}),
    "pointer of a key that finds nothing": event("keyed", {"text": "x"}),
    "pointer of an end that finds nothing": event("end", {}, key="k"),
    "end without a key": event("end", {"why": 1}),
    "core end without a key": event("process.completed", {"outcome": {"type": "success"}}),
    "cancel request without a key": event("process.cancel_requested", {"reason": "r"}),
    "invalid wait": event("process.waiting", {"wait": {"name": "go"}}),
    "invalid owner": event("process.started", {"owner": 5}),
    "invalid reference": event("process.external_ref_set", {"backend": 1}),
}
"""Events that a process with the types of `TYPES` refuses; the message names the process."""

TYPES: Final[tuple[EventType, ...]] = (
    NOTE,
    COUNT,
    NEWS,
    waking("maybe", Constant(value="x"), when=Pointer(path="/when")),
    waking("keyed", Pointer(path="/text"), dedupe_key=Pointer(path="/key")),
    ending("end", TerminalState.FAILED, Pointer(path="/why")),
)

BAD_DRAFTS: Final[dict[str, Any]] = {
    "no draft": None,
    "a mapping": {"event_type": "note"},
    "type of another type": EventDraft(event_type=5),  # type: ignore[arg-type]
    "blank type": event(" "),
    "type too long": event("x" * 256),
    "key too long": event(key="x" * 256),
    "blank key": event(key=""),
    "key with NUL": event(key="a\0b"),
    "target too long": event(wake="x" * 256),
    "payload too deep": event(payload=nested(101)),
    "payload far too deep": event(payload=nested(100_000)),
    "NaN": event(payload=[float("nan")]),
    "huge number": event(payload=2**64),
    "set": event(payload={1, 2}),  # type: ignore[arg-type]
    "number as key": event(payload={1: 2}),  # type: ignore[dict-item]
    "lone surrogate": event(payload="\ud800"),
}
"""Values that are not events."""


class TestEvent:
    """Laws of appending and reading."""

    async def test_numbers_begin_at_one_and_leave_no_gap(self, harness: Harness) -> None:
        """Each log counts from 1; without a key every append is a new event."""
        storage = await opened(harness)
        await registered(storage, "a", "b")
        numbers = []
        for turn in range(6):
            await harness.clock.advance(1)
            appended = await storage.events.append("ab"[turn % 2], event(payload="same"))
            assert (appended.event.occurred_at_ms, appended.replayed) == (harness.clock.now_ms(), False)
            assert (await stored(storage, "ab"[turn % 2])).updated_at_ms == harness.clock.now_ms()
            numbers.append(appended.event.sequence)
        assert numbers == [1, 1, 2, 2, 3, 3]

    async def test_an_event_comes_back_as_it_was_appended(self, harness: Harness) -> None:
        """Number, type, payload, key and time are kept; the author is derived, not stored."""
        storage = await opened(harness)
        await registered(storage)
        payloads: list[JSON] = [None, True, 0, -1.5, "", "\0\uffff é", [], {}, {"a": [1, {"b": None}]}, nested(90)]
        for number, payload in enumerate(payloads):
            appended = await storage.events.append("p", event(payload=payload, key=f"k{number}"))
            kept = (await (await harness.open()).events.after("p", number))[0]
            assert kept == appended.event
            assert (kept.process_id, kept.sequence, kept.event_type) == ("p", number + 1, "note")
            assert (kept.payload, kept.replay_key, kept.wake) == (payload, f"k{number}", None)

    async def test_a_known_key_returns_the_first_event(self, harness: Harness) -> None:
        """Repeating a keyed append returns the first event and writes nothing, not even a time."""
        storage = await opened(harness)
        await registered(storage)
        first = await storage.events.append("p", event(payload={"a": 1, "b": 2}, key="k"))
        await storage.events.append("p", event())
        await harness.clock.advance(9)
        before = await world(storage)
        again = await storage.events.append("p", event(payload={"b": 2, "a": 1}, key="k"))
        assert (again.replayed, again.event) == (True, first.event)
        assert await world(storage) == before

    @pytest.mark.parametrize(
        "other", [event(payload=2, key="k"), event("count", 1, key="k"), event("unheard", key="k")]
    )
    async def test_a_key_stands_for_one_event(self, harness: Harness, other: EventDraft) -> None:
        """Other content or another type under a known key is a conflict, before any other check."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NOTE, COUNT))
        await storage.events.append("p", event(payload=1, key="k"))
        await refuse(storage, storage.events.append("p", other), EventConflict, naming="p")

    async def test_a_replay_comes_before_the_end(self, harness: Harness) -> None:
        """A known key is answered after the end as before, and other events may follow the end."""
        storage = await opened(harness)
        await registered(storage)
        first = await storage.events.append("p", event(payload=1, key="k"))
        ended = await storage.processes.complete("p", DONE)
        assert (await storage.events.append("p", event(payload=1, key="k"))).event == first.event
        assert (await storage.events.append("p", event(payload=2))).event.sequence == 3
        assert (await stored(storage)).projection == ended.projection

    async def test_keys_belong_to_one_process(self, harness: Harness) -> None:
        """The same key in another process is another key."""
        storage = await opened(harness)
        await registered(storage, "a", "b")
        answers = [await storage.events.append(name, event(payload=name, key="k")) for name in "ab"]
        assert [(answer.replayed, answer.event.payload) for answer in answers] == [(False, "a"), (False, "b")]

    @pytest.mark.parametrize("bad", BAD_EVENTS)
    async def test_a_bad_event_leaves_nothing(self, harness: Harness, bad: str) -> None:
        """An event that its process does not accept is refused with the process's name, and no row is written."""
        storage = await opened(harness)
        await storage.processes.register(process("p", *TYPES, wake_session_id="s"))
        await storage.events.append("p", event())
        await refuse(storage, storage.events.append("p", BAD_EVENTS[bad]), InvalidInput, naming="p")

    @pytest.mark.parametrize("bad", BAD_DRAFTS)
    async def test_what_is_no_event_is_refused(self, harness: Harness, bad: str) -> None:
        """A draft that could not be read back is refused before it is written."""
        storage = await opened(harness)
        await registered(storage)
        await refuse(storage, storage.events.append("p", BAD_DRAFTS[bad]), InvalidInput)

    async def test_core_events_are_declared_everywhere(self, harness: Harness) -> None:
        """Every process accepts the core events, even one that declares no types."""
        storage = await opened(harness)
        await storage.processes.register(external())
        await storage.events.append("p", event("process.cancel_requested", {"reason": None}, key="c"))
        assert (await stored(storage)).projection.cancel_requested
        await storage.events.append("p", event("process.completed", {"outcome": 5}, key="e"))
        assert (await stored(storage)).status is ProcessStatus.COMPLETED

    async def test_reading_a_log(self, harness: Harness) -> None:
        """After, recent and count agree with the log, by type too, at and beyond its ends."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NOTE, GO))
        for number in range(1, 8):
            await storage.events.append("p", event("note" if number % 3 else "signal.go", number))
        assert _numbers(await storage.events.after("p")) == [1, 2, 3, 4, 5, 6, 7]
        assert _numbers(await storage.events.after("p", 5)) == [6, 7]
        assert _numbers(await storage.events.after("p", 2, limit=2)) == [3, 4]
        assert _numbers(await storage.events.after("p", 3, event_type="signal.go")) == [6]
        assert _numbers(await storage.events.after("p", event_type="note", limit=3)) == [1, 2, 4]
        assert await storage.events.after("p", 2**63 - 1) == ()
        assert _numbers(await storage.events.recent("p", 3)) == [5, 6, 7]
        assert _numbers(await storage.events.recent("p", 1_000)) == [1, 2, 3, 4, 5, 6, 7]
        counts = [await storage.events.count_through("p", "signal.go", bound) for bound in (0, 2, 3, 6, 2**63 - 1)]
        assert counts == [0, 0, 1, 2, 2]
        assert await storage.events.count_through("p", "absent", 7) == 0

    async def test_the_last_numbers_of_many_logs(self, harness: Harness) -> None:
        """One call returns the last number of each of many logs; a process that never existed has no entry."""
        storage = await opened(harness)
        await registered(storage, "a", "b", "c")
        for _ in range(3):
            await storage.events.append("b", event())
        assert await storage.events.last_sequences(["c", "b", "never"]) == {"b": 3, "c": 0}
        assert await storage.events.last_sequences([]) == {}

    async def test_a_bad_reading_is_refused(self, harness: Harness) -> None:
        """Numbers and sizes out of range are refused, not clamped."""
        storage = await opened(harness)
        await registered(storage)
        events = storage.events
        for call in (
            events.after("p", -1),
            events.after("p", 2**63),
            events.after("p", limit=0),
            events.after("p", limit=1_001),
            events.after("p", event_type=""),
            events.recent("p", 0),
            events.count_through("p", "note", -1),
            events.wakes_after("p", -1),
            events.acknowledge_wake("p", 0),
            events.changes("nonsense"),
            events.changes(limit=0),
            events.undeliverable_wakes(limit=0),
            events.signal_at("p", "go", 0),
        ):
            await refuse(storage, call, InvalidInput)

    async def test_racing_appends_are_numbered_one_by_one(self, harness: Harness) -> None:
        """Concurrent appends from several storages get the numbers from 1 to their count."""
        storages = [await harness.open() for _ in range(4)]
        await registered(storages[0])
        answers = await asyncio.gather(
            *(storages[each % 4].events.append("p", event(payload=each)) for each in range(40))
        )
        assert sorted(answer.event.sequence for answer in answers) == list(range(1, 41))
        assert {(answer.event.sequence, answer.event.payload) for answer in answers} == {
            (each.sequence, each.payload) for each in await log(storages[0])
        }
        await check_logs(storages[0])

    async def test_racing_appends_of_one_key_are_one_event(self, harness: Harness) -> None:
        """Concurrent appends under one key write one event, and all return it."""
        storages = [await harness.open() for _ in range(4)]
        await registered(storages[0])
        answers = await asyncio.gather(
            *(storages[each % 4].events.append("p", event(payload=1, key="k")) for each in range(20))
        )
        assert sorted(answer.replayed for answer in answers) == [False] + [True] * 19
        assert await log(storages[1]) == (answers[0].event,)

    async def test_a_payload_that_is_too_large_is_refused(self, harness: Harness) -> None:
        """An oversize payload is refused with the process's name, and nothing is written."""
        storage = await opened(harness)
        await registered(storage)
        draft = event(payload="x" * 1_100_000)
        await refuse(storage, storage.events.append("p", draft), InvalidInput, naming="p")


class TestSignal:
    """Laws of signals: the log decides."""

    async def test_the_kth_wait_gets_the_kth_signal(self, harness: Harness) -> None:
        """Signals of a name are numbered in the order of the log, independent of other names."""
        storage = await _signalled(harness)
        for number, name in enumerate(("go", "stop", "go", "go", "stop")):
            payload = f"{name}{number}"
            await storage.events.signal("p", name, signal_id=f"id{number}", payload=payload)
        assert [await _payload(storage, "go", ordinal) for ordinal in (1, 2, 3, 4)] == ["go0", "go2", "go3", None]
        assert [await _payload(storage, "stop", ordinal) for ordinal in (1, 2, 3)] == ["stop1", "stop4", None]

    async def test_two_waits_take_two_signals(self, harness: Harness) -> None:
        """Signals sent before, during or in a burst around their waits are all received, in order."""
        storage = await _signalled(harness)
        await storage.events.signal("p", "go", signal_id="early", payload=1)
        await storage.processes.set_wait("p", wait(ordinal=1))
        assert await _payload(storage, "go", 1) == 1
        await storage.processes.clear_wait("p", wait(ordinal=1))
        await storage.processes.set_wait("p", wait(ordinal=2))
        assert await _payload(storage, "go", 2) is None
        await asyncio.gather(*(storage.events.signal("p", "go", signal_id=f"b{each}", payload=2) for each in range(3)))
        assert (await stored(storage)).projection.wait == wait(ordinal=2)
        assert [await _payload(storage, "go", ordinal) for ordinal in (2, 3, 4, 5)] == [2, 2, 2, None]
        await storage.processes.clear_wait("p", wait(ordinal=2))
        parking = [each.event_type for each in await log(storage) if not each.event_type.startswith("signal")]
        assert parking == ["process.waiting", "process.resumed"] * 2

    async def test_one_id_is_one_signal(self, harness: Harness) -> None:
        """A signal sent twice with the same id and payload is delivered once; another payload is a conflict."""
        storage = await _signalled(harness)
        first = await storage.events.signal("p", "go", signal_id="1", payload=[1])
        again = await storage.events.signal("p", "go", signal_id="1", payload=[1])
        assert (again.replayed, again.event) == (True, first.event)
        other = storage.events.signal("p", "go", signal_id="1", payload=[2])
        await refuse(storage, other, EventConflict, naming="p")
        await storage.events.signal("p", "stop", signal_id="1", payload="x")
        assert len(await log(storage)) == 2

    @pytest.mark.parametrize(
        ("name", "payload"), [("unheard", None), ("stop", 5), ("", None), ("a b", None), ("ä", None), (5, None)]
    )
    async def test_a_bad_signal_leaves_the_wait(self, harness: Harness, name: Any, payload: JSON) -> None:  # noqa: ANN401
        """An undeclared name or an invalid payload is refused, and the process keeps waiting."""
        storage = await _signalled(harness)
        await storage.processes.set_wait("p", wait("stop"))
        await refuse(storage, storage.events.signal("p", name, signal_id="1", payload=payload), InvalidInput)
        assert (await stored(storage)).projection.wait == wait("stop")

    @pytest.mark.parametrize("signal_id", ["", " ", "x" * 256, None])
    async def test_a_bad_signal_id_is_refused(self, harness: Harness, signal_id: Any) -> None:  # noqa: ANN401
        """An invalid signal id is refused."""
        storage = await _signalled(harness)
        await refuse(storage, storage.events.signal("p", "go", signal_id=signal_id), InvalidInput)

    async def test_long_ids_keep_apart(self, harness: Harness) -> None:
        """Ids of full length that differ in their last letter are different signals."""
        storage = await opened(harness)
        name = "p" * 255
        await storage.processes.register(process(name, GO))
        for last in "abab":
            await storage.events.signal(name, "go", signal_id="x" * 254 + last, payload=last)
        assert [each.payload for each in await log(storage, name)] == ["a", "b"]

    async def test_a_signal_may_come_after_the_end(self, harness: Harness) -> None:
        """A signal to an ended process is kept and changes nothing else."""
        storage = await _signalled(harness)
        ended = await storage.processes.complete("p", DONE)
        await storage.events.signal("p", "go", signal_id="late")
        assert (await stored(storage)).projection == ended.projection


def _numbers(events: tuple[Any, ...]) -> list[int]:
    return [each.sequence for each in events]


async def _signalled(harness: Harness) -> Storage:
    storage = await opened(harness)
    await storage.processes.register(process("p", GO, STOP))
    return storage


async def _payload(storage: Storage, name: str, ordinal: int) -> JSON:
    found = await storage.events.signal_at("p", name, ordinal)
    return None if found is None else found.payload

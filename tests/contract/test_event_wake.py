"""The contract of wakes: one message to a session per wake of its processes, neither lost nor doubled."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from lash.errors import ProcessPruned
from lash.model.causal import ProcessEventCause
from lash.model.process.event import (
    Constant,
    EventType,
    Pointer,
    Present,
    Template,
    WakeRecord,
    WakeState,
    WholePayload,
)
from lash.model.queue import Batch, Delivery, ProcessWake, Slot
from lash.model.value import JSON
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import log, opened, world
from tests.factories.process import DONE, NEWS, consume, event, news, process, waking
from tests.factories.session import created

INPUTS: Final[tuple[tuple[EventType, JSON, str], ...]] = (
    (waking("w", WholePayload()), {"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
    (waking("w", WholePayload()), "as it is", "as it is"),
    (waking("w", Constant(value="always")), 5, "always"),
    (waking("w", Pointer(path="/a/1")), {"a": ["x", "y"]}, "y"),
    (waking("w", Pointer(path="/a~1b/~0")), {"a/b": {"~": "escaped"}}, "escaped"),
    (waking("w", Pointer(path="/n")), {"n": None}, "null"),
    (
        waking("w", Template(template="PR #{n}: {who}", fields={"n": Pointer(path="/n"), "who": Pointer(path="/who")})),
        {"n": 7, "who": "{n}"},
        "PR #7: {n}",
    ),
)
"""A type, a payload, and the input that the session gets."""

CONDITIONS: Final[tuple[tuple[JSON, bool], ...]] = (
    (None, False),
    (False, False),
    ("", False),
    ([], False),
    ({}, False),
    (True, True),
    (0, True),
    ("no", True),
    ([None], True),
)


class TestWake:
    """Laws of wakes and their delivery."""

    @pytest.mark.parametrize(("declared", "payload", "received"), INPUTS)
    async def test_the_input_is_what_the_type_selects(
        self, harness: Harness, declared: EventType, payload: JSON, received: str
    ) -> None:
        """Text is passed on unchanged, other values as compact JSON, a template in one pass."""
        storage = await _woken(harness, declared)
        appended = await storage.events.append("p", event("w", payload))
        assert appended.wake is not None
        assert appended.wake.wake.input == received
        (payload_of_batch,) = _payloads(await storage.queue.list("s"))
        assert payload_of_batch.input == received

    async def test_a_wake_is_queued_with_its_event(self, harness: Harness) -> None:
        """The batch carries event type, process, number and cause; it is early work and claimed alone."""
        storage = await _woken(harness, NEWS)
        appended = await storage.events.append("p", news("hello"))
        wake = appended.wake
        assert wake is not None
        assert (wake.process_id, wake.sequence, wake.event_type, wake.state) == ("p", 1, "news", WakeState.QUEUED)
        assert appended.event.wake == wake.wake
        assert (wake.wake.target_session_id, wake.wake.dedupe_key) == ("s", "p:1")
        (batch,) = await storage.queue.list("s")
        assert (batch.batch_id, batch.delivery, batch.slot) == (
            wake.batch_id,
            Delivery.EARLIEST_SAFE_BOUNDARY,
            Slot.EXCLUSIVE,
        )
        cause = ProcessEventCause(process_id="p", sequence=1)
        assert batch.payloads == (
            ProcessWake(
                wake_id=wake.wake.wake_id, process_id="p", sequence=1, event_type="news", input="hello", caused_by=cause
            ),
        )

    @pytest.mark.parametrize(("value", "wakes"), CONDITIONS)
    async def test_a_condition_decides(self, harness: Harness, value: JSON, wakes: bool) -> None:  # noqa: FBT001
        """A condition that selects null, false or an empty value wakes nothing; every number wakes."""
        storage = await _woken(harness, waking("w", Constant(value="x"), when=Pointer(path="/when")))
        appended = await storage.events.append("p", event("w", {"when": value}))
        assert (appended.wake is not None, len(await storage.queue.list("s"))) == (wakes, int(wakes))
        assert appended.event.sequence == 1

    async def test_presence_is_a_condition(self, harness: Harness) -> None:
        """A present value wakes, null included; a missing one does not."""
        storage = await _woken(harness, waking("w", Constant(value="x"), when=Present(path="/a")))
        payloads: list[JSON] = [{"a": None}, {"b": 1}, {"a": 1}]
        appended = [await storage.events.append("p", event("w", payload)) for payload in payloads]
        assert [answer.wake is not None for answer in appended] == [True, False, True]

    async def test_without_a_key_each_event_is_a_wake(self, harness: Harness) -> None:
        """Equal events without a key are two wakes, each named after its event."""
        storage = await _woken(harness, NEWS)
        wakes = [(await storage.events.append("p", news("same"))).wake for _ in range(2)]
        assert [wake and (wake.state, wake.wake.dedupe_key) for wake in wakes] == [
            (WakeState.QUEUED, "p:1"),
            (WakeState.QUEUED, "p:2"),
        ]
        assert len({wake.wake.wake_id for wake in wakes if wake}) == 2
        assert len(await storage.queue.list("s")) == 2

    @pytest.mark.parametrize("key", [Pointer(path="/key"), Constant(value="k")])
    async def test_equal_keys_are_one_wake(self, harness: Harness, key: Pointer | Constant) -> None:
        """Wakes with one key to one session are one, across events and processes; the first stays."""
        storage = await _woken(harness, waking("w", Pointer(path="/text"), dedupe_key=key))
        declared = waking("w", Pointer(path="/text"), dedupe_key=key)
        await storage.processes.register(process("q", declared, wake_session_id="s"))
        wakes: list[WakeRecord] = []
        for name, text in (("p", "first"), ("p", "second"), ("q", "third")):
            appended = await storage.events.append(name, event("w", {"text": text, "key": "k"}))
            assert appended.wake is not None
            wakes.append(appended.wake)
        assert [wake.state for wake in wakes] == [WakeState.QUEUED, WakeState.MERGED, WakeState.MERGED]
        assert {(wake.wake.wake_id, wake.batch_id, wake.wake.dedupe_key) for wake in wakes} == {
            (wakes[0].wake.wake_id, wakes[0].batch_id, "k")
        }
        assert [payload.input for payload in _payloads(await storage.queue.list("s"))] == ["first"]

    async def test_a_key_counts_for_one_session(self, harness: Harness) -> None:
        """The same key to another session is another wake, and a key is never mistaken for an event."""
        storage = await _woken(harness, NEWS, waking("w", Constant(value="x"), dedupe_key=Pointer(path="/key")))
        await created(storage, "other")
        drafts = (
            news(),
            event("w", {"key": "p:1"}),
            event("w", {"key": "p:1"}, wake="other"),
        )
        appended = [await storage.events.append("p", draft) for draft in drafts]
        assert [answer.wake and answer.wake.state for answer in appended] == [WakeState.QUEUED] * 3

    async def test_a_replay_returns_the_first_wake(self, harness: Harness) -> None:
        """Repeating a keyed append enqueues nothing, before and after the wake was consumed."""
        storage = await _woken(harness, NEWS)
        first = await storage.events.append("p", news(key="k"))
        again = await storage.events.append("p", news(key="k"))
        assert (again.event, again.wake, again.replayed) == (first.event, first.wake, True)
        assert len(await storage.queue.list("s")) == 1
        await consume(storage)
        late = await storage.events.append("p", news(key="k"))
        assert (late.event, late.wake and late.wake.state) == (first.event, WakeState.ACKNOWLEDGED)
        assert await storage.queue.list("s") == ()

    async def test_racing_replays_wake_once(self, harness: Harness) -> None:
        """Concurrent appends of one key, and of one wake key, leave one batch."""
        storages = [await harness.open() for _ in range(4)]
        await created(storages[0])
        declared = waking("w", Constant(value="x"), dedupe_key=Constant(value="k"))
        await storages[0].processes.register(process("p", NEWS, declared, wake_session_id="s"))
        await asyncio.gather(*(storages[each % 4].events.append("p", news(key="k")) for each in range(12)))
        answers = await asyncio.gather(*(storages[each % 4].events.append("p", event("w")) for each in range(12)))
        states = sorted(answer.wake.state.value for answer in answers if answer.wake is not None)
        assert states == ["merged"] * 11 + ["queued"]
        assert len(await storages[0].queue.list("s")) == 2

    async def test_consuming_acknowledges(self, harness: Harness) -> None:
        """A commit that consumes the batch acknowledges its wake; a claim alone does not."""
        storage = await _woken(harness, NEWS)
        await storage.events.append("p", news("one"))
        await storage.events.append("p", news("two"))
        assert [wake.sequence for wake in await storage.events.wakes_after("p")] == [1, 2]
        assert [wake.sequence for wake in await storage.events.wakes_after("p", 1)] == [2]
        (batch,) = await consume(storage)
        assert _payloads((batch,))[0].input == "one"
        assert [wake.sequence for wake in await storage.events.wakes_after("p")] == [2]
        await consume(storage)
        assert await storage.events.wakes_after("p") == ()

    async def test_a_consumed_key_stays_told(self, harness: Harness) -> None:
        """After the batch of a key was consumed, another wake with that key enqueues nothing."""
        storage = await _woken(harness, waking("w", Constant(value="x"), dedupe_key=Constant(value="k")))
        await storage.events.append("p", event("w"))
        await consume(storage)
        late = await storage.events.append("p", event("w"))
        assert late.wake is not None
        assert late.wake.state is WakeState.MERGED
        assert await storage.queue.list("s") == ()

    async def test_a_wake_without_a_target_is_kept(self, harness: Harness) -> None:
        """Without a target the event is stored, its wake is open, and nothing is undeliverable."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NEWS))
        appended = await storage.events.append("p", news())
        assert appended.wake is not None
        assert (appended.wake.state, appended.wake.wake.target_session_id) == (WakeState.NO_TARGET, None)
        assert await storage.events.wakes_after("p") == (appended.wake,)
        assert await storage.events.undeliverable_wakes() == ()

    async def test_the_event_may_name_its_target(self, harness: Harness) -> None:
        """A target on the event takes precedence over that of the record."""
        storage = await _woken(harness, NEWS)
        await created(storage, "other")
        await storage.events.append("p", news("there", wake="other"))
        await storage.events.append("p", news("here"))
        assert [payload.input for payload in _payloads(await storage.queue.list("other"))] == ["there"]
        assert [payload.input for payload in _payloads(await storage.queue.list("s"))] == ["here"]

    async def test_a_wake_is_acknowledged_by_hand(self, harness: Harness) -> None:
        """An acknowledged wake is no longer open; acknowledging it again, or an unknown wake, returns False."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NEWS))
        await storage.events.append("p", news())
        assert [await storage.events.acknowledge_wake("p", 1) for _ in range(2)] == [True, False]
        assert await storage.events.acknowledge_wake("p", 2) is False
        assert await storage.events.wakes_after("p") == ()
        assert len(await log(storage)) == 1

    async def test_a_merged_wake_is_not_open(self, harness: Harness) -> None:
        """A merged wake is covered by the earlier one, so there is nothing to acknowledge."""
        storage = await _woken(harness, waking("w", Constant(value="x"), dedupe_key=Constant(value="k")))
        for _ in range(2):
            await storage.events.append("p", event("w"))
        assert [await storage.events.acknowledge_wake("p", sequence) for sequence in (2, 1)] == [False, True]

    async def test_a_cancelled_batch_is_no_open_wake(self, harness: Harness) -> None:
        """Cancelling the batch of a wake acknowledges it; its process can then be pruned."""
        storage = await _woken(harness, NEWS)
        appended = await storage.events.append("p", news())
        assert appended.wake is not None
        assert appended.wake.batch_id is not None
        assert await storage.queue.cancel("s", appended.wake.batch_id) is not None
        assert await storage.events.wakes_after("p") == ()
        await storage.processes.complete("p", DONE)
        report = await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        assert report.pruned_process_ids == ("p",)

    async def test_a_missing_session_makes_it_undeliverable(self, harness: Harness) -> None:
        """A wake to a missing session is kept and listed as undeliverable, and its event is stored."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NEWS, wake_session_id="nowhere"))
        appended = await storage.events.append("p", news())
        assert appended.wake is not None
        assert (appended.wake.state, appended.wake.batch_id) == (WakeState.UNDELIVERABLE, None)
        assert await storage.events.undeliverable_wakes() == (appended.wake,)
        assert await storage.events.wakes_after("p") == (appended.wake,)
        assert await storage.events.acknowledge_wake("p", 1)
        assert await storage.events.undeliverable_wakes() == ()

    async def test_deleting_a_session_loses_no_wake_silently(self, harness: Harness) -> None:
        """Queued wakes of a deleted session become undeliverable; acknowledged ones stay acknowledged."""
        storage = await _woken(harness, NEWS)
        await storage.events.append("p", news("read"))
        await storage.events.append("p", news("unread"))
        await consume(storage)
        await storage.sessions.delete("s")
        open_wakes = await storage.events.undeliverable_wakes()
        assert [(wake.sequence, wake.wake.input, wake.state) for wake in open_wakes] == [
            (2, "unread", WakeState.UNDELIVERABLE)
        ]
        later = await storage.events.append("p", news("later"))
        assert later.wake is not None
        assert later.wake.state is WakeState.NO_TARGET

    async def test_a_session_made_anew_is_woken(self, harness: Harness) -> None:
        """A session that was deleted and created again gets the wakes addressed to it."""
        storage = await _woken(harness, NEWS)
        await storage.events.append("p", news("before"))
        await storage.sessions.delete("s")
        await created(storage)
        await storage.events.append("p", news("after", wake="s"))
        assert [payload.input for payload in _payloads(await storage.queue.list("s"))] == ["after"]

    async def test_a_pruned_id_wakes_anew(self, harness: Harness) -> None:
        """A process that reuses a pruned id wakes its session, even with the same event numbers."""
        storage = await _woken(harness, NEWS)
        await storage.events.append("p", news("first life"))
        await consume(storage)
        await storage.processes.complete("p", DONE)
        await harness.clock.advance(1)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        with pytest.raises(ProcessPruned):
            await storage.events.wakes_after("p")
        await storage.processes.register(process("p", NEWS, wake_session_id="s"))
        appended = await storage.events.append("p", news("second life"))
        assert appended.wake is not None
        assert (appended.event.sequence, appended.wake.state) == (1, WakeState.QUEUED)
        assert [payload.input for payload in _payloads(await storage.queue.list("s"))] == ["second life"]

    async def test_a_refused_event_wakes_nobody(self, harness: Harness) -> None:
        """An append that fails leaves neither event nor batch."""
        storage = await _woken(harness, NEWS)
        await storage.events.append("p", news(key="k"))
        before = await world(storage), await storage.queue.list("s")
        for bad in (news("other", key="k"), event("news", {})):
            with pytest.raises(Exception, match="'p'"):
                await storage.events.append("p", bad)
        assert (await world(storage), await storage.queue.list("s")) == before


async def _woken(harness: Harness, *declared: EventType) -> Storage:
    """Return a storage with session ``s`` and a process ``p`` that wakes it."""
    storage = await opened(harness)
    await created(storage)
    await storage.processes.register(process("p", *declared, wake_session_id="s"))
    return storage


def _payloads(batches: tuple[Batch, ...]) -> list[ProcessWake]:
    payloads = [payload for batch in batches for payload in batch.payloads]
    assert all(isinstance(payload, ProcessWake) for payload in payloads)
    return [payload for payload in payloads if isinstance(payload, ProcessWake)]

"""Rules about processes as far as they concern sessions: an event, its wake, and the batch that delivers it."""

from __future__ import annotations

import dataclasses
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from lash.model.causal import ProcessEventCause
from lash.model.process.event import WakeState
from lash.model.process.process import Registration
from lash.model.queue import Batch, BatchState, Delivery, ProcessWake, Slot
from tests.factories.process import NEWS, news, process
from tests.proof.model.base_rules import SESSION_IDS
from tests.proof.model.kit import Refused, action
from tests.proof.model.queue_model import Item, Key
from tests.proof.model.queue_rules import QueueRules
from tests.proof.model.world import Side, World

PROCESS_IDS: Final = ("p0", "p1")
process_ids: Final = st.sampled_from((*PROCESS_IDS[:1] * 2, *PROCESS_IDS))
Appended = tuple[int, str, str | None, str, bool]
"""The number of an event, the state of its wake, the batch and the id of the wake, and whether it is a replay."""


@dataclasses.dataclass
class WakeOf:
    """The wake of one event."""

    sequence: int
    state: WakeState
    batch_id: str | None
    wake_id: str
    session: object
    """The session object it was queued for, or None."""


@dataclasses.dataclass
class Process:
    """A process that wakes a session with news."""

    target: str | None
    wakes: list[WakeOf] = dataclasses.field(default_factory=list)
    keyed: dict[str, tuple[str, WakeOf]] = dataclasses.field(default_factory=dict)


class WakeRules(QueueRules):
    """Register, append, and follow each wake."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.processes: dict[str, Process] = {}

    def prepare(self) -> None:
        super().prepare()
        self.register(PROCESS_IDS[0])

    @action(2, process_id=process_ids)
    def register(self, process_id: str) -> None:
        target = SESSION_IDS[PROCESS_IDS.index(process_id)]
        draft = process(process_id, NEWS, wake_session_id=target)
        self.step("register", lambda side: _register(side, draft), lambda _: self._registered(process_id, target))

    @action(
        5,
        process_id=process_ids,
        text=st.sampled_from("xy"),
        key=st.sampled_from((None, None, "k")),
        target=st.sampled_from((None, None, *SESSION_IDS)),
    )
    def append_news(self, process_id: str, text: str, key: str | None, target: str | None) -> None:
        appended = self.step(
            "append_news",
            lambda side: _append_news(side, process_id, text, key, target),
            lambda got: self._appended(process_id, text, key, target, got),
        )
        if appended is not None:
            self.count("append_news:replayed" if appended[4] else f"append_news:{appended[1]}")

    @action(2, process_id=process_ids)
    def look_at_open_wakes(self, process_id: str) -> None:
        self.step("wakes", lambda side: _open(side, process_id), lambda _: self._open_wakes(process_id))

    @invariant()
    def wakes_are_conserved(self) -> None:
        """Every queued wake has its batch, in the queue or among the dead letters; no other wake has one."""
        for each in self.processes.values():
            for wake in each.wakes:
                self._refresh(wake)
        waiting = {wake.batch_id for each in self.processes.values() for wake in each.wakes if _is_queued(wake)}
        queues = [self.queues.of(session_id) for session_id in self.sessions.live]
        batches = [item.batch for queue in queues for item in queue.items]
        batches += [letter.letter.batch for queue in queues for letter in queue.letters]
        assert waiting == {batch.batch_id for batch in batches if isinstance(batch.payloads[0], ProcessWake)}

    def forget_session(self, session_id: str) -> bool:
        for each in self.processes.values():
            for wake in each.wakes:
                self._refresh(wake)
                if _is_queued(wake) and wake.session is self.sessions.live.get(session_id):
                    wake.state = WakeState.UNDELIVERABLE
            # Also where no session of the id exists: deleting it revokes future wakes under the id.
            if each.target == session_id:
                each.target = None
        return super().forget_session(session_id)

    def _registered(self, process_id: str, target: str) -> str:
        # A target that is gone by now is kept anyway, as a session of that id may be created again.
        self.processes.setdefault(process_id, Process(target))
        return process_id

    def _appended(
        self, process_id: str, text: str, key: str | None, named: str | None, got: Appended | None
    ) -> Appended:
        known = self.processes.get(process_id)
        if known is None:
            raise Refused("ProcessNotFound", process_id=process_id)
        if key is not None and key in known.keyed:
            # The target of the event is not part of its content: the first one stays.
            first_text, wake = known.keyed[key]
            if first_text != text:
                raise Refused("EventConflict", process_id=process_id)
            self._refresh(wake)
            return (wake.sequence, wake.state.value, wake.batch_id, wake.wake_id, True)
        assert got is not None, "an event must be appended"
        wake = self._wake(process_id, text, known.target if named is None else named, len(known.wakes) + 1, got)
        known.wakes.append(wake)
        if key is not None:
            known.keyed[key] = (text, wake)
        return (wake.sequence, wake.state.value, wake.batch_id, wake.wake_id, False)

    def _wake(self, process_id: str, text: str, target: str | None, sequence: int, got: Appended) -> WakeOf:
        wake_id, batch_id = got[3], got[2]
        if target is None or target not in self.sessions.live:
            state = WakeState.NO_TARGET if target is None else WakeState.UNDELIVERABLE
            return WakeOf(sequence, state, None, wake_id, None)
        assert batch_id is not None, "a wake is queued with its event"
        assert self.is_new(batch_id)
        cause = ProcessEventCause(process_id=process_id, sequence=sequence)
        payload = ProcessWake(
            wake_id=wake_id, process_id=process_id, sequence=sequence, event_type="news", input=text, caused_by=cause
        )
        queue = self.queues.of(target)
        queue.items.append(Item(_batch(target, batch_id, payload, self.now_ms)))
        queue.born.add(batch_id)
        queue.keys[wake_id] = Key(batch_id, (payload,), BatchState.PENDING)
        self.touched = target
        return WakeOf(sequence, WakeState.QUEUED, batch_id, wake_id, self.sessions.live[target])

    def _refresh(self, wake: WakeOf) -> None:
        """Check whether the batch of a wake was consumed or cancelled meanwhile, which acknowledges it."""
        for session_id, state in self.sessions.live.items():
            if _is_queued(wake) and wake.session is state and wake.batch_id in self.queues.of(session_id).settled:
                wake.state = WakeState.ACKNOWLEDGED

    def _open_wakes(self, process_id: str) -> tuple[tuple[int, str], ...]:
        known = self.processes.get(process_id)
        if known is None:
            raise Refused("ProcessNotFound", process_id=process_id)
        for wake in known.wakes:
            self._refresh(wake)
        return tuple(
            (wake.sequence, wake.state.value) for wake in known.wakes if wake.state is not WakeState.ACKNOWLEDGED
        )


def _is_queued(wake: WakeOf) -> bool:
    return wake.state is WakeState.QUEUED


def _batch(session_id: str, batch_id: str, payload: ProcessWake, now_ms: int) -> Batch:
    """Return the batch of a wake; its row number is known when it is first listed."""
    return Batch(
        session_id=session_id,
        batch_id=batch_id,
        seq=0,
        payloads=(payload,),
        source_key=payload.wake_id,
        delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
        slot=Slot.EXCLUSIVE,
        merge_key=None,
        available_at_ms=0,
        enqueued_at_ms=now_ms,
        attempts=0,
    )


async def _register(side: Side, draft: Registration) -> str:
    return (await side.storage.processes.register(draft)).record.process_id


async def _append_news(side: Side, process_id: str, text: str, key: str | None, target: str | None) -> Appended:
    answer = await side.storage.events.append(process_id, news(text, key=key, wake=target))
    wake = answer.wake
    assert wake is not None
    return (answer.event.sequence, wake.state.value, wake.batch_id, wake.wake.wake_id, answer.replayed)


async def _open(side: Side, process_id: str) -> tuple[tuple[int, str], ...]:
    return tuple((wake.sequence, wake.state.value) for wake in await side.storage.events.wakes_after(process_id))

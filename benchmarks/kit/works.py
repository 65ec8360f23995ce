"""The work that is measured against bare drivers: what one call of it is, and how to see that it was done.

A work is prepared once in a storage that becomes the template; every side then does the same calls on a copy of it.
Calls of different lanes (sessions or processes) do not touch each other; those of one lane come in order.
"""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import Iterable
from typing import Protocol

import lash
from benchmarks.kit.text import prose
from lash.model.effect import Envelope, ProcessScope, Step
from lash.model.lease import Acquired, LeaseFence, LeaseOwner
from lash.model.process.event import EventDraft
from lash.model.process.process import ProcessAcquired
from lash.model.queue import BatchDraft, Boundary, Claim, TurnInput
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.usage import TokenUsage, UsageEntry
from tests.factories.process import process
from tests.factories.session import MOMENT

OWNER = LeaseOwner(owner_id="bench", incarnation_id="1")
LONG_MS = 3_600_000


class Work(Protocol):
    """One kind of call."""

    async def prepare(self, storage: lash.Storage, lanes: int, calls: int) -> None:
        """Make what the calls need."""
        ...

    async def call(self, storage: lash.Storage, lane: int, number: int) -> None:
        """Do the call of this number, from 0, in its lane."""
        ...

    async def check(self, storage: lash.Storage, lane: int, calls: int) -> None:
        """Raise AssertionError unless exactly these calls have been done, with the right content."""
        ...


def ordered_id(lane: int, number: int, part: int) -> str:
    """Return an id like those of lash: ordered by time, and the same in every run."""
    return str(uuid.UUID(int=(0x01900000_0000_7000 + number) << 64 | 0x8 << 60 | lane << 16 | part))


class CommitWork:
    """A turn: some messages of 400 characters, 2 KiB of changed state, and its tokens."""

    def __init__(self, nodes: int = 3) -> None:
        self._nodes = nodes

    async def prepare(self, storage: lash.Storage, lanes: int, calls: int) -> None:
        for lane in range(lanes):
            await storage.sessions.create(f"session-{lane:03}")
            for number in range(calls):
                commit_of(lane, number, self._nodes)

    async def call(self, storage: lash.Storage, lane: int, number: int) -> None:
        commit = commit_of(lane, number, self._nodes)
        await storage.session(commit.session_id).commit(commit)

    async def check(self, storage: lash.Storage, lane: int, calls: int) -> None:
        read = await storage.session(f"session-{lane:03}").load()
        assert read is not None
        assert read.head.revision == calls
        entries = [each.entry for each in read.graph.nodes]
        assert entries == [each.entry for number in range(calls) for each in nodes_of(lane, number, self._nodes)]


@functools.cache
def nodes_of(lane: int, number: int, count: int) -> tuple[Node, ...]:
    """Return the messages of one turn. What is sent is made before the clock starts, as it would be elsewhere."""
    parent = None if number == 0 else ordered_id(lane, number - 1, count - 1)
    nodes: list[Node] = []
    for part in range(count):
        node_id = ordered_id(lane, number, part)
        role = Role.USER if part == 0 else Role.ASSISTANT
        entry = MessageEntry(message=Message.of_text(node_id, role, prose((lane, number, part), 400)))
        nodes.append(Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry))
        parent = node_id
    return tuple(nodes)


@functools.cache
def commit_of(lane: int, number: int, nodes: int) -> Commit:
    """Return the commit of one turn."""
    state = prose((lane, number, "state"), 2048).encode()
    tokens = TokenUsage(input_tokens=1000 + number, output_tokens=200)
    return Commit(
        session_id=f"session-{lane:03}",
        expected_revision=number,
        turn_id=f"turn-{number}",
        graph=Append(nodes=nodes_of(lane, number, nodes)),
        checkpoint=CheckpointDraft(turn_state=TurnState(turn_index=number), components={"tool_state": state}),
        usage=(UsageEntry(source="turn", model="model-x", usage=tokens),),
    )


@functools.cache
def text_of(lane: int, number: int, characters: int) -> str:
    """Return the text of one call, made before the clock starts."""
    return prose((lane, number), characters)


class AppendWork:
    """An event of a process, with 1,000 characters."""

    async def prepare(self, storage: lash.Storage, lanes: int, calls: int) -> None:
        for lane in range(lanes):
            await storage.processes.register(process(f"process-{lane:03}"))
            for number in range(calls):
                text_of(lane, number, 1000)

    async def call(self, storage: lash.Storage, lane: int, number: int) -> None:
        draft = EventDraft(event_type="note", payload={"text": text_of(lane, number, 1000)}, replay_key=str(number))
        await storage.events.append(f"process-{lane:03}", draft)

    async def check(self, storage: lash.Storage, lane: int, calls: int) -> None:
        events = await storage.events.after(f"process-{lane:03}", limit=calls + 1)
        assert [event.sequence for event in events] == list(range(1, calls + 1))
        assert events[-1].payload == {"text": text_of(lane, calls - 1, 1000)}


class StepWork:
    """The recorded outcome of one step of a process under its lease, with 1,000 characters."""

    def __init__(self) -> None:
        self._fences: dict[int, LeaseFence] = {}

    async def prepare(self, storage: lash.Storage, lanes: int, calls: int) -> None:
        for lane in range(lanes):
            name = f"process-{lane:03}"
            await storage.processes.register(process(name))
            outcome = await storage.process_leases.claim(name, OWNER, ttl_ms=LONG_MS)
            assert isinstance(outcome, ProcessAcquired)
            self._fences[lane] = outcome.lease.fence
            for number in range(calls):
                text_of(lane, number, 1000)

    async def call(self, storage: lash.Storage, lane: int, number: int) -> None:
        scope = ProcessScope(process_id=f"process-{lane:03}")
        envelope = Envelope(scope=scope, replay_key=f"step:{number:06}", command=Step(name="model", input=number))
        await storage.effects.record(self._fences[lane], envelope, {"text": text_of(lane, number, 1000)})

    async def check(self, storage: lash.Storage, lane: int, calls: int) -> None:
        records = await storage.effects.list(ProcessScope(process_id=f"process-{lane:03}"), limit=calls + 1)
        assert len(records) == calls
        assert records[-1].outcome == {"text": text_of(lane, calls - 1, 1000)}


class ClaimWork:
    """The claim of the next batch of a queue, under a session's lease."""

    def __init__(self) -> None:
        self._fences: dict[int, LeaseFence] = {}

    async def prepare(self, storage: lash.Storage, lanes: int, calls: int) -> None:
        for lane in range(lanes):
            name = f"session-{lane:03}"
            await storage.sessions.create(name)
            outcome = await storage.leases.claim(name, OWNER, ttl_ms=LONG_MS)
            assert isinstance(outcome, Acquired)
            self._fences[lane] = outcome.lease.fence
            drafts = (
                BatchDraft(session_id=name, payloads=(TurnInput.of_text(text_of(lane, number, 200)),))
                for number in range(calls)
            )
            await _in_order(storage, drafts)

    async def call(self, storage: lash.Storage, lane: int, number: int) -> None:
        outcome = await storage.queue.claim(self._fences[lane], boundary=Boundary.IDLE, ttl_ms=LONG_MS, max_batches=1)
        assert isinstance(outcome, Claim)
        assert outcome.batches[0].payloads == (TurnInput.of_text(text_of(lane, number, 200)),)

    async def check(self, storage: lash.Storage, lane: int, calls: int) -> None:
        batches = await storage.queue.list(f"session-{lane:03}", limit=calls + 1)
        assert [batch.attempts for batch in batches] == [1] * calls


async def _in_order(storage: lash.Storage, drafts: Iterable[BatchDraft]) -> None:
    for draft in drafts:
        await storage.queue.enqueue(draft)


async def rate(storage: lash.Storage, work: Work, *, lanes: int, calls: int, warm: int) -> float:
    """Do the calls, all lanes at once, and return how many were done in a second; the first ones do not count."""
    await asyncio.gather(*(_lane(storage, work, lane, range(warm)) for lane in range(lanes)))
    begin = time.perf_counter()
    await asyncio.gather(*(_lane(storage, work, lane, range(warm, calls)) for lane in range(lanes)))
    return lanes * (calls - warm) / (time.perf_counter() - begin)


async def rate_in_sequence(storage: lash.Storage, work: Work, *, lanes: int, calls: int, warm: int) -> float:
    """Do the same calls one after the other, going round the lanes."""
    await in_sequence(storage, work, lanes, range(warm))
    begin = time.perf_counter()
    await in_sequence(storage, work, lanes, range(warm, calls))
    return lanes * (calls - warm) / (time.perf_counter() - begin)


async def in_sequence(storage: lash.Storage, work: Work, lanes: int, numbers: range) -> None:
    """Do one call at a time."""
    for number in numbers:
        for lane in range(lanes):
            await work.call(storage, lane, number)


async def check_all(storage: lash.Storage, work: Work, *, lanes: int, calls: int) -> None:
    """Raise AssertionError if a lane does not hold what was done."""
    for lane in range(lanes):
        await work.check(storage, lane, calls)


async def _lane(storage: lash.Storage, work: Work, lane: int, numbers: range) -> None:
    for number in numbers:
        await work.call(storage, lane, number)

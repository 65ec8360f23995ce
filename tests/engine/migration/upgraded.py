"""What is read from the storages of `filled` after their upgrade; every expected value is what was written."""

from __future__ import annotations

import hashlib
from typing import Final

import lash
from lash.model.artifact import ArtifactRef
from lash.model.effect import ProcessScope, TurnScope
from lash.model.process.process import ProcessStatus
from lash.model.queue import BatchDraft, TurnInput
from lash.model.session.node import MessageEntry
from lash.model.session.session import SessionFilter
from lash.model.wait import CustomIdentity
from lash.stores.storage import Storage
from tests.contract.queue_state import texts
from tests.factories.process import granted, stored, wait
from tests.factories.trigger import HOST, by_session, found, pressed
from tests.factories.wait import YES

_FAR_MS: Final = 4_102_444_800_000
"""In the year 2100: the end of leases that are live, and the next tick of schedules."""


class Upgraded:
    """What is read from a storage that had a schema before. A method does nothing if that schema lacks its noun."""

    def __init__(self, storage: Storage, schema: int) -> None:
        self.storage = storage
        self.schema = schema

    async def read(self) -> None:
        """Read every noun through its store, and compare it with what was written."""
        await self._sessions()
        await self._leases()
        for since, read in (
            (2, self._queue),
            (3, self._bytes),
            (4, self._processes),
            (5, self._effects),
            (6, self._waits),
            (7, self._triggers),
            (8, self._schedules),
            (10, self._dead_letters),
            (17, self._records),
            (18, self._labels),
            (33, self._acts),
        ):
            if self.schema >= since:
                await read()

    async def _sessions(self) -> None:
        ids = {"chat", "busy", "s", "t", "fork", "empty", "dead", "lived in"}
        ids |= {"parked"} if self.schema >= 24 else set()
        listed = (await self.storage.sessions.list()).sessions
        assert {each.meta.session_id for each in listed} == ids
        assert await texts_of(self.storage, "chat") == ["one", "before: one", "two", "before: two"]
        forked = await self.storage.session("fork").load()
        assert forked is not None
        assert [each.node_id for each in forked.graph.nodes] == ["a", "b", "d"]
        long = await self.storage.session("s").node("p")
        assert long is not None
        assert "word " * 400 in str(long.entry)
        by_words = await self.storage.sessions.list(SessionFilter(text="one"))
        assert [each.meta.session_id for each in by_words.sessions] == ["chat"]
        spent = (await self.storage.usage.sum(["session"])).sums
        assert {each.session_id: each.usage.input_tokens for each in spent} == {"chat": 14, "s": 16, "lived in": 5}

    async def _leases(self) -> None:
        held = {"lived in", "process of lived in"} if self.schema >= 4 else {"lived in"}
        live = (await self.storage.leases.live()).leases
        assert {each.resource.id for each in live} == held
        assert {each.expires_at_ms for each in live} == {_FAR_MS}
        lost = await self.storage.leases.holder("busy")
        assert lost is not None
        assert lost.fencing == 1

    async def _queue(self) -> None:
        for session_id, expected in {"busy": ["hang"], "chat": ["three"], "t": []}.items():
            assert texts(await self.storage.queue.list(session_id)) == expected
        assert len(await self.storage.queue.list("s")) == 3
        again = BatchDraft(session_id="chat", payloads=(TurnInput.of_text("one"),), source_key="one")
        assert (await self.storage.queue.enqueue(again)).batch is None

    async def _bytes(self) -> None:
        ref = ArtifactRef(hashlib.sha256(b"code").hexdigest())
        assert await self.storage.artifacts.get("modules", ref) == b"code"
        attached = (await self.storage.attachments.list("s")).entries
        assert len(attached) == 4
        kept = [await self.storage.attachments.get("s", each.ref.id) for each in attached if each.ref.label]
        assert [each.content for each in kept] == [b"plain"]

    async def _processes(self) -> None:
        waiting, ended = await stored(self.storage, "waiting"), await stored(self.storage, "p")
        assert (waiting.projection.wait, ended.projection.status) == (wait("go"), ProcessStatus.COMPLETED)
        events = await self.storage.events.after("waiting")
        assert [each.event_type for each in events] == ["process.started", "process.waiting"]
        lost = await self.storage.process_leases.holder("crashed")
        assert lost is not None
        assert lost.fencing == 1
        assert await self.storage.grants.of_process("p") == (granted("t", "p"),)

    async def _effects(self) -> None:
        record = await self.storage.effects.get(ProcessScope(process_id="waiting"), "first#1")
        assert record is not None
        assert record.outcome == "before"
        group = await self.storage.effects.group(TurnScope(session_id="lived in", turn_id="t"), "group")
        assert group is not None
        assert (group.size, group.settled) == (2, ("member",))

    async def _waits(self) -> None:
        assert len(await self.storage.waits.pending()) == 2
        scope = TurnScope(session_id="lived in", turn_id="t")
        key = await self.storage.waits.key(scope, CustomIdentity(key="open"))
        await self.storage.waits.resolve(key, YES)
        resolved = await self.storage.waits.get(key)
        assert resolved is not None
        assert resolved.resolution == YES

    async def _triggers(self) -> None:
        on, off = await found(self.storage, "on"), await found(self.storage, "off", by_session("t"))
        assert (on.enabled, off.enabled) == (True, False)
        before = len(await self.storage.processes.ids(limit=1_000))
        assert len((await self.storage.occurrences.emit(pressed("1"))).deliveries) == 1
        assert len(await self.storage.processes.ids(limit=1_000)) == before
        assert len((await self.storage.occurrences.emit(pressed("another"))).deliveries) == 3

    async def _schedules(self) -> None:
        hourly = await self.storage.schedules.get(HOST, "hourly")
        stopped = await self.storage.schedules.get(by_session("t"), "stopped")
        assert hourly is not None
        assert stopped is not None
        assert (hourly.enabled, stopped.enabled) == (True, False)
        assert await self.storage.schedules.next_fire_at_ms() == _FAR_MS

    async def _dead_letters(self) -> None:
        assert {each.batch.session_id: each.reason for each in await self.storage.queue.dead()} == {
            "dead": "no use",
            "lived in": "it failed",
        }

    async def _records(self) -> None:
        shared = await self.storage.records.get("shared", "k")
        assert shared is not None
        assert shared.value == {"a": 1}

    async def _labels(self) -> None:
        by_owner = await self.storage.sessions.list(SessionFilter(owner="ada", labels={"env": "prod"}))
        assert [each.meta.session_id for each in by_owner.sessions] == ["s"]

    async def _acts(self) -> None:
        (act,) = await self.storage.acts.list()
        assert (act.by, act.verb) == ("ada", "cancel")


async def texts_of(storage: Storage, session_id: str) -> list[str]:
    read = await storage.session(session_id).load()
    assert read is not None
    entries = (node.entry for node in read.graph.nodes)
    return [lash.text_of(entry.message) for entry in entries if isinstance(entry, MessageEntry)]

"""Sweep cases of sessions and their leases."""

from __future__ import annotations

import msgspec

from lash.backend.liveness import current_process
from lash.errors import NodeConflict, RevisionConflict
from lash.model.lease import Lease, LeaseFence, LeaseOwner
from lash.model.queue import Boundary
from lash.model.record import RecordDelete, RecordPut
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Commit, ReplaceFull
from lash.model.session.message import AttachmentRef
from lash.model.session.session import SessionMeta
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.queue_state import claimed, consuming, joining, leased, queued
from tests.contract.schedule_state import of_session, schedule
from tests.factories.effect import effect
from tests.factories.process import NEWS, granted, news, process
from tests.factories.session import acquired, append, chain, commit, created, draft, frame, node, owner, spent, started
from tests.factories.trigger import by_session, trigger
from tests.factories.wait import key_of
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case, bare

TTL = 60_000
CHANGE = r'"changed": ?\d+'
"""The place in the feed of sessions on SQLite: a repeated edit is another change."""


async def branched(storage: Storage, _clock: ManualClock) -> None:
    """A session with a side branch, and a checkpoint."""
    session = await started(storage, "s", "a", "b")
    await session.commit(commit(1, node("side", "a"), checkpoint=draft(1, {"k": b"v" * 2_000}), frames=(frame("f"),)))
    components = {"k": b"v" * 2_000, "gone soon": b"u" * 2_000}
    await session.commit(commit(2, graph=append(node("c", "b")), checkpoint=draft(2, components)))


def full_first() -> Commit:
    """Return a first commit with all possible parts."""
    return commit(
        0,
        *chain("a", "b"),
        turn_id="t",
        frames=(frame("f"),),
        current_frame_id="f",
        checkpoint=draft(1, {"k": b"v" * 2_000}),
        usage=(spent(3, 5), spent(1, 2)),
    )


async def tombstoned(storage: Storage, clock: ManualClock) -> None:
    await branched(storage, clock)
    await storage.session("s").tombstone(["side"])


async def held_on_a_branch(storage: Storage, clock: ManualClock) -> LeaseFence:
    await branched(storage, clock)
    return acquired(await storage.leases.claim("s", owner("w"), ttl_ms=TTL)).fence


async def described(storage: Storage, _clock: ManualClock) -> SessionMeta:
    return msgspec.structs.replace(await (await created(storage)).meta(), name="renamed", model="m")


async def labelled(storage: Storage, clock: ManualClock) -> None:
    await storage.sessions.create("s", owner="ada", labels={"a": "1", "b": "2"}, expires_at_ms=clock.now_ms() - 1)


async def full_turn(storage: Storage, _clock: ManualClock) -> Commit:
    """A commit with all parts: input, a wake, effects, a checkpoint, an agent, usage, a file, records, the lease."""
    await started(storage, "s", "a")
    await storage.processes.register(process("p", NEWS, wake_session_id="s"))
    await storage.events.append("p", news())
    await queued(storage, joining("1", source_key="k"), joining("2"))
    fence = await leased(storage)
    await storage.effects.record(fence, effect(), {"answer": 1})
    attachment = await storage.attachments.put("s", b"picture", "image/png")
    for key in ("shared", "old"):
        await storage.records.put("c", key, 1)
    wake = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
    words = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
    turn = commit(
        1,
        *chain("b", "c", after="a"),
        turn_id="t",
        fence=fence,
        release=fence,
        frames=(frame("f"),),
        current_frame_id="f",
        checkpoint=CheckpointDraft(
            turn_state=TurnState(turn_index=1, protocol_turn_options={"agent": "helper"}),
            components={"k": b"v" * 2_000},
        ),
        usage=(spent(3, 5),),
        attachments=(attachment.id,),
        records=(
            RecordPut(collection="c", key="k", value={"n": 1}, session_id="s", expected_version=0),
            RecordPut(collection="c", key="shared", value=b"v", expected_version=1, index={"f": "x"}),
            RecordDelete(collection="c", key="old"),
        ),
    )
    return consuming(turn, wake, words)


async def reply(storage: Storage, _clock: ManualClock) -> Commit:
    """A turn that consumes one message with a key."""
    await started(storage, "s", "a")
    await queued(storage, joining("1", source_key="k"))
    fence = await leased(storage)
    claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
    return consuming(commit(1, node("b", "a"), turn_id="t", fence=fence, release=fence), claim)


async def replacing(storage: Storage, clock: ManualClock) -> Commit:
    await branched(storage, clock)
    graph = ReplaceFull(nodes=chain("x", "y"), leaf_node_id="y", replaced_node_count=4)
    return commit(3, graph=graph, checkpoint=draft(3, {"k": b"w" * 2_000}))


async def owning(storage: Storage, clock: ManualClock) -> None:
    """A session that owns one item of every kind, and a fork of it."""
    turn = await full_turn(storage, clock)
    await storage.session("s").commit(msgspec.structs.replace(turn, release=None))
    await storage.sessions.fork("s", "fork")
    await queued(storage, joining("3"))
    await storage.waits.open(await key_of(storage))
    await storage.effects.open_group(effect().scope, "g", size=2)
    await storage.triggers.register(trigger("k", owner=by_session()))
    await storage.schedules.register(schedule(owner=of_session("s")))
    await storage.grants.grant(granted("s"))


async def held(storage: Storage, clock: ManualClock) -> LeaseFence:
    await started(storage, "s")
    fence = await leased(storage)
    await clock.advance(1_000)
    return fence


async def held_by_the_dead(storage: Storage, _clock: ManualClock) -> tuple[Lease, LeaseOwner]:
    """A lease of a process that is gone, and a claimant that may take it."""
    await started(storage, "s")
    alive = current_process()
    assert alive is not None
    dead = msgspec.structs.replace(alive, process_start="1")
    lease = acquired(await storage.leases.claim("s", owner("dead", process=dead), ttl_ms=TTL))
    return lease, owner("heir", process=alive)


async def attached(storage: Storage, _clock: ManualClock) -> AttachmentRef:
    await started(storage, "s")
    return await storage.attachments.put("s", b"picture", "image/png")


CASES: tuple[AnyCase, ...] = (
    Case(
        method="SessionStore.create",
        ground=bare,
        call=lambda storage, _: storage.sessions.create("s", name="n", owner="ada", labels={"env": "prod"}),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="SessionStore.create",
        variant="with commit",
        ground=bare,
        call=lambda storage, _: storage.sessions.create("s", commit=full_first()),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="SessionStore.fork",
        ground=branched,
        call=lambda storage, _: storage.sessions.fork("s", "fork", node_id="b"),
        again=Again.REPORTED,
    ),
    Case(
        method="SessionStore.delete",
        ground=owning,
        call=lambda storage, _: storage.sessions.delete("s"),
        again=Again.REPORTED,
    ),
    Case(
        method="SessionStore.delete",
        variant="fork",
        ground=owning,
        call=lambda storage, _: storage.sessions.delete("fork"),
        again=Again.REPORTED,
    ),
    Case(
        method="SessionStore.delete_many",
        ground=owning,
        call=lambda storage, _: storage.sessions.delete_many(["s"]),
        again=Again.REPORTED,
    ),
    Case(
        method="SessionStore.delete_expired",
        ground=labelled,
        call=lambda storage, _: storage.sessions.delete_expired(),
        again=Again.REPORTED,
    ),
    Case(
        method="Session.edit",
        ground=labelled,
        call=lambda storage, _: storage.session("s").edit(owner="bob", labels={"b": "3", "c": "4"}),
        again=Again.SAME,
        blur=CHANGE,
    ),
    Case(
        method="Session.commit",
        ground=full_turn,
        call=lambda storage, turn: storage.session("s").commit(turn),
        again=Again.SAME,
    ),
    Case(
        method="Session.commit",
        variant="reply",
        ground=reply,
        call=lambda storage, turn: storage.session("s").commit(turn),
        again=Again.SAME,
    ),
    Case(
        method="Session.commit",
        variant="replace",
        ground=replacing,
        call=lambda storage, turn: storage.session("s").commit(turn),
        again=RevisionConflict,
    ),
    Case(
        method="Session.append",
        ground=branched,
        call=lambda storage, _: storage.session("s").append([node("d"), node("e")], turn_id="t"),
        again=Again.SAME,
    ),
    Case(
        method="Session.append",
        variant="without turn",
        ground=branched,
        call=lambda storage, _: storage.session("s").append([node("d"), node("e")]),
        again=NodeConflict,
    ),
    Case(
        method="Session.save_meta",
        ground=described,
        call=lambda storage, meta: storage.session("s").save_meta(meta),
        again=Again.SAME,
        blur=CHANGE,
    ),
    Case(
        method="Session.tombstone",
        ground=branched,
        call=lambda storage, _: storage.session("s").tombstone(["side"]),
        again=Again.REPORTED,
    ),
    Case(
        method="Session.erase",
        ground=held_on_a_branch,
        call=lambda storage, fence: storage.session("s").erase(["a", "c", "side"], fence=fence),
        again=Again.REPORTED,
    ),
    Case(
        method="Session.vacuum",
        ground=tombstoned,
        call=lambda storage, _: storage.session("s").vacuum(),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="LeaseStore.claim",
        ground=branched,
        call=lambda storage, _: storage.leases.claim("s", owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="LeaseStore.reclaim",
        ground=held_by_the_dead,
        call=lambda storage, given: storage.leases.reclaim("s", given[1], observed=given[0], ttl_ms=TTL),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="LeaseStore.renew",
        ground=held,
        call=lambda storage, fence: storage.leases.renew(fence, ttl_ms=TTL),
        again=Again.SAME,
    ),
    Case(
        method="LeaseStore.release",
        ground=held,
        call=lambda storage, fence: storage.leases.release(fence, pause_ms=500),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)

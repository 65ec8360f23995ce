"""A storage with rows in every table, and every call that reads or changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec

import lash
from lash.model.activity import ActivityDraft
from lash.model.artifact import ProcessEnvironment
from lash.model.process.process import AgentScope, Grant, ProcessAcquired
from lash.model.queue import Boundary, Claim
from lash.model.session.session import FullGraph
from lash.model.session.trace import TraceStep, TurnTrace
from lash.runtime.observe.stream import current_cursor
from lash.stores.storage import Storage
from tests.cli.seed import fill
from tests.factories.effect import effect
from tests.factories.process import event, process
from tests.factories.session import acquired, commit, node, owner
from tests.factories.trigger import HOST, pressed, subscribed, trigger
from tests.transfer.kit import rich_session

Call = Callable[[], Awaitable[Any]]
NAMESPACE: Final = "code"
RUN: Final = lash.model.ProcessScope(process_id="research-7")
TURN: Final = lash.model.TurnScope(session_id="s", turn_id="t")
GRANTED: Final = AgentScope(session_id="s")
TTL_MS: Final = 60_000
TRACE: Final = TurnTrace(began_at_ms=1, steps=(TraceStep(name="search", began_at_ms=1, took_ms=2),))


class Known(msgspec.Struct, frozen=True):
    """Ids that the storage chose."""

    batch: str
    wait_key: str
    occurrence: str
    subscription: str
    artifact: str
    environment: str
    attachment: str


async def fill_everything(storage: Storage) -> Known:
    """Fill an empty storage with sessions, work, processes, triggers, waits, effects, files and their remains."""
    seeded = await fill(storage)
    await rich_session(storage, video=b"\xff" + b"frame" * 2_000)
    await storage.sessions.fork("s", "fork")
    await storage.session("fork").commit(commit(1, node("f", "c"), session_id="fork", turn_id="t", trace=TRACE))
    await storage.sessions.create("gone")
    await storage.sessions.delete("gone")
    await storage.activity.append("s", [ActivityDraft(turn_id="t", payload={"delta": "a"})])
    await storage.grants.grant(Grant(scope=GRANTED, process_id="research-7"))
    begun = await storage.process_leases.register_and_claim(process("begun-1"), owner("worker"), ttl_ms=TTL_MS)
    assert isinstance(begun, ProcessAcquired)
    await storage.process_leases.complete(begun.lease.fence, lash.Success(value=1))
    subscriptions = await subscribed(storage, "k", payload_schema={"type": "object"})
    await storage.triggers.disable(HOST, "k", revision=1, operation_id="o")
    await storage.triggers.enable(HOST, "k", revision=2)
    report = await storage.occurrences.emit(pressed(payload={"n": 1}))
    await storage.effects.open_group(TURN, "g", size=2)
    lease = acquired(await storage.leases.claim("s", owner("worker"), ttl_ms=TTL_MS))
    await storage.effects.record(lease.fence, effect("e", scope=TURN, group="g"), {"found": 1})
    assert isinstance(await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL_MS), Claim)
    await storage.records.put("users", "ann", {"n": 1}, index={"team": "red", "city": "Ulm"})
    await storage.records.put("notes", "1", b"\xff" * 5_000, session_id="s", index={"kind": "x"})
    await storage.waits.resolve(seeded.other_key, lash.model.Resolved(value=1))
    return Known(
        batch=seeded.batch,
        wait_key=seeded.key,
        occurrence=report.occurrence_id,
        subscription=subscriptions[0].subscription_id,
        artifact=await storage.artifacts.put(NAMESPACE, b"some code " * 1_000),
        environment=await storage.artifacts.put_environment(ProcessEnvironment(body={"a": 1})),
        attachment=(await storage.attachments.list("s")).entries[1].ref.id,
    )


def questions(storage: Storage, known: Known) -> Iterator[tuple[str, Call]]:
    """Return all calls that read, by name."""
    for session_id in ("s", "support-42", "fork", "gone"):
        session = storage.session(session_id)
        yield f"head {session_id}", session.head
        yield f"load {session_id}", session.load
        yield f"load all {session_id}", lambda session=session: session.load(FullGraph())  # type: ignore[misc]
        yield f"checkpoint {session_id}", session.checkpoint
        yield f"raw path {session_id}", session.raw_path
        yield f"manifest {session_id}", session.checkpoint_manifest
        yield f"meta {session_id}", session.meta
        yield f"holder {session_id}", lambda name=session_id: storage.leases.holder(name)  # type: ignore[misc]
        yield f"queue {session_id}", lambda name=session_id: storage.queue.list(name)  # type: ignore[misc]
        yield f"look {session_id}", lambda name=session_id: storage.activity.read(name)  # type: ignore[misc]
        yield f"cursor {session_id}", lambda name=session_id: current_cursor(storage, name)  # type: ignore[misc]
    yield "node", lambda: storage.session("s").node("a")
    yield "nodes", lambda: storage.session("fork").nodes(["a", "b", "c"])
    yield "children", lambda: storage.session("s").children("a")
    yield "nodes of a kind", lambda: storage.session("fork").list_nodes("message")
    yield "sessions", storage.sessions.list
    yield "dead letters", storage.queue.dead
    yield "queued", storage.queue.list_all
    yield "ready", storage.queue.ready_sessions
    yield "ready agents", storage.queue.ready_agents
    yield "leases", storage.leases.live
    yield "usage", lambda: storage.usage.sum(["day", "model", "agent", "session", "source"])
    yield "work", lambda: storage.work.poll(sessions=9, processes=9, owner=owner("worker"))
    for process_id in ("research-7", "report-3"):
        yield f"process {process_id}", lambda name=process_id: storage.processes.get(name)  # type: ignore[misc]
        yield f"events {process_id}", lambda name=process_id: storage.events.after(name)  # type: ignore[misc]
        yield f"recent {process_id}", lambda name=process_id: storage.events.recent(name, 9)  # type: ignore[misc]
        yield f"wakes {process_id}", lambda name=process_id: storage.events.wakes_after(name)  # type: ignore[misc]
        yield f"grants of {process_id}", lambda name=process_id: storage.grants.of_process(name)  # type: ignore[misc]
        yield f"holder {process_id}", lambda name=process_id: storage.process_leases.holder(name)  # type: ignore[misc]
    yield "processes", storage.processes.list
    yield "runnable", storage.processes.runnable
    yield "versions", storage.processes.versions
    yield "grants", lambda: storage.grants.list(GRANTED)
    yield "tail", storage.events.tail
    yield "changes", storage.events.changes
    yield "effects of a turn", lambda: storage.effects.list(TURN)
    yield "effects of a process", lambda: storage.effects.list(RUN)
    yield "group", lambda: storage.effects.group(TURN, "g")
    yield "trigger", lambda: storage.triggers.get(HOST, "k")
    yield "triggers", storage.triggers.list
    yield "occurrence", lambda: storage.occurrences.get(known.occurrence)
    yield "deliveries", lambda: storage.occurrences.deliveries(known.occurrence)
    yield "schedule", lambda: storage.schedules.get(HOST, "digest")
    yield "schedules", storage.schedules.list
    yield "next tick", storage.schedules.next_fire_at_ms
    yield "wait", lambda: storage.waits.get(known.wait_key)
    yield "waits", storage.waits.pending
    yield "record", lambda: storage.records.get("users", "ann")
    yield "records of a session", lambda: storage.records.list("notes", session_id="s", where={"kind": "x"})
    yield "collections", storage.records.collections
    yield "artifact", lambda: storage.artifacts.get(NAMESPACE, lash.model.ArtifactRef(known.artifact))
    yield "environment", lambda: storage.artifacts.get_environment(lash.model.ArtifactRef(known.environment))
    yield "artifacts", lambda: storage.artifacts.list(NAMESPACE)
    yield "attachments", lambda: storage.attachments.list("s")
    yield "attachment", lambda: storage.attachments.get("s", known.attachment)
    yield "report", storage.report
    yield "audit", lambda: storage.maintenance.collect_garbage(dry_run=True)
    yield "damage", storage.maintenance.find_damage


def demands(storage: Storage, known: Known) -> Iterator[tuple[str, Call]]:
    """Return some calls that write, by name; each reads rows before it writes."""
    hall = owner("hall")
    yield "commit", lambda: storage.session("s").commit(commit(2, node("new", "c"), turn_id="new"))
    yield "erase", lambda: storage.session("s").erase(["c"])
    yield "fork", lambda: storage.sessions.fork("s", "fork-2")
    yield "claim a session", lambda: storage.leases.claim("support-42", hall, ttl_ms=TTL_MS)
    yield (
        "enqueue",
        lambda: storage.queue.enqueue(
            lash.model.BatchDraft(session_id="s", payloads=(lash.model.TurnInput.of_text("x"),), source_key="key")
        ),
    )
    yield "requeue", lambda: storage.queue.requeue("support-42", known.batch)
    yield "claim a process", lambda: storage.process_leases.claim("research-7", hall, ttl_ms=TTL_MS)
    yield "append", lambda: storage.events.append("research-7", event("note", {"found": 4}))
    yield "signal", lambda: storage.events.signal("research-7", "approve", signal_id="1")
    yield "complete", lambda: storage.processes.complete("research-7", lash.Success(value=1))
    yield "begin", lambda: storage.effects.claim(effect("e", scope=TURN, group="g"), hall, ttl_ms=TTL_MS)
    yield "register", lambda: storage.triggers.register(trigger("k"), operation_id="o")
    yield "emit", lambda: storage.occurrences.emit(pressed("2", {"n": 2}))
    yield "emit again", lambda: storage.occurrences.emit(pressed(payload={"n": 1}))
    yield "retry", lambda: storage.occurrences.retry_delivery(known.occurrence, known.subscription)
    yield "fire", storage.schedules.fire_due
    yield "open a wait", lambda: storage.waits.open(known.wait_key)
    yield "resolve", lambda: storage.waits.resolve(known.wait_key, lash.model.Resolved(value=2))
    yield "expire", storage.waits.expire
    yield "put a record", lambda: storage.records.put("users", "ann", {"n": 2}, expected_version=1)
    yield "delete a record", lambda: storage.records.delete("notes", "1", session_id="s")
    yield "prune records", storage.records.prune
    yield "collect", storage.maintenance.collect_garbage
    yield "vacuum", lambda: storage.session("s").vacuum()
    yield "delete", lambda: storage.sessions.delete("s")

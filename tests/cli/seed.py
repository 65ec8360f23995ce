"""A small storage with one of everything, as the examples of the command name them."""

from __future__ import annotations

import asyncio
import dataclasses

import lash
from lash.model.queue import Boundary, Claim
from lash.model.worker import Served
from tests.contract.test_worker import beat
from tests.factories.effect import effect
from tests.factories.process import NOTE, event, process, process_lease
from tests.factories.session import acquired, append, commit, node, owner, spent
from tests.factories.trigger import trigger

APPROVE = lash.EventType(name="signal.approve")
APPROVAL = lash.model.Question(
    text="Pay the refund?", schema={"type": "object", "properties": {"approved": {"type": "boolean"}}}
)


@dataclasses.dataclass(frozen=True)
class Seeded:
    """The URL of the storage, and the generated ids in it."""

    url: str
    batch: str
    key: str
    other_key: str
    wait: str
    other_wait: str

    @property
    def variables(self) -> dict[str, str]:
        names = {"BATCH": self.batch, "KEY": self.key, "OTHER_KEY": self.other_key}
        return {"LASH_URL": self.url, **names, "WAIT": self.wait, "OTHER_WAIT": self.other_wait}


def seed(url: str) -> Seeded:
    """Fill an empty storage."""
    return asyncio.run(_seed(url))


async def _seed(url: str) -> Seeded:
    async with await lash.open(url) as storage:
        return await fill(storage, url)


async def fill(storage: lash.Storage, url: str = "") -> Seeded:
    """Fill an empty storage that is open already."""
    await _conversation(storage)
    batch = await _dead_letter(storage)
    await _processes(storage)
    await _sources(storage)
    scope = lash.model.ProcessScope(process_id="research-7")
    keys = [await storage.waits.key(scope, lash.model.CustomIdentity(key=name)) for name in ("approval", "budget")]
    await storage.waits.open(keys[0], ask=APPROVAL)
    await storage.waits.open(keys[1])
    await storage.records.put("profiles", "ann", {"name": "Ann"})
    await storage.records.put("drafts", "1", "Dear Ann", session_id="support-42")
    first, second = keys
    return Seeded(
        url=url,
        batch=batch,
        key=first.text,
        other_key=second.text,
        wait=first.key_id,
        other_wait=second.key_id,
    )


async def _conversation(storage: lash.Storage) -> None:
    """Session support-42: a question, two attempts at an answer, and a message after the second."""
    await storage.sessions.create("support-42", name="A refund", model="m")
    session = storage.session("support-42")
    first = (node("ask", None, "Where is my money?"), node("curt", "ask", "Wait.", role=lash.Role.ASSISTANT))
    await session.commit(commit(0, *first, session_id="support-42", usage=(spent(10, 5),)))
    better = node("kind", "ask", "It is on its way.", role=lash.Role.ASSISTANT)
    thanks = node("thanks", "kind", "Thank you!")
    await session.commit(commit(1, session_id="support-42", graph=append(better, thanks)))


async def _dead_letter(storage: lash.Storage) -> str:
    """A dead letter of support-42 with a recorded step, and a message whose first attempt failed."""
    sent = [await _send(storage, text) for text in ("Now!", "And the other one?")]
    lease = acquired(await storage.leases.claim("support-42", owner("worker"), ttl_ms=60_000))
    scope = lash.model.TurnScope(session_id="support-42", turn_id=f"turn:{sent[0]}")
    await storage.effects.record(
        lease.fence, effect("look up", lash.model.Step(name="look up"), scope=scope), {"found": 1}
    )
    claim = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, Claim)
    await storage.queue.bury(claim, reason="it failed 5 times", error={"type": "ValueError"})
    begun = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(begun, Claim)
    await storage.queue.abandon(begun)
    await storage.leases.release(lease.fence)
    return sent[0]


async def _send(storage: lash.Storage, text: str) -> str:
    draft = lash.model.BatchDraft(session_id="support-42", payloads=(lash.model.TurnInput.of_text(text),))
    return (await storage.queue.enqueue(draft)).batch_id


async def _processes(storage: lash.Storage) -> None:
    """Process research-7 runs and has a recorded step; report-3 has ended."""
    await storage.processes.register(
        process("research-7", NOTE, APPROVE, identity=lash.model.ProcessIdentity(kind="python", label="research"))
    )
    await storage.events.append("research-7", event("note", {"found": 3}))
    claimed = await storage.process_leases.claim("research-7", owner("worker"), ttl_ms=60_000)
    lease = process_lease(claimed)
    run = lash.model.ProcessScope(process_id="research-7")
    await storage.effects.record(lease.fence, effect("search", lash.model.Step(name="search"), scope=run), ["a", "b"])
    await storage.process_leases.release(lease.fence)
    await storage.processes.register(
        process("report-3", identity=lash.model.ProcessIdentity(kind="python", label="report"))
    )
    await storage.processes.complete("report-3", lash.Success(value={"pages": 2}))


async def _sources(storage: lash.Storage) -> None:
    """The host subscribes to order.paid, and has a schedule."""
    source_key = storage.triggers.source_key("order.paid")
    await storage.triggers.register(trigger("on-paid", source_type="order.paid", source_key=source_key, label="ship"))
    await storage.schedules.register(
        lash.model.ScheduleDraft(key="digest", cron="0 7 * * 1-5", time_zone="Europe/Berlin")
    )


async def register_worker(url: str) -> None:
    """Register a worker that runs support-42."""
    announced = beat("worker-1", beat_ms=60_000, served=Served(processes=("index",)))
    async with await lash.open(url) as storage:
        await storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
        await storage.leases.claim("support-42", announced.owner, ttl_ms=60_000)

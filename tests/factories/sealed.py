"""A storage with a planted text in every kind of value, and a search for it past lash."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import lash
from lash.model.activity import ActivityDraft
from lash.model.effect import EffectError, Step
from lash.model.process.event import EventSemantics, EventType, Pointer, TerminalSpec, TerminalState, WakeSpec
from lash.model.process.process import EngineInput
from lash.model.queue import BatchDraft, Boundary, Claim, TurnInput
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.frame import AgentFrame
from lash.model.session.session import SessionConfig
from lash.model.session.trace import TraceStep, TurnTrace
from lash.model.trigger.schedule import ScheduleDraft
from lash.sqlkit.catalogue import load_catalogue
from lash.stores.storage import Storage
from tests.factories.effect import TURN, effect
from tests.factories.process import NEWS, NOTE, event, news, process
from tests.factories.session import MOMENT, acquired, commit, node, owner
from tests.factories.trigger import pressed, trigger
from tests.factories.wait import key_of
from tests.raw import raw

PLANTED: Final = "pLaNtEd-4711"
TTL_MS: Final = 60_000
_LAST_NEWS: Final = EventType(
    name="last_news",
    semantics=EventSemantics(
        terminal=TerminalSpec(state=TerminalState.COMPLETED), wake=WakeSpec(input=Pointer(path="/text"))
    ),
)
"""Ends its process and wakes a session."""


def key(key_id: str, byte: int = 7) -> lash.AesGcm:
    """Return a sealer with one key."""
    return lash.AesGcm({key_id: bytes([byte]) * 32})


async def plant(storage: Storage) -> None:
    """Store the planted text as every kind of value; open the storage without compression."""
    await _plant_session(storage)
    await _plant_queue(storage)
    await _plant_process(storage)
    await _plant_trigger(storage)
    await storage.activity.append("s", [ActivityDraft(turn_id="t", payload={"delta": PLANTED})])
    await storage.records.put("settings", "colour", {"text": PLANTED})
    await storage.artifacts.put("code", PLANTED.encode())
    await storage.attachments.put("s", PLANTED.encode() * 2, "text/plain")
    answer = await key_of(storage)
    await storage.waits.open(answer, ask=lash.model.Question(text=PLANTED))
    await storage.waits.resolve(answer, lash.model.Resolved(value=PLANTED))


async def _plant_session(storage: Storage) -> None:
    await storage.sessions.create("s", metadata={"note": PLANTED})
    state = TurnState(protocol_turn_options={"option": PLANTED})
    frame = AgentFrame(frame_id="f", created_at=MOMENT, protocol_turn_options={"option": PLANTED})
    await storage.session("s").commit(
        commit(
            0,
            node("a", None, f"{PLANTED} short"),
            turn_id="t",
            trace=TurnTrace(began_at_ms=1, steps=(TraceStep(name="ask", began_at_ms=1, took_ms=1, error=PLANTED),)),
            config=SessionConfig(provider_id=PLANTED),
            frames=(frame,),
            checkpoint=CheckpointDraft(turn_state=state, components={"memory": PLANTED.encode()}),
        )
    )

    trace = TurnTrace(began_at_ms=1, worker=PLANTED)
    first = commit(0, node("c", None, f"{PLANTED} first"), session_id="created", turn_id="t", trace=trace)
    await storage.sessions.create("created", commit=first)
    await storage.sessions.create("appended")
    await storage.session("appended").append([node("b", None, f"{PLANTED} appended")], turn_id="t")


async def _plant_queue(storage: Storage) -> None:
    for text in ("dies", "stays"):
        await storage.queue.enqueue(BatchDraft(session_id="s", payloads=(TurnInput.of_text(f"{PLANTED} {text}"),)))
    lease = acquired(await storage.leases.claim("s", owner("worker"), ttl_ms=TTL_MS))
    claim = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL_MS)
    assert isinstance(claim, Claim)
    await storage.queue.bury(claim, reason=f"failed on {PLANTED}", error={"message": PLANTED})
    step = Step(name="ask", input=PLANTED)
    await storage.effects.record(lease.fence, effect("done", step, scope=TURN), {"answer": PLANTED})
    failure = EffectError(code="x", message=PLANTED)
    await storage.effects.record(lease.fence, effect("failed", step, scope=TURN), failure)


async def _plant_process(storage: Storage) -> None:
    target = EngineInput(kind="work", payload={"text": PLANTED})
    await storage.processes.register(process("p", NOTE, NEWS, input=target, wake_session_id="s"))
    await storage.events.append("p", event("note", {"found": PLANTED}))
    await storage.events.append("p", news(PLANTED))
    await storage.processes.complete("p", lash.Success(value=PLANTED))
    await storage.processes.register(process("ended", _LAST_NEWS, input=target, wake_session_id="s"))
    await storage.events.append("ended", event("last_news", {"text": PLANTED}, key="end"))


async def _plant_trigger(storage: Storage) -> None:
    target = EngineInput(kind="work", payload={"text": PLANTED})
    strict = {"type": "object", "properties": {"text": {"type": "integer"}}}
    await storage.triggers.register(trigger("starts", target=target), operation_id="o")
    await storage.triggers.register(trigger("rejects", target=target, payload_schema=strict))
    await storage.occurrences.emit(pressed(payload={"text": PLANTED}))
    await storage.schedules.register(ScheduleDraft(key="daily", cron="0 9 * * *", payload={"text": PLANTED}))


async def planted_columns(url: str) -> set[tuple[str, str]]:
    """Return the columns of all tables that hold the planted text in the clear."""
    backend = "sqlite" if url.startswith("sqlite") else "postgres"
    searches = [
        f"SELECT '{table}', '{name}' WHERE EXISTS (SELECT 1 FROM {table} WHERE {_holds(backend, name, column.type)})"
        for table, found in load_catalogue(f"lash.{backend}.sql").tables.items()
        for name, column in found.columns.items()
    ]
    rows = [await raw(url, " UNION ALL ".join(searches[first : first + 200])) for first in range(0, len(searches), 200)]
    return {(table, name) for part in rows for table, name in part}


def _holds(backend: str, column: str, kind: str) -> str:
    if backend == "sqlite":
        return f"instr(CAST({column} AS BLOB), CAST('{PLANTED}' AS BLOB)) > 0"
    return f"position('{PLANTED}'::bytea IN {column}) > 0" if kind == "bytea" else f"{column}::text LIKE '%{PLANTED}%'"


def planted_files(url: str) -> list[str]:
    """Return the files of a SQLite storage that hold the planted text in the clear."""
    file = Path(urlsplit(url).path.removeprefix("/"))
    return [each.name for each in file.parent.glob(file.name + "*") if PLANTED.encode() in each.read_bytes()]

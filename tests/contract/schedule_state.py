"""Builders for tests of schedules, and functions that move their clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypedDict, Unpack

from lash.model.process.process import HOST, AgentScope, EngineInput, SessionOriginator
from lash.model.trigger.schedule import CatchUp, Fired, Schedule, ScheduleDraft
from lash.model.trigger.trigger import EventPointer, TriggerDraft, TriggerOwner
from lash.model.value import JSONObject
from lash.stores.storage import Storage
from lash.testing.harness import Harness

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
START: Final = "2026-06-01T11:30:00Z"
"""The time to which `opened` sets the clock."""


class ScheduleFields(TypedDict, total=False):
    """The optional fields of a schedule."""

    owner: TriggerOwner
    time_zone: str
    catch_up: CatchUp
    grace_ms: int
    jitter_ms: int
    payload: JSONObject
    source_key: str | None


def schedule(key: str = "k", cron: str = "0 * * * *", **fields: Unpack[ScheduleFields]) -> ScheduleDraft:
    """Return a schedule of the host, by default one that ticks every hour."""
    return ScheduleDraft(key=key, cron=cron, **fields)


def of_session(session_id: str, frame_id: str | None = None) -> SessionOriginator:
    """Return a session, or a frame of it, as an owner."""
    return SessionOriginator(scope=AgentScope(session_id=session_id, agent_frame_id=frame_id))


def at(text: str) -> int:
    """Return a moment written in ISO 8601."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def iso(moment_ms: int) -> str:
    """Return a moment in UTC, to the minute."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


async def move(harness: Harness, text: str) -> None:
    """Move the clock to a moment."""
    await harness.clock.advance(at(text) - harness.clock.now_ms())


async def opened(harness: Harness, start: str = START) -> Storage:
    """Open a storage and set its clock to a moment."""
    storage = await harness.open()
    await move(harness, start)
    return storage


async def made(storage: Storage, draft: ScheduleDraft) -> Schedule:
    """Register a new schedule."""
    answer = await storage.schedules.register(draft)
    assert answer.created
    return answer.schedule


async def subscribe(storage: Storage, source_key: str, key: str = "subscription", **schema: object) -> str:
    """Subscribe to a source: every tick starts a process with the time of the tick. Return the subscription."""
    answer = await storage.triggers.register(
        TriggerDraft(
            owner=HOST,
            key=key,
            source_type="cron",
            source_key=source_key,
            target=EngineInput(kind="work", payload={}),
            environment_ref="environment",
            payload_schema=schema,
            input_template={"at": EventPointer(path="/scheduled_at")},
        )
    )
    return answer.subscription.subscription_id


def emitted(reports: tuple[Fired, ...]) -> list[str]:
    """Return the ticks of all reports; every one must have been emitted."""
    ticks = [tick for report in reports for tick in report.ticks]
    assert all(tick.report is not None for tick in ticks)
    return [iso(tick.tick_ms) for tick in ticks]


async def runs(storage: Storage) -> list[str]:
    """Return the tick times of the started processes, sorted, duplicates included."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.processes.list(cursor=cursor)
        for record in page.processes:
            assert isinstance(record.registration.input, EngineInput)
            payload = record.registration.input.payload
            assert isinstance(payload, dict)
            found.append(payload["args"]["at"])
        cursor = page.next_cursor
        if cursor is None:
            return sorted(found)

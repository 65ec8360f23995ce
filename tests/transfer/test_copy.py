"""Copies of a whole storage."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lash.model.artifact import ArtifactRef, ProcessEnvironment
from lash.model.lease import Acquired
from lash.model.process.process import Success
from lash.model.queue import BatchDraft, Boundary, Claim, TurnInput
from lash.model.trigger.schedule import ScheduleDraft
from lash.stores.storage import Storage
from lash.transfer import CopyReport, Progress, copy_storage
from tests.factories.process import granted, registered
from tests.factories.session import chain, commit, created, owner, started
from tests.factories.trigger import HOST, by_session, found, pressed, trigger
from tests.transfer.kit import comparable, exported, opened, rich_session, whole

HOURLY = ScheduleDraft(key="hourly", cron="0 * * * *", payload={"z": 1, "a": 2})


async def populated(storage: Storage) -> None:
    """Write something of every noun into a storage."""
    await rich_session(storage)
    await started(storage, "t", "a", "b", "c")
    await storage.sessions.fork("t", "fork", node_id="b")
    await storage.session("fork").commit(commit(1, *chain("d", after="b"), session_id="fork"))
    await created(storage, "empty")
    await storage.artifacts.put("modules", b"code")
    await storage.artifacts.put("modules", b"more code")
    await storage.artifacts.put("pictures", b"\xff")
    await storage.artifacts.put_environment(ProcessEnvironment(body={"x": 1}))
    await storage.triggers.register(trigger("on"))
    off = await storage.triggers.register(trigger("off", owner=by_session("t"), label="a label"))
    await storage.triggers.disable(by_session("t"), "off", revision=off.subscription.revision)
    await storage.schedules.register(HOURLY)
    stopped = await storage.schedules.register(ScheduleDraft(owner=by_session("t"), key="stopped", cron="* * * * *"))
    await storage.schedules.disable(by_session("t"), "stopped", revision=stopped.schedule.revision)
    await registered(storage, "p", "q", outcome=Success(value=1))
    await storage.grants.grant(granted("t", "p"))
    await storage.occurrences.emit(pressed("1"))
    await _bury(storage)


async def _bury(storage: Storage) -> None:
    await created(storage, "dead")
    await storage.queue.enqueue(BatchDraft(session_id="dead", payloads=(TurnInput.of_text("bad"),)))
    lease = await storage.leases.claim("dead", owner("w"), ttl_ms=60_000)
    assert isinstance(lease, Acquired)
    claim = await storage.queue.claim(lease.lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, Claim)
    await storage.queue.bury(claim, reason="no use")
    await storage.leases.release(lease.lease.fence)


async def require_same(source: Storage, target: Storage) -> None:
    """Assert that both storages agree on everything that is copied."""
    names = ["s", "t", "fork", "empty", "dead"]
    listed = (await target.sessions.list()).sessions
    assert [each.meta.session_id for each in reversed(listed)] == names
    assert [each.meta for each in listed] == [each.meta for each in (await source.sessions.list()).sessions]
    for name in names:
        here, there = await exported(source, name, with_queue=True), await exported(target, name, with_queue=True)
        assert comparable(there) == comparable(here)
    assert [each.node_id for each in (await whole(target, "fork")).graph.nodes] == ["a", "b", "d"]
    for content in (b"code", b"more code"):
        ref = ArtifactRef(hashlib.sha256(content).hexdigest())
        assert await target.artifacts.get("modules", ref) == content
    assert await target.artifacts.namespaces() == ("modules", "pictures", "process_environment")
    on, off = await found(target, "on"), await found(target, "off", by_session("t"))
    assert (on.enabled, on.definition) == (True, (await found(source, "on")).definition)
    assert (off.enabled, off.definition) == (False, (await found(source, "off", by_session("t"))).definition)
    hourly, stopped = await target.schedules.get(HOST, "hourly"), await target.schedules.get(by_session("t"), "stopped")
    assert hourly is not None
    assert stopped is not None
    assert (hourly.enabled, hourly.definition, stopped.enabled) == (True, HOURLY, False)
    was = await source.schedules.get(HOST, "hourly")
    assert was is not None
    assert hourly.source_key == was.source_key


EVERYTHING = {"artifact": 4, "session": 5, "attachment": 4, "batch": 3, "trigger": 2, "schedule": 2}


async def test_every_noun_is_copied_or_told(backend_url: str, tmp_path: Path) -> None:
    """A copy from every backend to SQLite is equal, counts what is not copied, and skips everything when repeated."""
    async with opened(backend_url, f"sqlite:///{tmp_path / 'target.db'}") as (source, target):
        await populated(source)
        first = await copy_storage(source, target)
        assert (first.copied, first.skipped, first.refused) == (EVERYTHING, {}, ())
        assert (first.never_copied["process"], first.never_copied["dead_letter"]) == (3, 1)
        await require_same(source, target)
        second = await copy_storage(source, target)
        assert (second.copied, second.skipped, second.refused) == ({}, EVERYTHING, ())
        await require_same(source, target)


async def test_a_storage_goes_to_postgresql(tmp_path: Path, postgres_schema_url: str) -> None:
    """A copy from SQLite to PostgreSQL is complete."""
    async with opened(f"sqlite:///{tmp_path / 'source.db'}", postgres_schema_url) as (source, target):
        await populated(source)
        report = await copy_storage(source, target)
        assert (report.copied, report.is_complete) == (EVERYTHING, True)
        await require_same(source, target)


async def test_other_things_of_the_same_name_are_left_alone_and_told() -> None:
    """A session, trigger or schedule that differs is kept, and a different session gets nothing of its namesake."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await populated(source)
        await started(target, "t", "other")
        await target.triggers.register(trigger("on", source_key="red"))
        await target.schedules.register(ScheduleDraft(key="hourly", cron="5 * * * *"))
        report = await copy_storage(source, target)
        assert {(each.noun, each.name) for each in report.refused} == {
            ("session", "t"),
            ("trigger", "on"),
            ("trigger", "off"),
            ("schedule", "hourly"),
            ("schedule", "stopped"),
        }
        assert not report.is_complete
        assert report.copied == {"artifact": 4, "session": 4, "attachment": 4, "batch": 3}
        assert await target.triggers.get(by_session("t"), "off") is None
        assert [each.node_id for each in (await whole(target, "t")).graph.nodes] == ["other"]
        assert (await found(target, "on")).definition.source_key == "red"


async def test_what_somebody_switched_off_in_the_target_stays_off() -> None:
    """A trigger or schedule that was disabled after a copy is reported and stays disabled."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await source.triggers.register(trigger("on"))
        await source.schedules.register(HOURLY)
        await copy_storage(source, target)
        await target.triggers.disable(HOST, "on", revision=1)
        await target.schedules.disable(HOST, "hourly", revision=1)
        report = await copy_storage(source, target)
        assert [(each.noun, each.name) for each in report.refused] == [("trigger", "on"), ("schedule", "hourly")]
        assert not (await found(target, "on")).enabled


async def test_an_empty_storage_is_copied_to_nothing() -> None:
    """A copy of an empty storage reports nothing."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        assert await copy_storage(source, target) == CopyReport(copied={}, skipped={}, refused=(), never_copied={})


async def test_progress_is_told_by_noun() -> None:
    """Progress counts each noun up to its total."""
    told: list[Progress] = []
    async with opened("sqlite://", "sqlite://") as (source, target):
        await populated(source)
        await copy_storage(source, target, progress=told.append)
    last = {each.noun: (each.done, each.total) for each in told}
    assert last == {"artifact": (4, None), "session": (5, 5), "trigger": (2, 2), "schedule": (2, 2)}

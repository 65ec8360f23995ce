"""What the maintenance of a worker removes, and what it must keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest_asyncio

import lash
from lash.model.attachment import AttachmentOwner, OwnerKind
from lash.runtime.worker.maintenance import maintain
from tests.runtime.stage_kit import Stage, staged

DAY_MS = 24 * 3_600_000


@pytest_asyncio.fixture
async def stage(backend_name: str, backend_url: str) -> AsyncIterator[Stage]:
    async with staged(backend_name, backend_url) as opened:
        yield opened


async def _uncommitted(app: lash.App) -> list[str]:
    page = await app.storage.attachments.list_uncommitted()
    return sorted(entry.ref.label or "" for entry in page.entries)


async def test_an_attachment_stays_as_long_as_its_turn_may_commit_it(stage: Stage) -> None:
    """Attachments of a failed turn stay while its input is queued or a dead letter; then they are swept."""
    app = stage.app()

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def failing(turn: lash.Turn) -> None:
        await turn.attach(b"x", "text/plain", label="of a dead letter")
        raise ValueError("no")

    async with app:
        session = app.session("s")
        await session.send("go", key="1")
        await app.drain()
        (letter,) = await session.dead_letters()
        await stage.clock.advance(DAY_MS + 1)
        await maintain(app._require())
        assert await _uncommitted(app) == ["of a dead letter"]

        await app.storage.queue.discard("s", letter.batch.batch_id)
        await maintain(app._require())
        assert await _uncommitted(app) == []


async def test_expired_sessions_are_deleted(stage: Stage) -> None:
    """A session is deleted once it expired, however many others did; one without an expiry stays."""
    app = stage.app()
    async with app:
        now_ms = stage.clock.now_ms()
        for number in range(101):
            await app.storage.sessions.create(f"s{number}", expires_at_ms=now_ms + 10)
        await app.storage.sessions.create("kept")
        await maintain(app._require())
        assert len((await app.storage.sessions.list(limit=1_000)).sessions) == 102
        await stage.clock.advance(10)
        await maintain(app._require())
        assert [each.meta.session_id for each in (await app.storage.sessions.list()).sessions] == ["kept"]


async def test_an_attachment_stays_as_long_as_its_process_runs(stage: Stage) -> None:
    """Attachments of a running process stay; those of an ended or unknown one are swept after a day."""
    app = stage.app()

    @app.process
    async def waiting(ctx: lash.Context) -> None:
        await ctx.wait_signal("go")

    async with app:
        await app.session("s").send("x", key="1")
        handle = await app.start(waiting)
        attachments = app.storage.attachments
        for label, process_id in (("running", handle.process_id), ("unknown", "unknown")):
            owner = AttachmentOwner(kind=OwnerKind.PROCESS, id=process_id)
            await attachments.put("s", label.encode(), "text/plain", owner=owner, label=label)
        await attachments.put("s", b"ownerless", "text/plain", label="ownerless")
        await stage.clock.advance(DAY_MS - 1)
        await maintain(app._require())
        assert await _uncommitted(app) == ["ownerless", "running", "unknown"]

        await stage.clock.advance(2)
        await maintain(app._require())
        assert await _uncommitted(app) == ["running"]

        await app.signal(handle.process_id, "go")
        await app.drain()
        await maintain(app._require())
        assert await _uncommitted(app) == []


async def test_an_attachment_stays_as_long_as_a_message_names_it(stage: Stage) -> None:
    """Attachments of a message that is due much later, or that died, are there when its turn runs."""
    app = stage.app()

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def reading(turn: lash.Turn) -> str:
        (part,) = (part for part in turn.messages(last=1)[0].parts if part.attachment is not None)
        assert part.attachment is not None
        return (await app.storage.attachments.get("s", part.attachment.id)).content.decode()

    async with app:
        session = app.session("s")
        await app.storage.sessions.create("s")
        late = await app.storage.attachments.put("s", b"late", "text/plain", label="late")
        await app.storage.attachments.put("s", b"ownerless", "text/plain", label="ownerless")
        due = datetime.fromtimestamp(stage.clock.now_ms() / 1_000 + 3 * 24 * 3_600, tz=UTC)
        await session.send("read it", key="1", attachments=[late], at=due)
        await stage.clock.advance(DAY_MS + 1)
        await maintain(app._require())
        assert await _uncommitted(app) == ["late"]

        await stage.clock.advance(2 * DAY_MS)
        await app.drain()
        assert [lash.text_of(each) for each in await session.messages()] == ["read it", "late"]


async def test_files_of_many_dead_letters_stay(stage: Stage) -> None:
    """However many dead letters there are, each keeps the attachments of its turn."""
    app = stage.app()

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def failing(turn: lash.Turn) -> None:
        await turn.attach(turn.text.encode(), "text/plain", label=turn.text)
        raise ValueError("no")

    numbers = [f"{number:03}" for number in range(103)]
    async with app:
        for number in numbers:
            await app.session("s").send(number, key=number)
        await app.drain()
        await stage.clock.advance(DAY_MS + 1)
        await maintain(app._require())
        kept: list[str] = []
        cursor: str | None = None
        while True:
            page = await app.storage.attachments.list_uncommitted(cursor=cursor)
            kept.extend(entry.ref.label or "" for entry in page.entries)
            if (cursor := page.next_cursor) is None:
                break
    assert sorted(kept) == numbers

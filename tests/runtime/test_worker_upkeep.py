"""What a worker tidies up, and what it must leave."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

import lash
from lash.model.attachment import AttachmentOwner, OwnerKind
from lash.runtime.upkeep import tidy
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
    """The input of a failed turn may be tried again as long as it is queued or a dead letter; then its files go."""
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
        await tidy(app._require())
        assert await _uncommitted(app) == ["of a dead letter"]

        await app.storage.queue.discard("s", letter.batch.batch_id)
        await tidy(app._require())
        assert await _uncommitted(app) == []


async def test_an_attachment_stays_as_long_as_its_process_runs(stage: Stage) -> None:
    """Files of a process that runs are left alone, those of one that ended or never was are removed after a day."""
    app = stage.app()

    @app.process
    async def waiting(ctx: lash.Context) -> None:
        await ctx.signal("go")

    async with app:
        await app.session("s").send("x", key="1")
        handle = await app.start(waiting)
        attachments = app.storage.attachments
        for label, process_id in (("running", handle.process_id), ("unknown", "nobody")):
            owner = AttachmentOwner(kind=OwnerKind.PROCESS, id=process_id)
            await attachments.put("s", label.encode(), "text/plain", owner=owner, label=label)
        await attachments.put("s", b"nobody's", "text/plain", label="nobody's")
        await stage.clock.advance(DAY_MS - 1)
        await tidy(app._require())
        assert await _uncommitted(app) == ["nobody's", "running", "unknown"]

        await stage.clock.advance(2)
        await tidy(app._require())
        assert await _uncommitted(app) == ["running"]

        await app.signal(handle.process_id, "go")
        await app.drain()
        await tidy(app._require())
        assert await _uncommitted(app) == []

"""The limit on the time of a statement, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lash.postgres.engine.statement_watch import LockHolder, StatementWatch

CONNECTION = object()


async def none() -> list[LockHolder]:
    return []


@pytest_asyncio.fixture
async def watch() -> AsyncIterator[StatementWatch]:
    """A watch whose statements are late at once."""
    watch = StatementWatch(none, limit_s=0.0)
    yield watch
    await watch.close()


async def waiting(watch: StatementWatch, answer: asyncio.Future[str]) -> str:
    """Wait for an answer as a statement does."""
    watch.begin(CONNECTION, "some", asyncio.current_task())
    try:
        return await answer
    except asyncio.CancelledError:
        if watch.was_late(CONNECTION):
            raise TimeoutError from None
        raise
    finally:
        watch.end(CONNECTION)


async def started(watch: StatementWatch) -> tuple[asyncio.Future[str], asyncio.Task[str]]:
    """Return a task that waits, and the answer that it waits for."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(waiting(watch, answer))
    await asyncio.sleep(0)
    return answer, task


async def test_a_late_statement_ends_its_wait(watch: StatementWatch) -> None:
    """Its task gets a timeout, and no cancellation remains."""
    _, task = await started(watch)
    watch._check()
    with pytest.raises(TimeoutError):
        await task
    assert task.cancelling() == 0


async def test_an_answer_that_has_come_counts(watch: StatementWatch) -> None:
    """The task of a process that was stopped gets the answer that arrived before its time was checked."""
    answer, task = await started(watch)
    answer.set_result("there")
    watch._check()
    assert await task == "there"


async def test_a_cancellation_at_the_same_moment_remains(watch: StatementWatch) -> None:
    """A caller that is cancelled as well ends as cancelled."""
    _, task = await started(watch)
    task.cancel()
    watch._end_late()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_statement_of_a_task_that_was_cancelled_before_has_the_limit(watch: StatementWatch) -> None:
    """What a cancelled task sends while it cleans up ends with a timeout too."""

    async def cleaning_up() -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        except asyncio.CancelledError:
            return await waiting(watch, asyncio.get_running_loop().create_future())

    task = asyncio.create_task(cleaning_up())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    watch._check()
    with pytest.raises(TimeoutError):
        await task
    assert task.cancelling() == 1


async def test_statements_of_transactions_have_limits_of_their_own(watch: StatementWatch) -> None:
    """A statement that began without a task is only reported."""
    watch.begin(CONNECTION, "some")
    watch._check()
    await asyncio.sleep(0)
    assert not watch.was_late(CONNECTION)
    watch.end(CONNECTION)


async def test_the_limit_holds_while_the_storage_closes(watch: StatementWatch) -> None:
    """A statement in flight when its storage closes ends with a timeout."""
    _, task = await started(watch)
    await watch.close()
    watch._check()
    with pytest.raises(TimeoutError):
        await task

"""A message to the application's own worker begins its turn, and what happens if it cannot."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import lash
from lash.model.queue import BatchState
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

BEGINNING = {"sqlite": "lease_acquire", "postgres": "queue_enqueue_turn"}
"""A statement that only a message that begins its turn, or a claim, runs."""
POLL = {"sqlite": "work_marks", "postgres": "work_poll"}
"""A statement of every poll."""


class Statements(lash.Hook):
    """The names of the statements."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def statement(self, name: str) -> None:
        self.names.append(name)


def _app(url: str, gate: asyncio.Event, **options: object) -> tuple[lash.App, Statements]:
    """Return an application whose agent waits for the gate."""
    statements = Statements()
    app = lash.App(url, hooks=[statements], options=lash.WorkerOptions(**options))  # type: ignore[arg-type]

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        await gate.wait()
        return f"re: {turn.text}"

    return app, statements


async def test_the_sender_goes_on_before_the_agent(backend_url: str) -> None:
    """`send` returns while the turn runs; the message has its first attempt."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate)
    async with app:
        session = app.session("s")
        sent = await session.send("a", key="k")
        assert sent.created
        assert sent.batch is not None
        assert sent.batch.attempts == 1
        holder = await app.storage.leases.holder("s")
        assert holder is not None
        gate.set()
        assert await session.ask("a", key="k", timeout_s=60) == "re: a"


async def test_messages_to_one_session_keep_their_order(backend_url: str) -> None:
    """The first begins a turn, the others wait in the queue and run after it, each once."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate)
    async with app:
        session = app.session("s")
        sent = [await session.send(f"{number}") for number in range(5)]
        assert [each.batch.attempts for each in sent if each.batch is not None] == [1, 0, 0, 0, 0]
        gate.set()

        async def is_answered() -> bool:
            return len(await session.messages()) == 10

        await until(is_answered, patience_s=60)
        texts = [message.text for message in await session.messages()]
        assert texts == [text for number in range(5) for text in (f"{number}", f"re: {number}")]


async def test_without_a_free_slot_a_message_is_queued(backend_url: str) -> None:
    """A worker that is full takes no lease for a message; the message runs once a slot is free."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate, sessions=1)
    async with app:
        await app.session("one").send("a")
        second = await app.session("two").send("b", key="k")
        assert second.batch is not None
        assert second.batch.attempts == 0
        assert await app.storage.leases.holder("two") is None
        gate.set()
        assert await app.session("two").ask("b", key="k", timeout_s=60) == "re: b"


@pytest.mark.parametrize("options", [{"agents": ("agent",)}, {"labels": {"team": "x"}}], ids=["agents", "labels"])
async def test_a_worker_that_chooses_leaves_the_choice_to_its_poll(
    backend_url: str, options: dict[str, object]
) -> None:
    """Of a worker for some agents or labels a message is only queued."""
    app, _ = _app(backend_url, asyncio.Event(), **options)
    async with app:
        sent = await app.session("s").send("a")
        assert sent.batch is not None
        assert sent.batch.attempts == 0


@pytest.mark.parametrize("turns_of_the_loop", range(8))
async def test_a_cancelled_sender_leaves_no_lease_behind(
    backend_url: str, backend_name: str, turns_of_the_loop: int
) -> None:
    """Wherever the sender is cancelled, the message is not there or is answered, and the session is free again."""
    gate = asyncio.Event()
    gate.set()
    app, statements = _app(backend_url, gate)
    async with app:
        session = app.session("s")
        assert await session.ask("first", timeout_s=60) == "re: first"
        sending = asyncio.ensure_future(session.send("second", key="k"))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        repeated = await session.send("second", key="k")
        assert repeated.state in {BatchState.PENDING, BatchState.CONSUMED}
        assert await session.ask("second", key="k", timeout_s=60) == "re: second"

        async def is_free() -> bool:
            return await app.storage.leases.holder("s") is None

        await until(is_free, patience_s=20)
        assert [message.text for message in await session.messages()] == ["first", "re: first", "second", "re: second"]
    assert BEGINNING[backend_name] in statements.names


async def test_a_worker_that_stops_takes_no_lease(backend_url: str) -> None:
    """What is sent while the worker stops is queued for the next one."""
    gate = asyncio.Event()
    gate.set()
    app, _ = _app(backend_url, gate)
    async with app:
        assert app._worker is not None
        app._worker.stop()
        sent = await app.session("s").send("a", key="k")
        assert sent.batch is not None
        assert sent.batch.attempts == 0
    again, _ = _app(backend_url, gate)
    async with again:
        assert await again.session("s").ask("a", key="k", timeout_s=60) == "re: a"


async def test_a_known_message_is_not_run_again(backend_url: str) -> None:
    """A repeated key returns the first message, answered, and frees its slot."""
    gate = asyncio.Event()
    gate.set()
    app, _ = _app(backend_url, gate, sessions=1)
    async with app:
        session = app.session("s")
        assert await session.ask("a", key="k", timeout_s=60) == "re: a"
        for _ in range(3):
            assert (await session.send("a", key="k")).state is BatchState.CONSUMED
        assert await session.ask("b", timeout_s=60) == "re: b"
        assert len(await session.messages()) == 4


async def test_an_ask_waits_for_the_end_of_its_turn(backend_url: str) -> None:
    """A reply, a failure, and a second message that comes during the turn; no wait depends on a poll."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate, poll_s=600)

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def failing(turn: lash.Turn) -> str:
        raise ValueError(turn.text)

    async with app:
        first = asyncio.ensure_future(app.session("s", agent="agent").ask("a", timeout_s=60))
        await until(lambda: _has_turn(app, "s"), patience_s=60)
        second = asyncio.ensure_future(app.session("s").ask("b", timeout_s=60))
        await until(lambda: _has_queued(app, "s", 2), patience_s=60)
        gate.set()
        assert await first == "re: a"
        assert await second == "re: b"
        with pytest.raises(lash.errors.TurnFailed, match="ValueError: c"):
            await app.session("f", agent=failing).ask("c", timeout_s=60)


async def test_a_message_of_another_program_is_found_after_the_turn(backend_url: str) -> None:
    """Messages that others queue during a turn that began with its message are run, whenever the hint comes."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate, poll_s=600)
    other = lash.App(backend_url, worker=False)
    async with app, other:
        for number in range(10):
            gate.clear()
            asking = asyncio.ensure_future(app.session("s").ask(f"{number}", timeout_s=60))
            await until(lambda: _has_turn(app, "s"), patience_s=60)
            sent = await other.session("s").send(f"other {number}", key=f"{number}")
            for _ in range(number):
                await asyncio.sleep(0)
            gate.set()
            assert await asking == f"re: {number}"
            assert await other.session("s").ask(f"other {number}", key=f"{number}", timeout_s=60) == (
                f"re: other {number}"
            )
            assert sent.created


async def test_a_cancelled_or_late_asker_does_not_end_the_turn(backend_url: str) -> None:
    """The turn that began goes on; asking again with the key returns its reply."""
    gate = asyncio.Event()
    app, _ = _app(backend_url, gate)
    async with app:
        session = app.session("s")
        with pytest.raises(lash.errors.WaitTimedOut):
            await session.ask("a", key="a", timeout_s=0)
        (queued,) = await session.pending()
        assert queued.source_key == "a"
        waiting = asyncio.ensure_future(app.session("t").ask("b", key="b"))
        await until(lambda: _has_turn(app, "t"), patience_s=60)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        gate.set()
        assert await session.ask("a", key="a", timeout_s=60) == "re: a"
        assert await app.session("t").ask("b", key="b", timeout_s=60) == "re: b"


async def test_a_turn_after_which_nothing_is_left_needs_no_poll(backend_url: str, backend_name: str) -> None:
    """The worker does not poll after turns that leave nothing; it does after one that found further input."""
    gate = asyncio.Event()
    gate.set()
    app, statements = _app(backend_url, gate, poll_s=600)
    async with app:
        session = app.session("s")
        assert await session.ask("a", timeout_s=60) == "re: a"
        await asyncio.sleep(0.3)
        statements.names.clear()
        for text in ("b", "c"):
            assert await session.ask(text, timeout_s=60) == f"re: {text}"
        await asyncio.sleep(0.3)
        assert POLL[backend_name] not in statements.names
        await asyncio.gather(*[session.ask(text, timeout_s=60) for text in ("d", "e")])
        await until(lambda: POLL[backend_name] in statements.names)


async def _has_turn(app: lash.App, session_id: str) -> bool:
    with contextlib.suppress(lash.errors.SessionNotFound):
        return await app.storage.leases.holder(session_id) is not None
    return False


async def _has_queued(app: lash.App, session_id: str, number: int) -> bool:
    return len(await app.session(session_id).pending()) == number

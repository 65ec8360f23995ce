"""Records that a turn puts: they are stored with its commit, or not at all."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.model.record import RecordDelete, RecordPut
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, claim_turn


async def _values(storage: lash.Storage, session_id: str | None) -> dict[str, object]:
    return {each.key: each.value for each in await storage.records.list("c", session_id=session_id)}


async def test_records_are_committed_with_the_turn(bench: Bench) -> None:
    """Records of the session and of the storage appear with the reply; the last change to a record counts."""
    app = await bench.app()
    before: list[dict[str, object]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        value = {"n": 1}
        turn.put_record("c", "own", value, index={"team": "red"}, ttl_ms=60_000)
        value["n"] = 2
        turn.put_record("c", "shared", b"\xff", of_storage=True)
        turn.put_record("c", "twice", 1)
        turn.put_record("c", "twice", 2)
        turn.delete_record("c", "old", expected_version=1)
        assert [type(each) for each in turn.records] == [RecordPut, RecordPut, RecordPut, RecordDelete]
        before.append(await _values(app.storage, "s"))
        return "done"

    await app.storage.sessions.create("s")
    await app.storage.records.put("c", "old", 0, session_id="s")
    await app.session("s", agent).send("go")
    await app.drain()
    assert before == [{"old": 0}]
    assert await _values(app.storage, "s") == {"own": {"n": 1}, "twice": 2}
    assert await _values(app.storage, None) == {"shared": b"\xff"}
    own = await app.storage.records.list("c", session_id="s", where={"team": "red"})
    assert [(each.version, each.expires_at_ms is None) for each in own] == [(1, False)]
    assert await app.storage.session("s").revision() == 1


async def test_an_attempt_that_ends_without_a_commit_stores_no_record(bench: Bench) -> None:
    """Neither a crash nor an error stores records; the attempt that commits stores them once."""
    app = await bench.app()
    reached = asyncio.Event()

    @app.agent(retry=Retry(max_attempts=5, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        turn.put_record("c", f"attempt-{turn.attempt}", turn.attempt)
        turn.put_record("c", "k", turn.attempt, of_storage=True)
        if turn.attempt == 1:
            reached.set()
            await asyncio.get_running_loop().create_future()
        if turn.attempt == 2:
            raise OSError("down")
        return "done"

    chat = app.session("s", agent)
    await chat.send("go")
    task = asyncio.create_task((await claim_turn(app, "s")).run())
    async with asyncio.timeout(30):
        await reached.wait()
    task.cancel()
    await asyncio.wait({task})
    assert await _values(app.storage, "s") == await _values(app.storage, None) == {}
    await bench.seconds(31)
    await app.drain()
    assert await _values(app.storage, "s") == {"attempt-3": 3}
    shared = await app.storage.records.get("c", "k")
    assert shared is not None
    assert (shared.value, shared.version) == (3, 1)


async def test_a_record_that_another_writer_changed_is_read_again(bench: Bench) -> None:
    """A conflict of versions fails the attempt; the next one reads the record and commits."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def count(turn: Turn) -> str:
        seen = await app.storage.records.get("c", "visits")
        value, version = (0, 0) if seen is None else (seen.value, seen.version)
        assert isinstance(value, int)
        turn.put_record("c", "visits", value + 1, of_storage=True, expected_version=version)
        if turn.attempt == 1:
            await app.storage.records.put("c", "visits", 10)
        return "done"

    await app.session("s", count).send("go")
    await app.drain()
    await bench.seconds(1)
    await app.drain()
    assert await _values(app.storage, None) == {"visits": 11}


async def test_a_value_that_is_not_json_is_refused_at_once(bench: Bench) -> None:
    """The agent gets the error where it puts the record."""
    app = await bench.app()

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        with pytest.raises(lash.errors.InvalidInput, match="record 'k'"):
            turn.put_record("c", "k", {1: "x"})  # type: ignore[dict-item]
        assert turn.records == ()
        return "done"

    await app.session("s", agent).send("go")
    await app.drain()
    assert await app.storage.session("s").revision() == 1

"""Branches of a conversation from the handle: edit, regenerate, branches, switch, fork, state."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.errors import NodeNotFound
from lash.runtime.policy import Retry
from lash.runtime.turns.handle import SessionHandle
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, run_turn, take_session, texts
from tests.runtime.worker_kit import until


async def transcript(turn: Turn) -> str:
    """Reply with all that the agent sees, and count the turns in the state."""
    number = turn.state.get("turns", 0)
    assert isinstance(number, int)
    turn.state["turns"] = number + 1
    return f"{number}:" + "/".join(lash.text_of(message) for message in turn.messages())


async def conversation(bench: Bench) -> SessionHandle:
    """Return a conversation of two turns with a working app."""
    app = await bench.app(worker=True)
    app.agent(transcript)
    chat = app.session("s", "transcript")
    await chat.ask("a", timeout_s=60)
    await chat.ask("b", timeout_s=60)
    return chat


async def test_edit_starts_a_branch_where_the_message_stands(bench: Bench) -> None:
    """The agent sees what came before the edited message; the earlier branch is kept, and switch returns to it."""
    chat = await conversation(bench)
    before = await chat.messages()
    assert texts(before) == [("user", "a"), ("assistant", "0:a"), ("user", "b"), ("assistant", "1:a/0:a/b")]

    assert await chat.edit(before[2].id, "c", timeout_s=60) == "2:a/0:a/c"
    assert texts(await chat.messages())[2:] == [("user", "c"), ("assistant", "2:a/0:a/c")]
    assert texts(list(await chat.branches(before[2].id))) == [("user", "b"), ("user", "c")]

    await chat.switch(before[2].id)
    assert await chat.messages() == before
    assert await chat.ask("d", timeout_s=60) == "3:a/0:a/b/1:a/0:a/b/d"
    await chat.switch(before[2].id)
    assert texts(await chat.messages())[-1] == ("assistant", "3:a/0:a/b/1:a/0:a/b/d")


async def test_a_message_is_sent_instead_of_another(bench: Bench) -> None:
    """It is durable before it is answered, starts the branch that an edit starts, and once for its key."""
    chat = await conversation(bench)
    before = await chat.messages()
    first = await chat.send("c", instead_of=before[2].id, key="k")
    assert (await chat.send("c", instead_of=before[2].id, key="k")).batch_id == first.batch_id
    await until(lambda: _has(chat, ("assistant", "2:a/0:a/c")))
    assert texts(list(await chat.branches(before[2].id))) == [("user", "b"), ("user", "c")]
    with pytest.raises(lash.InvalidInput, match="expected a message of the user"):
        await chat.send("d", instead_of=before[1].id)
    with pytest.raises(NodeNotFound):
        await chat.send("d", instead_of="unknown")


async def _has(chat: SessionHandle, last: tuple[str, str]) -> bool:
    return texts(await chat.messages())[-1] == last


async def test_edit_of_the_first_message(bench: Bench) -> None:
    """A branch can start before the first node."""
    chat = await conversation(bench)
    first = (await chat.messages())[0]
    assert await chat.edit(first.id, "x", timeout_s=60) == "2:x"
    assert texts(await chat.messages()) == [("user", "x"), ("assistant", "2:x")]
    assert texts(list(await chat.branches(first.id))) == [("user", "a"), ("user", "x")]
    assert await chat.ask("y", timeout_s=60) == "3:x/2:x/y"


async def test_regenerate_adds_a_reply_beside_the_earlier_one(bench: Bench) -> None:
    """The message stays one node with two replies; the agent sees it once."""
    chat = await conversation(bench)
    before = await chat.messages()
    assert await chat.regenerate(timeout_s=60) == "2:a/0:a/b"
    after = await chat.messages()
    assert after[:3] == before[:3]
    assert texts(list(await chat.branches(before[3].id))) == [("assistant", "1:a/0:a/b"), ("assistant", "2:a/0:a/b")]

    assert await chat.regenerate(before[1].id, timeout_s=60) == "3:a"
    assert texts(await chat.messages()) == [("user", "a"), ("assistant", "3:a")]
    await chat.switch(before[3].id)
    assert await chat.messages() == before


async def test_a_key_makes_edit_and_regenerate_idempotent(bench: Bench) -> None:
    """A repeated call returns the first reply and runs nothing."""
    chat = await conversation(bench)
    messages = await chat.messages()
    edited = await chat.edit(messages[2].id, "c", key="edit", timeout_s=60)
    assert await chat.edit(messages[2].id, "c", key="edit", timeout_s=60) == edited
    again = await chat.regenerate(messages[2].id, key="again", timeout_s=60)
    assert await chat.regenerate(messages[2].id, key="again", timeout_s=60) == again
    assert await chat.state() == {"turns": 4}


async def test_a_failed_attempt_of_an_edit_sees_the_same_conversation(bench: Bench) -> None:
    """A retry starts at the branch again, and its reply follows the edited message."""
    app = await bench.app()
    failures = ["once"]

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def flaky(turn: Turn) -> str:
        seen = "/".join(lash.text_of(message) for message in turn.messages())
        await turn.step("look", asyncio.sleep, 0)
        if turn.text == "c" and failures:
            raise OSError(failures.pop())
        return seen

    chat = app.session("s", flaky)
    await chat.send("a")
    await chat.send("b")
    await app.drain()
    before = await chat.messages()
    edit = asyncio.create_task(chat.edit(before[2].id, "c"))
    while not edit.done():
        await app.drain()
        await asyncio.sleep(0)
    assert await edit == "a/a/c"
    assert not failures


async def test_switch_is_refused_in_the_middle_of_a_turn(bench: Bench) -> None:
    """While another worker holds the session, and after an attempt that will be repeated, the path stays."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=60))
    async def agent(turn: Turn) -> str:
        if turn.text == "fail":
            raise OSError("away")
        return "ok"

    chat = app.session("s", agent)
    await chat.send("a")
    await app.drain()
    first = (await chat.messages())[0]
    lease = await take_session(app.storage, "s")
    with pytest.raises(lash.errors.SessionBusy):
        await chat.switch(first.id)
    await app.storage.leases.release(lease.fence)
    await chat.send("fail")
    await run_turn(app, "s")
    with pytest.raises(lash.errors.SessionBusy):
        await chat.switch(first.id)
    assert texts(await chat.messages()) == [("user", "a"), ("assistant", "ok")]
    assert await app.storage.leases.holder("s") is None


async def test_a_branch_at_a_removed_node_is_a_dead_letter(bench: Bench) -> None:
    """A message whose branch point was removed before its turn fails with the reason, without a retry."""
    app = await bench.app()
    app.agent(transcript)
    chat = app.session("s", "transcript")
    await chat.send("a")
    await app.drain()
    messages = await chat.messages()
    await chat.send("b")
    await app.drain()
    second = (await chat.messages())[2]
    edit = asyncio.create_task(chat.edit(second.id, "c"))

    async def is_queued() -> bool:
        return bool(await chat.pending())

    await until(is_queued)
    await removed(app, messages[0].id)
    await app.drain()
    with pytest.raises(lash.TurnFailed, match="was removed"):
        await edit


async def removed(app: lash.App, keep: str) -> None:
    """Go back to an earlier node, and remove the nodes that follow it."""
    session = app.storage.session("s")
    read = await session.load(lash.model.FullGraph())
    assert read is not None
    moved = lash.model.Commit(
        session_id="s", expected_revision=read.head.revision, graph=lash.model.Unchanged(leaf_node_id=keep)
    )
    await session.commit(moved)
    await session.tombstone([node.node_id for node in read.graph.nodes if node.node_id != keep])


async def test_unknown_and_wrong_messages_are_refused(bench: Bench) -> None:
    """Errors name the message, and nothing is queued."""
    chat = await conversation(bench)
    messages = await chat.messages()
    with pytest.raises(lash.errors.NodeNotFound):
        await chat.edit("nothing", "x")
    with pytest.raises(lash.InvalidInput, match="expected a message of the user"):
        await chat.edit(messages[1].id, "x")
    for call in (chat.regenerate, chat.branches, chat.switch):
        with pytest.raises(lash.errors.NodeNotFound):
            await call("nothing")
    await chat._storage.sessions.create("empty")
    with pytest.raises(lash.InvalidInput, match="no message of the user"):
        await SessionHandle(chat._storage, "empty").regenerate()
    assert await chat.pending() == ()


async def test_fork_at_a_message_and_state(bench: Bench) -> None:
    """A fork continues with the same agent from the message; the source does not change."""
    chat = await conversation(bench)
    messages = await chat.messages()
    fork = await chat.fork(at=messages[1].id)
    assert await fork.messages() == messages[:2]
    assert await fork.ask("z", timeout_s=60) == "2:a/0:a/z"
    assert await chat.messages() == messages
    assert await chat.state() == {"turns": 2}
    assert await SessionHandle(chat._storage, "none").state() == {}
    again = await chat.fork("named", at=messages[1].id)
    assert (await chat.fork("named", at=messages[1].id)).session_id == again.session_id == "named"

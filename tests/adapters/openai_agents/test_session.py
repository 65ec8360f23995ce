"""What runs and their operators rely on beyond the suites of the SDK."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import lash
import lash.sync
from lash.adapters.openai_agents import LashSession
from lash.adapters.openai_agents.items import items_of
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import Entry, MessageEntry, Node, PluginEntry
from tests.raw import raw


async def test_batches_of_concurrent_callers_stay_whole(url: str) -> None:
    """Items that are added together stand together, from any object on the URL, and none is lost."""
    sessions = [LashSession("chat", url) for _ in range(4)]
    batches = [[{"role": "user", "content": f"{n}a"}, {"role": "assistant", "content": f"{n}b"}] for n in range(16)]
    await asyncio.gather(*(sessions[n % 4].add_items(batch) for n, batch in enumerate(batches)))
    items = await sessions[0].get_items()
    pairs = [(items[place]["content"], items[place + 1]["content"]) for place in range(0, 32, 2)]
    assert sorted(pairs) == sorted((f"{n}a", f"{n}b") for n in range(16))


async def test_items_come_back_as_they_were_added(url: str) -> None:
    """Messages, tool calls and unknown fields are the same after a read, in order, and the last ones by a limit."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "done", "of_tomorrow": [1, None]},
        {"role": "assistant", "content": "bye"},
    ]
    session = LashSession("chat", url)
    await session.add_items(items)
    assert await LashSession("chat", url).get_items() == items
    assert await session.get_items(2) == items[2:]
    assert await session.pop_item() == items[3]
    assert await session.get_items() == items[:3]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": ""},
        {"role": "system", "content": 'be "brief"\n\u2028é'},
        {"role": "developer", "content": "be brief"},
        {"role": "tool", "content": "an unknown role"},
        {"content": "hi", "role": "user"},
        {"role": "user", "content": "hi", "status": "completed"},
        {"role": "user", "content": None},
        {},
    ],
    ids=str,
)
async def test_an_item_of_any_form_comes_back(url: str, item: dict[str, Any]) -> None:
    """The JSON is the same to the letter, from memory, after a new read and from a pop."""
    session, expected = LashSession("chat", url), json.dumps(item)
    await session.add_items([item])
    assert json.dumps((await session.get_items())[0]) == expected
    with lash.sync.shared(url) as storage:
        nodes = storage.session("openai-agents:chat").raw_path()
    assert json.dumps(items_of([node.body for node in nodes])[0]) == expected
    assert json.dumps(await session.pop_item()) == expected


async def test_a_plain_message_is_stored_once(url: str) -> None:
    """A role and a text are a message of the lash session, and no item beside it."""
    await LashSession("chat", url).add_items([{"role": "user", "content": "hello"}])
    (node,) = await lash.shared(url).session("openai-agents:chat").raw_path()
    assert node.body.count(b"hello") == 1


@pytest.mark.parametrize(
    "entry",
    [
        PluginEntry(plugin_type="notes", body="a text"),
        MessageEntry(
            message=Message(
                id="m",
                role=Role.USER,
                parts=tuple(Part(id=f"m:{number}", kind=PartKind.TEXT, content="hi") for number in range(2)),
            )
        ),
    ],
    ids=["no object", "several parts"],
)
async def test_what_is_no_item_is_refused(url: str, entry: Entry) -> None:
    """A node that another program has added to the session is an error that says so, not a wrong item."""
    chat = LashSession("chat", url)
    await chat.add_items([{"role": "user", "content": "hi"}])
    node = Node(node_id="foreign", timestamp=datetime.now(UTC), entry=entry)
    await lash.shared(url).session("openai-agents:chat").append([node])
    with pytest.raises(lash.CorruptData, match="expected an item of OpenAI's Agents SDK in each node"):
        await chat.get_items()


@pytest.mark.parametrize(("words", "kept"), [(200, "plain"), (700, "plain"), (2_000, "packed")])
async def test_only_long_items_are_compressed(url: str, words: int, kept: str) -> None:
    """Each run reads the whole history, and expanding a text takes longer than reading it."""
    await LashSession("chat", url).add_items([{"role": "user", "content": "word " * words}])
    await lash.shared(url).close()
    (row,) = await raw(url, "SELECT packed IS NULL FROM lash_nodes")
    assert row[0] == (kept == "plain")


async def test_people_can_read_the_conversation(url: str) -> None:
    """The texts of messages are messages of a lash session."""
    await LashSession("chat", url).add_items(
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    )
    handle = lash.SessionHandle(lash.shared(url), "openai-agents:chat")
    assert [(message.role.value, message.text) for message in await handle.messages()] == [
        ("user", "hi"),
        ("assistant", "ho"),
    ]


async def test_a_known_history_is_read_again_when_the_session_has_changed(url: str) -> None:
    """By another storage, a pop or an erasure: a reader never sees an older history."""
    session, added = LashSession("chat", url), [{"role": "user", "content": str(n)} for n in range(6)]
    await session.add_items(added[:2])
    assert await session.get_items() == added[:2]
    async with await lash.open(url) as storage:
        other = LashSession("chat", storage)
        await other.add_items(added[2:4])
        assert await session.get_items() == await session.get_items(10) == added[:4]
        await session.add_items(added[4:])
        assert await other.get_items() == await session.get_items() == added
        assert await other.pop_item() == added[5]
        assert await session.get_items(1) == added[4:5]
        lash_session = storage.session("openai-agents:chat")
        await lash_session.erase([(await lash_session.raw_path())[0].node_id])
    assert await session.get_items() == await session.get_items(9) == added[1:5]


async def test_readers_and_writers_share_no_objects(url: str) -> None:
    """A caller that changes an item that it has added or read changes nothing for others."""
    session, item = LashSession("chat", url), {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    expected = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    await session.add_items([item])
    item["content"] = "changed"
    read = await session.get_items()
    assert read == expected
    read[0]["content"][0]["text"] = "changed"
    assert await session.get_items() == await LashSession("chat", url).get_items() == expected


async def test_a_known_history_takes_one_small_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first read of all items, only the head is read, whatever the process has added."""
    async with await lash.open(f"sqlite:///{tmp_path}/chat.db") as storage:
        session = LashSession("chat", storage)
        await session.add_items([{"role": "user", "content": "hi"}])
        paths = []
        read_path = type(storage.session("x")).raw_path

        async def counted(self: Any, **scope: Any) -> Any:  # noqa: ANN401 (passed on)
            paths.append(scope)
            return await read_path(self, **scope)

        monkeypatch.setattr(type(storage.session("x")), "raw_path", counted)
        for number in range(20):
            await session.add_items([{"role": "user", "content": str(number)}])
            assert len(await session.get_items()) == number + 2
            assert len(await session.get_items(2)) == 2
        assert paths == []


def _saying(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def test_the_first_read_of_a_history_takes_no_thread(tmp_path: Path) -> None:
    """It is read by the event loop, removed nodes included, in several pieces if it is long."""
    url, texts = f"sqlite:///{tmp_path}/chat.db", [str(number) for number in range(1_600)]
    for name, added in (("short", texts[:498]), ("long", texts)):
        await LashSession(name, url).add_items(_saying(*added))
    await LashSession("short", url).pop_item()
    await LashSession("short", url).add_items(_saying("end"))
    lash.sync.shared(url).close()
    before = set(threading.enumerate())
    assert await LashSession("short", url).get_items() == _saying(*texts[:497], "end")
    assert _readers(before) == 0
    assert await LashSession("long", url).get_items() == _saying(*texts)
    assert _readers(before) == 0
    lash.sync.shared(url).close()


def _readers(before: set[threading.Thread]) -> int:
    return sum(each.name == "lash-sqlite-reader" for each in set(threading.enumerate()) - before)


async def test_a_read_is_of_one_revision(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that others add or remove while a history is read for the first time are not a part of it."""
    async with await lash.open(url) as storage, await lash.open(url) as elsewhere:
        session, other = LashSession("chat", storage), LashSession("chat", elsewhere)
        await session.add_items(_saying("0", "1", "2"))
        handle = type(storage.session("x"))
        read_head, changes = handle.head, [lambda: other.add_items(_saying("3")), other.pop_item, other.clear_session]

        async def overtaken(self: Any) -> Any:  # noqa: ANN401 (passed on)
            found = await read_head(self)
            if changes:
                await changes.pop(0)()
            return found

        monkeypatch.setattr(handle, "head", overtaken)
        assert await LashSession("chat", storage).get_items() == _saying("0", "1", "2")
        assert await LashSession("chat", storage).get_items() == _saying("0", "1", "2", "3")
        assert await LashSession("chat", storage).get_items() == []


async def test_a_cleared_session_starts_empty(url: str) -> None:
    """Another object that still has the session adds to the new one."""
    one, other = LashSession("chat", url), LashSession("chat", url)
    await one.add_items([{"role": "user", "content": "old"}])
    await one.clear_session()
    assert await other.get_items() == []
    await other.add_items([{"role": "user", "content": "new"}])
    assert await one.get_items() == [{"role": "user", "content": "new"}]


async def test_concurrent_pops_return_different_items(url: str) -> None:
    """Each item is removed once."""
    session, other = LashSession("chat", url), LashSession("chat", url)
    await session.add_items([{"role": "user", "content": str(n)} for n in range(8)])
    popped = await asyncio.gather(*((session, other)[n % 2].pop_item() for n in range(10)))
    assert sorted(item["content"] for item in popped if item is not None) == [str(n) for n in range(8)]
    assert await session.get_items() == []


async def test_an_item_that_is_not_json_is_refused(url: str) -> None:
    """Nothing of its batch is stored."""
    session = LashSession("chat", url)
    with pytest.raises(TypeError, match="JSON"):
        await session.add_items([{"role": "user", "content": "fine"}, {"role": "user", "content": object()}])
    assert await session.get_items() == []


class _CountingFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        _syncs.append(flags)
        super().xSync(flags)


class _CountingDisk(apsw.VFS):
    """Counts what is forced to the disk."""

    def __init__(self) -> None:
        self._name = "lash-test-counting"
        super().__init__(self._name, "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return _CountingFile("unix", name, flags)


_syncs: list[int] = []


async def test_an_add_by_url_is_one_transaction_in_the_caller_s_thread(tmp_path: Path) -> None:
    """Five statements and one fsync, without a change of threads, once the session and its file exist."""
    before, disk = apsw.vfs_names()[0], _CountingDisk()
    url, ran = f"sqlite:///{tmp_path}/chat.db", list[tuple[str, int]]()
    storage = lash.shared(url, on_statement=lambda name: ran.append((name, threading.get_ident())))
    try:
        session, statements = LashSession("chat", url), list[str]()
        await session.add_items([{"role": "user", "content": "hi"}])
        # Slow commits, and timers that fall due, lead to the storage's thread.
        for _ in range(10_000):
            ran.clear()
            _syncs.clear()
            await session.add_items([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
            statements, forced = [name for name, _ in ran], len(_syncs)
            if {thread for _, thread in ran} == {threading.get_ident()}:
                break
            await asyncio.sleep(0.001)
        else:
            pytest.fail("every add changed threads")
    finally:
        await storage.close()
        disk.unregister()
    assert apsw.vfs_names()[0] == before
    assert statements == [
        "begin",
        "session_for_append",
        "node_taken",
        "append_head",
        "commit_node",
        "append_move_checkpoint",
        "commit",
    ]
    assert forced == 1


async def test_a_validation_that_blocks_does_not_block_the_loop_of_its_caller(url: str) -> None:
    """Functions of the SDK run in the thread of the shared storage."""
    session, threads = LashSession("chat", url), list[int]()
    await session.add_items([{"role": "user", "content": str(number)} for number in range(3)])
    for _ in range(3):
        await session._pop_item_with_validation(lambda _item: threads.append(threading.get_ident()))
    assert len(threads) == 3
    assert threading.get_ident() not in threads

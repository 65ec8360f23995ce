"""What runners and operators of ADK rely on beyond its own tests of session services."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

import lash
from lash.adapters.adk import LashSessionService

_ROOT = Path(__file__).resolve().parents[3]
APP: dict[str, str] = {"app_name": "shop", "user_id": "ann"}


def changing(delta: dict[str, Any], **fields: Any) -> Event:  # noqa: ANN401 (fields of an event)
    return Event(author="agent", actions=EventActions(state_delta=delta), **fields)


def saying(text: str, author: str = "user", **fields: Any) -> Event:  # noqa: ANN401 (fields of an event)
    role = "user" if author == "user" else "model"
    return Event(author=author, content=types.Content(role=role, parts=[types.Part(text=text)]), **fields)


async def stored(service: LashSessionService, session_id: str, **config: Any) -> Session:  # noqa: ANN401 (a config)
    session = await service.get_session(**APP, session_id=session_id, config=GetSessionConfig(**config))
    assert session is not None
    return session


async def test_scopes_of_state(url: str) -> None:
    """The app's state is seen by all users, a user's by all of its sessions, and none of an invocation is kept."""
    service, other = LashSessionService(url), LashSessionService(url)
    session = await service.create_session(**APP, state={"app:a": 1, "user:u": [1], "s": None, "temp:t": 1})
    assert session.state == {"app:a": 1, "user:u": [1], "s": None}
    await service.append_event(session, changing({"app:a": 2, "user:u": {"k": None}, "s": 3, "temp:t": 4, "new": None}))
    assert session.state == {"app:a": 2, "user:u": {"k": None}, "s": 3, "temp:t": 4, "new": None}
    loaded = await stored(other, session.id)
    assert loaded.state == {"app:a": 2, "user:u": {"k": None}, "s": 3, "new": None}
    assert loaded.events[0].actions.state_delta == {"app:a": 2, "user:u": {"k": None}, "s": 3, "new": None}
    assert (await other.create_session(**APP)).state == {"app:a": 2, "user:u": {"k": None}}
    assert (await other.create_session(app_name="shop", user_id="bob")).state == {"app:a": 2}
    assert (await other.create_session(app_name="shop/ann", user_id="")).state == {}
    assert await other.get_user_state(**APP) == {"u": {"k": None}}


async def test_large_and_odd_values_of_state(url: str) -> None:
    """Values of any size and any JSON come back as they were, also when others change; the rest becomes text."""
    service = LashSessionService(url)
    state = {"large": "x" * 50_000, "integer": 2**80, "deep": _nested(150), "ключ/%": "ü", "float": 0.1}
    session = await service.create_session(**APP, state=state)
    await service.append_event(session, changing({"small": 1, "user:huge": 10**30, "app:large": "y" * 5_000}))
    await service.append_event(session, changing({"integer": "z" * 3_000, "call": print}))
    loaded = (await stored(service, session.id)).state
    assert loaded == {
        **state,
        "small": 1,
        "integer": "z" * 3_000,
        "call": repr(print),
        "user:huge": 10**30,
        "app:large": "y" * 5_000,
    }
    await service.append_event(session, changing({"large": "", "integer": 1}))
    loaded = (await stored(service, session.id)).state
    assert (loaded["large"], loaded["integer"], loaded["deep"]) == ("", 1, _nested(150))


def _nested(depth: int) -> Any:  # noqa: ANN401 (lists in lists)
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


async def test_an_event_comes_back_as_it_was(url: str) -> None:
    """Bytes, unknown sizes of numbers and texts of events survive, and the object equals the stored session."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    parts = [types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png"), types.Part(text="look")]
    call = types.Part(function_call=types.FunctionCall(name="f", args={"n": 2**70, "x": None}))
    await service.append_event(session, Event(author="user", content=types.Content(role="user", parts=parts)))
    await service.append_event(
        session, Event(author="a", content=types.Content(role="model", parts=[call]), long_running_tool_ids={"t"})
    )
    assert await stored(LashSessionService(url), session.id) == session


async def test_concurrent_appends_to_one_object_are_all_kept(url: str) -> None:
    """Parallel agents share the object: each event is stored once, in the order of the object's events."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    await asyncio.gather(*(service.append_event(session, changing({f"k{n}": n, "user:last": n})) for n in range(12)))
    loaded = await stored(service, session.id)
    assert {key: loaded.state[key] for key in loaded.state if key.startswith("k")} == {f"k{n}": n for n in range(12)}
    assert loaded.events == session.events
    assert loaded.state["user:last"] == loaded.events[-1].actions.state_delta["user:last"]


async def test_concurrent_appends_of_several_sessions_are_all_kept(url: str) -> None:
    """Different keys of the app's and the user's state, set at once by several sessions, are all there."""
    services = [LashSessionService(url) for _ in range(6)]
    sessions = await asyncio.gather(*(service.create_session(**APP) for service in services))
    await asyncio.gather(
        *(
            service.append_event(session, changing({f"app:a{n}": n, f"user:u{n}": n}))
            for n, (service, session) in enumerate(zip(services, sessions, strict=True))
        )
    )
    state = (await stored(services[0], sessions[0].id)).state
    assert state == {f"app:a{n}": n for n in range(6)} | {f"user:u{n}": n for n in range(6)}


async def test_an_overtaken_object_is_refused(url: str) -> None:
    """Of two objects of one revision one appends; the other gets StaleSessionError and changes nothing."""
    service, other = LashSessionService(url), LashSessionService(url)
    created = await service.create_session(**APP)
    first, second = await stored(service, created.id), await stored(other, created.id)
    late = first.last_update_time - 100
    results = await asyncio.gather(
        service.append_event(first, changing({"app:winner": 1, "k": 1}, timestamp=late)),
        other.append_event(second, changing({"app:winner": 2, "k": 2}, timestamp=late)),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, StaleSessionError)]
    assert len(refused) == 1
    winner = 2 if results[0] is refused[0] else 1
    loaded = await stored(service, created.id)
    assert loaded.state == {"app:winner": winner, "k": winner}
    assert len(loaded.events) == 1
    await other.append_event(loaded, saying("again"))
    assert [len(each.events) for each in (await stored(service, created.id), loaded)] == [2, 2]


async def test_an_object_without_marker_is_judged_by_its_events(url: str) -> None:
    """A copy that went through JSON appends if its last event is the stored one, and is refused if it is not."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    await service.append_event(session, saying("one", timestamp=session.last_update_time + 5))
    copy = Session.model_validate_json(session.model_dump_json())
    copy.last_update_time -= 1
    behind = copy.model_copy(deep=True, update={"events": []})
    await service.append_event(copy, saying("two", timestamp=session.last_update_time + 6))
    behind._storage_update_marker = None
    with pytest.raises(StaleSessionError):
        await service.append_event(behind, saying("three"))
    assert len((await stored(service, session.id)).events) == 2


async def test_a_late_append_does_not_bring_a_deleted_session_back(url: str) -> None:
    """It raises SessionNotFoundError; after the id was created again it raises StaleSessionError."""
    service = LashSessionService(url)
    session = await service.create_session(**APP, session_id="s")
    await service.append_event(session, changing({"k": 1}))
    await service.delete_session(**APP, session_id=" s ")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, changing({"k": 2, "app:k": 2}))
    assert await service.get_session(**APP, session_id="s") is None
    again = await service.create_session(**APP, session_id=" s ")
    assert (again.id, again.state, again.events) == ("s", {}, [])
    with pytest.raises(StaleSessionError):
        await service.append_event(session, changing({"k": 2}))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="never", **APP), saying("hi"))
    await service.delete_session(**APP, session_id="never")


async def test_one_of_several_creations_of_an_id_succeeds(url: str) -> None:
    """The others raise AlreadyExistsError, and their state is not stored."""
    services = [LashSessionService(url) for _ in range(4)]
    results = await asyncio.gather(
        *(each.create_session(**APP, session_id="s", state={"app:n": n}) for n, each in enumerate(services)),
        return_exceptions=True,
    )
    created = [result for result in results if isinstance(result, Session)]
    assert len(created) == 1
    assert sum(isinstance(result, AlreadyExistsError) for result in results) == 3
    assert (await stored(services[0], "s")).state == created[0].state


async def test_reads_of_a_part_of_the_events(url: str) -> None:
    """The last n, those since a time, both, or none; the state is always there, and the object can append."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    for n in range(6):
        await service.append_event(session, changing({"n": n}, timestamp=1_000.0 + n))
    times = [event.timestamp for event in (await stored(service, session.id)).events]
    assert times == [1_000.0 + n for n in range(6)]
    assert [e.timestamp for e in (await stored(service, session.id, num_recent_events=2)).events] == times[-2:]
    assert [e.timestamp for e in (await stored(service, session.id, after_timestamp=1_003.0)).events] == times[3:]
    both = await stored(service, session.id, after_timestamp=1_001.0, num_recent_events=2)
    assert [event.timestamp for event in both.events] == times[-2:]
    bare = await stored(service, session.id, num_recent_events=0)
    assert (bare.events, bare.state, bare.last_update_time) == ([], {"n": 5}, 1_005.0)
    await service.append_event(bare, saying("go on"))
    assert len((await stored(service, session.id)).events) == 7


async def test_events_of_one_time_keep_their_order(url: str) -> None:
    """The order is that of the appends, whatever the times and ids are."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    for place, (name, time) in enumerate([("z", 5.0), ("a", 5.0), ("m", 4.0)]):
        await service.append_event(session, saying(str(place), id=name, timestamp=time))
    assert [event.id for event in (await stored(service, session.id)).events] == ["z", "a", "m"]
    assert (await stored(service, session.id)).last_update_time == 4.0


async def test_a_repeated_append_stores_the_event_once(url: str) -> None:
    """The same event again changes nothing; another event with the same id is kept too."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    event = changing({"n": 1})
    await service.append_event(session, event)
    before = await stored(service, session.id)
    await service.append_event(session, event.model_copy(deep=True))
    assert await stored(service, session.id) == before
    await service.append_event(session, changing({"n": 2}))
    await service.append_event(session, event)
    await service.append_event(session, saying("other", id=event.id))
    loaded = await stored(service, session.id)
    assert [each.id for each in loaded.events].count(event.id) == 2
    assert (len(loaded.events), loaded.state) == (3, {"n": 2})


async def test_sessions_are_listed_oldest_activity_first(url: str) -> None:
    """With state and without events, of one user or of all users of the app; the objects can append."""
    service = LashSessionService(url)
    for name, time in (("a", 3e9), ("b", 1e9), ("c", 2e9)):
        session = await service.create_session(**APP, session_id=name, state={"name": name, "app:x": 1})
        await service.append_event(session, changing({"user:y": name}, timestamp=time))
    await service.create_session(app_name="shop", user_id="bob", session_id="d")
    await service.create_session(app_name="other", user_id="ann", session_id="e")
    listed = (await service.list_sessions(**APP)).sessions
    assert [(each.id, each.events, each.last_update_time) for each in listed] == [
        ("b", [], 1e9),
        ("c", [], 2e9),
        ("a", [], 3e9),
    ]
    assert [each.state for each in listed] == [{"name": n, "app:x": 1, "user:y": "c"} for n in ("b", "c", "a")]
    everyone = (await service.list_sessions(app_name="shop")).sessions
    assert [(each.user_id, each.id) for each in everyone] == [("ann", "b"), ("bob", "d"), ("ann", "c"), ("ann", "a")]
    assert everyone[1].state == {"app:x": 1}
    await service.append_event(listed[0], saying("hi"))
    assert (await service.list_sessions(app_name="nobody")).sessions == []


async def test_names_are_kept_apart(url: str) -> None:
    """Slashes, long names and equal session ids of other users and apps lead to different sessions."""
    service = LashSessionService(url)
    names = [("a/b", "c", "d"), ("a", "b/c", "d"), ("a", "b", "c/d"), ("a%2Fb", "c", "d"), ("x" * 200, "y" * 200, "d")]
    for place, (app_name, user_id, session_id) in enumerate(names):
        await service.create_session(
            app_name=app_name, user_id=user_id, session_id=session_id, state={"n": place, "user:n": place}
        )
    for place, (app_name, user_id, session_id) in enumerate(names):
        session = await service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        assert session is not None
        assert session.state == {"n": place, "user:n": place}
        assert [each.id for each in (await service.list_sessions(app_name=app_name, user_id=user_id)).sessions] == [
            session_id
        ]


async def test_odd_names_and_texts(url: str) -> None:
    """Ids with NUL, long ones, and an absent one; a text that was cut inside of a character is kept."""
    service = LashSessionService(url)
    for session_id in ("\0s", "s" * 5_000, "\n"):
        created = await service.create_session(**APP, session_id=session_id)
        await service.append_event(created, saying("a\0b cut \ud83d"))
        texts = [each.content.parts[0].text for each in (await stored(service, created.id)).events]  # type: ignore[union-attr, index]
        assert texts == ["a\0b cut ?"]
    assert len((await service.list_sessions(**APP)).sessions) == 3
    absent: Any = None
    assert await service.get_session(**APP, session_id=absent) is None
    await service.delete_session(**APP, session_id=absent)


async def test_a_cancelled_append_is_stored_and_applied(url: str) -> None:
    """The caller gets CancelledError once the event is stored, and the object is still current."""
    service = LashSessionService(url)
    session = await service.create_session(**APP)
    task = asyncio.create_task(service.append_event(session, changing({"k": 1})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await stored(service, session.id)).state == {"k": 1} == session.state
    await service.append_event(session, changing({"j": 2}))
    assert (await stored(service, session.id)).events == session.events


def test_one_service_serves_several_event_loops(url: str) -> None:
    """Threads with loops of their own use one service."""
    service = LashSessionService(url)

    def use(n: int) -> None:
        async def work() -> None:
            session = await service.create_session(**APP, session_id=f"s{n}")
            await service.append_event(session, saying("hi"))

        asyncio.run(work())

    threads = [threading.Thread(target=use, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = asyncio.run(service.list_sessions(**APP)).sessions
    assert sorted(each.id for each in listed) == ["s0", "s1", "s2"]


async def test_people_can_read_the_conversation(url: str) -> None:
    """The texts of events are messages of a lash session."""
    async with await lash.open(url) as storage:
        service = LashSessionService(storage)
        session = await service.create_session(**APP, session_id="s")
        await service.append_event(session, saying("hi"))
        await service.append_event(session, changing({"k": 1}))
        await service.append_event(session, saying("ho", author="agent"))
        handle = lash.SessionHandle(storage, "adk:shop/ann/s")
        assert [(message.role.value, message.text) for message in await handle.messages()] == [
            ("user", "hi"),
            ("assistant", "ho"),
        ]


async def test_a_very_long_text_is_stored_once(url: str) -> None:
    """It comes back whole, and is not a message of the lash session."""
    async with await lash.open(url) as storage:
        service = LashSessionService(storage)
        session = await service.create_session(**APP, session_id="s")
        for text in ("short", "x" * 1_000_001):
            await service.append_event(session, saying(text))
        assert (await stored(LashSessionService(url), "s")).events == session.events
        messages = await lash.SessionHandle(storage, "adk:shop/ann/s").messages()
        assert [message.text for message in messages] == ["short"]


_WRITER = """
import asyncio, sys
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from lash.adapters.adk import LashSessionService

async def main(url):
    service = LashSessionService(url)
    session = await service.create_session(app_name="shop", user_id="ann", session_id="s")
    for n in range(1, 100_000):
        delta = {"n": n, "app:n": n, "user:n": n}
        await service.append_event(session, Event(author="agent", actions=EventActions(state_delta=delta)))
        if n == 5:
            print("going", flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_killed_process_leaves_events_and_state_that_agree(url: str) -> None:
    """All scopes of the state are those of the last stored event, and another process goes on."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    command = [sys.executable, "-c", _WRITER, url]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as writer:  # noqa: ASYNC220 (brief)
        assert writer.stdout is not None
        await asyncio.to_thread(writer.stdout.readline)
        writer.send_signal(signal.SIGKILL)
    service = LashSessionService(url)
    session = await stored(service, "s")
    count = len(session.events)
    assert count >= 5
    assert session.state == {"n": count, "app:n": count, "user:n": count}
    await service.append_event(session, changing({"n": count + 1}))
    assert len((await stored(service, "s")).events) == count + 1

"""What agents of Strands rely on beyond its own tests of repositories."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from strands.types.content import Message
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import lash
from lash.adapters.strands import LashSessionRepository


def message(number: int, text: str = "", **fields: Any) -> SessionMessage:  # noqa: ANN401 (fields of a message)
    content: Message = {"role": "user", "content": [{"text": text or f"message {number}"}]}
    return SessionMessage(message=content, message_id=number, **fields)


def agent(agent_id: str = "a", **state: Any) -> SessionAgent:  # noqa: ANN401 (the state of an agent)
    return SessionAgent(agent_id=agent_id, state=state, conversation_manager_state={"kept": 1})


def opened(url: str, *agents: str) -> LashSessionRepository:
    """Return a repository with a session ``s`` and its agents."""
    repository = LashSessionRepository(url)
    repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
    for each in agents:
        repository.create_agent("s", agent(each))
    return repository


def numbers(found: list[SessionMessage]) -> list[int]:
    return [each.message_id for each in found]


def test_what_is_written_is_read_by_another_object(url: str) -> None:
    """Sessions, agents and messages are equal after a read; bytes and large integers too."""
    repository, other = LashSessionRepository(url), LashSessionRepository(url)
    session = Session(session_id="a/b %", session_type=SessionType.AGENT)
    assert repository.create_session(session) == session
    assert other.read_session("a/b %") == session
    helper = agent("team/1", n=2**70, deep={"k": [None]})
    helper._internal_state = {"bytes": b"\x00\xff"}
    repository.create_agent(session_id="a/b %", session_agent=helper)
    assert other.read_agent(session_id="a/b %", agent_id="team/1") == helper
    image: Message = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}]}
    first = SessionMessage.from_message(image, 0)
    repository.create_message(session_id="a/b %", agent_id="team/1", session_message=first)
    assert other.read_message(session_id="a/b %", agent_id="team/1", message_id=0) == first
    assert other.list_messages(session_id="a/b %", agent_id="team/1") == [first]


def test_odd_ids_and_values(url: str) -> None:
    """Ids that lash cannot have, and numbers and texts that JSON or a database may refuse, come back."""
    repository = LashSessionRepository(url)
    odd = ("", " ", "a\0b", "\ud800", "x" * 5_000, "a/b", "#a")
    for name in odd:
        repository.create_session(Session(session_id=name, session_type=SessionType.AGENT))
        helper = agent(name, infinite=float("inf"), large=2**80, text="\0\ud800")
        repository.create_agent(name, helper)
        repository.create_message(name, name, message(10**18, "\0\ud800"))
        assert repository.read_agent(name, name) == helper
    for name in odd:
        found = repository.read_session(name)
        assert found is not None
        assert found.session_id == name
        (stored,) = repository.list_messages(name, name)
        assert (stored.message_id, stored.message["content"]) == (10**18, [{"text": "\0\ud800"}])


def test_what_is_missing(url: str) -> None:
    """Reads return None or nothing, and writes raise SessionException."""
    repository = LashSessionRepository(url)
    assert repository.read_session("s") is None
    assert repository.read_agent("s", "a") is None
    assert repository.read_message("s", "a", 0) is None
    assert repository.read_multi_agent("s", "m") is None
    assert repository.list_messages("s", "a", offset=3) == []
    opened(url)
    assert repository.read_agent("s", "a") is None
    assert repository.list_messages("s", "a") == []
    for session_id in ("s", "never"):
        with pytest.raises(SessionException):
            repository.update_agent(session_id, agent())
        with pytest.raises(SessionException):
            repository.update_message(session_id, "a", message(0))
        with pytest.raises(SessionException):
            repository.create_message(session_id, "a", message(0))
        with pytest.raises(SessionException):
            repository.update_multi_agent(session_id, _Team("m", {}))
    with pytest.raises(SessionException):
        repository.create_agent("never", agent())
    with pytest.raises(SessionException):
        repository.create_multi_agent("never", _Team("m", {}))
    with pytest.raises(SessionException):
        repository.delete_session("never")


def test_nothing_is_overwritten_by_a_create(url: str) -> None:
    """A second session, agent or message of the same id raises SessionException; an equal message is accepted."""
    repository = opened(url, "a")
    first = message(0, "first")
    repository.create_message("s", "a", first)
    repository.create_message("s", "a", first)
    with pytest.raises(SessionException):
        repository.create_message("s", "a", message(0, "second"))
    with pytest.raises(SessionException):
        repository.create_agent("s", agent("a", changed=True))
    with pytest.raises(SessionException):
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT, created_at="later"))
    assert repository.list_messages("s", "a") == [first]
    assert repository.read_agent("s", "a").state == {}  # type: ignore[union-attr]


def test_an_update_keeps_the_time_of_creation(url: str) -> None:
    """All else is replaced, and the object that was given has the time too."""
    repository = opened(url, "a")
    created = repository.read_agent("s", "a")
    assert created is not None
    changed = agent("a", n=1)
    changed.created_at, changed.updated_at = "never", "now"
    repository.update_agent("s", changed)
    assert changed.created_at == created.created_at
    assert repository.read_agent("s", "a") == changed
    repository.create_message("s", "a", message(0, created_at="then"))
    redacted = message(0, redact_message={"role": "user", "content": [{"text": "[redacted]"}]}, created_at="never")
    repository.update_message("s", "a", redacted)
    read = repository.read_message("s", "a", 0)
    assert read is not None
    assert (read.created_at, read.to_message()) == ("then", {"role": "user", "content": [{"text": "[redacted]"}]})


def test_messages_are_ordered_by_number_and_paged(url: str) -> None:
    """With and without gaps in the numbers, for each agent on its own."""
    repository = opened(url, "a", "b", "a/")
    for number in (0, 1, 2, 3, 9, 10, 11):
        repository.create_message("s", "a", message(number))
    for number in (0, 1, 2, 3, 4):
        repository.create_message("s", "b", message(number))
    repository.create_message("s", "a/", message(0))
    repository.create_message("s", "a", message(5))
    assert numbers(repository.list_messages("s", "a")) == [0, 1, 2, 3, 5, 9, 10, 11]
    assert numbers(repository.list_messages("s", "a", limit=3, offset=3)) == [3, 5, 9]
    assert numbers(repository.list_messages("s", "a", offset=6)) == [10, 11]
    assert numbers(repository.list_messages("s", "b", offset=3)) == [3, 4]
    assert numbers(repository.list_messages("s", "b", limit=2, offset=1)) == [1, 2]
    for limit, offset in ((0, 0), (2, 5), (None, 9)):
        assert repository.list_messages("s", "b", limit=limit, offset=offset) == []
    for wrong in (-1, "0", None, True):
        with pytest.raises(ValueError, match="message id"):
            repository.read_message("s", "a", wrong)  # type: ignore[arg-type]


def test_the_end_of_a_long_conversation_is_read_alone(url: str) -> None:
    """Restoring an agent whose manager has removed messages does not read the removed ones."""
    repository = opened(url, "a")
    for number in range(30):
        repository.create_message("s", "a", message(number))
    listed: list[int] = []

    async def read() -> list[SessionMessage]:
        async with await lash.open(url) as own:
            records = type(own.records)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(records, "list", _counting(records.list, listed))
                return await asyncio.to_thread(LashSessionRepository(own).list_messages, "s", "a", None, 28)

    assert numbers(asyncio.run(read())) == [28, 29]
    assert sum(listed) == 3


def _counting(original: Any, listed: list[int]) -> Any:  # noqa: ANN401 (the method of a store)
    async def counted(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (any list)
        found = await original(self, *arguments, **options)
        listed.append(len(found))
        return found

    return counted


async def test_methods_may_be_called_inside_a_running_loop(url: str) -> None:
    """They block the thread and return; other threads call the same object meanwhile."""
    repository = opened(url, "a")
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(repository.create_message, "s", "a", message(number)) for number in range(8)]
        assert repository.read_session("s") is not None
        for other in others:
            other.result()
    assert numbers(repository.list_messages("s", "a")) == list(range(8))


def test_two_writers_of_one_number(url: str) -> None:
    """One message is stored, and the writer of the other gets SessionException."""
    repositories = [opened(url, "a"), LashSessionRepository(url)]
    results: list[object] = []
    barrier = threading.Barrier(2)

    def write(place: int) -> None:
        barrier.wait()
        try:
            repositories[place].create_message("s", "a", message(0, f"of {place}"))
        except SessionException as error:
            results.append(error)
        else:
            results.append(place)

    threads = [threading.Thread(target=write, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (result for result in results if isinstance(result, int))
    stored = repositories[0].read_message("s", "a", 0)
    assert stored is not None
    assert stored.message["content"] == [{"text": f"of {winner}"}]


def test_a_late_write_does_not_bring_a_deleted_session_back(url: str) -> None:
    """It raises SessionException, and a new session of the same id is empty."""
    repository = opened(url, "a")
    repository.create_message("s", "a", message(0))
    LashSessionRepository(url).delete_session("s")
    for write in (
        lambda: repository.create_message("s", "a", message(1)),
        lambda: repository.update_agent("s", agent()),
        lambda: repository.create_multi_agent("s", _Team("m", {})),
    ):
        with pytest.raises(SessionException):
            write()
    assert repository.read_session("s") is None
    opened(url, "a")
    assert repository.list_messages("s", "a") == []


class _Team:
    """What a repository needs of a graph or a swarm."""

    def __init__(self, name: str, state: dict[str, Any]) -> None:
        self.id = name
        self._state = state

    def serialize_state(self) -> dict[str, Any]:
        return self._state


def test_states_of_graphs_and_swarms(url: str) -> None:
    """They are created, read and replaced, apart from agents of the same id."""
    repository = opened(url, "m")
    repository.create_multi_agent("s", _Team("m", {"status": "executing", "nodes": [1]}))
    assert LashSessionRepository(url).read_multi_agent("s", "m") == {"status": "executing", "nodes": [1]}
    repository.update_multi_agent("s", _Team("m", {"status": "completed"}))
    assert repository.read_multi_agent("s", "m") == {"status": "completed"}
    assert repository.read_agent("s", "m") == repository.read_agent("s", "m")


async def test_a_storage_of_the_program(url: str) -> None:
    """A repository on an open storage is called from other threads than that of its loop."""
    async with await lash.open(url) as storage:
        repository = LashSessionRepository(storage)
        session = Session(session_id="s", session_type=SessionType.AGENT)
        await asyncio.to_thread(repository.create_session, session)
        assert await asyncio.to_thread(repository.read_session, "s") == session
        with pytest.raises(lash.ConfigError):
            repository.read_session("s")

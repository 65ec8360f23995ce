"""An agent behind A2A, with the official client: send, stream, subscribe after a crash, cancel, and questions."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.client import Client, create_client
from a2a.client.client import ClientConfig
from a2a.client.errors import A2AClientError
from a2a.server.context import ServerCallContext
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError

import lash
from lash.base.ids import new_id
from tests.cli.kit import ROOT, environment
from tests.protocols.a2a.program import HOLD, build, site
from tests.protocols.mcp.kit import serving
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite"])

DONE, ASKS = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_INPUT_REQUIRED


class Peer:
    """Another agent, which talks to ours."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def stream(self, text: str, **fields: str) -> list[StreamResponse]:
        """Send a message and return all events of the stream."""
        return [event async for event in self.client.send_message(request(text, **fields))]

    async def get(self, task_id: str) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task_id))

    async def start(self, text: str) -> Task:
        """Send a message and return its task at once."""
        wanted = request(text)
        wanted.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        first = await anext(aiter(self.client.send_message(wanted)))
        return first.task


def request(text: str, *, message_id: str = "", context_id: str = "", task_id: str = "") -> SendMessageRequest:
    message = Message(role=Role.ROLE_USER, parts=[Part(text=text)], message_id=message_id or new_id())
    message.context_id, message.task_id = context_id, task_id
    return SendMessageRequest(message=message)


def states(events: list[StreamResponse]) -> list[str]:
    """Return the states in the order in which they were reported."""
    found = [
        event.task.status.state if event.HasField("task") else event.status_update.status.state
        for event in events
        if event.HasField("task") or event.HasField("status_update")
    ]
    return [TaskState.Name(state).removeprefix("TASK_STATE_").lower() for state in found]


def reply(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@asynccontextmanager
async def connected(address: str, *, streaming: bool = True) -> AsyncIterator[Peer]:
    client = await create_client(address, client_config=ClientConfig(streaming=streaming))
    async with client:
        yield Peer(client)


class Served:
    """A server in this process, and the application behind it."""

    def __init__(self, app: lash.App, address: str, directory: Path) -> None:
        self.app = app
        self.address = address
        self.hold = directory / HOLD


@pytest_asyncio.fixture
async def served(backend_url: str, tmp_path: Path) -> AsyncIterator[Served]:
    app, agent = build(backend_url, tmp_path)
    owners = {"": "", "other": "other"}

    def owner(context: ServerCallContext) -> str:
        return owners[context.state["headers"].get("x-client", "")]

    port = free_port()
    async with app, serving(site(app, agent, f"http://127.0.0.1:{port}/", owner=owner), port) as address:
        yield Served(app, address, tmp_path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def test_a_message_is_answered_and_its_repetition_is_the_same_task(served: Served) -> None:
    """Blocking send returns the task with the reply; the same message id again runs no second turn."""
    async with connected(served.address, streaming=False) as peer:
        (first,) = await peer.stream("hello", message_id="m1", context_id="c1")
        assert (first.task.status.state, reply(first.task)) == (DONE, "You said hello")
        (again,) = await peer.stream("hello", message_id="m1", context_id="c1")
        assert again.task == first.task == await peer.get(first.task.id)
        (other,) = await peer.stream("and now", context_id="c1")
        assert other.task.id != first.task.id
        assert other.task.context_id == "c1"
        with pytest.raises(A2AError):
            await peer.stream("other words", message_id="m1", context_id="c1")
    assert [message.text for message in await served.app.session("a2a::c1").messages()] == [
        "hello",
        "You said hello",
        "and now",
        "You said and now",
    ]


async def test_words_are_streamed(served: Served) -> None:
    """The stream has the task, the words as they come, the whole reply, and the end; a new model call begins again."""
    async with connected(served.address) as peer:
        events = await peer.stream("stutter")
    assert states(events)[-1] == "completed"
    pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [(each.artifact.parts[0].text, each.append, each.last_chunk) for each in pieces] == [
        ("I mean", False, False),
        ("You ", False, False),
        ("said ", True, False),
        ("stutter ", True, False),
        ("You said stutter", False, True),
    ]


async def test_a_question_is_input_that_is_required(served: Served) -> None:
    """A wait of the turn asks the client; an answer that does not fit is refused, and one that fits continues it."""
    async with connected(served.address) as peer:
        events = await peer.stream("buy")
        assert states(events)[-1] == "input_required"
        task = await peer.get(events[0].task.id)
        assert task.status.message.parts[0].text == "For how much?"
        with pytest.raises(A2AError):
            await peer.stream("a lot", task_id=task.id)
        answered = await peer.stream("12", task_id=task.id)
        assert states(answered)[-1] == "completed"
        assert reply(await peer.get(task.id)) == "bought for 12"
        with pytest.raises(A2AError):
            await peer.stream("13", task_id=task.id)


async def test_an_approval_is_not_asked_of_the_client(served: Served) -> None:
    """The approval of a tool call is for an operator: for the client the task is at work, and cannot be answered."""
    async with connected(served.address) as peer:
        task = await peer.start("approve")

        async def is_waiting() -> bool:
            return bool(await served.app.storage.waits.pending())

        await until(is_waiting)
        assert (await peer.get(task.id)).status.state == TaskState.TASK_STATE_WORKING
        with pytest.raises(A2AError):
            await peer.stream("true", task_id=task.id)
        assert await is_waiting()


async def test_a_task_is_cancelled(served: Served) -> None:
    """A running task and a queued one end as cancelled and stay so; a task that has ended is not cancelled."""
    served.hold.touch()
    async with connected(served.address) as peer:
        running = await peer.start("hello")
        wanted = request("later", context_id=running.context_id)
        wanted.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        queued = (await anext(aiter(peer.client.send_message(wanted)))).task

        async def is_working() -> bool:
            return (await peer.get(running.id)).status.state == TaskState.TASK_STATE_WORKING

        await until(is_working)
        for task in (queued, running):
            cancelled = await peer.client.cancel_task(CancelTaskRequest(id=task.id))
            assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
            assert (await peer.get(task.id)).status.state == TaskState.TASK_STATE_CANCELED
            with pytest.raises(A2AError):
                await peer.client.cancel_task(CancelTaskRequest(id=task.id))


async def test_a_failure_hides_its_reason(served: Served) -> None:
    """The client learns that the agent failed; the reason stays with the dead letter."""
    async with connected(served.address) as peer:
        events = await peer.stream("fail")
        assert states(events)[-1] == "failed"
        assert "secret" not in str(events)
        assert "secret" not in str(await peer.get(events[0].task.id))
    (letter,) = await served.app.storage.queue.dead()
    assert "a secret" in letter.reason


async def test_tasks_of_others_are_unknown(served: Served) -> None:
    """A client reaches only its own sessions, whatever ids it sends; what is not offered says so."""
    async with connected(served.address) as peer:
        events = await peer.stream("hello", context_id="c1")
        task = events[0].task
        peer.client._transport.httpx_client.headers["x-client"] = "other"  # type: ignore[attr-defined]
        for unknown in (task.id, "x", "x.y", f"{task.id}z"):
            with pytest.raises(A2AError):
                await peer.get(unknown)
        await peer.stream("hello", context_id="c1")
        with pytest.raises(A2AError):
            await peer.client.list_tasks(ListTasksRequest())
    page = await served.app.storage.sessions.list()
    assert {each.meta.session_id for each in page.sessions} == {"a2a::c1", "a2a:other:c1"}


@pytest.mark.proof
async def test_a_stream_continues_after_kill_9(backend_url: str, tmp_path: Path) -> None:
    """The server and its worker are killed in the middle of a turn; after a restart the client subscribes again."""
    (tmp_path / HOLD).touch()
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    async with program(backend_url, port, tmp_path) as killed, connected(address) as peer:
        stream = aiter(peer.client.send_message(request("hello")))
        task = (await anext(stream)).task
        assert [event async for event in _until_words(stream)]
        killed.kill()
        await killed.wait()
        with pytest.raises(A2AClientError):
            [event async for event in stream]
    async with program(backend_url, port, tmp_path), connected(address) as peer:
        events = aiter(peer.client.subscribe(SubscribeToTaskRequest(id=task.id)))
        first = await anext(events)
        assert first.task.id == task.id
        (tmp_path / HOLD).unlink()
        rest = [event async for event in events]
        assert states(rest)[-1] == "completed"
        assert reply(await peer.get(task.id)) == "You said hello"
    async with await lash.open(backend_url) as storage:
        messages = await lash.SessionHandle(storage, f"a2a::{task.context_id}").messages()
    assert [message.text for message in messages] == ["hello", "You said hello"]


async def _until_words(stream: AsyncIterator[StreamResponse]) -> AsyncIterator[StreamResponse]:
    async for event in stream:
        yield event
        if event.HasField("artifact_update"):
            return


@asynccontextmanager
async def program(url: str, port: int, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the server as a program of its own; it is killed at the end."""
    command = (sys.executable, "-m", "tests.protocols.a2a.program", url, str(port), str(directory))
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment())

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(is_listening)
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()

"""Answers the requests of A2A clients from the sessions of an application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final, NoReturn

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from lash.base.ids import new_id
from lash.errors import Conflict, InvalidInput
from lash.model.activity import Observed, TurnActivity
from lash.model.value import JSON
from lash.model.wait import Question, Resolved
from lash.protocols.a2a import tasks
from lash.protocols.a2a.tasks import ENDED, TaskKey
from lash.runtime.app import App
from lash.runtime.definition import AgentDefinition

_POLL_S: Final = 1.0
"""How often a task is read while nothing is observed, in case an event was missed."""


class AgentHandler(RequestHandler):
    """The request handler of an agent, for the routes of the package ``a2a-sdk``.

    A context is a session and a task is one of its messages. Tasks are derived from the session at each request, so
    any process with the same storage can answer, also after a crash. ``message_id`` makes sending idempotent.

    ``owner`` names the client of a call, by default its authenticated user; the sessions of different owners are
    separate. ``may_answer`` decides which waits of a turn its client can answer, by default those with a question that
    are not approvals of tool calls; such a wait is the state ``input-required``.
    """

    def __init__(
        self,
        app: App,
        agent: AgentDefinition,
        *,
        owner: Callable[[ServerCallContext], str] = lambda context: context.user.user_name,
        may_answer: tasks.MayAnswer = tasks.asks_client,
    ) -> None:
        self._app = app
        self._agent = agent
        self._owner = owner
        self._may_answer = may_answer

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        return await self._read(self._key(params.id, context))

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Send a message, and return its task when it has ended or asks something; at once if the client wants that."""
        key, cursor = await self._sent(params.message, context)
        if not params.configuration.return_immediately:
            async for _ in self._follow(key, cursor):
                pass
        return await self._read(key)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield its task, and what happens to it, until it ends or asks something."""
        key, cursor = await self._sent(params.message, context)
        async with contextlib.aclosing(self._follow(key, cursor)) as events:
            async for event in events:
                yield event

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Yield a task as it is now, and what happens to it from now on."""
        key = self._key(params.id, context)
        if (await self._read(key)).status.state in ENDED:
            raise UnsupportedOperationError("the task has ended; get it instead")
        cursor = await self._app.session(key.session_id).cursor()
        async with contextlib.aclosing(self._follow(key, cursor)) as events:
            async for event in events:
                yield event

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel a task, and return it when it has ended."""
        key = self._key(params.id, context)
        if (await self._read(key)).status.state in ENDED:
            raise TaskNotCancelableError
        session = self._app.session(key.session_id)
        cursor = await session.cursor()
        await self._app.storage.records.put(tasks.CANCELLED, key.batch_id, value=True, session_id=key.session_id)
        await session.cancel("cancelled by the A2A client", batch_id=key.batch_id)
        async for _ in self._follow(key, cursor, stops_for_input=False):
            pass
        return await self._read(key)

    # Inside.

    def _key(self, task_id: str, context: ServerCallContext) -> TaskKey:
        return TaskKey.parse(self._owner(context), task_id)

    async def _read(self, key: TaskKey) -> Task:
        return await tasks.read_task(self._app.storage, key, self._may_answer)

    async def _sent(self, message: Message, context: ServerCallContext) -> tuple[TaskKey, str]:
        """Send a message, or answer what its task asks; return the task, and the cursor from before."""
        if message.task_id:
            key = self._key(message.task_id, context)
            if message.context_id not in ("", key.context_id):
                raise InvalidParamsError("the context is not that of the task")
            cursor = await self._app.session(key.session_id).cursor()
            await self._answer(key, message)
            return key, cursor
        owner, context_id = self._owner(context), message.context_id or new_id()
        try:
            session = self._app.session(tasks.session_of(owner, context_id), self._agent)
            cursor = await session.cursor()
            sent = await session.send(_text(message), key=message.message_id)
        except (InvalidInput, Conflict) as error:
            raise InvalidParamsError(str(error)) from error
        return TaskKey(owner, context_id, sent.batch_id), cursor

    async def _answer(self, key: TaskKey, message: Message) -> None:
        wait = await tasks.open_wait(self._app.storage, key, self._may_answer)
        if wait is None or wait.ask is None:
            state = TaskState.Name((await self._read(key)).status.state)
            raise UnsupportedOperationError(f"the task asks nothing (it is {state}); send a message without its id")
        try:
            await self._app.storage.waits.resolve_id(wait.key_id, Resolved(value=_value(message, wait.ask)))
        except InvalidInput as error:
            raise InvalidParamsError(str(error)) from error

    async def _follow(
        self, key: TaskKey, cursor: str, *, stops_for_input: bool = True
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        """Yield the task, its text as it comes, and each change of its state, until it ends or asks something."""
        stops = ENDED | {TaskState.TASK_STATE_INPUT_REQUIRED} if stops_for_input else ENDED
        task, said = await self._read(key), False
        yield task
        async with (
            contextlib.aclosing(self._app.session(key.session_id).observe(cursor)) as observed,
            contextlib.aclosing(_or_nothing(observed)) as events,
        ):
            async for each in events:
                if task.status.state in stops:
                    return
                if isinstance(each, TurnActivity):
                    payload = each.payload if isinstance(each.payload, dict) and each.turn_id == key.turn_id else {}
                    # The pieces of another model call, or of another attempt, begin again.
                    said = said and not payload.keys() & {"stream", "model_call"}
                    if isinstance(text := payload.get("text"), str):
                        yield _piece(key, text, append=said)
                        said = True
                    continue
                before, task = task.status.state, await self._read(key)
                if task.status.state != before:
                    for artifact in task.artifacts:
                        # The committed reply stands: pieces may have been shown twice, or lost.
                        yield _piece(key, artifact.parts[0].text, append=False, last=True)
                    yield TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)

    # What is not offered.

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> NoReturn:  # noqa: ARG002
        raise UnsupportedOperationError("tasks are not listed; get one by its id")

    async def on_create_task_push_notification_config(self, params: object, context: object) -> NoReturn:  # noqa: ARG002
        raise PushNotificationNotSupportedError

    on_get_task_push_notification_config = on_create_task_push_notification_config
    on_list_task_push_notification_configs = on_create_task_push_notification_config
    on_delete_task_push_notification_config = on_create_task_push_notification_config

    async def on_get_extended_agent_card(self, params: object, context: object) -> AgentCard:  # noqa: ARG002
        raise ExtendedAgentCardNotConfiguredError


async def _or_nothing(observed: AsyncGenerator[Observed, None]) -> AsyncGenerator[Observed | None, None]:
    """Yield what is observed, and None at once and after each second without anything."""
    yield None
    waiting = asyncio.ensure_future(anext(observed))
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=_POLL_S)
            if not done:
                yield None
                continue
            try:
                found = waiting.result()
            except StopAsyncIteration:
                # The session was deleted, which the next read reports.
                yield None
                return
            waiting = asyncio.ensure_future(anext(observed))
            yield found
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


def _piece(key: TaskKey, text: str, *, append: bool, last: bool = False) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(
        task_id=key.task_id,
        context_id=key.context_id,
        artifact=tasks.reply_artifact(text),
        append=append,
        last_chunk=last,
    )


def _text(message: Message) -> str:
    """Return the text of a message; raise InvalidParamsError if it has other parts."""
    if any(part.WhichOneof("content") not in ("text", "data") for part in message.parts):
        raise InvalidParamsError("expected parts of text or data; files are not supported")
    return "\n".join(
        part.text if part.WhichOneof("content") == "text" else msgspec.json.encode(MessageToDict(part.data)).decode()
        for part in message.parts
    )


def _value(message: Message, ask: Question) -> JSON:
    """Return an answer: data as it is, text as JSON if the question wants something else than text."""
    if len(message.parts) == 1 and message.parts[0].WhichOneof("content") == "data":
        value: JSON = MessageToDict(message.parts[0].data)
        return value
    value = text = _text(message)
    if ask.schema is not None and ask.schema.get("type") != "string":
        with contextlib.suppress(msgspec.DecodeError):
            value = msgspec.json.decode(text)
    return value

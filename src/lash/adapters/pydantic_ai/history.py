"""The conversation of a session as the message history of an agent, and what a run adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.run import AgentRunResult
from pydantic_core import to_json

from lash.adapters.attached import Attached, StorageSource
from lash.adapters.names import short
from lash.adapters.pydantic_ai.messages import as_reply, covering, from_lash, to_lash
from lash.base.ids import new_id
from lash.errors import SessionDeleted, SessionNotFound
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.runtime.turns.handle import SessionHandle
from lash.runtime.turns.messages import text_of
from lash.runtime.turns.turn import Turn
from lash.stores.storage import Storage

_REPLY: Final = "reply"


def history(turn: Turn, last: int | None = None) -> list[ModelMessage]:
    """Return the conversation before this turn: ``agent.run(turn.text, message_history=history(turn))``.

    ``last`` limits it to the end of the conversation, counted in messages of the session. The first of them is then
    one of a user, so that no result of a tool stands without its call.
    """
    own = {message.id for message in turn.input_messages}
    messages = turn.messages() if last is None else turn.messages(last + len(own))
    found = from_lash(message for message in messages if message.id not in own)
    return found if last is None else _from_a_user(found)


def reply(turn: Turn, result: AgentRunResult[Any]) -> Message:
    """Add the new messages of a run to the turn, and return the message to reply with.

    An agent ends with ``return reply(turn, result)``. The messages are published in the turn's one commit. People see
    the user's message, the tool calls with their results, and the output as the text of the reply; `history` returns
    the messages as they were.
    """
    messages = list(result.new_messages())
    first = _first_response(messages)
    before, shown = messages[:first], messages[first:]
    covers = _covered(turn, before)
    text = result.output if isinstance(result.output, str) else to_json(result.output).decode()
    added = to_lash(shown, f"{turn.turn_id}:pydantic_ai")
    last = added[-1] if added else None
    if last is None or last.text != text or not isinstance(shown[-1], ModelResponse):
        # The output of a tool or a function: people read it, and the messages stand before it.
        last = as_reply(text, [] if last is None else shown[-1:], _REPLY)
    if len(added) > 1:
        added[0] = covering(added[0], before, covers)
        for message in added[:-1]:
            turn.add(message)
        return last
    return covering(last, before if added and last is added[-1] else messages, covers)


class LashHistory:
    """The messages of a conversation, without an app: ``LashHistory("user-1", "sqlite:///chat.db")``.

    Pass ``await history.messages()`` as ``message_history``, and ``result.new_messages()`` to ``add``: they are stored
    together or not at all. It takes a storage URL or an open storage, and is used from any event loop.
    """

    def __init__(self, session_id: str, source: StorageSource) -> None:
        self.session_id = session_id
        self._attached = Attached(source)
        self._name = short(session_id, 255)

    async def messages(self, last: int | None = None) -> list[ModelMessage]:
        """Return the messages of the conversation, or its end; empty if the conversation does not exist."""

        async def read(storage: Storage) -> list[Message]:
            try:
                return await SessionHandle(storage, self._name).messages(last)
            except SessionDeleted:
                return []

        found = from_lash(await self._attached.run(read))
        return found if last is None else _from_a_user(found)

    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Add messages at the end of the conversation, in one commit."""
        added = to_lash(messages, new_id())
        if not added:
            return
        now = datetime.now(UTC)
        nodes = [Node(node_id=new_id(), timestamp=now, entry=MessageEntry(message=message)) for message in added]

        async def write(storage: Storage) -> None:
            try:
                await storage.session(self._name).append(nodes)
            except (SessionNotFound, SessionDeleted):
                await storage.sessions.create(self._name, labels={"framework": "pydantic-ai"})
                await storage.session(self._name).append(nodes)

        await self._attached.run(write)

    async def clear(self) -> None:
        """Delete the conversation; the next messages start a new one."""
        await self._attached.run(lambda storage: storage.sessions.delete(self._name))


def _covered(turn: Turn, before: Sequence[ModelMessage]) -> list[str]:
    """Return the input of the turn that these messages contain: early input may have come after them."""
    prompts = (part for message in before for part in message.parts if isinstance(part, UserPromptPart))
    said = "\n".join(text for prompt in prompts for text in _texts(prompt.content))
    return [each.id for each in turn.input_messages if each.role is Role.USER and text_of(each) in said]


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [each for each in content if isinstance(each, str)] if isinstance(content, Sequence) else []


def _first_response(messages: Sequence[ModelMessage]) -> int:
    """Return the place of the first response: what stands before it repeats the input of the turn."""
    places = (place for place, message in enumerate(messages) if isinstance(message, ModelResponse))
    return next(places, len(messages))


def _from_a_user(messages: list[ModelMessage]) -> list[ModelMessage]:
    for place, message in enumerate(messages):
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts):
            return messages[place:]
    return []

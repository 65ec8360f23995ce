"""The routes of the AI SDK."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lash.errors import InvalidInput, LashError, SessionNotFound
from lash.model.causal import TurnCause
from lash.model.session.session import ActivePath
from lash.protocols.front_end.follow import QUIET_S, Ended, Quiet, follow
from lash.protocols.front_end.http import (
    COMMENT,
    MAX_BODY,
    MOST_STREAMS,
    DescribeError,
    Options,
    Place,
    SessionOf,
    Streams,
    event,
    guarded,
    read_json,
)
from lash.protocols.front_end.turn import (
    Answer,
    Attached,
    Failed,
    Gone,
    Outcome,
    Replied,
    Waiting,
    active,
    answer,
    attach,
    send,
)
from lash.protocols.vercel.messages import UIMessage, UIPart, ui_messages
from lash.protocols.vercel.reply import Chunk, Reply
from lash.protocols.vercel.request import ChatRequest, answers_of, decisions, user_input
from lash.runtime.app import App
from lash.runtime.definition import AgentDefinition
from lash.runtime.turns.handle import SessionHandle

_HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_LATELY_S: Final = 120.0
"""For how long a reply is streamed again after its commit, for a client that lost its connection just before."""
_DONE: Final = "data: [DONE]\n\n"


def routes(
    app: App,
    agent: AgentDefinition | str | None = None,
    *,
    path: str = "/api/chat",
    session_of: SessionOf | None = None,
    describe_error: DescribeError | None = None,
    cancel_on_disconnect: bool = False,
    max_body: int = MAX_BODY,
    most_streams: int = MOST_STREAMS,
    keep_alive_s: float = QUIET_S,
) -> list[Route]:
    """Return the routes through which clients of the AI SDK talk to an agent, for an ASGI application of your own.

    ``POST path`` sends a message, or decisions about tool calls, and streams the reply. The id of the message makes it
    idempotent. ``GET path/{chat_id}/stream`` streams the reply that is being made, from its begin; 204 if there is
    none. ``GET path/{chat_id}`` returns the stored messages.

    They answer every request that reaches them. ``session_of`` returns the session of a chat, or None to refuse the
    request; without it, the id of the chat is the id of the session. ``describe_error`` returns what clients see of a
    failed turn. A turn whose client has gone goes on, unless ``cancel_on_disconnect`` is true. A silent stream gets
    a comment every ``keep_alive_s`` seconds.
    """
    options = Options(
        app, agent, session_of, describe_error, cancel_on_disconnect, max_body, most_streams, keep_alive_s
    )
    server, base = _Server(options), path.rstrip("/")
    return [
        Route(path, guarded(server.post), methods=["POST"], name="chat"),
        Route(f"{base}/{{chat_id:path}}/stream", guarded(server.resume), methods=["GET"], name="chat-stream"),
        Route(f"{base}/{{chat_id:path}}", guarded(server.messages), methods=["GET"], name="chat-messages"),
    ]


class _Server:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._streams = Streams(options.most_streams)

    async def post(self, request: Request) -> Response:
        given = await read_json(request, ChatRequest, self._options.max_body)
        if given.trigger != "submit-message":
            raise InvalidInput(f"expected the trigger 'submit-message', got {given.trigger!r:.80}")
        message, parts = given.split()
        with self._streams.place() as place:
            session = await self._options.session(request, given.id)
            turn = await self._turn(session, message, answers_of(given, parts))
            if parts and not turn.is_continued and not turn.is_new:
                # The client adds to what it has, so nothing of it is streamed again.
                turn = turn._replace(cursor=await session.cursor(), is_whole=False)
            return self._respond(place, session, turn, parts)

    async def resume(self, request: Request) -> Response:
        with self._streams.place() as place:
            session = await self._options.session(request, request.path_params["chat_id"])
            turn = await active(self._options.storage, session.session_id) or await self._ended_lately(session)
            return Response(status_code=204) if turn is None else self._respond(place, session, turn, [])

    async def messages(self, request: Request) -> Response:
        session = await self._options.session(request, request.path_params["chat_id"])
        entries = await session.transcript()
        return JSONResponse({"messages": ui_messages(entry.message for entry in entries)})

    async def _turn(self, session: SessionHandle, message: UIMessage | None, answers: list[Answer]) -> Attached:
        if answers:
            return await answer(session, self._options.storage, answers)
        if message is None:
            raise InvalidInput("expected a message of the user")
        return await send(session, self._options.storage, user_input(message))

    def _respond(self, place: Place, session: SessionHandle, turn: Attached, parts: list[UIPart]) -> Response:
        denied = {each.id for each in decisions(parts) if not each.approved}
        calls = {part["toolCallId"] for part in parts if _is_tool(part) and part["approval"].get("id") in denied}
        stream = _Stream(self._options, session, turn)
        return place.response(stream.lines(Reply(turn, parts, calls)), _HEADERS, stream.after)

    async def _ended_lately(self, session: SessionHandle) -> Attached | None:
        """Return the last turn if it was committed lately."""
        storage = self._options.storage
        try:
            read = await storage.session(session.session_id).load(ActivePath(last=1))
        except SessionNotFound:
            return None
        nodes = () if read is None else read.graph.nodes
        for node in nodes:
            cause, age_s = node.caused_by, time.time() - node.timestamp.timestamp()
            if isinstance(cause, TurnCause) and age_s < _LATELY_S:
                return await attach(storage, session.session_id, cause.turn_id.removeprefix("turn:"))
        return None


class _Stream:
    """The stream of one reply."""

    def __init__(self, options: Options, session: SessionHandle, turn: Attached) -> None:
        self._options = options
        self._session = session
        self._turn = turn
        self._has_ended = False

    async def lines(self, reply: Reply) -> AsyncGenerator[str, None]:
        for chunk in reply.begin():
            yield event(chunk)
        try:
            async for each in follow(self._options.storage, self._turn, quiet_s=self._options.keep_alive_s):
                if isinstance(each, Quiet):
                    yield COMMENT
                elif isinstance(each, Ended):
                    self._has_ended = True
                    for chunk in self._end(reply, each.outcome):
                        yield event(chunk)
                else:
                    for chunk in reply.chunks(each):
                        yield event(chunk)
        except LashError:
            # The client can reconnect; nothing of the database is in the chunk.
            yield event({"type": "error", "errorText": "the storage is not available"})
        yield _DONE

    async def after(self) -> None:
        """Cancel the turn of a client that has gone, if that was asked for."""
        if self._options.cancel_on_disconnect and not self._has_ended:
            await self._session.cancel("the client has gone", batch_id=self._turn.batch_id)

    def _end(self, reply: Reply, outcome: Outcome) -> Iterator[Chunk]:
        if isinstance(outcome, Replied):
            yield from reply.settle(outcome)
        elif isinstance(outcome, Waiting):
            yield from reply.ask(outcome.asked)
        elif isinstance(outcome, Failed):
            yield from reply.close()
            yield {"type": "error", "errorText": self._options.error_text(outcome.error)}
        elif isinstance(outcome, Gone):
            yield from reply.close()
            yield {"type": "error", "errorText": "the chat was deleted"}
        else:
            yield from reply.close()
            yield {"type": "abort", "reason": "the turn was cancelled"}


def _is_tool(part: UIPart) -> bool:
    """Return whether a part is a decided tool call."""
    return part.get("state") == "approval-responded" and isinstance(part.get("toolCallId"), str)

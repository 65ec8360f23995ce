"""The routes of AG-UI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lash.errors import InvalidInput, LashError, SessionDeleted
from lash.model.value import JSON
from lash.protocols.agui.messages import JSONMessage, whole
from lash.protocols.agui.request import RunInput, user_input
from lash.protocols.agui.run import Fields, Run, interrupt, state_patch
from lash.protocols.front_end.follow import QUIET_S, Ended, Quiet, follow
from lash.protocols.front_end.http import (
    COMMENT,
    MAX_BODY,
    MOST_STREAMS,
    DescribeError,
    Options,
    SessionOf,
    Streams,
    event,
    guarded,
    read_json,
)
from lash.protocols.front_end.turn import Attached, Failed, Gone, Outcome, Replied, Waiting, answer, send
from lash.runtime.app import App
from lash.runtime.definition import AgentDefinition
from lash.runtime.turns.handle import SessionHandle

PROTOCOL_VERSION = "1.0"
ShowState = Callable[[dict[str, JSON]], dict[str, JSON]]


def routes(
    app: App,
    agent: AgentDefinition | str | None = None,
    *,
    path: str = "/agui",
    session_of: SessionOf | None = None,
    show_state: ShowState | None = None,
    describe_error: DescribeError | None = None,
    cancel_on_disconnect: bool = False,
    max_body: int = MAX_BODY,
    most_streams: int = MOST_STREAMS,
    keep_alive_s: float = QUIET_S,
) -> list[Route]:
    """Return the routes through which AG-UI clients talk to an agent, for an ASGI application of your own.

    ``POST path`` runs the agent and streams the events of the run. The id of the user's message makes it idempotent:
    the same request again, after a lost connection or a crash, follows the same turn. ``GET path/{thread_id}`` returns
    the stored messages.

    They answer every request that reaches them. ``session_of`` returns the session of a thread, or None to refuse the
    request; without it, the id of the thread is the id of the session. ``show_state`` returns what clients see of the
    session's state; without it they see nothing. ``describe_error`` returns what they see of a failed turn.
    A run whose client has gone goes on, unless ``cancel_on_disconnect`` is true. A silent stream gets a comment every
    ``keep_alive_s`` seconds.
    """
    options = Options(
        app, agent, session_of, describe_error, cancel_on_disconnect, max_body, most_streams, keep_alive_s
    )
    server = _Server(options, show_state)
    return [
        Route(path, guarded(server.run), methods=["POST"], name="agui"),
        Route(f"{path.rstrip('/')}/{{thread_id:path}}", guarded(server.messages), methods=["GET"], name="agui-thread"),
    ]


class _Server:
    def __init__(self, options: Options, show_state: ShowState | None) -> None:
        self._options = options
        self._show_state = show_state
        self._streams = Streams(options.most_streams)

    async def run(self, request: Request) -> Response:
        given = await read_json(request, RunInput, self._options.max_body)
        conversation = given.split()
        with self._streams.place() as place:
            session = await self._options.session(request, given.thread_id)
            turn = await self._turn(session, given, conversation.asked)
            stream = _Stream(self._options, self._show_state, session, given, turn)
            return place.response(stream.lines(Run(turn, conversation.earlier, conversation.later)), {}, stream.after)

    async def _turn(self, session: SessionHandle, given: RunInput, asked: JSONMessage | None) -> Attached:
        if given.resume:
            return await answer(session, self._options.storage, given.answers)
        if asked is None:
            raise InvalidInput("expected a message of the user, or answers to interrupts in resume")
        return await send(session, self._options.storage, user_input(asked))

    async def messages(self, request: Request) -> Response:
        session = await self._options.session(request, request.path_params["thread_id"])
        entries = await session.transcript()
        return JSONResponse({"messages": whole(entry.message for entry in entries)})


class _Stream:
    """The stream of one run."""

    def __init__(
        self, options: Options, show_state: ShowState | None, session: SessionHandle, given: RunInput, turn: Attached
    ) -> None:
        self._options = options
        self._show_state = show_state
        self._session = session
        self._turn = turn
        self._names = {"threadId": given.thread_id, "runId": given.run_id}
        self._has_ended = False

    async def lines(self, run: Run) -> AsyncGenerator[str, None]:
        yield event({"type": "RUN_STARTED", **self._names, "protocolVersion": PROTOCOL_VERSION})
        state = await self._state()
        if state is not None:
            yield event({"type": "STATE_SNAPSHOT", "snapshot": state})
        for fields in run.begin():
            yield event(fields)
        try:
            async for each in follow(self._options.storage, self._turn, quiet_s=self._options.keep_alive_s):
                if isinstance(each, Quiet):
                    yield COMMENT
                elif isinstance(each, Ended):
                    self._has_ended = True
                    for fields in await self._end(run, each.outcome, state):
                        yield event(fields)
                else:
                    for fields in run.events(each):
                        yield event(fields)
        except LashError:
            # The client can send the same request again; nothing of the database is in the event.
            yield event({"type": "RUN_ERROR", "message": "the storage is not available", "code": "unavailable"})

    async def after(self) -> None:
        """Cancel the turn of a client that has gone, if that was asked for."""
        if self._options.cancel_on_disconnect and not self._has_ended:
            await self._session.cancel("the client has gone", batch_id=self._turn.batch_id)

    async def _end(self, run: Run, outcome: Outcome, state: dict[str, JSON] | None) -> list[Fields]:
        if isinstance(outcome, Replied):
            now = await self._state()
            changes = [] if state is None or now is None else state_patch(state, now)
            delta = [{"type": "STATE_DELTA", "delta": changes}] if changes else []
            return [*run.settle(outcome), *delta, self._finished({"type": "success"})]
        if isinstance(outcome, Waiting):
            asked = [interrupt(each) for each in outcome.asked]
            return [*run.ask(outcome.asked), self._finished({"type": "interrupt", "interrupts": asked})]
        if isinstance(outcome, Failed):
            return list(_failed(run, self._options.error_text(outcome.error), "turn_failed"))
        if isinstance(outcome, Gone):
            return list(_failed(run, "the thread was deleted", "thread_deleted"))
        return [*run.close(), self._finished({"type": "cancelled"})]

    def _finished(self, outcome: dict[str, Any]) -> Fields:
        return {"type": "RUN_FINISHED", **self._names, "outcome": outcome}

    async def _state(self) -> dict[str, JSON] | None:
        if self._show_state is None:
            return None
        try:
            return self._show_state(await self._session.state())
        except SessionDeleted:
            return None


def _failed(run: Run, message: str, code: str) -> Iterator[Fields]:
    yield from run.close()
    yield {"type": "RUN_ERROR", "message": message, "code": code}

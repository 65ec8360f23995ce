"""HTTP for protocols: bounded bodies of JSON, errors as JSON, and streams of server-sent events."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lash.base.shapes import decoder
from lash.errors import Advice, Conflict, InvalidInput, LashError, NotFound, SessionDeleted, TurnFailed
from lash.runtime.app import App
from lash.runtime.definition import AgentDefinition
from lash.runtime.turns.handle import SessionHandle
from lash.stores.storage import Storage

T = TypeVar("T")

MAX_BODY: Final = 4 * 1024 * 1024
"""The most bytes of a request: clients send the whole conversation with each message."""
MOST_STREAMS: Final = 1_000
"""How many streams one set of routes serves at a time."""
COMMENT: Final = ": still here\n\n"
"""A line that clients ignore; it keeps proxies from closing a silent stream."""
FAILED: Final = "The agent failed to answer."
"""What a client gets of a failure, unless ``describe_error`` says more."""

SessionOf: TypeAlias = Callable[[Request, str], "str | None | Awaitable[str | None]"]
"""Returns the id of the session that a client's thread or chat stands for; None if this request may not use it."""
DescribeError: TypeAlias = Callable[[TurnFailed], str]
"""Returns what a client sees of a turn that failed permanently."""


class Options(NamedTuple):
    """What the routes of a protocol share."""

    app: App
    agent: AgentDefinition | str | None
    session_of: SessionOf | None
    describe_error: DescribeError | None
    cancel_on_disconnect: bool
    max_body: int
    most_streams: int
    keep_alive_s: float

    @property
    def storage(self) -> Storage:
        return self.app.storage

    async def session(self, request: Request, name: str) -> SessionHandle:
        """Return the session of a thread or chat, or refuse the request."""
        found = name if self.session_of is None else self.session_of(request, name)
        session_id = await found if inspect.isawaitable(found) else found
        if session_id is None:
            raise HTTPException(404, "unknown thread")
        return self.app.session(session_id, self.agent)

    def error_text(self, error: TurnFailed) -> str:
        return FAILED if self.describe_error is None else self.describe_error(error)


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def guarded(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose errors are responses of JSON; nothing of the database is in them."""

    async def respond(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException as refusal:
            return _refusal(refusal.status_code, refusal.detail, refusal.headers)
        except ClientDisconnect:
            return Response(status_code=400)
        except InvalidInput as error:
            return _refusal(400, str(error))
        except (NotFound, SessionDeleted):
            return _refusal(404, "unknown thread")
        except Conflict as error:
            return _refusal(409, str(error))
        except LashError as error:
            if error.advice is Advice.RETRY:
                return _refusal(503, "the storage is not available", {"Retry-After": "1"})
            raise

    return respond


def _refusal(status: int, text: str, headers: object = None) -> Response:
    return JSONResponse({"error": text}, status, headers=headers if isinstance(headers, dict) else None)


async def read_json(request: Request, declared: type[T], max_body: int) -> T:
    """Return the body of a request as a value of this type, or refuse the request."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # A page of another site can send other types without asking the browser for permission.
        raise HTTPException(415, "expected a body of type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_body:
            raise HTTPException(413, f"expected a body of at most {max_body:,} bytes")
    try:
        return decoder(declared).decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body does not fit: {error}") from None


def event(value: object) -> str:
    """Return a value as one server-sent event."""
    return f"data: {msgspec.json.encode(value).decode()}\n\n"


class Streams:
    """The open streams of one set of routes, of which there is a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Take a place for a stream, or refuse the request; it is free again if no response is made of it."""
        if self._open >= self._most:
            raise HTTPException(503, "too many open streams", {"Retry-After": "1"})
        self._open += 1
        place = Place(self._free)
        try:
            yield place
        finally:
            if not place.is_used:
                self._free()

    def _free(self) -> None:
        self._open -= 1


class Place:
    """The place of one stream."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free = free
        self.is_used = False

    def response(
        self, source: AsyncGenerator[str, None], headers: dict[str, str], after: Callable[[], Awaitable[None]]
    ) -> Response:
        """Return a response of events. ``after`` is awaited when it ends, also if the client has gone."""
        self.is_used = True
        return _EventStream(source, headers, after, self._free)


class _EventStream(StreamingResponse):
    """Server-sent events, whose source is closed with the response."""

    def __init__(
        self,
        source: AsyncGenerator[str, None],
        headers: dict[str, str],
        after: Callable[[], Awaitable[None]],
        free: Callable[[], None],
    ) -> None:
        # nginx buffers responses unless it is asked not to.
        every = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        super().__init__(source, media_type="text/event-stream", headers={**every, **headers})
        self._source = source
        self._after = after
        self._free = free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # Servers report a client that has gone as a message, or as an error of send.
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
        finally:
            self._free()
            # The client may have gone while an event was sent; the source is then suspended.
            await self._source.aclose()
            await self._after()

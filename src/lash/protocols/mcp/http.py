"""The server for operators over streamable HTTP: an ASGI application that lets in operators only."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from lash.errors import ConfigError
from lash.protocols.mcp.server import Operator, operator_server
from lash.protocols.mcp.untrusted import Redact
from lash.stores.storage import Storage

AccessCheck: TypeAlias = Callable[[Request], Operator | None]
"""Returns the operator behind a request; None refuses it."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_MOST_BODY: Final = 1_000_000
"""The most bytes that a request may have."""
_SHORTEST_TOKEN: Final = 16


class OperatorApp:
    """The server as an ASGI application, at any path.

    A server that supports the lifespan protocol, such as uvicorn, starts it. An application that it is mounted in must
    start it: ``Starlette(routes=[Mount("/mcp", app)], lifespan=lambda _: app.running())``.
    """

    def __init__(
        self, storage: Storage, access: AccessCheck, *, hosts: Sequence[str] = (), redact: Redact | None = None
    ) -> None:
        self._access = access
        self._server = operator_server(storage, _operator_of, redact=redact)
        # Requests from web pages have an Origin; none is allowed.
        known = [name for host in (*_LOOPBACK, *hosts) for name in (host, f"{host}:*")]
        self._security = TransportSecuritySettings(allowed_hosts=known)
        self._manager: StreamableHTTPSessionManager | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside this block; requests that still run at its end are cancelled."""
        # Without sessions, every process behind a load balancer can answer every request.
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, security_settings=self._security, max_request_body_size=_MOST_BODY
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app_for(scope)(scope, receive, send)

    def _app_for(self, scope: Scope) -> ASGIApp:
        if scope["type"] != "http":
            # Refuses connections other than HTTP.
            return Router(lifespan=lambda _: self.running())
        operator = self._access(Request(scope))
        if operator is None:
            return PlainTextResponse("access denied\n", 401, headers={"WWW-Authenticate": "Bearer"})
        if self._manager is None:
            raise ConfigError("the MCP server is not started; see lash.protocols.mcp.OperatorApp")
        scope["lash_operator"] = operator
        return self._manager.handle_request


def bearer_token(token: str, operator: Operator) -> AccessCheck:
    """Return a check that lets in requests with this token in their Authorization header."""
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(f"expected a token of at least {_SHORTEST_TOKEN} characters, got {len(token)}")
    expected = f"bearer {token}".encode()

    def check(request: Request) -> Operator | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return operator if hmac.compare_digest(f"{scheme.lower()} {given}".encode(), expected) else None

    return check


def _operator_of(context: ServerRequestContext[Any, Any]) -> Operator:
    """Return the operator that the check of this request named."""
    assert isinstance(context.request, Request), "every request over HTTP has one"
    operator: Operator = context.request.scope["lash_operator"]
    return operator

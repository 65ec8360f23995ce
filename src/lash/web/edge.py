"""The outermost part of the console: what it refuses, and the headers of every response.

Every request passes here first, including those for static files and for the stream. No path is public, except the
probes of a console that serves them: they are one word about the program, and nothing about the storage.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lash.web.access import AccessCheck, visitor_of

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_BODY: Final = 1_000_000
"""The most bytes that a form may have."""
PROBES: Final = ("/live", "/ready")
METRICS: Final = "/metrics"
_METHODS: Final = ("GET", "HEAD", "POST")
_LOOPBACK: Final = ("localhost",)


class Edge:
    """Refuses requests without access, of other hosts, of other sites, and everything that is not HTTP."""

    def __init__(
        self, app: ASGIApp, access: AccessCheck, *, hosts: Collection[str] | None, open_probes: bool = False
    ) -> None:
        self._app = app
        self._access = access
        self._open = PROBES if open_probes else ()
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # A connection that is refused before it is accepted gets status 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        refusal = self._refusal(request)
        app = refusal or self._app
        await app(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> PlainTextResponse | None:
        if request.method not in _METHODS:
            return PlainTextResponse("method not allowed\n", 405)
        # A probe reaches a program by its address, whatever the name of the console is.
        is_probe = request.method != "POST" and path_of(request) in self._open
        if not is_probe and self._hosts is not None and not self._knows(request.headers.get("host", "")):
            return PlainTextResponse("unknown host; start lash web with --allow-host NAME\n", 421)
        visitor = visitor_of(self._access, request)
        if visitor is None:
            return None if is_probe else PlainTextResponse("access denied\n", 403)
        request.scope["lash_visitor"] = visitor
        if request.method == "POST":
            if not visitor.may_act:
                return PlainTextResponse("this console is read-only\n", 403)
            if not _has_bounded_body(request):
                return PlainTextResponse(f"expected a form of at most {MAX_BODY:,} bytes\n", 413)
            if not _is_same_site(request):
                return PlainTextResponse("a form of another site was refused\n", 403)
        return None

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this console; its loopback addresses always do."""
        assert self._hosts is not None
        name = host_name(host)
        return name in self._hosts or name in _LOOPBACK or is_loopback(name)


def path_of(request: Request) -> str:
    """Return the path of a request below the path at which the console is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(name: str) -> bool:
    """Return whether a name is an address of this machine alone."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_same_site(request: Request) -> bool:
    """Return whether a form came from this console, as far as the browser says; the token of the form decides.

    Browsers that send Sec-Fetch-Site are believed: without a referrer they send no useful Origin.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == request.headers.get("host", "").lower()


def _has_bounded_body(request: Request) -> bool:
    """Return whether a form declares a length within the limit, which the server then enforces."""
    length = request.headers.get("content-length", "")
    return length.isascii() and length.isdigit() and int(length) <= MAX_BODY


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent

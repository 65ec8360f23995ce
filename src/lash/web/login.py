"""Access for ``lash web``: a token in the address becomes a cookie, or a proxy names the visitor."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lash.web.access import Access, Visitor
from lash.web.edge import HEADERS, METRICS, is_loopback, path_of

_MOST_SESSIONS: Final = 1_000
"""How many browsers are known at once; beyond it the first one must log in again."""
_TOKEN_BYTES: Final = 24
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of proxies: such a request may come from anywhere."""


class TokenAccess:
    """Lets in browsers that have opened the address with the token once.

    A generated token works once: the address may stay in a history or a log. After its use `renewed` gets the next one.
    A given token works until the console stops. As ``Authorization: Bearer`` it gives access to the metrics alone;
    without a given token, the metrics are for programs on this machine.
    """

    def __init__(self, access: Access, *, token: str | None, port: int, renewed: Callable[[str], None]) -> None:
        self._access = access
        self._given = token
        self._renewed = renewed
        # Cookies of one host are shared by all its ports.
        self._cookie = f"lash_web_{port}"
        self._sessions: dict[str, None] = {}
        self.token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        """What the address needs at the moment."""

    def __call__(self, request: Request) -> Visitor | None:
        """Return the visitor whose browser has logged in; None for others."""
        if request.cookies.get(self._cookie) in self._sessions:
            return Visitor(self._access)
        if path_of(request) == METRICS and request.method != "POST" and self._may_scrape(request):
            return Visitor(Access.READ, "metrics")
        return None

    def _may_scrape(self, request: Request) -> bool:
        if self._given is not None:
            kind, _, sent = request.headers.get("authorization", "").partition(" ")
            return kind.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), self._given.encode())
        is_local = request.client is not None and is_loopback(request.client.host)
        return is_local and not any(name in request.headers for name in _FORWARDED)

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the console with the log-in before it: a request whose address has a token."""

        async def logged_in(scope: Scope, receive: Receive, send: Send) -> None:
            given = _token_in(scope)
            response = None if given is None else self._log_in(given, secure=scope["scheme"] == "https")
            await (response or app)(scope, receive, send)

        return logged_in

    def _log_in(self, given: str, *, secure: bool) -> Response:
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return PlainTextResponse("this address was used before, or is wrong\n", 403, headers=HEADERS)
        if self._given is None:
            self.token = secrets.token_urlsafe(_TOKEN_BYTES)
            self._renewed(self.token)
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[session] = None
        # The address without the token: it must not stay in the history.
        response = RedirectResponse("./", 303, headers=HEADERS)
        response.set_cookie(self._cookie, session, httponly=True, samesite="strict", secure=secure)
        return response


def _token_in(scope: Scope) -> str | None:
    """Return the token in the address of a log-in; None for other requests."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
        return None
    return dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")


class ProxyAccess:
    """Lets in requests that a trusted proxy has authenticated: it names the visitor in a header."""

    def __init__(self, access: Access, header: str, networks: Sequence[IPv4Network | IPv6Network]) -> None:
        self._access = access
        self._header = header
        self._networks = networks

    def __call__(self, request: Request) -> Visitor | None:
        """Return the visitor that the proxy names; None for requests that come from elsewhere or name no visitor."""
        name = request.headers.get(self._header, "")
        if request.client is None or not name:
            return None
        try:
            address = ip_address(request.client.host)
        except ValueError:
            return None
        return Visitor(self._access, name) if any(address in network for network in self._networks) else None

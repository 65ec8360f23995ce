"""The console as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from lash.errors import (
    ConfigError,
    InvalidInput,
    LashError,
    NotFound,
    SchemaMismatch,
    SessionDeleted,
    StorageClosed,
    StoreUnavailable,
)
from lash.runtime.app import App
from lash.stores.storage import Storage
from lash.web.access import AccessCheck, Visitor
from lash.web.acts import ACTS, Act
from lash.web.download import download
from lash.web.edge import Edge
from lash.web.forms import BACK, fields_of, keep_token, personal, token_of
from lash.web.frame import THEMES, document, error_page
from lash.web.live import Live, Pieces, Watched
from lash.web.pages import PAGES
from lash.web.probes import Probes
from lash.web.show import Redact, link
from lash.web.view import View, Visit, WebPage

_STATIC: Final = Path(__file__).parent / "static"
_STATUSES: Final[tuple[tuple[tuple[type[LashError], ...], int, str], ...]] = (
    ((NotFound, SessionDeleted), 404, "Not found"),
    ((InvalidInput,), 400, "Not understood"),
    ((StoreUnavailable, StorageClosed, SchemaMismatch, ConfigError), 503, "The storage does not answer"),
    ((LashError,), 409, "Refused"),
)
"""The status of an error, and the title of its page. Others mean that the state has changed since the page was made."""
_THEME: Final = "lash_theme"
_YEAR_S: Final = 31_536_000
_FIXED: Final = {"cursor", "check", "before", "all"}
"""Parameters of pages that do not stay current: a later page of a list, and what an act would do."""


def console(
    source: App | Storage,
    *,
    access: AccessCheck,
    redact: Redact | None = None,
    title: str = "lash",
    hosts: Collection[str] | None = None,
    open_probes: bool = False,
) -> Console:
    """Return pages that show and steer a storage, to mount in an ASGI application.

    ``source`` is an app or a storage that is open while requests are served; the console borrows it, and runs in its
    event loop. ``access`` returns for each request what it may do: `Access.READ`, `Access.ALL`, or None, which refuses
    it. ``redact`` is applied to every text of users and models before it is shown. ``hosts``, if given, are the names
    under which the console is reached; requests with another Host header are refused. With ``open_probes``, ``/live``
    and ``/ready`` answer without access, with one word each.
    """
    if not callable(access):
        raise ConfigError("expected access to be a function of a request; it decides who may see the console")
    return Console(source, access, redact or _unchanged, title, hosts, open_probes=open_probes)


def _unchanged(text: str) -> str:
    return text


class Console:
    """The console as an ASGI application; `console` makes it."""

    def __init__(
        self,
        source: App | Storage,
        access: AccessCheck,
        redact: Redact,
        title: str,
        hosts: Collection[str] | None,
        *,
        open_probes: bool,
    ) -> None:
        self._source = source
        self._redact = redact
        self._title = title
        self._live = Live(self._storage, self._pieces)
        self._edge = Edge(self._app(), access, hosts=hosts, open_probes=open_probes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._edge(scope, receive, send)

    def end_streams(self) -> None:
        """End the streams of all open pages, for a server that stops and would wait for them."""
        self._live.end()

    def _app(self) -> Starlette:
        routes: list[BaseRoute] = [
            Route("/events", self._events, methods=["GET"]),
            Route("/attachment", self._attachment, methods=["GET"]),
            *Probes(self._storage).routes(),
            Route("/theme", _theme, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
            *(Route(f"/{path}", self._page(path, view), methods=["GET"]) for path, view in PAGES.items()),
            *(Route(f"/{path}", self._act(act), methods=["POST"]) for path, act in ACTS.items()),
        ]
        return Starlette(routes=routes, exception_handlers={LashError: self._failed})

    def _storage(self) -> Storage:
        return self._source.storage if isinstance(self._source, App) else self._source

    def _visit(self, path: str, query: Mapping[str, str], *, may_act: bool) -> Visit:
        return Visit(self._storage(), query, may_act, self._redact, path)

    def _page(self, path: str, view: View) -> Callable[[Request], object]:
        async def respond(request: Request) -> Response:
            visitor = _visitor(request)
            page = await view(self._visit(path, request.query_params, may_act=visitor.may_act))
            return self._document(request, path, page)

        return respond

    def _document(self, request: Request, path: str, page: WebPage) -> Response:
        token = token_of(request)
        query = {name: value for name, value in request.query_params.items() if name != "done"}
        html = document(
            page,
            path,
            title=self._title,
            theme=request.cookies.get(_THEME, "auto"),
            here=link(path, **query),
            stream=link("events", page=path, **query) if not _FIXED & query.keys() else None,
            message=request.query_params.get("done", ""),
        )
        response = HTMLResponse(personal(html, token))
        keep_token(response, request, token)
        return response

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Return an error of the storage as a page; nothing of the database is in it."""
        status, title = next((code, text) for kinds, code, text in _STATUSES if isinstance(error, kinds))
        theme = request.cookies.get(_THEME, "auto")
        html = document(error_page(title, str(error)), None, title=self._title, theme=theme, here="./", stream=None)
        return HTMLResponse(html, status)

    async def _pieces(self, watched: Watched) -> Pieces:
        page = await PAGES[watched.path](self._visit(watched.path, dict(watched.query), may_act=watched.may_act))
        return {str(index): str(piece) for index, piece in enumerate(page.pieces)}

    async def _events(self, request: Request) -> Response:
        query = dict(request.query_params)
        path = query.pop("page", "")
        if path not in PAGES:
            return PlainTextResponse("unknown page\n", 404)
        if self._live.is_full:
            return PlainTextResponse("too many open pages; this one does not update\n", 503)
        watched = Watched(path, tuple(sorted(query.items())), _visitor(request).may_act)
        stream = self._live.stream(watched, token_of(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _attachment(self, request: Request) -> Response:
        return await download(self._storage(), request.query_params)

    def _act(self, act: Act) -> Callable[[Request], object]:
        async def respond(request: Request) -> Response:
            fields = await fields_of(request)
            if fields is None:
                return PlainTextResponse("the form is too old; load the page again\n", 403)
            done = await act(self._storage(), fields, _visitor(request).name)
            page, query = _back(fields) or (done.page, done.query)
            return RedirectResponse(link(page, **{**query, "done": done.text}), 303)

        return respond


async def _theme(request: Request) -> Response:
    """Keep the colours that a visitor without JavaScript chose, and return to the page."""
    theme, back = request.query_params.get("theme", ""), _back(request.query_params)
    page, query = back or ("", {})
    response = RedirectResponse(link(page, **query), 303)
    if theme in THEMES:
        response.set_cookie(_THEME, theme, samesite="strict", max_age=_YEAR_S)
    return response


def _back(fields: Mapping[str, str]) -> tuple[str, Mapping[str, str]] | None:
    """Return the page to which an act returns, if its form names one of the console."""
    page, _, query = fields.get(BACK, "").removeprefix("./").partition("?")
    return (page, dict(parse_qsl(query))) if BACK in fields and page in PAGES else None


def _visitor(request: Request) -> Visitor:
    visitor = request.scope["lash_visitor"]
    assert isinstance(visitor, Visitor)
    return visitor

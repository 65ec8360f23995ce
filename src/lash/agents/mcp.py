"""Tools of MCP servers as durable tools of an agent: ``pip install 'lash-runtime[mcp]'``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from lash.agents.errors import ToolsUnavailable
from lash.agents.tools import ToolAnswer, failed
from lash.agents.vocabulary import ToolSpec
from lash.errors import ConfigError
from lash.model.value import JSON, Value
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.turns.turn import Turn

try:
    import anyio
    import httpx2
    from mcp import Client, MCPError, StdioServerParameters, types
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server import MCPServer, Server
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT
except ImportError:
    raise ConfigError("lash.agents.mcp needs the package mcp: pip install 'lash-runtime[mcp]'") from None

ServerTarget = str | StdioServerParameters | MCPServer[Any] | Server[Any]
"""A URL, a command to start, or a server in this process."""

TOOL_RETRY: Final = Retry(max_attempts=4, first_pause_s=0.5)
"""How often a server that is away is called: the pauses are 0.5, 2 and 8 seconds. Then the model gets the error."""
_CONNECT_S: Final = 30.0
"""How long connecting may take, including the start of a subprocess."""
_HTTP_READ_S: Final = 300.0
"""How long a response over HTTP may be silent."""
_MOST_PAGES: Final = 50
_MOST_NAME: Final = 64
"""The longest name of a tool that every provider accepts."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_TROUBLE: Final = frozenset({CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT})
"""Codes after which the same call may succeed."""
_SESSION_GONE: Final = "Session terminated"
"""What the client says if the server does not know its session any more, for instance after a restart."""
_LOST: Final = (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError, httpx2.HTTPError)


class ToolOptions(Value, frozen=True, kw_only=True):
    """How calls of a tool are made; see `lash.agents.tool`.

    A call whose connection is lost is made again, so the server may get it twice. With ``once`` only connecting is
    repeated, and the model gets the answer that the outcome is unknown.
    """

    needs_approval: bool = False
    approval_timeout_s: float | None = None
    once: bool = False
    retry: Retry = TOOL_RETRY
    timeout_s: float | None = 60.0


def mcp_tools(
    name: str,
    server: ServerTarget,
    *,
    headers: Mapping[str, str] | None = None,
    options: ToolOptions = ToolOptions(),  # noqa: B008 (it is frozen)
    tools: Mapping[str, ToolOptions] | None = None,
    only: Collection[str] | None = None,
    most_characters: int = 100_000,
) -> MCPTools:
    """Return the tools of an MCP server for the ``tools`` of an `Agent`; the model sees them as ``{name}_{tool}``.

    Each call is a step of the turn, recorded under the id of the call, so a turn that runs again does not repeat it.
    ``server`` is a URL, ``StdioServerParameters`` or a server object; ``headers`` are sent to a URL. ``options`` are
    those of every tool, ``tools`` has those of single tools by the server's names, ``only`` names the tools that the
    model may call. Longer results are cut after ``most_characters``.

    The connection is opened when a turn first needs it, once for each open app, and closed when the app stops. The
    tools are listed before each call of the model, so a changed list is noticed there.
    """
    if not _PREFIX.fullmatch(name):
        raise ConfigError(f"expected a name of letters, digits, _ and -, at most 32, got {name!r}")
    if headers is not None and not isinstance(server, str):
        raise ConfigError("headers are for a server with a URL; give others an environment of their own")
    return MCPTools(name, server, headers, options, dict(tools or {}), only, most_characters)


class MCPTools:
    """The tools of one server; `mcp_tools` makes it."""

    def __init__(
        self,
        name: str,
        server: ServerTarget,
        headers: Mapping[str, str] | None,
        options: ToolOptions,
        tools: Mapping[str, ToolOptions],
        only: Collection[str] | None,
        most_characters: int,
    ) -> None:
        self.name = name
        self.prefix = f"{name}_"
        self._server = server
        self._headers = headers
        self._default = options
        self._options = {self._exposed(each): found for each, found in tools.items()}
        self._only = None if only is None else frozenset(only)
        self._most = most_characters

    def __repr__(self) -> str:
        return f"<tools of the MCP server {self.name}>"

    async def specs(self, turn: Turn) -> tuple[ToolSpec, ...]:
        """Return the tools that the server has now; raise ToolsUnavailable if it is away."""
        async with self._connection(turn) as connection:
            found = await self._listed(connection)
        return tuple(
            ToolSpec(name=name, description=tool.description or "", parameters=tool.input_schema)
            for name, tool in found.items()
        )

    def find(self, name: str, turn: Turn) -> MCPTool:
        """Return the tool of this name, whether or not the server has it."""
        return MCPTool(self, name, turn, self._options.get(name, self._default))

    async def call(self, turn: Turn, name: str, arguments: dict[str, Any], *, once: bool) -> ToolAnswer:
        """Call a tool of the server; raise ToolsUnavailable if the call was not made or may be made again."""
        async with self._connection(turn) as connection:
            known = connection.names
            if name not in known or once:
                # For a call that must not be made twice this also proves that the connection works.
                known = {each: tool.name for each, tool in (await self._listed(connection)).items()}
            if name not in known:
                there = ", ".join(known) or "none"
                return ToolAnswer(text=f"unknown tool {name!r}; there are: {there}", failed=True)
            try:
                result = await connection.client.call_tool(known[name], arguments)
            except (MCPError, *_LOST) as error:
                if not _is_trouble(error):
                    return failed(error)
                if once:
                    turn.resources.discard(self, connection)
                    return _unknown(error)
                raise
            except (ValueError, RuntimeError) as error:
                # The server answered, with a result that does not fit its own schema.
                return failed(error)
        return ToolAnswer(text=_shortened(_text(result), self._most), failed=result.is_error)

    @contextlib.asynccontextmanager
    async def _connection(self, turn: Turn) -> AsyncIterator[_Connection]:
        """Yield the connection of this app. Trouble with it is ToolsUnavailable; the next call makes a new one."""
        resources = turn.resources
        try:
            connection = await resources.get(self, self._connect)
        except Exception as error:
            raise ToolsUnavailable(f"the MCP server {self.name!r} cannot be reached: {_line(error)}") from error
        try:
            with connection.used():
                yield connection
        except (MCPError, *_LOST) as error:
            if _is_trouble(error):
                resources.discard(self, connection)
            raise ToolsUnavailable(f"the MCP server {self.name!r} failed: {_line(error)}") from error

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[_Connection]:
        async with asyncio.timeout(_CONNECT_S) as limit, contextlib.AsyncExitStack() as stack:
            target: Any = self._server
            if isinstance(target, str):
                timeout = httpx2.Timeout(_CONNECT_S, read=_HTTP_READ_S)
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=self._headers, timeout=timeout))
                target = streamable_http_client(target, http_client=http)
            connection = _Connection(await stack.enter_async_context(Client(target)))
            limit.reschedule(None)
            yield connection
            # Other turns may have calls on a connection that one turn has given up.
            await connection.unused()

    async def _listed(self, connection: _Connection) -> dict[str, types.Tool]:
        """Return the tools of the server that may be called, by the names that the model sees."""
        found: dict[str, types.Tool] = {}
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await connection.client.list_tools(cursor=cursor, cache_mode="refresh")
            for tool in page.tools:
                if self._only is None or tool.name in self._only:
                    found.setdefault(self._exposed(tool.name), tool)
            cursor = page.next_cursor
            if cursor is None:
                break
        connection.names = {name: tool.name for name, tool in found.items()}
        return found

    def _exposed(self, tool: str) -> str:
        """Return the name of a tool that every provider accepts, always the same one."""
        name = f"{self.prefix}{_NOT_IN_NAMES.sub('_', tool)}"
        if len(name) <= _MOST_NAME:
            return name
        return f"{name[: _MOST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


class MCPTool:
    """One tool of a server, as the loop of an agent calls it."""

    takes_turn: Final = False

    def __init__(self, source: MCPTools, name: str, turn: Turn, options: ToolOptions) -> None:
        self.name = name
        self.needs_approval = options.needs_approval
        self.approval_timeout_s = options.approval_timeout_s
        self.once = options.once
        # A step that must not run twice has no second attempt; only connecting is then repeated, within the first.
        self.retry = NO_RETRY if options.once else options.retry
        self._connecting = options.retry if options.once else NO_RETRY
        self._timeout_s = options.timeout_s
        self._source = source
        self._turn = turn

    async def answer(self, arguments: str, *, turn: Turn | None = None, is_last: bool = True) -> ToolAnswer:  # noqa: ARG002
        """Call the tool and return the answer to the model; raise the error if another attempt follows."""
        try:
            given: JSON = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError as error:
            return ToolAnswer(text=f"the arguments are not JSON: {error}", failed=True)
        if not isinstance(given, dict):
            return ToolAnswer(text="the arguments do not fit: expected an object", failed=True)
        try:
            return await self._call(given)
        except TimeoutError as error:
            if self.once:
                return _unknown(error)
            if not is_last:
                raise
            return ToolAnswer(text=f"the tool did not answer within {self._timeout_s:g} s", failed=True)
        except ToolsUnavailable as error:
            if not is_last:
                raise
            return failed(error)

    async def _call(self, arguments: dict[str, Any]) -> ToolAnswer:
        """Call the tool; repeat a call that was not made, as often as the options say."""
        for attempt in range(1, self._connecting.max_attempts + 1):
            try:
                async with contextlib.nullcontext() if self._timeout_s is None else asyncio.timeout(self._timeout_s):
                    return await self._source.call(self._turn, self.name, arguments, once=self.once)
            except ToolsUnavailable:
                if attempt == self._connecting.max_attempts:
                    raise
            await asyncio.sleep(self._connecting.pause_s(attempt))
        raise AssertionError("the last attempt returns or raises")


class _Connection:
    """An open client, and how many calls it has."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.names: dict[str, str] = {}
        """The names of the server's tools by the names that the model sees, as last listed."""
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keep it open inside the block."""
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def unused(self) -> None:
        """Wait until no call is made on it."""
        await self._idle.wait()


def _is_trouble(error: BaseException) -> bool:
    """Return whether a call failed because of the connection or the server, so that another one may succeed."""
    return not isinstance(error, MCPError) or error.code in _TROUBLE or error.message == _SESSION_GONE


def _unknown(error: BaseException) -> ToolAnswer:
    text = f"It is unknown whether the call was made: {_line(error)}. It is not made again."
    return ToolAnswer(text=text, failed=True)


def _line(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _text(result: types.CallToolResult) -> str:
    """Return a result as text for the model; of other content only what it is."""
    said = [_block_text(block) for block in result.content]
    if not said and result.structured_content is not None:
        said = [msgspec.json.encode(result.structured_content).decode()]
    return "\n".join(said)


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.ResourceLink():
            return f"[{block.name}: {block.uri}]"
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type} of type {block.mime_type}, not shown]"
    return f"[{block.type}, not shown]"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"

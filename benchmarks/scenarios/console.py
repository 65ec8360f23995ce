"""The console: how long each page takes in a large storage, and how many statements, over a small one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Message, Scope

import lash
from benchmarks.kit.console_rows import LONG, Size, fill, make_template, name_of
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from lash.web import Access, console

_FEW: Final = 100
_COPIES: Final = 1_000
_NODES: Final = 10_000
_STEPS: Final = 5_000
_BACKENDS: Final = ("postgres", "sqlite")
_MANY: Final = "100,000 sessions, 1,000,000 nodes, 100,000 processes"
_CHAT: Final = name_of("chat", 7)
_ADDRESSES: Final[Mapping[str, Sequence[str]]] = {
    "overview": ("", "?span=day"),
    "sessions": (
        "sessions",
        "sessions?order=created",
        "sessions?state=queued",
        "sessions?state=waiting",
        "sessions?state=running",
        "sessions?state=idle&agent=clerk",
        "sessions?agent=guide",
        "sessions?agent=nobody",
        "sessions?owner=user-7",
        "sessions?label=team%3Dteam-3",
        "sessions?prefix=chat",
        "sessions?prefix=none",
        "sessions?text=the",
    ),
    "session": (f"session?id={_CHAT}", f"session?id={name_of('fork', 0)}"),
    "session, long": (f"session?id={LONG}",),
    "processes": (
        "processes",
        "processes?status=failed",
        "processes?status=running",
        "processes?status=abandoned",
        "processes?parked=yes",
        "processes?name=approval",
        "processes?name=report&status=running",
        f"processes?session={_CHAT}",
    ),
    "process": (f"process?id={name_of('job', 7)}", f"process?id={name_of('approval', 0)}"),
    "process, long": (f"process?id={LONG}", f"process?id={LONG}&all=steps"),
    "inbox": ("inbox",),
    "queue": ("queue", "queue?state=claimed", "queue?prefix=chat"),
    "dead letters": ("queue?show=dead", "queue?show=dead&prefix=broken"),
    "workers": ("workers",),
    "triggers": ("triggers",),
    "tokens": (
        "tokens",
        "tokens?since=all",
        "tokens?by=day&since=all",
        "tokens?by=model&since=all",
        "tokens?by=agent&since=all",
        "tokens?by=session&since=all",
        "tokens?by=source&since=all",
        "tokens?since=1+day",
    ),
    "storage": ("storage",),
    "doctor": ("storage?check=doctor",),
    "acts": ("acts", "acts?by=nobody"),
}
"""What is measured of each page: its filters one by one, and some that match nothing."""


class Seen(NamedTuple):
    """What a page cost: the time of the slowest address in each round, and the statements of the one with most."""

    ms: dict[str, list[float]]
    statements: dict[str, int]
    slowest: dict[str, str]
    """The address that took longest in the last round."""


class Visitor:
    """Asks for pages as a server would, without a connection between."""

    def __init__(self, storage: lash.Storage) -> None:
        def all_may(_request: Request) -> Access:
            return Access.ALL

        self._app = console(storage, access=all_may)

    async def get(self, address: str) -> bytes:
        """Return a page."""
        parts = urlsplit(address)
        scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": f"/{parts.path}",
            "raw_path": f"/{parts.path}".encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(b"host", b"localhost")],
            "scheme": "http",
            "http_version": "1.1",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
        }
        status, body = 0, b""

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError("a page does not read more")

        async def send(message: Message) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")

        await self._app(scope, receive, send)
        assert status == 200, (address, status, body[:500])
        return body


async def look(url: str, rounds: int) -> Seen:
    """Ask for every page in turn; the first round warms up."""
    names: list[str] = []
    seen = Seen({page: [] for page in _ADDRESSES}, {}, {})
    async with await lash.open(url, on_statement=names.append) as storage:
        visitor = Visitor(storage)
        for number in range(rounds + 1):
            for page, addresses in _ADDRESSES.items():
                taken: dict[str, float] = {}
                for address in addresses:
                    names.clear()
                    began = time.perf_counter()
                    await visitor.get(address)
                    taken[address] = (time.perf_counter() - began) * 1e3
                    seen.statements[page] = max(len(names), seen.statements.get(page, 0))
                if number:
                    seen.ms[page].append(max(taken.values()))
                    seen.slowest[page] = max(taken, key=taken.__getitem__)
    return seen


def _sizes(workspace: Workspace) -> tuple[Size, Size]:
    """Return the small and the large storage; very short runs copy fewer sessions."""
    few = min(_FEW, workspace.count(25 * _FEW, least=10))
    small = Size(copies=1, in_copy=few, nodes=10, steps=5)
    nodes, steps = workspace.count(_NODES, least=20), workspace.count(_STEPS, least=10)
    return small, Size(copies=workspace.count(_COPIES, least=2), in_copy=few, nodes=nodes, steps=steps)


def _fill_all(workspace: Workspace, stack: contextlib.ExitStack, sizes: Iterable[Size]) -> dict[tuple[str, Size], str]:
    """Return the URLs of storages of these sizes on both databases."""
    urls: dict[tuple[str, Size], str] = {}
    for size in sizes:
        with fresh(workspace, "sqlite") as template:
            # One agent and one process fail in each copy, as they are meant to.
            logging.disable(logging.ERROR)
            asyncio.run(make_template(template, size))
            logging.disable(logging.NOTSET)
            for backend in _BACKENDS:
                url = urls[backend, size] = stack.enter_context(fresh(workspace, backend))
                asyncio.run(fill(template, url, size))
    return urls


def pages(workspace: Workspace) -> Report:
    """Measure every page in a small and in a large storage, on both databases."""
    with contextlib.ExitStack() as stack:
        urls = _fill_all(workspace, stack, _sizes(workspace))
        return compare(workspace, urls)


def compare(workspace: Workspace, urls: Mapping[tuple[str, Size], str]) -> Report:
    """Measure storages that are filled."""
    small, large = _sizes(workspace)
    seen = {case: asyncio.run(look(url, workspace.rounds)) for case, url in urls.items()}
    rows: list[Row] = []
    ratios: list[Ratio] = []
    notes = ["a time is that of the whole page, from the request to the last byte, at the slowest of its filters"]
    for backend in _BACKENDS:
        little, much = seen[backend, small], seen[backend, large]
        for page in _ADDRESSES:
            pair = [_row(backend, page, large, much.ms[page]), _row(backend, page, small, little.ms[page])]
            rows += pair
            ratios.append(Ratio.of(*pair))
        notes += _counted(backend, little, much)
        worst = max(_ADDRESSES, key=lambda page: Samples(tuple(much.ms[page])).median)
        notes.append(f"{backend}: the slowest page is {worst}, at `{much.slowest[worst]}`")
    return Report(
        ratios=tuple(sorted(ratios, key=lambda each: -each.ours.median)),
        rows=tuple(rows),
        versions=postgres_versions(workspace) | lash_versions("apsw", "sqlite", "starlette", "htpy"),
        notes=tuple(notes),
    )


def _counted(backend: str, little: Seen, much: Seen) -> Iterator[str]:
    """Yield how many statements a page makes, and for each page with more in a large storage by how many."""
    most = max(much.statements, key=much.statements.__getitem__)
    grown = {page: (few, much.statements[page]) for page, few in little.statements.items()}
    yield (
        f"{backend}: {most} makes the most statements, {much.statements[most]}; over the small storage the count is "
        + (
            ", ".join(f"{many / few:.3g} times as high on {page}" for page, (few, many) in grown.items() if many > few)
            or "the same or less on every page"
        )
    )


def _row(backend: str, page: str, size: Size, values: Sequence[float]) -> Row:
    return Row(contender=page, case=f"{backend}, {size.sessions:,} sessions", unit="ms", samples=Samples(tuple(values)))


register(
    Scenario(
        name="console",
        group="console",
        what=f"pages of the console in a storage of {_MANY}, over one of {_FEW} sessions: the slowest page",
        run=pages,
        better=Better.LESS,
        target="every page in at most 300 ms; long sessions and processes in at most 1 s; as many statements",
    )
)

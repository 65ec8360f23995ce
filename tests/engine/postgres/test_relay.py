"""Workers of one machine share a listening connection: one of them relays notifications to the others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import lash
from lash.postgres.engine import relay
from lash.postgres.engine.options import PostgresOptions
from tests.raw import raw
from tests.runtime.worker_kit import crew, until

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PlainConnection

QUIET = lash.WorkerOptions(poll_s=60)
"""Nothing is found by a poll without a hint."""
LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^(UN)?LISTEN' AND application_name = '{}'"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")


def _app(url: str, *, worker: bool = True) -> lash.App:
    app = lash.App(url, worker=worker, options=QUIET)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return turn.text

    return app


@pytest.fixture
def url(postgres_storage_url: str, request: pytest.FixtureRequest) -> str:
    """A URL whose connections have a name of their own."""
    separator = "&" if "?" in postgres_storage_url else "?"
    return f"{postgres_storage_url}{separator}application_name={_name(request)}"


def _name(request: pytest.FixtureRequest) -> str:
    return f"relay-{abs(hash(request.node.nodeid)) % 10**9}"


async def _listens(app: lash.App, count: int) -> None:
    """Wait until so many workers listen."""

    async def enough() -> bool:
        return sum(each.beat.channel is not None for each in await app.storage.workers.list()) == count

    await until(enough)


@asynccontextmanager
async def _following(url: str) -> AsyncIterator[tuple[lash.App, lash.App, lash.App]]:
    """Yield a worker that relays, one that it serves, and a caller."""
    first = _app(url)
    await first.open()
    try:
        await _listens(first, 1)
        async with _app(url) as second, _app(url, worker=False) as caller:
            await _listens(first, 2)
            yield first, second, caller
    finally:
        await first.stop()


async def test_workers_and_callers_share_one_listening_connection(url: str, request: pytest.FixtureRequest) -> None:
    """Two workers and a caller listen with one connection, and each gets what concerns it."""
    async with _following(url) as (_, _, caller):
        for number in range(6):
            assert await asyncio.wait_for(caller.session(f"s{number}").ask("hello"), 20) == "hello"
        assert await raw(url, LISTENING.format(_name(request))) == [(1,)]


async def test_the_next_worker_relays_when_the_first_one_stops(url: str, request: pytest.FixtureRequest) -> None:
    """The programs that the first one served listen again at once."""
    async with _following(url) as (first, second, caller):
        assert await caller.session("s").ask("hello") == "hello"
        await first.stop()
        await _listens(second, 1)
        for number in range(3):
            assert await asyncio.wait_for(caller.session(f"s{number}").ask("again"), 20) == "again"
        assert await raw(url, LISTENING.format(_name(request))) == [(1,)]


async def test_a_stopped_relay_is_given_up(url: str, tmp_path: Path) -> None:
    """While the process that relays is frozen, another worker relays, and messages are answered."""
    with crew(url, tmp_path) as hired:
        frozen = hired.hire(poll=60, ttl=600)
        await hired.ready(frozen)
        async with _app(url) as worker, _app(url, worker=False) as caller:
            await _listens(worker, 2)
            frozen.send_signal(signal.SIGSTOP)
            for number in range(4):
                assert await asyncio.wait_for(caller.session(f"s{number}").ask("say hello"), 55) in {
                    "say hello",
                    "hello",
                }
            frozen.send_signal(signal.SIGCONT)


async def test_a_relay_of_another_database_is_not_used(
    url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that does not get its own notification through a relay listens for itself."""
    monkeypatch.setattr(relay, "_LISTEN_S", 0.3)
    listening = asyncio.Event()

    async def relay_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(relay._line("hello"))
        while line := await reader.readline():
            words = msgspec.json.decode(line)
            writer.write(relay._line("listening", words[1]) if words[0] == "listen" else relay._line("pong"))
            listening.set()
        writer.close()

    bound = relay._bind(relay._name_of(PostgresOptions.from_url(url), 0))
    assert bound is not None
    async with await asyncio.start_unix_server(relay_nothing, sock=bound), _app(url) as worker:
        await _listens(worker, 1)
        assert listening.is_set()
        async with _app(url, worker=False) as caller:
            assert await asyncio.wait_for(caller.session("s").ask("hello"), 20) == "hello"
        assert await raw(url, LISTENING.format(_name(request))) == [(1,)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_a_socket_of_another_user_is_not_trusted(url: str) -> None:
    """A name that another user has taken is passed over."""
    name = relay._name_of(PostgresOptions.from_url(url), 0)
    program = (
        "import os, socket, sys, time; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
        "s.bind(bytes.fromhex(sys.argv[1])); s.listen(); print('bound', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, name.hex()]
    squatter = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert squatter.stdout is not None
        assert await squatter.stdout.readline() == b"bound\n"
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(name)
            assert not relay._is_own(connected)
        async with _app(url) as worker:
            await _listens(worker, 1)
            assert relay._bind(relay._name_of(PostgresOptions.from_url(url), 1)) is None
    finally:
        squatter.kill()
        await squatter.wait()


def test_the_name_has_no_secret(url: str) -> None:
    """Programs with different passwords have the same relay; other users, databases and schemas have others."""
    first, second = (
        relay._name_of(PostgresOptions.from_url(f"postgresql://ann:{word}@host/db?schema=s"), 0) for word in ("x", "y")
    )
    assert first == second
    others = [
        f"postgresql://{rest}" for rest in ("bob:x@host/db?schema=s", "ann:x@host/other?schema=s", "ann:x@host/db")
    ]
    names = {relay._name_of(PostgresOptions.from_url(each), 0) for each in others}
    assert len(names | {first}) == 4
    assert relay._name_of(PostgresOptions.from_url(url), 0) != relay._name_of(PostgresOptions.from_url(url), 1)


async def test_a_relay_that_cannot_connect_keeps_no_program(url: str) -> None:
    """A program that connects while the relay gives up is dropped, at whatever iteration of the event loop that is."""
    options = PostgresOptions.from_url(url)
    for iterations in range(8):
        name = relay._name_of(options, 100 + iterations)
        served, program = relay._bind(name), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        assert served is not None

        async def refused(
            program: socket.socket = program, name: bytes = name, iterations: int = iterations
        ) -> PlainConnection:
            program.connect(name)
            program.sendall(relay._line("listen", "a channel"))
            for _ in range(iterations):
                await asyncio.sleep(0)
            raise ConnectionRefusedError

        with program:
            with pytest.raises(ConnectionRefusedError):
                await relay._Relay.start(served, refused)
            await asyncio.wait_for(asyncio.to_thread(_read_to_the_end, program), 30)


def _read_to_the_end(program: socket.socket) -> None:
    try:
        while program.recv(1024):
            pass
    except ConnectionResetError:
        pass

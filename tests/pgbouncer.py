"""A real pgbouncer before the tests' PostgreSQL server.

The program is taken from ``LASH_TEST_PGBOUNCER`` (a path), from ``PATH``, or from the Debian package
(`tests.debian_programs`).
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from tests.debian_programs import find_program, libraries_of

VARIABLE: Final = "LASH_TEST_PGBOUNCER"
_START_S: Final = 30.0


class PgBouncer:
    """One pgbouncer in the given pool mode, on a free loopback port; clients log in as the user of the server's URL."""

    def __init__(self, server_url: str, mode: str, *, pool_size: int = 20) -> None:
        self._server = urlsplit(server_url)
        self._mode = mode
        self._pool_size = pool_size
        self._port = _free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="lashpgb"))
        self._process: subprocess.Popen[bytes] | None = None
        self.password = unquote(self._server.password or secrets.token_hex(8))

    @property
    def url(self) -> str:
        """The server's URL, with the port of the pooler."""
        return self.through(self._server.geturl())

    def through(self, url: str) -> str:
        """Return a URL of the server that leads through the pooler."""
        parts = urlsplit(url)
        credentials = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{credentials}@127.0.0.1:{self._port}").geturl()

    @property
    def log(self) -> str:
        path = self._directory / "log"
        return path.read_text() if path.exists() else ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # At once, without waiting for clients.
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        found = find_pgbouncer()
        # It refuses to run as root, and the user `nobody` may not read this environment.
        program = self._directory / "pgbouncer"
        shutil.copy(found, program)
        libraries = self._directory / "lib"
        shutil.copytree(libraries_of(found), libraries) if libraries_of(found).is_dir() else libraries.mkdir()
        self._write_configuration()
        user = None
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody").pw_uid
            for path in (self._directory, *self._directory.rglob("*")):
                os.chown(path, user, -1)
        environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
        with (self._directory / "out").open("wb") as out:
            self._process = subprocess.Popen(
                [program, "--quiet", self._directory / "pgbouncer.ini"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=self._directory,
                user=user,
                # Ctrl-C in the terminal reaches only us.
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def _write_configuration(self) -> None:
        server = self._server
        (self._directory / "users").write_text(f'"{server.username}" "{self.password}"\n')
        (self._directory / "pgbouncer.ini").write_text(
            f"""[databases]
* = host={server.hostname} port={server.port or 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self._port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {self._directory / "users"}
pool_mode = {self._mode}
default_pool_size = {self._pool_size}
max_client_conn = 200
logfile = {self._directory / "log"}
"""
        )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + _START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            if process.poll() is not None or time.monotonic() > limit:
                said = (self._directory / "out").read_text() + self.log
                raise RuntimeError(f"pgbouncer did not start:\n{said}")
            time.sleep(0.01)


def find_pgbouncer() -> Path:
    """Return the program; skip the test if there is none, or fail it with ``CI=true``."""
    return find_program("pgbouncer", "usr/sbin/pgbouncer", VARIABLE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

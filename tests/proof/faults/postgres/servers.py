"""Servers of these tests: a standby that follows another server, and the means to cut off clients."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from lash.testing.postgres_server import PostgresServer, ServerFailed, _environment, _ServerUser, find_binaries
from tests.backends import run_sql


class StandbyServer(PostgresServer):
    """A copy of a running server that follows it, until `promote` makes it a server of its own."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(durable=True, binaries=find_binaries())
        self._primary = primary
        # The roles are copied too.
        self._password = primary._password

    def promote(self) -> None:
        """Make it take writes, and wait until it does."""
        run_sql(self.url, "SELECT pg_promote(true, 60)")

    def _run_initdb(self, binaries: Path, directory: Path, identity: _ServerUser) -> None:
        source = f"--host={self._primary._private_directory()}", f"--port={self._primary._port}", "--username=postgres"
        target = f"--pgdata={directory / 'data'}", "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast"
        command = [str(binaries / "pg_basebackup"), *source, *target, "--no-sync"]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=_environment(directory), cwd=directory, **identity
        )
        if done.returncode != 0:
            raise ServerFailed(f"pg_basebackup failed:\n{done.stdout}{done.stderr}")


def follow_synchronously(primary: PostgresServer) -> None:
    """Make every commit wait until a standby has it too."""
    run_sql(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")


def both_hosts(first: PostgresServer, second: PostgresServer) -> str:
    """Return the URL that leads to whichever of the two takes writes."""
    hosts = ",".join(urlsplit(server.url).netloc.rpartition("@")[2] for server in (first, second))
    credentials = urlsplit(first.url).netloc.rpartition("@")[0]
    return f"postgresql://{credentials}@{hosts}/postgres?target_session_attrs=read-write"

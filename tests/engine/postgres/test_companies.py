"""PostgreSQL as it is in companies: TLS, ICU collations, defaults of roles, and passwords that expire.

The server is of the oldest supported version, from Debian's packages: the one from PyPI has neither TLS nor ICU.
Behind pgbouncer: `test_pgbouncer`. Failover with several hosts: `tests.proof.faults.postgres.test_failover`. A role
without the right to change tables: `test_documented_rights`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

import lash
from lash.errors import ConfigError, StoreUnavailable
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql, scratch_database, with_parameters
from tests.engine.postgres.certificates import Authority
from tests.engine.postgres.test_documented_rights import use_everything
from tests.factories.process import registered
from tests.postgres_15 import find_postgres_15
from tests.raw import Row, raw

pytestmark = pytest.mark.timeout(240)

ODD_IDS: Final = ("a", "B", "b", "A", "ä", "z", "Z", "é", "e", "-a", "a-b", "ab", "a b", "_", "1", "10", "2", "ß", "ss")
"""Their order differs between collations."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(binaries=find_postgres_15()) as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, whose schema is named."""
    with scratch_database(server.url) as made:
        yield with_parameters(made, schema="agents")


async def create_and_use(url: str) -> None:
    """Create the tables, and use what needs several connections: workers, notifications, schedules."""
    await (await lash.open(url)).close()
    await use_everything(url)


@contextmanager
def login_role(url: str, *settings: str) -> Iterator[str]:
    """Create a role that owns the database, with defaults of its own, and return the URL with which it connects."""
    parts = urlsplit(url)
    role, database = "company_role", parts.path.removeprefix("/")
    server = parts._replace(query="").geturl()
    run_sql(
        server,
        f"CREATE ROLE {role} LOGIN PASSWORD 'first'",
        f'ALTER DATABASE "{database}" OWNER TO {role}',
        *(f"ALTER ROLE {role} SET {setting}" for setting in settings),
    )
    try:
        yield parts._replace(netloc=f"{role}:first@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        run_sql(server, f'ALTER DATABASE "{database}" OWNER TO postgres', f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.fixture(scope="module")
def authority(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority; the server has a certificate of it for the name localhost."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    folder = Path(server.socket_url.partition("host=")[2].partition("&")[0])
    for name, content in zip(("server.crt", "server.key"), authority.issue("localhost"), strict=True):
        path = folder / "data" / name
        path.write_bytes(content)
        shutil.copymode(folder / "password", path)
        if os.geteuid() == 0:
            owner = (folder / "data").stat()
            os.chown(path, owner.st_uid, owner.st_gid)
    run_sql(server.url, "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    return authority


async def _encryption(url: str) -> list[Row]:
    """Return how many connections of lash are encrypted, and how many are not."""
    return await raw(
        url,
        "SELECT s.ssl, count(*) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid) "
        "WHERE a.application_name = 'lash' GROUP BY s.ssl",
    )


class TestTLS:
    """A server with a certificate that an authority of the company has signed."""

    async def test_every_connection_is_verified(self, url: str, authority: Authority) -> None:
        """With verify-full, statements and notifications travel over TLS, to the name in the certificate."""
        named = url.replace("127.0.0.1", "localhost")
        secure = with_parameters(named, sslmode="verify-full", sslrootcert=str(authority.path))
        await create_and_use(secure)
        async with lash.App(secure), asyncio.timeout(60):
            # One connection for statements, and one to listen, which a worker opens in the background.
            while sum([count for _, count in await _encryption(url)]) < 2:  # noqa: ASYNC110 (the server's)
                await asyncio.sleep(0.02)
            assert [is_encrypted for is_encrypted, _ in await _encryption(url)] == [True]

    @pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
    async def test_a_certificate_of_another_authority_is_refused(
        self, url: str, authority: Authority, tmp_path: Path, mode: str
    ) -> None:
        """The error is one of configuration, which no retry fixes, and does not show the password."""
        del authority
        other = Authority(tmp_path, "other")
        named = with_parameters(url.replace("127.0.0.1", "localhost"), sslmode=mode, sslrootcert=str(other.path))
        with pytest.raises(ConfigError, match="certificate verify failed") as refused:
            await lash.open(named)
        assert str(urlsplit(url).password) not in str(refused.value)

    async def test_a_certificate_of_another_name_is_refused(self, url: str, authority: Authority) -> None:
        """verify-full compares the name; verify-ca does not."""
        with pytest.raises(ConfigError, match=r"certificate is not valid for '127\.0\.0\.1'"):
            await lash.open(with_parameters(url, sslmode="verify-full", sslrootcert=str(authority.path)))
        await (await lash.open(with_parameters(url, sslmode="verify-ca", sslrootcert=str(authority.path)))).close()


class TestDefaults:
    """Databases and roles whose defaults are not those of a new server."""

    async def test_an_icu_collation_changes_no_order(self, server: PostgresServer) -> None:
        """In a database with a linguistic collation, ids are ordered by their characters, as on SQLite."""
        with icu_database(server.url, "de-DE") as made:
            ((sorted_by_icu,),) = await raw(
                made, "SELECT array_agg(x ORDER BY x) FROM unnest(ARRAY['B', 'a', 'Z', 'z']) AS x"
            )
            assert sorted_by_icu == ["a", "B", "z", "Z"], "the database has the collation of ICU"
            async with await lash.open(made) as storage:
                for name in ODD_IDS:
                    await storage.sessions.create(name)
                await registered(storage, *ODD_IDS)
                assert list(await storage.processes.ids()) == sorted(ODD_IDS)
                assert list(await storage.processes.ids("a")) == [each for each in sorted(ODD_IDS) if each[0] == "a"]
                assert [each.process_id for each in await storage.processes.runnable()] == sorted(ODD_IDS)
            await use_everything(made)

    @pytest.mark.parametrize("level", ["serializable", "repeatable read"])
    async def test_a_strict_isolation_level_of_the_role(self, url: str, level: str) -> None:
        """Everything works under a stricter default, also when writers conflict: refused statements are repeated."""
        with login_role(url, f"default_transaction_isolation = '{level}'") as strict:
            await create_and_use(strict)
            async with await lash.open(strict) as storage:
                await storage.sessions.create("s")
                handles = [lash.SessionHandle(storage, "s") for _ in range(8)]
                await asyncio.gather(*(handle.send(str(n), key=str(n)) for n, handle in enumerate(handles * 4)))
                assert len(await handles[0].pending()) == 32

    async def test_a_role_that_may_only_read_by_default(self, url: str) -> None:
        """Reads work; a write is refused with the reason and the remedies, and nothing is retried."""
        with login_role(url) as writer:
            async with await lash.open(writer) as storage:
                await storage.sessions.create("s")
            run_sql(url.partition("?")[0], "ALTER ROLE company_role SET default_transaction_read_only = on")
            async with await lash.open(writer, migrate=False) as storage:
                assert await storage.sessions.open("s") is not None
                with pytest.raises(lash.StorageFailure, match="default_transaction_read_only"):
                    await storage.sessions.create("t")


@contextmanager
def icu_database(url: str, locale: str) -> Iterator[str]:
    name = "icu_database"
    run_sql(url, f"CREATE DATABASE {name} LOCALE_PROVIDER icu ICU_LOCALE '{locale}' TEMPLATE template0")
    try:
        yield with_parameters(urlsplit(url)._replace(path=f"/{name}").geturl(), schema="public")
    finally:
        run_sql(url, f"DROP DATABASE {name} WITH (FORCE)")


class TestPasswords:
    """Passwords from a function, as clouds issue them: each is valid for minutes."""

    async def test_each_connection_gets_a_new_password(self, url: str) -> None:
        """When the password has changed and the connections are gone, the next call connects with the new one."""
        with login_role(url) as given:
            without = given.replace(":first@", "@")
            current, given_out = "first", list[str]()

            async def token() -> str:
                given_out.append(current)
                return current

            async with await lash.open(without, password=token) as storage:
                await storage.sessions.create("s")
                before = len(given_out)
                assert before >= 1
                current = "second"
                _replace_password(url, current)
                assert await storage.sessions.open("s") is not None
                assert given_out[before:] == ["second"] * (len(given_out) - before)
                assert len(given_out) > before
            async with lash.App(without, password=lambda: current, worker=False) as app:
                assert (await app.storage.sessions.open("s")) is not None

    async def test_a_function_that_fails(self, url: str) -> None:
        """Its error is unavailability, with the cause, and is not shown; another type than text is an error to fix."""

        def failing() -> str:
            raise RuntimeError("s3cret token")

        with pytest.raises(StoreUnavailable, match="the password function raised RuntimeError") as away:
            await lash.open(url, password=failing)
        assert isinstance(away.value.__cause__, RuntimeError)
        assert "s3cret" not in str(away.value)
        with pytest.raises(ConfigError, match="expected the password function to return text, got bytes"):
            await lash.open(url, password=lambda: b"x")  # type: ignore[arg-type,return-value]
        with pytest.raises(ConfigError, match="password authentication failed"):
            await lash.open(url, password=lambda: "wrong")
        with pytest.raises(ConfigError, match="expected a postgresql:// URL with password"):
            await lash.open("sqlite://", password=lambda: "x")


def _replace_password(url: str, password: str) -> None:
    """Change the password of the role, and end its connections."""
    run_sql(
        url.partition("?")[0],
        f"ALTER ROLE company_role PASSWORD '{password}'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'company_role'",
    )

"""Secrets do not leak: no message, traceback, repr, log or export contains one."""

from __future__ import annotations

import base64
import io
import logging
import socket
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
import pytest

import lash
from lash.bytestore.s3 import S3Bytes
from lash.cli.output import json_line
from lash.postgres.engine.options import PostgresOptions
from lash.testing.postgres_server import PostgresServer
from lash.transfer import export_session, move_storage
from tests.backends import run_sql
from tests.proof.fuzz.everything import demands, fill_everything, questions
from tests.proof.fuzz.kit import lash_only_from
from tests.raw import raw

CANARY = "c4n4ry/p@ss:w?rd#1"
ROLE = "lash_canary_role"
FORMS = tuple({CANARY, quote(CANARY, safe=""), quote(CANARY), CANARY.split("@", maxsplit=1)[0], "ss:w?rd"})


def shown(error: BaseException) -> str:
    """Return everything that a program may print of an error: its text, its repr and its whole chain with notes."""
    lines = traceback.format_exception(error)
    chain: list[BaseException | None] = [error]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    forms = [f"{each!r} {each!s} {vars(each)!r}" for each in chain if each is not None]
    return "\n".join([*lines, *forms])


def assert_hidden(*texts: str) -> None:
    for form in FORMS:
        assert all(form not in text for text in texts), form


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """All log output, at any level, is searched after the test."""
    caplog.set_level(logging.DEBUG)
    yield
    assert_hidden(caplog.text)


@pytest.fixture
def role_url(postgres_server: PostgresServer, postgres_storage_url: str) -> Iterator[str]:
    """The URL of a storage for a role whose password is the canary."""
    run_sql(
        postgres_server.url, f"DROP ROLE IF EXISTS {ROLE}", f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD '{CANARY}'"
    )
    parts = urlsplit(postgres_storage_url)
    host = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{ROLE}:{quote(CANARY, safe='')}@{host}"))
    run_sql(postgres_server.url, f"DROP ROLE {ROLE}")


def changed(url: str, *, port: int | None = None, host: str | None = None, path: str | None = None, **more: str) -> str:
    """Return the URL with another address."""
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    old_host, _, old_port = place.partition(":")
    netloc = f"{user}@{host or old_host}:{port or old_port or 5432}"
    query = urlencode(dict(parse_qsl(parts.query)) | more)
    return urlunsplit(parts._replace(netloc=netloc, path=path or parts.path, query=query))


def wrong_urls(url: str) -> Iterator[str]:
    """Return URLs that cannot connect, each for another reason, all containing the password."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield changed(url, host="127.0.0.1", port=taken.getsockname()[1])
    yield changed(url, host="no-such-host.invalid")
    yield changed(url, path="/no_such_database")
    yield changed(url, sslmode="verify-full", sslrootcert="/no/such/file")
    yield changed(url, sslmode="nonsense")
    yield changed(url, nonsense="1")
    yield changed(url, max_size="many")
    yield changed(url, max_size="0")
    yield changed(url, schema="")
    yield changed(url, target_session_attrs="standby")
    yield changed(url, passfile="/no/such/file", sslpassword=CANARY, sslkey="/no/such/key", sslcert="/no/such/cert")
    yield url.replace(ROLE, "no_such_role")
    yield url.replace("postgresql://", "postgresql:")
    yield url.replace("postgresql://", "postgres:/")
    yield url.replace("postgresql://", "mysql://")
    yield url.replace("postgresql://", "sqlite://")
    yield url.replace("%2F", "/").replace("%40", "@")
    yield url.replace("@", "@[", 1)
    yield f"postgresql://127.0.0.1:1/db?user=ada&password={quote(CANARY, safe='')}&connect_timeout_s=1"


@pytest.mark.parametrize("number", range(19))
async def test_no_failure_to_connect_shows_the_password(role_url: str, number: int) -> None:
    """The error, its causes and their tracebacks are clean, whatever is wrong with the URL."""
    url = list(wrong_urls(role_url))[number]
    with pytest.raises(lash.LashError) as caught:
        await (await lash.open(changed_timeout(url))).close()
    assert_hidden(shown(caught.value))
    with suppress(lash.ConfigError):
        assert_hidden(repr(PostgresOptions.from_url(url)), str(PostgresOptions.from_url(url)))


def changed_timeout(url: str) -> str:
    """Shorten retries and timeouts."""
    return f"{url}&connect_timeout_s=2" if url.startswith("postgresql://") and "nonsense=1" not in url else url


async def test_an_open_storage_shows_no_password(role_url: str) -> None:
    """Neither the repr of any object reachable from it, nor its errors after its server is gone."""
    async with _app(role_url) as app:
        storage = app.storage
        assert_hidden(repr(app), repr(storage), str(storage), *(repr(part) for part in _parts(storage)))
        await raw(
            role_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE usename = '{ROLE}' AND pid <> pg_backend_pid()",
        )
        await lash_only_from(storage.sessions.list())
        await raw(role_url, "ALTER TABLE lash_sessions RENAME TO lash_hidden")
        with pytest.raises(lash.LashError) as caught:
            await storage.sessions.list()
        await raw(role_url, "ALTER TABLE lash_hidden RENAME TO lash_sessions")
        assert_hidden(shown(caught.value))


@asynccontextmanager
async def _app(url: str) -> AsyncIterator[lash.App]:
    app = lash.App(url)
    async with app:
        yield app


def _parts(storage: object) -> list[object]:
    """Return the objects that an object refers to, two levels deep."""
    first = list(vars(storage).values()) if hasattr(storage, "__dict__") else []
    second = [inner for part in first if hasattr(part, "__dict__") for inner in vars(part).values()]
    # The driver's own pool keeps its connection arguments, and prints none of them.
    return [part for part in [*first, *second] if not isinstance(part, str)]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_the_secret_of_the_waits_is_in_no_answer(backend_url: str) -> None:
    """No call reveals the key that signs waits, and an exported session does not contain it."""
    async with await lash.open(backend_url) as storage:
        known = await fill_everything(storage)
        ((secret,),) = await raw(backend_url, "SELECT secret FROM lash_secrets")
        forms = (repr(bytes(secret)), bytes(secret).hex(), base64.b64encode(secret).decode())
        stream = io.BytesIO()
        await export_session(storage, "s", stream, with_queue=True)
        assert bytes(secret) not in stream.getvalue()
        for group in (questions, demands):
            for name, call in group(storage, known):
                answer = await lash_only_from(call())
                text = shown(answer) if isinstance(answer, lash.LashError) else f"{answer!r} {json_line(answer)}"
                assert all(form not in text and form not in stream.getvalue().decode() for form in forms), name


async def test_a_refused_move_says_nothing_of_the_password(role_url: str) -> None:
    """The error names an unusable target without its password."""
    async with await lash.open(role_url) as source, await lash.open(role_url) as same:
        with pytest.raises(lash.LashError) as caught:
            await move_storage(source, same)
    assert_hidden(shown(caught.value))


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid", "nonsense://x"])
async def test_no_failure_of_s3_shows_its_keys(endpoint: str) -> None:
    """Neither the repr of the store nor its errors."""
    try:
        store = S3Bytes(
            "bucket",
            endpoint=endpoint,
            region="us-east-1",
            access_key_id="AKIACANARY",
            secret_access_key=CANARY,
            session_token=CANARY,
            timeout_s=1.0,
        )
    except lash.ConfigError as error:
        assert_hidden(shown(error))
        return
    assert_hidden(repr(store), repr(vars(store)))
    with pytest.raises(lash.LashError) as caught:
        await store.get("0" * 64)
    assert_hidden(shown(caught.value))


async def test_a_pool_of_the_caller_is_not_described(role_url: str) -> None:
    """Messages about a pool of the caller do not reveal how it connects."""
    parts = urlsplit(role_url)
    pool = await asyncpg.create_pool(urlunsplit(parts._replace(query="")), min_size=0, max_size=1)
    async with await lash.open(role_url, pool=pool) as storage:
        assert_hidden(*(repr(part) for part in _parts(storage)))
        await pool.close()
        with pytest.raises(lash.LashError) as caught:
            await storage.sessions.list()
    assert_hidden(shown(caught.value))

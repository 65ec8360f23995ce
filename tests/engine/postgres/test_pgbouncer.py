"""lash through a real pgbouncer, in session and in transaction mode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.storage import PostgresStorage
from lash.testing.postgres_server import PostgresServer
from tests.backends import with_parameters
from tests.cli.kit import run
from tests.engine.postgres.kit import Item, Text, opened, raw_connection
from tests.engine.postgres.proxy import proxy_before
from tests.pgbouncer import PgBouncer
from tests.raw import raw

PATIENCE_S: Final = 60
MODES: Final = ("session", "transaction")
_SETTINGS: Final = ("lock_timeout", "statement_timeout", "plan_cache_mode", "tcp_user_timeout")


@pytest.fixture(scope="module")
def poolers(postgres_server: PostgresServer) -> Iterator[dict[str, PgBouncer]]:
    """A pgbouncer in each mode. In transaction mode three server connections serve all clients."""
    url = postgres_server.url
    # In session mode each client keeps a server connection, and two apps open up to 34.
    with PgBouncer(url, "session", pool_size=60) as session, PgBouncer(url, "transaction", pool_size=3) as transaction:
        yield {"session": session, "transaction": transaction}


@pytest.fixture
def session_url(poolers: dict[str, PgBouncer], postgres_storage_url: str) -> str:
    """The URL of an empty storage behind a pooler in session mode; it needs no option."""
    return poolers["session"].through(postgres_storage_url)


@pytest.fixture
def transaction_url(poolers: dict[str, PgBouncer], postgres_storage_url: str) -> str:
    """The URL of an empty storage behind a pooler in transaction mode."""
    return with_parameters(poolers["transaction"].through(postgres_storage_url), pooler="transaction")


@pytest.fixture(params=MODES)
def pooled_url(request: pytest.FixtureRequest) -> str:
    """Both of them in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait briefly for a notification that must not arrive."""
    monkeypatch.setattr("lash.postgres.hints._PROBE_LIMIT_S", 0.5)


def direct(url: str) -> str:
    """Return the URL of the server without options of lash."""
    return urlsplit(url)._replace(query="").geturl()


async def test_session_mode_needs_no_option(session_url: str) -> None:
    """The pooler refuses settings in the startup message; lash sends them after connecting, with the same effect."""
    async with opened(session_url, lock_timeout_ms=1234, statement_timeout_ms=5678, peer_timeout_s=40) as database:
        found = [await database.read_one(Text, "setting", name) for name in _SETTINGS]
        assert await database.read_all(Text, "prepared") != []
    assert [each and each.text for each in found] == ["1234ms", "5678ms", "force_generic_plan", "40000"]


async def test_a_direct_connection_sends_its_settings_at_the_start(postgres_schema_url: str) -> None:
    """A client without a pooler does not pay for the other way: the first statement is preceded by no round trip."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        before = proxy.round_trips
        await database.read_one(Item, "one")
        # The first use of a statement prepares it.
        assert proxy.round_trips - before == 2


@pytest.mark.parametrize("size", [1, 5])
async def test_transaction_mode_without_its_option_is_refused(
    postgres_server: PostgresServer, postgres_storage_url: str, size: int
) -> None:
    """The error names the option, and no setting is left on the connections that other programs share."""
    with PgBouncer(postgres_server.url, "transaction", pool_size=size) as pooler:
        url = pooler.through(postgres_storage_url)
        with pytest.raises(lash.ConfigError, match=r"unsupported startup parameter: .*pooler=transaction"):
            await lash.open(url)
        async with raw_connection(postgres_storage_url) as plain:
            default = await plain.fetchval("SHOW lock_timeout")
        async with opened(with_parameters(url, pooler="transaction"), max_size=1) as shared:
            assert await shared.read_one(Text, "setting", "lock_timeout") == Text(0, default)


async def test_an_idle_transaction_is_limited_in_both_modes(pooled_url: str) -> None:
    """The limit comes with the transaction, so no pooler can lose it, and it does not outlive the transaction."""
    async with opened(pooled_url, idle_transaction_timeout_ms=4321, max_size=1) as database:
        async with database.transaction() as transaction:
            inside = await transaction.one(Text, "setting", "idle_in_transaction_session_timeout")
        after = await database.read_one(Text, "setting", "idle_in_transaction_session_timeout")
    assert (inside, after) == (Text(0, "4321ms"), Text(0, "0"))


async def test_a_write_under_locks_is_one_transaction_in_both_modes(pooled_url: str) -> None:
    """The pooler gives both runs of the statement to one server connection, also while others share it."""
    async with opened(pooled_url, max_size=4) as database:
        found = await asyncio.gather(*(database.write_under_locks(Item, "run", repeatable=False) for _ in range(20)))
    assert [[run.n for run in runs] for runs in found] == [[0, 1]] * 20
    assert {first.id == second.id for first, second in found} == {True}
    assert len({first.id for first, _ in found}) == 20


async def _same(text: str) -> str:
    await asyncio.sleep(0)
    return text


async def _echo(turn: lash.Turn) -> str:
    turn.activity("thinking")
    return "re: " + await turn.step("step", _same, turn.text)


async def _job(ctx: lash.Context, text: str) -> str:
    await ctx.sleep(0.01)
    await ctx.wait_signal("go")
    return await ctx.step("kept", _same, text)


async def _tick(ctx: lash.Context) -> str:
    return await ctx.step("kept", _same, "tick")


async def _observed(handle: lash.SessionHandle, cursor: str) -> list[lash.Observed]:
    """Return what happens in a session up to its third commit."""
    seen: list[lash.Observed] = []
    async with aclosing(handle.observe(cursor)) as stream:
        async for each in stream:
            seen.append(each)
            if sum(isinstance(other, lash.Committed) for other in seen) == 3:
                break
    return seen


async def _has_ticked(app: lash.App) -> bool:
    outcomes = [record.projection.outcome for record in (await app.storage.processes.list()).processes]
    return any(isinstance(outcome, lash.Success) and outcome.value == "tick" for outcome in outcomes)


async def test_turns_processes_schedules_and_observation(pooled_url: str, postgres_storage_url: str) -> None:
    """Everything that a worker does works through the pooler, while its clients alternate on few connections."""
    listen_url = direct(postgres_storage_url) if "pooler=transaction" in pooled_url else None
    worker = lash.App(pooled_url, options=lash.WorkerOptions(poll_s=0.2), listen_url=listen_url)
    sender = lash.App(pooled_url, worker=False, listen_url=listen_url)
    for app in (worker, sender):
        app.agent(_echo)
    job = sender.process(_job)
    worker.process(_job)
    worker.cron("0 0 1 1 *", worker.process(_tick))
    async with asyncio.timeout(PATIENCE_S), worker, sender:
        sessions = [sender.session(f"s{number}") for number in range(6)]
        assert await asyncio.gather(*(each.ask("m0") for each in sessions)) == ["re: m0"] * 6
        watching = asyncio.create_task(_observed(sessions[0], await sessions[0].cursor()))
        jobs = [await sender.start(job, f"job {number}") for number in range(6)]
        for number in range(1, 4):
            replies = await asyncio.gather(*(each.ask(f"m{number}", key=f"k{number}") for each in sessions))
            assert replies == [f"re: m{number}"] * 6
        await asyncio.gather(*(each.signal("go") for each in jobs))
        assert await asyncio.gather(*(each.result() for each in jobs)) == [f"job {number}" for number in range(6)]
        seen = await watching
        assert [each.revision for each in seen if isinstance(each, lash.Committed)] == [2, 3, 4]
        assert [each.payload for each in seen if isinstance(each, lash.TurnActivity)] == ["thinking"] * 3
        assert not any(isinstance(each, lash.Gap) for each in seen)
        await raw(postgres_storage_url, "UPDATE lash_schedules SET next_tick_ms = 1, next_fire_ms = 1")
        while not await _has_ticked(sender):  # noqa: ASYNC110 - the worker ends the wait
            await asyncio.sleep(0.02)


async def _answer(url: str, listen_url: str | None = None) -> str:
    """Return the answer of a worker that practically never polls, so that a notification has to wake it."""
    worker = lash.App(url, options=lash.WorkerOptions(poll_s=3_600), listen_url=listen_url)
    sender = lash.App(url, worker=False, listen_url=listen_url)
    for app in (worker, sender):
        app.agent(_echo)
    async with asyncio.timeout(PATIENCE_S), worker, sender:
        # The first poll of the worker and the start of its listener do not count.
        await sender.session("s").ask("first")
        return await sender.session("s").ask("second")


async def test_session_mode_notifies(session_url: str) -> None:
    """A worker in another storage is woken by a notification through the pooler."""
    assert await _answer(session_url) == "re: second"


async def test_transaction_mode_notifies_with_a_direct_url(transaction_url: str, postgres_storage_url: str) -> None:
    """With ``listen_url``, as an option or in the URL, one direct connection receives the notifications."""
    listen_url = direct(postgres_storage_url)
    assert await _answer(transaction_url, listen_url=listen_url) == "re: second"
    assert await _answer(with_parameters(transaction_url, listen_url=listen_url)) == "re: second"


async def test_a_listening_connection_is_watched_behind_a_pooler(
    session_url: str, transaction_url: str, postgres_storage_url: str
) -> None:
    """The server watches it for a dead peer, although the pooler takes no setting at the start."""
    for url in (session_url, with_parameters(transaction_url, listen_url=direct(postgres_storage_url))):
        async with opened(url, peer_timeout_s=24) as database:
            listening = await database.connect_to_listen()
            try:
                assert await listening.fetchval("SHOW tcp_user_timeout") == "24000"
            finally:
                await listening.close()


async def test_transaction_mode_without_it_does_not_listen(transaction_url: str) -> None:
    """The storage reports that it cannot listen."""
    async with await lash.open(transaction_url) as storage:
        assert isinstance(storage, PostgresStorage)
        assert await storage.hints.probe() is None


async def test_a_pool_of_the_caller_notifies_with_a_direct_url(transaction_url: str, postgres_storage_url: str) -> None:
    """A storage does not know where a pool of the caller leads; with ``listen_url`` it receives notifications."""
    dsn = PostgresOptions.from_url(transaction_url).dsn
    listen_url = direct(postgres_storage_url)
    async with (
        asyncpg.create_pool(dsn, min_size=0, statement_cache_size=0) as pool,
        await lash.open(transaction_url, pool=pool, listen_url=listen_url) as storage,
    ):
        assert isinstance(storage, PostgresStorage)
        assert await storage.hints.probe() is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"netloc": "postgres:notthepassword@{host}"}, "connecting to {host}: password authentication failed"),
        ({"path": "/template1"}, "a notification sent through .* did not arrive at {host}; expected the same database"),
        ({"query": "schema=lash"}, "'listen_url': expected a URL with options of the driver only"),
        ({"scheme": "mysql"}, "'listen_url': a PostgreSQL URL begins with postgresql://"),
    ],
)
async def test_a_wrong_direct_url_is_refused(
    transaction_url: str, postgres_storage_url: str, change: dict[str, str], message: str, short_probe: None
) -> None:
    """Opening raises an error that names the option or the address, and no password."""
    parts = urlsplit(direct(postgres_storage_url))
    host = parts.netloc.rpartition("@")[2]
    wrong = parts._replace(**{key: value.format(host=host) for key, value in change.items()}).geturl()
    with pytest.raises(lash.ConfigError, match=message.format(host=host)) as raised:
        await lash.open(transaction_url, listen_url=wrong)
    assert parts.password is not None
    assert parts.password not in str(raised.value)
    assert "notthepassword" not in str(raised.value)


async def test_a_pooler_as_direct_url_is_found_out(
    transaction_url: str, poolers: dict[str, PgBouncer], short_probe: None
) -> None:
    """A pooler in transaction mode takes LISTEN and delivers nothing; that is an error when the storage is opened."""
    with pytest.raises(lash.ConfigError, match="without a pooler in transaction mode"):
        await lash.open(transaction_url, listen_url=poolers["transaction"].through(direct(transaction_url)))


async def test_a_direct_server_that_is_away_is_reported(transaction_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The storage opens and polls; a warning names the address."""
    with caplog.at_level(logging.WARNING, "lash.postgres"):
        async with await lash.open(transaction_url, listen_url="postgresql://u:secret@127.0.0.1:1/x") as storage:
            await storage.sessions.create("s")
    assert caplog.messages[0].startswith("cannot receive notifications, polling instead: connecting to 127.0.0.1:1")
    assert "secret" not in caplog.text


def test_doctor_shows_whether_notifications_arrive(
    transaction_url: str, session_url: str, postgres_storage_url: str
) -> None:
    """The check of a pooler in transaction mode is a warning that names the option, unless ``listen_url`` is given."""
    password = urlsplit(postgres_storage_url).password
    assert password is not None
    listening = with_parameters(transaction_url, listen_url=direct(postgres_storage_url))
    shown = [run("doctor", "--json", url=url) for url in (transaction_url, listening, session_url)]
    found = [next(line for line in each.stdout.splitlines() if '"notifications"' in line) for each in shown]
    assert [each.returncode for each in shown] == [0, 0, 0]
    assert '"warn"' in found[0]
    assert "listen_url" in found[0]
    assert all('"ok"' in line and "received in" in line for line in found[1:])
    assert not any(password in each.stdout + each.stderr for each in shown)
    host = urlsplit(postgres_storage_url).netloc.rpartition("@")[2]
    assert f"listen_url=postgresql://postgres:***@{host}" in shown[1].stdout

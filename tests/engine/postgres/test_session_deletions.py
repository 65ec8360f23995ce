"""Deleting sessions on PostgreSQL: one statement for those without ties, and what is committed while it waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
import pytest_asyncio

import lash
from lash.errors import SessionDeleted, StoreError, StoreUnavailable
from lash.model.process.event import WakeState
from lash.model.session.session import ActivePath
from lash.model.trigger.schedule import ScheduleDraft
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.contract.queue_state import late, queued
from tests.engine.postgres.proxy import Cut, proxy_before
from tests.engine.postgres.test_trigger_guards import gate_on
from tests.engine.postgres.test_wait_guards import blocked, rival
from tests.factories.process import NEWS, granted, news, process
from tests.factories.session import acquired, chain, commit, node, owner, started
from tests.factories.trigger import by_session, trigger
from tests.raw import raw

ALONE: Final = ["session_delete_untied"]
_LEFT: Final = "SELECT 1 FROM lash_nodes UNION ALL SELECT 1 FROM lash_segments UNION ALL SELECT 1 FROM lash_runs"

_LOAD: Final = """
INSERT INTO lash_session_ids (session_id) SELECT 'u' || n FROM generate_series(1, 5000) AS n;
INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
SELECT 'u' || n, 'n', n, '', t.relation, 1, n FROM generate_series(1, 5000) AS n, lash_sessions AS t;
INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id <> 's';
INSERT INTO lash_segments (session_key, segment) SELECT session_key, 1 FROM lash_sessions WHERE session_id <> 's';
INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, user_message, body, kind)
SELECT session_key, 1, n, n, 'n' || n, true, '{}', 'message'
FROM lash_sessions, generate_series(1, 4) AS n WHERE session_id <> 's';
ANALYZE lash_session_ids, lash_sessions, lash_session_leases, lash_segments, lash_nodes
"""
_FEW: Final = 40
"""More than the rows of two sessions: ids, leases and sessions for the locks, and what is deleted."""


async def _subscription(storage: lash.Storage) -> None:
    await storage.triggers.register(trigger(owner=by_session()))


async def _schedule(storage: lash.Storage) -> None:
    await storage.schedules.register(ScheduleDraft(owner=by_session(), key="k", cron="* * * * *"))


async def _grant(storage: lash.Storage) -> None:
    await storage.processes.register(process("p"))
    await storage.grants.grant(granted("s", "p"))


async def _wake_target(storage: lash.Storage) -> None:
    await storage.processes.register(process("p", wake_session_id="s"))


async def _queued_wake(storage: lash.Storage) -> None:
    await storage.processes.register(process("p", NEWS))
    await storage.events.append("p", news(wake="s"))


async def _fork(storage: lash.Storage) -> None:
    await storage.sessions.fork("s", "fork")


TIES: Final = (_subscription, _schedule, _grant, _wake_target, _queued_wake, _fork)


@pytest.fixture
def sent() -> list[str]:
    """The names of the statements, in the order in which they were sent."""
    return []


@pytest_asyncio.fixture
async def storage(postgres_storage_url: str, sent: list[str]) -> AsyncIterator[lash.Storage]:
    """A storage with session ``s``, which has one node."""
    async with await lash.open(postgres_storage_url, on_statement=sent.append) as opened:
        await started(opened)
        sent.clear()
        yield opened


async def test_a_session_without_ties_is_one_statement(
    storage: lash.Storage, sent: list[str], postgres_storage_url: str
) -> None:
    """It is deleted with its graph by one statement, without a transaction around it."""
    assert await storage.sessions.delete("s")
    assert sent == ALONE
    assert await raw(postgres_storage_url, _LEFT) == []


async def test_an_unknown_session_is_one_statement(storage: lash.Storage, sent: list[str]) -> None:
    """There is nothing to delete, and nothing is locked for longer."""
    assert not await storage.sessions.delete("unknown")
    assert sent == ALONE


async def test_many_sessions_share_statements(storage: lash.Storage, sent: list[str]) -> None:
    """A statement deletes up to 16 sessions, in the order that was asked for; unknown ones are skipped."""
    names = [f"s{number}" for number in range(17)]
    for name in names:
        await started(storage, name)
    sent.clear()
    assert await storage.sessions.delete_many([*reversed(names), "unknown"]) == tuple(reversed(names))
    assert sent == ALONE * 2
    assert await storage.sessions.ids() == ("s",)


@pytest.mark.parametrize("tie", TIES)
async def test_a_session_with_ties_is_deleted_in_steps(
    storage: lash.Storage, sent: list[str], tie: Callable[[lash.Storage], Awaitable[None]]
) -> None:
    """Each tie alone keeps the statement from deleting it; another session of the same call is deleted by it."""
    await started(storage, "other")
    await tie(storage)
    sent.clear()
    assert await storage.sessions.delete_many(["s", "other"]) == ("s", "other")
    assert sent[:2] == [*ALONE, "begin"]
    assert (sent.count("session_bury"), sent[-1]) == (1, "commit")
    assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean


async def test_a_fork_is_deleted_in_steps(storage: lash.Storage, sent: list[str], postgres_storage_url: str) -> None:
    """It inherits runs, which go with the last fork that names them."""
    await _fork(storage)
    sent.clear()
    assert await storage.sessions.delete("fork")
    assert sent[:2] == [*ALONE, "begin"]
    assert await storage.sessions.delete("s")
    assert await raw(postgres_storage_url, _LEFT) == []


async def test_nodes_committed_meanwhile_go_too(storage: lash.Storage, postgres_storage_url: str) -> None:
    """A deletion that waited for a commit removes the nodes of that commit."""
    async with gate_on(postgres_storage_url, "lash_nodes") as gate:
        session = storage.session("s")
        committing = asyncio.create_task(session.commit(commit(1, node("b", "a"))))
        assert await gate.until_waiting(1, committing)
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(2, deleting)
        await gate.open()
        assert (await committing).revision == 2
        assert await deleting
    assert await raw(postgres_storage_url, _LEFT) == []
    assert await raw(postgres_storage_url, "SELECT revision FROM lash_session_ids") == [(2,)]


async def test_a_fork_made_meanwhile_keeps_its_nodes(storage: lash.Storage, postgres_storage_url: str) -> None:
    """A deletion that waited for a fork leaves the nodes that it inherits."""
    async with gate_on(postgres_storage_url, "lash_runs") as gate:
        forking = asyncio.create_task(storage.sessions.fork("s", "fork"))
        assert await gate.until_waiting(1, forking)
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(2, deleting)
        await gate.open()
        assert (await forking).created
        assert await deleting
    read = await storage.session("fork").load(ActivePath())
    assert read is not None
    assert [each.node_id for each in read.graph.nodes] == ["a"]
    assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean


async def test_a_wake_queued_meanwhile_is_undeliverable(storage: lash.Storage, postgres_storage_url: str) -> None:
    """A deletion that waited for an event marks its wake, which would stay queued permanently."""
    await storage.processes.register(process("p", NEWS))
    async with gate_on(postgres_storage_url, "lash_wakes") as gate:
        appending = asyncio.create_task(storage.events.append("p", news(wake="s")))
        assert await gate.until_waiting(1, appending)
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(2, deleting)
        await gate.open()
        await appending
        assert await deleting
    lost = await storage.events.undeliverable_wakes()
    assert [(each.process_id, each.state) for each in lost] == [("p", WakeState.UNDELIVERABLE)]


async def test_a_message_during_a_deletion_is_refused(storage: lash.Storage, postgres_storage_url: str) -> None:
    """A message that arrives between the locks and the deletion waits, and then raises SessionDeleted."""
    async with gate_on(postgres_storage_url, "lash_session_ids") as gate:
        # The gate closes at the end of the first run, which has taken the locks and written nothing.
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(1, deleting)
        sending = asyncio.create_task(queued(storage, late("hello")))
        assert await gate.until_waiting(2, sending), "the message was accepted for a session that is being deleted"
        await gate.open()
        assert await deleting
        with pytest.raises(SessionDeleted):
            await sending
    assert await raw(postgres_storage_url, "SELECT 1 FROM lash_batches") == []


async def test_an_expired_session_that_is_claimed_meanwhile_stays(
    storage: lash.Storage, postgres_storage_url: str
) -> None:
    """A deletion of expired sessions that waited for a claim leaves the session to its holder."""
    await storage.session("s").edit(expires_at_ms=1)
    async with gate_on(postgres_storage_url, "lash_session_leases") as gate:
        claiming = asyncio.create_task(storage.leases.claim("s", owner("w"), ttl_ms=60_000))
        assert await gate.until_waiting(1, claiming)
        deleting = asyncio.create_task(storage.sessions.delete_expired())
        assert await gate.until_waiting(2, deleting)
        await gate.open()
        lease = acquired(await claiming)
        assert await deleting == ()
    assert await storage.leases.holder("s") == lease


async def test_a_session_created_meanwhile_is_deleted_in_steps(
    storage: lash.Storage, sent: list[str], postgres_storage_url: str
) -> None:
    """The second run does not trust what it reads of a session that the first one did not lock."""
    await storage.sessions.delete("s")
    await started(storage, "other")
    async with rival(postgres_storage_url) as connection:
        await connection.execute("SELECT 1 FROM lash_session_ids WHERE session_id = 'other' FOR UPDATE")
        deleting = asyncio.create_task(storage.sessions.delete_many(["other", "s"]))
        await blocked(postgres_storage_url)
        made = await storage.sessions.create("s")
        await storage.session("s").commit(commit(made.revision, *chain("b", "c")))
        sent.clear()
        await connection.execute("COMMIT")
        assert await deleting == ("other", "s")
    assert sent[0] == "begin"
    assert await raw(postgres_storage_url, _LEFT) == []


async def test_one_that_cannot_be_deleted_keeps_no_other(storage: lash.Storage, postgres_storage_url: str) -> None:
    """If a statement for several fails, they are deleted one by one until the one that fails."""
    for name in ("before", "after"):
        await started(storage, name)
    await raw(
        postgres_storage_url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'",
    )
    await raw(
        postgres_storage_url,
        "CREATE TRIGGER refuse BEFORE DELETE ON lash_sessions FOR EACH ROW WHEN (OLD.session_id = 's') "
        "EXECUTE FUNCTION refuse()",
    )
    try:
        with pytest.raises(StoreError, match="no"):
            await storage.sessions.delete_many(["before", "s", "after"])
    finally:
        await raw(postgres_storage_url, "DROP FUNCTION refuse CASCADE")
    assert await storage.sessions.ids() == ("after", "s")


async def test_a_deletion_whose_answer_was_lost_is_not_repeated(postgres_storage_url: str) -> None:
    """It was applied, which its caller does not know; a repetition could delete a later session of the same id."""
    sent: list[str] = []
    async with (
        proxy_before(postgres_storage_url) as (proxy, url),
        await lash.open(url, on_statement=sent.append) as storage,
    ):
        await started(storage, "only-once")
        await started(storage, "kept")
        sent.clear()
        proxy.cut_once(b"only-once", Cut.BEFORE_ANSWERING)
        with pytest.raises(StoreUnavailable) as raised:
            await storage.sessions.delete_many(["only-once", "kept-not"])
        assert raised.value.outcome_unknown
        assert sent == ALONE
        assert await storage.sessions.ids() == ("kept",)


async def test_a_deletion_reads_few_rows_however_many_sessions_there_are(
    storage: lash.Storage, postgres_storage_url: str
) -> None:
    """At 5,000 sessions with four nodes each, deleting two reads what belongs to them, by indexes."""
    for statement in _LOAD.strip().split(";\n"):
        await raw(postgres_storage_url, statement)
    options = PostgresOptions.from_url(postgres_storage_url)
    text = load_queries("lash.postgres.sql", schema=options.schema)["session_delete_untied"]
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with rival(postgres_storage_url) as connection:
            await connection.execute(f"SET plan_cache_mode = {mode}; SET enable_seqscan = off")
            await connection.execute(f"PREPARE asked AS {text}")
            for is_second, deleted in (("false", 0), ("true", 2)):
                explain = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked"
                found = await connection.fetchval(f"{explain} ('{{u7,u77}}', false, {is_second})")
                plan = json.loads(found)[0]["Plan"]
                assert plan["Actual Rows"] == deleted
                scans = [node for node in _nodes(plan) if "Relation Name" in node and "Scan" in node["Node Type"]]
                assert sum(map(_rows_read, scans)) <= _FEW, (mode, scans)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> float:
    """Return how many rows a scan read, filtered out or not."""
    return float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])

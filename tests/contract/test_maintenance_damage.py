"""Laws of maintenance that need a raw connection to the database."""

from __future__ import annotations

import msgspec
import pytest

import lash
from lash.errors import MaintenanceFailed, StorageFailure
from lash.model.maintenance import GarbageCount, GarbageReport, PruneReport
from lash.plan.maintenance import noun_of
from tests.factories.session import acquired, chain, commit, draft, node, started
from tests.raw import raw

on_files = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_KEPT = {"lash_migrations", "lash_process_change_epoch", "lash_session_ids", "lash_secrets"}
_TABLES = {
    "sqlite": r"SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'lash\_%' ESCAPE '\'",
    "postgres": r"SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'lash\_%'",
}


async def _damage(url: str) -> None:
    """Write garbage of each kind directly into the tables."""
    key = "(SELECT session_key FROM lash_sessions WHERE session_id = 's')"
    zeros = "X'00'" if url.startswith("sqlite") else r"'\x00'::bytea"
    await raw(url, f"INSERT INTO lash_blobs VALUES ({key}, 'unused', 'plain', 1, {zeros})")
    await raw(
        url,
        "INSERT INTO lash_components (session_key, key, first_revision, last_revision, hash) "
        f"VALUES ({key}, 'ended', 90, 91, 'nothing')",
    )
    await raw(url, "INSERT INTO lash_segments (session_key, segment) VALUES (900, 1)")
    flag = "0" if url.startswith("sqlite") else "false"
    await raw(
        url,
        "INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, user_message, body) "
        f"VALUES (900, 1, 0, 1, 'n', {flag}, '12345')",
    )


_FOUND = GarbageReport(
    dry_run=False,
    components=GarbageCount(rows=1),
    blobs=GarbageCount(rows=1, bytes=1),
    graphs=GarbageCount(rows=2, bytes=5),
)


@on_files
async def test_an_audit_removes_what_nothing_needs(backend_url: str) -> None:
    """A dry run reports rows and bytes and removes nothing; a real run removes exactly those."""
    async with await lash.open(backend_url) as storage:
        session = await started(storage)
        await session.commit(commit(1, node("b", "a"), checkpoint=draft(1, {"k": b"used"})))
        before = await session.load()
        await _damage(backend_url)
        for _ in range(2):
            found = await storage.maintenance.collect_garbage(dry_run=True)
            assert found == msgspec.structs.replace(_FOUND, dry_run=True)
        assert await storage.maintenance.collect_garbage() == _FOUND
        assert (await storage.maintenance.collect_garbage()).is_clean
        assert await session.load() == before


@on_files
@pytest.mark.parametrize(
    ("step", "done"),
    [
        ("maintenance_find_components", GarbageReport(dry_run=False)),
        ("maintenance_find_blobs", GarbageReport(dry_run=False, components=_FOUND.components)),
        ("fork_reclaim_nodes", msgspec.structs.replace(_FOUND, graphs=GarbageCount())),
    ],
)
async def test_a_failing_step_surfaces_with_a_partial_report(backend_url: str, step: str, done: GarbageReport) -> None:
    """A failure carries the report of the work before it, and the next call does the rest."""
    broken = True

    def fail(name: str) -> None:
        if broken and name == step:
            raise StorageFailure("injected")

    async with await lash.open(backend_url, on_statement=fail) as storage:
        await started(storage)
        await _damage(backend_url)
        with pytest.raises(MaintenanceFailed, match="injected") as raised:
            await storage.maintenance.collect_garbage()
        assert raised.value.report == done
        assert isinstance(raised.value.__cause__, StorageFailure)
        broken = False
        rest = await storage.maintenance.collect_garbage()
        assert (rest.components, rest.blobs, rest.graphs) == (
            *(
                GarbageCount() if getattr(done, kind).rows else getattr(_FOUND, kind)
                for kind in ("components", "blobs")
            ),
            _FOUND.graphs,
        )


@on_files
async def test_failing_to_prune_surfaces_with_a_partial_report(backend_url: str) -> None:
    """A failed pruning reports how many turns were removed."""

    def fail(name: str) -> None:
        if name.startswith("maintenance_drop_turn"):
            raise StorageFailure("injected")

    async with await lash.open(backend_url, on_statement=fail) as storage:
        session = await started(storage)
        await session.commit(commit(1, turn_id="t"))
        while not await raw(backend_url, _OLD[backend_url.partition(":")[0]]):
            pass
        with pytest.raises(MaintenanceFailed) as raised:
            await storage.maintenance.prune_turns(older_than_ms=0)
        assert raised.value.report == PruneReport()


_OLD = {
    "sqlite": "SELECT 1 FROM lash_turns WHERE committed_at_ms < unixepoch('subsec') * 1000",
    "postgresql": "SELECT 1 FROM lash_turns WHERE committed_at_ms < lash_now_ms()",
}


async def _leave_work_behind(storage: lash.Storage) -> None:
    """Give session ``s`` a lease, a wait, claimed and unclaimed batches, committed and uncommitted attachments."""
    for key in ("k1", "k2", None):
        payloads = (lash.model.TurnInput.of_text("hi"),)
        await storage.queue.enqueue(lash.model.BatchDraft(session_id="s", payloads=payloads, source_key=key))
    lease = acquired(await storage.leases.claim("s", lash.current_owner(), ttl_ms=60_000))
    await storage.queue.claim(lease.fence, boundary=lash.model.Boundary.IDLE, ttl_ms=60_000)
    kept = await storage.attachments.put("s", b"kept", "text/plain")
    await storage.attachments.put("s", b"loose", "text/plain")
    await storage.session("s").commit(commit(3, attachments=(kept.id,)))
    await storage.sessions.fork("s", "with-attachments")
    scope = lash.model.TurnScope(session_id="s", turn_id="t")
    await storage.waits.open(await storage.waits.key(scope, lash.model.CustomIdentity(key="k")))


async def _is_gone(_entry: object) -> bool:
    return True


@on_files
async def test_a_storage_without_sessions_is_empty(backend_url: str, backend_name: str) -> None:
    """After the deletion of every session and maintenance only what concerns the whole storage remains."""
    async with await lash.open(backend_url) as storage:
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("c", after="b"), turn_id="t", checkpoint=draft(1, {"k": b"v"}), usage=()))
        for number in range(3):
            await storage.sessions.fork("s", f"f{number}", node_id="ab"[number % 2])
            await storage.session(f"f{number}").commit(commit(1, node("x"), session_id=f"f{number}"))
        await session.commit(commit(2, node("d", "a")))
        await session.tombstone(["c"])
        await _leave_work_behind(storage)
        for page in (await storage.sessions.list()).sessions[::-1]:
            await storage.sessions.delete(page.meta.session_id)
        assert len((await storage.attachments.sweep(0, _is_gone)).deleted) == 2
        assert (await storage.maintenance.collect_garbage()).is_clean
        tables = {table for (table,) in await raw(backend_url, _TABLES[backend_name])}
        assert tables >= _KEPT
        left = {table for table in tables - _KEPT if await raw(backend_url, f"SELECT 1 FROM {table}")}
        assert left == set()
        assert await raw(backend_url, "SELECT count(*) FROM lash_session_ids WHERE deleted_at_ms > 0") == [(5,)]


@on_files
async def test_every_table_belongs_to_a_noun(backend_url: str, backend_name: str) -> None:
    """The size report covers every table of lash."""
    async with await lash.open(backend_url) as storage:
        await started(storage)
        tables = {table for (table,) in await raw(backend_url, _TABLES[backend_name])}
        assert {noun_of(table) for table in tables} == set((await storage.report()).nouns)
        assert "other" not in {noun_of(table) for table in tables}


@pytest.mark.parametrize("backend_name", ["sqlite", "memory"], indirect=True)
async def test_a_small_sqlite_report_is_exact(backend_url: str) -> None:
    """The report of a small SQLite file counts rows exactly."""
    async with await lash.open(backend_url) as storage:
        await started(storage, "s", "a", "b", "c")
        await storage.sessions.fork("s", "t")
        nouns = (await storage.report()).nouns
        assert all(size.exact for size in nouns.values())
        assert (nouns["session"].rows, nouns["lease"].rows, nouns["frame"].rows) == (4, 2, 0)
        assert nouns["node"].rows == 3 + 2 + 2


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_a_postgres_report_follows_the_servers_estimate(backend_url: str) -> None:
    """The report on PostgreSQL has the rows of the last ANALYZE."""
    async with await lash.open(backend_url) as storage:
        await started(storage, "s", "a", "b", "c")
        await raw(backend_url, "ANALYZE lash_nodes")
        await raw(backend_url, "ANALYZE lash_segments")
        await raw(backend_url, "ANALYZE lash_inherited")
        await raw(backend_url, "ANALYZE lash_runs")
        size = (await storage.report()).nouns["node"]
        assert (size.rows, size.exact) == (4, False)


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_large_sqlite_report_is_an_estimate(backend_url: str) -> None:
    """A large SQLite table is estimated, and a large file is not measured by table."""
    async with await lash.open(backend_url) as storage:
        await started(storage)
        await raw(
            backend_url,
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) "
            "INSERT INTO lash_nodes (session_key, segment, depth, seq, node_id, user_message, body) "
            "SELECT 1, 1, i, i, 'n' || i, 0, printf('%.1500c', 'x') FROM n",
        )
        report = await storage.report()
        assert report.nouns["node"].rows == 12_001 + 1
        assert not report.nouns["node"].exact
        assert report.nouns["node"].bytes is None
        assert report.bytes > 12_000 * 1_500

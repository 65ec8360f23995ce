"""Moves of a whole storage: every row arrives, and everything works in the target."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import apsw
import msgspec
import pytest

import lash
from lash.errors import ConfigError, Conflict
from lash.model.effect import TurnScope
from lash.model.lease import Lease
from lash.model.limit import Rate
from lash.model.process.process import Success
from lash.model.queue import Boundary
from lash.model.session.session import SessionFilter
from lash.model.trigger.trigger import EmitReport
from lash.model.wait import CustomIdentity, WaitKey
from lash.runtime.observe.stream import current_cursor, observe
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.transfer import MoveReport, Progress, move_storage
from tests.contract.queue_state import claimed, texts
from tests.contract.test_session_delete import inhabited
from tests.factories.effect import effect
from tests.factories.process import event, news, process, process_lease, registered, stored
from tests.factories.session import acquired, chain, commit, created, owner, started
from tests.factories.trigger import pressed, trigger
from tests.factories.wait import YES
from tests.raw import raw
from tests.transfer.kit import exported, opened, rich_session
from tests.transfer.test_copy import populated
from tests.transfer.test_kills import moved

HOUR_MS: Final = 3_600_000
LEFT: Final = {
    *("lash_activity", "lash_activity_tails", "lash_demand", "lash_migrations"),
    *("lash_process_change_epoch", "lash_process_log", "lash_wait_changes", "lash_workers"),
}
NOBODY: Final[dict[str, object]] = {
    "owner_id": None,
    "incarnation_id": None,
    "process": None,
    "token": None,
    "claimed_at_ms": 0,
    "expires_at_ms": 0,
}
FREED: Final[dict[str, dict[str, object]]] = {
    "lash_session_leases": NOBODY,
    "lash_process_leases": NOBODY,
    "lash_batches": {
        "claim_id": None,
        "claim_token": None,
        "claim_lease_fencing": None,
        "claim_expires_at_ms": None,
    },
}
Dump = Mapping[str, list[dict[str, object]]]


class Made(msgspec.Struct):
    """The ids that the tests need from a storage with rows in every table."""

    lease: Lease
    key: WaitKey
    report: EmitReport


async def everything(storage: Storage) -> Made:
    """Write at least one row into every table, with gaps from deletions."""
    await registered(storage, "gone", outcome=Success(value=1))
    seen = (await storage.events.changes()).cursor
    await storage.processes.prune(ended_before_ms=2**53, through_cursor=seen)
    await populated(storage)
    for name in ("begun", "begun and ended"):
        await storage.process_leases.register_and_claim(process(name), owner("worker"), ttl_ms=60_000)
    await storage.processes.complete("begun and ended", Success(value=1))
    lease, _ = await inhabited(storage, "lived in")
    await inhabited(storage, "deleted")
    await storage.sessions.delete("deleted")
    await storage.records.put("shared", "k", {"a": 1}, index={"f": "x"})
    await storage.records.put("notes", "k", b"\xff", session_id="lived in", ttl_ms=10 * HOUR_MS)
    await storage.limits.reserve("api", "ann", rate=Rate(count=1, period_ms=HOUR_MS))
    await storage.limits.take("api", "ann", concurrency=1, fence=lease.fence)
    await storage.acts.record("ada", "cancel", "x", session_id="deleted")
    await storage.triggers.register(trigger("once"), operation_id="operation")
    report = await storage.occurrences.emit(pressed("reported"))
    await storage.session("t").commit(commit(1, *chain("e", after="c"), session_id="t", turn_id="turn"))
    scope = TurnScope(session_id="lived in", turn_id="t")
    await storage.effects.open_group(scope, "group", size=2)
    await storage.effects.record(lease.fence, effect("member", scope=scope, group="group"), 1)
    process_lease(await storage.process_leases.claim("process of lived in", owner("worker"), ttl_ms=60_000))
    key = await storage.waits.key(scope, CustomIdentity(key="open"))
    await storage.waits.open(key)
    return Made(lease=lease, key=key, report=report)


async def dump(url: str) -> Dump:
    """Return all rows of the moved tables, read directly; booleans as 0 and 1, without places in feeds."""
    if url.startswith("sqlite"):
        listed = await raw(
            url,
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.name GLOB 'lash_*' AND c.name <> 'changed'",
        )
    else:
        listed = await raw(
            url,
            "SELECT table_name::text, column_name::text FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND udt_name <> 'xid8' AND is_generated = 'NEVER' "
            "AND table_name LIKE 'lash\\_%'",
        )
    columns: dict[str, list[str]] = {}
    for table, column in listed:
        if table not in LEFT:
            columns.setdefault(table, []).append(column)
    return {table: await _rows(url, table, sorted(names)) for table, names in columns.items()}


async def _rows(url: str, table: str, columns: list[str]) -> list[dict[str, object]]:
    quoted = ", ".join(f'"{column}"' for column in columns)
    found = await raw(url, f"SELECT {quoted} FROM {table}")
    plain = [tuple(int(value) if isinstance(value, bool) else value for value in row) for row in found]
    return [dict(zip(columns, row, strict=True)) for row in sorted(plain, key=repr)]


def without_holders(found: Dump) -> Dump:
    """Return the rows that a move should write for these rows."""
    return {
        table: sorted(
            ({**row, **FREED.get(table, {})} for row in rows),
            key=lambda row: repr(tuple(row.values())),
        )
        for table, rows in found.items()
    }


async def move(source_url: str, target_url: str) -> dict[str, int]:
    async with opened(source_url, target_url) as (source, target):
        return (await move_storage(source, target)).rows


async def prepared(url: str, clock: ManualClock) -> Made:
    async with await lash.open(url, clock=clock) as storage:
        return await everything(storage)


def an_hour_ago() -> ManualClock:
    """Long enough ago that schedules are due in a target with the real clock."""
    return ManualClock(int(time.time() * 1000) - HOUR_MS)


async def test_every_row_goes_to_postgresql_and_back(tmp_path: Path, postgres_schema_url: str) -> None:
    """The rows of every table are equal on the other backend and after the move back; leases have no holder."""
    first, last = f"sqlite:///{tmp_path / 'first.db'}", f"sqlite:///{tmp_path / 'last.db'}"
    await prepared(first, an_hour_ago())
    before = await dump(first)
    assert {table for table, rows in before.items() if not rows} == set()
    counts = await move(first, postgres_schema_url)
    assert counts == {table: len(rows) for table, rows in before.items()}
    assert await dump(first) == before
    assert await dump(postgres_schema_url) == without_holders(before)
    assert await move(postgres_schema_url, last) == counts
    assert await dump(last) == without_holders(before)


async def named(storage: Storage, text: str) -> tuple[str, ...]:
    """Return the ids of the sessions that a text is found in."""
    found = await storage.sessions.list(SessionFilter(text=text))
    return tuple(each.meta.session_id for each in found.sessions)


@pytest.mark.parametrize("to_postgres", [True, False])
async def test_a_moved_storage_works(tmp_path: Path, postgres_schema_url: str, *, to_postgres: bool) -> None:
    """Sessions, queues, processes, triggers, waits and schedules continue in the target, on either backend."""
    source = f"sqlite:///{tmp_path / 'source.db'}"
    target = postgres_schema_url if to_postgres else f"sqlite:///{tmp_path / 'target.db'}"
    made = await prepared(source, an_hour_ago())
    await move(source, target)
    async with opened(source, target) as (was, storage):
        assert await exported(storage, "s", with_queue=True) == await exported(was, "s", with_queue=True)
        assert (await storage.events.changes()).changes == (await was.events.changes()).changes != ()
        assert [each.event_type for each in await storage.events.after("begun and ended")] == [
            *("process.started", "process.completed")
        ]
        assert await storage.events.after("begun and ended") == await was.events.after("begun and ended")
        assert await named(storage, "a") == await named(was, "a") != ()
        assert await storage.occurrences.emit(pressed("reported")) == made.report
        await storage.waits.resolve(made.key, YES)
        wait = await storage.waits.get(made.key)
        assert wait is not None
        assert wait.resolution == YES
        lease = acquired(await storage.leases.claim("lived in", owner("new"), ttl_ms=60_000))
        assert lease.fence.fencing == made.lease.fence.fencing + 1
        claim = claimed(await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000))
        assert texts(claim.batches) == ["dead"]  # The worker of the source held it.
        committed = await storage.session("lived in").commit(
            commit(1, *chain("c", after="b"), session_id="lived in", fence=lease.fence)
        )
        assert committed.revision == 2
        repeated = await storage.session("t").commit(commit(1, *chain("e", after="c"), session_id="t", turn_id="turn"))
        assert repeated.revision == 2
        run = process_lease(await storage.process_leases.claim("process of lived in", owner("new"), ttl_ms=60_000))
        assert run.fence.fencing == 2
        await storage.events.append("process of lived in", news("later", key="later"))
        # In the source it was started and sent news; here it is started again and sends more.
        assert (await stored(was, "process of lived in")).last_sequence == 2
        assert (await stored(storage, "process of lived in")).last_sequence == 4
        assert {"hourly", "schedule"} <= {fired.key for fired in await storage.schedules.fire_due()}


@pytest.mark.parametrize("to_postgres", [True, False])
async def test_cursors_of_the_source_get_a_gap(tmp_path: Path, postgres_schema_url: str, *, to_postgres: bool) -> None:
    """An observer of the source that goes on in the target gets a gap, and then each later change once."""
    source = f"sqlite:///{tmp_path / 'source.db'}"
    target = postgres_schema_url if to_postgres else f"sqlite:///{tmp_path / 'target.db'}"
    async with opened(source) as (storage,):
        await started(storage)
        await storage.processes.register(process("p", wake_session_id="s"))
        place, feed = await current_cursor(storage, "s"), (await storage.events.changes()).cursor
    await move(source, target)
    async with opened(target) as (storage,):
        page = await storage.events.changes(feed)
        assert (page.changes, page.gap) == ((), lash.GapReason.UNAVAILABLE)
        async with asyncio.timeout(30), aclosing(observe(storage, "s", place)) as stream:
            gap = await anext(stream)
            assert isinstance(gap, lash.Gap)
            assert gap.reason is lash.GapReason.UNAVAILABLE
            for number in range(3):
                await storage.events.append("p", event(payload=number))
            assert [getattr(await anext(stream), "sequence", None) for _ in range(3)] == [1, 2, 3]
        later = await storage.events.changes(page.cursor)
        assert [change.sequence for change in later.changes] == [1, 2, 3]
        whole = await storage.events.changes()
        assert [(change.kind.value, change.sequence) for change in whole.changes] == [
            ("registered", None),
            *(("event", number) for number in (1, 2, 3)),
        ]


@pytest.mark.parametrize("to_postgres", [True, False])
async def test_numbers_of_deleted_things_are_not_given_again(
    tmp_path: Path, postgres_schema_url: str, *, to_postgres: bool
) -> None:
    """After a move, new rows get higher numbers than rows that were deleted before it."""
    source = f"sqlite:///{tmp_path / 'source.db'}"
    target = postgres_schema_url if to_postgres else f"sqlite:///{tmp_path / 'target.db'}"
    async with opened(source) as (storage,):
        await created(storage, "kept")
        await created(storage, "deleted")
        await storage.sessions.delete("deleted")
        await registered(storage, "ended", outcome=Success(value=1))
        await storage.processes.prune(ended_before_ms=2**53, through_cursor=None)
    await move(source, target)
    async with opened(target) as (storage,):
        await created(storage, "new")
        await registered(storage, "new")
    assert await raw(target, "SELECT session_id, session_key FROM lash_sessions ORDER BY 2") == [
        ("kept", 1),
        ("new", 3),
    ]
    assert await raw(target, "SELECT process_key FROM lash_processes") == [(2,)]


@pytest.mark.parametrize("way", ["sqlite to postgres", "sqlite to sqlite", "postgres to sqlite"])
async def test_a_killed_move_is_gone_on_with(tmp_path: Path, postgres_schema_url: str, way: str) -> None:
    """A move killed at ever later statements ends with every row once."""
    files = (f"sqlite:///{tmp_path / name}.db" for name in ("source", "target"))
    source, target = (next(files) if name == "sqlite" else postgres_schema_url for name in way.split(" to "))
    await prepared(source, an_hour_ago())
    before = await dump(source)
    arrived = [0]
    # A page of rows is one statement on PostgreSQL, and a transaction of several on SQLite.
    statement, step = (58, 7) if target == postgres_schema_url else (90, 29)
    while not await moved("move", source, target, str(statement)):
        arrived.append(sum(len(rows) for rows in (await dump(target)).values()))
        statement += step
    assert len(arrived) > 3
    assert arrived == sorted(arrived)
    assert any(0 < count < sum(len(rows) for rows in before.values()) for count in arrived)
    assert await dump(target) == without_holders(before)


async def test_a_run_after_a_stop_takes_only_the_rest(tmp_path: Path) -> None:
    """A resumed move starts its progress where the first run stopped, and reports that number."""
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        if progress.done > 40:
            raise KeyboardInterrupt

    async with opened(f"sqlite:///{tmp_path / 'source.db'}", "sqlite://") as (source, target):
        await populated(source)
        with pytest.raises(KeyboardInterrupt):
            await move_storage(source, target, progress=stop)
        report = await move_storage(source, target, progress=seen.append)
    total = sum(report.rows.values())
    assert report.resumed_at > 40
    assert (seen[0].done, seen[-1].done, seen[-1].total) == (report.resumed_at, total, total)


async def test_a_target_with_something_in_it_is_refused(backend_url: str) -> None:
    """A move into a storage with any row is refused, even if it is a tombstone; so is a second move."""
    async with opened("sqlite://", backend_url, "sqlite://") as (source, target, finished):
        await rich_session(source)
        await created(target, "mine")
        await target.sessions.delete("mine")
        with pytest.raises(Conflict, match="not empty, there are rows in lash_session_ids"):
            await move_storage(source, target)
        assert (await target.sessions.list()).sessions == ()
        await move_storage(source, finished)
        with pytest.raises(Conflict, match="not empty"):
            await move_storage(source, finished)


async def test_a_source_that_is_used_meanwhile_is_told(tmp_path: Path) -> None:
    """A commit to the source during a move raises Conflict, and the target stays marked as unfinished."""
    path = tmp_path / "source.db"
    async with opened(f"sqlite:///{path}", "sqlite://") as (source, target):
        await populated(source)

        def use(progress: Progress) -> None:
            if progress.done == progress.total:
                connection = apsw.Connection(str(path))
                connection.execute("UPDATE lash_sessions SET revision = revision + 1 WHERE session_id = 't'")
                connection.close()

        with pytest.raises(Conflict, match="the source changed during the move"):
            await move_storage(source, target, progress=use)
        with pytest.raises(Conflict, match="start again"):
            await move_storage(source, target)


async def test_a_half_moved_storage_is_neither_source_nor_target_of_another_move() -> None:
    """An unfinished target resumes only from its unchanged source, and cannot be a source itself."""
    async with opened("sqlite://", "sqlite://", "sqlite://") as (source, target, other):
        await populated(source)

        def stop(progress: Progress) -> None:
            if progress.done > 40:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await move_storage(source, target, progress=stop)
        with pytest.raises(Conflict, match="itself the target of a move"):
            await move_storage(target, other)
        with pytest.raises(Conflict, match="start again"):
            await move_storage(other, target)
        await source.session("t").commit(commit(1, *chain("late", after="c"), session_id="t"))
        with pytest.raises(Conflict, match="start again"):
            await move_storage(source, target)


async def test_of_two_moves_into_one_target_one_is_refused(backend_url: str) -> None:
    """Of two concurrent moves into one target the second raises Conflict, and every row arrives once."""
    async with opened("sqlite://", backend_url) as (source, target):
        await populated(source)
        moves = (move_storage(source, target) for _ in range(2))
        outcomes = await asyncio.gather(*moves, return_exceptions=True)
        assert [type(each) for each in outcomes if isinstance(each, BaseException)] == [Conflict]
        [report] = [each for each in outcomes if isinstance(each, MoveReport)]
        assert report.rows["lash_sessions"] == len((await target.sessions.list()).sessions)


async def test_a_role_that_may_not_set_sequences_is_refused_first(postgres_schema_url: str) -> None:
    """A role without rights on sequences is refused before anything is written."""
    parts = urlsplit(postgres_schema_url)
    schema = dict(parse_qsl(parts.query))["schema"]
    await (await lash.open(postgres_schema_url)).close()
    for statement in (
        f"CREATE ROLE {schema} LOGIN PASSWORD 'application'",
        f"GRANT USAGE ON SCHEMA {schema} TO {schema}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}",
    ):
        await raw(postgres_schema_url, statement)
    try:
        host = parts.netloc.rpartition("@")[2]
        role_url = parts._replace(netloc=f"{schema}:application@{host}").geturl()
        async with opened("sqlite://", role_url) as (source, target):
            await created(source, "s")
            with pytest.raises(ConfigError, match="move as the owner"):
                await move_storage(source, target)
        assert await raw(postgres_schema_url, "SELECT name FROM lash_secrets") == []
    finally:
        await raw(postgres_schema_url, f"DROP OWNED BY {schema}")
        await raw(postgres_schema_url, f"DROP ROLE {schema}")

"""Commits of many callers share statements on PostgreSQL, and each is still applied whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

import lash
from lash.errors import InvalidInput, RevisionConflict, StoreUnavailable
from lash.model.session.commit import Commit, CommitResult
from lash.model.session.session import SessionRead
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.statement import choose_statement
from lash.postgres.commit.together import MAX_TOGETHER
from lash.postgres.commit.writer import CommitWriter
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import PLANNING
from lash.sqlkit.queries import load_queries
from tests.contract.queue_state import consuming
from tests.factories.session import chain, commit, created, draft, spent

CALLERS = 40
MOST_TOKENS = 2**63 - 1


class Statements:
    """Counts statements, and breaks the connection before the n-th group of commits."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.break_at = 0

    def __call__(self, name: str) -> None:
        # All statements for commits count as one.
        name = "commit_apply" if name in {"commit_alone", "commit_alone_leased", "commit_turns"} else name
        self.counts[name] += 1
        if name == "commit_apply" and self.counts[name] == self.break_at:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest_asyncio.fixture
async def storage(postgres_storage_url: str, statements: Statements) -> AsyncIterator[lash.Storage]:
    async with await lash.open(postgres_storage_url, on_statement=statements) as opened:
        for number in range(CALLERS):
            await created(opened, f"s{number}")
        yield opened


def turn(number: int, revision: int, *, tokens: int = 1, turn_id: str | None = "") -> Commit:
    """Return a commit to one of the sessions; its size depends on the session."""
    names = [f"{revision}-{index}" for index in range(number % 4 + 1)]
    return commit(
        revision,
        *chain(*names, after=f"{revision - 1}-{number % 4}" if revision else None),
        session_id=f"s{number}",
        turn_id=f"t{revision}" if turn_id == "" else turn_id,
        usage=(spent(tokens),),
        checkpoint=draft(revision, {"state": f"{number} at {revision}".encode()}),
    )


async def read(storage: lash.Storage, number: int) -> SessionRead:
    found = await storage.session(f"s{number}").load()
    assert found is not None
    return found


async def commit_all(storage: lash.Storage, *commits: Commit) -> list[CommitResult | BaseException]:
    """Commit to all of them concurrently."""
    calls = (storage.session(each.session_id).commit(each) for each in commits)
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_commits_that_wait_share_a_statement(storage: lash.Storage, statements: Statements) -> None:
    """Forty callers with three commits each need a third of the statements, and each session has its own rows."""

    async def three(number: int) -> None:
        for revision in range(3):
            result = await storage.session(f"s{number}").commit(turn(number, revision, tokens=number + 1))
            assert result.revision == revision + 1

    await asyncio.gather(*(three(number) for number in range(CALLERS)))
    assert statements.counts["commit_apply"] <= CALLERS * 3 / 3
    for number in range(CALLERS):
        found = await read(storage, number)
        expected = [f"{revision}-{index}" for revision in range(3) for index in range(number % 4 + 1)]
        assert [each.node_id for each in found.graph.nodes] == expected
        assert found.usage == (spent(3 * (number + 1)),)
        assert found.checkpoint.components == {"state": f"{number} at 2".encode()}


async def test_a_refusal_concerns_one_commit(storage: lash.Storage) -> None:
    """Stale, repeated and impossible commits do not affect the others in the same statement."""
    await commit_all(storage, *(turn(number, 0, tokens=MOST_TOKENS) for number in range(20)))
    stale, repeated, impossible = turn(3, 0, turn_id="other"), turn(4, 0, tokens=MOST_TOKENS), turn(5, 1)
    others = [turn(number, 1, tokens=0) for number in range(6, 20)]
    results = await commit_all(
        storage, turn(1, 1, tokens=0), turn(2, 1, tokens=0), stale, repeated, impossible, *others
    )
    assert isinstance(results[2], RevisionConflict)
    assert isinstance(results[3], CommitResult)
    assert results[3].revision == 1
    assert isinstance(results[4], InvalidInput)
    assert [each.revision for each in results[5:] if isinstance(each, CommitResult)] == [2] * len(others)
    assert (await read(storage, 5)).head.revision == 1


async def test_two_commits_to_one_session_are_told_apart(storage: lash.Storage) -> None:
    """Of concurrent rivals exactly one lands, whether they share a statement or not."""
    rivals = [turn(number, 0, turn_id=f"{number}-{rival}") for number in range(10) for rival in range(4)]
    results = await commit_all(storage, *rivals)
    landed = Counter(
        each.session_id for each, result in zip(rivals, results, strict=True) if isinstance(result, CommitResult)
    )
    assert landed == {f"s{number}": 1 for number in range(10)}
    assert all(isinstance(each, CommitResult | RevisionConflict) for each in results)


async def test_a_caller_that_gives_up_costs_nobody_else(storage: lash.Storage) -> None:
    """A commit whose caller is cancelled while it waits is whole or absent; the other commits land."""
    calls = [asyncio.create_task(storage.session(f"s{number}").commit(turn(number, 0))) for number in range(12)]
    await asyncio.sleep(0)
    for call in calls[6:]:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [each.revision for each in results[:6] if isinstance(each, CommitResult)] == [1] * 6
    for number in range(6, 12):
        assert await storage.session(f"s{number}").revision() in (0, 1)


async def test_a_lost_connection_is_told_to_those_who_cannot_repeat(
    storage: lash.Storage, statements: Statements
) -> None:
    """A turn is sent again safely; a commit without a turn may have landed, so its caller gets outcome_unknown."""
    first = [*range(30, 32), *range(MAX_TOGETHER)]
    await commit_all(storage, *(turn(number, 0) for number in first))
    lost: CommitResult | BaseException | None = None
    for revision in range(1, 10):
        # The first two are sent at once, the others in one statement; on a busy machine they may be divided.
        statements.break_at = statements.counts["commit_apply"] + 3
        results = await commit_all(
            storage, *(turn(number, revision, turn_id=None if number == 5 else "") for number in first)
        )
        lost = results.pop(first.index(5))
        assert [each.revision for each in results if isinstance(each, CommitResult)] == [revision + 1] * len(results)
        if isinstance(lost, StoreUnavailable):
            break
    assert isinstance(lost, StoreUnavailable)
    assert lost.outcome_unknown


async def test_locked_sessions_do_not_hold_up_the_others(storage: lash.Storage, postgres_storage_url: str) -> None:
    """While other transactions lock as many sessions as there are lanes, commits to free sessions land."""
    await commit_all(storage, *(turn(number, 0) for number in range(12)))
    options = PostgresOptions.from_url(postgres_storage_url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM lash_sessions WHERE session_id IN ('s0', 's1') FOR UPDATE")
            held = asyncio.ensure_future(commit_all(storage, turn(0, 1), turn(1, 1)))
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                results = await commit_all(storage, *(turn(number, 1) for number in range(2, 12)))
            assert [each.revision for each in results if isinstance(each, CommitResult)] == [2] * 10
            assert not held.done()
        assert [each.revision for each in await held if isinstance(each, CommitResult)] == [2, 2]
    finally:
        await connection.close()


async def test_a_fault_of_our_own_is_told_to_everybody_who_waits(
    storage: lash.Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception from outside lash reaches all callers; none of them waits without end."""
    await commit_all(storage, *(turn(number, 0) for number in range(12)))

    sent: list[Sequence[PlannedCommit]] = []

    def fail_for_those_who_wait(commits: Sequence[PlannedCommit]) -> tuple[str, tuple[object, ...]]:
        sent.append(commits)
        if len(sent) > 2:
            raise ZeroDivisionError
        return choose_statement(commits)

    monkeypatch.setattr("lash.postgres.commit.writer.choose_statement", fail_for_those_who_wait)
    async with asyncio.timeout(60):
        results = await commit_all(storage, *(turn(number, 1) for number in range(12)))
    assert [type(each) for each in results] == [CommitResult] * 2 + [ZeroDivisionError] * 10


FILL = """
CREATE TEMPORARY TABLE copied AS
SELECT (jsonb_populate_record(s, jsonb_build_object('session_key', 1000000 + n, 'session_id', 'other' || n))).*
FROM lash_sessions AS s, generate_series(1, 5000) AS n
WHERE s.session_id = 's1';
DO $$
DECLARE
    stored text;
BEGIN
    SELECT string_agg(attname, ', ') INTO stored
    FROM pg_attribute
    WHERE attrelid = 'lash_sessions'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '';
    EXECUTE format('INSERT INTO lash_sessions (%1$s) OVERRIDING SYSTEM VALUE SELECT %1$s FROM copied', stored);
END $$;
INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_key > 1000000;
INSERT INTO lash_turns SELECT session_key, 't0', 'hash', 'result', 1 FROM lash_sessions WHERE session_key > 1000000;
INSERT INTO lash_batches OVERRIDING SYSTEM VALUE
SELECT (jsonb_populate_record(b, jsonb_build_object(
    'seq', 1000000 + n, 'batch_id', 'other' || n, 'source_key', NULL, 'claim_id', NULL, 'claim_token', NULL,
    'claim_expires_at_ms', NULL, 'claim_lease_fencing', NULL
))).*
FROM lash_batches AS b, generate_series(1, 5000) AS n;
"""
"""Five thousand other sessions, and as many batches in the queue of the test's own."""


@pytest.mark.parametrize("statement", ["commit_alone", "commit_alone_leased", "commit_turns", "commit_apply"])
async def test_a_commit_reads_few_rows_however_many_sessions_there_are(
    storage: lash.Storage, postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """No step of the statement touches more than a few rows, although the same plan serves one commit and sixteen."""
    await commit_all(storage, turn(1, 0))
    await storage.queue.enqueue(
        lash.model.BatchDraft(session_id="s1", payloads=(lash.model.TurnInput.of_text("next"),))
    )
    lease = await storage.leases.claim("s1", lash.model.LeaseOwner(owner_id="w", incarnation_id="1"), ttl_ms=60_000)
    assert isinstance(lease, lash.model.Acquired)
    claim = await storage.queue.claim(lease.lease.fence, boundary=lash.model.Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, lash.model.Claim)
    planned: list[PlannedCommit] = []

    async def note(_: CommitWriter, each: PlannedCommit) -> None:
        planned.append(each)
        raise StoreUnavailable("noted")

    monkeypatch.setattr(CommitWriter, "write", note)
    await commit_all(storage, consuming(turn(1, 1), claim))
    options = PostgresOptions.from_url(postgres_storage_url)
    text = load_queries("lash.postgres.sql", schema=options.schema)[statement]
    if not statement.startswith("commit_alone"):
        monkeypatch.setattr("lash.postgres.commit.statement._may_go_alone", lambda _: False)
    if statement == "commit_apply":
        monkeypatch.setattr("lash.postgres.commit.statement._replaced_if_ordinary", lambda _: None)
    if statement == "commit_alone":
        monkeypatch.setattr("lash.postgres.commit.statement.lease_arguments", lambda _: None)
    name, arguments = choose_statement(planned)
    assert name == statement
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema, **PLANNING})
    try:
        await connection.execute(FILL)
        await connection.execute("ANALYZE lash_sessions, lash_session_leases, lash_turns, lash_batches")
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"
        plan = json.loads(await connection.fetchval(explain, *arguments))[0]["Plan"]
    finally:
        await connection.close()
    most = max(_steps(plan), key=_rows_read)
    assert _rows_read(most) <= MAX_TOGETHER, most


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _steps(child)


def _rows_read(step: dict[str, Any]) -> float:
    rows: float = step["Actual Rows"] + step.get("Rows Removed by Filter", 0)
    return rows * float(step["Actual Loops"])

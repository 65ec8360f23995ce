"""The contract of usage: tokens of all sessions, summed by day, model, agent, session and source."""

from __future__ import annotations

from typing import Final

import pytest

import lash
from lash.errors import InvalidInput
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.usage import TokenUsage, UsageEntry, UsageGroup, UsageSum
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.costs import cost
from tests.factories.session import commit, created, node, spent
from tests.raw import raw

DAY_MS: Final = 86_400_000
MOST: Final = 2**63 - 1


async def spend(storage: Storage, session_id: str, revision: int, *entries: UsageEntry, agent: str = "") -> None:
    """Commit a turn that spent these tokens."""
    options: dict[str, lash.model.JSON] = {"agent": agent} if agent else {}
    state = CheckpointDraft(turn_state=TurnState(protocol_turn_options=options))
    new = node(f"n{revision}", f"n{revision - 1}" if revision else None)
    await storage.session(session_id).commit(
        commit(revision, new, session_id=session_id, checkpoint=state, usage=entries)
    )


def shown(sums: tuple[UsageSum, ...]) -> list[tuple[str | int | None, ...]]:
    """Return what the sums are grouped by, and their input tokens."""
    return [(each.day, each.model, each.agent, each.session_id, each.source, each.usage.input_tokens) for each in sums]


async def filled(harness: Harness, storage: Storage) -> tuple[str, str]:
    """Two sessions spend tokens on two days; return the days."""
    start = harness.clock.now_ms()
    await harness.clock.advance(DAY_MS - start % DAY_MS)
    for name in ("a", "b"):
        await created(storage, name)
    await spend(storage, "a", 0, spent(1, model="x"), spent(2, model="y", source="subagent"), agent="helper")
    await spend(storage, "b", 0, spent(4, model="x"))
    await harness.clock.advance(DAY_MS)
    await spend(storage, "a", 1, spent(8, model="x"))
    first = (start // DAY_MS + 1) * DAY_MS
    return day_of(first), day_of(first + DAY_MS)


def day_of(at_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


class TestSums:
    """Laws of sums of usage."""

    async def test_tokens_are_summed_by_any_groups(self, harness: Harness) -> None:
        """Every combination of day, model, agent, session and source has its own sum, in order."""
        storage = await harness.open()
        first, second = await filled(harness, storage)
        usage = storage.usage
        assert shown((await usage.sum(["day"])).sums) == [
            (first, None, None, None, None, 7),
            (second, None, None, None, None, 8),
        ]
        assert shown((await usage.sum(["model"])).sums) == [
            (None, "x", None, None, None, 13),
            (None, "y", None, None, None, 2),
        ]
        assert shown((await usage.sum(["agent"])).sums) == [
            (None, None, None, None, None, 4),
            (None, None, "helper", None, None, 11),
        ]
        assert shown((await usage.sum(["session", "day"])).sums) == [
            (first, None, None, "a", None, 3),
            (first, None, None, "b", None, 4),
            (second, None, None, "a", None, 8),
        ]
        assert shown((await usage.sum(["session", "source"])).sums) == [
            (None, None, None, "a", "subagent", 2),
            (None, None, None, "a", "turn", 9),
            (None, None, None, "b", "turn", 4),
        ]
        assert shown((await usage.sum(["source"])).sums) == [
            (None, None, None, None, "subagent", 2),
            (None, None, None, None, "turn", 13),
        ]
        assert shown((await usage.sum([])).sums) == [(None, None, None, None, None, 15)]

    async def test_filters_choose_entries(self, harness: Harness) -> None:
        """A time, a session, an agent and a model choose entries; the start counts, and the end does not."""
        storage = await harness.open()
        await filled(harness, storage)
        now = harness.clock.now_ms()

        async def total(**chosen: int | str | None) -> int:
            sums = (await storage.usage.sum([], **chosen)).sums  # type: ignore[arg-type]
            return sum(each.usage.input_tokens for each in sums)

        assert await total(since_ms=now) == 8
        assert await total(since_ms=now + 1) == 0
        assert await total(until_ms=now) == 7
        assert await total(since_ms=now - DAY_MS, until_ms=now) == 7
        assert await total(session_id="a") == 11
        assert await total(session_id="a", since_ms=now - 1) == 8
        assert await total(session_id="unknown") == 0
        assert await total(agent="helper") == 11
        assert await total(model="y") == 2
        assert await total(agent="helper", model="x", since_ms=now) == 8
        by_session = await storage.usage.sum(["session"], agent="helper", until_ms=now)
        assert shown(by_session.sums) == [(None, None, None, "a", None, 3)]

    async def test_the_sums_of_sums_are_the_totals(self, harness: Harness) -> None:
        """All four counters are summed, beyond 64 bits if need be, and a deleted session takes its tokens along."""
        storage = await harness.open()
        most = UsageEntry(
            source="turn",
            model="m",
            usage=TokenUsage(input_tokens=MOST, output_tokens=2**32 - 1, cached_input_tokens=2**40, reasoning_tokens=5),
        )
        for name in ("a", "b"):
            await created(storage, name)
            await spend(storage, name, 0, most)
        (both,) = (await storage.usage.sum(["model"])).sums
        assert both.usage == TokenUsage(
            input_tokens=2 * MOST, output_tokens=2**33 - 2, cached_input_tokens=2**41, reasoning_tokens=10
        )
        await storage.sessions.delete("a")
        (one,) = (await storage.usage.sum(["model"])).sums
        assert one.usage == most.usage

    async def test_pages_do_not_overlap(self, harness: Harness) -> None:
        """Pages of sums continue where the last one ended, each in one statement."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append)
        await filled(harness, storage)
        by = (UsageGroup.DAY, "model", UsageGroup.SESSION)
        for groups, count, query in (
            (by, 4, "usage_sums"),
            (("day", "model"), 3, "usage_sums_of_all"),
            (("session", "source"), 3, "usage_sums_by_session"),
        ):
            whole = await storage.usage.sum(groups)
            assert (len(whole.sums), whole.next_cursor) == (count, None)
            names.clear()
            found: list[UsageSum] = []
            cursor: str | None = None
            for _ in range(count):
                page = await storage.usage.sum(groups, limit=1, cursor=cursor)
                found += page.sums
                cursor = page.next_cursor
            assert (tuple(found), cursor) == (whole.sums, None)
            assert [name for name in names if name.startswith("usage")] == [query] * count

    async def test_entries_of_every_commit_count(self, harness: Harness) -> None:
        """The first commit of a new session is booked as one of an old session, and a repeated turn is booked once."""
        storage = await harness.open()
        first = commit(0, node("n0"), usage=(spent(3),), turn_id="t")
        await storage.sessions.create("s", commit=first)
        await storage.session("s").commit(first)
        assert shown((await storage.usage.sum(["session", "day"])).sums) == [
            (day_of(harness.clock.now_ms()), None, None, "s", None, 3)
        ]

    async def test_bad_arguments_are_refused(self, harness: Harness) -> None:
        """An unknown group, one text for several groups, and a cursor of other groups raise InvalidInput."""
        storage = await harness.open()
        await filled(harness, storage)
        with pytest.raises(InvalidInput, match="unknown group 'week'; sum by day, model, agent, session, source"):
            await storage.usage.sum(["week"])
        with pytest.raises(InvalidInput, match="expected a sequence"):
            await storage.usage.sum("day")
        page = await storage.usage.sum(["day"], limit=1)
        with pytest.raises(InvalidInput, match="expected a cursor of a list of sums by model"):
            await storage.usage.sum(["model"], cursor=page.next_cursor)


_MANY: Final = """
    INSERT INTO lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens, committed_at_ms
    )
    SELECT s.session_key, number - 20000, 0, 'turn', 'm', 1, 1, 0, 0, number
    FROM lash_sessions AS s CROSS JOIN {numbers} WHERE s.session_id = 's'
"""
_IDLE: Final = """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'idle' || number, '', 0, '', '{{"type":"root"}}', 0, 0 FROM {numbers}
"""
_NUMBERS: Final = {
    "sqlite": """(
        WITH RECURSIVE n (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < 10000)
        SELECT number FROM n
    )""",
    "postgres": "generate_series(1, 10000) AS number",
}


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_what_is_older_costs_nothing(backend_url: str, backend_name: str) -> None:
    """A sum of the last day reads as much beside 10,000 older entries and 10,000 idle sessions as beside ten."""
    async with await lash.open(backend_url) as storage:
        await created(storage)
        for revision in range(10):
            await spend(storage, "s", revision, spent(1))
        ((moment,),) = await raw(backend_url, "SELECT min(committed_at_ms) FROM lash_usage")
    numbers = _NUMBERS[backend_name]
    await raw(backend_url, (_MANY + "AND number > 9990").format(numbers=numbers))
    few = await _cost(backend_url, moment)
    await raw(backend_url, (_MANY + "AND number <= 9990").format(numbers=numbers))
    await raw(backend_url, _IDLE.format(numbers=numbers))
    await raw(backend_url, "ANALYZE")
    many = await _cost(backend_url, moment)
    # Counts of PostgreSQL vary by a few rows with what was vacuumed meanwhile.
    assert 0 < many <= few + 20, (few, many)


async def _cost(url: str, since_ms: int) -> float:
    named = {
        **{f"by_{group}": int(group == "day") for group in ("day", "model", "agent", "session", "source")},
        "timed": 1,
        "since_ms": since_ms,
        "until_ms": MOST,
        "floor_ms": since_ms,
        **dict.fromkeys(("agent", "model")),
        "after_day": -2,
        "after_model": "",
        "after_agent": "",
        "after_session": "",
        "after_source": "",
        "limit": 100,
    }
    placed = f"ARRAY['day'], true, {since_ms}, {MOST}, {since_ms}, NULL, NULL, NULL, -2, '', '', '', '', 100"
    return await cost(url, "usage_sums", named, placed)
